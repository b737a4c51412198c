// A table for people, spreadsheets and terminals: sorted by a click or a key on a heading, saved as CSV, copied as the
// kubectl command that says the same. Long ones are cut into blocks, and only blocks near the screen have rows. On a
// narrow screen a row becomes a card (pages.css).
import { Fragment, html, useEffect, useMemo, useRef, useState } from '../ui.js';
import { known, mib, n, t, text } from '../i18n.js';
import { Gpu, Pod, styled } from './basics.js';

const BLOCK = 40; // rows, at least
const MOST_BLOCKS = 160;
const ROW_PIXELS = 36;
const RISING = 'ascending', FALLING = 'descending';
const order = new Intl.Collator(undefined, { numeric: true });

// Columns: {key, label, num, value(row), cell(row)}; `value` is what is sorted and saved, `cell` what is shown.
export const amount = (key, label, value) => ({ key, label, num: true, value, cell: row => mib(value ? value(row) : row[key]) });
export const count = (key, label) => ({ key, label, num: true, cell: row => n(row[key]) });
export const podColumn = () => ({ key: 'pod', label: t('table.pod'), value: row => (known(row.pod) ? `${row.namespace}/${row.pod}` : null), cell: row => html`<${Pod} ...${row} />` });
export const gpuColumn = (index = 'gpu') => ({ key: 'gpu', label: t('table.gpuHead'), value: row => `${row.node} ${row[index]}`, cell: row => html`<${Gpu} node=${row.node} gpu=${row[index]} />` });

const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);

function field(value) {
  if (!known(value)) return '';
  // A spreadsheet takes a text that begins so for a formula.
  const safe = typeof value !== 'number' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(columns, rows) {
  const lines = [columns.map(column => column.key), ...rows.map(row => columns.map(column => valueOf(column, row)))];
  return lines.map(line => `${line.map(field).join(',')}\r\n`).join('');
}

function save(name, content) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['\ufeff', content], { type: 'text/csv' }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function sorted(rows, column, direction) {
  if (!column) return rows;
  const sign = direction === FALLING ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = valueOf(column, a), y = valueOf(column, b);
    if (!known(x) || !known(y)) return known(y) - known(x); // what is unknown comes last either way
    return sign * (typeof x === 'number' ? x - y : order.compare(x, y));
  });
}

function Block({ rows, draw, always }) {
  const body = useRef(null), height = useRef(rows.length * ROW_PIXELS);
  const [near, setNear] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver(seen => {
      const inside = seen.at(-1).isIntersecting;
      if (!body.current || (!inside && body.current.contains(document.activeElement))) return; // else the keyboard would lose its place
      if (!inside) height.current = body.current.offsetHeight || height.current;
      setNear(inside);
    }, { rootMargin: '500px 0px' });
    watch.observe(body.current);
    return () => watch.disconnect();
  }, []);
  const gap = html`<tr aria-hidden="true"><td class="gap" colspan="99" ref=${styled('height', `${height.current}px`)}></td></tr>`;
  return html`<tbody ref=${body} role="rowgroup">${near || always ? rows.map(draw) : gap}</tbody>`;
}

function Heading({ column: { key, label, num }, sort, setSort }) {
  const now = sort[0] === key ? sort[1] : null;
  const next = (now || (num ? RISING : FALLING)) === RISING ? FALLING : RISING;
  return html`<th scope="col" role="columnheader" class=${num ? 'num' : ''} aria-sort=${now}><button onClick=${() => setSort([key, next])}>${label}</button></th>`;
}

function Tools({ columns, rows, csvName, kubectl }) {
  const [said, say] = useState('');
  const take = () => {
    const command = typeof kubectl === 'function' ? kubectl(rows) : kubectl;
    // Browsers have a clipboard only over https and on this machine: else the command is there to be selected.
    Promise.resolve(navigator.clipboard?.writeText(command)).catch(() => {}).then(() => say(command));
  };
  return html`<div class="tools">${said && html`<code role="status">${said}</code>`}
    <button onClick=${() => save(csvName, csv(columns, rows))}>${t('table.csv')}</button>
    ${kubectl && html`<button onClick=${take}>${t('table.kubectl')}</button>`}</div>`;
}

// `open` is the key of the row below which `detail(row)` stands. `foot` is a row that is not sorted.
export function Table({ title, columns, rows, rowKey, csvName, kubectl, sort: begin, open, detail, foot, empty }) {
  const [sort, setSort] = useState(begin || ['', RISING]);
  const all = useMemo(() => sorted(rows, columns.find(({ key }) => key === sort[0]), sort[1]), [rows, sort]);
  const draw = row => {
    const key = rowKey(row), opened = key === open;
    const cells = columns.map(column => {
      const shown = column.cell ? column.cell(row) || text(null) : text(valueOf(column, row));
      return html`<td role="cell" class=${`${column.num ? 'num ' : ''}k-${column.key}`} data-label=${column.label}>${shown}</td>`;
    });
    return html`<${Fragment} key=${key}><tr role="row" class=${opened ? 'open' : ''}>${cells}</tr>
      ${opened && html`<tr role="row" class="detail"><td role="cell" colspan=${columns.length}>${detail(row)}</td></tr>`}</${Fragment}>`;
  };
  const blocks = [];
  const size = Math.max(BLOCK, Math.ceil(all.length / MOST_BLOCKS));
  for (let at = 0; at < all.length; at += size) blocks.push(all.slice(at, at + size));
  return html`<section class="tablebox"><header><h2>${title} ${rows.length > 9 && html`<small class="muted">${n(rows.length)}</small>`}</h2>
      ${rows.length > 0 && html`<${Tools} columns=${columns} rows=${all} csvName=${csvName} kubectl=${kubectl} />`}</header>
    ${rows.length || foot
      ? html`<div class="scroll"><table role="table" aria-label=${title} aria-rowcount=${rows.length + 1}>
          <thead role="rowgroup"><tr role="row">${columns.map(column => html`<${Heading} column=${column} sort=${sort} setSort=${setSort} />`)}</tr></thead>
          ${blocks.map((block, at) => html`<${Block} key=${at} rows=${block} draw=${draw} always=${blocks.length < 3 || block.some(row => rowKey(row) === open)} />`)}
          ${foot && html`<tfoot role="rowgroup">${foot}</tfoot>`}
        </table></div>`
      : html`<p class="muted">${empty || t('table.empty')}</p>`}
  </section>`;
}
