// Charts over time, drawn by uPlot, which is loaded when the first of them is shown.
//
// Lines are uPlot's own. Layers are areas between two columns, drawn here: stacks of pods, use above what was granted.
// Colours are names of CSS variables, read when it is drawn, so that light and dark both look right.
import { html, useEffect, useRef, useState } from '../ui.js';
import { known, t, time } from '../i18n.js';
import { href } from '../router.js';
import { styled } from './basics.js';

const VENDOR = new URL('../../vendor/', import.meta.url);
const RANGES = { '1h': 3600, '6h': 21600, '48h': 172800, '7d': 604800 };
export const DASH = { dash: [4, 4], width: 1 };
export const GIB_STEPS = Array.from({ length: 20 }, (_, at) => 256 * 2 ** at);

let library = null;

function load() {
  const add = (tag, properties) => document.head.appendChild(Object.assign(document.createElement(tag), properties));
  library ??= new Promise((onload, failed) => {
    add('link', { rel: 'stylesheet', href: new URL('uPlot.min.css', VENDOR) });
    add('script', { src: new URL('uPlot.iife.min.js', VENDOR), onload, onerror: failed });
  });
  library.catch(() => { library = null; }); // it is tried again with the next chart
  return library;
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (seconds, days) => new Date(seconds * 1000).toLocaleString(document.documentElement.lang,
  days ? { month: 'numeric', day: 'numeric' } : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

// A value holds for the time before it; after a gap, no longer than usual.
function drawLayers(plot, layers) {
  const { ctx, bbox, data: [times] } = plot;
  const usual = Math.min(3600, ...times.slice(1).map((moment, at) => moment - times[at]));
  const x = moment => Math.round(plot.valToPos(moment, 'x', true)), y = value => Math.round(plot.valToPos(value, 'y', true));
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { from, to, fill, alpha = 1, outline } of layers) {
    ctx.beginPath();
    times.forEach((moment, at) => {
      if (!known(to[at]) || to[at] <= from[at]) return;
      const near = at && moment - times[at - 1] < 3 * usual ? times[at - 1] : moment - usual;
      const left = x(near), right = x(moment), top = y(to[at]);
      if (outline) {
        ctx.moveTo(left, top + 0.5);
        ctx.lineTo(right, top + 0.5);
      } else ctx.rect(left, top, right - left, y(from[at]) - top);
    });
    ctx.globalAlpha = alpha;
    ctx.fillStyle = ctx.strokeStyle = colour(fill);
    outline ? ctx.stroke() : ctx.fill();
  }
  ctx.restore();
}

function options(latest, moved) {
  const { lines, show, height, sync, steps } = latest.current;
  const axis = { stroke: () => colour('--muted'), font: '11px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: () => colour('--line'), width: 1 } };
  return {
    width: 300, height, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { drag: { x: false, y: false }, sync: { key: sync }, y: false },
    scales: {
      x: { range: () => latest.current.span },
      y: { range: (_, low, high) => [0, Math.max(latest.current.most || 0, high * 1.04) || 1] },
    },
    axes: [
      { ...axis, size: 28, values: (_, marks, __, ___, step) => marks.map(mark => clock(mark, step >= 86400)) },
      { ...axis, size: 64, space: 28, values: (_, marks) => marks.map(show), ...(steps && { incrs: steps }) },
    ],
    series: [{}, ...lines.map(line => ({ stroke: () => colour(line.colour), width: line.width ?? 1.5, dash: line.dash, points: { show: false } }))],
    hooks: { drawAxes: [plot => drawLayers(plot, latest.current.layers || [])], setCursor: [plot => moved(plot.cursor.idx ?? null)] },
  };
}

// lines: {name, values, colour, dash, width}; legend: the same, by default the lines. `span`: from and to, in seconds
// since 1970. `most`: the axis goes at least so far. Arrow keys move the cursor, and what it stands on is in the legend.
export function Chart(props) {
  const { title, times, lines, legend = lines, show } = props;
  const box = useRef(null), plot = useRef(null), latest = useRef(props);
  const [at, setAt] = useState(null), [failed, setFailed] = useState(false);
  latest.current = props;
  const data = () => [latest.current.times, ...latest.current.lines.map(line => line.values)];
  useEffect(() => {
    let over = false;
    const fit = new ResizeObserver(([{ contentRect: { width } }]) => plot.current?.setSize({ width, height: props.height }));
    const dark = matchMedia('(prefers-color-scheme: dark)'), redraw = () => plot.current?.redraw(false);
    load().then(() => {
      if (over) return;
      plot.current = new window.uPlot(options(latest, setAt), data(), box.current);
      fit.observe(box.current);
    }, () => over || setFailed(true));
    dark.addEventListener('change', redraw);
    return () => {
      over = true;
      fit.disconnect();
      dark.removeEventListener('change', redraw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [lines.map(line => line.name).join()]);
  useEffect(() => plot.current?.setData(data()), [times]);
  const where = Math.min(at ?? Infinity, times.length - 1);
  const keys = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot.current) return;
    const next = Math.min(times.length - 1, Math.max(0, where + step));
    plot.current.setCursor({ left: plot.current.valToPos(times[next], 'x'), top: 0 }, true, true);
    event.preventDefault();
  };
  const words = legend.map(({ name, values }) => t('chart.summary', { name, now: show(values.at(-1)), most: show(highest(values)) }));
  return html`<figure class="chart" tabindex="0" role="group" onKeyDown=${keys} aria-label=${`${title}. ${words.join(' ')}`}>
    <figcaption><strong>${title}</strong>${legend.map(item => html`<span class="muted"><i class="key" ref=${styled('background', `var(${item.colour})`)}></i>${String(item.name)} <b>${show(item.values[where])}</b></span>`)}
      <span class="muted when">${at === null ? '' : time(times[where])}</span></figcaption>
    ${failed ? html`<p class="muted">${t('chart.failed')}</p>` : html`<div ref=${box}></div>`}
  </figure>`;
}

export const highest = values => values.reduce((most, value) => (known(value) && !(most > value) ? value : most), null);

// The range that an address names.
export const rangeOf = (route, usual) => (Object.hasOwn(RANGES, route.query.range) ? route.query.range : usual);

export const Ranges = ({ route, range }) => html`<nav class="choice" aria-label=${t('chart.range')}>
  ${Object.keys(RANGES).map(key => html`<a href=${href(route.page, ...route.parts, { range: key })} aria-current=${key === range ? 'true' : null}>${t(`chart.${key}`)}</a>`)}</nav>`;

// The charts of an answer with its note, or why there are none; and the same for those who do not see them, as a table
// with some of the moments. `draw` gets what all charts have in common.
export function Timed({ data: { times, note, source }, range, columns, draw }) {
  const end = times.at(-1), step = Math.ceil(times.length / 24);
  const some = times.map((_, at) => at).filter(at => (times.length - 1 - at) % step === 0).reverse();
  return html`${note && html`<p class="notice">${String(note)}</p>`}
    ${times.length === 0 ? html`<p class="muted">${t(range === '7d' && source === 'memory' ? 'chart.needsPrometheus' : 'chart.nothing')}</p>`
      : html`${draw({ times, span: [end - RANGES[range], end] })}
        <details><summary>${t('chart.table')}</summary><div class="scroll"><table>
          <thead><tr><th scope="col">${t('table.time')}</th>${columns.map(({ name }) => html`<th scope="col" class="num">${name}</th>`)}</tr></thead>
          <tbody>${some.map(at => html`<tr><th scope="row">${time(times[at])}</th>${columns.map(({ values, show }) => html`<td class="num">${show(values[at])}</td>`)}</tr>`)}</tbody>
        </table></div></details>`}`;
}
