// One input through two of the six styles: each takes its own steps in its own layout.
import {
  button, choice, controls, fixed, h, ink, need, needArray, numbers, palette, range,
  readout, say, shade, shapeOf, slider, softmax, widget,
} from "./common.js";

// --- tensors: a shape and numbers in memory order ------------------------------------

const size = (shape) => shape.reduce((a, b) => a * b, 1);
const strides = (shape) => shape.map((_, i) => size(shape.slice(i + 1)));
const tensor = (shape, data = new Float64Array(size(shape))) => ({ shape, data });
const read = (nested) => tensor(shapeOf(nested), Float64Array.from(nested.flat(Infinity)));
const view = (x, shape) => tensor(shape, x.data);
const each = (x, f) => tensor(x.shape, x.data.map(f));

/** Visit every index of a shape; each of two or three operands tells its step along every axis. */
function walk(shape, steps, visit, axis = 0, i = 0, j = 0, k = 0) {
  if (axis === shape.length) return visit(i, j, k);
  const [a, b, c] = steps.map((step) => step[axis]);
  for (let n = 0; n < shape[axis]; n++) {
    walk(shape, steps, visit, axis + 1, i + n * a, j + n * b, k + n * (c ?? 0));
  }
}

function permute(x, order) {
  const result = tensor(order.map((axis) => x.shape[axis]));
  const from = order.map((axis) => strides(x.shape)[axis]);
  walk(result.shape, [strides(result.shape), from], (i, j) => (result.data[i] = x.data[j]));
  return result;
}

function swap(x, a, b) {
  return permute(x, x.shape.map((_, i) => (i === a ? b : i === b ? a : i)));
}

function cat(parts, axis) {
  const shape = parts[0].shape.map((n, i) => (i === axis ? n * parts.length : n));
  const run = size(parts[0].shape.slice(axis));
  const result = tensor(shape);
  range(size(shape.slice(0, axis))).forEach((i) => parts.forEach((x, p) =>
    result.data.set(x.data.subarray(i * run, (i + 1) * run), (i * parts.length + p) * run)));
  return result;
}

const stack = (parts) => cat(parts.map((x) => view(x, [1, ...x.shape])), 0);
const unstack = (x) => chunk(x, x.shape[0], 0).map((part) => view(part, x.shape.slice(1)));

function chunk(x, count, axis) {
  const shape = x.shape.map((n, i) => (i === axis ? n / count : n));
  const run = size(shape.slice(axis));
  return range(count).map((p) => tensor(shape, Float64Array.from(range(size(shape)), (i) =>
    x.data[(Math.floor(i / run) * count + p) * run + (i % run)])));
}

function einsum(equation, a, b) {
  const [one, two, out] = equation.split(/,|->/);
  const letters = [...new Set(out + one + two)];
  const length = (x) => (one.includes(x) ? a.shape[one.indexOf(x)] : b.shape[two.indexOf(x)]);
  const along = (names, shape) => letters.map((x) => strides(shape)[names.indexOf(x)] ?? 0);
  const result = tensor([...out].map(length));
  walk(letters.map(length),
    [along(out, result.shape), along(one, a.shape), along(two, b.shape)],
    (i, j, k) => (result.data[i] += a.data[j] * b.data[k]));
  return result;
}

function linear(x, matrix, bias) {
  const rows = view(x, [size(x.shape.slice(0, -1)), x.shape.at(-1)]);
  const y = einsum("ne,oe->no", rows, matrix);
  return each(view(y, [...x.shape.slice(0, -1), bias.shape[0]]),
    (value, i) => value + bias.data[i % bias.shape[0]]);
}

function softmaxOver(scores, axis) {
  const last = scores.shape.length - 1;
  const rows = swap(scores, axis, last);
  const n = rows.shape[last];
  for (let i = 0; i < rows.data.length; i += n) {
    const row = rows.data.subarray(i, i + n);
    row.set(softmax(row, row.map((x) => x > -Infinity)));
  }
  return swap(rows, axis, last);
}

// --- the six styles, each with its own code, axes and operations -----------------------
// Axes: "h | b t d" is a Python list over h of tensors (b, t, d); (h d) is one axis.

