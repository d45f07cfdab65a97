// SPDX-License-Identifier: Apache-2.0

// What the page knows of the balancer: the latest status, the rates that follow from its counters, and its events.

import { seconds } from './format.js';

/** SPARK is how many seconds small charts show, a value a second. */
export const SPARK = 60;
/** WINDOW is the time in seconds over which rates are taken. */
const WINDOW = 3;
/** EVENTS is how many events are kept. */
const EVENTS = 1000;

/** The words for states, how they are marked besides, and what they mean for new connections. */
export const STATES = {
  up: { tone: 'good', mark: '●', says: 'takes new connections' },
  standby: { tone: 'calm', mark: '○', says: 'is a backup, and others serve' },
  draining: { tone: 'warn', mark: '◐', says: 'takes no new connection and keeps those that it has' },
  'weight-0': { tone: 'calm', mark: '○', says: 'has weight 0 and takes no new connection' },
  out: { tone: 'calm', mark: '■', says: 'is out of its service' },
  'no-route': { tone: 'bad', mark: '▼', says: 'cannot be reached: no route' },
  'no-mac': { tone: 'bad', mark: '▼', says: 'cannot be reached: does not answer ARP or NDP' },
  unhealthy: { tone: 'bad', mark: '▼', says: 'fails its health checks' },
  ejected: { tone: 'bad', mark: '▼', says: 'fails too many of its connections, and pauses' },
};

const COUNTERS = ['connections', 'packets', 'bytes', 'returned_packets', 'returned_bytes'];

class Model {
  status = null;
  totals = {};
  session = null;
  /** at is the balancer's time of the latest status, in seconds; received is when it came, by the browser's clock. */
  at = 0;
  received = 0;
  clock = 0;
  events = [];
  lastEvent = '';
  /** lost tells of events that were missed. */
  lost = null;
  rates = new Map();
  frames = [];
  sparks = new Map();
  pushed = -1;

  /** now is the balancer's time in seconds, as far as is known. */
  now() {
    return this.at + (performance.now() - this.received) / 1000;
  }

  /** take makes a status the latest one. */
  take(watched) {
    const again = !this.status || watched.status.pid !== this.status.pid || watched.clock_seconds < this.clock;
    if (again) {
      this.frames = [];
      this.pushed = -1;
    }
    this.status = watched.status;
    for (const list of ['problems', 'services', 'outcomes', 'interfaces']) this.status[list] ||= [];
    for (const service of this.status.services) service.backends ||= [];
    this.totals = watched.totals;
    this.at = seconds(watched.at);
    this.received = performance.now();
    this.clock = watched.clock_seconds;
    this.count();
  }

  /** count makes rates of the counters. */
  count() {
    const counters = new Map();
    const sum = new Array(COUNTERS.length).fill(0);
    for (const service of this.status.services) {
      const values = COUNTERS.map((name) => this.totals[service.name][name] || 0);
      if (service.proxy) values[0] = service.proxy.connections;
      counters.set(service.name, values);
      values.forEach((value, i) => { sum[i] += value; });
      for (const b of service.backends) counters.set(`${service.name}/${b.name}`, COUNTERS.map((name) => b[name] || 0));
    }
    counters.set('', sum);
    for (const outcome of this.status.outcomes) counters.set(`outcome ${outcome.name}`, [outcome.packets]);
    this.frames.push({ clock: this.clock, counters });
    while (this.frames.length > 2 && this.frames[1].clock <= this.clock - WINDOW) this.frames.shift();
    const first = this.frames[0];
    const past = this.clock - first.clock;
    this.rates = new Map();
    for (const [key, values] of counters) {
      const before = first.counters.get(key);
      // A counter that is less than before is of another backend of that name.
      if (past > 0 && before) this.rates.set(key, values.map((value, i) => (value < before[i] ? null : (value - before[i]) / past)));
    }
    // The statuses of each second may come a little less than a second apart.
    if (this.clock >= this.pushed + 0.9) this.push();
  }

  /** push adds a value to each small chart. */
  push() {
    this.pushed = this.clock;
    const sparks = new Map();
    for (const [key, values] of this.rates) {
      const line = this.sparks.get(key) || [];
      line.push(values[0] || 0);
      if (line.length > SPARK) line.shift();
      sparks.set(key, line);
    }
    this.sparks = sparks;
  }

  /** rate returns how often a counter of a service ("web"), a backend ("web/web01") or all ("") grows; null: not known yet. */
  rate(key, counter) {
    const values = this.rates.get(key);
    return values ? values[COUNTERS.indexOf(counter)] : null;
  }

  /** outcome returns how often packets end in a way. */
  outcome(name) {
    const values = this.rates.get(`outcome ${name}`);
    return values ? values[0] : null;
  }

  /** spark returns the latest rates of new connections. */
  spark(key) {
    return this.sparks.get(key) || [];
  }

  /** tell takes an event. */
  tell(event) {
    if (this.events.some((one) => one.id === event.id)) return;
    this.lastEvent = event.id;
    this.events.unshift(event);
    if (this.events.length > EVENTS) this.events.length = EVENTS;
  }

  service(name) {
    return this.status ? this.status.services.find((one) => one.name === name) : undefined;
  }
}

export const model = new Model();

/** serving says whether a backend takes new connections. In panic, failing ones that take some are up. */
export const serving = (backend) => backend.state === 'up';

/** shares returns for each backend its part of the service's new connections in the last minute, and the part that its weight is. */
export function shares(service) {
  const parts = service.backends.map((b) => {
    const weight = serving(b) ? b.weight : 0;
    const slow = b.slow_start ? b.slow_start.percent / 100 : 1;
    const agent = b.health && !b.forced ? Math.min(b.health.weight_percent, 100) / 100 : 1;
    const got = model.spark(`${service.name}/${b.name}`).reduce((sum, n) => sum + n, 0);
    return { got, ideal: weight * slow * agent };
  });
  if (service.scheduler === 'fo') {
    const first = parts.findIndex((one) => one.ideal > 0);
    parts.forEach((one, i) => { one.ideal = i === first ? 1 : 0; });
  }
  const got = parts.reduce((sum, one) => sum + one.got, 0);
  const ideal = parts.reduce((sum, one) => sum + one.ideal, 0);
  return parts.map((one) => ({ got: got > 0 ? one.got / got : null, ideal: ideal > 0 ? one.ideal / ideal : 0 }));
}

/** stateOf returns what is said of a backend's state. */
export const stateOf = (backend) => STATES[backend.state] || { tone: 'warn', mark: '?', says: backend.state };

/** notUp counts the backends of all services that take no new connections though nobody meant that. */
export function troubled(totals) {
  return Object.entries(totals.states).reduce((sum, [state, n]) => sum + (STATES[state] && STATES[state].tone === 'bad' ? n : 0), 0);
}
