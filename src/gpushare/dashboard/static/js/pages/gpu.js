// One GPU over time: memory by pod, what it does, and the containers on it.
import { html, useMemo } from '../ui.js';
import { age, known, mib, n, t } from '../i18n.js';
import { path } from '../api.js';
import { href } from '../router.js';
import { Answer, Choice, Node, Pod, secondsSince, sum } from '../parts/basics.js';
import { colours, GpuBar } from '../parts/bar.js';
import { Chart, Figures } from '../parts/chart.js';
import { touches, useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';
import { hot } from './node.js';

export const RANGES = { '1h': 3600, '6h': 21600, '48h': 172800, '7d': 604800 };
export const GIB_STEPS = Array.from({ length: 20 }, (_, at) => 256 * 2 ** at);
const MOST_NAMES = 12;
const DASH = [4, 4];

const nameOf = share => (known(share.pod) ? String(share.pod) : t('table.otherTeam'));
const highest = values => values.reduce((most, value) => (known(value) && !(most > value) ? value : most), null);
const summary = (values, show) => t('chart.summary', { now: show(values.at(-1)), most: show(highest(values)) });

// From where to where a chart goes, whatever is known of that time.
export function span(times, range) {
  const end = times.at(-1) ?? Date.now() / 1000;
  return [end - (RANGES[range] ?? RANGES['1h']), end];
}

// Each pod stands on what the pods below it were granted. What it uses above its own grant is red, and covers others.
function memoryLayers(data, colour) {
  const base = data.times.map(() => 0);
  const layers = [], over = [];
  for (const share of data.shares) {
    const from = [...base], granted = from.map((low, at) => low + (share.granted[at] || 0));
    const used = from.map((low, at) => (known(share.used[at]) ? low + share.used[at] : null));
    const inside = used.map((high, at) => (high === null ? null : Math.min(high, granted[at])));
    const fill = `--${colour(share)}`;
    layers.push({ from, to: granted, fill, alpha: 0.16 }, { from, to: inside, fill, alpha: 0.8 }, { from, to: granted, fill, outline: true });
    over.push({ from: granted, to: used, fill: '--over', alpha: 0.85 });
    granted.forEach((high, at) => { base[at] = high; });
  }
  return [...layers, ...over];
}

function Charts({ data, range }) {
  const { times, gpu } = data;
  const colour = useMemo(() => colours([...gpu.shares, ...data.shares]), [data]);
  const layers = useMemo(() => memoryLayers(data, colour), [data]);
  const whole = limit => times.map(() => (limit > 0 ? limit : null));
  const common = { times, span: span(times, range), sync: 'gpu' };
  const figure = (key, values, show, colour, limit, limitName, most) => html`<${Chart} ...${common} title=${t(`gpu.${key}`)} height=${130} show=${show} most=${limit > 0 ? limit * 1.06 : most} summary=${summary(values, show)}
    lines=${[{ name: t(`gpu.${key}`), values, colour }, ...(limit > 0 ? [{ name: limitName, values: whole(limit), colour: '--over', dash: DASH, width: 1 }] : [])]} />`;
  const pods = data.shares.slice(0, MOST_NAMES).map(share => ({ name: nameOf(share), values: share.used, colour: `--${colour(share)}` }));
  const watts = value => (known(value) ? `${n(value)} W` : n(null)), degrees = value => (known(value) ? `${n(value)} °C` : n(null));
  const percent = value => (known(value) ? `${n(value)} %` : n(null));
  const lines = [{ name: t('table.total'), values: data.total, colour: '--muted', dash: DASH, width: 1 }, { name: t('gpu.usedInAll'), values: data.used, colour: '--used' }];
  return html`<div class="charts">
    <${Chart} ...${common} title=${t('gpu.memory')} height=${240} show=${mib} steps=${GIB_STEPS} most=${gpu.total * 1.04} lines=${lines} legend=${[...lines, ...pods]} layers=${layers} summary=${summary(data.used, mib)} />
    ${figure('util', data.util, percent, '--c0', 0, '', 100)}
    ${figure('temp', data.temp, degrees, '--c1', data.tempLimit, t('gpu.slowdown'))}
    ${figure('power', data.power, watts, '--c2', data.powerLimit, t('gpu.cap'))}
  </div>
  <${Figures} title=${t('chart.table')} times=${times} columns=${[
    { name: t('table.granted'), values: data.granted, show: mib }, { name: t('table.used'), values: data.used, show: mib },
    { name: t('gpu.util'), values: data.util, show: percent }, { name: t('gpu.temp'), values: data.temp, show: degrees }, { name: t('gpu.power'), values: data.power, show: watts }]} />`;
}

// The most that a container used; unknown where a pod has several here, as only the pod's sum is remembered.
function peak(share, data) {
  if (data.gpu.shares.filter(other => other.number === share.number).length > 1) return null;
  return highest([share.used, ...(data.shares.find(other => other.number === share.number)?.used || [])]);
}

const overUse = share => (share.over > 0
  ? t(known(share.overFor) ? 'gpu.overFor' : 'gpu.over', { over: mib(share.over), age: age(share.overFor) }) : null);

const columns = (data, colour) => [
  { key: 'pod', label: t('table.pod'), value: share => (known(share.pod) ? `${share.namespace}/${share.pod}` : null), cell: share => html`<i class=${`key ${colour(share)}`}></i><${Pod} ...${share} />` },
  { key: 'container', label: t('table.container') },
  { key: 'granted', label: t('table.granted'), num: true, cell: share => mib(share.granted) },
  { key: 'used', label: t('table.used'), num: true, cell: share => html`<span class=${share.over > 0 ? 'no' : ''}>${mib(share.used)}</span>` },
  { key: 'peak', label: t('gpu.peak'), num: true, value: share => peak(share, data), cell: share => mib(peak(share, data)) },
  { key: 'sm', label: t('gpu.sm'), num: true, cell: share => n(share.sm) },
  { key: 'since', label: t('gpu.since'), num: true, value: share => secondsSince(share.since), cell: share => age(secondsSince(share.since)) },
  { key: 'note', label: t('gpu.note'), value: overUse, cell: share => html`<span class="no">${overUse(share)}</span>` },
];

function Containers({ data }) {
  const { gpu, node } = data, colour = colours(gpu.shares);
  const foot = known(gpu.unattributed) && html`<tr role="row"><td role="cell" colspan="3" data-label="">${t('gpu.rest')}</td><td role="cell" class="num" data-label=${t('table.used')}>${mib(gpu.unattributed)}</td><td role="cell" colspan="4" class="blank"></td></tr>`;
  return html`<${Table} title=${t('gpu.containers')} columns=${columns(data, colour)} rows=${gpu.shares} rowKey=${share => `${share.number} ${share.container} ${gpu.shares.indexOf(share)}`} foot=${foot} empty=${t('gpu.nobody')}
    csvName=${`${node}-gpu-${gpu.index}`} kubectl=${`kubectl inspect gpushare -d ${node}`} />`;
}

function Now({ data }) {
  const { gpu } = data;
  const over = sum(gpu.shares.map(share => share.over));
  const facts = [gpu.model, `${mib(gpu.total)}`, `${t('table.granted')} ${mib(gpu.granted)}`, `${t('table.free')} ${mib(gpu.free)}`, `${t('table.used')} ${mib(gpu.used)}`, gpu.uuid];
  return html`<p class="facts">${facts.filter(Boolean).map(fact => html`<span>${String(fact)}</span>`)}</p>
    ${!gpu.healthy && html`<p class="notice bad">${t('node.unhealthy')}${gpu.why ? `: ${gpu.why}` : ''}</p>`}
    ${over > 0 && html`<p class="notice bad">${t('gpu.overAll', { over: mib(over) })}</p>`}
    ${hot(gpu.temp, data.tempLimit) && html`<p class="notice bad">${t('gpu.hot')}</p>`}
    <${GpuBar} gpu=${gpu} />`;
}

export default function GpuPage({ route }) {
  const [node = '', index = ''] = route.parts;
  const range = route.query.range in RANGES ? route.query.range : '1h';
  const answer = useFresh(`${path('api/gpu', node, index)}?range=${range}`, { touched: touches(node) });
  const options = Object.keys(RANGES).map(key => [key, t(`range.${key}`), href('gpu', node, index, { range: key })]);
  const show = data => html`<${Now} data=${data} />
    ${data.note && html`<p class="notice">${String(data.note)}</p>`}
    ${data.times.length ? html`<${Charts} data=${data} range=${range} />` : html`<p class="muted empty">${t(range === '7d' && data.source === 'memory' ? 'chart.needsPrometheus' : 'chart.nothing')}</p>`}
    <${Containers} data=${data} />`;
  return html`<article class="page"><header class="head"><h1><${Node} node=${node} /> / ${t('table.gpu', { gpu: index })}</h1><${Choice} label=${t('range.label')} options=${options} chosen=${range} /></header>
    <${Answer} answer=${answer} show=${show} /></article>`;
}
