// A widget's state in the address of the page, so that a state can be sent to others.

/** Values as letters that an address may hold. */
export function packed(values) {
  const bytes = new TextEncoder().encode(JSON.stringify(values));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** What `packed` made, read again; null where it is anything else. */
export function unpacked(text) {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return null;
  }
}

const kind = (x) => (Array.isArray(x) ? "array" : x === null ? "null" : typeof x);

/** Of what an address holds, only traits of the lesson, each of its own kind; null if none of it is. */
export function acceptable(values, lesson) {
  if (kind(values) !== "object") return null;
  if (!Object.keys(values).length) return values; // nothing was changed
  const known = Object.entries(values).filter(([trait, x]) =>
    Object.hasOwn(lesson, trait) && kind(x) === kind(lesson[trait]));
  return known.length ? Object.fromEntries(known) : null;
}

/** The traits that are no longer what the lesson gave. */
export function changed(now, lesson) {
  return Object.fromEntries(Object.entries(now).filter(([trait, x]) =>
    JSON.stringify(x) !== JSON.stringify(lesson[trait])));
}
