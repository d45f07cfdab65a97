// SPDX-License-Identifier: Apache-2.0

// The views of limits, of where packets end, and of the balancer among others: routers, members, the proxy, discovery.

import { h, show } from './dom.js';
import { clock, count, duration, fine, percent, plural, rate, seconds, short, size } from './format.js';
import { want } from './link.js';
import { model } from './model.js';
import { address, facts, meter, notice, pill, section, table } from './parts.js';

/** link leads to a service or a backend. */
const to = (...names) => h('a', { href: address('service', ...names) }, names.join('/'));
const ago = (text) => (text ? `${duration(model.now() - seconds(text))} ago` : '–');
const until = (text) => (text ? `in ${duration(seconds(text) - model.now())}` : 'never');

/** A Page is a view that is a function of the model. */
class Page {
  constructor(render, all) {
    this.render = render;
    this.all = all;
    this.element = h('div', { class: 'page' });
  }

  close() {}

  update() {
    want([], this.all);
    show(this.element, this.render(model.status));
  }
}

/** limits shows the share of each limit that is in use, the fullest first. */
function limits(status) {
  const used = [];
  const add = (what, where, now, limit, unit, key) => { if (limit > 0) used.push({ what, where, now, limit, unit, key: key || what }); };
  if (status.flows) {
    add('Flows that are remembered (proven)', 'flows.limit', status.flows.proven, status.flows.proven_limit, 'flows');
    add('Flows that are remembered (unproven)', 'flows.unproven', status.flows.unproven, status.flows.unproven_limit, 'flows');
  }
  for (const s of status.services) {
    if (s.limits) {
      add('New connections a second', to(s.name), model.rate(s.name, 'connections') || 0, s.limits.rate, '/s', `${s.name} rate`);
      add('Connections of the service', to(s.name), s.active, s.limits.connections, 'connections', `${s.name} connections`);
    }
    for (const b of s.backends) {
      add('Connections of a backend', to(s.name, b.name), b.active, b.upper, 'connections', `${s.name}/${b.name} upper`);
      if (b.ports) add('NAT ports towards a backend', to(s.name, b.name), b.ports.held, b.ports.limit, 'ports', `${s.name}/${b.name} ports`);
    }
  }
  used.sort((a, b) => b.now / b.limit - a.now / a.limit);
  const memory = status.memory;
  return [
    section('Share of each limit in use', 'limits', used.length === 0 ? h('p', { class: 'aside' }, 'This balancer has no limit: it remembers no flow, and its services have no limits.')
      : table('Limits', ['Limit', 'Of', 'In use', '#Now', '#At most'], used.map((u) => ({ key: u.key, cells: [u.what, u.where, meter(u.now, u.limit), `${short(u.now)} ${u.unit}`, `${count(u.limit)} ${u.unit}`] })))),
    memory && section('Memory of the kernel', 'memory', h('p', { class: 'aside' }, 'It is planned from the configuration, and does not depend on how many flows there are.'),
      facts([['All', size(memory.total)], ['Proven flows', size(memory.proven)], ['Unproven flows', size(memory.unproven)], ['Replies of full NAT', size(memory.returns)],
        ['Configuration', size(memory.configuration)], ['Counters', size(memory.counters)], ['Ways of replies', size(memory.ways)], ['Fragments', size(memory.fragments)], ['Checks', memory.checks && size(memory.checks)]])),
  ];
}

const ENDS = [
  { id: 'lost', title: 'Lost', tone: 'bad', mark: '▼', fits: (n) => n.startsWith('dropped_') },
  { id: 'refused', title: 'Refused with an answer', tone: 'warn', mark: '◐', fits: (n) => n.startsWith('reset_') || n.startsWith('unreachable_') || n.startsWith('answered_') },
  { id: 'passed', title: 'Left to the kernel', tone: 'calm', mark: '○', fits: (n) => n.startsWith('passed_') },
  { id: 'served', title: 'Sent on', tone: 'good', mark: '●', fits: () => true },
];

/** drops shows where packets have ended, with the meaning and the remedy. */
function drops(status) {
  const rest = new Set(status.outcomes);
  return ENDS.map((end) => {
    const mine = [...rest].filter((o) => end.fits(o.name));
    mine.forEach((o) => rest.delete(o));
    const seen = mine.filter((o) => o.packets > 0).sort((a, b) => (model.outcome(b.name) || 0) - (model.outcome(a.name) || 0) || b.packets - a.packets);
    return section(end.title, end.id, seen.length === 0 ? h('p', { class: 'aside' }, `No packet, of ${plural(mine.length, 'way')} in which one can end so.`)
      : table(end.title, ['+Outcome', '#Now', '#Packets', 'What it means', 'What cures it'].slice(0, end.id === 'lost' || end.id === 'refused' ? 5 : 4), seen.map((o) => ({ key: o.name, cells: [
        (model.outcome(o.name) || 0) > 0 ? pill(o.name, end.tone, end.mark, 'now') : pill(o.name, 'calm', '○', 'not now'), rate(model.outcome(o.name)), count(o.packets), h('span', { class: 'prose' }, o.help),
        ...(end.id === 'lost' || end.id === 'refused' ? [h('span', { class: 'prose' }, o.remedy || h('span', {}, h('code', {}, 'jeoul trace --live'), ' shows the packets, ', h('code', {}, 'jeoul doctor'), ' what else is lost'))] : []),
      ] }))));
  });
}

