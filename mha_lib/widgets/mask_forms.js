// A mask in the form that each framework takes, with the code that makes it.

const LIBRARIES = { // how to load it, its array of a list, its boolean
  torch: ["import torch\n", "tensor", "torch.bool"],
  np: ["import numpy as np\n", "array", "bool"],
  jnp: ["from jax import numpy as jnp\n", "array", "bool"],
};

const bits = (row) => `[${row.map(Number).join(", ")}]`;

/** Python that makes the mask: from its rules, or, where it is painted, cell by cell. */
function pythonMask(now, library) {
  const [[, array, bool], [T, S]] = [LIBRARIES[library], now.shape];
  if (now.painted) {
    const rows = now.mask.map((row) => `    ${bits(row)},\n`).join("");
    return `mask = ${library}.${array}([  # 1 = may attend\n${rows}], dtype=${bool})\n`;
  }
  if (!now.rules.length) return `mask = ${library}.${now.swapped ? "zeros" : "ones"}((${T}, ${S}), dtype=${bool})\n`;
  const grid = library === "torch"
    ? `t = torch.arange(${T})[:, None].expand(${T}, ${S})\ns = torch.arange(${S}).expand(${T}, ${S})\n`
    : `t, s = ${library}.indices((${T}, ${S}))\n`;
  const shift = now.offset && now.rules.some((x) => x.includes("t"))
    ? `t = t ${now.offset < 0 ? "-" : "+"} ${Math.abs(now.offset)}  # the last query stands at the last key\n` : "";
  const all = now.rules.length > 1 ? now.rules.map((x) => `(${x})`).join(" & ") : now.rules[0];
  return `${grid}${shift}mask = ${now.swapped ? `~(${all})` : all}\n`;
}

const program = (now, library, call, load = "") =>
  `${LIBRARIES[library][0]}${load}\n${pythonMask(now, library)}${call}`;
const TORCH_LAYER = "# layer = nn.MultiheadAttention(\n#     E, H, batch_first=True)\n";
const OURS = [["1 = may attend", (x) => `${+x}`], "False"];
const HIDES = [["1 = hidden", (x) => `${+!x}`], "True"];

/** Is `is_causal` or its like the same mask? That flag is top-left everywhere. */
function flag(now, name) {
  if (now.isCausal) return ` ${name} makes this same mask.`;
  if (now.isBottomRight) return ` ${name} would make another mask: it is top-left.`;
  return "";
}

/** Why a Hugging Face model cannot take it in one call. */
const square = ({ shape: [T, S] }) =>
  (T === S ? "" : "This form needs T = S: it is for self-attention, without a cache.");

/**
 * One entry a form. `reads`: what a cell means and how it is written, and what hides;
 * `axes`: names of the shape; `empty`: the weights of a query that sees no key.
 */
