// SPDX-License-Identifier: Apache-2.0

// The view of all services, and that of one: a row a service, and below it a row a backend.

import { h, show } from './dom.js';
import { bits, count, duration, endpoint, fine, percent, plural, rate, seconds, short } from './format.js';
import { Grid } from './grid.js';
import { want } from './link.js';
import { model, serving, shares, stateOf, troubled } from './model.js';
import { address, bar, notice, pill, spark, statePill } from './parts.js';

/** OPEN is up to how many backends all services show theirs at first. */
const OPEN = 300;

const toggled = new Map();
const view = { filter: '', trouble: false, sort: '', down: false };

const columns = [
  { id: 'name', title: 'Service, backend', key: (b) => b.name },
  { id: 'state', title: 'State', key: (b) => b.state },
  { id: 'rate', title: 'New connections', key: (b, at) => -(model.rate(at, 'connections') || 0) },
  { id: 'share', title: 'Share | ideal', key: (b, at, share) => -(share.got || 0) },
  { id: 'weight', title: 'Weight', key: (b) => -b.weight },
  { id: 'packets', title: 'Packets', key: (b, at) => -(model.rate(at, 'packets') || 0) },
  { id: 'bits', title: 'Traffic', key: (b, at) => -(model.rate(at, 'bytes') || 0) },
  { id: 'active', title: 'Active', key: (b) => -b.active },
  { id: 'check', title: 'Check, reason', key: (b) => reasonOf(b) },
  { id: 'act', title: 'Change' },
].map((column) => ({ ...column, sorted: column.key && (() => (view.sort === column.id ? (view.down ? 'descending' : 'ascending') : null)) }));

/** ServiceList is the table of services; with a name, it is that of one service's backends. */
export class ServiceList {
  constructor(only) {
    this.only = only;
    this.grid = new Grid(only ? `Backends of ${only}` : 'Services and their backends', columns, cells);
    this.problems = h('div', { class: 'problems' });
    this.tools = h('div', { class: 'tools' });
    this.element = h('div', {}, this.problems, this.tools, this.grid.element);
  }

  close() {
    this.grid.close();
  }

  update() {
    const services = this.only ? model.status.services.filter((s) => s.name === this.only) : model.status.services;
    const all = Object.values(model.totals).reduce((sum, t) => sum + t.backends, 0);
    const open = (name) => Boolean(this.only) || (toggled.has(name) ? toggled.get(name) : all <= OPEN);
    const searching = view.filter !== '' || view.trouble;
    want(services.filter((s) => searching || open(s.name)).map((s) => s.name), !this.only && (searching || services.every((s) => open(s.name))));
    show(this.tools, tools(this.only));
    const rows = services.flatMap((service) => rowsOf(service, searching || open(service.name), this.only));
    if (rows.length === 0) rows.push({ key: 'none', kind: 'none' });
    this.grid.set(rows);
  }
}

function tools(only) {
  return [
    h('label', { class: 'search' }, h('span', { class: 'hidden' }, 'Filter by name, address or state'),
      h('input', { type: 'search', id: 'filter', placeholder: 'Filter: name, address, state', 'data-act': 'filter', autocomplete: 'off', spellcheck: 'false' })),
    h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-act': 'trouble' }), 'only what is not up'),
    !only && h('span', { class: 'sorts' },
      h('button', { type: 'button', 'data-act': 'open-all' }, 'Open all'), h('button', { type: 'button', 'data-act': 'close-all' }, 'Close all')),
  ];
}

/** rowsOf returns the rows of a service, as far as the filter lets them be seen. */
function rowsOf(service, open, only) {
  const text = view.filter.toLowerCase();
  const own = [service.name, service.vip, service.mode, service.scheduler].some((word) => word.toLowerCase().includes(text));
  const part = shares(service);
  let rows = service.backends.map((backend, i) => ({ key: `b ${service.name}/${backend.name}`, kind: 'backend', service, backend, share: part[i], class: 'backend' }))
    .filter(({ backend }) => (own || [backend.name, backend.address, backend.state].some((word) => word.toLowerCase().includes(text))) &&
      (!view.trouble || !serving(backend)));
  const column = columns.find((c) => c.id === view.sort);
  if (column) {
    const keys = new Map(rows.map((row) => [row, column.key(row.backend, row.key.slice(2), row.share)]));
    const order = view.down ? -1 : 1;
    rows = rows.toSorted((a, b) => order * (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0));
  }
  if (only) return rows;
  const searching = text !== '' || view.trouble;
  if (searching && rows.length === 0 && !(own && !view.trouble)) return [];
  return [{ key: `s ${service.name}`, kind: 'service', service, open, class: 'service' }, ...(open ? rows : [])];
}

function cells(row) {
  if (row.kind === 'none') return [h('div', { class: 'cell c-name', role: 'cell' }, 'Nothing fits the filter.')];
  const values = row.kind === 'service' ? serviceCells(row) : backendCells(row);
  return columns.map((c) => h('div', { class: `cell c-${c.id}`, role: 'cell' }, values[c.id]));
}

