// How full the cluster was, who waited, which pods its free memory could still take, and who holds memory unused.
import { html, useMemo } from '../ui.js';
import { known, mib, n, pct, t } from '../i18n.js';
import { href } from '../router.js';
import { Answer, Choice, codeName, Pod, share, sized } from '../parts/basics.js';
import { Chart, Figures } from '../parts/chart.js';
import { useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';
import { GIB_STEPS, RANGES, span } from './gpu.js';

const COLOURS = 8;

function stacked(codes, times) {
  const base = times.map(() => 0);
  return codes.map(({ values, colour }) => {
    const from = [...base];
    values.forEach((value, at) => { base[at] += value || 0; });
    return { from, to: [...base], fill: colour, alpha: 0.75 };
  });
}

function Charts({ data, range }) {
  const { times } = data;
  const codes = useMemo(() => Object.entries(data.waiting).map(([code, values], at) => ({ name: codeName(code), values, colour: `--c${at % COLOURS}` })), [data]);
  const layers = useMemo(() => stacked(codes, times), [data]);
  const all = layers.at(-1)?.to ?? times.map(() => 0);
  const common = { times, span: span(times, range), sync: 'history', height: 220 };
  const memory = [
    { name: t('table.total'), values: data.total, colour: '--muted', dash: [4, 4], width: 1 },
    { name: t('table.granted'), values: data.granted, colour: '--granted' },
    { name: t('table.used'), values: data.used, colour: '--used' },
  ];
  const last = values => values.at(-1);
  return html`<div class="charts two">
    <${Chart} ...${common} title=${t('history.memory')} show=${mib} steps=${GIB_STEPS} lines=${memory} summary=${t('history.summary', { granted: mib(last(data.granted)), used: mib(last(data.used)), total: mib(last(data.total)) })} />
    <${Chart} ...${common} title=${t('history.waiting')} show=${n} steps=${[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]} lines=${[{ name: t('history.all'), values: all, colour: '--fg', width: 1 }]} legend=${codes} layers=${layers} summary=${t('chart.summary', { now: n(last(all)), most: n(Math.max(...all)) })} />
  </div>
  <${Figures} title=${t('chart.table')} times=${times} columns=${[...memory.map(line => ({ ...line, show: mib })), ...codes.map(code => ({ ...code, show: n }))]} />`;
}

const SIZES = () => [
  { key: 'size', label: t('history.size'), value: row => row.mib, cell: row => html`<b>${String(row.size)}</b>` },
  { key: 'fits', label: t('history.fits'), num: true, cell: row => n(row.fits) },
  { key: 'unusable', label: t('history.unusable'), value: row => row.unusable, cell: row => html`<span class="meter"><i ref=${sized({ width: share(row.unusable || 0, 1) })}></i></span><span class="num">${pct(row.unusable)}</span>` },
];

const IDLE = () => [
  { key: 'pod', label: t('table.pod'), value: row => (known(row.pod) ? `${row.namespace}/${row.pod}` : null), cell: row => html`<${Pod} ...${row} />` },
  { key: 'granted', label: t('table.granted'), num: true, cell: row => mib(row.granted) },
  { key: 'peak', label: t('gpu.peak'), num: true, cell: row => mib(row.peak) },
  { key: 'idle', label: t('history.idle'), num: true, cell: row => mib(row.idle) },
];

const NAMESPACES = () => [
  { key: 'namespace', label: t('table.namespace') },
  { key: 'granted', label: t('table.granted'), num: true, cell: row => mib(row.granted) },
  { key: 'idle', label: t('history.idle'), num: true, cell: row => mib(row.idle) },
];

const show = (data, range) => html`${data.note && html`<p class="notice">${String(data.note)}</p>`}
  ${data.times.length ? html`<${Charts} data=${data} range=${range} />` : html`<p class="muted empty">${t(range === '7d' && data.source === 'memory' ? 'chart.needsPrometheus' : 'chart.nothing')}</p>`}
  <p class="lead">${t('history.free', { free: mib(data.free) })}</p>
  <${Table} title=${t('history.sizes')} columns=${SIZES()} rows=${data.sizes} rowKey=${row => row.mib} csvName="fragmentation" kubectl="kubectl inspect gpushare -o wide" />
  <h2>${t('history.held')}</h2><p class="muted">${t('history.heldWhat')}</p>
  <div class="pair">
    <${Table} title=${t('history.namespaces')} columns=${NAMESPACES()} rows=${data.idleNamespaces} rowKey=${row => row.namespace} sort=${['idle', 'descending']} csvName="idle-namespaces" kubectl="kubectl inspect gpushare -d" empty=${t('history.noIdle')} />
    <${Table} title=${t('history.pods')} columns=${IDLE()} rows=${data.idle} rowKey=${row => `${row.namespace}/${row.pod}`} sort=${['idle', 'descending']} csvName="idle-pods" kubectl="kubectl inspect gpushare -d" empty=${t('history.noIdle')} />
  </div>`;

export default function HistoryPage({ route }) {
  const range = route.query.range in RANGES ? route.query.range : '48h';
  const answer = useFresh(`api/history?range=${range}`, { seconds: 15 });
  const options = Object.keys(RANGES).map(key => [key, t(`range.${key}`), href('history', { range: key })]);
  return html`<article class="page"><header class="head"><h1>${t('history.title')}</h1><${Choice} label=${t('range.label')} options=${options} chosen=${range} /></header>
    <${Answer} answer=${answer} show=${data => show(data, range)} /></article>`;
}