export const FORMS = {
  mha_lib: {
    name: "mha_lib, this book", argument: "mask", reads: OURS, dtype: "bool", axes: "T S", empty: "0",
    code: (now) => program(now, "torch", "context, weights = attention(q, k, v, mask)\n",
      "from mha_lib import attention\n"),
  },
  sdpa: {
    name: "F.scaled_dot_product_attention", argument: "attn_mask", reads: OURS, dtype: "bool",
    axes: "T S", empty: "0", more: (now) => flag(now, "is_causal=True"),
    code: (now) => program(now, "torch",
      "context = F.scaled_dot_product_attention(\n    q, k, v, attn_mask=mask\n)\n",
      "from torch.nn import functional as F\n"),
  },
  torch: {
    name: "nn.MultiheadAttention, attn_mask", argument: "attn_mask", reads: HIDES, dtype: "bool",
    axes: "T S", empty: "NaN",
    more: () => " is_causal=True alone is an error: it is only a hint that attn_mask is causal.",
    code: (now) => program(now, "torch",
      `${TORCH_LAYER}output, weights = layer(\n    query, key, value, attn_mask=~mask\n)\n`),
  },
  torch_padding: {
    name: "nn.MultiheadAttention, key_padding_mask", argument: "key_padding_mask", reads: HIDES,
    dtype: "bool", axes: "B S", empty: "NaN",
    more: (now) => (now.padded ? "" : " What differs from query to query goes into attn_mask."),
    code(now) {
      const others = now.rules.filter((x) => !/^s (<|>=) \d/.test(x));
      const rest = { ...now, rules: now.swapped ? now.rules : others }; // ~(a & b) is no & of two
      const padding = `padding = torch.tensor([${bits(now.real.map((x) => !x))}]).bool()  # 1 = padding\n`;
      const call = (more) => `${TORCH_LAYER}output, weights = layer(\n    query, key, value, key_padding_mask=padding${more}\n)\n`;
      if (now.padded) return `import torch\n\n${padding}${call("")}`;
      return program(rest, "torch", `${padding}${call(", attn_mask=~mask")}`);
    },
  },
  added: {
    name: "float mask, added to the scores", argument: "bias", dtype: "float32", axes: "T S", empty: "NaN",
    reads: [["0 = may attend", (x) => (x ? " 0" : "−∞")], "−∞"],
    code: (now) => program(now, "torch",
      "bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)\nweights = (scores + bias).softmax(-1)\n"),
  },
  keras: {
    name: "keras.layers.MultiHeadAttention", argument: "attention_mask", reads: OURS, dtype: "bool",
    axes: "B T S", empty: "0", more: (now) => flag(now, "use_causal_mask=True"),
    code: (now) => program(now, "np",
      "# layer = keras.layers.MultiHeadAttention(H, D)\noutput, weights = layer(\n" +
      "    query, value, key,  # in this order\n    attention_mask=mask[None],\n    return_attention_scores=True,\n)\n"),
  },
  flax: {
    name: "flax.nnx.MultiHeadAttention", argument: "mask", reads: OURS, dtype: "bool",
    axes: "B H T S", empty: "1/S for each key",
    code: (now) => program(now, "jnp",
      "# layer = nnx.MultiHeadAttention(\n#     H, E, decode=False, rngs=rngs)\noutput = layer(\n    query, key, value, mask=mask[None, None]\n)\n"),
  },
  hugging_face: {
    name: "Hugging Face, attention_mask (B, S)", argument: "attention_mask", dtype: "int64", axes: "B S",
    reads: [["1 = real token", (x) => `${+x}`], "0"], empty: "1/S for each key",
    more: (now) => (now.padded ? "" : " The causal part is not in it: a decoder adds it."),
    fails: (now) => square(now) || (now.padded || now.causalPadded ? ""
      : "This form hides a key from all queries alike, and a decoder adds causal. Your mask needs the form (B, H, T, S)."),
    code: (now) => `import torch\n\nattention_mask = torch.tensor([${bits(now.real)}])\n` +
      `# model: ${now.padded ? "an encoder such as BERT" : "a decoder such as GPT-2"}\n` +
      "output = model(inputs_embeds=x, attention_mask=attention_mask)\n",
  },
  hugging_face_4d: {
    name: "Hugging Face, attention_mask (B, H, T, S)", argument: "attention_mask", dtype: "of the model",
    axes: "B H T S", empty: "1/S for each key",
    reads: [["0 = may attend", (x) => (x ? "  0" : "min")], "the lowest number, min"], fails: square,
    code: (now) => program(now, "torch",
      "zeros = torch.zeros(mask.shape, dtype=model.dtype)\n" +
      "attention_mask = zeros.masked_fill(~mask, torch.finfo(model.dtype).min)\n" +
      "output = model(\n    inputs_embeds=x, attention_mask=attention_mask[None, None]\n)\n"),
  },
  einsum: {
    name: "EinsumMHA, sequence first", argument: "mask", reads: OURS, dtype: "bool", axes: "T S B", empty: "0",
    code: (now) => program(now, "torch",
      "# layer = mha_lib.EinsumMHA(E, H)\noutput, weights = layer(\n    query, key, value, mask=mask[:, :, None]\n)\n"),
  },
};

/** What the form is given, as rows of text. */
export function received(now, { axes, reads: [[, write]] }) {
  const rows = axes.includes("T") ? now.mask : [now.real];
  return rows.map((row) => row.map(write).join(" ")).join("\n");
}

export function shapeText(now, { axes }) {
  const sizes = { B: 1, H: 1, T: now.shape[0], S: now.shape[1] };
  const letters = axes.split(" ");
  return `(${letters.join(", ")}) = (${letters.map((x) => sizes[x]).join(", ")})`;
}
