// `/`: find a node, a GPU or a pod by any part of its name, and go there.
import { get } from './api.js';
import { Dialog } from './dialog.js';
import { t } from './i18n.js';
import { go, href } from './router.js';
import { Trouble, html, useEffect, useRef, useState } from './ui.js';

const PAUSE = 150; // milliseconds after the last letter

function listed({ nodes = [], gpus = [], pods = [] }) {
  return [
    ...nodes.map(name => ({ kind: 'node', words: name, link: href('node', name) })),
    ...gpus.map(({ node, index, uuid }) => ({ kind: 'gpu', words: `${node} GPU ${index}`, more: uuid || '', link: href('gpu', node, index) })),
    ...pods.map(({ namespace, name, node, gpu }) => ({
      kind: 'pod', words: `${namespace}/${name}`, more: node ? `${node}${gpu >= 0 && gpu !== null ? ` GPU ${gpu}` : ''}` : t('search.waits'),
      link: node && gpu !== null && gpu >= 0 ? href('gpu', node, gpu) : node ? href('node', node) : href('waiting', { pod: `${namespace}/${name}` }),
    })),
  ];
}

export function Search({ onClose }) {
  const [words, type] = useState('');
  const [found, tell] = useState({ words: '', items: [], error: null });
  const [at, move] = useState(0);
  const list = useRef(null);
  useEffect(() => {
    const wanted = words.trim();
    if (!wanted) return tell({ words: '', items: [], error: null });
    let over = false;
    const timer = setTimeout(() => get(`api/search?q=${encodeURIComponent(wanted)}`).then(
      answer => over || (tell({ words: wanted, items: listed(answer), error: null }), move(0)),
      error => over || tell({ words: wanted, items: [], error })), PAUSE);
    return () => { over = true; clearTimeout(timer); };
  }, [words]);
  useEffect(() => list.current?.children[at]?.scrollIntoView({ block: 'nearest' }), [at]);
  const open = item => {
    if (!item) return;
    onClose();
    go(item.link);
  };
  const onKey = event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) move(Math.max(0, Math.min(found.items.length - 1, at + step)));
    else if (event.key === 'Enter') open(found.items[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} label=${t('search')} kind="search" onClose=${onClose}>
    <input type="search" autofocus value=${words} placeholder=${t('search.what')} role="combobox" aria-expanded=${found.items.length > 0} aria-controls="found"
      aria-activedescendant=${found.items.length ? `found-${at}` : null} aria-label=${t('search.what')} autocomplete="off" spellcheck=${false} onInput=${event => type(event.target.value)} onKeyDown=${onKey} />
    ${found.error && html`<${Trouble} failure=${found.error} />`}
    <ul id="found" role="listbox" ref=${list} aria-label=${t('search.found')}>
      ${found.items.map((item, i) => html`<li key=${item.link + item.words} id=${`found-${i}`} role="option" aria-selected=${i === at} onPointerMove=${() => i === at || move(i)} onClick=${() => open(item)}>
        <span class="tag">${t(`search.${item.kind}`)}</span> <b>${String(item.words)}</b> <span class="muted">${String(item.more || '')}</span></li>`)}
    </ul>
    <p class="muted" role="status">${found.words && !found.items.length && !found.error ? t('search.nothing', { words: found.words }) : found.items.length ? t('search.count', { n: found.items.length }) : t('search.hint')}</p>
  <//>`;
}
