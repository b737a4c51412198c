// Draws cells of the map on a canvas. Every kind of rectangle has its own pass over the cells, because changing the
// colour costs more than drawing. What each colouring shows stands in MODES.
import { FINE } from './store.js';

const LEVELS = 8;
const BAR = 0.25; // of a cell's width: real use
const CAP = 0.19; // of its height: the mark of over-use
const OLD = 120; // seconds after which figures are as old as the darkest colour

const part = (value, whole) => (value < 0 || whole <= 0 ? -1 : Math.min(1, value / whole));

// Per colouring: the part 0…1 of a GPU, -1 for unknown, and the colour. `granted` is drawn in shares instead.
export const MODES = {
  granted: null,
  used: { color: 'used', value: ({ gpus }, row) => part(gpus.used[row], gpus.total[row]) },
  idle: { color: 'idle', value: ({ gpus }, row) => (gpus.used[row] < 0 || gpus.granted[row] < 0 ? -1 : part(Math.max(0, gpus.granted[row] - gpus.used[row]), gpus.total[row])) },
  util: { color: 'used', value: ({ gpus }, row) => part(gpus.util[row], 100) },
  free: { color: 'good', value: ({ gpus, largest }, row) => part(gpus.free[row], largest) },
  age: { color: 'warn', value: (store, row) => { const age = store.nodeAge(store.gpus.node[row]); return age === null ? -1 : Math.min(1, age / OLD); } },
};

// The colours of the style sheet as they are now, light or dark.
export function palette(element, context) {
  const style = getComputedStyle(element);
  const color = name => style.getPropertyValue(`--${name}`).trim();
  const names = ['bg', 'muted', 'granted', 'granted-2', 'other', 'other-2', 'used', 'idle', 'good', 'warn', 'over', 'bad', 'free'];
  const colors = Object.fromEntries(names.map(name => [name, color(name)]));
  for (const { color: name } of Object.values(MODES).filter(Boolean)) colors[`${name} ramp`] = ramp(colors.free, colors[name]);
  colors.hatch = context.createPattern(hatched(colors), 'repeat');
  return colors;
}

function ramp(from, to) {
  const mix = (a, b, share) => Math.round(a + (b - a) * share);
  const [one, other] = [from, to].map(text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16)));
  return Array.from({ length: LEVELS }, (_, level) => `rgb(${one.map((value, i) => mix(value, other[i], 0.35 + (0.65 * (level + 1)) / LEVELS)).join()})`);
}

function hatched({ free, muted }) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 4;
  const context = canvas.getContext('2d');
  context.fillStyle = free;
  context.fillRect(0, 0, 4, 4);
  context.fillStyle = muted;
  for (let i = 0; i < 4; i++) context.fillRect(i, 3 - i, 1, 1);
  return canvas;
}

// look: {colors, mode, own: (namespace number) -> bool, match: (row) -> bool or null}. `top` is where the canvas begins.
export function paintCells(context, store, layout, rows, top, look) {
  const pen = { context, store, cell: layout.cell, x: layout.x, y: layout.y, top, ...look };
  if (!look.match) return paint(pen, rows);
  paint(pen, rows.filter(look.match));
  context.globalAlpha = 0.22;
  paint(pen, rows.filter(row => !look.match(row)));
  context.globalAlpha = 1;
}

function paint(pen, rows) {
  fill(pen, pen.mode === 'granted' ? paintShares(pen, rows) : paintLevels(pen, rows), pen.colors.hatch);
  paintMarks(pen, rows);
}

// Whole cells.
function fill({ context, cell, x, y, top }, rows, color) {
  context.fillStyle = color;
  for (let i = 0; i < rows.length; i++) context.fillRect(x[rows[i]], y[rows[i]] - top, cell.width, cell.height);
}

// Bars that stand in cells: a flat list of row, lower and upper edge in pixels above the cell's foot.
function bars({ context, cell, x, y, top }, list, color, left, width) {
  context.fillStyle = color;
  for (let i = 0; i < list.length; i += 3) {
    const row = list[i], upper = list[i + 2];
    context.fillRect(x[row] + left, y[row] - top + cell.height - upper, width, upper - list[i + 1]);
  }
}

