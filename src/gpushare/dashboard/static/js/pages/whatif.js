// Where a pod would go that does not exist yet. The text goes to the dashboard's server and no further.
import { html, Trouble, useRef, useState } from '../ui.js';
import { known, n, t } from '../i18n.js';
import { post } from '../api.js';
import { useMe } from '../me.js';
import { href } from '../router.js';
import { store } from '../store.js';
import { Gpu, Notes, wide } from '../parts/basics.js';
import { Explained } from '../parts/explained.js';
import { amount, gpuColumn, Table } from '../parts/table.js';

const MOST_BYTES = 256 * 1024;
const COMMAND = 'gpushare why -f FILE';
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

const Bar = ({ total, before, after }) => html`<div class="gpubar"><a class="share had" ref=${wide(before, total)}></a><a class="share new" ref=${wide(after - before, total)}></a></div>`;

const COLUMNS = [
  gpuColumn('index'),
  { key: 'bar', label: t('whatif.change'), value: row => row.after - row.before, cell: row => html`<${Bar} ...${row} />` },
  ...['before', 'after'].map(key => amount(key, t(`whatif.${key}`))), amount('total', t('table.total')),
];

const Item = ({ item, item: { namespace, name, fit, asked, places } }) => html`<div class="panel">
  <p class="lead">${String(namespace)}/${String(name)}: <strong class=${fit === asked ? 'yes' : 'no'}>${t('whatif.fit', { fit, asked })}</strong>
    ${places.map((place, at) => html`${at ? ' · ' : ': '}<${Gpu} ...${place} /> (${n(place.count)})`)}</p>
  ${item.explanation && html`<${Explained} ...${item} kubectl=${COMMAND} />`}</div>`;

const Result = ({ result: { items, gpus, scheduler, notes } }) => html`<section aria-label=${t('whatif.result')}>
  ${items.map(item => html`<${Item} item=${item} />`)}
  ${gpus.length > 0 && html`<${Table} title=${t('whatif.gpus')} columns=${COLUMNS} rows=${gpus} rowKey=${row => `${row.node} ${row.index}`} csvName="what-if" kubectl=${COMMAND} /><p><a href=${href('overview')}>${t('whatif.map')}</a></p>`}
  ${scheduler && html`<p class="muted">kube-scheduler: ${String(scheduler)}</p>`}
  <${Notes} notes=${notes} /></section>`;

// Puts the cursor on the line that an error names.
function toLine(area, number) {
  const lines = area.value.split('\n'), start = lines.slice(0, number - 1).join('\n').length + (number > 1);
  area.focus();
  area.setSelectionRange(start, start + (lines[number - 1] || '').length);
}

export default function WhatIfPage() {
  const [, draw] = useState(0), [busy, setBusy] = useState(false), [over, setOver] = useState(false);
  const area = useRef(null);
  const set = changes => draw(Object.assign(kept, changes) && Math.random());
  const typed = key => event => set({ [key]: event.target.value });
  const submit = async event => {
    event.preventDefault();
    setBusy(true);
    const { yaml, replicas, policy } = kept;
    try {
      const result = await post('api/whatif', { yaml, replicas: replicas === '' ? null : Number(replicas), policy, namespace: 'default' });
      store.highlight(result.items.flatMap(item => item.places).filter(place => known(place.gpu)).map(({ node, gpu: index }) => ({ node, index })));
      set({ result, error: null });
    } catch (error) {
      store.highlight([]);
      set({ result: null, error });
    }
    setBusy(false);
  };
  const take = async ([file]) => file && set(file.size > MOST_BYTES ? { error: { error: t('whatif.tooLarge') } } : { yaml: await file.text(), error: null });
  const drag = (inside, then) => event => {
    event.preventDefault();
    setOver(inside);
    then?.(event.dataTransfer.files);
  };
  const { yaml, replicas, policy, error, result } = kept, { policies = [] } = useMe();
  const line = /line (\d+)/.exec(`${error?.error} ${error?.why}`)?.[1];
  return html`<article class="page"><h1>${t('whatif.title')}</h1><p class="muted">${t('whatif.what')}</p>
    <form class="whatif" onSubmit=${submit}>
      <textarea ref=${area} class=${over ? 'over' : ''} rows="12" maxlength=${MOST_BYTES} spellcheck="false" aria-label=${t('whatif.yaml')} placeholder=${t('whatif.paste')} value=${yaml} aria-invalid=${String(Boolean(error))}
        onInput=${typed('yaml')} onDrop=${drag(false, take)} onDragOver=${drag(true)} onDragLeave=${drag(false)}></textarea>
      <div class="fields">
        <label class="file">${t('whatif.file')}<input type="file" accept=".yaml,.yml,.json" onChange=${event => take(event.target.files)} /></label>
        <button type="button" onClick=${() => set({ yaml: EXAMPLE, error: null })}>${t('whatif.example')}</button>
        <label>${t('whatif.replicas')} <input type="number" min="1" max="1000" placeholder=${t('whatif.written')} value=${replicas} onInput=${typed('replicas')} /></label>
        <label>${t('whatif.policy')} <select value=${policy} onChange=${typed('policy')}><option value="">${t('whatif.written')}</option>${policies.map(name => html`<option>${String(name)}</option>`)}</select></label>
        <button class="main" disabled=${busy || !yaml.trim()}>${t(busy ? 'whatif.busy' : 'whatif.ask')}</button>
      </div>
    </form>
    <div aria-live="polite">
      ${error && html`<${Trouble} failure=${error} />${line && html`<button onClick=${() => toLine(area.current, Number(line))}>${t('whatif.line', { line })}</button>`}`}
      ${result && html`<${Result} result=${result} />`}
    </div></article>`;
}
