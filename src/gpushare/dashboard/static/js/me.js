// Who asks, and what they may see. Namespaces have numbers in the stream; `namespaces` says the names of those whose pods
// this person may read, {number: name}. It is asked for again every minute, because rights and namespaces change.
import { get } from './api.js';
import { store } from './store.js';
import { useTold } from './ui.js';

const AGAIN = 60_000;
const listeners = new Set();
let me = { user: '', mode: '', cluster: '', version: '', everything: true, program: 'gpushare' };

async function load() {
  if (document.hidden) return;
  try {
    me = await get('api/me');
    for (const listener of [...listeners]) listener();
  } catch {
    // the header says that the dashboard does not answer, and api.js that nobody is logged in
  }
}

export async function startMe() {
  setInterval(load, AGAIN);
  let epoch = '';
  store.on(() => {
    if (store.epoch === epoch) return;
    if (epoch) load(); // numbers mean something else now
    epoch = store.epoch;
  });
  await load();
}

export const useMe = () => useTold(listeners, () => me);