function bgp(b) {
  return section('BGP: what routers are told', 'bgp',
    b.problem && notice('bad', 'Problem', b.problem, 'bgp-problem'),
    b.drained && notice('warn', 'Drained', `by ${b.drained.by}, ${ago(b.drained.at)}; the VIPs are withdrawn at ${clock(b.drained.withdrawn, model.now())}`, 'bgp-drained'),
    facts([['Speaker', b.speaker || 'own'], ['AS', b.asn], ['Router ID', b.router_id], ['Table', b.table], ['Process', b.speaker_pid || 'none']]),
    table('VIPs', ['VIP', 'State', 'Reason'], (b.vips || []).map((v) => ({ key: v.vip, cells: [v.vip, v.announced ? pill('announced', 'good', '●') : pill('withdrawn', 'warn', '◐'), v.reason || ''] }))),
    (b.peers || []).length > 0 && table('Peers', ['Router', 'AS', 'BGP', 'Since', '#Sessions', 'BFD', 'BFD finds a loss in', 'Reason'], b.peers.map((p) => ({ key: p.address, cells: [
      p.address, p.asn, p.state === 'established' ? pill(p.state, 'good', '●') : pill(p.state, 'bad', '▼'), ago(p.since), count(p.sessions),
      p.bfd ? pill(p.bfd.state, p.bfd.state === 'up' ? 'good' : 'bad', p.bfd.state === 'up' ? '●' : '▼') : 'not watched', p.bfd ? fine(p.bfd.detection_seconds) : '–', p.reason || (p.bfd && p.bfd.problem) || ''] }))));
}

function vrrp(v) {
  return section('VRRP: who holds the VIPs', 'vrrp',
    v.problem && notice('bad', 'Problem', v.problem, 'vrrp-problem'),
    v.both && notice('bad', 'Two are active', 'this balancer and the other one hold the VIPs at once', 'vrrp-both'),
    v.drained && notice('warn', 'Drained', `by ${v.drained.by}, ${ago(v.drained.at)}`, 'vrrp-drained'),
    facts([['State', pill(v.state, v.state === 'active' ? 'good' : 'calm', v.state === 'active' ? '●' : '○')], ['Since', `${ago(v.since)}: ${v.why}`], ['Virtual router', `${v.id} on ${v.interface}`],
      ['Priority', v.priority === v.configured_priority ? v.priority : `${v.priority} (${v.configured_priority} in the configuration)`], ['Interval', fine(v.interval_seconds)],
      ['Other balancer', v.peer ? `${v.peer.address}, priority ${v.peer.priority}, heard ${ago(v.peer.heard)}` : 'none was heard'], ['Changes', count(v.changes)], ['Conflicts', count(v.conflicts)],
      ['Rejected', v.rejected > 0 && `${count(v.rejected)}: ${v.reason}`]]));
}

function members(m) {
  const flows = (f) => (!f ? 'not handed over' : [f.telling ? `told ${short(f.told)}` : `not told${f.reason ? `: ${f.reason}` : ''}`, f.heard ? `${short(f.taken + f.known)} taken${f.whole ? '' : ', not all yet'}` : 'tells nothing'].join('; '));
  return section('Members, and flows that are handed over', 'members', m.problem && notice('bad', 'Problem', m.problem, 'members-problem'),
    facts([['This one', `${m.name} at ${m.address}`], ['Configuration', m.configuration], ['Refused packets', m.refused > 0 && count(m.refused)]]),
    table('Members', ['Member', 'State', 'Since', 'Version', 'Balances', 'Flows', '#Behind', 'Differs, reason'], m.members.map((one) => ({ key: one.address, cells: [
      one.name || one.address, pill(one.state, { alive: 'good', failed: 'bad', left: 'calm' }[one.state] || 'warn', { alive: '●', failed: '▼' }[one.state] || '○'), ago(one.since), one.version || '–',
      one.drained ? 'drained' : one.ready ? 'yes' : 'no', flows(one.flows), one.flows ? count(one.flows.behind) : '–',
      [one.same_name && `another has the name ${one.same_name}, too`, one.reason, ...(one.differs || []).map((d) => `${d.service}: ${d.detail || 'other backends'}`)].filter(Boolean).join('; ')] }))));
}

