// Where each GPU stands on the map: pure, from the store's columns to coordinates. Nodes flow from left to right in
// lines, under a heading for each group. A line is what the map paints together.
const NODE_GAP = 12;
const LINE_GAP = 6;
const LABELLED = 320; // with more nodes their names would be noise; they stand in the card beside the pointer
const LABEL = 16; // pixels above the cells
const LABEL_WIDTH = 90;
const SIZES = [[12, 5], [40, 2], [120, 1.5], [Infinity, 1]]; // up to so many nodes, cells so large
const HEADING = 38;
const IDLE_BELOW = 0.1; // used less than this part of what is granted

export const isIdle = (gpus, row) => gpus.granted[row] > 0 && gpus.used[row] >= 0 && gpus.used[row] < IDLE_BELOW * gpus.granted[row];

// What a person filtered by -> does a GPU match? Null: everything does. `namespace` is a number.
// GPUs that another page lit are a filter, too.
export function matcher({ gpus, nodes, tables, highlighted }, filter) {
  const tests = [];
  if (highlighted.size) tests.push(row => highlighted.has(row));
  if (filter.model) tests.push(row => tables.models[gpus.model[row]] === filter.model);
  if (filter.zone) tests.push(row => tables.zones[nodes.zone[gpus.node[row]]] === filter.zone);
  if (filter.unhealthy) tests.push(row => !gpus.healthy[row]);
  if (filter.over) tests.push(row => gpus.over[row] > 0);
  if (filter.idle) tests.push(row => isIdle(gpus, row));
  if (filter.namespace !== null && filter.namespace !== undefined) tests.push(row => holds(gpus.shares[row], filter.namespace));
  return tests.length ? row => tests.every(test => test(row)) : null;
}

function holds(shares, namespace) {
  for (let i = 1; i < shares.length; i += 3) if (shares[i] === namespace) return true;
  return false;
}

const order = new Intl.Collator('en', { numeric: true });

// The nodes to show, in groups: [{name, nodes: [row…]}]. `rank`, by name, keeps an order in which they were shown before.
export function grouped(store, { group, sort, match, rank = null }) {
  const { nodes, gpus, tables } = store;
  const free = new Float64Array(nodes.count);
  const groups = new Map();
  for (let node = 0; node < nodes.count; node++) {
    const first = nodes.first[node], end = nodes.first[node + 1];
    let shown = !match && first < end;
    for (let row = first; row < end; row++) {
      free[node] += gpus.free[row];
      shown ||= match !== null && match(row);
    }
    if (!shown) continue;
    const name = group === 'model' ? tables.models[gpus.model[first]] : group === 'zone' ? tables.zones[nodes.zone[node]] : '';
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  const byName = (a, b) => order.compare(nodes.name[a], nodes.name[b]);
  const byFree = (a, b) => free[b] - free[a] || byName(a, b);
  const place = node => rank.get(nodes.name[node]) ?? rank.size;
  const sorting = sort !== 'free' ? byName : rank ? (a, b) => place(a) - place(b) || byFree(a, b) : byFree;
  return [...groups].sort(([a], [b]) => order.compare(a, b)).map(([name, list]) => ({ name, nodes: list.sort(sorting) }));
}

// Coordinates for a map of this width.
export function arranged(store, groups, width, titled) {
  const { nodes, gpus } = store;
  const count = groups.reduce((sum, { nodes: list }) => sum + list.length, 0);
  const labelled = count <= LABELLED;
  const size = SIZES.find(([most]) => count <= most)[1];
  const cell = { width: 12 * size, height: 16 * size, pitch: 13 * size };
  const x = new Float32Array(gpus.count).fill(-1), y = new Float32Array(gpus.count);
  const lines = [], headings = [], labels = [];
  let top = 0;
  const newLine = () => {
    const cells = top + (labelled ? LABEL : 0);
    lines.push({ top, cells, bottom: cells + cell.height + LINE_GAP * size, rows: [] });
    top = lines[lines.length - 1].bottom;
  };
  for (const { name, nodes: list } of groups) {
    if (titled) {
      headings.push({ name, top, nodes: list });
      top += HEADING;
    }
    let left = Infinity;
    for (const node of list) {
      const gpuCount = nodes.first[node + 1] - nodes.first[node];
      const most = Math.max(1, Math.floor((width + size) / cell.pitch)); // a node wider than the map goes on in the next line
      const wide = Math.max(Math.min(gpuCount, most) * cell.pitch - size, labelled ? LABEL_WIDTH : 0);
      if (left + wide > width) {
        newLine();
        left = 0;
      }
      if (labelled) labels.push({ node, x: left, y: lines[lines.length - 1].top, width: wide });
      for (let i = 0; i < gpuCount; i++) {
        if (i && i % most === 0) newLine();
        const line = lines[lines.length - 1], row = nodes.first[node] + i;
        x[row] = left + (i % most) * cell.pitch;
        y[row] = line.cells;
        line.rows.push(row);
      }
      left += wide + NODE_GAP * size;
    }
  }
  return { cell, x, y, lines, headings, labels, height: top, width };
}

// The GPU at a point, or -1. The gap right of and below a cell belongs to it.
export function at(layout, px, py) {
  let low = 0, high = layout.lines.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.lines[middle].bottom <= py) low = middle + 1;
    else high = middle;
  }
  const line = layout.lines[low];
  if (!line || py < line.cells || py >= line.bottom) return -1;
  return line.rows.find(row => px >= layout.x[row] && px < layout.x[row] + layout.cell.pitch) ?? -1;
}

// The node whose name stands at a point, or -1.
export const nodeAt = (layout, px, py) =>
  layout.labels.find(({ x, y, width }) => px >= x && px < x + width && py >= y && py < y + LABEL)?.node ?? -1;

// Where an arrow key leads from a GPU.
export function moved(layout, row, key) {
  const { lines, x } = layout;
  const index = lines.findIndex(line => line.rows.includes(row));
  if (index < 0) return lines[0]?.rows[0] ?? -1;
  const line = lines[index], place = line.rows.indexOf(row);
  const nearest = to => to.rows.reduce((best, other) => (Math.abs(x[other] - x[row]) < Math.abs(x[best] - x[row]) ? other : best), to.rows[0]);
  const page = 12;
  switch (key) {
    case 'ArrowRight': return line.rows[place + 1] ?? lines[index + 1]?.rows[0] ?? row;
    case 'ArrowLeft': return line.rows[place - 1] ?? lines[index - 1]?.rows.at(-1) ?? row;
    case 'ArrowDown': return index + 1 < lines.length ? nearest(lines[index + 1]) : row;
    case 'ArrowUp': return index ? nearest(lines[index - 1]) : row;
    case 'PageDown': return nearest(lines[Math.min(index + page, lines.length - 1)]);
    case 'PageUp': return nearest(lines[Math.max(index - page, 0)]);
    case 'Home': return lines[0].rows[0];
    case 'End': return lines.at(-1).rows.at(-1);
    default: return -1;
  }
}