function attend([q, k, v], mask, { scale }, { equations: [first, second], keys }) {
  const scores = einsum(first, each(q, (x) => x * scale), k);
  const masked = mask && each(scores, (x, i) => (mask.data[i] ? x : -Infinity));
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
  split: (y, { B, T, H, D }) => swap(view(y, [B, T, H, D]), 1, 2),
  mask: same,
  attend,
  merge: (c, { x }) => view(swap(c, 1, 2), x.shape),
  finish: same,
  back: same,
};

function style({ axes, code, ...operations }) {
  return { ...BATCHED, ...operations,
    axes: { ...BATCHED.axes, ...axes }, code: { ...BATCHED.code, ...code } };
}

const ROWS = { equations: ["ntd,nsd->nts", "nts,nsd->ntd"], keys: 2 };

const STYLES = {
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
    split: (y, { B, T, H, D }) => view(y, [T, B, H, D]),
    mask: (m) => permute(m, [2, 3, 0, 1]),
    merge: (c, { B, T, H, D }) => view(c, [T, B, H * D]),
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
    split: (y, { B, T, H, D }) => swap(view(y, [T, B * H, D]), 0, 1),
    mask: (m, { B, T, H }) => view(m, [B * H, T, T]),
    merge: (c, { B, T, H, D }) => view(swap(c, 0, 1), [T * B, H * D]),
    finish: (y, { B, T, H, D }) => swap(view(y, [T, B, H * D]), 0, 1),
    back: (w, { B, T, H }) => view(w, [B, H, T, T]),
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
    mask: (m, { B, T, H }) => view(swap(m, 0, 1), [H * B, T, T]),
    merge: (c, { H }) => cat(chunk(c, H, 0), 2),
    back: (w, { B, T, H }) => swap(view(w, [H, B, T, T]), 0, 1),
  }),
};

/** The steps of a style: {name: [code, tensor's name, axes, tensor]}. */
function run({ axes, code, prefix, ...own }, p) {
  const x = own.turn(p.x);
  const projected = own.project(x, p);
  const heads = own.cut(projected).map((y) => own.split(y, p));
  const parts = own.attend(heads, p.mask && own.mask(p.mask, p), p, own);
  const merged = p.join(own.merge(parts.context, p));
  const splits = [..."qkv"].map((letter, r) => [`split ${letter}`, [
    code.split.replaceAll("?", letter), prefix + letter,
    r ? axes.heads.replace("t", "s") : axes.heads, heads[r]]]);
  return {
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
    returned: [code.returned, "weights", "b h t s", own.back(parts.weights, p)],
  };
}

const MISTAKES = {
  none: ["none"],
  exchange: ["W_q and W_k exchanged", "project"],
  scale: ["scale 1/√E, not 1/√D", "scores"],
  merge: ["features interleaved in the merge", "merge"],
};

/** What a style computes from; a mistake changes it before or on the way. */
function parameters(ui, mistake) {
  const [x, H] = [read(ui.get("x")), ui.get("num_heads")];
  const [B, T, E] = x.shape;
  const [matrices, biases] = ["matrices", "biases"].map((trait) => ui.get(trait).map(read));
  if (mistake === "exchange") {
    for (const all of [matrices, biases]) [all[0], all[1]] = [all[1], all[0]];
  }
  const interleave = (y) =>
    view(swap(view(y, [size(y.shape) / E, H, E / H]), 1, 2), y.shape);
  const allowed = ui.get("mask");
  return {
    x, matrices, biases, B, T, H, D: E / H,
    scale: 1 / Math.sqrt(mistake === "scale" ? E : E / H),
    join: mistake === "merge" ? interleave : same,
    mask: allowed.length ? swap(stack(range(H).map(() => read(allowed))), 0, 1) : null,
  };
}

// --- layouts: which element lies where -----------------------------------------------

const LETTER = { hd: "e", rhd: "c", hb: "n", bh: "n", tb: "n" };
const SHAPE = { hd: "E", rhd: "3·E", hb: "H·B", bh: "B·H", tb: "T·B" };
const letter = (group) => LETTER[group.join("")] ?? group[0];
const fill = (name, at) => name.replace(/\{(\w)\}/g, (_, x) => (x === "r" ? "qkv"[at.r] ?? "q, k, v" : at[x]));

