// The patient of a day: which mistake, in which program, and four answers to choose from.

/** Mistakes whose maps nobody takes for one another; a test holds them apart. */
export const PATIENTS = [
  "softmax-over-queries", "softmax-over-heads", "softmax-over-map", "softmax-twice",
  "no-scale", "scale-twice", "scale-multiplied", "scale-after-softmax",
  "scores-transposed", "key-transposed-by-view", "split-by-view", "split-interleaved",
  "no-projection", "fill-positive", "fill-zero",
  "mask-after-softmax", "fill-thrown-away", "mask-inverted", "mask-of-first-sequence",
  "causal-blocks-diagonal", "causal-sees-next", "causal-only-diagonal",
  "causal-ignored", "padding-on-queries", "padding-inverted", "padding-ignored", "masks-xor",
];

/** A number from 0 to 1 for each call, the same ones for the same text. */
function drawn(text) {
  let state = [...text].reduce((hash, c) => Math.imul(hash ^ c.charCodeAt(0), 16777619) >>> 0, 2166136261);
  return () => { // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

function shuffled(list, next) {
  const found = [...list];
  for (let i = found.length - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [found[i], found[j]] = [found[j], found[i]];
  }
  return found;
}

/** The number of a day's program: each once in six days, never one two days in a row. */
function styleOf(days) {
  const order = (week) => shuffled([0, 1, 2, 3, 4, 5], drawn(`programs ${week}`));
  const week = Math.floor(days / 6);
  const now = order(week);
  if (now[0] === order(week - 1)[5]) [now[0], now[1]] = [now[1], now[0]];
  return now[days - 6 * week];
}

/** {name, at: the number of the program, answers: four names} of a date, "2026-03-01". */
export function patientOf(date) {
  const days = Math.round(Date.parse(`${date}T00:00:00Z`) / 86400000);
  const round = Math.floor(days / PATIENTS.length); // each comes once before one comes again
  const order = shuffled(PATIENTS, drawn(`round ${round}`));
  const name = order[days - round * PATIENTS.length];
  const next = drawn(date);
  const at = styleOf(days);
  const others = shuffled(PATIENTS.filter((x) => x !== name), next).slice(0, 3);
  return { name, at, answers: shuffled([name, ...others], next) };
}

export const isDate = (text) => /^\d{4}-\d{2}-\d{2}$/.test(text) &&
  new Date(`${text}T00:00:00Z`).toJSON()?.slice(0, 10) === text;

const two = (n) => `${n}`.padStart(2, "0");

/** The date of the reader's clock. */
export function today(now = new Date()) {
  return `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
}

/** The date so many days after another one. */
export function daysAfter(date, days) {
  return new Date(Date.parse(`${date}T00:00:00Z`) + 86400000 * days).toJSON().slice(0, 10);
}

const MONTHS = "January February March April May June July August September October November December".split(" ");

/** "1 March 2026"; the browser's own dates take a frame when they are first asked for. */
export function written(date) {
  const [year, month, day] = date.split("-").map(Number);
  return `${day} ${MONTHS[month - 1]} ${year}`;
}