function proxy(status) {
  const engine = status.proxy;
  const services = status.services.filter((s) => s.proxy);
  return section('Proxy', 'proxy', engine.trouble && notice('bad', 'Problem', engine.trouble, 'proxy-trouble'),
    facts([['HAProxy', engine.version], ['Process', engine.pid || 'none'], ['Started', ago(engine.started)], ['Reloads', count(engine.reloads)], ['Workers', count(engine.workers)]]),
    table('Services of mode proxy', ['Service', '#Connections', '#Requests', '#2xx', '#4xx', '#5xx', '#Denied', '#Failed', '#Retried', '#Queued'], services.map((s) => ({ key: s.name, cells: [
      to(s.name), ...[s.proxy.connections, s.proxy.requests, s.proxy.responses['2xx'], s.proxy.responses['4xx'], s.proxy.responses['5xx'], s.proxy.denied, s.proxy.failed, s.proxy.retried, s.proxy.queued].map(short)] }))));
}

function discovery(services) {
  return section('Discovery', 'discovery', table('Origins of backends', ['Service', 'From', '#Backends', 'Taken', 'State'], services.flatMap((s) => s.discovered.map((d) => ({ key: `${s.name} ${d.from}`, cells: [
    to(s.name), d.from, count(d.backends), d.taken ? ago(d.taken) : 'never',
    d.problem ? h('span', {}, pill(d.overdue ? 'overdue' : 'failing', 'bad', '▼'), ` ${d.problem}${d.until && !d.overdue ? `; used for ${duration(seconds(d.until) - model.now())} more` : ''}`)
      : (d.refused || []).length > 0 ? h('span', {}, pill('some refused', 'warn', '◐'), ` ${d.refused.join('; ')}`) : pill('up to date', 'good', '●')] })))));
}

function operations(status) {
  const inForce = status.operations.in_force || [];
  const does = (o) => [o.drain && (o.drain.on ? (o.drain.out && !o.drain.deadline ? 'disabled' : o.drain.out ? 'out' : 'draining') : 'enabled'), o.weight && `weight ${o.weight.value} (${o.weight.configured})`, o.forced && 'enabled by force'].filter(Boolean).join(', ');
  const who = (o) => o.drain || o.weight || o.forced;
  return section('Drains, and what else differs from the configuration', 'operations', inForce.length === 0 ? h('p', { class: 'aside' }, 'Everything is as the configuration has it.')
    : table('Operations in force', ['Backend', 'Is', 'By', 'Since', 'Deadline', 'Left'], inForce.map((o) => ({ key: `${o.service}/${o.backend}`, cells: [
      to(o.service, o.backend), does(o), who(o).by, ago(who(o).at), o.drain && o.drain.on ? (o.drain.out ? 'out' : until(o.drain.deadline)) : '–',
      o.absent ? `not found for ${duration(model.now() - seconds(o.absent))}` : o.left.tracked ? `${count(o.left.active)} active` : `${count(o.left.flows)} remembered`] }))));
}

function transitions(services) {
  return section('Transitions', 'transitions', services.length === 0 ? h('p', { class: 'aside' }, 'No change of backends has anything left to do.')
    : table('Transitions', ['Service', 'Slots that moved', 'Since', 'Over'], services.map((s) => ({ key: s.name, cells: [
      to(s.name), `${percent(s.transition.moved_slots / s.transition.slots)} (${count(s.transition.moved_slots)} of ${count(s.transition.slots)})`, ago(s.transition.since), s.transition.until ? until(s.transition.until) : 'when their flows have ended'] }))));
}

function interfaces(status) {
  return section('Interfaces', 'interfaces', table('Interfaces', ['Interface', 'State', 'MAC', 'Hook', '#Frames that XDP lost'], (status.interfaces || []).map((i) => ({ key: i.name, cells: [
    i.name, i.up ? pill('up', 'good', '●') : pill('down', 'bad', '▼'), i.mac || '–', [i.hook.name, i.hook.generic && 'generic', i.hook.driver].filter(Boolean).join(', '), i.hook.name === 'xdp' ? count(i.xdp_lost || 0) : '–'] }))),
  status.hook.warning && notice('warn', 'Hook', status.hook.warning, 'hook'));
}

function files(status) {
  return section('Files that cannot be written', 'files', table('Files', ['What', 'Where', 'For', 'Why'], status.unwritten.map((f) => ({ key: f.path, cells: [f.what, f.path, duration(model.now() - seconds(f.since)), f.error] }))));
}

/** balancer shows what is not of one service. */
function balancer(status) {
  return [
    operations(status), transitions(status.services.filter((s) => s.transition)),
    status.bgp && bgp(status.bgp), status.vrrp && vrrp(status.vrrp), status.members && members(status.members), status.proxy && proxy(status),
    status.services.some((s) => (s.discovered || []).length > 0) && discovery(status.services.filter((s) => s.discovered)),
    interfaces(status), (status.unwritten || []).length > 0 && files(status),
    section('This balancer', 'about', facts([['Version', status.version], ['Process', status.pid], ['Started', ago(status.started)], ['Configuration', status.config], ['States given to the data plane', count(status.generation)]])),
  ];
}

export const limitsPage = () => new Page(limits, true);
export const dropsPage = () => new Page(drops, false);
export const balancerPage = () => new Page(balancer, false);
