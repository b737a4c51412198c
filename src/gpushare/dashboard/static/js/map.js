// The map of all GPUs: one small cell each. tiles.js paints it, layout.js knows where things are; this file is what a
// person does with it: pointing, walking with arrow keys, opening a GPU, and what a screen reader says meanwhile.
import { Card, spoken } from './card.js';
import { pct, t } from './i18n.js';
import { arranged, at, grouped, matcher, moved, nodeAt } from './layout.js';
import { go, href } from './router.js';
import { store } from './store.js';
import { Tiles } from './tiles.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './ui.js';

const AGAIN = 5000; // filters and orders follow the figures, but not faster
const SORTED_FOR = 30_000;

const sameNodes = (a, b) => a.length === b.length && a.every(({ nodes }, i) => nodes.length === b[i].nodes.length && nodes.every((node, j) => node === b[i].nodes[j]));

// The layout for these settings. It changes when the cluster does, and slowly when only figures do: under the pointer or
// the keyboard's cursor nothing moves.
function useLayout(box, settings) {
  const [layout, tell] = useState(null);
  const { group, sort, filter } = settings;
  useLayoutEffect(() => {
    let rank = null, sortedAt = 0, last = null, width = 0;
    const renew = (steady, always) => {
      const match = matcher(store, filter);
      if (!steady) sortedAt = Date.now();
      const groups = grouped(store, { group, sort, match, rank: steady ? rank : null });
      if (!always && sameNodes(groups, last)) return;
      last = groups;
      rank = new Map(groups.flatMap(({ nodes }) => nodes).map((node, place) => [store.nodes.name[node], place]));
      tell({ ...arranged(store, groups, width, group !== 'node'), match });
    };
    const watch = new ResizeObserver(([{ contentRect }]) => {
      if (Math.floor(contentRect.width) === width) return;
      width = Math.floor(contentRect.width);
      renew(rank !== null, true);
    });
    watch.observe(box.current);
    const forget = store.on(({ kind }) => (kind === 'snapshot' || kind === 'highlight') && width && renew(rank !== null, true));
    const timer = setInterval(() => {
      const held = box.current.matches(':hover, :focus-within');
      if (width && !document.hidden && (sort === 'free' || matcher(store, filter))) renew(held || Date.now() - sortedAt < SORTED_FOR, false);
    }, AGAIN);
    return () => {
      watch.disconnect();
      forget();
      clearInterval(timer);
    };
  }, [group, sort, JSON.stringify(filter)]);
  return layout;
}

function Headings({ headings }) {
  const { nodes, gpus } = store;
  return headings.map(({ name, top, nodes: list }) => {
    let count = 0, granted = 0, total = 0;
    for (const node of list) {
      for (let row = nodes.first[node]; row < nodes.first[node + 1]; row++, count++) {
        if (gpus.granted[row] < 0) continue;
        granted += gpus.granted[row];
        total += gpus.total[row];
      }
    }
    const said = t('map.group', { nodes: list.length, gpus: count, part: pct(total ? granted / total : null) });
    return html`<h3 key=${name} style=${{ top: `${top}px` }}>${String(name || t('map.noGroup'))} <small>${said}</small></h3>`;
  });
}

