// A decoder-only transformer, one token after the other, keys and values kept.

const EPSILON = 1e-5; // of a norm, torch's default

/** y = W x + b, W (n, m) in rows, into `to` from `at` on. */
function linear(to, at, W, b, x, from, rows, columns) {
  for (let i = 0; i < rows; i++) {
    const row = i * columns;
    let sum = b ? b[i] : 0;
    for (let j = 0; j < columns; j++) sum += W[row + j] * x[from + j];
    to[at + i] = sum;
  }
}

function norm(to, x, weight, bias) {
  const n = x.length;
  let [mean, variance] = [0, 0];
  for (let i = 0; i < n; i++) mean += x[i] / n;
  for (let i = 0; i < n; i++) variance += (x[i] - mean) ** 2 / n;
  const scale = 1 / Math.sqrt(variance + EPSILON);
  for (let i = 0; i < n; i++) to[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

const LAST = 8; // beyond, the share of a normal distribution below x is 0 or 1

/** x Φ(x), Φ by the series of Marsaglia (2004): as exact as the numbers are. */
export function gelu(x) {
  if (Math.abs(x) > LAST) return x > 0 ? x : 0;
  let [sum, term] = [x, x];
  for (let n = 3; Math.abs(term) > 1e-14 * Math.abs(sum); n += 2) {
    term *= (x * x) / n;
    sum += term;
  }
  return x * (0.5 + (sum * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI));
}

/** log Σ exp of one row. */
function leastOf(logits) {
  let [highest, total] = [-Infinity, 0];
  for (let i = 0; i < logits.length; i++) if (logits[i] > highest) highest = logits[i];
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i] - highest);
  return highest + Math.log(total);
}

/**
 * A model at work. `read(tokens)` makes it know what these tokens lead to; what it knew
 * of the same beginning is kept, so that one token more costs one token.
 *
 * `heads` are those that are switched off, as layer · H + head: they add nothing, as with
 * `mha_lib.model.heads.removed`.
 */
export function makeRunner({ sizes, tensors }, heads = []) {
  const { vocabulary: W, context, embed_dim: E, num_heads: H, num_layers: L } = sizes;
  const D = E / H;
  const hidden = sizes.feed_forward ?? 4 * E;
  const off = new Set(heads);
  const blocks = Array.from({ length: L }, (_, l) => (name) => tensors[`blocks.${l}.${name}`]);
  const parts = blocks.map((of) => ({
    norm: [of("attention_norm.weight"), of("attention_norm.bias")],
    in: [of("attention.in_proj.weight"), of("attention.in_proj.bias")],
    out: [of("attention.out_proj.weight"), of("attention.out_proj.bias")],
    middle: [of("feed_forward_norm.weight"), of("feed_forward_norm.bias")],
    up: [of("feed_forward.0.weight"), of("feed_forward.0.bias")],
    down: [of("feed_forward.2.weight"), of("feed_forward.2.bias")],
  }));
  const kept = blocks.map(() => ({ k: new Float64Array(context * E), v: new Float64Array(context * E) }));
  const [x, y, added] = [new Float64Array(E), new Float64Array(E), new Float64Array(E)];
  const [qkv, mixed, wide] = [new Float64Array(3 * E), new Float64Array(E), new Float64Array(hidden)];
  const known = []; // for each token: {token, logits, maps: a row for each layer and head}

  /** softmax(q·k / √D) of one head's newest query; its mix of values into `mixed`. */
  function attend({ k, v }, t, h) {
    const row = new Float64Array(t + 1);
    let [highest, total] = [-Infinity, 0];
    for (let s = 0; s <= t; s++) {
      let score = 0;
      for (let d = h * D; d < (h + 1) * D; d++) score += qkv[d] * k[s * E + d];
      row[s] = score / Math.sqrt(D);
      if (row[s] > highest) highest = row[s];
    }
    for (let s = 0; s <= t; s++) total += row[s] = Math.exp(row[s] - highest);
    for (let s = 0; s <= t; s++) row[s] /= total;
    for (let d = h * D; d < (h + 1) * D; d++) {
      mixed[d] = 0;
      for (let s = 0; s <= t; s++) mixed[d] += row[s] * v[s * E + d];
    }
    return row;
  }

  function step(token) {
    const t = known.length;
    const [tokenRow, placeRow] = [tensors["token_embedding.weight"], tensors["place_embedding.weight"]];
    for (let i = 0; i < E; i++) x[i] = tokenRow[token * E + i] + placeRow[t * E + i];
    const maps = [];
    parts.forEach((part, l) => {
      norm(y, x, ...part.norm);
      linear(qkv, 0, ...part.in, y, 0, 3 * E, E);
      kept[l].k.set(qkv.subarray(E, 2 * E), t * E);
      kept[l].v.set(qkv.subarray(2 * E), t * E);
      for (let h = 0; h < H; h++) {
        maps.push(attend(kept[l], t, h));
        if (off.has(l * H + h)) mixed.fill(0, h * D, (h + 1) * D);
      }
      linear(added, 0, ...part.out, mixed, 0, E, E);
      for (let i = 0; i < E; i++) x[i] += added[i];
      norm(y, x, ...part.middle);
      linear(wide, 0, ...part.up, y, 0, hidden, E);
      for (let i = 0; i < hidden; i++) wide[i] = gelu(wide[i]);
      linear(added, 0, ...part.down, wide, 0, E, hidden);
      for (let i = 0; i < E; i++) x[i] += added[i];
    });
    norm(y, x, tensors["norm.weight"], tensors["norm.bias"]);
    const logits = new Float64Array(W);
    linear(logits, 0, tensors["token_embedding.weight"], null, y, 0, W, E);
    known.push({ token, logits, maps });
  }

  /** Tokens, at most `context` → of each {token, logits, maps}. */
  function read(tokens) {
    if (tokens.length > context) throw new RangeError(`at most ${context} tokens; got ${tokens.length}`);
    let same = 0;
    while (same < Math.min(known.length, tokens.length) && known[same].token === tokens[same]) same++;
    if (same < tokens.length) known.length = same; // else what follows may be asked for again
    for (const token of tokens.slice(same)) step(token);
    return known.slice(0, tokens.length);
  }
  return { read, off: [...off], sizes };
}

