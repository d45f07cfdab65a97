// SPDX-License-Identifier: Apache-2.0

// A table of which only the rows on the screen exist, so that it may have any number of them. All rows are equally high.

import { h, show } from './dom.js';

/** BEYOND is how many rows exist above and below those on the screen. */
const BEYOND = 8;

export class Grid {
  rows = [];

  /**
   * columns are {id, title, sorted}; render(row, i) returns a row's cells. label names the table for those who do not see it.
   */
  constructor(label, columns, render) {
    this.columns = columns;
    this.render = render;
    this.head = h('div', { class: 'grid-head', role: 'rowgroup' });
    this.before = h('div', { class: 'grid-space', role: 'presentation' });
    this.body = h('div', { class: 'grid-body', role: 'rowgroup' });
    this.after = h('div', { class: 'grid-space', role: 'presentation' });
    this.element = h('div', { class: 'grid', role: 'table', 'aria-label': label }, this.head, this.before, this.body, this.after);
    this.redraw = () => {
      if (this.asked) return;
      this.asked = requestAnimationFrame(() => {
        this.asked = 0;
        this.slide();
      });
    };
    addEventListener('scroll', this.redraw, { passive: true });
    addEventListener('resize', this.redraw, { passive: true });
  }

  close() {
    removeEventListener('scroll', this.redraw);
    removeEventListener('resize', this.redraw);
    cancelAnimationFrame(this.asked);
  }

  /** set gives the table its rows: {key, ...}. */
  set(rows) {
    this.rows = rows;
    this.element.setAttribute('aria-rowcount', String(rows.length + 1));
    show(this.head, h('div', { class: 'grid-row', role: 'row', 'aria-rowindex': 1 }, this.columns.map((c) => this.title(c))));
    this.draw();
  }

  title(column) {
    const order = column.sorted ? (column.sorted() || 'none') : null;
    return h('div', { class: `cell c-${column.id}`, role: 'columnheader', 'aria-sort': order },
      column.sorted ? h('button', { type: 'button', class: 'sort', 'data-act': 'sort', 'data-column': column.id }, column.title,
        h('span', { 'aria-hidden': 'true' }, { ascending: ' ▲', descending: ' ▼' }[order] || '')) : column.title);
  }

  /** shown returns the rows that are to exist, and makes room for the others; first is the number of the first of them. */
  shown() {
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue('--row')) || 34;
    const top = this.before.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(this.rows.length, Math.floor(-top / height) - BEYOND));
    const last = Math.max(first, Math.min(this.rows.length, Math.ceil((innerHeight - top) / height) + BEYOND));
    this.before.style.height = `${first * height}px`;
    this.after.style.height = `${(this.rows.length - last) * height}px`;
    return { rows: this.rows.slice(first, last), first };
  }

  row(row, at) {
    return h('div', { class: `grid-row ${row.class || ''}`, role: 'row', 'data-key': row.key, 'aria-rowindex': at + 2 }, this.render(row));
  }

  /** draw shows all rows on the screen as they are now. */
  draw() {
    const { rows, first } = this.shown();
    show(this.body, rows.map((row, i) => this.row(row, first + i)));
  }

  /** slide makes the rows that scrolling brings, and leaves those that are there as they are. */
  slide() {
    const { rows, first } = this.shown();
    const keys = new Set(rows.map((row) => row.key));
    for (const old of [...this.body.children]) if (!keys.has(old.dataset.key)) old.remove();
    let at = this.body.firstChild;
    rows.forEach((row, i) => {
      if (at && at.dataset.key === row.key) at = at.nextSibling;
      else this.body.insertBefore(this.row(row, first + i), at);
    });
  }
}