// The shares of a GPU one upon another, and beside them how much of it is really used. Edges are on whole pixels, so
// that they are sharp, and what is not nothing has one. Gives back the rows of which nothing is known.
function paintShares(pen, rows) {
  const { store: { gpus: { granted, used, total, shares } }, cell: { width, height }, colors, own } = pen;
  const known = [], unknown = [], inUse = [], unmeasured = [], stacks = [[], [], [], []]; // own in two tones, others' in two
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    if (granted[row] < 0) {
      unknown.push(row);
      continue;
    }
    known.push(row);
    const list = shares[row], scale = height / total[row];
    let sum = 0, lower = 0;
    for (let at = 0, tone = 0; at < list.length; at += 3, tone ^= 1) {
      sum += list[at + 2];
      const upper = Math.max(1, Math.round(sum * scale));
      if (upper > lower) stacks[own(list[at + 1]) ? tone : 2 + tone].push(row, lower, upper);
      lower = upper;
    }
    if (used[row] > 0) inUse.push(row, 0, Math.max(1, Math.round(used[row] * scale)));
    else if (used[row] < 0) unmeasured.push(row, 0, height);
  }
  const bar = width * BAR;
  fill(pen, known, colors.free);
  [colors.granted, colors['granted-2'], colors.other, colors['other-2']].forEach((color, kind) => bars(pen, stacks[kind], color, 0, width - bar));
  bars(pen, inUse, colors.used, width - bar + 1, bar - 1);
  bars(pen, unmeasured, colors.hatch, width - bar, bar);
  return unknown;
}

// One bar a cell, the higher the stronger its colour.
function paintLevels(pen, rows) {
  const { store, cell: { width, height }, colors, mode } = pen, { value, color } = MODES[mode];
  const known = [], unknown = [], levels = Array.from({ length: LEVELS }, () => []);
  for (const row of rows) {
    const found = value(store, row);
    (found < 0 ? unknown : known).push(row);
    if (found > 0) levels[Math.min(LEVELS - 1, Math.floor(found * LEVELS))].push(row, 0, Math.max(1, Math.round(found * height)));
  }
  fill(pen, known, colors.free);
  levels.forEach((list, level) => bars(pen, list, colors[`${color} ramp`][level], 0, width));
  return unknown;
}

function paintMarks(pen, rows) {
  const { context, store: { gpus, nodes, highlighted }, cell: { width, height }, colors, x, y, top } = pen;
  const over = [], off = [], sick = [];
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    if (gpus.over[row] > 0) over.push(row, Math.round(height * (1 - CAP)), height);
    if (!FINE.includes(nodes.state[gpus.node[row]])) off.push(row, -3, -1.5);
    if (!gpus.healthy[row]) sick.push(row);
  }
  bars(pen, over, colors.over, 0, width);
  bars(pen, off, colors.warn, 0, width);
  for (const row of sick) cross(pen, x[row], y[row] - top);
  if (!highlighted.size) return;
  context.strokeStyle = colors.warn;
  context.lineWidth = 2;
  for (const row of rows) if (highlighted.has(row)) context.strokeRect(x[row] + 1, y[row] - top + 1, width - 2, height - 2);
}

function cross({ context, cell: { width, height }, colors }, left, top) {
  const alpha = context.globalAlpha;
  context.fillStyle = colors.bg;
  context.globalAlpha = alpha * 0.6;
  context.fillRect(left, top, width, height);
  context.globalAlpha = alpha;
  context.strokeStyle = colors.bad;
  context.lineWidth = 2;
  context.beginPath();
  for (const [from, to] of [[1, 5], [5, 1]]) {
    context.moveTo(left + (width * from) / 6, top + height / 6);
    context.lineTo(left + (width * to) / 6, top + (height * 5) / 6);
  }
  context.stroke();
}
