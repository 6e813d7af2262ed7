// Where does each number of a tensor go? Shape and strides over one line of memory,
// step by step, in the right order and in the wrong one.
import {
  button, choice, controls, dot, h, need, numbers, product, range, readout, say, widget,
} from "./common.js";

const MOST_CELLS = 48;
const MOST_STEPS = 8;
const MOST_AXES = 4;
const TOKENS = ["abcdef", "uvwxyz"]; // of sequence 0 and of sequence 1
const NARROW = "(max-width: 30rem)"; // as in common.css

// --- tensors, as torch keeps them: {memory, offset, shape, strides, names} --------------

/** What torch raises; `why` says which cells it could not walk. */
class Refusal extends Error {
  constructor(type, message, why = "") {
    super(message);
    Object.assign(this, { type, why });
  }
}

const refuse = (condition, type, message, why) => {
  if (condition) throw new Refusal(type, message, why);
};

/** Strides without gaps; `order` lists the axes from the fastest to the slowest. */
function dense(shape, order = range(shape.length).reverse()) {
  const strides = [];
  order.reduce((step, axis) => step * (strides[axis] = step, shape[axis]), 1);
  return strides;
}

const indices = (shape) =>
  shape.reduce((found, n) => found.flatMap((index) => range(n).map((i) => [...index, i])), [[]]);
const addressOf = (x, index) => x.offset + dot(index, x.strides);
const elements = (x) => indices(x.shape).map((index) => x.memory[addressOf(x, index)]);

function contiguous(x) {
  const steps = dense(x.shape);
  return x.shape.every((n, axis) => n === 1 || x.strides[axis] === steps[axis]);
}

/** The same numbers in new memory; an axis of size 1 may have any stride. */
function copied(x, order) {
  const strides = dense(x.shape, order);
  const memory = [];
  indices(x.shape).forEach((index) => {
    memory[dot(index, strides)] = x.memory[addressOf(x, index)];
  });
  return { ...x, memory, strides, offset: 0 };
}

/** Strides that read x's memory in another shape, or null: torch's computeStride. */
function viewStrides(x, shape) {
  const strides = [];
  let view = shape.length - 1;
  let [base, length, viewed] = [x.strides.at(-1), 1, 1];
  for (let axis = x.shape.length - 1; axis >= 0; axis--) {
    length *= x.shape[axis];
    // An axis ends a chunk if the next one does not go on where this one stops.
    if (axis > 0 && (x.shape[axis - 1] === 1 || x.strides[axis - 1] === length * base)) continue;
    while (view >= 0 && (viewed < length || shape[view] === 1)) {
      strides[view] = viewed * base;
      viewed *= shape[view--];
    }
    if (viewed !== length) return null;
    [base, length, viewed] = [x.strides[axis - 1], 1, 1];
  }
  return strides;
}

/** Of four axes torch's cat keeps "channels last" strides, if all parts have them. */
function channelsLast({ shape, strides }) {
  if (shape.length !== 4 || strides[1] === 0) return false;
  let least = 0;
  for (const axis of [1, 3, 2, 0]) {
    if (strides[axis] < least || (axis === 0 && least === strides[1])) return false;
    least = strides[axis] * shape[axis];
  }
  return true;
}

function axisOf(given, rank) {
  refuse(given < -rank || given >= rank, "IndexError",
    `Dimension out of range (expected to be in range of [${-rank}, ${rank - 1}], but got ${given})`);
  return given < 0 ? given + rank : given;
}

/** Terms as a shape and the names that the code gives to its axes. */
function wanted(x, terms) {
  const shape = terms.map((term) => term.size);
  const names = terms.map((term) => term.letters);
  const hole = shape.indexOf(-1);
  refuse(hole !== shape.lastIndexOf(-1), "RuntimeError", "only one dimension can be inferred");
  const [count, rest] = [product(x.shape), product(shape.filter((n) => n !== -1))];
  refuse(hole < 0 ? count !== rest : count % rest, "RuntimeError",
    `shape '[${shape.join(", ")}]' is invalid for input of size ${count}`);
  if (hole >= 0) {
    shape[hole] = count / rest;
    const others = names.filter((_, axis) => axis !== hole);
    names[hole] = others.every(Boolean) ? [..."BTHD"].filter((l) => !others.flat().includes(l)) : null;
  }
  return { shape, names };
}

