import { html } from '../ui.js';
import { useStore } from '../store.js';

export default function Overview() {
  const count = useStore(store => store.gpus.count);
  return html`<h1>${count} GPUs</h1>`;
}
