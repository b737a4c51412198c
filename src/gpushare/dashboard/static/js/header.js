// The top of every page: where one is, how old what is shown is, who one is; and a banner when the news stops.
import { age, n, t } from './i18n.js';
import { useMe } from './me.js';
import { href } from './router.js';
import { store, useStore } from './store.js';
import { html, useEffect, useNow } from './ui.js';

const SILENT = 10; // seconds without the stream
const QUIET = 20; // seconds without a word on an open stream, which has one every second
const DEAF = 30; // seconds without the cluster
const LINKS = ['overview', 'waiting', 'history', 'whatif', 'health'];

// What is wrong with the news, or null.
export function trouble({ watch, failure, silent, connected }) {
  if (silent > (connected ? QUIET : SILENT)) return ['banner.silent', { age: age(silent) }];
  if (failure) return ['banner.failure', { failure: failure[0].toUpperCase() + failure.slice(1).replace(/\.$/, ''), age: age(watch) }];
  if (watch > DEAF) return ['banner.deaf', { age: age(watch) }];
  return null;
}

export function Ages() {
  useNow(1);
  useStore(({ told }) => told);
  const { watch, use } = store.ages();
  return html`<span class="ages" title=${t('ages.note')}><span>${t('ages.watch')} <b>${age(watch)}</b></span> <span>${t('ages.use')} <b>${use === null ? '—' : t('ages.ago', { age: age(use) })}</b></span></span>`;
}

export function Banner() {
  useNow(1);
  useStore(({ told }) => told);
  const wrong = trouble(store.ages());
  useEffect(() => {
    document.documentElement.classList.toggle('old', wrong !== null);
  }, [wrong !== null]);
  // a screen reader is told once, not every second: only the words beside the age are announced
  return html`<div class="news" role="status">${wrong && html`<p class="banner"><span class="sr">${t('banner.announce')}</span><span aria-live="off">${t(...wrong)}</span></p>`}</div>`;
}

export function Header({ page, onSearch, onKeys }) {
  const me = useMe();
  const waiting = useStore(store => store.waiting.count);
  return html`<header class="top">
    <a class="brand" href=${href('overview')}>gpushare</a>
    ${me.cluster && html`<span class="cluster">${String(me.cluster)}</span>`}
    <nav aria-label=${t('nav')}>
      ${LINKS.map(link => html`<a key=${link} href=${href(link)} aria-current=${link === page ? 'page' : null}>${t(`page.${link}`)}${link === 'waiting' && waiting > 0 ? html` <small>${n(waiting)}</small>` : ''}</a>`)}
    </nav>
    <${Ages} />
    <button class="find" onClick=${onSearch}><kbd>/</kbd> ${t('search')}</button>
    <span class="who">${String(me.user)} <span class="tag">${t('readOnly')}</span></span>
    ${me.mode === 'cluster' && html`<form method="post" action="logout"><button class="quiet">${t('logout')}</button></form>`}
    <button class="help quiet" aria-label=${t('keys')} onClick=${onKeys}>?</button>
  </header>`;
}
