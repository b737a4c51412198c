// Starts the page: words, who is asking, the stream, and the page that the address names.
// A page is a file in pages/ whose default export is a component; it gets {route} and is loaded when first opened.
import { onNobody } from './api.js';
import { Banner, Header } from './header.js';
import { loadWords, t } from './i18n.js';
import { Keys, useKeys } from './keys.js';
import { startMe } from './me.js';
import Login from './pages/login.js';
import { useRoute } from './router.js';
import { Search } from './search.js';
import { startStream, stopStream } from './stream.js';
import { Loading, Trouble, html, render, useEffect, useErrorBoundary, useRef, useState } from './ui.js';

const PAGES = ['overview', 'node', 'gpu', 'waiting', 'history', 'whatif', 'health'];

function Shown({ route }) {
  const [page, tell] = useState(null);
  const [broken, mend] = useErrorBoundary();
  const name = PAGES.includes(route.page) ? route.page : 'overview';
  useEffect(() => {
    mend();
    import(`./pages/${name}.js`).then(module => tell({ name, Page: module.default }), error => tell({ name, error }));
  }, [name]);
  if (broken) return html`<${Trouble} failure=${{ error: t('error.page'), why: broken.message, try: t('error.reload') }} />`;
  if (page?.name !== name) return html`<${Loading} />`;
  if (page.error) return html`<${Trouble} failure=${{ error: t('error.page'), why: page.error.message, try: t('error.reload') }} />`;
  return html`<${page.Page} route=${route} />`;
}

// After a link the reading goes on at the top of the new page, also for a screen reader.
function useFocus(where, main) {
  const first = useRef(true);
  useEffect(() => {
    document.title = [...where.parts, t(`page.${PAGES.includes(where.page) ? where.page : 'overview'}`), 'gpushare'].join(' · ');
    if (!first.current) {
      scrollTo(0, 0);
      main.current.focus({ preventScroll: true });
    }
    first.current = false;
  }, [where.page, where.parts.join('/')]);
}

function App() {
  const route = useRoute();
  const [dialog, open] = useState('');
  const [nobody, tell] = useState(null);
  const main = useRef(null);
  const search = () => open('search'), keys = () => open('keys'), close = () => open('');
  useEffect(() => onNobody(said => { stopStream(); tell(said); }), []);
  useKeys(search, keys);
  useFocus(route, main);
  if (nobody) return html`<${Login} said=${nobody} />`;
  const skip = event => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>${t('skip')}</a>
    <${Header} page=${route.page} onSearch=${search} onKeys=${keys} />
    <${Banner} />
    <main id="main" tabindex="-1" ref=${main}><${Shown} route=${route} /></main>
    ${dialog === 'search' && html`<${Search} onClose=${close} />`}
    ${dialog === 'keys' && html`<${Keys} onClose=${close} />`}`;
}

const words = loadWords();
startMe(); // both are on their way while the words are
startStream();
await words;
render(html`<${App} />`, document.getElementById('app'));
