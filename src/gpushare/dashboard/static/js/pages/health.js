// Whether gpushare itself is well: its extender, its nodes, and what is not as it should be.
import { html } from '../ui.js';
import { age, known, mib, n, t, text } from '../i18n.js';
import { Answer, Gpu, Node, Notes, Pod, secondsSince } from '../parts/basics.js';
import { useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';

const yesNo = value => (known(value) ? t(value ? 'health.yes' : 'health.no') : text(null));
const listed = (list, show) => (known(list) ? list.map(show).join(' · ') || t('health.none') : text(null));
const named = one => (one && typeof one === 'object' ? String(one.name ?? one.scheduler ?? '') : String(one));

function Extender({ extender }) {
  if (!known(extender)) return html`<p class="lead">${t('health.extender')}: ${text(null)}</p>`;
  if (!extender.found) return html`<p class="lead no">${t('health.noExtender')}</p>`;
  const state = extender.ready === true ? ['yes', 'health.ready'] : extender.ready === false ? ['no', 'health.notReady'] : ['muted', 'health.readyUnknown'];
  const facts = [extender.version, known(extender.policy) && t('health.policy', { policy: extender.policy }), known(extender.unit) && t('health.unit', { unit: extender.unit }), extender.namespace, extender.image];
  return html`<p class="lead">${t('health.extender')} <strong class=${state[0]}>${t(state[1])}</strong></p>
    <p class="facts">${facts.filter(Boolean).map(fact => html`<span>${String(fact)}</span>`)}</p>`;
}

const gpu = { key: 'gpu', label: t('node.gpu'), value: row => `${row.node} ${row.gpu}`, cell: row => html`<${Gpu} node=${row.node} gpu=${row.gpu} />` };
const pod = { key: 'pod', label: t('table.pod'), value: row => (known(row.pod) ? `${row.namespace}/${row.pod}` : null), cell: row => html`<${Pod} ...${row} />` };
const node = { key: 'node', label: t('why.node'), cell: row => html`<${Node} node=${row.node} />` };

const FINDINGS = [
  ['unhealthy', 'kubectl inspect gpushare -o wide', [gpu, { key: 'why', label: t('node.why') }, { key: 'pods', label: t('health.pods'), num: true, cell: row => n(row.pods) }]],
  ['over', 'kubectl get gpunodes', [pod, { key: 'container', label: t('table.container') }, gpu, { key: 'over', label: t('health.overBy'), num: true, cell: row => mib(row.over) }]],
  ['unplaced', 'kubectl inspect gpushare -d', [pod, node]],
  ['audit', 'kubectl get events -A --field-selector type=Warning', [node, { key: 'reason', label: t('health.reason') }, { key: 'message', label: t('health.message') }, { key: 'count', label: t('health.count'), num: true, cell: row => n(row.count) }, { key: 'time', label: t('table.time'), value: row => row.time, cell: row => age(secondsSince(row.time)) }]],
];

function Findings({ data }) {
  return FINDINGS.map(([key, kubectl, columns]) => (known(data[key])
    ? html`<${Table} key=${key} title=${t(`health.${key}`)} columns=${columns} rows=${data[key]} rowKey=${row => JSON.stringify([row.node, row.gpu, row.namespace, row.pod, row.container, row.reason, row.message])} csvName=${key} kubectl=${data[key].length ? kubectl : null} empty=${t('health.none')} />`
    : html`<section key=${key} class="tablebox"><header><h2>${t(`health.${key}`)}</h2></header><p class="muted empty">${text(null)}</p></section>`));
}

const show = data => html`<${Extender} extender=${data.extender} />
  <${Notes} notes=${data.notes} />
  <dl class="pairs">
    <dt>${t('health.schedulers')}</dt><dd>${listed(data.schedulers, named)}</dd>
    <dt>${t('health.pinning')}</dt><dd>${known(data.nodes) ? Object.entries(data.nodes).map(([pin, count]) => `${t(`health.pin.${pin}`)} ${n(count)}`).join(' · ') : text(null)}</dd>
    <dt>${t('health.versions')}</dt><dd>${listed(data.versions, one => `${text(one.version)} (${t('health.nodes', { count: one.nodes })})`)}</dd>
    <dt>${t('health.policies')}</dt><dd>${listed(data.policies, one => `${n(one.pods)} ${one.policy}`)}</dd>
    <dt>${t('health.clusterPolicy')}</dt><dd>${data.clusterPolicy ? [data.clusterPolicy.state, data.clusterPolicy.message].filter(Boolean).map(String).join(': ') : text(null)}</dd>
    <dt>${t('health.watch')}</dt><dd>${data.watch ? `${t('why.ago', { age: age(data.watch.watch) })}${data.watch.failure ? `. ${data.watch.failure}` : ''}` : text(null)}</dd>
    <dt>${t('health.samples')}</dt><dd>${data.watch && known(data.watch.use) ? t('why.ago', { age: age(data.watch.use) }) : text(null)}</dd>
  </dl>
  <${Findings} data=${data} />`;

export default function HealthPage() {
  const answer = useFresh('api/health', { seconds: 10 });
  return html`<article class="page"><h1>${t('health.title')}</h1><${Answer} answer=${answer} show=${show} /></article>`;
}
