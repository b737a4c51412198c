// What all pages share: links to pods, GPUs and nodes, what is shown while an answer is on its way, and sizes.
import { html, Loading, Trouble } from '../ui.js';
import { has, known, t } from '../i18n.js';
import { href } from '../router.js';

export const secondsSince = moment => (moment ? Math.max(0, (Date.now() - Date.parse(moment)) / 1000) : null);

// The sum of what is known; null if nothing is.
export const sum = values => values.reduce((all, value) => (known(value) ? (all ?? 0) + value : all), null);

// A `ref` that sets an element's size: the page may have no style attributes.
export const sized = properties => element => element && Object.assign(element.style, properties);

export const share = (part, whole) => `${whole > 0 ? Math.min(100, Math.max(0, (100 * part) / whole)) : 0}%`;

// Where a pod is explained, whether it waits or runs.
export const podHref = (namespace, pod) => href('waiting', { pod: `${namespace}/${pod}` });

// Without a name it is of a namespace that this user may not read.
export function Pod({ namespace, pod }) {
  if (!known(pod)) return html`<span class="muted">${t('table.otherTeam')}</span>`;
  return html`<a class="name" href=${podHref(namespace, pod)}><span class="muted">${String(namespace)}/</span>${String(pod)}</a>`;
}

export const Node = ({ node }) => html`<a class="name" href=${href('node', node)}>${String(node)}</a>`;

export function Gpu({ node, gpu, alone }) {
  if (!known(gpu)) return html`<${Node} node=${node} />`;
  return html`<a class="name" href=${href('gpu', node, gpu)}>${alone ? '' : `${node} `}${t('table.gpu', { gpu: String(gpu) })}</a>`;
}

// The name of a code in the reader's language; a code that is new to this page stays as it is.
export const codeName = code => (has(`code.${code}`) ? t(`code.${code}`) : String(code));

// The failure of an answer, that it is on its way, or `show(data)`, which stays while later ones fail.
export function Answer({ answer, show }) {
  const { data, error, again } = answer;
  return html`${error && html`<div><${Trouble} failure=${error} /><button class="again" onClick=${again}>${t('table.again')}</button></div>`}
    ${data ? show(data) : !error && html`<${Loading} />`}`;
}

export const Notes = ({ notes }) =>
  notes?.length ? html`<ul class="notes">${notes.map(note => html`<li>${String(note)}</li>`)}</ul>` : null;

// Links of which one is chosen: the choice stands in the address.
export const Choice = ({ label, options, chosen }) => html`<nav class="choice" aria-label=${label}>
  ${options.map(([key, text, link]) => html`<a href=${link} aria-current=${key === chosen ? 'true' : null}>${text}</a>`)}
</nav>`;
