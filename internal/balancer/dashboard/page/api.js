// SPDX-License-Identifier: Apache-2.0

// What asks the balancer's API: with the token of this tab, or with the browser's client certificate.

const KEY = 'jeoul-token';

/** A Refusal is an answer of the API, or of what is before it, that is no success. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** token is what this tab shows; it ends with the tab. */
export const token = {
  get: () => sessionStorage.getItem(KEY) || '',
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
  /** take keeps the token of an address like #token=…, and takes it out of the address. */
  take() {
    const found = /^#token=([\w.~+/=-]+)$/.exec(location.hash);
    if (!found) return;
    token.set(found[1]);
    history.replaceState(null, '', location.pathname);
  },
};

function headers(more) {
  const all = { ...more };
  if (token.get()) all.Authorization = `Bearer ${token.get()}`;
  return all;
}

async function send(path, options) {
  const response = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options, headers: headers(options && options.headers) });
  if (response.ok) return response;
  let detail = `${response.status} ${response.statusText}`;
  try {
    detail = (await response.json()).detail || detail;
  } catch {
    // It is not the API's; the status says enough.
  }
  throw new Refusal(response.status, detail);
}

/** get asks for something. */
export const get = async (path, signal) => (await send(path, { signal })).json();

/** post asks for a change. */
export const post = async (path, body) =>
  (await send(path, { method: 'POST', body: JSON.stringify(body || {}), headers: { 'Content-Type': 'application/json' } })).json();

/** ofBackend is the path of a backend. */
export const ofBackend = (service, backend) => `/v1/services/${encodeURIComponent(service)}/backends/${encodeURIComponent(backend)}`;

/**
 * listen reads server-sent events until the stream ends, which is an error, or the signal aborts it. EventSource cannot send a
 * token.
 */
export async function listen(path, last, signal, tell) {
  const response = await send(path, { signal, headers: last ? { 'Last-Event-ID': last } : {} });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('the balancer has closed the connection');
    const end = value.lastIndexOf('\n\n');
    const joins = length > 0 && parts.at(-1).endsWith('\n') && value.startsWith('\n');
    parts.push(value);
    length += value.length;
    if (end < 0 && !joins) continue;
    const text = parts.join('');
    const cut = text.lastIndexOf('\n\n') + 2;
    for (const block of text.slice(0, cut).split('\n\n')) emit(block, tell);
    parts = cut < text.length ? [text.slice(cut)] : [];
    length = text.length - cut;
  }
}

function emit(block, tell) {
  let kind = '';
  let id = '';
  let data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) kind = line.slice(7);
    else if (line.startsWith('id: ')) id = line.slice(4);
    else if (line.startsWith('data: ')) data = line.slice(6);
  }
  if (kind) tell(kind, JSON.parse(data), id);
}
