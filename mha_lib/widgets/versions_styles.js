// The six styles, step by step, each in its own layout; where each element lies in it.
import { product, range, shapeOf, softmax } from "./arithmetic.js";
import {
  cat, chunk, each, einsum, elements, permute, reshape, stack, swap, tensor, unstack,
} from "./tensor.js";

// --- what a style computes with ----------------------------------------------------------

const read = (nested) => tensor(nested.flat(Infinity), shapeOf(nested));

export function linear(x, matrix, bias) {
  const leading = x.shape.slice(0, -1);
  const y = einsum("ne,oe->no", reshape(x, [product(leading), x.shape.at(-1)]), matrix);
  const added = elements(bias);
  return each(reshape(y, [...leading, added.length]), (value, i) => value + added[i % added.length]);
}

export function softmaxOver(scores, axis) {
  const last = scores.shape.length - 1;
  const rows = swap(scores, axis, last);
  const [cells, n] = [elements(rows), rows.shape[last]];
  const weights = range(cells.length / n).flatMap((i) => {
    const row = cells.slice(i * n, (i + 1) * n);
    return softmax(row, row.map((x) => x > -Infinity));
  });
  return swap(tensor(weights, rows.shape), axis, last);
}

// --- the six styles, each with its own code, axes and operations -----------------------
// Axes: "h | b t d" is a Python list over h of tensors (b, t, d); (h d) is one axis.

function attend([q, k, v], mask, { scale }, { equations: [first, second], keys }) {
  const scores = einsum(first, each(q, (x) => x * scale), k);
  const seen = mask && elements(mask);
  const masked = mask && each(scores, (x, i) => (seen[i] ? x : -Infinity));
  const weights = softmaxOver(masked ?? scores, keys);
  return { scores, masked, weights, context: einsum(second, weights, v) };
}

const qkv = (x, p) => range(3).map((r) => linear(x, p.matrices[r], p.biases[r]));
const fused = (x, p) => linear(x, cat(p.matrices.slice(0, 3), 0), cat(p.biases.slice(0, 3), 0));
const same = (x) => x;

const BATCHED = {
  axes: {
    x: "b t e", project: "r | b t (h d)", heads: "b h t d", scores: "b h t s",
    merged: "b t (h d)", output: "b t e",
  },
  code: {
    x: "query",
    project: "q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)",
    split: "? = ?.unflatten(-1, (H, D)).transpose(1, 2)",
    scores: "scores = (q * scale) @ k.transpose(-2, -1)",
    mask: "scores = scores.masked_fill(~mask, lowest)",
    weights: "weights = scores.softmax(-1)",
    emptied: ".masked_fill(~mask, 0.0)",
    context: "context = weights @ v",
    merge: "merged = context.transpose(1, 2).flatten(2)",
    output: "output = self.out_proj(merged)",
    returned: "weights",
  },
  projected: "{r}",
  prefix: "",
  contexts: "context",
  equations: ["bhtd,bhsd->bhts", "bhts,bhsd->bhtd"],
  keys: 3,
  turn: same,
  project: (x, p) => stack(qkv(x, p)),
  cut: unstack,
  split: (y, { B, T, H, D }) => swap(reshape(y, [B, T, H, D]), 1, 2),
  mask: same,
  attend,
  merge: (c, { x }) => reshape(swap(c, 1, 2), x.shape),
  finish: same,
  back: same,
};

function style({ axes, code, ...operations }) {
  return { ...BATCHED, ...operations,
    axes: { ...BATCHED.axes, ...axes }, code: { ...BATCHED.code, ...code } };
}

const ROWS = { equations: ["ntd,nsd->nts", "nts,nsd->ntd"], keys: 2 };

