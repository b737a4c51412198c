// What is known of one GPU, beside the pointer. Names of pods are not in the stream: they are asked for when somebody
// stays on a cell, and kept for 10 s.
import { get, path } from './api.js';
import { age, has, known, mib, n, pct, t } from './i18n.js';
import { FINE, store, useStore } from './store.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './ui.js';

const STAY = 120; // milliseconds
const KEPT = 10_000;
const SHOWN = 8; // shares
const WIDTH = 300;

const kept = new Map(); // node -> {at, answer}

function nodeOf(name) {
  const found = kept.get(name);
  if (found && Date.now() - found.at < KEPT) return found.answer;
  const answer = get(path('api/node', name));
  answer.catch(() => kept.delete(name));
  kept.clear(); // one node at a time is pointed at
  kept.set(name, { at: Date.now(), answer });
  return answer;
}

// The GPU as one sentence, for a screen reader.
export function spoken(row) {
  const gpu = store.gpu(row);
  const parts = [t('card.gpu', { node: gpu.node, index: String(gpu.index) }), gpu.model, t('card.granted', { granted: mib(gpu.granted), total: mib(gpu.total) }), t('card.used', { used: mib(gpu.used) })];
  if (gpu.over > 0) parts.push(t('card.over', { over: mib(gpu.over) }));
  if (!gpu.healthy) parts.push(t('card.unhealthy'));
  parts.push(t('card.shares', { n: gpu.shares.length }));
  return parts.join(', ');
}

function Share({ share, named }) {
  const who = named?.pod ? `${named.namespace}/${named.pod}` : named ? t('card.otherTeam') : '…';
  return html`<li class=${named && !named.pod ? 'other' : ''}>
    <span class="who">${String(who)}</span>
    <span class="num">${mib(share.granted)}</span>
    <span class=${`num ${named?.over > 0 ? 'over' : 'muted'}`}>${named ? (named.over > 0 ? `+${mib(named.over)}` : mib(named.used)) : ''}</span>
  </li>`;
}

export function Card({ row, x, y, cell, width }) {
  useStore(({ version }) => version);
  const gpu = store.gpu(row);
  const [node, tell] = useState(null);
  const card = useRef(null);
  useEffect(() => {
    let over = false;
    const timer = setTimeout(() => nodeOf(gpu.node).then(found => over || tell(found), () => {}), node?.name === gpu.node ? 0 : STAY);
    return () => { over = true; clearTimeout(timer); };
  }, [gpu.node, gpu.index]);
  useLayoutEffect(() => { // it stays on the screen: at the foot of the page it goes up
    const { style } = card.current;
    style.marginTop = '0';
    style.marginTop = `${Math.min(0, innerHeight - 12 - card.current.getBoundingClientRect().bottom)}px`;
  });
  const detail = node?.name === gpu.node ? node.gpus.find(({ index }) => index === gpu.index) : null;
  const ages = store.nodeAge(store.gpus.node[row]);
  const state = store.nodes.state[store.gpus.node[row]];
  const sold = store.nodes.sold[store.gpus.node[row]];
  // by number; a pod with several containers has several rows there, and one here
  const named = share => detail?.shares.find(({ number }) => number === share.pod);
  const right = x + cell.width + 10;
  const left = Math.max(0, Math.min(right, width - WIDTH)), beside = left === right;
  return html`<div class="card" aria-hidden="true" ref=${card} style=${{ left: `${left}px`, top: `${y + (beside ? -4 : cell.height + 10)}px`, width: `${Math.min(WIDTH, width)}px` }}>
    <header><b>${String(gpu.node)} <span class="nowrap">GPU ${gpu.index}</span></b> <span class="muted">${String(gpu.model)}</span></header>
    ${!gpu.healthy && html`<p class="bad">${t('card.unhealthy')}${detail?.why ? `: ${String(detail.why)}` : ''}</p>`}
    ${!FINE.includes(state) && html`<p class="warn">${has(`node.state.${state}`) ? t(`node.state.${state}`) : String(state)}</p>`}
    ${sold && html`<p class="muted">${t('card.sold', { sold: sold.map(([name, all, used]) => `${used}/${all} ${name}`).join(', ') })}</p>`}
    <dl>
      <div><dt>${t('sums.granted')}</dt><dd>${mib(gpu.granted)} <span class="muted">/ ${mib(gpu.total)}</span></dd></div>
      <div><dt>${t('sums.used')}</dt><dd>${mib(gpu.used)} ${gpu.over > 0 && html`<b class="over">+${mib(gpu.over)}</b>`}</dd></div>
      <div><dt>${t('card.free')}</dt><dd>${mib(gpu.free)}</dd></div>
      <div><dt>${t('card.now')}</dt><dd>${known(gpu.util) ? pct(gpu.util / 100) : '—'} · ${n(gpu.temp)} °C · ${n(gpu.power)} W</dd></div>
    </dl>
    ${gpu.shares.length > 0 && html`<ul>${gpu.shares.slice(0, SHOWN).map(share => html`<${Share} key=${share.pod} share=${share} named=${named(share)} />`)}</ul>`}
    ${gpu.shares.length > SHOWN && html`<p class="muted">${t('card.more', { n: gpu.shares.length - SHOWN })}</p>`}
    <footer class="muted">${ages === null ? t('card.noFigures') : t('card.age', { age: age(ages) })} · ${t('card.open')}</footer>
  </div>`;
}
