// One node: its GPUs with who has how much of each, what would still fit, and what is odd about it.
import { html } from '../ui.js';
import { age, has, known, mib, n, t } from '../i18n.js';
import { path } from '../api.js';
import { Answer, Gpu, Notes, Pod, sum } from '../parts/basics.js';
import { GpuBar } from '../parts/bar.js';
import { touches, useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';

const named = (group, key) => (has(`node.${group}.${key}`) ? t(`node.${group}.${key}`) : String(key));

function health(gpu) {
  if (!gpu.healthy) return ['no', gpu.why ? `${t('node.unhealthy')}: ${gpu.why}` : t('node.unhealthy')];
  const over = sum(gpu.shares.map(share => share.over));
  return over > 0 ? ['no', t('table.overBy', { over: mib(over) })] : ['yes', t('node.ok')];
}

export const hot = (value, limit) => known(value) && limit > 0 && value >= limit;

const columns = node => [
  { key: 'gpu', label: t('node.gpu'), value: gpu => gpu.index, cell: gpu => html`<${Gpu} node=${node.name} gpu=${gpu.index} alone />` },
  { key: 'granted', label: t('node.shares'), value: gpu => gpu.granted, cell: gpu => html`<${GpuBar} gpu=${gpu} />` },
  ...(node.gpus.some(gpu => gpu.slots) ? [{ key: 'slots', label: t('node.slots'), num: true, value: gpu => gpu.usedSlots, cell: gpu => `${gpu.usedSlots}/${gpu.slots}` }] : []),
  { key: 'used', label: t('table.used'), num: true, cell: gpu => mib(gpu.used) },
  { key: 'free', label: t('table.free'), num: true, cell: gpu => mib(gpu.free) },
  { key: 'util', label: t('node.util'), num: true, cell: gpu => n(gpu.util) },
  { key: 'temp', label: t('node.temp'), num: true, cell: gpu => html`<span class=${hot(gpu.temp, gpu.tempLimit) ? 'no' : ''}>${n(gpu.temp)}</span>` },
  { key: 'power', label: t('node.power'), num: true, cell: gpu => n(gpu.power) },
  { key: 'health', label: t('node.health'), value: gpu => health(gpu)[1], cell: gpu => html`<span class=${health(gpu)[0]}>${health(gpu)[1]}</span>` },
];

// The models of a node, as "8 × H100".
function models(gpus) {
  const counts = new Map();
  for (const gpu of gpus) {
    const one = [gpu.model, mib(gpu.total)].filter(Boolean).join(' ');
    counts.set(one, (counts.get(one) || 0) + 1);
  }
  return [...counts].map(([model, count]) => `${count} × ${model}`);
}

function Facts({ node }) {
  const kubelet = known(node.kubelet?.ready) && t(node.kubelet.ready ? 'node.kubeletReady' : 'node.kubeletNotReady');
  const facts = [
    ...models(node.gpus), named('pin', node.pin), kubelet && `${kubelet} ${node.kubelet.version || ''}`,
    node.driver && t('node.driver', { driver: node.driver }), node.zone, node.address,
    known(node.age) ? t('node.age', { age: age(node.age) }) : t('node.noFigures'),
  ];
  return html`<p class="facts">${node.state !== 'ready' && html`<span class="badge">${named('state', node.state)}</span>`}
    ${facts.filter(Boolean).map(fact => html`<span>${String(fact)}</span>`)}</p>
    ${node.why && html`<p class="notice">${String(node.why)}</p>`}`;
}

function Fits({ node }) {
  const unknown = node.gpus.filter(gpu => gpu.unattributed > 0);
  return html`<dl class="pairs">
    <dt>${t('node.fits')}</dt>
    <dd>${node.fits.length === 0 && node.whole === 0 ? t('node.nothing') : [...node.fits.map(fit => `${n(fit.count)} × ${mib(fit.size)}`), t('node.whole', { count: node.whole })].join(' · ')}</dd>
    ${unknown.length > 0 && html`<dt>${t('node.notOurs')}</dt>
      <dd>${unknown.map((gpu, at) => html`${at ? ' · ' : ''}${mib(gpu.unattributed)} ${t('node.on')} <${Gpu} node=${node.name} gpu=${gpu.index} alone />`)}</dd>`}
    ${(node.sold || []).map(([resource, total, used]) => html`<dt>${String(resource)}</dt><dd>${t('node.sold', { used, total })}</dd>`)}
  </dl>`;
}

const PENDING = () => [
  { key: 'pod', label: t('table.pod'), value: row => `${row.namespace}/${row.pod}`, cell: row => html`<${Pod} ...${row} />` },
  { key: 'units', label: t('node.units'), num: true },
  { key: 'why', label: t('node.why') },
];

const show = node => html`<${Facts} node=${node} />
  <${Table} title=${t('node.gpus')} columns=${columns(node)} rows=${node.gpus} rowKey=${gpu => gpu.index} csvName=${`gpus-${node.name}`} kubectl=${`kubectl inspect gpushare -d ${node.name}`} empty=${t('node.empty')} />
  <p class="muted legendline"><i class="key c0"></i>${t('node.keyGranted')} <i class="key strip"></i>${t('node.keyUsed')} <i class="key tick"></i>${t('node.keyAll')} <i class="key other"></i>${t('table.otherTeam')}</p>
  <${Fits} node=${node} />
  ${node.pending.length > 0 && html`<${Table} title=${t('node.pending')} columns=${PENDING()} rows=${node.pending} rowKey=${row => `${row.namespace}/${row.pod}`} csvName=${`pending-${node.name}`} kubectl=${`kubectl get pods -A --field-selector spec.nodeName=${node.name}`} />`}
  <${Notes} notes=${node.notes} />`;

export default function NodePage({ route }) {
  const name = route.parts[0] || '';
  const answer = useFresh(path('api/node', name), { touched: touches(name) });
  return html`<article class="page"><h1>${name}</h1><${Answer} answer=${answer} show=${show} /></article>`;
}