export const STYLES = {
  PerHeadMHA: style({
    axes: { project: "h r | b t d", heads: "h | b t d", scores: "h | b t s" },
    code: {
      project: `${BATCHED.code.project}  # in each head`,
      split: "# nothing to split: each head has a ? of its own",
      merge: "merged = torch.cat(contexts, dim=-1)",
      returned: "torch.stack(weights, dim=1)",
    },
    projected: "heads[{h}]: {r}", prefix: "heads[{h}]: ", contexts: "contexts[{h}]",
    project(x, p) {
      const rows = (parts, i) => parts.map((part) => chunk(part, p.H, 0)[i]);
      return stack(range(p.H).map((i) =>
        stack(qkv(x, { matrices: rows(p.matrices, i), biases: rows(p.biases, i) }))));
    },
    cut: (y) => unstack(swap(y, 0, 1)),
    split: same,
    mask: (m) => swap(m, 0, 1),
    attend(parts, mask, p) {
      const [masks, ...heads] = [mask, ...parts].map((y) => y && unstack(y));
      const steps = { equations: ["btd,bsd->bts", "bts,bsd->btd"], keys: 2 };
      const all = range(p.H).map((i) => attend(heads.map((y) => y[i]), masks?.[i], p, steps));
      return Object.fromEntries(Object.keys(all[0]).map((key) =>
        [key, all[0][key] && stack(all.map((head) => head[key]))]));
    },
    merge: (c) => cat(unstack(c), 2),
    back: (w) => swap(w, 0, 1),
  }),
  BatchedMHA: BATCHED,
  FusedMHA: style({
    axes: { project: "b t (r h d)" },
    code: {
      project: "qkv = self.in_proj(query)",
      split: `q, k, v = qkv.chunk(3, dim=-1)\n${BATCHED.code.split}`,
    },
    projected: "qkv", project: fused, cut: (y) => chunk(y, 3, 2),
  }),
  EinsumMHA: style({
    axes: {
      x: "t b e", project: "r | t b (h d)", heads: "t b h d", scores: "t s b h",
      merged: "t b (h d)", output: "t b e",
    },
    code: {
      x: "query = x.transpose(0, 1)  # the caller does it",
      split: "? = ?.unflatten(-1, (H, D))",
      scores: 'scores = torch.einsum("tbhd,sbhd->tsbh", q * scale, k)',
      mask: "scores = scores.masked_fill(~mask[..., None], lowest)",
      weights: "weights = scores.softmax(dim=1)",
      emptied: ".masked_fill(~mask[..., None], 0.0)",
      context: 'context = torch.einsum("tsbh,sbhd->tbhd", weights, v)',
      merge: "merged = context.flatten(-2)",
      returned: "weights.permute(2, 3, 0, 1)",
    },
    equations: ["tbhd,sbhd->tsbh", "tsbh,sbhd->tbhd"], keys: 1,
    turn: (x) => swap(x, 0, 1),
    split: (y, { B, T, H, D }) => reshape(y, [T, B, H, D]),
    mask: (m) => permute(m, [2, 3, 0, 1]),
    merge: (c, { B, T, H, D }) => reshape(c, [T, B, H * D]),
    back: (w) => permute(w, [2, 3, 0, 1]),
  }),
  BuiltinMHA: style({
    axes: {
      x: "t b e", project: "t b (r h d)", heads: "(b h) t d", scores: "(b h) t s",
      merged: "(t b) (h d)",
    },
    code: {
      x: "query = query.transpose(1, 0)  # batch_first=True",
      project: "qkv = linear(query, in_proj_weight, in_proj_bias)",
      split: "q, k, v = qkv.split(E, dim=-1)\n? = ?.reshape(-1, B * H, D).transpose(0, 1)",
      scores: "scores = torch.bmm(q * scale, k.transpose(-2, -1))",
      mask: "scores = scores + attn_mask  # −∞ where hidden",
      weights: "weights = softmax(scores, dim=-1)",
      emptied: "\nweights = weights.masked_fill(empty, 0.0)",
      context: "context = torch.bmm(weights, v)",
      merge: "merged = context.transpose(0, 1).reshape(T * B, E)",
      output: "output = linear(merged, out_proj_weight, out_proj_bias)\n" +
        "output = output.view(T, B, E).transpose(1, 0)",
      returned: "weights.view(B, H, T, S)",
    },
    ...ROWS,
    projected: "qkv", project: fused, cut: (y) => chunk(y, 3, 2),
    turn: (x) => swap(x, 0, 1),
    split: (y, { B, T, H, D }) => swap(reshape(y, [T, B * H, D]), 0, 1),
    mask: (m, { B, T, H }) => reshape(m, [B * H, T, T]),
    merge: (c, { B, T, H, D }) => reshape(swap(c, 0, 1), [T * B, H * D]),
    finish: (y, { B, T, H, D }) => swap(reshape(y, [T, B, H * D]), 0, 1),
    back: (w, { B, T, H }) => reshape(w, [B, H, T, T]),
  }),
  SplitConcatMHA: style({
    axes: { heads: "(h b) t d", scores: "(h b) t s" },
    code: {
      split: "? = torch.cat(?.split(D, dim=-1), dim=0)",
      merge: "merged = torch.cat(context.chunk(H, dim=0), dim=-1)",
      returned: "weights.unflatten(0, (H, B)).transpose(0, 1)",
    },
    ...ROWS,
    split: (y, { H }) => cat(chunk(y, H, 2), 0),
    mask: (m, { B, T, H }) => reshape(swap(m, 0, 1), [H * B, T, T]),
    merge: (c, { H }) => cat(chunk(c, H, 0), 2),
    back: (w, { B, T, H }) => swap(reshape(w, [H, B, T, T]), 0, 1),
  }),
};

