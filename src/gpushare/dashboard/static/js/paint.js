// Draws cells of the map on a canvas. Every kind of rectangle has its own pass over the cells, because changing the
// colour costs more than drawing. What each colouring shows stands in MODES.

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
  const names = ['bg', 'fg', 'muted', 'line', 'accent', 'granted', 'granted-2', 'other', 'other-2', 'used', 'idle', 'good', 'warn', 'over', 'bad', 'free'];
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

// look: {colors, mode, own: (namespace number) -> bool, match: (row) -> bool or null}
export function paintCells(context, store, layout, rows, top, look) {
  if (!look.match) return paint(context, store, layout, rows, top, look);
  paint(context, store, layout, rows.filter(look.match), top, look);
  context.globalAlpha = 0.22;
  paint(context, store, layout, rows.filter(row => !look.match(row)), top, look);
  context.globalAlpha = 1;
}

function paint(context, store, layout, rows, top, look) {
  const { colors } = look;
  const pen = { context, cell: layout.cell, x: layout.x, y: layout.y, top, colors };
  const unknown = look.mode === 'granted' ? paintShares(pen, store, rows, look) : paintLevels(pen, store, rows, look);
  context.fillStyle = colors.hatch;
  for (const row of unknown) box(pen, row, 0, 0, layout.cell.width, layout.cell.height);
  paintMarks(pen, store, rows);
}

// A rectangle inside a cell, measured from its bottom left corner.
const box = ({ context, cell, x, y, top }, row, left, bottom, width, height) =>
  context.fillRect(x[row] + left, y[row] - top + cell.height - bottom - height, width, height);

// The shares of a GPU one upon another, and beside them how much of it is really used. Gives the unknown ones back.
function paintShares(pen, { gpus }, rows, { own }) {
  const { context, cell, colors } = pen;
  const bar = cell.width * BAR;
  const unknown = [], stacks = [[], [], [], []]; // own, own's neighbour, others', others' neighbour
  context.fillStyle = colors.free;
  for (const row of rows) {
    if (gpus.granted[row] < 0) {
      unknown.push(row);
      continue;
    }
    box(pen, row, 0, 0, cell.width, cell.height);
    const shares = gpus.shares[row], scale = cell.height / gpus.total[row];
    let bottom = 0;
    for (let i = 0, turn = 0; i < shares.length; i += 3, turn ^= 1) {
      const end = bottom + shares[i + 2] * scale;
      stacks[(own(shares[i + 1]) ? 0 : 2) + turn].push(row, bottom, Math.max(0.5, end - bottom));
      bottom = end;
    }
  }
  const fills = [colors.granted, colors['granted-2'], colors.other, colors['other-2']];
  for (let kind = 0; kind < fills.length; kind++) {
    const list = stacks[kind];
    context.fillStyle = fills[kind];
    for (let i = 0; i < list.length; i += 3) box(pen, list[i], 0, list[i + 1], cell.width - bar, list[i + 2]);
  }
  context.fillStyle = colors.used;
  for (const row of rows) if (gpus.used[row] > 0) box(pen, row, cell.width - bar + 1, 0, bar - 1, Math.max(1, (cell.height * gpus.used[row]) / gpus.total[row]));
  context.fillStyle = colors.hatch;
  for (const row of rows) if (gpus.used[row] < 0 && gpus.granted[row] >= 0) box(pen, row, cell.width - bar, 0, bar, cell.height);
  return unknown;
}

function paintLevels(pen, store, rows, { mode }) {
  const { context, cell, colors } = pen, { value, color } = MODES[mode];
  const unknown = [], levels = Array.from({ length: LEVELS }, () => []);
  context.fillStyle = colors.free;
  for (const row of rows) {
    const found = value(store, row);
    if (found < 0) {
      unknown.push(row);
      continue;
    }
    box(pen, row, 0, 0, cell.width, cell.height);
    if (found > 0) levels[Math.min(LEVELS - 1, Math.floor(found * LEVELS))].push(row, Math.max(1, found * cell.height));
  }
  levels.forEach((list, level) => {
    context.fillStyle = colors[`${color} ramp`][level];
    for (let i = 0; i < list.length; i += 2) box(pen, list[i], 0, 0, cell.width, list[i + 1]);
  });
  return unknown;
}

function paintMarks(pen, { gpus, nodes, highlighted }, rows) {
  const { context, cell, colors, x, y, top } = pen;
  context.fillStyle = colors.over;
  for (const row of rows) if (gpus.over[row] > 0) box(pen, row, 0, cell.height * (1 - CAP), cell.width, cell.height * CAP);
  context.fillStyle = colors.warn;
  for (const row of rows) if (nodes.state[gpus.node[row]] !== 'ready') box(pen, row, 0, -3, cell.width, 1.5);
  context.strokeStyle = colors.bad;
  context.lineWidth = 2;
  for (const row of rows) if (!gpus.healthy[row]) cross(pen, x[row], y[row] - top);
  if (!highlighted.size) return;
  context.strokeStyle = colors.accent;
  for (const row of rows) if (highlighted.has(row)) context.strokeRect(x[row] + 1, y[row] - top + 1, cell.width - 2, cell.height - 2);
}

function cross({ context, cell, colors }, left, top) {
  const alpha = context.globalAlpha;
  context.fillStyle = colors.bg;
  context.globalAlpha = alpha * 0.6;
  context.fillRect(left, top, cell.width, cell.height);
  context.globalAlpha = alpha;
  context.beginPath();
  context.moveTo(left + cell.width / 6, top + cell.height / 6);
  context.lineTo(left + (cell.width * 5) / 6, top + (cell.height * 5) / 6);
  context.moveTo(left + (cell.width * 5) / 6, top + cell.height / 6);
  context.lineTo(left + cell.width / 6, top + (cell.height * 5) / 6);
  context.stroke();
}
