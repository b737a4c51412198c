// A table for people, spreadsheets and terminals: sorted by a click or a key on a heading, saved as CSV, copied as the
// kubectl command that says the same. Long ones are cut into blocks, and only blocks near the screen have rows. On a
// narrow screen a row becomes a card (pages.css).
import { html, useEffect, useMemo, useRef, useState } from '../ui.js';
import { known, n, t } from '../i18n.js';
import { sized } from './basics.js';

const UNKNOWN = '—';
const BLOCK = 40; // rows
const ROW_PIXELS = 36;
const NEAR = '500px 0px';
const RISING = 'ascending', FALLING = 'descending';
const order = new Intl.Collator(undefined, { numeric: true });

const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);

// A spreadsheet takes a text that begins so for a formula.
const safe = text => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
const field = value => {
  if (!known(value)) return '';
  const text = typeof value === 'number' ? String(value) : safe(String(value));
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function csv(columns, rows) {
  const lines = rows.map(row => columns.map(column => field(valueOf(column, row))).join(','));
  return [columns.map(column => field(column.key)).join(','), ...lines].join('\r\n') + '\r\n';
}

function save(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['\ufeff', text], { type: 'text/csv' }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea'); // the clipboard is there only with https or on this machine
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export function sorted(rows, column, direction) {
  if (!column) return rows;
  const sign = direction === FALLING ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = valueOf(column, a), y = valueOf(column, b);
    if (!known(x) || !known(y)) return known(y) - known(x); // what is unknown comes last either way
    return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : order.compare(String(x), String(y)));
  });
}

function Block({ rows, draw, first }) {
  const body = useRef(null), height = useRef(rows.length * ROW_PIXELS);
  const [near, setNear] = useState(first);
  useEffect(() => {
    const watch = new IntersectionObserver(seen => {
      const { isIntersecting } = seen[seen.length - 1];
      if (!isIntersecting && body.current.contains(document.activeElement)) return;
      if (!isIntersecting) height.current = body.current.offsetHeight || height.current;
      setNear(isIntersecting);
    }, { rootMargin: NEAR });
    watch.observe(body.current);
    return () => watch.disconnect();
  }, []);
  const gap = html`<tr aria-hidden="true"><td class="gap" colspan="99" ref=${sized({ height: `${height.current}px` })}></td></tr>`;
  return html`<tbody ref=${body} role="rowgroup">${near ? rows.map(draw) : gap}</tbody>`;
}

function Heading({ column, sort, setSort }) {
  const mine = sort[0] === column.key;
  const next = mine ? (sort[1] === RISING ? FALLING : RISING) : column.num ? FALLING : RISING;
  return html`<th scope="col" role="columnheader" class=${column.num ? 'num' : ''} aria-sort=${mine ? sort[1] : null}>
    <button onClick=${() => setSort([column.key, next])}>${column.label}</button>
  </th>`;
}

function Tools({ columns, rows, csvName, kubectl }) {
  const [said, say] = useState('');
  const copied = async () => {
    const command = typeof kubectl === 'function' ? kubectl(rows) : kubectl;
    await copy(command);
    say(t('table.copied', { command }));
  };
  return html`<div class="tools">
    <span role="status" class="muted">${said}</span>
    ${csvName ? html`<button onClick=${() => save(csvName, csv(columns, rows))}>${t('table.csv')}</button>` : ''}
    ${kubectl ? html`<button onClick=${copied}>${t('table.kubectl')}</button>` : ''}
  </div>`;
}

// columns: {key, label, num, value(row), cell(row)}; `value` is what is sorted and saved, `cell` what is shown. `open` is
// the key of the row below which `detail(row)` stands. `foot` is a row that is not sorted.
export function Table({ title, columns, rows, rowKey, csvName, kubectl, sort: begin, open, detail, foot, empty }) {
  const [sort, setSort] = useState(begin || ['', RISING]);
  const column = columns.find(({ key }) => key === sort[0]);
  const all = useMemo(() => sorted(rows, column, sort[1]), [rows, sort[0], sort[1]]);
  const draw = (row, at) => {
    const key = rowKey(row);
    const cells = columns.map(column => {
      const shown = column.cell ? column.cell(row) : valueOf(column, row);
      const text = shown === null || shown === undefined || shown === '' ? UNKNOWN : typeof shown === 'object' ? shown : String(shown);
      return html`<td role="cell" class=${`${column.num ? 'num ' : ''}k-${column.key}`} data-label=${column.label}>${text}</td>`;
    });
    const line = html`<tr key=${key} role="row" class=${key === open ? 'open' : ''}>${cells}</tr>`;
    if (key !== open || !detail) return line;
    return [line, html`<tr key=${`${key} more`} role="row" class="detail"><td role="cell" colspan=${columns.length}>${detail(row)}</td></tr>`];
  };
  const blocks = [];
  for (let at = 0; at < all.length; at += BLOCK) blocks.push(all.slice(at, at + BLOCK));
  return html`<section class="tablebox">
    <header><h2>${title} ${rows.length > 9 ? html`<small class="muted">${n(rows.length)}</small>` : ''}</h2>
      <${Tools} columns=${columns} rows=${all} csvName=${csvName} kubectl=${kubectl} /></header>
    ${rows.length || foot
      ? html`<div class="scroll"><table role="table" aria-label=${title} aria-rowcount=${rows.length + 1}>
          <thead role="rowgroup"><tr role="row">${columns.map(column => html`<${Heading} column=${column} sort=${sort} setSort=${setSort} />`)}</tr></thead>
          ${blocks.map((block, at) => html`<${Block} key=${at} rows=${block} draw=${draw} first=${at < 2 || block.some(row => rowKey(row) === open)} />`)}
          ${foot ? html`<tfoot role="rowgroup">${foot}</tfoot>` : ''}
        </table></div>`
      : html`<p class="muted empty">${empty || t('table.empty')}</p>`}
  </section>`;
}