/** A step of a style, with the place (its letters) of every number. */
function described([code, name, axes, x], sizes) {
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
  const shape = groups.map((g) => size(g.map((x) => sizes[x])));
  const count = size(shape.slice(0, listed));
  return {
    code, name, groups, listed, places, index, offset, shape, data: x.data,
    rows: shape.at(-2), columns: shape.at(-1),
    element: (at) => `${fill(name, at)}[${index(at).slice(listed).join(", ")}]`,
    axes: own.map(letter).join("") + (listed ? ` for each ${groups.slice(0, listed)
      .map(([x]) => (x === "r" ? "of q, k, v" : x)).join(" and each ")}` : ""),
    title: (count > 1 ? `${count} tensors ` : "") +
      `(${own.map((g) => SHAPE[g.join("")] ?? g[0].toUpperCase()).join(", ")}) = (${shape.slice(listed).join(", ")})`,
    joined: own.filter((g) => g.length > 1).map((g) => `${letter(g)} = ` + g.map((x, i) =>
      [x, ...g.slice(i + 1).map((y) => y.toUpperCase())].join("·").replace("H·D", "E")).join(" + ")),
  };
}

/** The largest difference between the same elements of two layouts. */
function compare(left, right) {
  return left.places.reduce((most, at, i) => {
    const [a, b] = [left.data[i], right.data[right.offset(at)]];
    return Math.max(most, a === b ? 0 : Math.abs(a - b));
  }, 0);
}

// --- the picture of one tensor: a block for every index of the axes before the last two

const [ROWHEAD, HEADING] = [18, 28];
const SIZES = [[38, 20], [30, 20], [26, 18], [18, 14], [12, 12], [8, 10], [4, 10]];
const TALLEST = 520;

/** The largest cells with which all blocks stay on the screen, equal indices below each other. */
function arrange({ rows, columns, places, groups, shape }, width) {
  const count = places.length / (rows * columns);
  const cycle = shape.at(-3) ?? 1;
  const narrowest = groups.length > 2 ? 14 * groups.slice(0, -2).flat().length + 26 : 0;
  const layouts = SIZES.map(([wide, high]) => {
    const block = [Math.max(narrowest, ROWHEAD + columns * wide + 12), HEADING + rows * high + 8];
    const most = Math.max(1, Math.floor((width + 12) / block[0]));
    const across = most > cycle ? most - (most % cycle) : most;
    return { wide, high, block, across, height: Math.ceil(count / across) * block[1] };
  });
  const fits = ({ block }) => block[0] <= width + 12;
  const possible = layouts.filter(fits);
  const lowest = Math.min(...possible.map((x) => x.height));
  return possible.find((x) => x.height <= Math.max(TALLEST, lowest)) ?? layouts.at(-1);
}