function whyNot(x, shape) {
  const cells = indices(x.shape).map((index) => addressOf(x, index));
  const strides = dense(shape);
  const walks = shape.map((n, axis) => range(n).map((i) => cells[i * strides[axis]]));
  const bent = (cells) => cells.some((cell, i) => i > 1 && cell - cells[i - 1] !== cells[1] - cells[0]);
  const axis = walks.findLastIndex(bent);
  if (axis < 0) return "No strides walk through these cells in this order.";
  const steps = walks[axis].slice(1).map((cell, i) => cell - walks[axis][i]);
  return `The cells ${walks[axis].join(", ")} would have to lie on one axis, with steps of ${steps.join(", ")}. ` +
    "An axis has one stride, so no view can walk this path, and view never copies. contiguous() copies first.";
}

/** Each takes a list of tensors, of which only split makes more than one, and terms. */
const OPERATIONS = {
  view({ parts: [x] }, ...terms) {
    const { shape, names } = wanted(x, terms);
    const strides = viewStrides(x, shape);
    refuse(!strides, "RuntimeError",
      "view size is not compatible with input tensor's size and stride (at least one dimension " +
      "spans across two contiguous subspaces). Use .reshape(...) instead.", !strides && whyNot(x, shape));
    return { parts: [{ ...x, shape, strides, names }] };
  },
  reshape({ parts: [x] }, ...terms) {
    const { shape, names } = wanted(x, terms);
    const strides = viewStrides(x, shape);
    return { parts: [strides ? { ...x, shape, strides, names }
      : { ...copied(x), shape, strides: dense(shape), names }] }; // now in the order of reading
  },
  transpose({ parts: [x] }, first, second) {
    const [i, j] = [first, second].map((term) => axisOf(term.size, x.shape.length));
    const swapped = (list) => list.with(i, list[j]).with(j, list[i]);
    const [shape, strides, names] = [x.shape, x.strides, x.names].map(swapped);
    return { parts: [{ ...x, shape, strides, names }] };
  },
  contiguous: ({ parts: [x] }) => ({ parts: [contiguous(x) ? x : copied(x)] }),
  split({ parts: [x] }, { size, letters }, dim) {
    const axis = axisOf(dim.size, x.shape.length);
    const own = x.names[axis];
    const fits = own && letters && letters.every((letter) => own.includes(letter));
    const names = x.names.with(axis, fits ? letters : null);
    const parts = range(Math.ceil(x.shape[axis] / size)).map((k) => ({
      ...x, names,
      shape: x.shape.with(axis, Math.min(size, x.shape[axis] - k * size)),
      offset: x.offset + k * size * x.strides[axis],
    }));
    return { parts, name: fits ? own.filter((letter) => !letters.includes(letter)) : null, tuple: true };
  },
  cat({ parts, name, tuple }, dim) {
    refuse(!tuple, "TypeError",
      "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor");
    const [first] = parts;
    const axis = axisOf(dim.size, first.shape.length);
    parts.forEach(({ shape }, k) => {
      const other = shape.findIndex((n, i) => i !== axis && n !== first.shape[i]);
      refuse(other >= 0, "RuntimeError", `Sizes of tensors must match except in dimension ${axis}. ` +
        `Expected size ${first.shape[other]} but got size ${shape[other]} for tensor number ${k} in the list.`);
    });
    const total = parts.reduce((sum, { shape }) => sum + shape[axis], 0);
    const shape = first.shape.with(axis, total);
    const own = first.names[axis];
    const names = first.names.with(axis, name && own ? [...name, ...own] : null);
    const outer = product(shape.slice(0, axis));
    const read = parts.map((part) => ({ cells: elements(part), run: product(part.shape.slice(axis)) }));
    const memory = range(outer).flatMap((i) =>
      read.flatMap(({ cells, run }) => cells.slice(i * run, (i + 1) * run)));
    const joined = { memory, offset: 0, shape, strides: dense(shape), names };
    return { parts: [parts.every(channelsLast) ? copied(joined, [1, 3, 2, 0]) : joined] };
  },
};
const ARGUMENTS = { transpose: 2, contiguous: 0, split: 2, cat: 1 }; // view and reshape: a shape

// --- code: "view(B, H*T, -1)" ---------------------------------------------------------

function parse(step, sizes) {
  const [, name, text] = /^(\w+)\(([\w\s,*-]*)\)$/.exec(step) ?? [];
  need(Object.hasOwn(OPERATIONS, name ?? ""), `the step “${step}” is none of ${Object.keys(OPERATIONS).join(", ")}.`);
  const terms = text.trim() ? text.split(",").map((term) => readTerm(term.trim(), sizes, step)) : [];
  const count = ARGUMENTS[name];
  need(count === undefined ? terms.length >= 1 && terms.length <= MOST_AXES : terms.length === count,
    `the step “${step}” has ${terms.length} arguments; it takes ${count ?? `1 to ${MOST_AXES}`}.`);
  const lengths = { split: terms.slice(0, 1), view: terms, reshape: terms }[name] ?? [];
  need(lengths.every(({ size }) => size > 0 || (size === -1 && name !== "split")),
    `the step “${step}” asks for an axis without elements.`);
  return { name, terms };
}

