// Words, numbers, amounts and times in the reader's language: English, Korean or Chinese, by what the browser prefers.
// A message has {name} for a value and {n|pod|pods} for a word that depends on whether n is 1.
const LANGUAGES = ['en', 'ko', 'zh'];
const UNKNOWN = '—';
const PLACE = /\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g;

let words = {};
let whole, tenth, clock, moment;

export function chosen(wanted) {
  for (const tag of wanted) {
    const language = String(tag).toLowerCase().split('-')[0];
    if (LANGUAGES.includes(language)) return { language, tag };
  }
  return { language: 'en', tag: 'en' };
}

export async function loadWords(wanted = navigator.languages) {
  const { language, tag } = chosen(wanted);
  const files = [`${language}.json`, `pages.${language}.json`];
  const read = async file => (await fetch(new URL(`../messages/${file}`, import.meta.url))).json();
  words = Object.assign({}, ...await Promise.all(files.map(file => read(file).catch(() => ({})))));
  whole = new Intl.NumberFormat(tag, { maximumFractionDigits: 0 });
  tenth = new Intl.NumberFormat(tag, { minimumFractionDigits: 1, maximumFractionDigits: 1 }); // always one, so that columns align
  clock = new Intl.DateTimeFormat(tag, { timeStyle: 'medium', hourCycle: 'h23' });
  moment = new Intl.DateTimeFormat(tag, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
  document.documentElement.lang = language;
}

export function t(key, params = {}) {
  const text = words[key];
  if (text === undefined) return key;
  return text.replace(PLACE, (_, name, one, many) => {
    const value = params[name];
    if (one !== undefined) return value === 1 ? one : many;
    return typeof value === 'number' ? n(value) : String(value ?? UNKNOWN);
  });
}

export const has = key => key in words;
export const known = value => value !== null && value !== undefined && value !== -1 && !Number.isNaN(value);

// A count. From 10,000 on it has separators.
export function n(value) {
  if (!known(value)) return UNKNOWN;
  if (Math.abs(value) < 10000) return String(Number.isInteger(value) ? value : Number(value.toFixed(1)));
  return whole.format(value);
}

// An amount of memory, given in MiB.
export function mib(amount) {
  if (!known(amount)) return UNKNOWN;
  const size = Math.abs(amount);
  if (size < 1024) return `${whole.format(amount)} MiB`;
  if (size < 1024 * 1000) return `${tenth.format(amount / 1024)} GiB`;
  return `${(size < 1024 * 1024 * 100 ? tenth : whole).format(amount / 1024 / 1024)} TiB`;
}

// A duration in seconds.
export function age(seconds) {
  if (!known(seconds) || seconds < 0) return UNKNOWN;
  if (seconds < 1) return t('unit.s', { x: tenth.format(seconds) });
  if (seconds < 100) return t('unit.s', { x: String(Math.floor(seconds)) });
  if (seconds < 6000) return t('unit.min', { x: String(Math.floor(seconds / 60)) });
  if (seconds < 172800) return t('unit.h', { x: String(Math.floor(seconds / 3600)) });
  return t('unit.d', { x: whole.format(Math.floor(seconds / 86400)) });
}

// A moment, in seconds since 1970: the time of day, with the date if it was not within a day.
export function time(unix) {
  if (!known(unix)) return UNKNOWN;
  const date = new Date(unix * 1000);
  return Math.abs(Date.now() / 1000 - unix) < 72000 ? clock.format(date) : moment.format(date);
}

// A part of a whole: 0.71 is 71 %.
export function pct(part) {
  if (!known(part) || !Number.isFinite(part)) return UNKNOWN;
  const percent = part * 100;
  return `${percent > 0 && percent < 1 ? '<1' : whole.format(percent)} %`;
}

// Text of the API, or a dash.
export const text = value => (value === null || value === undefined || value === '' ? UNKNOWN : String(value));
