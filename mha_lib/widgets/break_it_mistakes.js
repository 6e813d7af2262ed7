// What each mistake of the catalogue does: to the numbers, batch first and (B, H, T, ·),
// and to the code, as pieces that `break_it_code.js` puts into the lines of a style.
import { each, einsum, elements, permute, reshape, split, stack, swap, tensor } from "./tensor.js";
import { softmaxOver } from "./versions_styles.js";

const seesPast = (t, s) => s <= t;
const realKey = (length, t, s) => s < length;
const both = (causal, padding) => causal && padding;
const hide = (x, m) => `${x}.masked_fill(~${m}, -inf)`;

export const RIGHT = {
  inputs: [0, 1, 2], roles: "qkv", transposed: false, kept: [true, true, true], relu: false,
  causal: seesPast, padding: realKey, combine: both, inverted: false,
  read: (made, { b, t, s }) => made(b, t, s),
  scale: ({ D }) => D ** -0.5,
  after: () => 1,
  fill: (score, seen) => (seen ? score : -Infinity),
  emptied: (weight) => weight,
  code: {
    causal: "ones(T, S).tril().bool()",
    padding: "(arange(S) < lengths[:, None, None])",
    join: "{causal} & {padding}",
    read: "mask",
    over: " / D**0.5",
    hide,
    soft: "keys",
    after: "",
    kept: true,
  },
};

// --- steps -----------------------------------------------------------------------------

const code = (pieces) => ({ ...RIGHT.code, ...pieces });
const at = (step, does, pieces = {}) => ({ step, ...does, code: code(pieces) });

const scaled = (over, scale) => at("scores", { scale }, { over });
const filled = (fill, write) => at("hide", { fill }, { hide: write });
const softened = (soft, softmax) => at("weights", { softmax }, { soft });
const masked = (does, pieces) => at("mask", does, pieces);
const causal = (rule, written) => masked({ causal: rule }, { causal: written });
const padding = (rule, written) => masked({ padding: rule }, { padding: written });
const joined = (combine, join) => masked({ combine }, { join });
const reading = (read, written) => at("hide", { read }, { read: written });
const cut = (does, split, own) => at("split", { split: does }, { split, own });
const merged = (merge, write, own) => at("merge", { merge }, { merge: write, own });
const roles = (letters) => at("project", { roles: letters });
const inputs = (...numbers) => at("project", { inputs: numbers });
const kept = (...flags) => at("project", { kept: flags });
const finishing = (out, write) => at("output", { out }, { out: write });

const logSoftmax = (x) => {
  const [cells, n] = [elements(x), x.shape.at(-1)];
  return tensor(cells.map((value, i) => {
    const row = cells.slice(i - (i % n), i - (i % n) + n);
    const highest = Math.max(...row);
    return value - highest - Math.log(row.reduce((sum, y) => sum + Math.exp(y - highest), 0));
  }), x.shape);
};
const onMap = ([B, H, T, S], x) => reshape(softmaxOver(reshape(x, [B, H, T * S]), 2), [B, H, T, S]);
const unit = (x) => { // as normalize(x, dim=-1)
  const [cells, D] = [elements(x), x.shape.at(-1)];
  const length = (i) => Math.hypot(...cells.slice(i - (i % D), i - (i % D) + D));
  return each(x, (value, i) => value / Math.max(length(i), 1e-12));
};
const scoresOf = (q, k) => einsum("bhtd,bhsd->bhts", q, k);
const plain = (c, { B, T, H, D }) => reshape(c, [B, T, H * D]);
const tokens = (c, p) => plain(swap(c, 1, 2), p);
const summed = (c, H) => split(c, 1, 1).reduce((sum, one) => {
  const cells = elements(one);
  return sum ? sum.map((x, i) => x + cells[i] / H) : cells.map((x) => x / H);
}, null);
/** One head's width (B, T, D) repeated for all H. */
const widened = (cells, { B, T, H, D }) =>
  swap(reshape(stack(Array.from({ length: H }, () => tensor(cells, [B, T, D]))), [H, B * T, D]), 0, 1);