function readTerm(term, sizes, step) {
  const factors = term.split("*").map((factor) => factor.trim());
  const isLetter = (factor) => Object.hasOwn(sizes, factor);
  const value = (factor) => (/^-?\d+$/.test(factor) ? Number(factor) : NaN);
  const size = product(factors.map((factor) => (isLetter(factor) ? sizes[factor] : value(factor))));
  need(Number.isInteger(size),
    `“${term}” in the step “${step}” is neither a whole number nor one of B, T, E, H, D.`);
  const named = factors.every(isLetter);
  return { size, letters: named ? factors.flatMap((f) => (f === "E" ? ["H", "D"] : [f])) : size === 1 ? [] : null };
}

const STARTS = {
  x: (b, h, t, d, { T, H, D }) => ((b * T + t) * H + h) * D + d,
  context: (b, h, t, d, { T, H, D }) => ((b * H + h) * T + t) * D + d,
};

function start(name, sizes) {
  need(Object.hasOwn(STARTS, name), `the steps must start from “x” or “context”, not from “${name}”.`);
  const names = name === "x" ? [["B"], ["T"], ["H", "D"]] : [["B"], ["H"], ["T"], ["D"]];
  const shape = names.map((letters) => product(letters.map((letter) => sizes[letter])));
  const memory = [];
  indices([sizes.B, sizes.T, sizes.H, sizes.D]).forEach(([b, t, h, d], element) => {
    memory[STARTS[name](b, h, t, d, sizes)] = element;
  });
  return { parts: [{ memory, offset: 0, shape, strides: dense(shape), names }] };
}

/** The states that the steps go through, the last of them perhaps an error. */
function run(steps, sizes) {
  const states = [{ step: steps[0], value: start(steps[0], sizes) }];
  for (const step of steps.slice(1)) {
    const { name, terms } = parse(step, sizes);
    const { value } = states.at(-1);
    try {
      refuse(value.tuple && name !== "cat", "AttributeError", `'tuple' object has no attribute '${name}'`);
      states.push({ step, value: OPERATIONS[name](value, ...terms) });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      states.push({ step, error });
      break;
    }
  }
  return states;
}

// --- what the code claims about each place, and what stands there -----------------------

const and = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
const axisName = (letters, axis) => (letters?.length ? letters.join("·").replace("H·D", "E") : `axis ${axis}`);
const isAxis = (letters, name) => Boolean(letters) && letters.join("") === name;

function origin(element, { T, H, D }) {
  const e = element % (H * D);
  const row = (element - e) / (H * D);
  return { b: Math.floor(row / T), t: row % T, h: Math.floor(e / D), d: e % D, e };
}

const tokenOf = ({ b, t }) => TOKENS[b][t];
const labelOf = (element, sizes) => {
  const place = origin(element, sizes);
  return tokenOf(place) + place.e;
};

/** The element that belongs at these indices if each axis is what its name says. */
function claimed(names, index, sizes) {
  const found = { B: 0, T: 0, H: 0, D: 0 };
  const seen = names.flat();
  names.forEach((letters, axis) => {
    let rest = index[axis];
    for (const letter of [...(letters ?? [])].reverse()) {
      found[letter] = rest % sizes[letter];
      rest = Math.floor(rest / sizes[letter]);
    }
  });
  const once = (letter) => seen.filter((x) => x === letter).length === 1;
  const known = Object.keys(found).every((l) => once(l) || (sizes[l] === 1 && !seen.includes(l)));
  return known && !seen.includes(null) ? STARTS.x(found.B, found.H, found.T, found.D, sizes) : null;
}

/** Every place of a value in reading order; the parts of a tuple are one more axis. */
function places({ parts, name, tuple }, sizes) {
  return parts.flatMap((x, part) => indices(x.shape).map((index) => ({
    part, index,
    cell: addressOf(x, index),
    element: x.memory[addressOf(x, index)],
    claim: claimed(tuple ? [name, ...x.names] : x.names, tuple ? [part, ...index] : index, sizes),
    table: [part, ...index.slice(0, -2)].join(),
    row: [part, ...index.slice(0, -1)].join(),
  })));
}

/** Sorted numbers as "0–3, 8". */
function spans(sorted) {
  const begins = sorted.filter((n, i) => n !== sorted[i - 1] + 1);
  const ends = sorted.filter((n, i) => n !== sorted[i + 1] - 1);
  return begins.map((n, i) => (n === ends[i] ? n : `${n}–${ends[i]}`)).join(", ");
}

