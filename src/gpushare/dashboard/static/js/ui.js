// What every page is built with: preact, its hooks, htm instead of JSX, and three small parts.
// Text that came from the API goes into a page as String(text): a JSON object must never be taken for an element.
import { Fragment, h, render } from '../vendor/preact.js';
import { useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import htm from '../vendor/htm.js';
import { t } from './i18n.js';

export const html = htm.bind(h);
export { Fragment, render, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState };

// Draws again every so many seconds, for texts such as "9 s ago".
export function useNow(seconds = 1) {
  const [now, tell] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => tell(Date.now()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
}

// What `read` gives, drawn again whenever the listeners are called.
export function useTold(listeners, read) {
  const [now, tell] = useState(read);
  useEffect(() => {
    const hear = () => tell(read);
    hear(); // something may have come since it was drawn
    listeners.add(hear);
    return () => listeners.delete(hear);
  }, []);
  return now;
}

// An error of api.js: what, why, what to try.
export function Trouble({ failure }) {
  return html`<div class="trouble" role="alert">
    <strong>${String(failure.error || failure)}</strong>
    ${failure.why && html`<div>${String(failure.why)}</div>`}
    ${failure.try && html`<div><b>${t('error.try')}</b> ${String(failure.try)}</div>`}
  </div>`;
}

export function Loading() {
  return html`<p class="loading muted" role="status">${t('loading')}</p>`;
}
