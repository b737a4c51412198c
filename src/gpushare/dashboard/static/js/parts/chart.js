// Charts over time, drawn by uPlot, which is loaded when the first of them is shown.
//
// Lines are uPlot's own. Layers are areas between two columns, drawn here: stacks of pods, use above what was granted.
// Colours are names of CSS variables, read when it is drawn, so that light and dark both look right.
import { html, useEffect, useRef, useState } from '../ui.js';
import { known, t, time } from '../i18n.js';

const VENDOR = new URL('../../vendor/', import.meta.url);
const AXIS_PIXELS = 64;

let library = null;

function load() {
  library ??= new Promise((done, failed) => {
    const sheet = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: new URL('uPlot.min.css', VENDOR) });
    const script = Object.assign(document.createElement('script'), { src: new URL('uPlot.iife.min.js', VENDOR) });
    script.onload = () => done(window.uPlot);
    script.onerror = () => {
      library = null; // it is tried again with the next chart
      failed({ error: t('chart.failed') });
    };
    document.head.append(sheet, script);
  });
  return library;
}

export const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || '#888';

const clock = (seconds, days) =>
  new Intl.DateTimeFormat(document.documentElement.lang, days ? { month: 'numeric', day: 'numeric' } : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
    .format(new Date(seconds * 1000));

// A value holds for the time before it. After a gap it holds no longer than usual.
function drawLayers(plot, layers) {
  const { ctx, bbox, data: [times] } = plot;
  const usual = Math.min(...times.slice(1).map((moment, at) => moment - times[at]), 3600);
  const x = times.map(moment => Math.round(plot.valToPos(moment, 'x', true)));
  const start = at => Math.round(plot.valToPos(times[at] - usual, 'x', true));
  const left = at => (at && times[at] - times[at - 1] < 3 * usual ? x[at - 1] : start(at));
  const y = value => Math.round(plot.valToPos(value, 'y', true));
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { from, to, fill, alpha = 1, outline } of layers) {
    ctx.beginPath();
    for (let at = 0; at < times.length; at++) {
      if (!known(to[at]) || to[at] <= from[at]) continue;
      const top = y(to[at]);
      if (outline) ctx.moveTo(left(at), top + 0.5) ?? ctx.lineTo(x[at], top + 0.5);
      else ctx.rect(left(at), top, x[at] - left(at), y(from[at]) - top);
    }
    ctx.globalAlpha = alpha;
    ctx.fillStyle = ctx.strokeStyle = colour(fill);
    outline ? ctx.stroke() : ctx.fill();
  }
  ctx.restore();
}

const axis = (more = {}) => ({
  stroke: () => colour('--muted'), font: '11px system-ui, sans-serif', ticks: { show: false },
  grid: { stroke: () => colour('--line'), width: 1 }, ...more,
});

function options(props, latest, moved) {
  const { lines, show, height, sync, steps } = props;
  return {
    width: 300, height, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { drag: { x: false, y: false }, sync: { key: sync }, y: false, points: { size: 6 } },
    scales: {
      x: { time: true, range: () => latest.current.span },
      y: { range: (_, low, high) => [0, Math.max(latest.current.most || 0, high * 1.04) || 1] },
    },
    axes: [
      axis({ values: (_, marks, __, ___, step) => marks.map(mark => clock(mark, step >= 86400)) }),
      axis({ size: AXIS_PIXELS, values: (_, marks) => marks.map(show), space: 28, ...(steps ? { incrs: steps } : {}) }),
    ],
    series: [{}, ...lines.map(line => ({
      stroke: () => colour(line.colour), width: line.width ?? 1.5, dash: line.dash, points: { show: false }, spanGaps: false,
    }))],
    hooks: {
      drawAxes: [plot => drawLayers(plot, latest.current.layers || [])],
      setCursor: [plot => moved(plot.cursor.idx ?? null)],
    },
  };
}

// lines: {name, values, colour, dash}; legend: {name, values, colour}, by default the lines. `span`: from and to, in
// seconds since 1970. `summary`: the chart in one sentence, for those who do not see it.
export function Chart(props) {
  const { title, times, lines, legend = lines, show, summary } = props;
  const box = useRef(null), plot = useRef(null), latest = useRef(props);
  const [at, setAt] = useState(null), [error, setError] = useState(null);
  latest.current = props;
  const shape = lines.map(line => line.name).join('\n');
  useEffect(() => {
    let over = false, watch = null;
    const redraw = () => plot.current?.redraw(false);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    load().then(Plot => {
      if (over) return;
      const { times, lines } = latest.current;
      plot.current = new Plot(options(latest.current, latest, setAt), [times, ...lines.map(line => line.values)], box.current);
      watch = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height: latest.current.height }));
      watch.observe(box.current);
    }, setError);
    dark.addEventListener('change', redraw);
    return () => {
      over = true;
      watch?.disconnect();
      dark.removeEventListener('change', redraw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData([times, ...lines.map(line => line.values)]), [times]);
  const where = at ?? times.length - 1;
  const keys = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot.current) return;
    const next = Math.min(times.length - 1, Math.max(0, where + step));
    plot.current.setCursor({ left: plot.current.valToPos(times[next], 'x'), top: 0 }, true, true);
    event.preventDefault();
  };
  return html`<figure class="chart" tabindex="0" onKeyDown=${keys} aria-label=${`${title}. ${summary}`}>
    <figcaption><strong>${title}</strong>
      <span class="legend">${legend.map(item => html`<span><i class=${`key ${item.looks || ''}`} ref=${item.colour && (key => key && (key.style.background = `var(${item.colour})`))}></i>
        ${String(item.name)} <b>${show(item.values[where])}</b></span>`)}</span>
      <span class="muted when">${at === null ? '' : time(times[at])}</span></figcaption>
    ${error ? html`<p class="muted">${String(error.error)}</p>` : html`<div class="plot" ref=${box}></div>`}
  </figure>`;
}

// The same for those who do not see it: some of the moments, evenly apart.
export function Figures({ title, times, columns }) {
  const step = Math.max(1, Math.ceil(times.length / 24));
  const rows = times.map((_, at) => at).filter(at => (times.length - 1 - at) % step === 0).reverse();
  return html`<details class="figures"><summary>${title}</summary><div class="scroll"><table>
    <thead><tr><th scope="col">${t('table.time')}</th>${columns.map(column => html`<th scope="col" class="num">${column.name}</th>`)}</tr></thead>
    <tbody>${rows.map(at => html`<tr><th scope="row">${time(times[at])}</th>${columns.map(column => html`<td class="num">${column.show(column.values[at])}</td>`)}</tr>`)}</tbody>
  </table></div></details>`;
}
