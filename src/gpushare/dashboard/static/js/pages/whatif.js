// Where a pod would go that does not exist yet. The text goes to the dashboard's server and no further.
import { html, Trouble, useEffect, useRef, useState } from '../ui.js';
import { known, mib, n, t } from '../i18n.js';
import { get, post } from '../api.js';
import { href } from '../router.js';
import { store } from '../store.js';
import { Gpu, Notes } from '../parts/basics.js';
import { ChangeBar } from '../parts/bar.js';
import { Explained } from '../parts/explained.js';
import { Table } from '../parts/table.js';

const MOST_BYTES = 256 * 1024;
const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: main
      image: python:3.13
      resources:
        limits:
          aliyun.com/gpu-mem: 3500
`;

// Kept while other pages are looked at, and forgotten with the tab.
const kept = { yaml: '', replicas: '', policy: '', result: null, error: null };
let policies = [];

function Places({ item }) {
  const counts = item.places.map((place, at) => html`${at ? ' · ' : ' '}<${Gpu} node=${place.node} gpu=${place.gpu} /> (${n(place.count)})`);
  return html`<p class=${`lead ${item.fit === item.asked ? 'yes' : 'no'}`}><strong>${String(item.namespace)}/${String(item.name)}</strong>: ${t('whatif.fit', { fit: item.fit, asked: item.asked })}${item.places.length > 0 && ':'}${counts}</p>`;
}

const COLUMNS = () => [
  { key: 'gpu', label: t('node.gpu'), value: row => `${row.node} ${row.index}`, cell: row => html`<${Gpu} node=${row.node} gpu=${row.index} />` },
  { key: 'bar', label: t('whatif.change'), value: row => row.after - row.before, cell: row => html`<${ChangeBar} ...${row} />` },
  { key: 'before', label: t('whatif.before'), num: true, cell: row => mib(row.before) },
  { key: 'after', label: t('whatif.after'), num: true, cell: row => mib(row.after) },
  { key: 'total', label: t('table.total'), num: true, cell: row => mib(row.total) },
];

const Result = ({ result }) => html`<section class="result" aria-label=${t('whatif.result')}>
  ${result.items.map((item, at) => html`<div key=${at} class="panel"><${Places} item=${item} />
    ${item.explanation && (item.fit < item.asked || item.asked === 0) && html`<${Explained} explanation=${item.explanation} ways=${item.ways} text=${item.text} />`}</div>`)}
  ${result.gpus.length > 0 && html`<${Table} title=${t('whatif.gpus')} columns=${COLUMNS()} rows=${result.gpus} rowKey=${row => `${row.node} ${row.index}`} csvName="what-if" kubectl="gpushare why -f FILE" />
    <p><a href=${href('overview')}>${t('whatif.map')}</a></p>`}
  ${result.scheduler && html`<p class="muted">kube-scheduler: ${String(result.scheduler)}</p>`}
  <${Notes} notes=${result.notes} />
</section>`;

// Puts the cursor on the line that an error names.
function toLine(area, number) {
  const start = area.value.split('\n').slice(0, number - 1).join('\n').length + (number > 1 ? 1 : 0);
  const end = area.value.indexOf('\n', start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
}

export default function WhatIfPage() {
  const [, draw] = useState(0), [busy, setBusy] = useState(false), [over, setOver] = useState(false);
  const area = useRef(null), here = useRef(true);
  const set = changes => {
    Object.assign(kept, changes);
    if (here.current) draw(count => count + 1);
  };
  useEffect(() => {
    here.current = true;
    get('api/me').then(me => { policies = me.policies || []; set({}); }, () => {});
    return () => { here.current = false; };
  }, []);
  const submit = async event => {
    event.preventDefault();
    if (new Blob([kept.yaml]).size > MOST_BYTES) return set({ error: { error: t('whatif.tooLarge') }, result: null });
    setBusy(true);
    try {
      const replicas = kept.replicas === '' ? null : Number(kept.replicas);
      const result = await post('api/whatif', { yaml: kept.yaml, replicas, policy: kept.policy, namespace: 'default' });
      store.highlight(result.items.flatMap(item => item.places).filter(place => known(place.gpu)).map(({ node, gpu }) => ({ node, index: gpu })));
      set({ result, error: null });
    } catch (error) {
      store.highlight([]);
      set({ result: null, error });
    }
    setBusy(false);
  };
  const take = async files => {
    if (!files?.length) return;
    if (files[0].size > MOST_BYTES) set({ error: { error: t('whatif.tooLarge') } });
    else set({ yaml: await files[0].text(), error: null });
  };
  const drop = event => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files);
  };
  const line = /line (\d+)/.exec(kept.error?.error || '')?.[1];
  return html`<article class="page"><h1>${t('whatif.title')}</h1><p class="muted">${t('whatif.what')}</p>
    <form class="whatif" onSubmit=${submit}>
      <textarea ref=${area} class=${over ? 'over' : ''} rows="12" spellcheck="false" aria-label=${t('whatif.yaml')} placeholder=${t('whatif.paste')} value=${kept.yaml} aria-invalid=${kept.error ? 'true' : null}
        onInput=${event => set({ yaml: event.target.value })} onDrop=${drop} onDragOver=${event => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}></textarea>
      <div class="row">
        <label class="file">${t('whatif.file')}<input type="file" accept=".yaml,.yml,.json" onChange=${event => take(event.target.files)} /></label>
        <button type="button" onClick=${() => set({ yaml: EXAMPLE, error: null })}>${t('whatif.example')}</button>
        <label>${t('whatif.replicas')} <input type="number" min="1" max="10000" placeholder=${t('whatif.written')} value=${kept.replicas} onInput=${event => set({ replicas: event.target.value })} /></label>
        <label>${t('whatif.policy')} <select value=${kept.policy} onChange=${event => set({ policy: event.target.value })}><option value="">${t('whatif.written')}</option>${policies.map(name => html`<option value=${String(name)}>${String(name)}</option>`)}</select></label>
        <button class="main" disabled=${busy || !kept.yaml.trim()}>${t(busy ? 'whatif.busy' : 'whatif.ask')}</button>
      </div>
    </form>
    <div aria-live="polite">
      ${kept.error && html`<div><${Trouble} failure=${kept.error} />${line && html`<button class="again" onClick=${() => toLine(area.current, Number(line))}>${t('whatif.line', { line })}</button>`}</div>`}
      ${kept.result && html`<${Result} result=${kept.result} />`}
    </div></article>`;
}
