// SPDX-License-Identifier: Apache-2.0

// Charts over time, by uPlot. What they show is kept by the page: it goes on over restarts and upgrades of the daemon.

import { h } from './dom.js';
import { bits, short } from './format.js';
import { model } from './model.js';

/** STEP is the time in seconds from one point to the next, and HOUR how many points are kept. */
const STEP = 5;
const HOUR = 720;
/** KEPT is up to how many backends each has its past kept; where more are sent, only those do that have their charts on the screen. */
const KEPT = 500;
const NAMES = ['connections', 'packets', 'bytes', 'active', 'up'];
const series = new Map();
/** charted are the keys of the charts on the screen. */
const charted = new Set();
let noted = -Infinity;

/** note keeps what the model knows now, every STEP seconds: of all, of each service, and of the backends that are sent. */
export function note() {
  const now = performance.now() / 1000;
  if (!model.status || model.rates.size === 0 || now - noted < STEP) return;
  noted = now;
  const at = Math.round(model.at);
  const all = { active: 0, up: 0 };
  const each = model.status.services.reduce((n, s) => n + s.backends.length, 0) <= KEPT;
  for (const service of model.status.services) {
    const totals = model.totals[service.name];
    const up = totals.states.up || 0;
    const active = service.tracked || service.proxy ? service.active : service.flows;
    all.active += active;
    all.up += up;
    add(service.name, at, active, up);
    for (const b of service.backends) {
      const key = `${service.name}/${b.name}`;
      if (each || charted.has(key)) add(key, at, service.tracked || service.proxy ? b.active : b.flows, b.state === 'up' ? 1 : 0);
    }
  }
  add('', at, all.active, all.up);
  // What has not been there for an hour is forgotten.
  for (const [key, one] of series) if (one.at.at(-1) < at - STEP * HOUR) series.delete(key);
}

function add(key, at, active, up) {
  let one = series.get(key);
  if (!one) series.set(key, one = { at: [], connections: [], packets: [], bytes: [], active: [], up: [] });
  // A clock that was set back must not make a line that goes back.
  while (one.at.length > 0 && one.at.at(-1) >= at) for (const list of Object.values(one)) list.pop();
  // A gap, as of a balancer that was away, is one in the line.
  if (one.at.length > 0 && at - one.at.at(-1) > 4 * STEP) {
    one.at.push(one.at.at(-1) + 1);
    for (const name of NAMES) one[name].push(null);
  }
  one.at.push(at);
  for (const name of ['connections', 'packets', 'bytes']) one[name].push(model.rate(key, name));
  one.active.push(active);
  one.up.push(up);
  while (one.at.length > HOUR || one.at[0] < at - STEP * HOUR) for (const list of Object.values(one)) list.shift();
}

const KINDS = {
  connections: { title: 'New connections a second', write: short, color: '--chart1' },
  bytes: { title: 'Traffic to backends', write: (n) => bits(n), color: '--chart2', wide: 84 },
  packets: { title: 'Packets a second', write: short, color: '--chart4' },
  active: { title: 'Active, or remembered flows', write: short, color: '--chart3' },
  up: { title: 'Backends that are up', write: short, color: '--chart3', steps: true },
};

/** Charts are some charts beside each other, of one service, backend, or all (""). */
export class Charts {
  constructor(key, kinds) {
    this.key = key;
    charted.add(key);
    this.plots = kinds.map((kind) => {
      const holder = h('div', { class: 'plot', 'data-keep': true });
      return { kind, holder, now: h('b', {}), figure: null };
    });
    this.element = h('div', { class: 'charts', tabindex: 0, role: 'group', 'aria-label': 'Charts' }, this.plots.map((p) => h('figure', {}, h('figcaption', {}, KINDS[p.kind].title, ' ', p.now), p.holder)));
    this.resized = new ResizeObserver(() => this.size());
    this.resized.observe(this.element);
    this.scheme = matchMedia('(prefers-color-scheme: dark)');
    this.again = () => { for (const p of this.plots) this.drop(p); this.update(); };
    this.scheme.addEventListener('change', this.again);
  }

  close() {
    charted.delete(this.key);
    this.resized.disconnect();
    this.scheme.removeEventListener('change', this.again);
    for (const p of this.plots) this.drop(p);
  }

  drop(p) {
    if (p.figure) p.figure.destroy();
    p.figure = null;
  }

  size() {
    for (const p of this.plots) if (p.figure && p.holder.clientWidth > 0) p.figure.setSize({ width: p.holder.clientWidth, height: 130 });
  }

  update() {
    const one = series.get(this.key);
    if (!one) return;
    for (const p of this.plots) {
      const kind = KINDS[p.kind];
      const last = one[p.kind].at(-1);
      p.now.textContent = last === null || last === undefined ? '' : kind.write(last);
      const data = [one.at, one[p.kind]];
      if (p.drawn === one.at.at(-1) && p.figure) continue;
      p.drawn = one.at.at(-1);
      if (!p.figure && p.holder.clientWidth > 0) p.figure = this.plot(p, kind, data);
      else if (p.figure) p.figure.setData(data);
    }
  }

  plot(p, kind, data) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color('--aside'), grid: { stroke: color('--grid'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    return new uPlot({
      width: p.holder.clientWidth, height: 130, legend: { show: false }, cursor: { y: false, points: { size: 5 } },
      scales: { x: { range: (u, min, max) => [Math.min(min, max - 300), max] }, y: { range: (u, min, max) => [0, Math.max(1, max * 1.1)] } },
      axes: [{ ...axis, size: 24, space: 70, values: (u, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })) },
        { ...axis, size: kind.wide || 46, space: 30, values: (u, values) => values.map(kind.write) }],
      series: [{}, { stroke: color(kind.color), width: 1.5, fill: `${color(kind.color)}22`, paths: kind.steps ? uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: false } }],
      hooks: { setCursor: [(u) => {
        const i = u.cursor.idx;
        const value = i === null || i === undefined ? u.data[1].at(-1) : u.data[1][i];
        const at = i === null || i === undefined ? '' : ` at ${new Date(u.data[0][i] * 1000).toLocaleTimeString('en-GB')}`;
        p.now.textContent = value === null || value === undefined ? '' : `${kind.write(value)}${at}`;
      }] },
    }, data, p.holder);
  }
}