/** −log p of each token but the first, in nats. */
export const surprises = (read) =>
  read.slice(1).map(({ token }, t) => {
    read[t].least ??= leastOf(read[t].logits); // once for each token that is kept
    return read[t].least - read[t].logits[token];
  });

/** Their mean, or null of a single token: there is nothing to predict. */
export function lossOf(read) {
  const each = surprises(read);
  return each.length ? each.reduce((a, b) => a + b, 0) / each.length : null;
}

/** softmax(logits / temperature); at 0 the likeliest token alone. */
export function chances(logits, temperature) {
  if (temperature === 0) {
    const best = logits.indexOf(Math.max(...logits));
    return Float64Array.from(logits, (_, i) => (i === best ? 1 : 0));
  }
  const scaled = logits.map((x) => x / temperature);
  const least = leastOf(scaled);
  return scaled.map((x) => Math.exp(x - least));
}

/** A number in 0…1 that depends on seed and place alone: mulberry32, mixed. */
export function chance(seed, place) {
  let a = (Math.imul(seed + 1, 0x9e3779b1) + Math.imul(place + 1, 0x85ebca6b)) | 0;
  a = Math.imul(a ^ (a >>> 15), a | 1);
  a ^= a + Math.imul(a ^ (a >>> 7), a | 61);
  return ((a ^ (a >>> 14)) >>> 0) / 4294967296;
}

/** The token that a number in 0…1 falls upon. */
export function draw(probabilities, number) {
  let sum = 0;
  const found = probabilities.findIndex((p) => (sum += p) > number);
  return found < 0 ? probabilities.indexOf(Math.max(...probabilities)) : found;
}

/** The likeliest tokens that follow, one after the other, while there is room. */
export function goOn(runner, tokens, count) {
  const all = [...tokens];
  while (all.length < Math.min(tokens.length + count, runner.sizes.context)) {
    const { logits } = runner.read(all).at(-1);
    all.push(logits.indexOf(Math.max(...logits)));
  }
  return all.slice(tokens.length);
}
