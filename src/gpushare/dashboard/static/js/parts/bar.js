// Bars of GPU memory: who was granted how much of one GPU, and how much of it is used.
import { html } from '../ui.js';
import { known, mib, t } from '../i18n.js';
import { podHref, share as part, sized } from './basics.js';

const COLOURS = 8;

// The colour of a pod among those of one GPU; the same in bar, chart and table.
export function colours(shares) {
  const numbers = [...new Set(shares.filter(share => known(share.pod)).map(share => share.number))];
  return share => (known(share.pod) ? `c${numbers.indexOf(share.number) % COLOURS}` : 'other');
}

export function inWords(share) {
  const who = known(share.pod) ? `${share.namespace}/${share.pod}` : t('table.otherTeam');
  const container = known(share.container) ? ` (${share.container})` : '';
  const over = share.over > 0 ? `, ${t('table.overBy', { over: mib(share.over) })}` : '';
  return `${who}${container}: ${t('table.grantedUsed', { granted: mib(share.granted), used: mib(share.used) })}${over}`;
}

function Share({ share, total, colour }) {
  const label = inWords(share);
  const inside = html`<span>${known(share.pod) ? String(share.pod) : t('table.otherTeam')}</span>
    ${known(share.used) && html`<i ref=${sized({ width: part(share.used, share.granted) })}></i>`}`;
  const looks = `share ${colour}${share.over > 0 ? ' over' : ''}`;
  const wide = sized({ width: part(share.granted, total) });
  if (!known(share.pod)) return html`<span class=${looks} title=${label} ref=${wide}>${inside}</span>`;
  const link = podHref(share.namespace, share.pod);
  return html`<a class=${looks} href=${link} title=${label} aria-label=${label} ref=${wide}>${inside}</a>`;
}

// All of one GPU. A line stands at what is used in all, as the driver says.
export function GpuBar({ gpu }) {
  const colour = colours(gpu.shares);
  const free = known(gpu.granted) ? gpu.total - gpu.granted : 0;
  return html`<div class=${gpu.healthy ? 'gpubar' : 'gpubar sick'}>
    ${gpu.shares.map((share, at) => html`<${Share} key=${`${share.number} ${at}`} share=${share} total=${gpu.total} colour=${colour(share)} />`)}
    ${free > 0 && html`<span class="rest">${mib(free)}</span>`}
    ${known(gpu.used) && html`<b title=${t('table.usedInAll', { used: mib(gpu.used) })} ref=${sized({ left: part(gpu.used, gpu.total) })}></b>`}
  </div>`;
}

// What was granted, and what a pod would add.
export const ChangeBar = ({ total, before, after }) => html`<div class="gpubar change">
  <span class="share had" ref=${sized({ width: part(before, total) })}></span>
  <span class="share new" ref=${sized({ width: part(after - before, total) })}></span>
</div>`;