function serviceCells({ service, open }) {
  const totals = model.totals[service.name];
  const now = (counter) => model.rate(service.name, counter);
  return {
    name: [h('button', { type: 'button', class: 'fold', 'data-act': 'fold', 'data-service': service.name, 'aria-expanded': open ? 'true' : 'false', 'aria-label': `Backends of ${service.name}` },
      h('span', { 'aria-hidden': 'true' }, open ? '▾' : '▸')),
    h('a', { href: address('service', service.name), class: 'strong' }, service.name),
    h('span', { class: 'aside' }, `${endpoint(service.vip, service.port)} ${service.protocol}`)],
    state: servicePill(service, totals),
    rate: [h('b', {}, rate(now('connections'))), spark(model.spark(service.name))],
    share: usedLimit(service),
    weight: '',
    packets: rate(now('packets')),
    bits: bits((now('bytes') || 0) + (now('returned_bytes') || 0)),
    active: service.tracked || service.proxy ? count(service.active) : h('span', { class: 'aside', title: 'flows that are remembered; the others need no memory' }, count(service.flows)),
    check: h('span', { class: 'aside' }, `${service.mode} · ${service.scheduler}${service.checks ? ` · ${service.checks.map((c) => c.check).join(', ')}` : ''}`),
    act: '',
  };
}

/** servicePill says how many backends take new connections. */
export function servicePill(service, totals) {
  const up = totals.states.up || 0;
  const word = `${up} of ${totals.backends} up`;
  if (totals.backends === 0 || up === 0) return pill(totals.backends === 0 ? 'no backend' : word, 'bad', '▼', `${service.name}: nothing takes new connections`);
  if (troubled(totals) > 0) return pill(word, 'warn', '◐', `${service.name}: ${plural(troubled(totals), 'backend')} in trouble`);
  return pill(word, up === totals.backends ? 'good' : 'calm', up === totals.backends ? '●' : '○', `${service.name} is served`);
}

/** usedLimit shows the limit of a service that is nearest to its end. */
function usedLimit(service) {
  const limits = service.limits || {};
  const used = [];
  if (limits.rate) used.push([(model.rate(service.name, 'connections') || 0) / limits.rate, `of ${short(limits.rate)} new connections/s`]);
  if (limits.connections) used.push([service.active / limits.connections, `of ${short(limits.connections)} connections`]);
  used.sort((a, b) => b[0] - a[0]);
  if (used.length === 0) return '';
  const [part, what] = used[0];
  return h('span', { title: `${percent(part)} ${what}`, class: 'limit' }, bar(part, undefined, part >= 0.9 ? 'bad' : part >= 0.7 ? 'warn' : 'good'), `${percent(part)} of limit`);
}

function backendCells({ service, backend, share }) {
  const at = `${service.name}/${backend.name}`;
  const now = (counter) => model.rate(at, counter);
  return {
    name: [h('a', { href: address('service', service.name, backend.name) }, backend.name), h('span', { class: 'aside' }, endpoint(backend.address, backend.port))],
    state: statePill(backend),
    rate: [h('span', {}, rate(now('connections'))), spark(model.spark(at))],
    share: [bar(share.got, share.ideal), h('span', { class: 'aside' }, share.got === null ? `– | ${percent(share.ideal)}` : `${percent(share.got)} | ${percent(share.ideal)}`)],
    weight: backend.configured_weight === undefined ? count(backend.weight) : h('span', { title: `${backend.configured_weight} in the configuration` }, `${count(backend.weight)} (${count(backend.configured_weight)})`),
    packets: rate(now('packets')),
    bits: bits((now('bytes') || 0) + (now('returned_bytes') || 0)),
    active: service.tracked || service.proxy ? count(backend.active) : h('span', { class: 'aside', title: 'flows that are remembered' }, count(backend.flows)),
    check: h('span', { title: reasonOf(backend) }, reasonOf(backend)),
    act: h('button', { type: 'button', class: 'small', 'data-act': 'change', 'data-service': service.name, 'data-backend': backend.name, 'aria-label': `Change ${backend.name} of ${service.name}` }, 'Change…'),
  };
}

/** reasonOf says in a line why a backend is as it is, or what its checks answered last. */
export function reasonOf(backend) {
  const drain = backend.drain;
  if (drain && drain.on) {
    const left = drain.deadline && !drain.out ? `, out in ${duration(seconds(drain.deadline) - model.now())}` : '';
    return `${drain.out && !drain.deadline ? 'disabled' : 'drained'} by ${drain.by}${left}`;
  }
  if (backend.ejection) return `${backend.ejection.reason}; until ${duration(seconds(backend.ejection.until) - model.now())} from now`;
  const health = backend.health;
  const reason = backend.reason || (health && health.reason);
  if (reason) return `${reason}${backend.since ? `, for ${duration(model.now() - seconds(backend.since))}` : ''}`;
  if (backend.forced) return `enabled by force, by ${backend.forced.by}`;
  if (backend.slow_start) return `slow start: ${backend.slow_start.percent} % of its weight`;
  if (health && health.checks && health.checks.length > 0) {
    return health.checks.map((c) => (c.last ? `${c.answer || c.state} in ${fine(c.took_seconds)}` : 'not checked yet')).join(' · ');
  }
  return stateOf(backend).tone === 'good' ? '' : stateOf(backend).says;
}

/** acts are what the view's controls do. */
export const acts = {
  filter(target) { view.filter = target.value.trim(); },
  trouble(target) { view.trouble = target.checked; },
  fold(target) { toggled.set(target.dataset.service, target.getAttribute('aria-expanded') !== 'true'); },
  'open-all'() { for (const s of model.status.services) toggled.set(s.name, true); },
  'close-all'() { for (const s of model.status.services) toggled.set(s.name, false); },
  sort(target) {
    const column = target.dataset.column;
    if (view.sort !== column) [view.sort, view.down] = [column, false];
    else if (!view.down) view.down = true;
    else view.sort = '';
  },
};

/** problems are the lines of what a person should look at now. */
export const problems = () => model.status.problems.map((line) => notice('bad', 'Problem', line, `p ${line}`));
