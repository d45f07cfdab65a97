// SPDX-License-Identifier: Apache-2.0

// Elements are made from values here, and nowhere from markup: what a configuration names stays text.

const SVG = 'http://www.w3.org/2000/svg';

/** h returns an element with attributes and children; strings become text, and null, undefined and false nothing. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** svg is h for the elements of a drawing. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(document.createTextNode(String(child)));
  }
}

/**
 * show makes the children of an element equal to those given. It changes what is there in place, so that focus,
 * selection and scroll positions stay. Children with data-key stay the same elements wherever they move; what is inside an element
 * with data-keep is left alone.
 */
export function show(element, ...children) {
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  const focused = document.activeElement;
  become(element, wanted);
  // An element that is moved loses the focus.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function become(element, wanted) {
  const keyed = new Map();
  for (const child of element.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = element.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset && next.dataset.key;
    let old = key ? keyed.get(key) : at;
    if (!key && old && old.dataset && old.dataset.key) old = null;
    if (!old || old.nodeName !== next.nodeName) {
      element.insertBefore(next, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else element.insertBefore(old, at);
    if (key) keyed.delete(key);
    equalise(old, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function equalise(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  if (!('keep' in next.dataset)) become(old, next);
}
