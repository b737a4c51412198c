// The whole cluster on one page: the sums, what needs a person, and the map of all GPUs or the same as a table.
import { age, mib, n, pct, t } from '../i18n.js';
import { matcher } from '../layout.js';
import { GpuMap, Legend } from '../map.js';
import { MODES } from '../paint.js';
import { href, setQuery } from '../router.js';
import { store, useStore } from '../store.js';
import { sums, troubles } from '../sums.js';
import { useMe } from '../me.js';
import { Loading, Trouble, html, useEffect, useMemo, useState } from '../ui.js';

const COLOURS = Object.keys(MODES);
const GROUPS = ['node', 'model', 'zone'];
const SORTS = ['name', 'free'];

// Settings from the address; whatever it says that we do not know is as if it were not there.
function settingsOf(query, namespaces) {
  const one = (value, known) => (known.includes(value) ? value : known[0]);
  const number = Object.keys(namespaces).find(key => namespaces[key] === query.ns);
  return {
    mode: one(query.colour, COLOURS), group: one(query.group, GROUPS), sort: one(query.sort, SORTS),
    filter: {
      model: query.model || '', zone: query.zone || '', namespace: query.ns ? Number(number ?? -1) : null,
      unhealthy: query.unhealthy === '1', over: query.over === '1', idle: query.idle === '1',
    },
  };
}

function Figure({ label, value, part, kind, note, link }) {
  const shown = link ? html`<a href=${link}>${value}</a>` : value;
  return html`<div class=${`figure ${kind || ''}`} title=${note || null}>
    <dt>${label}</dt><dd>${shown}</dd>
    ${part !== undefined && html`<i class="gauge" aria-hidden="true"><i style=${{ width: `${Math.min(100, 100 * (part || 0))}%` }}></i></i>`}
  </div>`;
}

function Sums() {
  useStore(({ version }) => version);
  const all = sums(store);
  const ratio = (value, whole) => (whole ? value / whole : null);
  const unmeasured = all.unmeasured ? t('sums.unmeasured', { n: all.unmeasured }) : '';
  const granted = ratio(all.granted, all.shared), used = ratio(all.used, all.measured), idle = ratio(all.idle, all.held);
  return html`<dl class="sums" aria-label=${t('sums')}>
    <${Figure} label=${t('sums.gpus', { n: all.nodes })} value=${html`${n(all.gpus)} <small>${mib(all.total)}</small>`} />
    <${Figure} label=${t('sums.granted')} value=${html`${pct(granted)} <small>${mib(all.granted)}</small>`} part=${granted} kind="granted" />
    <${Figure} label=${t('sums.used')} value=${html`${pct(used)} <small>${mib(all.measured ? all.used : null)}</small>`} part=${used} kind="used" note=${unmeasured} />
    <${Figure} label=${t('sums.idle')} value=${html`${pct(idle)} <small>${mib(all.held ? all.idle : null)}</small>`} part=${idle} kind="idle" note=${t('sums.idleNote')} />
    ${all.slots > 0 && html`<${Figure} label=${t('sums.slots')} value=${`${n(all.usedSlots)} / ${n(all.slots)}`} part=${all.usedSlots / all.slots} kind="granted" />`}
    <${Figure} label=${t('sums.waiting')} value=${n(store.waiting.count)} link=${href('waiting')} />
    <${Figure} label=${t('sums.unhealthy')} value=${n(all.unhealthy)} kind=${all.unhealthy ? 'bad' : ''} link=${all.unhealthy ? href('overview', { unhealthy: true }) : ''} />
  </dl>`;
}

const gpuHref = row => href('gpu', store.nodes.name[store.gpus.node[row]], store.gpus.index[row]);