/** The steps of a style: {name: [code, tensor's name, axes, tensor]}. */
export function run({ axes, code, prefix, ...own }, p) {
  const x = own.turn(p.x);
  const projected = own.project(x, p);
  const heads = own.cut(projected).map((y) => own.split(y, p));
  const parts = own.attend(heads, p.mask && own.mask(p.mask, p), p, own);
  const merged = p.join(own.merge(parts.context, p));
  const splits = [..."qkv"].map((letter, r) => [`split ${letter}`, [
    code.split.replaceAll("?", letter), prefix + letter,
    r ? axes.heads.replace("t", "s") : axes.heads, heads[r]]]);
  const steps = {
    x: [code.x, "query", axes.x, x],
    project: [code.project, own.projected, axes.project, projected],
    ...Object.fromEntries(splits),
    scores: [code.scores, `${prefix}scores`, axes.scores, parts.scores],
    ...(p.mask && { mask: [code.mask, `${prefix}scores`, axes.scores, parts.masked] }),
    weights: [code.weights + (p.mask ? code.emptied : ""), `${prefix}weights`, axes.scores, parts.weights],
    context: [code.context, own.contexts, axes.heads, parts.context],
    merge: [code.merge, "merged", axes.merged, merged],
    output: [code.output, "output", axes.output,
      own.finish(linear(merged, p.matrices[3], p.biases[3]), p)],
    "weights out": [code.returned, "weights", "b h t s", own.back(parts.weights, p)],
  };
  const [, where, wrongly] = MISTAKES[p.mistake];
  if (where) steps[where][0] = wrongly(steps[where][0]);
  return steps;
}

/** {name: [what it is, the step that is wrong, the code of that step → wrong code]} */
export const MISTAKES = {
  none: ["none"],
  exchange: ["W_q and W_k exchanged", "project", (code) => (code.includes("q_proj")
    ? code.replace(/[qk](?=_proj)/g, (x) => (x === "q" ? "k" : "q")) : `${code}  # rows of W_k first`)],
  scale: ["scale 1/√E, not 1/√D", "scores", (code) => code.replace("scale", "E**-0.5")],
  merge: ["features interleaved", "merge",
    (code) => `${code}\nmerged = merged.unflatten(-1, (H, D)).transpose(-1, -2).flatten(-2)`],
};

