// A tensor as torch keeps it: {memory, offset, shape, strides}, and whatever it carries
// along, such as the names of its axes. A view shares the memory of what it shows.
import { product, range } from "./arithmetic.js";

/** Strides without gaps; `order` lists the axes from the fastest to the slowest. */
export function dense(shape, order = range(shape.length).reverse()) {
  const strides = [];
  order.reduce((step, axis) => step * (strides[axis] = step, shape[axis]), 1);
  return strides;
}

export const tensor = (memory, shape) => ({ memory, offset: 0, shape, strides: dense(shape) });

/** Every index of a shape, in reading order. */
export const indices = (shape) =>
  shape.reduce((found, n) => found.flatMap((index) => range(n).map((i) => [...index, i])), [[]]);

/** The cells of memory that a tensor reads, in reading order. */
export const cellsOf = ({ offset, shape, strides }) =>
  shape.reduce((found, n, axis) => {
    const cells = new Array(found.length * n); // loops: a program reads ten thousand cells
    for (let k = 0, at = 0; k < found.length; k++) {
      for (let i = 0; i < n; i++) cells[at++] = found[k] + i * strides[axis];
    }
    return cells;
  }, [offset]);

export const elements = (x) => cellsOf(x).map((cell) => x.memory[cell]);

/** Without gaps, in reading order; an axis of size 1 may have any stride. */
export function contiguous(x) {
  const steps = dense(x.shape);
  return x.shape.every((n, axis) => n === 1 || x.strides[axis] === steps[axis]);
}

/** The same numbers in new memory. */
export function copied(x, order) {
  const [memory, strides, from] = [[], dense(x.shape, order), cellsOf(x)];
  cellsOf({ offset: 0, shape: x.shape, strides }).forEach((cell, n) => {
    memory[cell] = x.memory[from[n]];
  });
  return { ...x, memory, strides, offset: 0 };
}

// --- other shapes and orders -----------------------------------------------------------

/** Strides that read x's memory in another shape, or null: torch's computeStride. */
export function viewStrides(x, shape) {
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

/** A view where strides can walk it, else a copy. */
export function reshape(x, shape) {
  const strides = viewStrides(x, shape);
  return strides ? { ...x, shape, strides } : { ...x, ...tensor(elements(x), shape) };
}

export function permute(x, order) {
  const [shape, strides] = [x.shape, x.strides].map((list) => order.map((axis) => list[axis]));
  return { ...x, shape, strides };
}

export const swapped = (list, i, j) => list.with(i, list[j]).with(j, list[i]);
export const swap = (x, i, j) => permute(x, swapped(range(x.shape.length), i, j));

/** Views of `size` along an axis, the last of them perhaps smaller. */
export function split(x, size, axis) {
  return range(Math.ceil(x.shape[axis] / size)).map((k) => ({
    ...x,
    shape: x.shape.with(axis, Math.min(size, x.shape[axis] - k * size)),
    offset: x.offset + k * size * x.strides[axis],
  }));
}

export const chunk = (x, count, axis) => split(x, x.shape[axis] / count, axis);

/** The parts one after the other along an axis, in new memory. */
export function cat(parts, axis) {
  const [{ shape }] = parts;
  const total = parts.reduce((sum, part) => sum + part.shape[axis], 0);
  const read = parts.map((part) => ({ cells: elements(part), run: product(part.shape.slice(axis)) }));
  const memory = range(product(shape.slice(0, axis))).flatMap((i) =>
    read.flatMap(({ cells, run }) => cells.slice(i * run, (i + 1) * run)));
  return tensor(memory, shape.with(axis, total));
}

export const stack = (parts) => cat(parts.map((x) => reshape(x, [1, ...x.shape])), 0);
export const unstack = (x) => chunk(x, x.shape[0], 0).map((part) => reshape(part, x.shape.slice(1)));

// --- computing: into new memory, in reading order ----------------------------------------

export const each = (x, f) => tensor(elements(x).map(f), x.shape);

/** Of two operands; no letter stands twice in one of them. */
export function einsum(equation, a, b) {
  const [one, two, out] = equation.split(/,|->/);
  const letters = [...new Set(out + one + two)];
  const size = (x) => (one.includes(x) ? a.shape[one.indexOf(x)] : b.shape[two.indexOf(x)]);
  const shape = [...out].map(size);
  const result = tensor(new Array(product(shape)).fill(0), shape);
  // A letter that an operand lacks has no stride there: all its steps read one cell.
  const [to, left, right] = [[out, result], [one, a], [two, b]].map(([names, x]) => cellsOf({
    ...x, shape: letters.map(size), strides: letters.map((letter) => x.strides[names.indexOf(letter)] ?? 0),
  }));
  to.forEach((cell, n) => {
    result.memory[cell] += a.memory[left[n]] * b.memory[right[n]];
  });
  return result;
}
