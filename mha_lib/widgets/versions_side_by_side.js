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

/** Visit every index of a shape; each operand tells its step along every axis. */
function walk(shape, steps, visit, axis = 0, offsets = steps.map(() => 0)) {
  if (axis === shape.length) return visit(...offsets);
  for (let i = 0; i < shape[axis]; i++) {
    walk(shape, steps, visit, axis + 1, offsets.map((x, k) => x + i * steps[k][axis]));
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

// --- the six styles: step → [code, name, axes, tensor] -------------------------------
// Axes: "h | b t d" is a Python list over h of tensors (b, t, d); (h d) is one axis.

function attend(q, k, v, { mask, scale }, [first, second], keys) {
  const scores = einsum(first, each(q, (x) => x * scale), k);
  const masked = mask && each(scores, (x, i) => (mask.data[i] ? x : -Infinity));
  const weights = softmaxOver(masked ?? scores, keys);
  return { scores, masked, weights, context: einsum(second, weights, v) };
}

const BATCHED = ["bhtd,bhsd->bhts", "bhts,bhsd->bhtd"];
const ROWS = ["ntd,nsd->nts", "nts,nsd->ntd"];
const CODE = {
  projections: "q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)",
  scores: "scores = (q * scale) @ k.transpose(-2, -1)",
  mask: "scores = scores.masked_fill(~mask, lowest)",
  weights: "weights = scores.softmax(-1)",
  emptied: ".masked_fill(~mask, 0.0)",
  context: "context = weights @ v",
  output: "output = self.out_proj(merged)",
};

/** The steps in which most styles differ in their axes alone. */
function middle(parts, heads, code = {}, prefix = "", contexts = `${prefix}context`) {
  const says = { ...CODE, ...code };
  const scores = heads.replace("d", "s");
  return {
    scores: [says.scores, `${prefix}scores`, scores, parts.scores],
    mask: parts.masked && [says.mask, `${prefix}scores`, scores, parts.masked],
    weights: [says.weights + (parts.masked ? says.emptied : ""), `${prefix}weights`,
      scores, parts.weights],
    context: [says.context, contexts, heads, parts.context],
  };
}

function splits(code, heads, qkv, prefix = "") {
  return Object.fromEntries([..."qkv"].map((x, r) => [`split ${x}`, [
    code.replaceAll("?", x), prefix + x, r ? heads.replace("t", "s") : heads, qkv[r]]]));
}

const project = (x, { matrices, biases }) =>
  range(3).map((r) => linear(x, matrices[r], biases[r]));
const splitHeads = (x, { H, D }) => swap(view(x, [...x.shape.slice(0, 2), H, D]), 1, 2);
const output = (merged, p) => linear(merged, p.matrices[3], p.biases[3]);

const STYLES = {
  PerHeadMHA(p) {
    const { x, H } = p;
    const slices = [p.matrices, p.biases].map((all) => all.map((part) => chunk(part, H, 0)));
    const masks = p.mask && chunk(p.mask, H, 1);
    const heads = range(H).map((i) => {
      const [matrices, biases] = slices.map((all) => all.map((parts) => parts[i]));
      const qkv = project(x, { matrices, biases });
      return { qkv, all: stack(qkv),
        ...attend(...qkv, { ...p, mask: masks?.[i] }, ["btd,bsd->bts", "bts,bsd->btd"], 2) };
    });
    const list = (key) => heads[0][key] && stack(heads.map((head) => head[key]));
    const parts = Object.fromEntries(
      ["scores", "masked", "weights", "context"].map((key) => [key, list(key)]));
    const merged = p.join(cat(heads.map((head) => head.context), 2));
    return {
      x: ["query", "query", "b t e", x],
      project: [`${CODE.projections}  # in each head`, "heads[{h}]: {r}", "h r | b t d", list("all")],
      ...splits("# nothing to split: each head has a ? of its own", "h | b t d",
        range(3).map((r) => stack(heads.map((head) => head.qkv[r]))), "heads[{h}]: "),
      ...middle(parts, "h | b t d", {}, "heads[{h}]: ", "contexts[{h}]"),
      merge: ["merged = torch.cat(contexts, dim=-1)", "merged", "b t (h d)", merged],
      output: [CODE.output, "output", "b t e", output(merged, p)],
      returned: ["torch.stack(weights, dim=1)", "weights", "b h t s", swap(parts.weights, 0, 1)],
    };
  },
  BatchedMHA(p, projected = project(p.x, p), first = null, split = "") {
    const qkv = projected.map((x) => splitHeads(x, p));
    const parts = attend(...qkv, p, BATCHED, 3);
    const merged = p.join(view(swap(parts.context, 1, 2), p.x.shape));
    return {
      x: ["query", "query", "b t e", p.x],
      project: first ?? [CODE.projections, "{r}", "r | b t (h d)", stack(projected)],
      ...splits(`${split}? = ?.unflatten(-1, (H, D)).transpose(1, 2)`, "b h t d", qkv),
      ...middle(parts, "b h t d"),
      merge: ["merged = context.transpose(1, 2).flatten(2)", "merged", "b t (h d)", merged],
      output: [CODE.output, "output", "b t e", output(merged, p)],
      returned: ["weights", "weights", "b h t s", parts.weights],
    };
  },
  FusedMHA(p) {
    const qkv = linear(p.x, cat(p.matrices.slice(0, 3), 0), cat(p.biases.slice(0, 3), 0));
    return STYLES.BatchedMHA(p, chunk(qkv, 3, 2),
      ["qkv = self.in_proj(query)", "qkv", "b t (r h d)", qkv],
      "q, k, v = qkv.chunk(3, dim=-1)\n");
  },
  EinsumMHA(p) {
    const x = swap(p.x, 0, 1);
    const projected = project(x, p);
    const qkv = projected.map((y) => view(y, [...x.shape.slice(0, 2), p.H, p.D]));
    const equations = ["tbhd,sbhd->tsbh", "tsbh,sbhd->tbhd"];
    const mask = p.mask && permute(p.mask, [2, 3, 0, 1]);
    const parts = attend(...qkv, { ...p, mask }, equations, 1);
    const merged = p.join(view(parts.context, x.shape));
    const middles = middle(parts, "t b h d", {
      scores: `scores = torch.einsum("${equations[0]}", q * scale, k)`,
      mask: "scores = scores.masked_fill(~mask[..., None], lowest)",
      weights: "weights = scores.softmax(dim=1)", emptied: ".masked_fill(~mask[..., None], 0.0)",
      context: `context = torch.einsum("${equations[1]}", weights, v)`,
    });
    for (const step of ["scores", "mask", "weights"]) {
      if (middles[step]) middles[step][2] = "t s b h";
    }
    return {
      x: ["query = x.transpose(0, 1)  # the caller does it", "query", "t b e", x],
      project: [CODE.projections, "{r}", "r | t b (h d)", stack(projected)],
      ...splits("? = ?.unflatten(-1, (H, D))", "t b h d", qkv),
      ...middles,
      merge: ["merged = context.flatten(-2)", "merged", "t b (h d)", merged],
      output: [CODE.output, "output", "t b e", output(merged, p)],
      returned: ["weights.permute(2, 3, 0, 1)", "weights", "b h t s", permute(parts.weights, [2, 3, 0, 1])],
    };
  },
  BuiltinMHA(p) {
    const { B, T, H, D } = p;
    const x = swap(p.x, 0, 1);
    const all = linear(x, cat(p.matrices.slice(0, 3), 0), cat(p.biases.slice(0, 3), 0));
    const qkv = chunk(all, 3, 2).map((y) => swap(view(y, [T, B * H, D]), 0, 1));
    const mask = p.mask && view(p.mask, [B * H, T, T]);
    const parts = attend(...qkv, { ...p, mask }, ROWS, 2);
    const merged = p.join(view(swap(parts.context, 0, 1), [T * B, H * D]));
    return {
      x: ["query = query.transpose(1, 0)  # batch_first=True", "query", "t b e", x],
      project: ["qkv = linear(query, in_proj_weight, in_proj_bias)", "qkv", "t b (r h d)", all],
      ...splits("q, k, v = qkv[..., :E], qkv[..., E:2*E], qkv[..., 2*E:]\n" +
        "? = ?.reshape(-1, B * H, D).transpose(0, 1)", "(b h) t d", qkv),
      ...middle(parts, "(b h) t d", {
        scores: "scores = torch.bmm(q * scale, k.transpose(-2, -1))",
        mask: "scores = scores + attn_mask  # −∞ where hidden, in baddbmm",
        weights: "weights = softmax(scores, dim=-1)",
        emptied: "\nweights = weights.masked_fill(empty, 0.0)  # our class",
        context: "context = torch.bmm(weights, v)",
      }),
      merge: ["merged = context.transpose(0, 1).reshape(T * B, E)", "merged", "(t b) (h d)", merged],
      output: ["output = linear(merged, out_proj_weight, out_proj_bias)\noutput = output.view(T, B, E).transpose(1, 0)",
        "output", "b t e", swap(view(output(merged, p), [T, B, H * D]), 0, 1)],
      returned: ["weights.view(B, H, T, S)", "weights", "b h t s", view(parts.weights, [B, H, T, T])],
    };
  },
  SplitConcatMHA(p) {
    const { B, T, H } = p;
    const projected = project(p.x, p);
    const qkv = projected.map((y) => cat(chunk(y, H, 2), 0));
    const mask = p.mask && view(swap(p.mask, 0, 1), [H * B, T, T]);
    const parts = attend(...qkv, { ...p, mask }, ROWS, 2);
    const merged = p.join(cat(chunk(parts.context, H, 0), 2));
    return {
      x: ["query", "query", "b t e", p.x],
      project: [CODE.projections, "{r}", "r | b t (h d)", stack(projected)],
      ...splits("? = torch.cat(?.split(D, dim=-1), dim=0)", "(h b) t d", qkv),
      ...middle(parts, "(h b) t d"),
      merge: ["merged = torch.cat(context.chunk(H, dim=0), dim=-1)", "merged", "b t (h d)", merged],
      output: [CODE.output, "output", "b t e", output(merged, p)],
      returned: ["weights.unflatten(0, (H, B)).transpose(0, 1)", "weights", "b h t s",
        swap(view(parts.weights, [H, B, T, T]), 0, 1)],
    };
  },
};

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
    join: mistake === "merge" ? interleave : (y) => y,
    mask: allowed.length ? swap(stack(range(H).map(() => read(allowed))), 0, 1) : null,
  };
}

