// The cluster as this tab knows it: columns from one snapshot, kept up to date by one stream of differences.
// stream.js brings the bytes; this file knows what they mean. Unknown figures are -1 here and "—" on the page.
import { useEffect, useRef, useState } from './ui.js';

const FIGURES = ['total', 'healthy', 'granted', 'free', 'used', 'util', 'temp', 'power', 'over'];
export const FINE = ['ready', 'selling']; // states of a node that need nobody
const NO_SHARES = new Float64Array(0);
const SHARE = 3; // numbers per share: pod, namespace, granted

const listeners = new Set();
const now = () => Date.now() / 1000;

export const store = {
  ready: false,
  version: 0, // grows with every change
  epoch: '',
  seq: 0,
  tables: { models: [], zones: [], pins: [] },
  nodes: { count: 0, name: [], unit: [], pin: [], zone: [], state: [], sold: [], first: [0], sampled: [] },
  gpus: { count: 0, id: [], index: [], model: [], node: [], shares: [] },
  largest: 0, // MiB of the largest GPU
  waiting: { count: 0, oldest: -1, codes: {} },
  unplaced: 0,
  problem: null, // why there is no snapshot yet, as api.js throws it
  connected: false,
  heard: now(), // when any byte came
  told: { ages: { watch: -1, use: -1, failure: '' }, at: now(), time: 0 }, // the server's last word on how old things are
  highlighted: new Set(), // rows of GPUs

  on(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },

  // How old what this page shows is, in seconds: the watch of the cluster, the newest sample of use, the stream's silence.
  ages() {
    const { ages, at } = store.told;
    const since = now() - at;
    const older = value => (value < 0 || value === null || value === undefined ? null : value + since);
    return { watch: older(ages.watch), use: older(ages.use), failure: ages.failure || '', silent: now() - store.heard, connected: store.connected };
  },

  // The server's clock, in seconds since 1970.
  clock: () => store.told.time + (now() - store.told.at),

  nodeRow: name => rows.node.get(name) ?? -1,

  gpuRow(nodeName, index) {
    const node = store.nodeRow(nodeName);
    if (node < 0) return -1;
    for (let row = store.nodes.first[node]; row < store.nodes.first[node + 1]; row++) {
      if (store.gpus.index[row] === Number(index)) return row;
    }
    return -1;
  },

  // One GPU as an object, or null. Its shares have numbers, no names: those come from api/node.
  gpuAt(nodeName, index) {
    const row = store.gpuRow(nodeName, index);
    return row < 0 ? null : store.gpu(row);
  },

  gpu(row) {
    const { gpus, nodes, tables } = store;
    const gpu = { row, node: nodes.name[gpus.node[row]], index: gpus.index[row], model: tables.models[gpus.model[row]] ?? '' };
    for (const name of FIGURES) gpu[name] = gpus[name][row];
    gpu.shares = [];
    const flat = gpus.shares[row];
    for (let i = 0; i < flat.length; i += SHARE) gpu.shares.push({ pod: flat[i], ns: flat[i + 1], granted: flat[i + 2] });
    return gpu;
  },

  // How old a node's figures are, in seconds; null: it has none.
  nodeAge(node) {
    const sampled = store.nodes.sampled[node];
    return Number.isNaN(sampled) ? null : Math.max(0, store.clock() - sampled);
  },

  // GPUs that the map lights: a list of {node, index}, kept until the next call.
  highlight(list) {
    wanted = list;
    light();
    changed('highlight', null);
  },
};

const rows = { node: new Map(), nodeId: new Map(), gpuId: new Map() };
let wanted = [];

function light() {
  store.highlighted = new Set(wanted.map(({ node, index }) => store.gpuRow(node, index)).filter(row => row >= 0));
}

// `gpus`: the rows that changed; null: all may have.
function changed(kind, gpus) {
  store.version++;
  for (const listener of [...listeners]) listener({ kind, gpus });
}

export const heard = () => { store.heard = now(); };

export function setProblem(problem) {
  store.problem = problem;
  changed('stream', []);
}

export function setConnected(connected) {
  store.connected = connected;
  changed('stream', []);
}

function tell(ages, time) {
  store.told = { ages: ages || store.told.ages, at: now(), time };
}

// Numbers that were sent as differences to the one before.
function summed(gaps) {
  let sum = 0;
  return gaps.map(gap => (sum += gap));
}

