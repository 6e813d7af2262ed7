// The six styles as short programs: the lines that a test runs and a reader sees. A
// mistake hands in other pieces; what is written batch first is brought into the layout
// of a style by the endings below.
import { RIGHT } from "./break_it_mistakes.js";

const ENDINGS = { // from (B, H, T, ·) into the layout, and back
  PerHeadMHA: [".unbind(1)", (x) => `stack(${x}, 1)`],
  BatchedMHA: ["", (x) => x],
  FusedMHA: ["", (x) => x],
  EinsumMHA: [".permute(2, 0, 1, 3)", (x) => `${x}.permute(1, 2, 0, 3)`],
  BuiltinMHA: [".flatten(0, 1)", (x) => `${x}.view(B, H, T, D)`],
  SplitConcatMHA: [".transpose(0, 1).flatten(0, 1)", (x) => `${x}.view(H, B, T, D).transpose(0, 1)`],
};
const SEQUENCE_FIRST = ["EinsumMHA", "BuiltinMHA"];
const LONGEST = 80; // characters, as in our own code
const INPUTS = ["query", "key", "value"];

const CUT = {
  BatchedMHA: (x) => `${x}.unflatten(-1, (H, D)).transpose(1, 2)`,
  EinsumMHA: (x) => `${x}.unflatten(-1, (H, D))`,
  BuiltinMHA: (x) => `${x}.reshape(T, B * H, D).transpose(0, 1)`,
  SplitConcatMHA: (x) => `cat(${x}.split(D, dim=-1))`,
};
CUT.FusedMHA = CUT.BatchedMHA;

const MASKS = { // of (B, T, S)
  PerHeadMHA: (m) => m,
  BatchedMHA: (m) => `${m}[:, None]`,
  EinsumMHA: (m) => `${m}.permute(1, 2, 0)[..., None]`,
  BuiltinMHA: (m) => `${m}.repeat_interleave(H, 0)`,
  SplitConcatMHA: (m) => `${m}.repeat(H, 1, 1)`,
};
MASKS.FusedMHA = MASKS.BatchedMHA;

const over = (axis) => (x) => `${x}.softmax(${axis})`;
const twice = (axis) => (x) => `${x}.softmax(${axis}).softmax(${axis})`;
const log = (axis) => (x) => `${x}.log_softmax(${axis})`;
const flat = (from, to, shape) => (x) => `${x}.flatten(${from}, ${to}).softmax(${from}).view(${shape})`;
const apart = (axis, shape) => (x) => `${x}.view(${shape}).softmax(${axis}).flatten(0, 1)`;
const axes = (keys, others) => ({ keys: over(keys), twice: twice(keys), log: log(keys), none: (x) => x, ...others });

const SOFT = {
  PerHeadMHA: axes(-1, { queries: over(-2), batch: over(0), map: flat(1, 2, "B, T, S") }),
  BatchedMHA: axes(-1, { queries: over(-2), heads: over(1), batch: over(0), map: flat(2, 3, "B, H, T, S") }),
  EinsumMHA: axes(1, { queries: over(0), heads: over(3), batch: over(2), map: flat(0, 1, "T, S, B, H") }),
  BuiltinMHA: axes(-1, { queries: over(-2), heads: apart(1, "B, H, T, S"), batch: apart(0, "B, H, T, S"), map: flat(1, 2, "B * H, T, S") }),
  SplitConcatMHA: axes(-1, { queries: over(-2), heads: apart(0, "H, B, T, S"), batch: apart(1, "H, B, T, S"), map: flat(1, 2, "H * B, T, S") }),
};
SOFT.FusedMHA = SOFT.BatchedMHA;

const MERGE = {
  PerHeadMHA: "cat(context, dim=-1)",
  BatchedMHA: "context.transpose(1, 2).flatten(2)",
  FusedMHA: "context.transpose(1, 2).flatten(2)",
  EinsumMHA: "context.flatten(2)",
  BuiltinMHA: "context.transpose(0, 1).reshape(T * B, E)",
  SplitConcatMHA: "cat(context.chunk(H), dim=-1)",
};

