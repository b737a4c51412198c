// One GPU over time: memory by pod, what it does, and the containers on it.
import { html, useMemo } from '../ui.js';
import { age, known, mib, n, t } from '../i18n.js';
import { path } from '../api.js';
import { Answer, colours, Facts, GpuBar, Node, over, Pod, secondsSince } from '../parts/basics.js';
import { Chart, DASH, GIB_STEPS, highest, rangeOf, Ranges, Timed } from '../parts/chart.js';
import { touches, useFresh } from '../parts/fresh.js';
import { amount, count, podColumn, Table } from '../parts/table.js';

const MOST_NAMES = 12; // in a legend

const unit = name => value => (known(value) ? `${n(value)} ${name}` : n(value));
const percent = unit('%'), degrees = unit('°C'), watts = unit('W');

// Each pod stands on what the pods below it were granted. What it uses above its own grant is red, and covers others.
function memoryLayers({ times, shares }, colour) {
  const layers = [], red = [];
  let from = times.map(() => 0);
  for (const share of shares) {
    const base = from, fill = `--${colour(share)}`;
    const granted = base.map((low, at) => low + (share.granted[at] ?? share.used[at] ?? 0)); // sold by count: nothing is above it
    const used = base.map((low, at) => (known(share.used[at]) ? low + share.used[at] : null));
    const inside = used.map((high, at) => high && Math.min(high, granted[at]));
    layers.push({ from, to: granted, fill, alpha: 0.16 }, { from, to: inside, fill, alpha: 0.8 }, { from, to: granted, fill, outline: true });
    red.push({ from: granted, to: used, fill: '--over', alpha: 0.85 });
    from = granted;
  }
  return [...layers, ...red];
}

function Charts({ data, common }) {
  const { gpu, shares, total, used } = data;
  const colour = colours([...gpu.shares, ...shares]);
  const layers = useMemo(() => memoryLayers(data, colour), [data]);
  const pods = shares.slice(0, MOST_NAMES).map(share => ({ name: share.pod ?? t('table.otherTeam'), values: share.used, colour: `--${colour(share)}` }));
  const all = { name: t('gpu.usedInAll'), values: used, colour: '--used' };
  const sizes = [{ name: t('table.total'), values: total, colour: '--muted', ...DASH }];
  const apart = shares.some(share => share.used.some(known)); // else a line is all that is known of use
  const small = (key, show, colour, limit, most) => html`<${Chart} ...${common} title=${t(`gpu.${key}`)} height=${124} show=${show} most=${limit > 0 ? limit * 1.06 : most}
    lines=${[{ name: t('gpu.now'), values: data[key], colour }, ...(limit > 0 ? [{ name: t(`gpu.${key}Limit`), values: total.map(() => limit), colour: '--over', ...DASH }] : [])]} />`;
  return html`<div class="charts">
    <${Chart} ...${common} title=${t('gpu.memory')} height=${230} show=${mib} steps=${GIB_STEPS} most=${gpu.total * 1.04} lines=${apart ? sizes : [...sizes, all]} legend=${[...sizes, all, ...pods]} layers=${layers} />
    ${small('util', percent, '--c0', 0, 104)}${small('temp', degrees, '--c1', data.tempLimit, 100)}${small('power', watts, '--c2', data.powerLimit, 100)}
  </div>`;
}

// The most that a container used; unknown where a pod has several here, as only the pod's sum is remembered.
const peak = (share, { gpu, shares }) => {
  const mine = other => other.number === share.number;
  return gpu.shares.filter(mine).length > 1 ? null : highest([share.used, ...(shares.find(mine)?.used || [])]);
};

const note = share => (share.over > 0 ? t(known(share.overFor) ? 'gpu.overFor' : 'gpu.over', { over: mib(share.over), age: age(share.overFor) }) : '');

function Containers({ data, data: { gpu, node } }) {
  const colour = colours(gpu.shares);
  const columns = [
    { ...podColumn(), cell: share => html`<i class=${`key ${colour(share)}`}></i><${Pod} ...${share} />` },
    { key: 'container', label: t('table.container') },
    amount('granted', t('table.granted')),
    { ...amount('used', t('table.used')), cell: share => html`<span class=${share.over > 0 ? 'no' : ''}>${mib(share.used)}</span>` },
    amount('peak', t('gpu.peak'), share => peak(share, data)),
    count('sm', t('gpu.sm')),
    { key: 'since', label: t('gpu.since'), num: true, value: share => secondsSince(share.since), cell: share => age(secondsSince(share.since)) },
    { key: 'note', label: t('gpu.note'), value: note, cell: share => html`<span class="no">${note(share)}</span>` },
  ];
  const rest = known(gpu.unattributed) && html`<tr role="row"><td role="cell" colspan="3">${t('gpu.rest')}</td><td role="cell" class="num">${mib(gpu.unattributed)}</td><td role="cell" colspan="4"></td></tr>`;
  return html`<${Table} title=${t('gpu.containers')} columns=${columns} rows=${gpu.shares} rowKey=${share => `${share.number} ${share.container}`} foot=${rest} empty=${t('gpu.nobody')} csvName=${`${node}-gpu-${gpu.index}`} kubectl=${`kubectl inspect gpushare -d ${node}`} />`;
}

const Warning = ({ when, words }) => when && html`<p class="notice bad">${words}</p>`;

const show = (data, range) => {
  const { gpu } = data, above = over(gpu.shares);
  return html`<${Facts} facts=${[gpu.model, ...['total', 'granted', 'free', 'used'].map(key => `${t(`table.${key}`)} ${mib(gpu[key])}`), gpu.uuid]} />
    <${Warning} when=${!gpu.healthy} words=${[t('node.unhealthy'), gpu.why].filter(Boolean).join(': ')} />
    <${Warning} when=${above > 0} words=${t('gpu.overAll', { over: mib(above) })} />
    <${Warning} when=${gpu.temp >= data.tempLimit && data.tempLimit > 0} words=${t('gpu.hot')} />
    <${GpuBar} gpu=${gpu} />
    <${Timed} data=${data} range=${range} draw=${common => html`<${Charts} data=${data} common=${{ ...common, sync: 'gpu' }} />`}
      columns=${[['granted', mib], ['used', mib], ['util', percent], ['temp', degrees], ['power', watts]].map(([key, show]) => ({ name: t(`${show === mib ? 'table' : 'gpu'}.${key}`), values: data[key], show }))} />
    <${Containers} data=${data} />`;
};

export default function GpuPage({ route, route: { parts: [node = '', index = ''] } }) {
  const range = rangeOf(route, '1h');
  const answer = useFresh(`${path('api/gpu', node, index)}?range=${range}`, { touched: touches(node) });
  return html`<article class="page"><header class="head"><h1><${Node} node=${node} /> / ${t('table.gpu', { gpu: index })}</h1><${Ranges} route=${route} range=${range} /></header>
    <${Answer} answer=${answer} show=${data => show(data, range)} /></article>`;
}
