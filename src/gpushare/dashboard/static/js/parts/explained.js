// What `gpushare why` says of one pod: the verdict, the ways out, each node's answer, kube-scheduler's own words.
// Sentences come from the server as they are, in English; the name of their code stands beside them.
import { html, useState } from '../ui.js';
import { age, known, mib, n, t } from '../i18n.js';
import { Code, Gpu, Node, Pod, secondsSince } from './basics.js';
import { Table } from './table.js';

const FEW = 6; // nodes that are shown at first
// The node may be used, but its GPUs have too little: then its best GPU says more than the sentence.
const ROOM = ['NoSingleGpu', 'NoHealthyGpu', 'NoGpusEach', 'NoGpusFor', 'NoWholeGpu', 'NoInitGpu', 'NoSlot', 'NoMpsMemory', 'KeptForOther'];

const asPod = name => ({ namespace: name.split('/')[0], pod: name.split('/')[1] });

// Amounts are written as in a manifest, without separators.
const plain = values => Object.fromEntries(Object.entries(values).map(([key, value]) => [key, String(value)]));

function freeOf(gpu, unit) {
  const words = t('why.freeOf', { ...plain(gpu), gpu: String(gpu.index), unit });
  return [words, gpu.short && t('why.short', plain(gpu)), !gpu.healthy && t('why.unhealthy')].filter(Boolean).join(', ');
}

function memory({ gpus, gpushare, sold, unit }) {
  if (gpushare && !(gpus.length && ROOM.includes(gpushare.code))) return [gpushare.message.replace(/^node\(s\) /, ''), gpushare.detail].filter(Boolean).join(': ');
  if (sold?.length) return sold.map(one => `${one.resource}: ${t('why.soldFree', one)}`).join('; ');
  return [!gpushare && t('why.fits'), gpus.length > 0 && freeOf(gpus[0], unit)].filter(Boolean).join(': ');
}

const COLUMNS = [
  { key: 'node', label: t('why.node'), value: view => view.name, cell: view => html`<${Node} node=${view.name} />` },
  { key: 'gpushare', label: t('why.gpushare'), value: memory, cell: view => html`<span class=${view.gpushare ? '' : 'yes'}>${memory(view)}</span> ${view.gpushare && html`<${Code} code=${view.gpushare.code} />`}` },
  { key: 'scheduler', label: t('why.scheduler'), value: view => view.scheduler?.message ?? 'ok', cell: view => html`<span class=${view.scheduler ? '' : 'yes'}>${String(view.scheduler?.message ?? t('why.ok'))}</span>` },
];

function Nodes({ nodes, pod, kubectl, without_gpu: without, by_memory: byMemory }) {
  const [all, showAll] = useState(false);
  return nodes.length > 0 && html`<${Table} title=${t('why.nodes')} columns=${COLUMNS} rows=${all ? nodes : nodes.slice(0, FEW)} rowKey=${view => view.name} csvName=${`why-${pod.name}`} kubectl=${kubectl} />
    ${nodes.length > FEW && !all && html`<button onClick=${() => showAll(true)}>${t('why.all', { count: nodes.length })}</button>`}
    <p class="muted">${without > 0 && t('why.without', { count: without })} ${byMemory > 0 && t('why.byMemory', { count: byMemory })}</p>`;
}

function Place({ pod: { node }, has = [], beside = [], uses = [], request }) {
  const unit = request?.unit || 'MiB';
  return html`<ul>
    ${has.length === 0 && html`<li><${Node} node=${node} /></li>`}
    ${has.map(spot => html`<li><${Gpu} node=${node} gpu=${spot.gpu} />: ${t('why.has', { ...plain(spot), unit })}${known(spot.free) && `; ${t('why.left', { ...plain(spot), unit })}`}</li>`)}
    ${uses.map(use => html`<li class=${use.over_mib > 0 ? 'no' : ''}>${t('why.uses', { ...plain(use), used: mib(use.used_mib), asked: mib(use.asked_mib) })}</li>`)}
    ${beside.length > 0 && html`<li>${t('why.beside')} ${beside.map((holder, at) => html`${at ? ', ' : ''}<${Pod} ...${asPod(holder.pod)} /> ${String(holder.units)}`)}</li>`}
  </ul>`;
}

const terms = points => Object.entries(points).map(([name, value]) => `${name} ${value}`).join(', ');

const Points = ({ scores, policy }) => html`<h3>${t('why.points', { policy: policy.name })}</h3><ul>
  ${scores.slice(0, FEW).map(one => html`<li><${Node} node=${one.name} /> <b>${n(one.score)}</b>
    ${one.gpus.filter(gpu => gpu.chosen).map(gpu => html` <span class="muted">${t('table.gpu', plain(gpu))}: ${gpu.points} (${terms(gpu.terms)})</span>`)}</li>`)}</ul>`;

export function Explained({ explanation, ways, text, kubectl }) {
  const { verdict, owner, code, message, detail, pod, checks, scheduler, scores, policy } = explanation;
  return html`<div class="explained">
    <p><span class=${`owner v-${verdict}`}>${String(owner)}</span> <strong>${String(message)}</strong> <${Code} code=${code} /> ${detail && html`<span class="muted">${String(detail)}</span>`}</p>
    ${verdict === 'runs' && pod.node && html`<${Place} ...${explanation} />`}
    ${ways?.length > 0 && html`<h3>${t('why.ways')}</h3><ul class="ways">${ways.map(way => html`<li>${String(way)}</li>`)}</ul>`}
    ${checks && html`<ul>${checks.map(check => html`<li class=${check.ok ? '' : 'no'}><b>${t(check.ok ? 'why.ok' : 'why.look')}</b> ${String(check.text)}</li>`)}</ul>`}
    <${Nodes} ...${explanation} kubectl=${kubectl || `gpushare why ${pod.name} -n ${pod.namespace} -o wide`} />
    ${scheduler && html`<blockquote><cite class="muted">kube-scheduler${scheduler.time && `, ${t('why.ago', { age: age(secondsSince(scheduler.time)) })}`}</cite> ${String(scheduler.message)}</blockquote>`}
    ${scores && policy && html`<${Points} ...${explanation} />`}
    ${text && html`<details><summary>${t('why.text')}</summary><pre>${String(text)}</pre></details>`}
  </div>`;
}
