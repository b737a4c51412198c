// Questions to the dashboard's server. A refusal is thrown as {error, why, try, status}; status 0: no answer at all.
import { t } from './i18n.js';

export const ROOT = new URL('../../', import.meta.url); // the dashboard may stand below a path of a proxy

let nobody = null; // what the server said when it knew nobody
let whenNobody = () => {};

// Told when the server says that nobody is logged in, also if it has said so before.
export function onNobody(listener) {
  whenNobody = listener;
  if (nobody) listener(nobody);
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
  if (response.status === 401) {
    nobody = said;
    whenNobody(said);
  }
  throw { error: said.error || t('error.status', { status: response.status }), why: said.why || '', try: said.try || '', status: response.status };
}

export const get = async where => (await ask(where)).json();

export async function post(where, body) {
  const headers = { 'Content-Type': 'application/json', 'X-Gpushare': '1' };
  return (await ask(where, { method: 'POST', headers, body: JSON.stringify(body) })).json();
}