const several = (word, count) => (count > 1 ? `${word}s` : word);

/** "features 0–1 of tokens a, b and c" */
function describe(sorted, sizes) {
  const of = (key, items) => Object.entries(Object.groupBy(items, key));
  const tokens = of((place) => tokenOf(place), sorted.map((element) => origin(element, sizes)))
    .map(([token, list]) => ({ token, text: `${several("feature", list.length)} ${spans(list.map(({ e }) => e))}` }));
  return of(({ text }) => text, tokens)
    .map(([text, list]) => `${text} of ${several("token", list.length)} ${and(list.map(({ token }) => token))}`)
    .join(", and ");
}

/** A verdict on one state: a mark, a few words, a sentence. */
function judge(state, sizes) {
  const verdict = (mark, short, text) => ({ mark, short, text });
  if (state.error) {
    const { type, why } = state.error;
    return verdict("!", `torch raises ${type}`, why || "No tensor comes out of this step.");
  }
  const { names } = state.value.parts[0];
  const all = places(state.value, sizes);
  if (all[0].claim === null) {
    return verdict("·", "axes without names", "These axes are not named by B, T, H and D, one each. " +
      "So nothing is claimed about a place, and nothing can be wrong.");
  }
  const ends = (row, column) => isAxis(names.at(-2), row) && isAxis(names.at(-1), column);
  const heads = ends("T", "D");
  const unit = heads ? "table" : "row"; // what one head, or one line, holds together
  const mates = (place) => all.filter((other) => other[unit] === place[unit]);
  const sorted = (group, key) => group.map((place) => place[key]).sort((a, b) => a - b);
  const holding = (group, key) => describe(sorted(group, key), sizes);
  const owner = (place) => {
    const { b, h: head } = origin(place.claim, sizes);
    return heads ? `Head ${head} of sequence ${b}`
      : `The row ${caption(leading(place, state.value, 1, sizes))}`;
  };
  const told = (group) =>
    `${owner(group[0])} reads the cells ${spans(sorted(group, "cell"))}: ${holding(group, "element")}`;

  const wrong = all.filter((place) => place.claim !== place.element);
  if (wrong.length) {
    const groups = wrong.map(mates);
    const bad = groups.find((one) => `${sorted(one, "claim")}` !== `${sorted(one, "element")}`) ?? groups[0];
    const due = holding(bad, "claim");
    const order = due === holding(bad, "element") ? ", in another order" : `. It should hold ${due}`;
    const differs = (key) => wrong.some(({ claim, element }) =>
      origin(claim, sizes)[key] !== origin(element, sizes)[key]);
    const what = differs("b") ? "Sequences" : differs("t") ? "Tokens" : null;
    if (what) {
      return verdict("✗", `${what.toLowerCase()} are mixed`,
        `${told(bad)}${order}. ${what} are mixed. torch raises no error: the shape fits.`);
    }
    return verdict("✗", "heads own other features",
      `${told(bad)}${order}. No token is mixed, but weights of other code do not fit these heads.`);
  }
  if (heads) {
    return verdict("✓", "ready for attention",
      `${told(mates(all[0]))}. Its last two axes are (T, D), as attention needs and returns them.`);
  }
  if (ends("T", "HD")) {
    return verdict("✓", "one row a token", "Every row is one token with all its features in order.");
  }
  return verdict("…", "right so far", ends("H", "D")
    ? "Every row is one slice of one token. But attention works on the last two axes, here (H, D): " +
      "it would compare the heads of one token. T and H have to change places."
    : "Every number stands where the names of the axes say.");
}

/** Right only because an axis has size 1? Then say with which sizes it is wrong. */
function luck(steps, sizes) {
  const ones = ["B", "T", "H", "D"].filter((letter) => sizes[letter] === 1);
  for (const letter of ones) {
    const grown = { ...sizes, [letter]: 2 };
    grown.E = grown.H * grown.D;
    const { mark, short } = judge(run(steps, grown).at(-1), grown);
    if ("✗!".includes(mark)) return ` But only because ${letter} = 1: with ${letter} = 2, ${short}.`;
  }
  return "";
}

/** An index under its axis' name; that of a product such as H·B as two indices. */
function indexNames(letters, axis, i, sizes) {
  const name = axisName(letters, axis).toLowerCase();
  if (!name.includes("·")) return [[name, i]];
  let rest = i;
  return [...letters].reverse().map((letter) => {
    const here = rest % sizes[letter];
    rest = Math.floor(rest / sizes[letter]);
    return [letter.toLowerCase(), here];
  }).reverse();
}

