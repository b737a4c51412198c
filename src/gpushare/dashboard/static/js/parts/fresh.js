// Answers of the server that a page keeps fresh: while somebody looks at it they are asked for again every few seconds,
// and at once when the stream says that something changed. The last answer stays until the next is there.
import { useCallback, useEffect, useRef, useState } from '../ui.js';
import { get } from '../api.js';
import { store } from '../store.js';

const LEAST = 1000; // milliseconds between two questions

const subject = path => path.split('?')[0]; // the same thing over another range is no reason to empty the page

// `touched(change)`: whether a change of the stream concerns this answer.
export function useFresh(path, { seconds = 5, touched = null } = {}) {
  const [state, tell] = useState({ path, data: null, error: null });
  const again = useRef(null);
  useEffect(() => {
    let over = false, busy = false, timer = 0, last = 0;
    const after = delay => {
      clearTimeout(timer);
      timer = setTimeout(ask, delay);
    };
    async function ask() {
      if (busy || document.hidden) return;
      busy = true;
      try {
        const data = await get(path);
        over || tell({ path, data, error: null });
      } catch (error) {
        over || tell(old => ({ path, data: subject(old.path) === subject(path) ? old.data : null, error }));
      }
      busy = false;
      last = Date.now();
      over || after(seconds * 1000);
    }
    const soon = () => after(Math.max(0, last + LEAST - Date.now()));
    const forget = store.on(change => touched?.(change) && soon());
    const seen = () => document.hidden || soon();
    document.addEventListener('visibilitychange', seen);
    again.current = soon;
    ask();
    return () => {
      over = true;
      clearTimeout(timer);
      forget();
      document.removeEventListener('visibilitychange', seen);
    };
  }, [path]);
  const load = useCallback(() => again.current?.(), []);
  const { data, error } = subject(state.path) === subject(path) ? state : {};
  return { data, error, again: load };
}

// The changes of the stream that concern a node.
export const touches = name => ({ kind, gpus }) =>
  kind !== 'stream' && (gpus === null || gpus.some(row => store.nodes.name[store.gpus.node[row]] === name));