function Needs() {
  useStore(({ version }) => version);
  const { over, sick, unhealthy, silent, stale } = troubles(store);
  const { count, oldest } = store.waiting;
  const items = [];
  const gpus = (rows, key, kind, filter) => rows.length && items.push([kind, t(key, { n: rows.length }), rows.length === 1 ? gpuHref(rows[0]) : href('overview', filter)]);
  const nodes = (rows, key) => rows.length && items.push(['warn', t(key, { n: rows.length }), rows.length === 1 ? href('node', store.nodes.name[rows[0]]) : href('overview', { colour: 'age' })]);
  gpus(over, 'needs.over', 'bad', { over: true });
  gpus(sick, 'needs.sick', 'bad', { unhealthy: true });
  if (count > 0 && oldest > 0) items.push(['warn', t('needs.wait', { n: count, age: age(Math.max(0, store.clock() - oldest)) }), href('waiting')]);
  if (store.unplaced > 0) items.push(['bad', t('needs.unplaced', { n: store.unplaced }), href('health')]);
  gpus(unhealthy, 'needs.unhealthy', 'warn', { unhealthy: true });
  nodes(stale, 'needs.stale');
  if (silent.length < store.nodes.count) nodes(silent, 'needs.silent');
  return html`<section class="needs" aria-label=${t('needs')}>
    <h2>${t('needs')}</h2>
    ${items.length ? html`<ul>${items.map(([kind, words, link]) => html`<li key=${words} class=${kind}><a href=${link}>${words}</a></li>`)}</ul>` : html`<p class="good">${t('needs.nothing')}</p>`}
  </section>`;
}

const Pick = ({ name, value, options, none }) => html`<label class="pick"><span>${t(`control.${name}`)}</span>
  <select value=${value} onChange=${event => setQuery({ [name]: event.target.value })}>
    ${none && html`<option value="">${t('control.all')}</option>`}
    ${options.map(([key, words]) => html`<option key=${key} value=${key}>${String(words)}</option>`)}
  </select></label>`;

const Toggle = ({ name, on }) => html`<label class="toggle"><input type="checkbox" checked=${on} onChange=${() => setQuery({ [name]: !on })} /><span>${t(`control.${name}`)}</span></label>`;

function Controls({ settings, query, namespaces, table }) {
  const { models, zones } = store.tables;
  const { mode, group, sort, filter } = settings;
  const plain = list => list.filter(Boolean).map(word => [word, word]);
  const names = Object.values(namespaces).sort();
  const lit = useStore(({ highlighted }) => highlighted.size);
  const filtered = Object.values(filter).some(value => value !== '' && value !== false && value !== null);
  const view = html`<button class="view" aria-pressed=${table} onClick=${() => setQuery({ view: table ? '' : 'table' })}>${t(table ? 'control.map' : 'control.table')}</button>`;
  return html`<div class="controls">
    ${!table && html`<div><fieldset class="segments"><legend>${t('control.colour')}</legend>
      ${COLOURS.map(key => html`<label key=${key}><input type="radio" name="colour" checked=${key === mode} onChange=${() => setQuery({ colour: key === COLOURS[0] ? '' : key })} /><span>${t(`colour.${key}`)}</span></label>`)}
      </fieldset>
      <${Pick} name="group" value=${group} options=${GROUPS.map(key => [key, t(`group.${key}`)])} />
      <${Pick} name="sort" value=${sort} options=${SORTS.map(key => [key, t(`sort.${key}`)])} />${view}</div>`}
    <div>
      ${models.length > 1 && html`<${Pick} name="model" value=${filter.model} options=${plain(models)} none />`}
      ${zones.filter(Boolean).length > 1 && html`<${Pick} name="zone" value=${filter.zone} options=${plain(zones)} none />`}
      ${names.length > 0 && html`<${Pick} name="ns" value=${query.ns || ''} options=${plain(names)} none />`}
      <${Toggle} name="unhealthy" on=${filter.unhealthy} /><${Toggle} name="over" on=${filter.over} /><${Toggle} name="idle" on=${filter.idle} />
      ${filtered && html`<button class="quiet" onClick=${() => setQuery({ model: '', zone: '', ns: '', unhealthy: '', over: '', idle: '' })}>${t('control.clear')}</button>`}
      ${lit > 0 && html`<button class="quiet" onClick=${() => store.highlight([])}>${t('control.lit', { n: lit })}</button>`}
      ${table && view}
    </div>
  </div>`;
}

