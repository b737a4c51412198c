// A window above the page. The browser keeps the focus inside it and gives it back afterwards.
import { html, useEffect, useRef } from './ui.js';

export function Dialog({ label, kind, onClose, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const outside = event => event.target === dialog.current && onClose();
  return html`<dialog ref=${dialog} class=${kind} aria-label=${label} onClose=${onClose} onClick=${outside}>${children}</dialog>`;
}