/** A place's indices with their names, without the last `hidden` ones. */
function leading({ part, index }, { parts: [x], name, tuple }, hidden, sizes) {
  const axes = index.slice(0, index.length - hidden).flatMap((i, axis) => indexNames(x.names[axis], axis, i, sizes));
  if (tuple) axes.unshift(...(name ? indexNames(name, 0, part, sizes) : [["part", part]]));
  return axes;
}

const caption = (axes) => axes.map(([axis, i]) => `${axis} = ${i}`).join(", ");

// --- drawing -----------------------------------------------------------------------------

const tuple = (list) => `(${list.join(list.length === 1 ? "" : ", ")}${list.length === 1 ? "," : ""})`;

/** A step as Python code that goes on from what stands before it. */
function codeOf(step, before) {
  const [, name, text] = /^(\w+)(?:\((.*)\))?$/.exec(step);
  if (name === "cat") return `torch.cat(${before}, dim=${text})`;
  if (name === "split") return `${before}.split(${text.replace(/, */, ", dim=")})`;
  return text === undefined ? name : `${before}.${name}(${text})`;
}

function facts({ parts: [x, ...others] }, before) {
  const shape = `${tuple(x.names.map(axisName))} = ${tuple(x.shape)}`;
  const kept = before?.parts[0].memory === x.memory;
  const memory = before && (kept ? "same memory, no copy" : "copied into new memory");
  return [
    [others.length ? "shapes" : "shape", others.length ? `${others.length + 1} × ${shape}` : shape],
    ["strides", tuple(x.strides)],
    others.length ? ["starts at cells", and([x, ...others].map(({ offset }) => offset))] : null,
    [contiguous(x) ? "contiguous" : "not contiguous", memory ? `· ${memory}` : ""],
  ].filter(Boolean);
}

/** A cell is a button; the one that is followed is the group's only tab stop. */
function cellButton(element, sizes, name, ...more) {
  const { h: head, t, b } = origin(element, sizes);
  return h("button", {
    type: "button", class: "mha-cell", tabindex: "-1", "aria-label": `${labelOf(element, sizes)}, ${name}`,
    "aria-pressed": "false", "data-element": element, "data-head": head % 5, "data-token": (b * sizes.T + t) % 6,
  }, labelOf(element, sizes), ...more);
}

/** Arrow keys go along the buttons of a group, `width` of them up and down. */
function group(node, width) {
  node.addEventListener("keydown", (event) => {
    const buttons = [...node.querySelectorAll("button")];
    const at = buttons.indexOf(event.target);
    const to = {
      ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - width, ArrowDown: at + width,
      Home: 0, End: buttons.length - 1,
    }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    buttons[to]?.focus();
    buttons[to]?.click();
  });
  return node;
}

/** The memory in its own order; below it, which table reads each cell. */
function strip(value, all, sizes) {
  const reader = new Map(all.map((place) => [place.cell, place]));
  const short = (place) => {
    const axes = leading(place, value, 2, sizes);
    const needed = axes.filter(([axis]) => axes.length === 1 || sizes.B > 1 || axis !== "b");
    // A cell is too narrow for two, and for an axis without a letter.
    return needed.map(([axis, i]) => (axis.length > 1 ? `[${i}]` : axis + i)).join("\n");
  };
  const cells = value.parts[0].memory.map((element, cell) => {
    const [here, last, next] = [cell, cell - 1, cell + 1].map((c) => reader.get(c)?.table);
    const ends = `${here === last ? "" : " mha-begins"}${here === next ? "" : " mha-ends"}`;
    return h("span", { class: `mha-memory-cell${ends}` },
      h("span", { class: "mha-address", "aria-hidden": "true" }, `${cell}`),
      cellButton(element, sizes, `memory cell ${cell}`),
      h("span", { class: "mha-reader" }, here === last ? "" : short(reader.get(cell))));
  });
  const runs = range(cells.length / sizes.E).map((i) =>
    h("span", { class: "mha-run" }, cells.slice(i * sizes.E, (i + 1) * sizes.E)));
  const label = "memory; below each cell the table that reads it";
  const lines = short(all[0]).split("\n").length;
  return group(h("div", {
    class: "mha-memory", role: "group", "aria-label": label, style: `--mha-lines: ${lines}`,
  }, runs), sizes.E);
}