// Ids and numbers of pods come as differences to the one before, and what is free as the difference to what is not
// granted: small numbers are short.
export function takeSnapshot(body) {
  const { nodes, gpus, shares } = body;
  const ids = { node: summed(nodes.id), gpu: summed(gpus.id) }, pods = summed(shares.pod);
  const count = ids.node.length;
  const first = new Int32Array(count + 1);
  const owner = new Int32Array(gpus.id.length);
  for (let i = 0; i < count; i++) {
    first[i + 1] = first[i] + nodes.gpus[i];
    owner.fill(i, first[i], first[i + 1]);
  }
  const flat = [];
  for (let row = 0, at = 0; row < gpus.id.length; row++) {
    const list = gpus.shares[row] ? new Float64Array(gpus.shares[row] * SHARE) : NO_SHARES;
    for (let i = 0; i < list.length; i += SHARE, at++) list.set([pods[at], shares.ns[at], shares.granted[at]], i);
    flat.push(list);
  }
  store.tables = body.tables;
  store.nodes = {
    count, first, id: ids.node, name: nodes.name, unit: nodes.unit, pin: nodes.pin, zone: nodes.zone, state: nodes.state, sold: nodes.sold,
    sampled: Float64Array.from(nodes.age, age => sampledAt(age, body.time)),
  };
  store.gpus = { count: gpus.id.length, id: ids.gpu, index: gpus.index, model: gpus.model, node: owner, shares: flat };
  for (const name of FIGURES) store.gpus[name] = Float64Array.from(gpus[name]);
  for (let row = 0; row < gpus.id.length; row++) store.gpus.free[row] += store.gpus.total[row] - store.gpus.granted[row];
  store.largest = store.gpus.total.reduce((most, total) => Math.max(most, total), 0);
  rows.node = new Map(nodes.name.map((name, row) => [name, row]));
  rows.nodeId = new Map(ids.node.map((id, row) => [id, row]));
  rows.gpuId = new Map(ids.gpu.map((id, row) => [id, row]));
  Object.assign(store, { ready: true, problem: null, epoch: body.epoch, seq: body.seq, waiting: body.waiting, unplaced: body.unplaced });
  tell(body.ages, body.time);
  light();
  changed('snapshot', null);
}

const sampledAt = (age, time) => (age === null || age < 0 ? NaN : time - age);

// Adds one delta. False: it does not fit what is here, and only a new snapshot helps.
export function takeDelta(epoch, seq, delta) {
  if (epoch !== store.epoch) return false;
  if (seq <= store.seq) return true; // had it already
  if (seq !== store.seq + 1) return false;
  const dirty = new Set();
  if (!figures(delta.g, dirty) || !shares(delta.s, dirty) || !nodes(delta.n, delta.t, dirty)) return false;
  store.seq = seq;
  if (delta.waiting) store.waiting = delta.waiting;
  if (delta.unplaced !== undefined) store.unplaced = delta.unplaced;
  tell(delta.ages, delta.t);
  changed('delta', [...dirty]);
  return true;
}

function figures(columns, dirty) {
  if (!columns) return true;
  const touched = [];
  let id = 0;
  for (const gap of columns.id) {
    id += gap;
    const row = rows.gpuId.get(id);
    if (row === undefined) return false;
    touched.push(row);
    dirty.add(row);
  }
  for (const name of FIGURES) {
    const differences = columns[name];
    if (!differences) continue;
    const column = store.gpus[name];
    for (let i = 0; i < touched.length; i++) column[touched[i]] += differences[i];
  }
  return true;
}

function shares(lists, dirty) {
  for (const [id, list] of Object.entries(lists || {})) {
    const row = rows.gpuId.get(Number(id));
    if (row === undefined) return false;
    store.gpus.shares[row] = list.length ? Float64Array.from(list.flat()) : NO_SHARES;
    dirty.add(row);
  }
  return true;
}

function nodes(changes, time, dirty) {
  for (const [id, fields] of Object.entries(changes || {})) {
    const row = rows.nodeId.get(Number(id));
    if (row === undefined) return false;
    for (const [name, value] of Object.entries(fields)) {
      if (name === 'age') store.nodes.sampled[row] = sampledAt(value, time);
      else if (name in store.nodes) store.nodes[name][row] = value;
    }
    if ('age' in fields && Object.keys(fields).length === 1) continue; // comes every few seconds and only one colouring shows it
    for (let gpu = store.nodes.first[row]; gpu < store.nodes.first[row + 1]; gpu++) dirty.add(gpu);
  }
  return true;
}

// What `select` picks of the store; the component is drawn again when that becomes another value.
export function useStore(select) {
  const [, again] = useState(0);
  const last = useRef(null);
  const value = select(store);
  last.current = { select, value };
  useEffect(() => {
    const look = () => Object.is(last.current.select(store), last.current.value) || again(count => count + 1);
    look(); // something may have come since it was drawn
    return store.on(look);
  }, []);
  return value;
}
