// The pods that wait, why, and what would help. A pod in the address is explained here, also one that runs.
import { html, useEffect, useRef } from '../ui.js';
import { age, known, n, t } from '../i18n.js';
import { path } from '../api.js';
import { href } from '../router.js';
import { store } from '../store.js';
import { Answer, codeName, Gpu, secondsSince } from '../parts/basics.js';
import { Code, Explained } from '../parts/explained.js';
import { useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';

const keyOf = pod => `${pod.namespace}/${pod.name}`;

function Why({ pod, follow }) {
  const box = useRef(null);
  const cut = pod.indexOf('/');
  const answer = useFresh(path('api/why', pod.slice(0, cut), pod.slice(cut + 1)), { seconds: 10 });
  const there = Boolean(answer.data);
  useEffect(() => { if (there && follow) box.current.scrollIntoView({ block: 'nearest' }); }, [there]);
  return html`<div ref=${box}><${Answer} answer=${answer} show=${data => html`<${Explained} ...${data} />`} /></div>`;
}

const columns = (open, code) => [
  { key: 'pod', label: t('table.pod'), value: keyOf, cell: pod => html`<a class="name opener" aria-expanded=${String(keyOf(pod) === open)} href=${href('waiting', { code, pod: keyOf(pod) === open ? '' : keyOf(pod) })}><span class="muted">${String(pod.namespace)}/</span>${String(pod.name)}</a>` },
  { key: 'asks', label: t('waiting.asks') },
  { key: 'waits', label: t('waiting.waits'), num: true, value: pod => Math.floor(secondsSince(pod.created)), cell: pod => age(secondsSince(pod.created)) },
  { key: 'owner', label: t('waiting.whose'), cell: pod => html`<span class=${`owner v-${pod.verdict}`}>${String(pod.owner)}</span>` },
  { key: 'why', label: t('waiting.why'), value: pod => [pod.message, pod.detail].filter(Boolean).join('; '), cell: pod => html`${String(pod.message)} <${Code} code=${pod.code} />${pod.detail && html`<div class="muted">${String(pod.detail)}</div>`}` },
  { key: 'nearest', label: t('waiting.nearest'), value: pod => pod.closest?.short ?? null, cell: pod => pod.closest && html`<span class="nearest"><${Gpu} node=${pod.closest.node} gpu=${pod.closest.gpu} /><br /><span class="muted">${t('why.short', { short: String(pod.closest.short) })}</span></span>` },
];

function Reasons({ codes, code, pod }) {
  const list = Object.entries(codes).sort((a, b) => b[1] - a[1]);
  return html`<nav class="reasons" aria-label=${t('waiting.byReason')}>${list.map(([one, count]) => html`<a href=${href('waiting', { code: one === code ? '' : one, pod })} aria-current=${one === code ? 'true' : null}>${codeName(one)} <b>${n(count)}</b></a>`)}</nav>`;
}

function Waiting({ data, code, open }) {
  const first = useRef(open); // what the address named when the page was opened is brought into view
  const rows = code ? data.pods.filter(pod => pod.code === code) : data.pods;
  const listed = rows.some(pod => keyOf(pod) === open);
  const hidden = data.hidden > 0 && t('waiting.hidden', { count: data.hidden });
  return html`<p class="lead">${data.count ? t('waiting.count', { count: data.count }) : t('waiting.none')} ${hidden && html`<span class="muted">${hidden}</span>`}</p>
    <${Reasons} codes=${data.codes} code=${code} pod=${open} />
    ${open && !listed && html`<section class="panel"><header><h2>${open}</h2><a href=${href('waiting', { code })}>${t('waiting.close')}</a></header><${Why} key=${open} pod=${open} /></section>`}
    ${rows.length > 0 && html`<${Table} title=${t('waiting.pods')} columns=${columns(open, code)} rows=${rows} rowKey=${keyOf} sort=${['waits', 'descending']} csvName="waiting" kubectl="kubectl get pods -A --field-selector status.phase=Pending"
      open=${open} detail=${pod => html`<${Why} key=${keyOf(pod)} pod=${keyOf(pod)} follow=${first.current === open} />`} />`}
    ${data.pods.length + (data.hidden || 0) < data.count && html`<p class="muted">${t('waiting.most', { shown: data.pods.length })}</p>`}`;
}

export default function WaitingPage({ route }) {
  const last = useRef(store.waiting);
  const touched = () => {
    const changed = last.current !== store.waiting;
    last.current = store.waiting;
    return changed;
  };
  const answer = useFresh('api/waiting', { touched });
  const { code = '', pod = '' } = route.query;
  const open = known(pod) && pod.includes('/') ? pod : '';
  return html`<article class="page"><h1>${t('waiting.title')}</h1>
    <${Answer} answer=${answer} show=${data => html`<${Waiting} data=${data} code=${code} open=${open} />`} /></article>`;
}
