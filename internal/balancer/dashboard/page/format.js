// SPDX-License-Identifier: Apache-2.0

// How figures, sizes and times are written: one way for the whole page.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const DASH = '–';

/** count writes a whole number, as in 12,345. */
export const count = (n) => (n === null || n === undefined || !Number.isFinite(n) ? DASH : whole.format(n));

const STEPS = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

/** short writes a number in few characters, as in 12.3k. */
export function short(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return DASH;
  for (const [step, sign] of STEPS) if (n >= step * 0.9995) return trim(n / step) + sign;
  return trim(n);
}

function trim(n) {
  if (n === 0) return '0';
  if (n >= 99.95) return n.toFixed(0);
  if (n >= 9.995) return n.toFixed(1).replace(/\.0$/, '');
  return n.toFixed(n >= 1 ? 1 : 2).replace(/\.?0+$/, '') || '0';
}

/** rate writes how often something happens: 12.3k/s. */
export const rate = (n) => (Number.isFinite(n) && n !== null ? `${short(n)}/s` : DASH);

/** bits writes bytes a second as bits a second: 1.2 Gbit/s. */
export function bits(bytes) {
  if (bytes === null || !Number.isFinite(bytes)) return DASH;
  const text = short(bytes * 8);
  const sign = /[TGMk]$/.exec(text);
  return sign ? `${text.slice(0, -1)} ${sign[0]}bit/s` : `${text} bit/s`;
}

/** size writes bytes: 1.2 MiB. */
export function size(bytes) {
  let n = bytes;
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return `${trim(n)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][i]}`;
}

/** percent writes a part of 1. */
export const percent = (part) => (Number.isFinite(part) ? `${part >= 0.0995 ? (part * 100).toFixed(0) : trim(part * 100)} %` : DASH);

/** duration writes seconds in at most two units: 2 h 5 min. */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 && s < 600 ? ` ${s % 60} s` : ''}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)} min` : ''}`;
  return `${Math.floor(s / 86400)} d${Math.floor((s % 86400) / 3600) ? ` ${Math.floor((s % 86400) / 3600)} h` : ''}`;
}

/** fine writes a short time: 1.3 ms. */
export function fine(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  if (seconds >= 1) return `${trim(seconds)} s`;
  return seconds >= 0.001 ? `${trim(seconds * 1000)} ms` : `${trim(seconds * 1e6)} µs`;
}

/** seconds returns a time of the API in seconds of Unix time; NaN where there is none. */
export const seconds = (text) => Date.parse(text) / 1000;

/** clock writes a time of the API as the time of day, with the date where that is another than now's. */
export function clock(text, now) {
  const at = new Date(text);
  if (Number.isNaN(at.valueOf())) return DASH;
  const time = at.toLocaleTimeString('en-GB');
  return now && new Date(now * 1000).toDateString() === at.toDateString() ? time : `${at.toLocaleDateString('en-CA')} ${time}`;
}

/** endpoint writes an address with a port. */
export const endpoint = (address, port) => (address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`);

/** plural writes a number and a word: 1 backend, 2 backends. */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
