// Which page is shown, and with what settings: all of it stands in the address after #, so that a link brings another
// person to the same view.
import { useTold } from './ui.js';

const listeners = new Set();

// '#/gpu/node-1/3?range=6h' -> {page: 'gpu', parts: ['node-1', '3'], query: {range: '6h'}}
export function parse(hash) {
  const [path, words = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [page, ...parts] = path.split('/').map(decoded);
  return { page: page || 'overview', parts: parts.filter(part => part !== ''), query: Object.fromEntries(new URLSearchParams(words)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray % in an address somebody typed
  }
}

// href('gpu', 'node-1', 3, {range: '6h'}) -> '#/gpu/node-1/3?range=6h'. Empty settings are left out.
export function href(page, ...parts) {
  const last = parts[parts.length - 1];
  const query = last !== null && typeof last === 'object' ? parts.pop() : {};
  const path = page === 'overview' ? '' : [page, ...parts].map(encodeURIComponent).join('/');
  const set = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined && value !== false);
  const words = new URLSearchParams(set.map(([name, value]) => [name, value === true ? '1' : String(value)])).toString();
  return `#/${path}${words && `?${words}`}`;
}

let shown = parse(location.hash);

export const route = () => shown;

export function go(address) {
  if (location.hash !== address) location.hash = address;
}

// Changes settings of this page without a new entry in the browser's history.
export function setQuery(changes) {
  history.replaceState(null, '', href(shown.page, ...shown.parts, { ...shown.query, ...changes }));
  changed();
}

function changed() {
  shown = parse(location.hash);
  for (const listener of [...listeners]) listener();
}

addEventListener('hashchange', changed);

export const useRoute = () => useTold(listeners, route);
