// Keys that work everywhere, and the list of them. They can be switched off, because people who speak to their computer
// press letters without wanting to.
import { Dialog } from './dialog.js';
import { t } from './i18n.js';
import { go, href } from './router.js';
import { html, useEffect, useState } from './ui.js';

const SETTING = 'gpushare-keys';
const PAGES = { 1: 'overview', 2: 'waiting', 3: 'history', 4: 'whatif', 5: 'health' };
const isOn = () => localStorage.getItem(SETTING) !== 'off';
const isTyping = ({ target }) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

export function useKeys(onSearch, onKeys) {
  useEffect(() => {
    const pressed = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || !isOn() || document.querySelector('dialog[open]')) return;
      if (event.key === '/') onSearch();
      else if (event.key === '?') onKeys();
      else if (PAGES[event.key]) go(href(PAGES[event.key]));
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

export function Keys({ onClose }) {
  const [on, set] = useState(isOn());
  const change = () => {
    localStorage.setItem(SETTING, on ? 'off' : 'on');
    set(!on);
  };
  const rows = [['/', t('search.what')], ...Object.entries(PAGES).map(([key, page]) => [key, t(`page.${page}`)]), ['← ↑ ↓ →', t('keys.move')], ['Enter', t('keys.open')], ['Esc', t('keys.close')], ['?', t('keys')]];
  return html`<${Dialog} label=${t('keys')} kind="keylist" onClose=${onClose}>
    <h2>${t('keys')}</h2>
    <dl>${rows.map(([key, words]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${words}</dd></div>`)}</dl>
    <label class="toggle"><input type="checkbox" checked=${on} onChange=${change} /><span>${t('keys.on')}</span></label>
    <button autofocus onClick=${onClose}>${t('close')}</button>
  <//>`;
}
