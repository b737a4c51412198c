// Questions to the dashboard's server. A refusal is thrown as {error, why, try, status}; status 0: no answer at all.
import { t } from './i18n.js';
import { useEffect, useState } from './ui.js';

export const ROOT = new URL('../../', import.meta.url); // the dashboard may stand below a path of a proxy

let whenNobody = () => {};

// Told once the server says that nobody is logged in.
export function onNobody(listener) {
  whenNobody = listener;
}

// path('api/gpu', node, 3) -> 'api/gpu/NODE/3', safe for any name
export const path = (start, ...parts) => [start, ...parts.map(encodeURIComponent)].join('/');

export async function ask(where, options = {}) {
  let response;
  try {
    response = await fetch(new URL(where, ROOT), { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw { error: t('error.away'), why: '', try: '', status: 0 };
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  if (response.status === 401) whenNobody(said);
  throw { error: said.error || t('error.status', { status: response.status }), why: said.why || '', try: said.try || '', status: response.status };
}

export const get = async where => (await ask(where)).json();

export async function post(where, body) {
  const headers = { 'Content-Type': 'application/json', 'X-Gpushare': '1' };
  return (await ask(where, { method: 'POST', headers, body: JSON.stringify(body) })).json();
}

// What a path answers, asked again every so many seconds while the page is visible. The old answer stays until the next
// one is there, also when a question fails; for another path it is dropped.
export function useAnswer(where, seconds = 0) {
  const [state, tell] = useState({ where, data: null, error: null, at: 0 });
  useEffect(() => {
    let over = false;
    const load = () => get(where).then(
      data => over || tell({ where, data, error: null, at: Date.now() }),
      error => over || tell(old => ({ ...(old.where === where ? old : { where, data: null, at: 0 }), error })));
    const again = () => document.hidden || load();
    load();
    const timer = seconds ? setInterval(again, seconds * 1000) : 0;
    if (seconds) document.addEventListener('visibilitychange', again);
    return () => {
      over = true;
      clearInterval(timer);
      document.removeEventListener('visibilitychange', again);
    };
  }, [where, seconds]);
  return state.where === where ? state : { where, data: null, error: null, at: 0 };
}
