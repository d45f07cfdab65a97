// SPDX-License-Identifier: Apache-2.0

// The views of everything at a glance, of one service, and of one backend.

import { Charts } from './chart.js';
import { h, show } from './dom.js';
import { list } from './events.js';
import { bits, clock, count, duration, endpoint, fine, percent, plural, rate, seconds, short } from './format.js';
import { want } from './link.js';
import { model, shares, stateOf, troubled } from './model.js';
import { address, facts, meter, notice, section, spark, statePill, table } from './parts.js';
import { problems, reasonOf, ServiceList, servicePill } from './services.js';

/** tile is a figure of the whole balancer. */
const tile = (title, value, aside, tone) => h('div', { class: `tile ${tone || ''}` }, h('span', { class: 'title' }, title), h('b', {}, value), h('span', { class: 'aside' }, aside));

function tiles() {
  const { status } = model;
  const sum = (of) => Object.values(model.totals).reduce((n, t) => n + of(t), 0);
  const all = sum((t) => t.backends);
  const up = sum((t) => t.states.up || 0);
  const down = sum(troubled);
  const lost = status.outcomes.filter((o) => o.name.startsWith('dropped_'));
  const now = lost.reduce((n, o) => n + (model.outcome(o.name) || 0), 0);
  return h('div', { class: 'tiles' },
    tile('Backends', `${count(up)} of ${count(all)} up`, down > 0 ? `${count(down)} in trouble` : `${plural(status.services.length, 'service')}`, down > 0 ? 'bad' : ''),
    tile('New connections', rate(model.rate('', 'connections')), spark(model.spark(''))),
    tile('To backends', bits(model.rate('', 'bytes')), rate(model.rate('', 'packets')).replace('/s', ' packets/s')),
    tile('From backends', bits(model.rate('', 'returned_bytes')), 'through the balancer'),
    status.flows && tile('Flows remembered', short(status.flows.proven + status.flows.unproven), `${percent(status.flows.proven / status.flows.proven_limit)} of the limit`),
    tile('Lost packets', rate(now), h('a', { href: address('drops') }, `${short(lost.reduce((n, o) => n + o.packets, 0))} so far`), now > 0 ? 'warn' : ''));
}

/** Overview is the first view: problems, figures, charts, and all services. */
export class Overview {
  constructor() {
    this.top = h('div', {});
    this.charts = new Charts('', ['connections', 'bytes', 'up']);
    this.list = new ServiceList();
    this.element = h('div', {}, this.top, this.charts.element, this.list.element);
  }

  close() {
    this.charts.close();
    this.list.close();
  }

  update() {
    show(this.top, problems(), tiles());
    this.charts.update();
    this.list.update();
  }
}

/** path leads back. */
const path = (...parts) => h('p', { class: 'path' }, h('a', { href: address('services') }, 'Services'), parts.map((p) => [h('span', { 'aria-hidden': 'true' }, ' › '), p]));

/** ServiceView is one service. */
export class ServiceView {
  constructor(name) {
    this.name = name;
    this.top = h('div', {});
    this.charts = new Charts(name, ['connections', 'bytes', 'packets', 'active', 'up']);
    this.list = new ServiceList(name);
    this.rest = h('div', {});
    this.element = h('div', {}, this.top, this.charts.element, this.list.element, this.rest);
  }

  close() {
    this.charts.close();
    this.list.close();
  }

  update() {
    const service = model.service(this.name);
    if (service) {
      show(this.top, path(h('b', {}, service.name)), this.head(service));
      show(this.rest, section('Events of this service', 'events', list(model.events.filter((e) => e.service === this.name).slice(0, 30))));
    } else {
      show(this.top, path(this.name), notice('warn', 'Not there', `the balancer has no service ${this.name} now`, 'none'));
      show(this.rest);
    }
    this.charts.update();
    this.list.update();
  }

  head(s) {
    const t = s.transition;
    const limits = s.limits || {};
    return [
      h('h2', { class: 'title' }, s.name, ' ', servicePill(s, model.totals[s.name])),
      s.withdrawn && notice('bad', 'Withdrawn', 'no backend serves, and the VIP is taken off the interface', 'withdrawn'),
      s.serving === 'all' && notice('warn', 'Panic', 'fewer backends are healthy than panic asks for, so failing ones take new connections, too', 'panic'),
      s.serving === 'backups' && notice('warn', 'Backups', 'only backups serve', 'backups'),
      facts([['Address', `${endpoint(s.vip, s.port)} ${s.protocol}`], ['Mode', s.mode], ['Scheduler', s.scheduler], ['Configured by', s.owner], ['Flows', s.tracked ? `${count(s.active)} active, all are tracked` : `${count(s.flows)} remembered`],
        ['Checks', (s.checks || []).map((c) => `${c.check}, ${c.expected}, each ${fine(c.interval_seconds)}, fall ${c.fall}, rise ${c.rise}`).join(' · ')],
        ['Rate', limits.rate && meter(model.rate(s.name, 'connections') || 0, limits.rate)], ['Connections', limits.connections && meter(s.active, limits.connections)],
        ['Transition', t && `${percent(t.moved_slots / t.slots)} of the slots moved, ${t.until ? `over in ${duration(seconds(t.until) - model.now())}` : 'until their flows have ended'}`],
        ['Discovered', (s.discovered || []).map((d) => `${d.from}: ${plural(d.backends, 'backend')}${d.problem ? `, ${d.problem}` : ''}`).join(' · ')], ['Persistence', s.persistence && `${duration(s.persistence.timeout_seconds)} for a /${s.persistence.prefix}`]]),
    ];
  }
}