/** The tensor as tables of its last two axes, one for every index of the others. */
function tables(value, all, sizes) {
  const [x] = value.parts;
  const [rows, columns] = [x.names.at(-2), x.names.at(-1)];
  const head = (letters, axis, i) => `${axisName(letters, axis).toLowerCase()}=${i}`;
  const rank = x.shape.length;
  const keys = [...new Set(all.map(({ table }) => table))];
  const drawn = keys.map((key) => {
    const mine = all.filter((place) => place.table === key);
    const lines = [...new Set(mine.map(({ row }) => row))].map((row) => mine.filter((place) => place.row === row));
    const rowHead = ([first]) => {
      if (rank < 2) return "";
      const token = isAxis(rows, "T") && first.claim !== null ? ` ${tokenOf(origin(first.claim, sizes))}` : "";
      return head(rows, rank - 2, first.index.at(-2)) + token;
    };
    const place = caption(leading(mine[0], value, 2, sizes)) || "the whole tensor";
    return h("table", {},
      h("caption", {}, value.tuple ? `part ${mine[0].part}: ${place}` : place),
      h("thead", {}, h("tr", {}, h("td", {}), lines[0].map((place) =>
        h("th", { scope: "col" }, head(columns, rank - 1, place.index.at(-1)))))),
      h("tbody", {}, lines.map((line) => h("tr", {}, h("th", { scope: "row" }, rowHead(line)),
        line.map((place) => {
          const wrong = place.claim !== null && place.claim !== place.element;
          const name = `memory cell ${place.cell}${wrong ? ", wrong place" : ""}`;
          return h("td", {}, cellButton(place.element, sizes, name, wrong ? h("sup", {}, "×") : ""));
        })))));
  });
  return group(h("div", { class: "mha-tables" }, drawn), x.shape.at(-1));
}

/** One state, drawn once; `follow(element)` moves the outline. */
function card(state, before, sizes, place) {
  const { mark, text } = judge(state, sizes);
  const all = state.value ? places(state.value, sizes) : [];
  const path = h("p", { class: "mha-path" });
  const outline = state.value ? `${tuple(state.value.parts[0].shape)} ${mark}` : mark;
  const fold = h("details", { open: true },
    h("summary", {}, h("code", {}, codeOf(state.step, place ? "…" : "").replace("….", ".")),
      h("span", { class: "mha-outline" }, ` ${outline}`)),
    state.value ? [
      h("dl", {}, facts(state.value, before).map(([name, what]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, what)))),
      strip(state.value, all, sizes), tables(state.value, all, sizes), path,
    ] : null,
    state.error ? h("p", {}, h("code", {}, `${state.error.type}: ${state.error.message}`)) : null,
    h("p", { class: "mha-verdict" }, h("b", {}, mark), ` ${text}`));
  const node = h("li", { class: "mha-card" }, fold);
  const buttons = [...node.querySelectorAll("[data-element]")];
  let last = [];
  return { node, fold, follow(element) {
    for (const one of last) {
      one.setAttribute("aria-pressed", "false");
      one.tabIndex = -1;
    }
    last = buttons.filter((one) => one.dataset.element === `${element}`);
    for (const one of last) {
      one.setAttribute("aria-pressed", "true");
      one.tabIndex = 0;
    }
    const found = all.find((one) => one.element === element);
    if (!found) return;
    const x = state.value.parts[found.part];
    const terms = found.index.map((i, axis) => `${i}·${x.strides[axis]}`);
    if (x.offset) terms.unshift(`${x.offset}`);
    say(path, `${labelOf(element, sizes)} is at ${state.value.tuple ? `[${found.part}]` : ""}[${found.index.join(", ")}]: ` +
      `${terms.join(" + ")} = cell ${found.cell}`);
  } };
}

function check(ui) {
  const texts = (steps) => Array.isArray(steps) && steps.every((step) => typeof step === "string");
  need(["steps", "beside"].every((trait) => texts(ui.get(trait))), "the steps must be a list of texts.");
  need(ui.get("steps").length, "it was given no steps.");
  need(Math.max(ui.get("steps").length, ui.get("beside").length) <= MOST_STEPS + 1,
    `it shows at most ${MOST_STEPS} steps.`);
  need(ui.get("recipes").every(([name, steps]) => typeof name === "string" && texts(steps)),
    "a recipe must be a name and its steps.");
  const element = ui.get("element");
  need(Number.isInteger(element) && element >= 0 && element < MOST_CELLS,
    `it has no number ${element} to follow.`);
  need(COLOURS.some(([name]) => name === ui.get("colour")), "colour must be “head” or “token”.");
}

function sizesOf(ui) {
  const [B, T, H, D] = ["batch", "tokens", "num_heads", "head_dim"].map(ui.get);
  const sizes = { B, T, H, D, E: H * D };
  need(Object.values(sizes).every((n) => Number.isInteger(n) && n > 0),
    "B, T, H and D must be whole numbers of at least 1.");
  need(B <= TOKENS.length && T <= TOKENS[0].length,
    `it draws at most ${TOKENS.length} sequences of ${TOKENS[0].length} tokens.`);
  need(B * T * H * D <= MOST_CELLS,
    `B·T·E = ${B * T * H * D} cells are too many to follow; at most ${MOST_CELLS} are drawn.`);
  return sizes;
}