const flipped = (c) => stack(split(c, 1, 1).reverse().map((x) => reshape(x, x.shape.toSpliced(1, 1))));
const canon = ({ B, T, H, D }, x) => reshape(x, [B, T, H * D]);

export const WRONG = {
  "softmax-over-queries": softened("queries", (x) => softmaxOver(x, 2)),
  "softmax-over-heads": softened("heads", (x) => softmaxOver(x, 1)),
  "softmax-over-batch": softened("batch", (x) => softmaxOver(x, 0)),
  "softmax-over-map": softened("map", (x) => onMap(x.shape, x)),
  "softmax-twice": softened("twice", (x) => softmaxOver(softmaxOver(x, 3), 3)),
  "log-softmax": softened("log", logSoftmax),
  "no-softmax": softened("none", (x) => x),

  "no-scale": scaled("", () => 1),
  "scale-embed-dim": scaled(" / E**0.5", ({ H, D }) => (H * D) ** -0.5),
  "scale-num-heads": scaled(" / H**0.5", ({ H }) => H ** -0.5),
  "scale-query-length": scaled(" / T**0.5", ({ T }) => T ** -0.5),
  "scale-key-length": scaled(" / S**0.5", ({ S }) => S ** -0.5),
  "scale-twice": scaled(" / D", ({ D }) => 1 / D),
  "scale-multiplied": scaled(" * D**0.5", ({ D }) => D ** 0.5),
  "scale-after-softmax": at("scores", { scale: () => 1, after: ({ D }) => D ** -0.5 }, { over: "", after: " / D**0.5" }),
  "scale-hard-coded": scaled(" / 8", () => 1 / 8),

  "scores-transposed": at("scores", { score: (q, k) => scoresOf(k, q) },
    { score: (a, b) => `${b} @ ${a}.mT`, einsum: 'einsum("tbhd,sbhd->tsbh", k, q)' }),
  "weights-transposed": at("context", { mix: (weights, v) => einsum("bhst,bhsd->bhtd", weights, v) }, { mixed: ".mT" }),
  "cosine-scores": at("scores", { score: (q, k) => scoresOf(unit(q), unit(k)) }, {
    score: (a, b) => `normalize(${a}, dim=-1) @ normalize(${b}, dim=-1).mT`,
    einsum: 'einsum("tbhd,sbhd->tsbh", normalize(q, dim=-1), normalize(k, dim=-1))',
  }),
  "key-transposed-by-view": at("scores", {
    score: (q, k, { B, H, D, S }) => einsum("bhtd,bhds->bhts", q, reshape(k, [B, H, D, S])),
  }, {
    score: (a, b) => `${a} @ ${b}.reshape(*${b}.shape[:-2], D, S)`,
    einsum: 'einsum("tbhd,bhds->tsbh", q, k.permute(1, 2, 0, 3).reshape(B, H, D, S))',
  }),

  "split-by-view": cut((x, { B, T, H, D }) => reshape(x, [B, H, T, D]), (x) => `${x}.reshape(B, H, -1, D)`),
  "split-interleaved": cut((x, { B, T, H, D }) => permute(reshape(x, [B, T, D, H]), [0, 3, 1, 2]),
    (x) => `${x}.unflatten(-1, (D, H)).movedim(-1, 1)`, {
      PerHeadMHA: "[cat(x, dim=-1)[..., h::H] for h in range(H)]",
      EinsumMHA: "x.unflatten(-1, (D, H)).mT",
      BuiltinMHA: "x.unflatten(-1, (D, H)).mT.reshape(T, B * H, D).transpose(0, 1)",
      SplitConcatMHA: "cat([x[..., h::H] for h in range(H)])",
    }),

  "merge-no-transpose": merged(plain, (c) => `${c}.reshape(B, T, E)`),
  "merge-interleaved": merged((c, p) => canon(p, permute(c, [0, 2, 3, 1])), (c) => `${c}.permute(0, 2, 3, 1).flatten(2)`, {
    PerHeadMHA: "stack(context, dim=-1).flatten(2)",
    EinsumMHA: "context.mT.flatten(2)",
    BuiltinMHA: "context.transpose(0, 1).reshape(T, B, H, D).mT.reshape(T * B, E)",
    SplitConcatMHA: "stack(context.chunk(H), dim=-1).flatten(2)",
  }),
  "merge-mean": merged((c, p) => canon(p, widened(summed(c, p.H), p)), (c) => `${c}.mean(1).repeat(1, 1, H)`, {
    PerHeadMHA: "cat([sum(context) / H] * H, dim=-1)",
    EinsumMHA: "context.mean(2).repeat(1, 1, H)",
    SplitConcatMHA: "cat([sum(context.chunk(H)) / H] * H, dim=-1)",
  }),
  "merge-sum": merged((c, p) => canon(p, widened(summed(c, 1), p)), (c) => `${c}.sum(1).repeat(1, 1, H)`, {
    PerHeadMHA: "cat([sum(context)] * H, dim=-1)",
    EinsumMHA: "context.sum(2).repeat(1, 1, H)",
    SplitConcatMHA: "cat([sum(context.chunk(H))] * H, dim=-1)",
  }),
  "merge-first-head": merged((c, p) => canon(p, widened(elements(split(c, 1, 1)[0]), p)),
    (c) => `${c}[:, 0].repeat(1, 1, H)`, {
      PerHeadMHA: "cat([context[0]] * H, dim=-1)",
      EinsumMHA: "context[:, :, 0].repeat(1, 1, H)",
      SplitConcatMHA: "cat([context[:B]] * H, dim=-1)",
    }),
  "merge-reversed": merged((c, p) => tokens(swap(flipped(c), 0, 1), p), (c) => `${c}.flip(1).transpose(1, 2).flatten(2)`, {
    PerHeadMHA: "cat(context[::-1], dim=-1)",
    EinsumMHA: "context.flip(2).flatten(2)",
    BuiltinMHA: "context.view(B, H, T, D).flip(1).flatten(0, 1).transpose(0, 1).reshape(T * B, E)",
    SplitConcatMHA: "cat(context.chunk(H)[::-1], dim=-1)",
  }),
  "merge-batch-major": merged((c, p) => tokens(reshape(swap(c, 0, 1), c.shape), p),
    (c) => `${c}.transpose(0, 1).reshape(B, H, T, D).transpose(1, 2).flatten(2)`),

  "kv-from-query": inputs(0, 0, 0),
  "k-from-query": inputs(0, 0, 2),
  "k-from-value": inputs(0, 2, 2),
  "q-from-key": inputs(1, 1, 2),
  "v-from-key": inputs(0, 1, 1),
  "v-from-query": inputs(0, 1, 0),
  "key-value-inputs-swapped": inputs(0, 2, 1),

  "wq-wk-swapped": roles("kqv"),
  "wk-wv-swapped": roles("qvk"),
  "one-matrix-q": roles("qqq"),
  "one-matrix-k": roles("kkk"),
  "one-matrix-v": roles("vvv"),
  "wk-for-v": roles("qkk"),
  "wq-for-k": roles("qqv"),
  "no-projection": roles("---"),
  "v-not-projected": roles("qk-"),
  "weights-not-transposed": at("project", { transposed: true }),

  "relu-after-projection": at("project", { relu: true }),
  "no-bias-q": kept(false, true, true),
  "no-bias-v": kept(true, true, false),
  "no-bias-qkv": kept(false, false, false),

  "no-output-projection": finishing((x) => x, (x) => x),
  "output-projection-twice": finishing((x, { out }) => out(out(x)), (x) => `(${x} @ W_o.T + b_o) @ W_o.T + b_o`),
  "no-bias-out": finishing((x, { out, biases }) => {
    const bias = elements(biases[3]);
    return each(out(x), (value, i) => value - bias[i % bias.length]);
  }, (x) => `${x} @ W_o.T`),
  residual: finishing((x, { out, query }) => {
    const cells = elements(query);
    return each(out(x), (value, i) => value + cells[i]);
  }, (x) => `${x} @ W_o.T + b_o + query`),

  "fill-positive": filled((x, seen) => (seen ? x : 1e10), (x, m) => `${x}.masked_fill(~${m}, 1e10)`),
  "fill-minus-one": filled((x, seen) => (seen ? x : -1), (x, m) => `${x}.masked_fill(~${m}, -1.0)`),
  "fill-zero": filled((x, seen) => (seen ? x : 0), (x, m) => `${x} * ${m}`),
  "fill-tiny": filled((x, seen) => (seen ? x : 1e-9), (x, m) => `${x}.masked_fill(~${m}, 1e-9)`),
  "mask-added-as-number": filled((x, seen) => x + seen, (x, m) => `${x} + ${m}`),
  "mask-after-softmax": at("hide", { fill: (x) => x, emptied: (weight, seen) => weight * seen },
    { hide: null, after: " * {mask}" }),
  "fill-thrown-away": at("hide", { fill: (x) => x }, { kept: false }),

  "mask-inverted": at("hide", { inverted: true }, { hide: (x, m) => `${x}.masked_fill(${m}, -inf)` }),
  "mask-transposed": reading((made, { b, t, s }) => made(b, s, t), "mask.mT"),
  "mask-of-first-sequence": reading((made, { t, s }) => made(0, t, s), "mask[:1].expand(B, T, S)"),
  "mask-of-first-query": reading((made, { b, s }) => made(b, 0, s), "mask[:, :1].expand(B, T, S)"),
  "mask-of-last-query": reading((made, { b, s, T }) => made(b, T - 1, s), "mask[:, -1:].expand(B, T, S)"),
  "mask-tiled": at("hide", { read: (made, { b, h, t, s, B, H }) => made((b * H + h) % B, t, s) },
    { rows: "mask.repeat(H, 1, 1)", each: "mask.repeat(H, 1, 1).view(B, H, T, S)" }),
  "mask-interleaved": at("hide", { read: (made, { b, h, t, s, B, H }) => made(Math.floor((h * B + b) / H), t, s) },
    { rows: "mask.repeat_interleave(H, 0)", each: "mask.repeat_interleave(H, 0).view(H, B, T, S).transpose(0, 1)" }),

  "causal-transposed": causal((t, s) => s >= t, "ones(T, S).triu().bool()"),
  "causal-blocks-diagonal": causal((t, s) => s < t, "ones(T, S).tril(-1).bool()"),
  "causal-sees-next": causal((t, s) => s <= t + 1, "ones(T, S).tril(1).bool()"),
  "causal-only-diagonal": causal((t, s) => s === t, "ones(T, S).tril().triu().bool()"),
  "causal-ignored": causal(() => true, "ones(T, S).bool()"),

  "padding-on-queries": padding((length, t) => t < length, "(arange(T) < lengths[:, None])[:, :, None]"),
  "padding-on-both": padding((length, t, s) => s < length && t < length,
    "(arange(S) < lengths[:, None, None]) & (arange(T) < lengths[:, None])[:, :, None]"),
  "padding-inverted": padding((length, t, s) => s >= length, "(arange(S) >= lengths[:, None, None])"),
  "padding-of-first-sequence": padding((length, t, s, lengths) => s < lengths[0], "(arange(S) < lengths[0]).expand(B, 1, S)"),
  "padding-ignored": padding(() => true, "ones(B, 1, S).bool()"),
  "padding-off-by-one": padding((length, t, s) => s <= length, "(arange(S) <= lengths[:, None, None])"),
  "padding-last-key-lost": padding((length, t, s) => s < length - 1, "(arange(S) < lengths[:, None, None] - 1)"),

  "masks-or": joined((a, b) => a || b, "{causal} | {padding}"),
  "mask-overwritten-by-padding": joined((a, b) => b, "{padding}.expand(B, T, S)"),
  "mask-overwritten-by-causal": joined((a) => a, "{causal}.expand(B, T, S)"),
  "masks-xor": joined((a, b) => a !== b, "{causal} ^ {padding}"),
};
