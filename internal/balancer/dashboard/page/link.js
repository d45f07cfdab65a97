// SPDX-License-Identifier: Apache-2.0

// The link to the balancer: it comes back by itself, whatever ended it: a restart, an upgrade, a lost network, or sleep.

import { get, listen, Refusal, token } from './api.js';
import { model } from './model.js';

/** SILENCE is after how many seconds without a word the link counts as lost, and HIDDEN after how many a tab that nobody sees ends it. */
const SILENCE = 60;
const HIDDEN = 60;
/** TICK is every how many milliseconds the link is looked after. A tick that comes ASLEEP later than it should comes after a sleep. */
const TICK = 5000;
const ASLEEP = 10_000;
/** BURST is for how many milliseconds events are gathered before they are drawn. */
const BURST = 50;
/** LONGEST is how many characters of a query are sent: the balancer refuses a request whose head has more than 16 KiB. */
const LONGEST = 8000;

export const link = {
  /** state is connecting, live, lost, paused or locked. */
  state: 'connecting',
  /** why says what ended the link, or why the balancer does not let in. */
  why: '',
  since: performance.now(),
  /** upgraded is the version that answers now, where it is not the one that this page is of. */
  upgraded: '',
};

let changed = () => {};
let wanted = '';
let heard = 0;
let listening = false;
let attempt = null;
let wake = () => {};
let hiddenAt = 0;
let drawing = 0;

/** silence is for how many seconds nothing was heard on a link that is live. */
export const silence = () => (link.state === 'live' ? (performance.now() - heard) / 1000 : 0);

function become(state, why) {
  if (state !== link.state) link.since = performance.now();
  link.state = state;
  link.why = why || '';
  changed();
}

/** want says which services' backends are to be sent: their names, or all. So many that a request cannot name them are all. */
export function want(services, all) {
  const query = services.map((name) => `service=${encodeURIComponent(name)}`).join('&');
  const next = all || query.length > LONGEST ? 'all=true' : query;
  if (next === wanted) return;
  wanted = next;
  if (link.state === 'live') renew();
}

/** renew ends the link, for a new one to be made at once. */
function renew() {
  if (attempt) attempt.abort();
  wake();
}

/** login uses another token. */
export function login(text) {
  token.set(text.trim());
  renew();
}

/** start makes the link, and goes on for ever; tell is called when anything has changed. */
export async function start(tell) {
  changed = tell;
  watchOver();
  for (let failures = 0; ;) {
    attempt = new AbortController();
    const { signal } = attempt;
    try {
      await once(signal);
    } catch (error) {
      if (signal.aborted) {
        failures = 0;
        if (link.state === 'paused') await asleep(Infinity);
        continue;
      }
      if (error instanceof Refusal && (error.status === 401 || (error.status === 403 && !model.session))) {
        model.session = null;
        become('locked', error.message);
        await asleep(Infinity);
        continue;
      }
      failures = link.state === 'live' ? 0 : failures + 1;
      become('lost', error.message);
      await asleep(Math.min(500 * 2 ** failures, 5000));
    }
  }
}

async function once(signal) {
  const version = model.session && model.session.version;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(20_000)]);
  model.session = await get('/v1/session', limit);
  if (version && version !== model.session.version) link.upgraded = model.session.version;
  heard = performance.now();
  listening = true;
  try {
    await listen(`/v1/watch${wanted ? `?${wanted}` : ''}`, model.lastEvent, signal, (kind, data) => {
      heard = performance.now();
      if (kind === 'status') model.take(data);
      else if (kind === 'event') model.tell(data);
      else if (kind === 'lost') model.lost = data;
      else if (kind === 'problem') throw new Refusal(data.status, data.detail);
      if (kind === 'status') become('live');
      else if (!drawing) drawing = setTimeout(drawEvents, BURST);
    });
  } finally {
    listening = false;
  }
}

/** drawEvents shows the events that came since they were drawn last; the status that follows them is drawn when it comes. */
function drawEvents() {
  drawing = 0;
  if (link.state === 'live') changed();
}

/** asleep returns after some milliseconds, or when something asks for a link. */
function asleep(ms) {
  return new Promise((resolve) => {
    wake = resolve;
    if (ms !== Infinity) setTimeout(resolve, ms);
  });
}

/** watchOver ends a link that is silent, or that nobody needs, and has one made when it is needed again. */
function watchOver() {
  let ticked = Date.now();
  setInterval(() => {
    // While a machine sleeps, performance.now() stands still in most browsers, and a connection may die without a word.
    const slept = Math.abs(Date.now() - ticked - TICK) > ASLEEP;
    ticked = Date.now();
    if (listening && slept) {
      become('connecting', 'this machine has slept, or its clock was set');
      renew();
    } else if (listening && performance.now() - heard > SILENCE * 1000) {
      become('lost', 'nothing has been heard from the balancer');
      renew();
    }
    if (document.hidden && link.state === 'live' && performance.now() - hiddenAt > HIDDEN * 1000) {
      become('paused', 'this tab is hidden');
      attempt.abort();
    }
  }, TICK);
  document.addEventListener('visibilitychange', () => {
    hiddenAt = performance.now();
    if (!document.hidden && (link.state !== 'live' || performance.now() - heard > 5000)) {
      if (link.state === 'paused') become('connecting');
      if (link.state !== 'locked') renew();
    }
  });
  addEventListener('online', () => { if (link.state !== 'locked') renew(); });
}