/** The states of one list of steps, below each other; only what changed is drawn anew. */
function column(ui, trait, title, followed) {
  const code = h("code", {});
  const verdict = h("p", { class: "mha-verdict" });
  const list = h("ol", { class: "mha-steps" });
  const node = h("div", { class: "mha-column", role: "group", "aria-label": title }, h("div", { class: "mha-head" }, h("p", {}, code), verdict), list);
  let cards = [];
  let known = "";
  let narrow = false;
  /** On a phone only the last two steps are open, and no start that both columns share. */
  const unfold = () => cards.forEach(({ fold }, i) => {
    const last = cards.length - 1;
    fold.open = !narrow || i === last || (i === last - 1 && i > 0);
  });
  ui.follow(() => {
    const [steps, sizes] = [ui.get(trait), sizesOf(ui)];
    const state = JSON.stringify([steps, sizes]);
    node.hidden = steps.length === 0;
    if (state !== known && steps.length) {
      const states = run(steps, sizes);
      const keys = states.map((_, i) => JSON.stringify([steps.slice(0, i + 1), sizes]));
      cards = states.map((one, i) => (cards[i]?.key === keys[i] ? cards[i]
        : { key: keys[i], ...card(one, states[i - 1]?.value, sizes, i) }));
      cards.forEach((one, i) => {
        if (list.children[i] !== one.node) list.insertBefore(one.node, list.children[i] ?? null);
      });
      while (list.children.length > cards.length) list.lastChild.remove();
      const { mark, short } = judge(states.at(-1), sizes);
      code.textContent = steps.reduce((before, step) => codeOf(step, before), "");
      verdict.replaceChildren(h("b", {}, mark), ` ${short}.${"✓…".includes(mark) ? luck(steps, sizes) : ""}`);
      known = state;
      if (narrow) unfold();
    }
    if (narrow !== matchMedia(NARROW).matches) {
      narrow = !narrow;
      unfold();
    }
    cards.forEach((one) => one.follow(followed()));
  });
  return node;
}

/** Both lists of steps as the rows of one table. */
function history(ui, element) {
  const sizes = sizesOf(ui);
  const rows = ["steps", "beside"].filter((trait) => ui.get(trait).length).flatMap((trait) =>
    run(ui.get(trait), sizes).map((state, i) => {
      const { mark, short } = judge(state, sizes);
      const head = [`${trait === "steps" ? "shown" : "beside"} ${i}`, state.step];
      if (state.error) return [...head, "", "", "", "", `${mark} ${short}`];
      const [x] = state.value.parts;
      const { index, cell } = places(state.value, sizes).find((place) => place.element === element);
      return [...head, tuple(x.shape), tuple(x.strides), contiguous(x) ? "yes" : "no",
        `[${index.join(", ")}], cell ${cell}`, `${mark} ${short}`];
    }));
  return {
    caption: "Of a tuple, the shape and the strides of its first part",
    columns: ["list", "step", "shape", "strides", "contiguous", `${labelOf(element, sizes)} is at`, "verdict"],
    rows,
  };
}

const SHAPES = [
  "B, T, E", "B, T, H, D", "B, H, T, D", "B, T, D, H", "B, H, D, T", "H, B, T, D",
  "B*H, T, D", "H*B, T, D", "B*T, E", "B*T*E",
];

/** The arguments that fit the last state of the reader's own steps. */
function proposals(ui) {
  const sizes = sizesOf(ui);
  const value = run(ui.get("steps"), sizes).at(-1).value;
  if (!value) return {};
  if (value.tuple) return { cat: range(value.parts[0].shape.length).map((axis) => `${axis}`) };
  const { shape } = value.parts[0];
  const pairs = range(shape.length).flatMap((j) => range(j).map((i) => `${i}, ${j}`));
  const cuts = shape.flatMap((n, axis) => ["B", "T", "H", "D"]
    .filter((letter) => sizes[letter] < n && n % sizes[letter] === 0).map((letter) => `${letter}, ${axis}`));
  const found = { view: SHAPES, transpose: pairs, reshape: SHAPES, contiguous: [""], split: cuts };
  return Object.fromEntries(Object.entries(found).filter(([, list]) => list.length));
}

const COLOURS = [["head", "the head of a feature"], ["token", "the token"]];