/** BackendView is one backend of a service. */
export class BackendView {
  constructor(service, backend) {
    this.names = [service, backend];
    this.top = h('div', {});
    this.charts = new Charts(`${service}/${backend}`, ['connections', 'bytes', 'packets', 'active', 'up']);
    this.rest = h('div', {});
    this.element = h('div', {}, this.top, this.charts.element, this.rest);
  }

  close() { this.charts.close(); }

  update() {
    const [service, backend] = this.names;
    want([service], false);
    const s = model.service(service);
    const i = s ? s.backends.findIndex((one) => one.name === backend) : -1;
    const way = path(h('a', { href: address('service', service) }, service), h('b', {}, backend));
    if (i < 0) {
      show(this.top, way, !s || s.backends.length > 0 || model.totals[service].backends === 0 ? notice('warn', 'Not there', `the balancer has no backend ${backend} of ${service} now`, 'none') : h('p', {}, 'Asking the balancer…'));
      show(this.rest);
      return;
    }
    show(this.top, way, this.head(s, s.backends[i], shares(s)[i]));
    show(this.rest, this.checks(s, s.backends[i]), section('Events of this backend', 'events', list(model.events.filter((e) => e.service === service && e.backend === backend).slice(0, 30))));
    this.charts.update();
  }

  head(s, b, share) {
    const at = this.names.join('/');
    return [
      h('h2', { class: 'title' }, b.name, ' ', statePill(b), ' ', h('button', { type: 'button', class: 'small', 'data-act': 'change', 'data-service': s.name, 'data-backend': b.name }, 'Change…')),
      h('p', {}, `It ${stateOf(b).says}.`, reasonOf(b) && ` ${reasonOf(b)}.`),
      facts([['Address', endpoint(b.address, b.port)], ['Weight', b.configured_weight === undefined ? b.weight : `${b.weight} (${b.configured_weight} in the configuration)`],
        ['Share, ideal', `${share.got === null ? 'no new connection in a minute' : percent(share.got)}, ${percent(share.ideal)}`], ['New connections', rate(model.rate(at, 'connections'))], ['Packets', rate(model.rate(at, 'packets'))],
        ['To it', bits(model.rate(at, 'bytes'))], ['From it', b.returned_bytes && bits(model.rate(at, 'returned_bytes'))], ['Active', s.tracked || s.proxy ? count(b.active) : null], ['Remembered flows', count(b.flows)],
        ['Most connections', b.upper && meter(b.active, b.upper)], ['NAT ports', b.ports && meter(b.ports.held, b.ports.limit)], ['Way', b.interface && `${b.interface}${b.next_hop && b.next_hop !== b.address ? ` by ${b.next_hop}` : ''}, ${b.mac || 'no MAC address'}, ${b.neighbour}, MTU ${b.mtu}`],
        ['Answered, refused', b.answered && `${short(b.answered)}, ${short(b.refused || 0)}`], ['Backup', b.backup && 'yes'], ['Found by', b.origin], ['Spared', b.spared],
        ['Deadline', b.drain && b.drain.deadline && `${clock(b.drain.deadline, model.now())}${b.drain.out ? ', passed' : `, in ${duration(seconds(b.drain.deadline) - model.now())}`}`]]),
    ];
  }

  checks(s, b) {
    if (!b.health || !b.health.checks) return null;
    return section('Health checks', 'checks', table('Health checks', ['Check', 'State', 'Last answer', '#Took', '#In a row', 'Last', 'What is wrong'], b.health.checks.map((c, i) => ({ key: i + 1, cells: [
      s.checks[i] ? s.checks[i].check : i + 1, c.state, c.answer || '–', fine(c.took_seconds), c.failed > 0 ? `${count(c.failed)} failed` : `${count(c.passed)} passed`,
      c.last ? `${duration(model.now() - seconds(c.last))} ago` : '–', c.reason || ''] }))));
  }
}