// --- lines -----------------------------------------------------------------------------

function maskLine({ code }) {
  return `mask = ${code.join.replace("{causal}", code.causal).replace("{padding}", code.padding)}`;
}

/** q, k and v, each with its own matrix. */
function apartLines(style, m) {
  const found = INPUTS.map((_, r) => {
    const [x, role] = [INPUTS[m.inputs[r]], m.roles[r]];
    const name = "qkv"[r];
    const ending = m.relu ? ".relu()" : "";
    const wrap = (text) => (ending ? `(${text})${ending}` : text);
    if (style !== "PerHeadMHA") {
      if (role === "-") return `${name} = ${x}`;
      return `${name} = ${wrap(`${x} @ W_${role}${m.transposed ? "" : ".T"}${m.kept[r] ? ` + b_${role}` : ""}`)}`;
    }
    if (role === "-") return `${name} = ${x}.chunk(H, dim=-1)`;
    if (m.transposed) return `${name} = (${x} @ W_${role}.flatten(0, 1) + b_${role}.flatten()).chunk(H, dim=-1)`;
    return `${name} = [${wrap(`${x} @ W_${role}[h].T${m.kept[r] ? ` + b_${role}[h]` : ""}`)} for h in range(H)]`;
  });
  const [names, values] = [0, 1].map((side) => found.map((line) => line.split(" = ")[side]).join(", "));
  const one = `${names} = ${values}`;
  return one.length <= LONGEST ? [one] : found;
}

/** q, k and v out of one product, where that is possible. */
function fusedLines(m, three) {
  const one = m.roles === "qkv" && `${m.kept}` === `${RIGHT.kept}` && !m.transposed && !m.relu;
  const [taken, cut] = ["qkv = query @ W_qkv.T + b_qkv", "q, k, v = qkv.chunk(3, dim=-1)"];
  if (three) {
    if (`${m.inputs}` === "0,0,0" && one) return [taken, cut];
    if (!one) return null;
    return [`parts = zip((${m.inputs.map((i) => INPUTS[i]).join(", ")}), W_qkv.chunk(3), b_qkv.chunk(3))`,
      "q, k, v = (x @ W.T + b for x, W, b in parts)"];
  }
  if (one) return [taken, cut];
  if (m.relu) return ["qkv = (query @ W_qkv.T + b_qkv).relu()", cut];
  if (m.transposed) return ["qkv = query @ cat(W_qkv.chunk(3), dim=1) + b_qkv", cut];
  if (m.kept.every((x) => !x)) return ["qkv = query @ W_qkv.T", cut];
  if (m.roles !== "qkv" && !m.roles.includes("-")) {
    const order = [...m.roles].map((role) => "qkv".indexOf(role)).join(", ");
    return [taken, `q, k, v = (qkv.chunk(3, dim=-1)[i] for i in (${order}))`];
  }
  return null;
}

function projectLines(style, m, three) {
  const fused = ["FusedMHA", "BuiltinMHA"].includes(style);
  const lines = (fused && fusedLines(m, three)) || apartLines(style, m);
  if (!SEQUENCE_FIRST.includes(style)) return lines;
  return ["query, key, value = (x.transpose(0, 1) for x in (query, key, value))", ...lines];
}

function splitLine(style, { code }) {
  const whole = style === "PerHeadMHA" ? "cat(x, dim=-1)" : SEQUENCE_FIRST.includes(style) ? "x.transpose(0, 1)" : "x";
  if (code.split && code.own?.[style]) return `q, k, v = (${code.own[style]} for x in (q, k, v))`;
  if (code.split) return `q, k, v = (${code.split(whole)}${ENDINGS[style][0]} for x in (q, k, v))`;
  if (style === "PerHeadMHA") return "# nothing to cut: each head has matrices of its own";
  return `q, k, v = (${CUT[style]("x")} for x in (q, k, v))`;
}

