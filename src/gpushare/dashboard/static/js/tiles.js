// The map's canvases. The map is cut into tiles of whole lines, and only tiles near the screen have a canvas: scrolling
// then costs nothing but the tiles that come into sight, and a change repaints only the cells it touched.
import { paintCells, palette } from './paint.js';
import { store } from './store.js';

const TILE = 420; // pixels, at least
const NEAR = 300; // pixels above and below the screen
const LABEL_FONT = '11px system-ui, sans-serif';

export class Tiles {
  constructor(host) {
    this.host = host;
    this.tiles = [];
    this.dirty = new Set();
    this.asked = 0;
    this.ask = () => { this.asked ||= requestAnimationFrame(() => this.frame()); };
    this.look = null;
    this.moved = true; // where the map is on the screen has to be found out again
    this.scrolled = () => { this.moved = true; this.ask(); };
    this.recolor = () => { this.colors = null; this.all(); };
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.dark.addEventListener('change', this.recolor);
    addEventListener('scroll', this.scrolled, { passive: true });
    this.repaint = () => this.all();
    addEventListener('resize', this.repaint);
  }

  end() {
    cancelAnimationFrame(this.asked);
    this.dark.removeEventListener('change', this.recolor);
    removeEventListener('scroll', this.scrolled);
    removeEventListener('resize', this.repaint);
  }

  // look: see paintCells
  show(layout, look) {
    if (layout !== this.layout) this.cut(layout);
    this.look = look;
    this.all();
  }

  cut(layout) {
    this.layout = layout;
    for (const { canvas } of this.tiles) canvas?.remove();
    this.tiles = [];
    this.tileOf = new Int32Array(layout.x.length).fill(-1);
    let tile = null;
    for (const line of layout.lines) {
      if (!tile || line.top - tile.top >= TILE) this.tiles.push(tile = { top: line.top, bottom: 0, rows: [], labels: [], canvas: null, fresh: false });
      tile.bottom = line.bottom;
      for (const row of line.rows) {
        tile.rows.push(row);
        this.tileOf[row] = this.tiles.length - 1;
      }
    }
    for (const label of layout.labels) this.tiles[this.tileOf[store.nodes.first[label.node]]].labels.push(label);
  }

  all() {
    for (const tile of this.tiles) tile.fresh = false;
    this.scrolled();
  }

  touch(rows) {
    for (const row of rows) this.dirty.add(row);
    this.ask();
  }

  frame() {
    this.asked = 0;
    if (!this.layout) return;
    const tiles = this.moved ? this.unpainted() : []; // asking where it is makes the browser lay out the page
    const start = performance.now(), name = tiles.length ? 'map: tiles' : 'map: changes';
    this.moved = false;
    for (const tile of tiles) this.paintTile(tile);
    this.paintDirty();
    performance.measure(name, { start, detail: tiles.length });
    performance.clearMeasures(name); // whoever observes has got it; kept ones would add up for days
  }

  // The tiles near the screen that have to be painted. Those far from it lose their canvas.
  unpainted() {
    const { top } = this.host.getBoundingClientRect();
    const wanted = [];
    for (const tile of this.tiles) {
      const near = tile.bottom + top > -NEAR && tile.top + top < innerHeight + NEAR;
      if (near && !(tile.canvas && tile.fresh)) wanted.push(tile);
      if (near || !tile.canvas) continue;
      tile.canvas.remove();
      tile.canvas = null;
    }
    return wanted;
  }

  paintTile(tile) {
    const scale = devicePixelRatio || 1, height = tile.bottom - tile.top;
    const canvas = tile.canvas ||= this.host.appendChild(document.createElement('canvas'));
    const [wide, high] = [Math.ceil(this.layout.width * scale), Math.ceil(height * scale)];
    if (canvas.width !== wide || canvas.height !== high) {
      Object.assign(canvas, { width: wide, height: high });
      Object.assign(canvas.style, { top: `${tile.top}px`, width: `${wide / scale}px`, height: `${high / scale}px` });
    }
    const context = tile.context = canvas.getContext('2d');
    this.colors ||= palette(this.host, context);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.layout.width, height);
    this.paintLabels(context, tile);
    paintCells(context, store, this.layout, tile.rows, tile.top, { ...this.look, colors: this.colors });
    for (const row of tile.rows) this.dirty.delete(row);
    tile.fresh = true;
  }

  paintLabels(context, tile) {
    context.font = LABEL_FONT;
    context.fillStyle = this.colors.muted;
    for (const { node, x, y, width } of tile.labels) context.fillText(shortened(context, store.nodes.name[node], width), x, y - tile.top + 11);
  }

  paintDirty() {
    const byTile = new Map();
    for (const row of this.dirty) {
      const tile = this.tiles[this.tileOf[row]];
      if (!tile?.canvas) continue;
      if (!byTile.has(tile)) byTile.set(tile, []);
      byTile.get(tile).push(row);
      tile.context.clearRect(this.layout.x[row], this.layout.y[row] - tile.top, this.layout.cell.width, this.layout.cell.height + 5);
    }
    for (const [tile, rows] of byTile) paintCells(tile.context, store, this.layout, rows, tile.top, { ...this.look, colors: this.colors });
    this.dirty.clear();
  }
}

// Names differ at their ends, so a long one loses its middle.
function shortened(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let keep = name.length - 1;
  const cut = () => `${name.slice(0, Math.ceil(keep / 2))}…${name.slice(-Math.floor(keep / 2))}`;
  while (keep > 2 && context.measureText(cut()).width > width) keep--;
  return cut();
}
