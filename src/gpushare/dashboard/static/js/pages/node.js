// One node: its GPUs with who has how much of each, what would still fit, and what is odd about it.
import { html } from '../ui.js';
import { age, known, mib, n, t } from '../i18n.js';
import { path } from '../api.js';
import { Answer, Facts, Gpu, GpuBar, named, Notes, over } from '../parts/basics.js';
import { touches, useFresh } from '../parts/fresh.js';
import { amount, count, podColumn, Table } from '../parts/table.js';

function health({ healthy, why, shares }) {
  if (!healthy) return [t('node.unhealthy'), why].filter(Boolean).join(': ');
  return over(shares) > 0 ? t('table.overBy', { over: mib(over(shares)) }) : '';
}

const columns = node => [
  { key: 'gpu', label: t('table.gpuHead'), value: gpu => gpu.index, cell: gpu => html`<${Gpu} node=${node.name} gpu=${gpu.index} alone />` },
  { key: 'bar', label: t('node.shares'), value: gpu => gpu.granted, cell: gpu => html`<${GpuBar} gpu=${gpu} />` },
  ...(node.gpus.some(gpu => gpu.slots) ? [{ key: 'slots', label: t('node.slots'), num: true, value: gpu => gpu.usedSlots, cell: gpu => `${gpu.usedSlots}/${gpu.slots}` }] : []),
  amount('used', t('table.used')),
  amount('free', t('table.free')),
  count('util', t('node.util')),
  { ...count('temp', '°C'), cell: ({ temp, tempLimit }) => html`<span class=${tempLimit > 0 && temp >= tempLimit ? 'no' : ''}>${n(temp)}</span>` },
  count('power', 'W'),
  { key: 'health', label: t('node.health'), value: health, cell: gpu => html`<span class=${health(gpu) ? 'no' : 'yes'}>${health(gpu) || t('why.ok')}</span>` },
];

// The GPUs of a node, as "8 × H100 79.6 GiB".
function models(gpus) {
  const counts = new Map();
  for (const gpu of gpus) {
    const one = `${gpu.model || ''} ${mib(gpu.total)}`;
    counts.set(one, (counts.get(one) || 0) + 1);
  }
  return [...counts].map(([model, count]) => `${count} × ${model}`);
}

const About = ({ node, node: { kubelet, driver } }) => html`<${Facts} facts=${[
    node.state !== 'ready' && named('node.state', node.state), ...models(node.gpus), named('node.pin', node.pin),
    known(kubelet?.ready) && `${t(kubelet.ready ? 'node.kubeletReady' : 'node.kubeletNotReady')} ${kubelet.version || ''}`,
    driver && t('node.driver', { driver }), node.zone, node.address, t(known(node.age) ? 'node.age' : 'node.noFigures', { age: age(node.age) }),
  ]} />${node.why && html`<p class="notice">${String(node.why)}</p>`}`;

function Fits({ node: { name, fits, whole, sold, gpus } }) {
  const unknown = gpus.filter(gpu => gpu.unattributed > 0);
  return html`<dl class="pairs">
    ${gpus.some(gpu => known(gpu.granted)) && html`<dt>${t('node.fits')}</dt><dd>${[...fits.map(fit => `${n(fit.count)} × ${mib(fit.size)}`), t('node.whole', { count: whole })].join(' · ')}</dd>`}
    ${unknown.length > 0 && html`<dt>${t('node.notOurs')}</dt><dd>${unknown.map((gpu, at) => html`${at ? ' · ' : ''}<${Gpu} node=${name} gpu=${gpu.index} alone /> ${mib(gpu.unattributed)}`)}</dd>`}
    ${sold.map(one => html`<dt>${String(one.resource)}</dt><dd>${t('node.sold', one)}</dd>`)}
  </dl>`;
}

const show = node => html`<${About} node=${node} />
  <${Table} title=${t('node.gpus')} columns=${columns(node)} rows=${node.gpus} rowKey=${gpu => gpu.index} csvName=${`gpus-${node.name}`} kubectl=${`kubectl inspect gpushare -d ${node.name}`} empty=${t('node.empty')} />
  <p class="muted keys"><i class="key c0"></i>${t('node.keyGranted')}<i class="key strip"></i>${t('node.keyUsed')}<i class="key tick"></i>${t('node.keyAll')}<i class="key other"></i>${t('table.otherTeam')}</p>
  <${Fits} node=${node} />
  ${node.pending.length > 0 && html`<${Table} title=${t('node.pending')} columns=${[podColumn(), amount('units', t('waiting.asks')), { key: 'why', label: t('waiting.why') }]} rows=${node.pending} rowKey=${row => `${row.namespace}/${row.pod}`}
    csvName=${`pending-${node.name}`} kubectl=${`kubectl get pods -A --field-selector spec.nodeName=${node.name}`} />`}
  <${Notes} notes=${node.notes} />`;

export default function NodePage({ route: { parts: [name = ''] } }) {
  const answer = useFresh(path('api/node', name), { touched: touches(name) });
  return html`<article class="page"><h1>${name}</h1><${Answer} answer=${answer} show=${show} /></article>`;
}