// --- layouts: which element lies where -----------------------------------------------

const LETTER = { hd: "e", rhd: "c", hb: "n", bh: "n", tb: "n" };
const SHAPE = { hd: "E", rhd: "3·E", hb: "H·B", bh: "B·H", tb: "T·B" };
const letter = (group) => LETTER[group.join("")] ?? group[0];
const fill = (name, at) => name.replace(/\{(\w)\}/g, (_, x) => (x === "r" ? "qkv"[at.r] : at[x]));

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
      .map(([x]) => (x === "r" ? "of q, k, v" : x)).join(" and ")}` : ""),
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

/** The largest cells with which all blocks stay on the screen. */
function arrange({ rows, columns, places, groups }, width) {
  const count = places.length / (rows * columns);
  const narrowest = groups.length > 2 ? 14 * groups.slice(0, -2).flat().length + 26 : 0;
  const layouts = SIZES.map(([wide, high]) => {
    const block = [Math.max(narrowest, ROWHEAD + columns * wide + 12), HEADING + rows * high + 8];
    const across = Math.max(1, Math.floor((width + 12) / block[0]));
    return { wide, high, block, across, height: Math.ceil(count / across) * block[1] };
  });
  const fits = ({ block }) => block[0] <= width + 12;
  return layouts.find((x) => fits(x) && x.height <= TALLEST) ?? layouts.findLast(fits) ?? layouts.at(-1);
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
    const [across_, down] = [Math.floor(x / block[0]), Math.floor(y / block[1])];
    const j = Math.floor((x - across_ * block[0] - ROWHEAD) / wide);
    const i = Math.floor((y - down * block[1] - HEADING) / high);
    if (i < 0 || j < 0 || i >= rows || j >= columns || across_ >= across) return;
    const place = places[((down * across + across_) * rows + i) * columns + j];
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
    frame.setAttribute("aria-label", `${side}: ${fill(step.name, { r: 0, h: "h" })}, ${step.title}; ` +
      "arrow keys move in a block, Page Up and Page Down from block to block");
    const width = Math.max(150, frame.clientWidth);
    layout = arrange(step, width);
    const scale = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(layout.height * scale) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${layout.height}px` });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    draw2(context, step, at, largest, layout, palette(ui.root));
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

