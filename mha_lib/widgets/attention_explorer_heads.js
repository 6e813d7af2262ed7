// What the maps of a layer's heads are, and how much each is like a pattern with a name.
import { products, softmax } from "./arithmetic.js";

/** The maps of one layer: weights, and scores where q and k are there. */
export function layerMaps({ weights, q, k, mask }, layer) {
  if (!q.length) return { weights: weights[layer], scores: null };
  const scale = 1 / Math.sqrt(q[layer][0][0].length);
  const scores = q[layer].map((head, i) =>
    products(head, k[layer][i]).map((row) => row.map((x) => x * scale)));
  const allowed = (head, t) => (mask.length ? mask[mask.length > 1 ? head : 0][t] : null);
  return { scores, weights: scores.map((map, head) => map.map((row, t) => softmax(row, allowed(head, t)))) };
}

/** Patterns: at which key a query looks, and what to call it. Query 0 has no choice. */
export const PATTERNS = {
  before: { key: (t) => t - 1, name: "the one before" },
  first: { key: () => 0, name: "the first" },
  itself: { key: (t) => t, name: "itself" },
};

/** The mean weight that a head gives to the keys of a pattern. */
export function likeness(map, { key }) {
  const rows = map.slice(1);
  return rows.reduce((sum, row, i) => sum + row[key(i + 1)], 0) / rows.length;
}

/** Where a row is largest, the largest first; of equals the first. */
export function largestOf(row, count) {
  return [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, count);
}