// settings: {mode, group, sort, filter}; own(namespace number): may this person see its names?
export function GpuMap({ settings, own }) {
  const box = useRef(null), host = useRef(null), tiles = useRef(null);
  const cursor = useRef(null); // {node, index}: rows change with a new snapshot, names do not
  const [pointed, point] = useState(-1); // the row whose card is shown
  const [said, say] = useState('');
  const layout = useLayout(box, settings);

  useEffect(() => {
    tiles.current = new Tiles(host.current);
    const forget = store.on(({ kind, gpus }) => {
      if (kind === 'stream') return;
      if (gpus) tiles.current.touch(gpus);
      else tiles.current.all();
      if (kind === 'snapshot') point(cursor.current ? store.gpuRow(cursor.current.node, cursor.current.index) : -1);
    });
    return () => {
      forget();
      tiles.current.end();
    };
  }, []);
  useEffect(() => {
    if (layout) tiles.current.show(layout, { mode: settings.mode, own, match: layout.match });
  }, [layout, settings.mode, own]);
  useEffect(() => {
    if (settings.mode !== 'age') return undefined;
    const timer = setInterval(() => tiles.current.all(), 2000); // ages grow by themselves
    return () => clearInterval(timer);
  }, [settings.mode]);

  const select = row => {
    cursor.current = row < 0 ? null : { node: store.nodes.name[store.gpus.node[row]], index: store.gpus.index[row] };
    point(row);
  };
  const placed = (find, event) => {
    const { left, top } = host.current.getBoundingClientRect();
    return find(layout, event.clientX - left, event.clientY - top);
  };
  const onPointer = event => {
    const row = placed(at, event);
    if (row !== pointed) select(row);
    host.current.style.cursor = row >= 0 || placed(nodeAt, event) >= 0 ? 'pointer' : '';
  };
  const onClick = event => {
    const row = placed(at, event), node = placed(nodeAt, event);
    if (row >= 0) open(row);
    else if (node >= 0) go(href('node', store.nodes.name[node]));
  };
  const walk = key => {
    const row = pointed < 0 ? layout.lines[0]?.rows[0] ?? -1 : moved(layout, pointed, key);
    if (row < 0) return false;
    select(row);
    say(spoken(row));
    const y = host.current.getBoundingClientRect().top + layout.y[row];
    if (y < 140 || y > innerHeight - 60) scrollBy({ top: y - innerHeight / 2, behavior: 'instant' });
    return true;
  };
  const open = row => row >= 0 && go(href('gpu', store.nodes.name[store.gpus.node[row]], store.gpus.index[row]));
  const onKey = event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Enter') open(pointed);
    else if (event.key === 'Escape') select(-1);
    else if (!walk(event.key)) return;
    event.preventDefault();
  };
  const shown = layout && pointed >= 0 && layout.x[pointed] >= 0;
  return html`<div class="map" ref=${box}>
    <div class="tiles" ref=${host} tabindex="0" role="application" aria-label=${t('map.label', { n: store.gpus.count })} aria-describedby="map-keys"
      style=${{ height: `${layout ? layout.height : 400}px` }}
      onPointerMove=${event => layout && onPointer(event)} onPointerLeave=${() => host.current !== document.activeElement && select(-1)}
      onClick=${event => layout && onClick(event)} onKeyDown=${event => layout && onKey(event)} onFocus=${() => layout && pointed < 0 && host.current.matches(':focus-visible') && walk('Home')}>
    </div>
    ${layout && html`<${Headings} headings=${layout.headings} />`}
    ${layout && !layout.lines.length && html`<p class="empty muted">${t(store.gpus.count ? 'map.nothing' : 'map.empty')}</p>`}
    ${shown && html`<div class="cursor" style=${{ transform: `translate(${layout.x[pointed] - 2}px, ${layout.y[pointed] - 2}px)`, width: `${layout.cell.width + 4}px`, height: `${layout.cell.height + 4}px` }}></div>
      <${Card} row=${pointed} x=${layout.x[pointed]} y=${layout.y[pointed]} cell=${layout.cell} width=${layout.width} />`}
    <p id="map-keys" class="sr">${t('map.keys')}</p>
    <div class="sr" role="status" aria-live="polite">${said}</div>
  </div>`;
}

export const LEGENDS = {
  granted: ['granted', 'used', 'over', 'unhealthy', 'unknown'],
  used: ['used', 'over', 'unhealthy', 'unknown'],
  idle: ['idle', 'over', 'unhealthy', 'unknown'],
  util: ['used', 'unhealthy', 'unknown'],
  free: ['free', 'unhealthy', 'unknown'],
  age: ['age', 'unhealthy', 'unknown'],
};

export function Legend({ mode, everything }) {
  const items = [...LEGENDS[mode]];
  if (mode === 'granted' && !everything) items.splice(1, 0, 'other');
  return html`<ul class="legend" aria-label=${t('legend')}>
    ${items.map(item => html`<li key=${item}><i class=${`swatch ${item} ${mode}`}></i>${t(`legend.${mode === 'util' && item === 'used' ? 'util' : item}`)}</li>`)}
  </ul>`;
}
