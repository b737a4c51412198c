// How full the cluster was, who waited, which pods its free memory could still take, and who holds memory unused.
import { html, useMemo } from '../ui.js';
import { has, known, mib, n, pct, t } from '../i18n.js';
import { Answer, named, wide } from '../parts/basics.js';
import { Chart, DASH, GIB_STEPS, rangeOf, Ranges, Timed } from '../parts/chart.js';
import { useFresh } from '../parts/fresh.js';
import { amount, count, podColumn, Table } from '../parts/table.js';

const COLOURS = 8;
const POD_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000];
const INSPECT = 'kubectl inspect gpushare -d';

function stacked(codes, times) {
  let from = times.map(() => 0);
  return codes.map(({ values, colour: fill }) => {
    const to = from.map((low, at) => low + (values[at] || 0)), layer = { from, to, fill, alpha: 0.75 };
    from = to;
    return layer;
  });
}

function Charts({ memory, codes, common }) {
  const layers = useMemo(() => stacked(codes, common.times), [codes]);
  const all = { name: t('history.all'), values: layers.at(-1)?.to ?? common.times.map(() => 0), colour: '--muted', width: 1 };
  return html`<div class="charts two">
    <${Chart} ...${common} title=${t('history.memory')} show=${mib} steps=${GIB_STEPS} lines=${memory} />
    <${Chart} ...${common} title=${t('history.waiting')} show=${n} steps=${POD_STEPS} lines=${[all]} legend=${[all, ...codes]} layers=${layers} />
  </div>`;
}

function History({ data, range }) {
  const codes = useMemo(() => Object.entries(data.waiting).map(([code, values], at) => ({ name: named('code', code), values, colour: `--c${at % COLOURS}`, show: n })), [data]);
  const line = (key, colour, more) => ({ name: t(`table.${key}`), values: data[key], colour, show: mib, ...more });
  const memory = [line('total', '--muted', DASH), line('granted', '--granted'), line('used', '--used')];
  return html`<${Timed} data=${data} range=${range} columns=${[...memory, ...codes]} draw=${common => html`<${Charts} memory=${memory} codes=${codes} common=${{ ...common, sync: 'history', height: 220 }} />`} />`;
}

const SIZES = [
  { key: 'size', label: t('history.size'), value: row => row.size, cell: row => (has(`history.size.${row.size}`) ? t(`history.size.${row.size}`, { size: mib(row.mib) }) : mib(row.mib)) },
  count('fits', t('history.fits')),
  { key: 'unusable', label: t('history.unusable'), cell: ({ unusable }) => html`${known(unusable) && html`<span class="part"><i ref=${wide(unusable, 1)}></i></span>`} ${pct(unusable)}` },
];
const GRANTED = amount('granted', t('table.granted')), IDLE = amount('idle', t('history.idle'));

const Idle = ({ name, columns, rows }) => html`<${Table} title=${t(`history.${name}`)} columns=${columns} rows=${rows} rowKey=${row => `${row.namespace}/${row.pod}`} sort=${['idle', 'descending']} csvName=${`idle-${name}`} kubectl=${INSPECT} empty=${t('history.noIdle')} />`;

const show = (data, range) => html`<${History} data=${data} range=${range} />
  <p class="lead">${t('history.free', { free: mib(data.free) })}</p>
  <div class="narrow"><${Table} title=${t('history.sizes')} columns=${SIZES} rows=${data.sizes} rowKey=${row => row.size} csvName="fragmentation" kubectl=${INSPECT} /></div>
  <p class="lead">${t('history.held')} <span class="muted">${t('history.heldWhat')}</span></p>
  <div class="pair">
    <${Idle} name="namespaces" columns=${[{ key: 'namespace', label: t('table.namespace') }, GRANTED, IDLE]} rows=${data.idleNamespaces} />
    <${Idle} name="pods" columns=${[podColumn(), GRANTED, amount('peak', t('gpu.peak')), IDLE]} rows=${data.idle} />
  </div>`;

export default function HistoryPage({ route }) {
  const range = rangeOf(route, '48h');
  const answer = useFresh(`api/history?range=${range}`, { seconds: 15 });
  return html`<article class="page"><header class="head"><h1>${t('history.title')}</h1><${Ranges} route=${route} range=${range} /></header>
    <${Answer} answer=${answer} show=${data => show(data, range)} /></article>`;
}
