// SPDX-License-Identifier: Apache-2.0

// Drain, disable, enable and weigh a backend: what each will do is said before it is done, and why not where it is not.

import { ofBackend, post } from './api.js';
import { h, show } from './dom.js';
import { count, duration, percent, plural } from './format.js';
import { model, serving, stateOf } from './model.js';
import { notice, statePill } from './parts.js';

const dialog = document.getElementById('dialog');
const ROLES = ['read', 'operate', 'configure'];

/** asked is the change that the dialog is about; null: it is closed. */
let asked = null;

/** may says whether who looks may change backends. */
const may = () => Boolean(model.session) && ROLES.indexOf(model.session.role) >= ROLES.indexOf('operate');

/** verbs are the changes: what each is called, and what it will do. */
const verbs = {
  drain: {
    title: 'Drain', button: 'Drain',
    says: (s, b) => `It gets no new connection and keeps those that it has (${left(s, b)}). ${others(s, b)}`,
    fields: () => h('label', { class: 'field' }, 'Out of service after ', h('input', { name: 'minutes', type: 'number', min: 0, max: 527040, step: 'any', placeholder: 'no deadline' }), ' minutes, with what is left then'),
    body: (form) => (form.minutes.value ? { deadline_seconds: Number(form.minutes.value) * 60 } : {}),
  },
  disable: {
    title: 'Disable', button: 'Disable', danger: true,
    says: (s, b) => `It is out of its service at once, and the connections that it has end (${left(s, b)}): their packets go to other backends, which reset them. ${others(s, b)}`,
  },
  enable: {
    title: 'Enable', button: 'Enable',
    says: (s, b) => (b.drain || b.forced || b.state === 'out' || b.state === 'draining'
      ? 'It gets new connections again, if its health checks let it.' : 'It is neither drained nor disabled. Enabled by force, it gets new connections whatever its health checks say.'),
    fields: () => h('label', { class: 'field' }, h('input', { name: 'force', type: 'checkbox' }), 'by force: also while its health checks fail'),
    body: (form) => (form.force.checked ? { force: true } : {}),
  },
  weight: {
    title: 'Weight', button: 'Set the weight',
    says: (s, b) => `Its share of new connections changes; connections that there are stay. Its weight is ${count(b.weight)} now, ${percent(weightShare(s, b))} of those that serve. 0 takes no new connection.`,
    fields: (s, b) => h('label', { class: 'field' }, 'Weight ', h('input', { name: 'weight', type: 'number', min: 0, max: 65535, step: 1, required: true, placeholder: b.weight })),
    body: (form) => ({ weight: Number(form.weight.value) }),
  },
};

function left(service, b) {
  return service.tracked || service.proxy ? `${count(b.active)} active` : `${count(b.flows)} remembered; others are not counted`;
}

function weightShare(service, b) {
  const sum = service.backends.reduce((n, one) => n + (serving(one) ? one.weight : 0), 0);
  return sum > 0 && serving(b) ? b.weight / sum : 0;
}

/** others says who gets the new connections then. */
function others(service, b) {
  const rest = service.backends.filter((one) => one.name !== b.name && serving(one));
  return rest.length > 0 ? `New connections go to ${plural(rest.length, 'other backend')}.` : 'No other backend takes new connections: the balancer will refuse this.';
}

/** open asks what to do with a backend. */
function open(target) {
  asked = { service: target.dataset.service, backend: target.dataset.backend, verb: '', refused: '', done: '', busy: false };
  draw();
  dialog.showModal();
}

/** draw shows the dialog as it is now. */
export function draw() {
  if (!asked) return;
  const service = model.service(asked.service);
  const b = service && service.backends.find((one) => one.name === asked.backend);
  show(dialog, h('form', { 'data-act': 'commit', class: 'change' },
    h('h2', { id: 'dialog-title' }, `${asked.service}/${asked.backend}`),
    b ? h('p', {}, statePill(b), ` ${stateOf(b).says}`) : notice('warn', 'Not there', 'the balancer has no such backend now'),
    !may() && notice('warn', 'You may only look', `${model.session ? model.session.client : 'you'} has the role ${model.session ? model.session.role : '–'}; a change needs operate`),
    b && h('fieldset', {}, h('legend', {}, 'What is to be done?'), Object.entries(verbs).map(([name, verb]) =>
      h('label', { class: 'choice' }, h('input', { type: 'radio', name: 'verb', value: name, 'data-act': 'verb' }), verb.title))),
    b && asked.verb && h('div', { 'data-key': `says-${asked.verb}`, class: 'says' }, h('p', {}, verbs[asked.verb].says(service, b)), verbs[asked.verb].fields && verbs[asked.verb].fields(service, b)),
    h('div', { role: 'status', 'aria-live': 'polite' }, asked.refused && notice('bad', 'Refused', asked.refused, 'refused'), asked.done && notice('good', 'Done', asked.done, 'done')),
    h('div', { class: 'buttons' }, h('button', { type: 'button', 'data-act': 'dismiss' }, asked.done ? 'Close' : 'Leave it as it is'),
      asked.verb && !asked.done && h('button', { type: 'submit', class: verbs[asked.verb].danger ? 'danger' : 'primary', disabled: asked.busy }, verbs[asked.verb].button))));
}

async function commit(form) {
  if (!asked || asked.busy || !asked.verb) return;
  const mine = asked;
  const verb = verbs[mine.verb];
  mine.busy = true;
  mine.refused = '';
  draw();
  try {
    const done = await post(`${ofBackend(mine.service, mine.backend)}/${mine.verb}`, verb.body ? verb.body(form.elements) : {});
    mine.done = [`${verb.title.toLowerCase()} ${mine.service}/${mine.backend}`,
      done.deadline && `out in ${duration((Date.parse(done.deadline) / 1000) - model.now())}`, ...(done.notes || [])].filter(Boolean).join('; ');
  } catch (error) {
    mine.refused = error.message;
  }
  mine.busy = false;
  draw();
}

dialog.setAttribute('aria-labelledby', 'dialog-title');
// The event comes some time after the dialog has closed, when another backend's may be open.
dialog.addEventListener('close', () => { if (!dialog.open) asked = null; });

/** acts are what the dialog's controls, and those that open it, do. */
export const acts = {
  change: open,
  verb(target) {
    if (!asked) return;
    asked.verb = target.value;
    asked.refused = '';
    asked.done = '';
    draw();
  },
  dismiss: () => dialog.close(),
  commit,
};