function scoresLine(style, { code }) {
  const score = code.score ?? ((a, b) => `${a} @ ${b}.mT`);
  if (style === "PerHeadMHA") return `scores = [${score("a", "b")}${code.over} for a, b in zip(q, k)]`;
  if (style === "EinsumMHA") return `scores = ${code.einsum ?? 'einsum("tbhd,sbhd->tsbh", q, k)'}${code.over}`;
  return `scores = ${score("q", "k")}${code.over}`;
}

function hideLine(style, { code }) {
  if (!code.hide) return "# the scores stay as they are";
  const kept = code.kept ? "scores = " : "";
  const loop = style === "PerHeadMHA";
  if (code.each) {
    const own = { BuiltinMHA: "mask.repeat(H, 1, 1)", SplitConcatMHA: "mask.repeat_interleave(H, 0)" }[style];
    const ending = style === "EinsumMHA" ? ".permute(2, 3, 0, 1)" : ENDINGS[style][0];
    const masks = own === code.rows ? own : code.each + ending;
    return loop ? `scores = [${code.hide("s", "m")} for s, m in zip(scores, ${masks})]` : `scores = ${code.hide("scores", masks)}`;
  }
  const m = MASKS[style](code.read);
  return kept + (loop ? `[${code.hide("s", m)} for s in scores]` : code.hide("scores", m));
}

function weightsLine(style, { code }) {
  const after = code.after.replace("{mask}", MASKS[style]("mask"));
  const finish = (x) => (after ? `(${x}${after})` : x) + ".nan_to_num(0)";
  if (style !== "PerHeadMHA") return `weights = ${finish(SOFT[style][code.soft]("scores"))}`;
  if (code.soft === "heads") return `weights = ${finish("stack(scores).softmax(0)")}`;
  return `weights = [${finish(SOFT[style][code.soft]("s"))} for s in scores]`;
}

function contextLine(style, { code }) {
  const turned = code.mixed ?? "";
  if (style === "PerHeadMHA") return `context = [w${turned} @ x for w, x in zip(weights, v)]`;
  if (style !== "EinsumMHA") return `context = weights${turned} @ v`;
  return `context = einsum("${turned ? "stbh" : "tsbh"},sbhd->tbhd", weights, v)`;
}

function mergeLine(style, { code }) {
  if (!code.merge) return `merged = ${MERGE[style]}`;
  if (code.own?.[style]) return `merged = ${code.own[style]}`;
  const ending = { EinsumMHA: ".transpose(0, 1)", BuiltinMHA: ".transpose(0, 1).flatten(0, 1)" }[style] ?? "";
  return `merged = ${code.merge(ENDINGS[style][1]("context"))}${ending}`;
}

function outputLine(style, { code, transposed }) {
  const out = code.out ?? ((x) => `${x} @ W_o${transposed ? "" : ".T"} + b_o`);
  if (style !== "BuiltinMHA") return `output = ${out("merged")}`;
  const rows = out("merged.view(T, B, E)");
  return `output = ${rows.includes(" ") ? `(${rows})` : rows}.transpose(0, 1)`;
}

/** What the endings leave behind where they meet, such as twice the same transpose. */
const tidy = (line) => line
  .replace(".transpose(0, 1).transpose(0, 1)", "")
  .replace(".view(H, B, T, D).reshape(", ".view(")
  .replace(".permute(1, 2, 0, 3).transpose(0, 1)", ".permute(2, 1, 0, 3)")
  .replace("stack(context, 1).transpose(0, 1)", "stack(context)")
  .replace(".transpose(0, 1).unbind(1)", "");

/** {step: lines of code}. `three`: query, key and value are three tensors, not one. */
export function programOf(style, mistake, three) {
  const m = { ...RIGHT, ...mistake };
  return {
    mask: [maskLine(m)],
    project: projectLines(style, m, three),
    split: [splitLine(style, m)],
    scores: [scoresLine(style, m)],
    hide: [tidy(hideLine(style, m))],
    weights: [weightsLine(style, m)],
    context: [contextLine(style, m)],
    merge: [tidy(mergeLine(style, m))],
    output: [outputLine(style, m)],
  };
}