/** What a style computes from, `get(trait)`; a mistake changes it before or on the way. */
export function parameters(get, mistake) {
  const [x, H] = [read(get("x")), get("num_heads")];
  const [B, T, E] = x.shape;
  const [matrices, biases] = ["matrices", "biases"].map((trait) => get(trait).map(read));
  if (mistake === "exchange") {
    for (const all of [matrices, biases]) [all[0], all[1]] = [all[1], all[0]];
  }
  const interleave = (y) =>
    reshape(swap(reshape(y, [product(y.shape) / E, H, E / H]), 1, 2), y.shape);
  const allowed = get("mask");
  return {
    x, matrices, biases, B, T, H, D: E / H, mistake,
    scale: 1 / Math.sqrt(mistake === "scale" ? E : E / H),
    join: mistake === "merge" ? interleave : same,
    mask: allowed.length ? swap(stack(range(H).map(() => read(allowed))), 0, 1) : null,
  };
}

// --- layouts: which element lies where -----------------------------------------------

const LETTER = { hd: "e", rhd: "c", hb: "n", bh: "n", tb: "n" };
const SHAPE = { hd: "E", rhd: "3·E", hb: "H·B", bh: "B·H", tb: "T·B" };
export const letter = (group) => LETTER[group.join("")] ?? group[0];
export const fill = (name, at) => name.replace(/\{(\w)\}/g, (_, x) => (x === "r" ? "qkv"[at.r] ?? "q, k, v" : at[x]));

/** A step of a style, with the place (its letters) of every number. */
export function described([code, name, axes, x], sizes) {
  const groups = axes.match(/\([^)]*\)|\w/g).map((group) => group.match(/\w/g));
  const listed = axes.includes("|") ? axes.split("|")[0].match(/\w/g).length : 0;
  const letters = groups.flat();
  const places = [];
  const visit = (at, k) => {
    if (k === letters.length) return places.push({ ...at });
    for (let i = 0; i < sizes[letters[k]]; i++) visit({ ...at, [letters[k]]: i }, k + 1);
  };
  visit({}, 0);
  const index = (at) => groups.map((g) => g.reduce((i, x) => i * sizes[x] + at[x], 0));
  const offset = (at) => letters.reduce((i, x) => i * sizes[x] + at[x], 0);
  const own = groups.slice(listed);
  const shape = groups.map((g) => product(g.map((x) => sizes[x])));
  const count = product(shape.slice(0, listed));
  const lettered = `(${own.map((g) => SHAPE[g.join("")] ?? g[0].toUpperCase()).join(", ")})`;
  return {
    code, name, groups, listed, places, index, offset, shape, data: elements(x),
    rows: shape.at(-2), columns: shape.at(-1),
    element: (at) => `${fill(name, at)}[${index(at).slice(listed).join(", ")}]`,
    axes: own.map(letter).join("") + (listed ? ` for each ${groups.slice(0, listed)
      .map(([x]) => (x === "r" ? "of q, k, v" : x)).join(" and each ")}` : ""),
    shortly: (count > 1 ? `${count} × ` : "") + lettered,
    title: (count > 1 ? `${count} tensors ` : "") + `${lettered} = (${shape.slice(listed).join(", ")})`,
    joined: own.filter((g) => g.length > 1).map((g) => `${letter(g)} = ` + g.map((x, i) =>
      [x, ...g.slice(i + 1).map((y) => y.toUpperCase())].join("·").replace("H·D", "E")).join(" + ")),
  };
}

/**
 * How two layouts differ, element by element: the right laid out as the left, how many
 * differ by more than rounding, the largest difference and its place.
 */
export function compare(left, right, rounding) {
  const data = left.places.map((at) => right.data[right.offset(at)]);
  const sizes = data.map((x, i) => (x === left.data[i] ? 0 : Math.abs(x - left.data[i])));
  const difference = sizes.reduce((most, x) => Math.max(most, x), 0);
  return {
    laid: { ...left, data }, difference, most: left.places[sizes.indexOf(difference)],
    count: sizes.filter((x) => !(x <= rounding)).length,
  };
}
