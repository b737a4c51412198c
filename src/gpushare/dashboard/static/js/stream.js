// Keeps the store fed: a snapshot, then the stream of differences, again and again for as long as the page is open.
// fetch() instead of EventSource, because that hides heartbeats and what a refusal said. The stream is closed when the
// page has been hidden for 30 s, and opened again where it stopped.
import { ask, get } from './api.js';
import { heard, setConnected, setProblem, store, takeDelta, takeSnapshot } from './store.js';

const HIDDEN_FOR = 30_000;
const SILENT_FOR = 35; // seconds; the server says something at least every 15 s
const ASLEEP_FOR = 10_000; // a timer of one second that came so late: the machine slept
const PAUSES = [200, 1000, 2000, 4000, 8000]; // milliseconds, after so many failures

let running = false; // there is a loop
let wanted = true; // false: the page is hidden, or nobody is logged in
let failures = 0;
let reset = false;
let current = null; // AbortController of the open stream
let opened = 0;
let wake = () => {};

export function startStream() {
  document.addEventListener('visibilitychange', visibility);
  addEventListener('online', reconnect);
  setInterval(watchdog, 1000);
  follow();
}

export function stopStream() {
  wanted = false;
  current?.abort();
}

async function follow() {
  if (running) return;
  running = true;
  while (wanted) {
    try {
      if (!store.ready || reset) takeSnapshot(await get('api/snapshot'));
      reset = false;
      await read();
    } catch (failure) {
      if (failure.status === 401) wanted = false;
      else if (!store.ready) setProblem(failure);
    }
    failures++; // also when it ended well: at once again would be a storm
    if (wanted) await pause(PAUSES[Math.min(failures, PAUSES.length) - 1] * (0.75 + Math.random() / 2));
  }
  running = false;
}

const pause = milliseconds => new Promise(done => {
  const timer = setTimeout(done, milliseconds);
  wake = () => { clearTimeout(timer); done(); };
});

async function read() {
  current = new AbortController();
  opened = Date.now() / 1000;
  try {
    const response = await ask(`api/stream?from=${store.epoch}.${store.seq}`, { signal: current.signal, cache: 'no-store' });
    heard();
    setConnected(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) if (!await take(fields(event))) return;
    }
  } finally {
    current.abort();
    current = null;
    setConnected(false);
  }
}

function fields(event) {
  const found = {};
  for (const line of event.split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  return found;
}

// True: read on.
async function take({ event, id, data }) {
  if (event === 'bye') return false;
  if (event === 'reset') {
    reset = true;
    return false;
  }
  if (event !== 'delta') return true;
  failures = 0;
  const [epoch, seq] = id.split('.');
  reset = !takeDelta(epoch, Number(seq), await inflated(data));
  return !reset;
}

async function inflated(base64) {
  const bytes = Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).json();
}

function reconnect() {
  failures = 0;
  current?.abort();
  wake();
}

let hiding = 0;

function visibility() {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(stopStream, HIDDEN_FOR);
  } else if (!wanted && store.ready) {
    wanted = true;
    failures = 0;
    follow();
  } else wake();
}

let ticked = Date.now();

function watchdog() {
  const slept = Date.now() - ticked > ASLEEP_FOR;
  ticked = Date.now();
  if (!document.hidden && (slept || (current && ticked / 1000 - Math.max(opened, store.heard) > SILENT_FOR))) reconnect();
}
