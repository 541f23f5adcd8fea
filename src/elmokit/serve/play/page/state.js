// What the page shows, kept in the address after #: a link to it shows the same.

const listeners = new Set();
const values = new Map();
const defaults = new Map();

// A room's own values are called "room.name". All are strings, numbers or lists of numbers, as their default is.
export function define(name, value) {
  defaults.set(name, value);
  if (!values.has(name)) values.set(name, value);
}

function read(text, like) {
  if (Array.isArray(like)) {
    const list = text.split(",").map(Number);
    return list.length && list.every(Number.isFinite) ? list : like;
  }
  if (typeof like === "number") return text.trim() && Number.isFinite(Number(text)) ? Number(text) : like;
  return text;
}

export function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of defaults) {
    values.set(name, found.has(name) ? read(found.get(name), value) : value);
  }
}

export function writeAddress() {
  const kept = new URLSearchParams();
  for (const [name, value] of values) {
    if (String(value) !== String(defaults.get(name))) kept.set(name, String(value));
  }
  const hash = kept.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

export const get = (name) => values.get(name);

export function set(changes) {
  const changed = Object.entries(changes).filter(([name, value]) => String(values.get(name)) !== String(value));
  if (!changed.length) return;
  for (const [name, value] of changed) values.set(name, value);
  writeAddress();
  for (const listener of listeners) listener(changed.map(([name]) => name));
}

export const onChange = (listener) => listeners.add(listener);
