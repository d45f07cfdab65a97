// SPDX-License-Identifier: Apache-2.0

// The page's frame: which view is shown, the link's state, keys, and what a click does.

import { token } from './api.js';
import { h, show } from './dom.js';
import * as actions from './actions.js';
import { balancerPage, dropsPage, limitsPage } from './balancer.js';
import { note } from './chart.js';
import * as events from './events.js';
import { duration } from './format.js';
import { link, login, silence, start } from './link.js';
import { model, troubled } from './model.js';
import { BackendView, Overview, ServiceView } from './overview.js';
import { pill } from './parts.js';
import * as services from './services.js';

const VIEWS = [
  { id: 'services', title: 'Services' },
  { id: 'drops', title: 'Drops' },
  { id: 'limits', title: 'Limits' },
  { id: 'balancer', title: 'Balancer' },
  { id: 'events', title: 'Events' },
];
const LINKS = {
  live: ['live', 'good', '●'], connecting: ['connecting', 'calm', '○'], lost: ['not reached', 'bad', '▼'],
  paused: ['paused', 'calm', '○'], locked: ['locked', 'warn', '■'],
};
/** QUIET is for how many seconds the balancer may say nothing before that is said. */
const QUIET = 8;
const acts = { ...services.acts, ...events.acts, ...actions.acts, reload: () => location.reload() };

const main = document.getElementById('main');
let shown = null;
let shownAt = null;

/** parts are those of the address behind #/. */
const parts = () => location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decodeURIComponent);

function viewOf([name, ...rest]) {
  switch (name) {
    case 'service': return rest.length > 1 ? new BackendView(...rest) : new ServiceView(rest[0]);
    case 'drops': return dropsPage();
    case 'limits': return limitsPage();
    case 'balancer': return balancerPage();
    case 'events': return new events.EventView();
    default: return new Overview();
  }
}

/** draw shows everything as it is now. */
function draw() {
  note();
  drawFrame();
  actions.draw();
  const locked = link.state === 'locked' || !model.status;
  const at = locked ? `- ${link.state}` : location.hash;
  if (at !== shownAt) {
    if (shown) shown.close();
    shown = locked ? waiting() : viewOf(parts());
    shownAt = at;
    main.replaceChildren(shown.element);
  }
  try {
    shown.update();
  } catch (error) {
    // What the page cannot draw is the page's fault, and not the link's.
    reportError(error);
    show(shown.element, h('p', { class: 'notice bad', role: 'alert' }, h('b', {}, 'Not drawn: '), `this page cannot draw what the balancer says (${error.message}). Other views may work; `,
      h('code', {}, 'jeoul status'), ' has it all.'));
  }
}

/** waiting is what is shown before there is a status. */
function waiting() {
  const element = h('div', { class: 'waiting' });
  return {
    element,
    close() {},
    update() {
      if (link.state !== 'locked') {
        show(element, h('p', {}, link.state === 'lost' ? `The balancer is not reached: ${link.why}. It is tried again.` : 'Asking the balancer…'));
        return;
      }
      show(element, h('form', { 'data-act': 'login', class: 'login' },
        h('h2', {}, 'Who asks?'), h('p', {}, link.why),
        h('label', {}, 'Token', h('input', { type: 'password', name: 'token', id: 'token', autocomplete: 'off', required: true })),
        h('button', { type: 'submit', class: 'primary' }, 'Show the balancer'),
        h('p', { class: 'aside' }, 'jeoul token makes one for the API over TCP, and jeoul dashboard prints one in its link. It stays in this tab until that is closed.')));
    },
  };
}

function drawFrame() {
  const { session, status } = model;
  const [current] = parts();
  document.getElementById('host').textContent = session ? session.host : 'Jeoul';
  const bad = status ? status.problems.length + Object.values(model.totals).reduce((n, t) => n + troubled(t), 0) : 0;
  document.title = `${bad > 0 ? `(${bad}) ` : ''}${session ? `${session.host} · ` : ''}Jeoul`;
  show(document.getElementById('about'), session && `Jeoul ${session.version}`, status && ` · ${status.hook.name} on ${status.interface} · up ${duration(model.now() - Date.parse(status.started) / 1000)}`);
  show(document.getElementById('views'), VIEWS.map((v, i) => h('a', { href: `#/${v.id}`, 'data-key': v.id, 'aria-keyshortcuts': i + 1,
    'aria-current': (current || 'services') === v.id || (current === 'service' && v.id === 'services') ? 'page' : null }, v.title)));
  const quiet = silence();
  const [word, tone, mark] = quiet > QUIET ? [`silent for ${duration(quiet)}`, 'warn', '◐'] : LINKS[link.state];
  show(document.getElementById('link'), session && h('span', { class: 'who' }, `${session.client} · ${session.role}`),
    pill(word, tone, mark, link.why), link.state === 'lost' && h('span', { class: 'why' }, `for ${duration((performance.now() - link.since) / 1000)}: ${link.why}`),
    link.upgraded && h('button', { type: 'button', 'data-act': 'reload' }, `${link.upgraded} runs now: reload this page`));
}

/** act does what an element's data-act names. */
function act(event, target) {
  const name = target.dataset.act;
  if (event.type === 'submit') event.preventDefault();
  if (name === 'login') {
    login(target.elements.token.value);
    return;
  }
  if (acts[name]) {
    acts[name](target);
    draw();
  }
}

function listenTo(kind, fits) {
  document.addEventListener(kind, (event) => {
    const target = event.target.closest && event.target.closest('[data-act]');
    if (target && fits(target)) act(event, target);
  });
}

listenTo('click', (t) => t.tagName === 'BUTTON');
listenTo('input', (t) => t.tagName === 'INPUT' && t.type === 'search');
listenTo('change', (t) => t.tagName === 'SELECT' || t.type === 'checkbox' || t.type === 'radio');
listenTo('submit', (t) => t.tagName === 'FORM');

addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector('dialog[open]')) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) location.hash = `#/${view.id}`;
  else if (event.key === '/' && document.getElementById('filter')) {
    event.preventDefault();
    document.getElementById('filter').focus();
  }
});
addEventListener('hashchange', () => {
  token.take();
  draw();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

token.take();
draw();
start(draw);
// Times go on between statuses.
setInterval(() => { if (link.state !== 'live' || silence() > QUIET / 2) drawFrame(); }, 1000);
