// The six styles with a mistake in one step. A right step is the style's own, in its own
// layout; a wrong one is that of `break_it_mistakes.js`, brought into that layout.
import { product } from "./arithmetic.js";
import { RIGHT } from "./break_it_mistakes.js";
import { each, einsum, elements, indices, permute, reshape, swap, tensor } from "./tensor.js";
import { linear, softmaxOver, STYLES } from "./versions_styles.js";

const PROJECTED = { // the axes of q, k and v before they are cut
  PerHeadMHA: "h b t d", EinsumMHA: "t b (h d)", BuiltinMHA: "t b (h d)",
};
const groupsOf = (axes) => axes.replace("|", "").match(/\([^)]*\)|\w/g).map((group) => group.match(/\w/g));

/** A tensor with the axes `order`, such as "bhtd", in the layout `axes`. */
function laidOut(x, order, axes, sizes) {
  const groups = groupsOf(axes);
  return reshape(permute(x, groups.flat().map((letter) => order.indexOf(letter))),
    groups.map((group) => product(group.map((letter) => sizes[letter]))));
}

/** The way back, whatever the layout. */
export function inOrder(x, order, axes, sizes) {
  const letters = groupsOf(axes).flat();
  return permute(reshape(x, letters.map((letter) => sizes[letter])),
    [...order].map((letter) => letters.indexOf(letter)));
}

/** As torch's nan_to_num(0): it makes the largest numbers of infinities. */
const finite = (x) => (Number.isNaN(x) ? 0 : Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, x)));

/** The mask (B, T, S) as it is made, and as each head reads it, (B, H, T, S). */
function masksOf(m, { B, H, T, S, lengths }) {
  const made = (b, t, s) => m.combine(m.causal(t, s), m.padding(lengths[b], t, s, lengths));
  const filled = (shape, at) => tensor(indices(shape).map(at), shape);
  return [
    filled([B, T, S], ([b, t, s]) => Number(made(b, t, s))),
    filled([B, H, T, S], ([b, h, t, s]) => m.read(made, { b, h, t, s, B, H, T, S }) !== m.inverted),
  ];
}

/**
 * The steps of a style: {step: {axes, order, parts: {name: tensor in that layout}}}.
 *
 * `p` holds inputs (three tensors (B, T, E)), matrices and biases of q, k, v and the
 * output, lengths and the sizes. A mistake holds what differs from `RIGHT`.
 */
export function stepsOf(name, mistake, p) {
  const m = { ...RIGHT, ...mistake };
  const style = STYLES[name];
  const { B, H, T, D, S } = p;
  const sizes = { b: B, h: H, t: T, s: S, d: D, e: H * D };
  const lay = (x, order, axes) => laidOut(x, order, axes, sizes);
  const heads = style.axes.heads.replace("|", "");
  const maps = style.axes.scores.replace("|", "");
  const flat = (x) => reshape(x, [B, T, H, D]);

  const [made, read] = masksOf(m, p);
  const whole = [0, 1, 2].map((r) => {
    const [x, role] = [p.inputs[m.inputs[r]], "qkv".indexOf(m.roles[r])];
    if (role < 0) return x;
    const [W, b] = [p.matrices[role], p.biases[role]];
    const y = linear(x, m.transposed ? swap(W, 0, 1) : W, m.kept[r] ? b : each(b, () => 0));
    return m.relu ? each(y, (value) => Math.max(0, value)) : y;
  });
  const before = PROJECTED[name] ?? "b t (h d)";
  const projected = whole.map((x) => lay(flat(x), "bthd", before));
  const [q, k, v] = projected.map((x, r) =>
    (m.split ? lay(m.split(whole[r], p), "bhtd", heads) : style.split(x, p)));

  const back = (x, order, axes) => inOrder(x, order, axes, sizes);
  const product_ = m.score
    ? lay(m.score(back(q, "bhtd", heads), back(k, "bhtd", heads), p), "bhts", maps)
    : einsum(style.equations[0], q, k);
  const scale = m.scale(p);
  const scores = each(product_, (x) => x * scale);
  const visible = elements(lay(read, "bhts", maps));
  const hidden = each(scores, (x, i) => m.fill(x, visible[i]));
  const soft = m.softmax
    ? lay(m.softmax(back(hidden, "bhts", maps)), "bhts", maps)
    : softmaxOver(hidden, style.keys);
  const after = m.after(p);
  const weights = each(soft, (x, i) => finite(m.emptied(x * after, visible[i])));

  const context = m.mix
    ? lay(m.mix(back(weights, "bhts", maps), back(v, "bhtd", heads)), "bhtd", heads)
    : einsum(style.equations[1], weights, v);
  const merged = m.merge
    ? lay(flat(m.merge(back(context, "bhtd", heads), p)), "bthd", style.axes.merged)
    : style.merge(context, { ...p, x: p.inputs[0] });
  const W = m.transposed ? swap(p.matrices[3], 0, 1) : p.matrices[3];
  const out = (x) => linear(x, W, p.biases[3]);
  const query = p.inputs[0];
  const output = m.out
    ? lay(m.out(reshape(back(merged, "bthd", style.axes.merged), [B, T, H * D]), { ...p, query, out }), "bte", style.axes.output)
    : style.finish(out(merged), p);

  const step = (order, axes, parts) => ({ order, axes, parts });
  return {
    mask: step("bts", "b t s", { mask: made }),
    project: step("bthd", before, { q: projected[0], k: projected[1], v: projected[2] }),
    split: step("bhtd", heads, { q, k, v }),
    scores: step("bhts", maps, { scores }),
    hide: step("bhts", maps, { scores: hidden }),
    weights: step("bhts", maps, { weights }),
    context: step("bhtd", heads, { context }),
    merge: step("bthd", style.axes.merged, { merged }),
    output: step("bte", style.axes.output, { output }),
  };
}