const COLUMNS = () => [
  { key: 'node', label: t('column.node'), cell: gpu => html`<a href=${href('node', gpu.node)}>${String(gpu.node)}</a>` },
  { key: 'index', label: 'GPU', num: true, cell: gpu => html`<a href=${href('gpu', gpu.node, gpu.index)}>${gpu.index}</a>` },
  { key: 'model', label: t('control.model') },
  { key: 'total', label: t('column.total'), num: true, cell: gpu => mib(gpu.total) },
  { key: 'granted', label: t('sums.granted'), num: true, cell: gpu => mib(gpu.granted) },
  { key: 'free', label: t('card.free'), num: true, cell: gpu => mib(gpu.free) },
  { key: 'used', label: t('sums.used'), num: true, cell: gpu => mib(gpu.used) },
  { key: 'over', label: t('control.over'), num: true, cell: gpu => (gpu.over > 0 ? html`<b class="over">${mib(gpu.over)}</b>` : mib(0)) },
  { key: 'util', label: t('colour.util'), num: true, cell: gpu => pct(gpu.util < 0 ? null : gpu.util / 100) },
  { key: 'temp', label: '°C', num: true, cell: gpu => n(gpu.temp) },
  { key: 'power', label: 'W', num: true, cell: gpu => n(gpu.power) },
  { key: 'shares', label: t('column.shares'), num: true, value: gpu => gpu.shares.length },
  { key: 'healthy', label: t('column.health'), value: gpu => (gpu.healthy ? 'ok' : 'unhealthy'), cell: gpu => (gpu.healthy ? t('card.ok') : html`<b class="bad">${t('card.unhealthy')}</b>`) },
];

// The table stands still for 10 s at a time, so that it can be read; a new snapshot renews it at once.
function AsTable({ filter }) {
  const [part, tell] = useState(null);
  const [beat, next] = useState(0);
  useEffect(() => {
    import('../parts/table.js').then(({ Table }) => tell({ Table }), error => tell({ error }));
    const timer = setInterval(() => next(count => count + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
  const epoch = useStore(({ epoch }) => epoch), lit = useStore(({ highlighted }) => highlighted);
  const rows = useMemo(() => {
    const match = matcher(store, filter);
    return Array.from({ length: store.gpus.count }, (_, row) => row).filter(row => !match || match(row)).map(store.gpu);
  }, [beat, epoch, lit, JSON.stringify(filter)]);
  if (!part) return html`<${Loading} />`;
  if (part.error) return html`<${Trouble} failure=${part.error.message} />`;
  const names = list => [...new Set(list.map(({ node }) => node))];
  return html`<div class="page"><${part.Table} title=${t('overview.table')} columns=${COLUMNS()} rows=${rows} rowKey=${gpu => `${gpu.node}/${gpu.index}`} csvName="gpus" kubectl=${list => `kubectl inspect gpushare ${names(list).join(' ')}`} /></div>`;
}

export default function Overview({ route }) {
  const ready = useStore(store => store.ready);
  useStore(({ tables }) => tables);
  const me = useMe();
  const namespaces = me.namespaces || {};
  const own = useMemo(() => (me.everything ? () => true : number => number in namespaces), [me]);
  const problem = useStore(store => store.problem);
  if (!ready) return problem ? html`<${Trouble} failure=${problem} />` : html`<${Loading} />`;
  const settings = settingsOf(route.query, namespaces);
  const table = route.query.view === 'table';
  return html`<div class="overview">
    <h1 class="sr" tabindex="-1">${t('page.overview')}</h1>
    <${Sums} />
    <${Needs} />
    <${Controls} settings=${settings} query=${route.query} namespaces=${namespaces} table=${table} />
    ${table ? html`<${AsTable} filter=${settings.filter} />` : html`<${Legend} mode=${settings.mode} everything=${me.everything} /><${GpuMap} settings=${settings} own=${own} />`}
  </div>`;
}