function draw2(context, step, at, largest, { wide, high, block, across }, colours) {
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
      if (right.length > 1 || wide >= 12 || j % 4 === 0) write(text, left + (j + 0.5) * wide, y0 + 20, "center");
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
          write(fixed(data[k]), x + (wide - 1) / 2, y + high / 2, "center", ink(back), wide > 30 ? "11px" : "9px");
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
  need(E <= 16, `it shows at most 16 features, and x has ${E}.`);
  need(H >= 1 && E % H === 0, `the number of heads must divide E = ${E}; it is ${H}.`);
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
      const found = Object.entries(STYLES[style](parameters(ui, mistake))).filter(([, x]) => x);
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
  const turn = (by) => ui.set("step", Math.max(0, Math.min(pairs.length - 1, current() + by)));

  const list = h("div", { class: "mha-steps", role: "group", "aria-label": "steps" });
  ui.follow(() => {
    if (list.children.length !== pairs.length) {
      list.replaceChildren(...pairs.map((_, i) => button("", () => ui.set("step", i))));
    }
    pairs.forEach((one, i) => {
      say(list.children[i], `${one.name} ${equal(one) ? "=" : "≠"}`);
      list.children[i].setAttribute("aria-pressed", i === current());
    });
  });

  const side = (trait) => {
    const [code, shape, wrong] = [h("code"), h("p"), h("p", { class: "mha-warning" })];
    ui.follow(() => {
      const step = pair()[trait];
      const mistake = MISTAKES[ui.get("mistake")];
      say(code, step.code);
      say(shape, `${fill(step.name, { r: 0, h: "h" }).replace(/q$/, step.listed && pair().name === "project" ? "q, k, v" : "$&")}: ${step.title}`);
      wrong.hidden = trait === "left" || mistake[1] !== pair().name;
      say(wrong, `Mistake: ${mistake[0]}.`);
    });
    return h("div", { class: "mha-version" },
      choice(ui, { label: trait, trait, options: Object.keys(STYLES).map((x) => [x, x]) }),
      h("pre", { tabindex: "0", role: "region", "aria-label": `code of the ${trait} style` }, code), wrong, shape,
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
    const value = (step) => `${step.element(at)} = ${shown(step.data[step.offset(at)])}`;
    say(element, `Outlined: ${place}. Left ${value(left)}, right ${value(right)}.`);
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
      button("previous", () => turn(-1)),
      slider(ui, { label: "step", trait: "step", range: () => ({ min: 0, max: pairs.length - 1 }),
        format: () => `${current() + 1} of ${pairs.length}: ${pair().name}` }),
      button("next", () => turn(1)),
      choice(ui, { label: "mistake on the right", trait: "mistake",
        options: Object.entries(MISTAKES).map(([key, [text]]) => [key, text]) }),
    ),
    list, verdict,
    h("div", { class: "mha-versions" }, side("left"), side("right")),
    element, axes,
    h("p", { class: "mha-legend" }, "Outlined: one element, the same on both sides. Underlined: the rest of its head in its sequence. Struck out: hidden by the mask."),
    numbers(ui, "Every element as a table", content),
  );
});

const shown = (x) => (x === -Infinity ? "hidden" : fixed(x, 4));
