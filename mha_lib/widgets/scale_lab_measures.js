// What a divisor makes of dot products: scores, weights, entropy, the slopes of softmax.
import { fixed, range, softmax } from "./arithmetic.js";

/** The powers of two up to the longest vector, and that length itself. */
export function headSizes(most) {
  const powers = range(Math.floor(Math.log2(most)) + 1).map((i) => 2 ** i);
  return powers.at(-1) === most ? powers : [...powers, most];
}

/** For every D of `sizes`: q·k of the first D entries, [query][key], and their variance. */
export function dotProducts(q, k, sizes) {
  const found = sizes.map(() => q.map(() => new Array(k.length)));
  q.forEach((a, t) => k.forEach((b, s) => {
    let sum = 0;
    let d = 0;
    sizes.forEach((D, i) => {
      for (; d < D; d++) sum += a[d] * b[d];
      found[i][t][s] = sum;
    });
  }));
  return found.map((rows) => ({ rows, spread: variance(rows.flat()) }));
}

export function mean(row) {
  return row.reduce((sum, x) => sum + x, 0) / row.length;
}

/** The middle one; of an even number the lower of the two, as torch takes it. */
export function median(row) {
  return [...row].sort((a, b) => a - b)[Math.floor((row.length - 1) / 2)];
}

export function variance(row) {
  const middle = mean(row);
  return row.reduce((sum, x) => sum + (x - middle) ** 2, 0) / (row.length - 1);
}

/** Entropy in nats; 0 ln 0 counts as 0. */
export function entropy(weights) {
  return -weights.reduce((sum, w) => (w > 0 ? sum + w * Math.log(w) : sum), 0);
}

/**
 * The norm of the Jacobian diag(w) − w wᵀ. The largest weight stands apart, with 1 − w
 * as the sum of the others: near 1, differences of squares would be rounding alone.
 */
export function slope(weights) {
  const best = weights.indexOf(Math.max(...weights));
  let [rest, squares, own] = [0, 0, 0];
  weights.forEach((w, s) => {
    if (s === best) return;
    rest += w;
    squares += w * w;
    own += w * w * (1 - 2 * w);
  });
  return Math.sqrt(weights[best] ** 2 * (rest ** 2 + 2 * squares) + own + squares ** 2);
}

/** What one divisor makes of the dot products of one D; a list has an entry a query. */
export function measure({ rows, spread }, divisor) {
  const scores = rows.map((row) => row.map((x) => x / divisor));
  const weights = scores.map((row) => softmax(row));
  return {
    divisor, scores, weights,
    variance: spread / divisor ** 2,
    largest: weights.map((row) => Math.max(...row)),
    nats: weights.map(entropy),
    norm: weights.map(slope),
  };
}

// --- numbers as text --------------------------------------------------------------------

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** Three digits that count: 64.3, 0.0123, 1.23·10⁻⁷. */
export function short(x) {
  const size = Math.abs(x);
  if (size === 0 || (size >= 1e-4 && size < 1e6)) {
    const digits = size ? Math.max(0, 2 - Math.floor(Math.log10(size))) : 0;
    return fixed(x, digits);
  }
  const [number, power] = x.toExponential(2).split("e");
  return `${fixed(Number(number))}·10${raised(Number(power))}`;
}

/** As few digits as tell it: 8, 0.5, 2.83. */
export const plain = (x) => x && Math.abs(x) < 0.01 ? short(x) : fixed(x, 3).replace(/\.?0+$/, "") || "0";

/** A power as small digits above the line. */
export function raised(power) {
  const digits = [...`${Math.abs(power)}`].map((digit) => SUPERSCRIPT[digit]).join("");
  return `${power < 0 ? "⁻" : ""}${digits}`;
}
