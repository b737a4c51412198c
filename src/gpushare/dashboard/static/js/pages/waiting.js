// The pods that wait, why, and what would help. A pod in the address is explained here, also one that runs.
import { html, useEffect, useRef } from '../ui.js';
import { age, n, t } from '../i18n.js';
import { path } from '../api.js';
import { href } from '../router.js';
import { store } from '../store.js';
import { Answer, Code, Gpu, named, secondsSince } from '../parts/basics.js';
import { Explained } from '../parts/explained.js';
import { useFresh } from '../parts/fresh.js';
import { Table } from '../parts/table.js';

const keyOf = pod => `${pod.namespace}/${pod.name}`;
const waits = pod => secondsSince(pod.created);

function Why({ pod, follow }) {
  const box = useRef(null);
  const answer = useFresh(path('api/why', ...pod.split('/')), { seconds: 10 });
  const there = Boolean(answer.data);
  useEffect(() => { if (there && follow) box.current.scrollIntoView({ block: 'nearest' }); }, [there]);
  return html`<div ref=${box}><${Answer} answer=${answer} show=${data => html`<${Explained} ...${data} />`} /></div>`;
}

const columns = (open, code) => [
  { key: 'pod', label: t('table.pod'), value: keyOf, cell: pod => html`<a class="opener" aria-expanded=${String(keyOf(pod) === open)} href=${href('waiting', { code, pod: keyOf(pod) === open ? '' : keyOf(pod) })}><span class="muted">${String(pod.namespace)}/</span>${String(pod.name)}</a>` },
  { key: 'asks', label: t('waiting.asks') },
  { key: 'waits', label: t('waiting.waits'), num: true, value: pod => Math.floor(waits(pod)), cell: pod => age(waits(pod)) },
  { key: 'owner', label: t('waiting.whose'), cell: pod => html`<span class=${`owner v-${pod.verdict}`}>${String(pod.owner)}</span>` },
  { key: 'why', label: t('waiting.why'), value: pod => [pod.message, pod.detail].filter(Boolean).join('; '), cell: pod => html`${String(pod.message)} <${Code} code=${pod.code} />${pod.detail && html`<div class="muted">${String(pod.detail)}</div>`}` },
  { key: 'nearest', label: t('waiting.nearest'), value: ({ closest }) => closest && `${closest.node} GPU ${closest.gpu}, ${closest.short} short`, cell: ({ closest }) => closest && html`<span><${Gpu} ...${closest} />, ${t('why.short', { short: String(closest.short) })}</span>` },
];

const Reasons = ({ codes, code, pod }) => html`<nav class="reasons" aria-label=${t('waiting.byReason')}>
  ${Object.entries(codes).sort((a, b) => b[1] - a[1]).map(([one, count]) => html`<a href=${href('waiting', { code: one === code ? '' : one, pod })} aria-current=${one === code ? 'true' : null}>${named('code', one)} <b>${n(count)}</b></a>`)}</nav>`;

function Waiting({ data: { count, codes, pods, hidden, more }, code, open }) {
  const first = useRef(open); // what the address named when the page was opened is brought into view
  const rows = code ? pods.filter(pod => pod.code === code) : pods;
  return html`<p class="lead">${t(count ? 'waiting.count' : 'waiting.none', { count })} ${hidden > 0 && html`<span class="muted">${t('waiting.hidden', { count: hidden })}</span>`}</p>
    <${Reasons} codes=${codes} code=${code} pod=${open} />
    ${open && !rows.some(pod => keyOf(pod) === open) && html`<section class="panel"><header class="head"><h2>${open}</h2><a href=${href('waiting', { code })}>${t('waiting.close')}</a></header><${Why} key=${open} pod=${open} /></section>`}
    ${rows.length > 0 && html`<${Table} title=${t('waiting.pods')} columns=${columns(open, code)} rows=${rows} rowKey=${keyOf} sort=${['waits', 'descending']} csvName="waiting" kubectl="kubectl get pods -A --field-selector status.phase=Pending"
      open=${open} detail=${pod => html`<${Why} key=${keyOf(pod)} pod=${keyOf(pod)} follow=${first.current === open} />`} />`}
    ${more > 0 && html`<p class="muted">${t('waiting.most', { shown: pods.length })}</p>`}`;
}

export default function WaitingPage({ route: { query: { code = '', pod = '' } } }) {
  const last = useRef(store.waiting);
  const touched = () => last.current !== (last.current = store.waiting);
  const answer = useFresh('api/waiting', { touched });
  return html`<article class="page"><h1>${t('waiting.title')}</h1>
    <${Answer} answer=${answer} show=${data => html`<${Waiting} data=${data} code=${code} open=${/^[^/]+\/[^/]+$/.test(pod) ? pod : ''} />`} /></article>`;
}
