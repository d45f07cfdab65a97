// SPDX-License-Identifier: Apache-2.0

// The small parts that views are made of. Colour never says anything alone: a word or a sign says the same.

import { h, svg } from './dom.js';
import { percent } from './format.js';
import { SPARK, stateOf } from './model.js';

/** pill is a state as a word, with a mark and a colour. */
export const pill = (word, tone, mark, title) =>
  h('span', { class: `pill ${tone}`, title }, mark && h('span', { class: 'mark', 'aria-hidden': 'true' }, mark), word);

/** statePill is that of a backend. */
export function statePill(backend) {
  const state = stateOf(backend);
  return pill(backend.state, state.tone, state.mark, `${backend.name} ${state.says}`);
}

/** spark draws a line of the latest values; its highest point is the highest value, or 1. */
export function spark(values, wide = 72, high = 18) {
  const most = Math.max(...values, 1);
  const step = wide / (SPARK - 1);
  const points = values.map((v, i) => `${(wide - (values.length - 1 - i) * step).toFixed(1)},${(high - 1 - (v / most) * (high - 2)).toFixed(1)}`);
  return svg('svg', { class: 'spark', width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, 'aria-hidden': 'true' },
    points.length > 1 && svg('polyline', { points: points.join(' ') }));
}

/** bar draws a part of 1 and, where there is one, a mark at what it should be. */
export function bar(part, ideal, tone = '') {
  const wide = 64;
  const at = (n) => (Math.min(1, Math.max(0, n)) * wide).toFixed(1);
  return svg('svg', { class: `bar ${tone}`, width: wide, height: 10, viewBox: `0 0 ${wide} 10`, 'aria-hidden': 'true' },
    svg('rect', { class: 'ground', x: 0, y: 2, width: wide, height: 6, rx: 2 }),
    part !== null && svg('rect', { class: 'part', x: 0, y: 2, width: at(part), height: 6, rx: 2 }),
    ideal !== undefined && svg('rect', { class: 'ideal', x: Math.max(0, at(ideal) - 1), y: 0, width: 2, height: 10 }));
}

/** meter shows how much of a limit is in use, in words, too. */
export function meter(used, limit) {
  const part = limit > 0 ? used / limit : 0;
  const [tone, word] = part >= 0.9 ? ['bad', 'nearly full'] : part >= 0.7 ? ['warn', 'filling'] : ['good', 'ample'];
  return h('span', { class: 'meter' }, bar(part, undefined, tone), h('b', {}, percent(part)), h('span', { class: `word ${tone}` }, word));
}

/** facts is a list of names and values; those without a value are left out. */
export const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false)
  .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

/** section is a part of a view with a heading. */
export const section = (title, key, ...children) => h('section', { 'data-key': `s-${key}`, 'aria-label': title }, h('h2', {}, title), children);

/** table is a table of words; columns with a title that begins with # are numbers. With a + before the first, columns of tables below each other are equally wide. */
export const table = (label, titles, rows) => h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `${label}, table` },
  h('table', { class: titles[0].startsWith('+') && `aligned of${titles.length}` }, h('thead', {}, h('tr', {}, titles.map((t) => h('th', { scope: 'col', class: t.startsWith('#') && 'number' }, t.replace(/^[#+]/, ''))))),
    h('tbody', {}, rows.map((row) => h('tr', { 'data-key': row.key }, row.cells.map((cell, i) =>
      (i === 0 ? h('th', { scope: 'row' }, cell) : h('td', { class: titles[i].startsWith('#') && 'number' }, cell))))))));

/** notice is a line that a person should read. */
export const notice = (tone, word, text, key) => h('p', { class: `notice ${tone}`, 'data-key': key }, h('b', {}, `${word}: `), text);

/** address is that of a view of this page. */
export const address = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;