/** A canvas that shows `now()`: {step, at: the cursor, largest} and calls `go(place)`. */
function picture(ui, side, now, go) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", {
    class: "mha-map", tabindex: "0", role: "application", "aria-roledescription": "tensor",
  }, canvas);
  let layout = null;

  const point = (event) => {
    const { rows, columns, places } = now().step;
    const { wide, high, block, across } = layout;
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const [right, down] = [Math.floor(x / block[0]), Math.floor(y / block[1])];
    const j = Math.floor((x - right * block[0] - ROWHEAD) / wide);
    const i = Math.floor((y - down * block[1] - HEADING) / high);
    if (i < 0 || j < 0 || i >= rows || j >= columns || right >= across) return;
    const place = places[((down * across + right) * rows + i) * columns + j];
    if (place) go(place);
  };
  frame.addEventListener("pointermove", point);
  frame.addEventListener("pointerdown", point);
  frame.addEventListener("keydown", (event) => {
    const { step: { rows, columns, places, offset }, at } = now();
    const place = offset(at);
    const [block, i, j] = [Math.floor(place / (rows * columns)), Math.floor(place / columns) % rows, place % columns];
    const step = {
      ArrowUp: [block, i - 1, j], ArrowDown: [block, i + 1, j], ArrowLeft: [block, i, j - 1],
      ArrowRight: [block, i, j + 1], Home: [block, i, 0], End: [block, i, columns - 1],
      PageUp: [block - 1, i, j], PageDown: [block + 1, i, j],
    }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = [places.length / (rows * columns), rows, columns];
    const [b, r, c] = step.map((x, k) => Math.max(0, Math.min(last[k] - 1, x)));
    go(places[(b * rows + r) * columns + c]);
  });

  ui.follow(() => {
    const { step, at, largest } = now();
    frame.setAttribute("aria-label", `${side}: ${fill(step.name, { h: "h" })}, ${step.title}; ` +
      "arrow keys move in a block, Page Up and Page Down from block to block");
    const width = Math.max(150, frame.clientWidth);
    layout = arrange(step, width);
    const scale = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(layout.height * scale) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${layout.height}px` });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    drawTensor(context, step, at, largest, layout, palette(ui.root));
  });
  return frame;
}

/** What stands at place k of an axis: its number, or for a joined axis a part's start. */
function mark(group, places, k, step) {
  if (group.length === 1) return group[0] === "r" ? "qkv"[k] : `${k}`;
  const [first, ...rest] = group;
  const part = places[k * step];
  if (rest.some((x) => part[x])) return "";
  return first === "r" ? "qkv"[part.r] : first + part[first];
}

function drawTensor(context, step, at, largest, { wide, high, block, across }, colours) {
  const { groups, places, data, rows, columns, offset } = step;
  const [down, right] = groups.slice(-2);
  const chosen = offset(at);
  const write = (text, x, y, align, colour = colours.muted, font = "10px") => {
    Object.assign(context, { textAlign: align, fillStyle: colour, font: `${font} system-ui, sans-serif` });
    context.fillText(text, x, y);
  };
  context.textBaseline = "middle";
  for (let start = 0, n = 0; start < data.length; start += rows * columns, n++) {
    const [x0, y0] = [(n % across) * block[0], Math.floor(n / across) * block[1]];
    const [left, top] = [x0 + ROWHEAD, y0 + HEADING];
    const head = groups.slice(0, -2).map((group) => {
      const parts = group.map((x) => (x === "r" ? "qkv"[places[start].r] : x + places[start][x])).join(" ");
      return group.length > 1 ? `${letter(group)}${offset(places[start]) / (rows * columns)}: ${parts}` : parts;
    }).join(" ");
    const here = chosen >= start && chosen < start + rows * columns;
    write(head, left, y0 + 7, "left", here ? colours.accent : colours.text, here ? "bold 11px" : "11px");
    write(`${letter(down)}\\${letter(right)}`, left - 3, y0 + 20, "right");
    for (let j = 0; j < columns; j++) {
      const text = mark(right, places, j, 1);
      if (right.length > 1) write(text, left + j * wide + 1, y0 + 20, "left");
      else if (wide >= 12 || j % 4 === 0) write(text, left + (j + 0.5) * wide, y0 + 20, "center");
    }
    for (let i = 0; i < rows; i++) write(mark(down, places, i, columns), left - 4, top + (i + 0.5) * high, "right");
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const k = start + i * columns + j;
        const [x, y] = [left + j * wide, top + i * high];
        const hidden = data[k] === -Infinity;
        const back = shade(colours, hidden ? 0 : data[k] / largest);
        context.fillStyle = `rgb(${back.join(" ")})`;
        context.fillRect(x, y, wide - 1, high - 1);
        if (hidden) {
          line(context, colours.hidden, 1, [x + 2, y + high - 3], [x + wide - 3, y + 2]);
        } else if (wide >= 26) {
          const [digits, font] = wide < 30 ? [1, "10px"] : [2, wide < 38 ? "9px" : "11px"];
          write(fixed(data[k], digits), x + (wide - 1) / 2, y + high / 2, "center", ink(back), font);
        }
        if (places[k].h === at.h && places[k].b === at.b) {
          line(context, colours.accent, 2, [x, y + high - 2], [x + wide - 1, y + high - 2]);
        }
      }
    }
    for (let j = 1; j < columns; j++) {
      if (right.length > 1 && mark(right, places, j, 1)) {
        line(context, colours.text, 1, [left + j * wide - 0.5, top - 4], [left + j * wide - 0.5, top + rows * high]);
      }
    }
    if (here) {
      const [i, j] = [Math.floor((chosen - start) / columns), (chosen - start) % columns];
      Object.assign(context, { strokeStyle: colours.accent, lineWidth: 3 });
      context.strokeRect(left + j * wide - 0.5, top + i * high - 0.5, wide, high);
    }
  }
}

function line(context, colour, width, from, to) {
  Object.assign(context, { strokeStyle: colour, lineWidth: width });
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
}

// --- the widget ----------------------------------------------------------------------

const DATA = ["x", "matrices", "biases", "num_heads", "mask", "tokens"];
const EQUAL = 1e-9; // far above rounding in float64, far below any mistake

function check(ui) {
  const [B, T, E] = needArray(ui.get("x"), "x", 3);
  const H = ui.get("num_heads");
  need(B <= 2 && T <= 6 && E <= 16,
    `it shows at most 2 sequences, 6 tokens and 16 features; x has ${B}, ${T} and ${E}.`);
  need(H >= 1 && E % H === 0, `the number of heads must divide E = ${E}; it is ${H}.`);
  need(H <= 4, `it shows at most 4 heads; there are ${H}.`);
  const fits = (name, rank, wanted) => {
    const shape = needArray(ui.get(name), name, rank);
    need(`${shape}` === `${wanted}`, `${name} must have the shape (${wanted.join(", ")}); it is (${shape.join(", ")}).`);
  };
  fits("matrices", 3, [4, E, E]);
  fits("biases", 2, [4, E]);
  const mask = ui.get("mask");
  need(!mask.length || `${shapeOf(mask)}` === `${[B, T, T]}`, `the mask must have the shape (${B}, ${T}, ${T}).`);
  need(`${shapeOf(ui.get("tokens"))}` === `${[B, T]}`, "each token of x needs one label.");
  for (const side of ["left", "right"]) {
    need(STYLES[ui.get(side)], `there is no style “${ui.get(side)}”.`);
  }
  need(MISTAKES[ui.get("mistake")], `there is no mistake “${ui.get("mistake")}”.`);
}

export default widget("Versions side by side", (ui) => {
  let known = [];
  let made = new Map(); // the steps of a style, computed once
  let pairs = []; // [step, left, right, largest difference, largest number]
  let sizes = {};

  const steps = (style, mistake) => {
    const key = `${style} ${mistake}`;
    if (!made.has(key)) {
      const found = Object.entries(run(STYLES[style], parameters(ui, mistake)));
      made.set(key, new Map(found.map(([name, step]) => [name, described(step, sizes)])));
    }
    return made.get(key);
  };
  ui.follow(() => {
    const state = [...DATA, "left", "right", "mistake"].map(ui.get);
    if (state.every((x, i) => x === known[i])) return;
    if (DATA.some((_, i) => state[i] !== known[i])) {
      check(ui);
      made = new Map();
      const { B, H, T, D } = parameters(ui, "none");
      sizes = { r: 3, b: B, h: H, t: T, s: T, d: D, e: H * D };
    }
    check(ui);
    const [left, right] = [steps(ui.get("left"), "none"), steps(ui.get("right"), ui.get("mistake"))];
    pairs = [...left].map(([name, a]) => {
      const b = right.get(name);
      const largest = [...a.data, ...b.data].reduce((m, x) => (Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m), 1e-9);
      return { name, left: a, right: b, largest, difference: compare(a, b) };
    });
    known = state;
  });
  const current = () => Math.max(0, Math.min(pairs.length - 1, ui.get("step")));
  const pair = () => pairs[current()];
  const equal = ({ difference, largest }) => difference <= EQUAL * largest;
  const cursor = () => {
    const at = Object.fromEntries([..."rbhtsd"].map((x) =>
      [x, Math.max(0, Math.min(sizes[x] - 1, ui.get(x)))]));
    return { ...at, e: at.h * sizes.d + at.d };
  };
  const go = ({ e, ...at }) => {
    if (e !== undefined) Object.assign(at, { h: Math.floor(e / sizes.d), d: e % sizes.d });
    if (Object.entries(at).some(([trait, value]) => ui.get(trait) !== value)) ui.setAll(at);
  };
  const value = (step, at) => `${step.element(at)} = ${shown(step.data[step.offset(at)])}`;
  const turn = (by) => ui.set("step", Math.max(0, Math.min(pairs.length - 1, current() + by)));

  const [previous, next] = [button("previous", () => turn(-1)), button("next", () => turn(1))];
  const list = h("div", { class: "mha-steps", role: "group", "aria-label": "steps" });
  ui.follow(() => {
    if (list.children.length !== pairs.length) {
      list.replaceChildren(...pairs.map((_, i) => button("", () => ui.set("step", i))));
    }
    pairs.forEach((one, i) => {
      say(list.children[i], `${one.name} ${equal(one) ? "=" : "≠"}`);
      list.children[i].setAttribute("aria-pressed", i === current());
    });
    previous.setAttribute("aria-disabled", current() === 0); // not disabled: it keeps the focus
    next.setAttribute("aria-disabled", current() === pairs.length - 1);
  });

  const side = (trait) => {
    const [code, shape, wrong] = [h("code"), h("p"), h("p", { class: "mha-warning" })];
    const one = h("p", { class: "mha-element" });
    ui.follow(() => {
      const step = pair()[trait];
      const mistake = MISTAKES[ui.get("mistake")];
      say(code, step.code);
      say(shape, `${fill(step.name, { h: "h" })} · ${step.title}`);
      say(one, value(step, cursor()));
      wrong.hidden = trait === "left" || mistake[1] !== pair().name;
      say(wrong, `Mistake: ${mistake[0]}.`);
    });
    return h("div", { class: "mha-version" },
      choice(ui, { label: trait, trait, options: Object.keys(STYLES).map((x) => [x, x]) }),
      h("pre", { tabindex: "0", role: "group", "aria-label": `code of the ${trait} style` }, code), wrong, shape, one,
      picture(ui, trait, () => ({ step: pair()[trait], at: cursor(), largest: pair().largest }), go));
  };

  const [element, verdict, axes] = [readout(), readout(), h("p", { class: "mha-axes" })];
  ui.follow(() => {
    const { left, right, difference } = pair();
    const at = cursor();
    const letters = [...new Set(left.groups.flat())].sort((a, b) => "rbhtsde".indexOf(a) - "rbhtsde".indexOf(b));
    const place = letters.map((x) => {
      if (x === "r") return "qkv"[at.r];
      return `${x} = ${at[x]}` + ("ts".includes(x) ? ` “${ui.get("tokens")[at.b][at[x]]}”` : "");
    }).join(", ");
    say(element, `Outlined: ${place}. Left ${value(left, at)}, right ${value(right, at)}.`);
    const first = pairs.find((one) => !equal(one));
    say(verdict, (equal(pair())
      ? `The two hold the same numbers: the largest difference is ${difference ? difference.toExponential(1) : 0}.`
      : `The two hold different numbers: the largest difference is ${fixed(difference, 4)}.`) +
      (first ? ` The first step that differs is “${first.name}”.` : ""));
    const joined = [...new Set([...left.joined, ...right.joined])];
    say(axes, `Axes: ${left.axes} ↔ ${right.axes}` + (joined.length ? `, where ${joined.join("; ")}` : "") +
      (joined.some((x) => x.includes("r·")) ? "; r = 0, 1, 2 for q, k, v" : "") + ".");
  });

  let table = null;
  const content = () => {
    if (table?.pair === pair()) return table;
    const { left, right, name } = pair();
    const rows = left.places.map((at, i) => {
      const place = Object.entries(at).map(([x, n]) => (x === "r" ? "qkv"[n] : `${x} ${n}`)).join(", ");
      return [place, left.element(at), shown(left.data[i]), right.element(at), shown(right.data[right.offset(at)])];
    });
    table = { pair: pair(), caption: `${name}: ${left.title} and ${right.title}`, rows,
      columns: ["element", "left", "value on the left", "right", "value on the right"] };
    return table;
  };

  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    controls(
      previous, next,
      slider(ui, { label: "step", trait: "step", range: () => ({ min: 0, max: pairs.length - 1 }),
        format: () => `${current() + 1} of ${pairs.length}: ${pair().name}` }),
      choice(ui, { label: "mistake on the right", trait: "mistake",
        options: Object.entries(MISTAKES).map(([key, [text]]) => [key, text]) }),
    ),
    list, verdict, axes,
    h("div", { class: "mha-versions" }, side("left"), side("right")),
    element,
    h("p", { class: "mha-legend" }, "Outlined: one element, the same on both sides. Underlined: the rest of its head in its sequence. Struck out: hidden by the mask."),
    numbers(ui, "Every element as a table", content),
  );
});

const shown = (x) => (x === -Infinity ? "hidden" : fixed(x, 4));