export default widget("Head layout", (ui) => {
  let hovered = null;
  const count = () => ui.get("batch") * ui.get("tokens") * ui.get("num_heads") * ui.get("head_dim");
  const followed = () => hovered ?? Math.min(ui.get("element"), count() - 1);
  ui.follow(() => check(ui));
  const cellAt = (event) => event.target.closest?.("[data-element]")?.dataset.element ?? null;
  const hover = (event) => {
    const cell = event.pointerType === "mouse" ? cellAt(event) : null;
    if (`${cell}` === `${hovered}`) return;
    hovered = cell === null ? null : Number(cell);
    ui.redraw();
  };
  const columns = h("div", { class: "mha-columns", onpointerover: hover, onpointerleave: hover, onclick: (event) => {
    const cell = cellAt(event);
    hovered = null;
    if (cell !== null) ui.set("element", Number(cell));
  } });

  // A choice of recipe reads and writes a list of steps.
  const named = (trait) => ui.get("recipes").find(([, steps]) => `${steps}` === `${ui.get(trait)}`)?.[0];
  const recipe = (label, trait, other) => choice({
    ...ui,
    get: () => named(trait) ?? other,
    set: (_, name) => ui.set(trait, ui.get("recipes").find(([one]) => one === name)?.[1]
      ?? (trait === "beside" ? [] : ui.get(trait))),
  }, { label, options: () => [
    ...(trait === "beside" || !named(trait) ? [[other, other]] : []), ...ui.get("recipes").map(([name]) => [name, name]),
  ] });
  const size = (label, trait, most) => choice(ui, { label, trait, options: () => range(most).map((i) => i + 1)
    .filter((n) => count() / ui.get(trait) * n <= MOST_CELLS).map((n) => [n, n]) });

  // Steps of the reader's own: an operation, what fits it, and a button.
  let [offered, known] = [{}, ""];
  ui.follow(() => {
    const state = JSON.stringify([sizesOf(ui), ui.get("steps")]);
    if (state !== known) offered = proposals(ui);
    known = state;
  });
  const draft = () => {
    const [operation, text] = /^(\w+)\((.*)\)$/.exec(ui.get("draft"))?.slice(1) ?? [];
    const name = offered[operation] ? operation : Object.keys(offered)[0];
    return { name, text: offered[name]?.includes(text) ? text : offered[name]?.[0] };
  };
  const operation = choice({
    ...ui, get: () => draft().name, set: (_, name) => ui.set("draft", `${name}(${offered[name][0]})`),
  }, { label: "next step", options: () => Object.keys(offered).map((name) => [name, name]) });
  const argument = choice({
    ...ui, get: () => draft().text, set: (_, text) => ui.set("draft", `${draft().name}(${text})`),
  }, { label: "arguments", options: () => (offered[draft().name] ?? []).map((text) => [text, `(${text})`]) });
  const append = button("append", () => ui.set("steps", [...ui.get("steps"), `${draft().name}(${draft().text})`]));
  const undo = button("undo", () => ui.set("steps", ui.get("steps").slice(0, -1)));
  const restart = button("start over", () => ui.set("steps", ui.get("steps").slice(0, 1)));
  ui.follow(() => {
    const steps = ui.get("steps").length - 1;
    for (const list of [operation, argument]) list.querySelector("select").disabled = !draft().name;
    append.disabled = !draft().name || steps >= MOST_STEPS;
    undo.disabled = restart.disabled = steps === 0;
    ui.root.dataset.colour = ui.get("colour");
  });

  const line = readout();
  ui.follow(() => {
    const sizes = sizesOf(ui);
    const { b, t, h: head, d, e } = origin(followed(), sizes);
    const who = `${labelOf(followed(), sizes)}: sequence ${b}, token ${t} (${TOKENS[b][t]}), feature ${e}`;
    say(line, `Following ${who}, so number ${d} of head ${head}.`);
  });
  columns.append(column(ui, "steps", "steps", followed), column(ui, "beside", "steps beside them", followed));
  ui.root.append(
    h("div", { class: "mha-recipes" },
      controls(recipe("show", "steps", "your own steps"), recipe("beside it", "beside", "nothing"))),
    controls(
      size("B", "batch", TOKENS.length), size("T", "tokens", TOKENS[0].length),
      size("H", "num_heads", 4), size("D", "head_dim", 4),
      choice(ui, { label: "colours show", trait: "colour", options: COLOURS }),
    ),
    controls(operation, argument, append, undo, restart),
    h("p", { class: "mha-hint" }, "Point at a number to follow it through all steps; a click keeps it. " +
      "The bracket below a cell of memory names the table that reads it. " +
      "× marks a number that stands in another place than the names of the axes say."),
    line, columns,
    numbers(ui, "All steps as a table", () => history(ui, followed())),
  );
});
