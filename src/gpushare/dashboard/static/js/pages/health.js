// Whether gpushare itself is well: its extender, its nodes, and what is not as it should be.
import { html } from '../ui.js';
import { age, known, n, t, text } from '../i18n.js';
import { Answer, Facts, named, Node, Notes, secondsSince } from '../parts/basics.js';
import { useFresh } from '../parts/fresh.js';
import { amount, count, gpuColumn, podColumn, Table } from '../parts/table.js';

const ago = seconds => (known(seconds) ? t('why.ago', { age: age(seconds) }) : text(null));
const listed = (list, show) => (known(list) ? list.map(show).join(' · ') || t('health.none') : text(null));

function Extender({ extender }) {
  if (!extender?.found) return html`<p class="lead">${extender ? t('health.noExtender') : `${t('health.extender')} ${text(null)}`}</p>`;
  const { ready, version, policy, unit, namespace, image, count } = extender;
  return html`<p class="lead">${t('health.extender')} <strong class=${ready ? 'yes' : ready === false ? 'no' : ''}>${t(`health.ready.${ready}`)}</strong></p>
    <${Facts} facts=${[count > 1 && t('health.count.pods', { count }), version, policy && t('why.policy', { policy }), unit && t('health.unit', { unit }), namespace, image]} />`;
}

const word = key => ({ key, label: t(`health.${key}`) });
const node = { key: 'node', label: t('why.node'), cell: row => html`<${Node} node=${row.node} />` };
const why = { key: 'why', label: t('waiting.why') };
const FINDINGS = {
  unhealthy: ['kubectl inspect gpushare -o wide', gpuColumn(), why, count('pods', t('health.pods'))],
  over: ['kubectl get gpunodes', podColumn(), { key: 'container', label: t('table.container') }, gpuColumn(), amount('over', t('health.overBy'))],
  unplaced: ['kubectl inspect gpushare -d', podColumn(), node, why],
  audit: ['kubectl get events -A', node, { ...podColumn(), cell: row => known(row.pod) && podColumn().cell(row) }, word('reason'), word('message'), count('count', t('health.count')), { key: 'time', label: t('table.time'), cell: row => ago(secondsSince(row.time)) }],
};

// A list that could not be read is not empty, but unknown.
const Findings = ({ data }) => Object.entries(FINDINGS).map(([key, [kubectl, ...columns]]) => html`<${Table} key=${key} title=${t(`health.${key}`)} columns=${columns} rows=${data[key] || []} rowKey=${JSON.stringify} csvName=${key} kubectl=${kubectl} empty=${known(data[key]) ? t('health.none') : text(null)} />`);

const show = ({ extender, notes, schedulers, nodes, versions, policies, clusterPolicy, watch, ...data }) => html`<${Extender} extender=${extender} />
  <${Notes} notes=${notes} />
  <dl class="pairs">${[
    ['schedulers', listed(schedulers, one => `${one.name} (${t('health.count.pods', { count: one.pods })})`)],
    ['pinning', listed(nodes && Object.entries(nodes), ([pin, count]) => `${named('health.pin', pin)} ${n(count)}`)],
    ['versions', listed(versions, one => `${text(one.version)} (${t('health.count.nodes', { count: one.nodes })})`)],
    ['policies', listed(policies, one => `${n(one.pods)} ${one.policy}`)],
    ['clusterPolicy', clusterPolicy ? [clusterPolicy.state, clusterPolicy.message].filter(Boolean).join(': ') : text(null)],
    ['watch', [ago(watch?.watch), watch?.failure].filter(Boolean).join('. ')],
    ['samples', ago(watch?.use)],
  ].map(([key, words]) => html`<dt>${t(`health.${key}`)}</dt><dd>${words}</dd>`)}</dl>
  <${Findings} data=${data} />`;

export default function HealthPage() {
  const answer = useFresh('api/health', { seconds: 10 });
  return html`<article class="page"><h1>${t('health.title')}</h1><${Answer} answer=${answer} show=${show} /></article>`;
}
