// What all pages share: links to pods, GPUs and nodes, bars of GPU memory, and what is shown until an answer is there.
import { html, Loading, Trouble } from '../ui.js';
import { has, known, mib, t } from '../i18n.js';
import { href } from '../router.js';

const COLOURS = 8;

export const secondsSince = moment => (moment ? Math.max(0, (Date.now() - Date.parse(moment)) / 1000) : null);

// A `ref` that sets an element's style: the page may have no style attributes.
export const styled = (name, value) => element => element && (element.style[name] = value);

export const wide = (part, whole, name = 'width') => styled(name, `${whole > 0 ? Math.min(100, Math.max(0, (100 * part) / whole)) : 0}%`);

// Where a pod is explained, whether it waits or runs.
const podHref = ({ namespace, pod }) => href('waiting', { pod: `${namespace}/${pod}` });

// Without a name it is of a namespace that this user may not read.
export function Pod(row) {
  if (!known(row.pod)) return html`<span class="muted">${t('table.otherTeam')}</span>`;
  return html`<a href=${podHref(row)}><span class="muted">${String(row.namespace)}/</span>${String(row.pod)}</a>`;
}

export const Node = ({ node }) => known(node) && html`<a href=${href('node', node)}>${String(node)}</a>`;

export function Gpu({ node, gpu, alone }) {
  if (!known(gpu)) return html`<${Node} node=${node} />`;
  return html`<a href=${href('gpu', node, gpu)}>${alone ? '' : `${node} `}${t('table.gpu', { gpu: String(gpu) })}</a>`;
}

// The text of a key, or the word itself if it is new to this page: servers may be newer than message files.
export const named = (group, word) => (has(`${group}.${word}`) ? t(`${group}.${word}`) : String(word));

export const Code = ({ code }) => html`<span class="tag">${named('code', code)}</span>`;

// The failure of an answer, that it is on its way, or `show(data)`. Data stays while later answers fail, and the failure
// stands below it, so that nothing jumps.
export function Answer({ answer: { data, error, again }, show }) {
  return html`${data ? show(data) : !error && html`<${Loading} />`}
    ${error && html`<div class="late"><${Trouble} failure=${error} /><button onClick=${again}>${t('table.again')}</button></div>`}`;
}

export const Facts = ({ facts }) => html`<p class="facts">${facts.filter(Boolean).map(fact => html`<span>${String(fact)}</span>`)}</p>`;

export const Notes = ({ notes }) => notes?.length > 0 && html`<ul class="notes">${notes.map(note => html`<li>${String(note)}</li>`)}</ul>`;

// The colour of a pod among those of one GPU; the same in bar, chart and table.
export function colours(shares) {
  const name = share => `${share.namespace}/${share.pod}`, names = [...new Set(shares.filter(share => known(share.pod)).map(name))];
  return share => (known(share.pod) ? `c${names.indexOf(name(share)) % COLOURS}` : 'other');
}

export const over = shares => shares.reduce((all, share) => all + (share.over > 0 ? share.over : 0), 0);

function Share({ share, total, colour }) {
  const { namespace, pod, container, granted, used } = share;
  const mine = known(pod), name = mine ? String(pod) : `${t('table.otherTeam')}, ${mib(granted)}`;
  const label = [mine ? `${namespace}/${pod}` : t('table.otherTeam'), container, t('table.grantedUsed', { granted: mib(granted), used: mib(used) }), share.over > 0 && t('table.overBy', { over: mib(share.over) })].filter(Boolean).join(', ');
  return html`<a class=${`share ${colour}${share.over > 0 ? ' over' : ''}`} href=${mine ? podHref(share) : null} title=${label} aria-label=${label} ref=${known(granted) ? wide(granted, total) : styled('flex', '1')}>
    <span>${name}</span>${known(used) && html`<i ref=${wide(used, granted)}></i>`}</a>`;
}

// All of one GPU. A line stands at what is used in all, as the driver says.
export function GpuBar({ gpu: { shares, total, granted, used, free, healthy } }) {
  const colour = colours(shares);
  return html`<div class=${`gpubar${healthy ? '' : ' sick'}${known(granted) ? '' : ' unknown'}`}>
    ${shares.map((share, at) => html`<${Share} key=${`${share.number} ${at}`} share=${share} total=${total} colour=${colour(share)} />`)}
    <span class="rest">${known(granted) && free > 0 ? mib(free) : ''}</span>
    ${known(used) && html`<b title=${t('table.usedInAll', { used: mib(used) })} ref=${wide(used, total, 'left')}></b>`}
  </div>`;
}
