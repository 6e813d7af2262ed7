// The steps of the head layout, as torch takes them: view, reshape, transpose, …
// Here a tensor's `names` are the letters of each axis, or null where code gives none.
import { need, product, range } from "./arithmetic.js";
import {
  cat, cellsOf, contiguous, copied, dense, indices, reshape, split, swap, swapped, tensor,
  viewStrides,
} from "./tensor.js";

const MOST_AXES = 4;

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

// --- operations --------------------------------------------------------------------------

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
  const [cells, strides] = [cellsOf(x), dense(shape)];
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
    return { parts: [{ ...reshape(x, shape), names }] };
  },
  transpose({ parts: [x] }, first, second) {
    const [i, j] = [first, second].map((term) => axisOf(term.size, x.shape.length));
    return { parts: [{ ...swap(x, i, j), names: swapped(x.names, i, j) }] };
  },
  contiguous: ({ parts: [x] }) => ({ parts: [contiguous(x) ? x : copied(x)] }),
  split({ parts: [x] }, { size, letters }, dim) {
    const axis = axisOf(dim.size, x.shape.length);
    const own = x.names[axis];
    const fits = own && letters && letters.every((letter) => own.includes(letter));
    const names = x.names.with(axis, fits ? letters : null);
    const parts = split({ ...x, names }, size, axis);
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
    const own = first.names[axis];
    const names = first.names.with(axis, name && own ? [...name, ...own] : null);
    const joined = { ...cat(parts, axis), names };
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

/** Where the element b, h, t, d lies in the memory of a start. */
export const STARTS = {
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
  return { parts: [{ ...tensor(memory, shape), names }] };
}

const walked = new Map(); // many ask for the same walk, and nobody changes it

/** The states that the steps go through, the last of them perhaps an error. */
export function run(steps, sizes) {
  const asked = JSON.stringify([steps, sizes]);
  if (!walked.has(asked)) walked.set(asked, walk(steps, sizes));
  return walked.get(asked);
}

function walk(steps, sizes) {
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
