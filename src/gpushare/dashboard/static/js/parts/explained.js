// What `gpushare why` says of one pod: the verdict, the ways out, each node's answer, kube-scheduler's own words.
// Sentences come from the server as they are, in English; the name of their code stands beside them.
import { html, useState } from '../ui.js';
import { age, known, mib, n, t } from '../i18n.js';
import { codeName, Gpu, Node, Pod, secondsSince } from './basics.js';
import { Table } from './table.js';

const FEW = 6; // nodes that are shown at first
// The node may be used, but its GPUs have too little: then its best GPU says more than the sentence.
const ROOM = ['NoSingleGpu', 'NoHealthyGpu', 'NoGpusEach', 'NoGpusFor', 'NoWholeGpu', 'NoInitGpu', 'NoSlot', 'NoMpsMemory', 'KeptForOther'];

const split = pod => ({ namespace: pod.split('/')[0], pod: pod.split('/').slice(1).join('/') });

export const Code = ({ code }) => html`<span class="code">${codeName(code)}</span>`;

function freeOf(gpu, view) {
  const words = t('why.freeOf', { gpu: String(gpu.index), free: String(gpu.free), total: String(gpu.total), unit: view.unit });
  if (!gpu.healthy) return `${words}, ${t('why.unhealthy')}`;
  return gpu.short ? `${words}, ${t('why.short', { short: String(gpu.short) })}` : words;
}

function memory(view) {
  const best = view.gpus?.[0], refused = view.gpushare;
  if (!refused && view.sold?.length) return view.sold.map(one => `${one.resource}: ${t('why.soldFree', { free: one.free, total: one.total })}`).join('; ');
  if (!refused) return best ? `${t('why.fits')}: ${freeOf(best, view)}` : t('why.fits');
  if (best && ROOM.includes(refused.code)) return freeOf(best, view);
  return [refused.message.replace(/^node\(s\) /, ''), refused.detail].filter(Boolean).join(': ');
}

const COLUMNS = () => [
  { key: 'node', label: t('why.node'), value: view => view.name, cell: view => html`<${Node} node=${view.name} />` },
  { key: 'gpushare', label: t('why.gpushare'), value: memory, cell: view => html`<span class=${view.gpushare ? 'no' : 'yes'}>${memory(view)}</span>${view.gpushare && html` <${Code} code=${view.gpushare.code} />`}` },
  { key: 'scheduler', label: t('why.scheduler'), value: view => view.scheduler?.message ?? 'ok', cell: view => (view.scheduler ? html`<span class="no">${String(view.scheduler.message)}</span>` : html`<span class="yes">${t('why.ok')}</span>`) },
];

function Nodes({ explanation }) {
  const [all, showAll] = useState(false);
  const { nodes, pod } = explanation;
  if (!nodes.length) return null;
  const kubectl = `gpushare why ${pod.name} -n ${pod.namespace} -o wide`;
  const others = [['why.without', explanation.without_gpu], ['why.byMemory', explanation.by_memory]].filter(([, count]) => count);
  return html`<${Table} title=${t('why.nodes')} columns=${COLUMNS()} rows=${all ? nodes : nodes.slice(0, FEW)} rowKey=${view => view.name} csvName=${`why-${pod.name}`} kubectl=${pod.phase ? kubectl : null} />
    ${nodes.length > FEW && !all && html`<button onClick=${() => showAll(true)}>${t('why.all', { count: nodes.length })}</button>`}
    ${others.map(([key, count]) => html`<p class="muted">${t(key, { count })}</p>`)}`;
}

function Runs({ explanation }) {
  const { pod, has = [], beside = [], uses = [], request } = explanation;
  const unit = request?.unit || 'MiB';
  if (!pod.node) return null;
  return html`<ul class="plain">
    ${has.length === 0 && html`<li><${Node} node=${pod.node} /></li>`}
    ${has.map(spot => html`<li><${Gpu} node=${pod.node} gpu=${spot.gpu} />: ${t('why.has', { units: String(spot.units), unit })}${known(spot.free) && `; ${t('why.left', { free: String(spot.free), total: String(spot.total), unit })}`}</li>`)}
    ${uses.map(use => html`<li class=${use.over_mib > 0 ? 'no' : ''}>${t('why.uses', { container: use.container, gpu: String(use.gpu), used: mib(use.used_mib), asked: mib(use.asked_mib) })}</li>`)}
    ${beside.length > 0 && html`<li>${t('why.beside')} ${beside.map((holder, at) => html`${at ? ', ' : ''}<${Pod} ...${split(holder.pod)} /> ${String(holder.units)}`)}</li>`}
  </ul>`;
}

function Points({ explanation }) {
  const { scores = [], policy } = explanation;
  if (!scores.length || !policy) return null;
  const terms = points => Object.entries(points).map(([name, value]) => `${name} ${value}`).join(', ');
  return html`<h3>${t('why.points', { policy: policy.name })}</h3><ul class="plain">
    ${scores.slice(0, 5).map(one => html`<li><${Node} node=${one.name} /> <b>${n(one.score)}</b>
      ${one.gpus.filter(gpu => gpu.chosen).map(gpu => html` <span class="muted">${t('table.gpu', { gpu: String(gpu.gpu) })}: ${gpu.points} (${terms(gpu.terms)})</span>`)}</li>`)}
  </ul>`;
}

export function Explained({ explanation, ways, text }) {
  const { verdict, owner, code, message, detail, checks = [], scheduler } = explanation;
  const said = secondsSince(scheduler?.time);
  return html`<div class="explained">
    <p class="verdict"><span class=${`owner v-${verdict}`}>${String(owner)}</span> <strong>${String(message)}</strong> <${Code} code=${code} /> ${detail && html`<span class="muted">${String(detail)}</span>`}</p>
    ${verdict === 'runs' && html`<${Runs} explanation=${explanation} />`}
    ${ways?.length > 0 && html`<h3>${t('why.ways')}</h3><ul class="ways">${ways.map(way => html`<li>${String(way)}</li>`)}</ul>`}
    ${checks.length > 0 && html`<ul class="checks">${checks.map(check => html`<li class=${check.ok ? 'yes' : 'no'}><b>${check.ok ? t('why.ok') : t('why.look')}</b> ${String(check.text)}</li>`)}</ul>`}
    <${Nodes} explanation=${explanation} />
    ${scheduler && html`<blockquote><cite>kube-scheduler${known(said) ? `, ${t('why.ago', { age: age(said) })}` : ''}</cite> ${String(scheduler.message)}</blockquote>`}
    <${Points} explanation=${explanation} />
    ${text && html`<details><summary>${t('why.text')}</summary><pre>${String(text)}</pre></details>`}
  </div>`;
}
