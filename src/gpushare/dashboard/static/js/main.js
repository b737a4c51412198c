// Starts the page: words, who is asking, the stream, and the page that the address names.
// A page is a file in pages/ whose default export is a component; it gets {route} and is loaded when first opened.
import { get, onNobody } from './api.js';
import { loadWords, t } from './i18n.js';
import { useRoute } from './router.js';
import { startStream } from './stream.js';
import { Loading, Trouble, html, render, useEffect, useState } from './ui.js';

const PAGES = ['overview', 'node', 'gpu', 'waiting', 'history', 'whatif', 'health'];

function Shown() {
  const route = useRoute();
  const [page, tell] = useState(null);
  useEffect(() => {
    const name = PAGES.includes(route.page) ? route.page : 'overview';
    import(`./pages/${name}.js`).then(
      module => tell({ name: route.page, Page: module.default }),
      error => tell({ name: route.page, Page: () => html`<${Trouble} failure=${error.message} />` }));
  }, [route.page]);
  if (!page || page.name !== route.page) return html`<${Loading} />`;
  return html`<${page.Page} route=${route} />`;
}

await loadWords();
onNobody(() => {});
startStream();
render(html`<main id="main"><${Shown} /></main>`, document.getElementById('app'));
