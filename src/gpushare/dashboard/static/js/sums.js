// The figures at the top of the overview: pure, from the store's columns. A GPU without a figure is left out on both
// sides of a ratio, because unknown is not 0.
const STALE = 60; // seconds

export function sums({ gpus, nodes }) {
  const all = { gpus: gpus.count, nodes: nodes.count, total: 0, shared: 0, granted: 0, measured: 0, used: 0, held: 0, idle: 0, unmeasured: 0, unhealthy: 0, slots: 0, usedSlots: 0 };
  for (let row = 0; row < gpus.count; row++) {
    const total = gpus.total[row], granted = gpus.granted[row], used = gpus.used[row];
    all.total += total;
    if (!gpus.healthy[row]) all.unhealthy++;
    if (granted >= 0) {
      all.shared += total;
      all.granted += granted;
    }
    if (used < 0) {
      all.unmeasured++;
      continue;
    }
    all.measured += total;
    all.used += used;
    if (granted < 0) continue;
    all.held += total;
    all.idle += Math.max(0, granted - used);
  }
  for (const sold of nodes.sold) {
    for (const [, slots, used] of sold || []) {
      all.slots += slots;
      all.usedSlots += used;
    }
  }
  return all;
}

// What a person should look at: {over, sick, unhealthy: rows of GPUs, silent, stale: rows of nodes}. `sick` have pods.
export function troubles(store) {
  const { gpus, nodes } = store;
  const found = { over: [], sick: [], unhealthy: [], silent: [], stale: [] };
  for (let row = 0; row < gpus.count; row++) {
    if (gpus.over[row] > 0) found.over.push(row);
    if (!gpus.healthy[row]) found[gpus.shares[row].length ? 'sick' : 'unhealthy'].push(row);
  }
  for (let node = 0; node < nodes.count; node++) {
    const age = store.nodeAge(node);
    if (nodes.first[node] === nodes.first[node + 1]) continue;
    if (age === null) found.silent.push(node);
    else if (age > STALE) found.stale.push(node);
  }
  return found;
}
