// What is computed of numbers and lists, and what they must be. No drawing here.

/** A requirement that the data does not meet; its message is shown in the widget. */
export class Problem extends Error {}

export function need(condition, message) {
  if (!condition) throw new Problem(message);
}

const MINUS = "−";

export function fixed(x, digits = 2) {
  if (!Number.isFinite(x)) return x > 0 ? "∞" : x < 0 ? `${MINUS}∞` : "not a number";
  return x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", MINUS);
}

/** How large a nested list is, or null where its rows differ in length. */
export function shapeOf(nested) {
  if (!Array.isArray(nested)) return [];
  const shapes = nested.map(shapeOf);
  if (shapes.some((shape) => !shape || shape.join() !== shapes[0].join())) return null;
  return [nested.length, ...(shapes[0] ?? [])];
}

export function needArray(nested, what, rank, { finite = true } = {}) {
  const shape = shapeOf(nested);
  need(shape && shape.length === rank, `${what} must have ${rank} axes of even length.`);
  need(shape.every((n) => n > 0), `${what} is empty: its shape is (${shape.join(", ")}).`);
  const numeric = nested.flat(rank - 1).every((x) => (finite ? Number.isFinite(x) : typeof x === "number"));
  need(numeric, `${what} holds something that is not a finite number.`);
  return shape;
}

/** softmax of one row of scores; a row that hides everything gives zeros. */
export function softmax(scores, allowed = null) {
  const visible = (s) => allowed === null || allowed[s];
  const highest = scores.reduce((m, x, s) => (visible(s) && x > m ? x : m), -Infinity);
  const powers = scores.map((x, s) => (visible(s) ? Math.exp(x - highest) : 0));
  const total = powers.reduce((sum, x) => sum + x, 0);
  return total ? powers.map((x) => x / total) : powers;
}

export const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
export const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
/** a (n, d) times b (m, d) transposed: every row of one with every row of the other. */
export const products = (a, b) => a.map((row) => b.map((other) => dot(row, other)));
export const range = (n) => Array.from({ length: n }, (_, i) => i);
