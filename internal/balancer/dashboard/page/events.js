// SPDX-License-Identifier: Apache-2.0

// The view of what has happened lately.

import { h, show } from './dom.js';
import { clock } from './format.js';
import { model } from './model.js';
import { address, notice, pill } from './parts.js';

const TONES = { info: ['calm', '○'], warning: ['warn', '◐'], error: ['bad', '▼'] };
/** MOST is how many events are shown. */
const MOST = 250;

const view = { kind: '', text: '' };

/** list shows events, the latest first. */
export function list(events) {
  if (events.length === 0) return h('p', { class: 'aside' }, 'Nothing has happened since the daemon started, as far as is kept.');
  return h('ol', { class: 'events' }, events.slice(0, MOST).map((e) => h('li', { 'data-key': e.id },
    h('time', { datetime: e.at }, clock(e.at, model.now())), pill(e.level, ...(TONES[e.level] || TONES.info)), h('span', { class: 'kind' }, e.kind),
    h('span', { class: 'what' }, e.service && h('a', { href: e.backend ? address('service', e.service, e.backend) : address('service', e.service) }, e.backend ? `${e.service}/${e.backend}` : e.service),
      e.service && ' ', e.message, e.by && h('span', { class: 'aside' }, ` by ${e.by}`)))));
}

export class EventView {
  constructor() {
    this.element = h('div', {}, h('div', { class: 'tools' }), h('div', {}));
  }

  close() {}

  update() {
    const [tools, body] = this.element.children;
    const kinds = [...new Set(model.events.map((e) => e.kind))].sort();
    show(tools, h('label', {}, 'Kind ', h('select', { 'data-act': 'kind' }, h('option', { value: '' }, 'all'), kinds.map((k) => h('option', { value: k }, k)))),
      h('label', { class: 'search' }, h('span', { class: 'hidden' }, 'Filter by text'), h('input', { type: 'search', id: 'filter', placeholder: 'Filter: text, name', 'data-act': 'text' })));
    const text = view.text.toLowerCase();
    const fits = model.events.filter((e) => (!view.kind || e.kind === view.kind) && `${e.message} ${e.service || ''} ${e.backend || ''} ${e.by || ''}`.toLowerCase().includes(text));
    show(body, model.lost && notice('warn', 'Missing', `some events before these are not kept: ${model.lost.why}`, 'lost'), list(fits));
  }
}

export const acts = {
  kind(target) { view.kind = target.value; },
  text(target) { view.text = target.value.trim(); },
};
