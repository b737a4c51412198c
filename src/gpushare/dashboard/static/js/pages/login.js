// Nobody is logged in. On one's own machine the printed address is the key; in the cluster a token of Kubernetes is.
import { t } from '../i18n.js';
import { html } from '../ui.js';

const COMMAND = 'gpushare dashboard';
const TOKEN = 'kubectl create token NAME --audience gpushare-dashboard';

export default function Login({ said }) {
  const local = said.mode === 'local';
  return html`<main id="main" class="login">
    <h1 tabindex="-1">${t('login')}</h1>
    ${said.error && html`<p class="warn">${[said.error, said.try].filter(Boolean).map(String).join('; ')}</p>`}
    ${said.mode !== 'cluster' && html`<p>${t('login.local')}</p><pre>${COMMAND}</pre>`}
    ${!local && html`<form method="post" action="login">
      <p>${t('login.cluster')}</p><pre>${TOKEN}</pre>
      <label for="token">${t('login.token')}</label>
      <input id="token" name="token" type="password" autocomplete="off" required autofocus />
      <button class="main">${t('login')}</button>
    </form>`}
  </main>`;
}
