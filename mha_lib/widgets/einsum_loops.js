// The loops of any einsum: its letters, who is summed, where each loop passes by.
import { need, product, range } from "./arithmetic.js";

export const MOST_AXES = 4, MOST_CELLS = 256; // of a tensor
const MOST_STEPS = 1024; // of one sum

export const joined = (words) => words.join(", ").replace(/, ([^,]*)$/, " and $1");

/** "td,sd->ts" and the operands' shapes: the letters, their sizes, who is summed. */
export function parse(text, shapes, names) {
  const found = /^([a-z]*)(?:,([a-z]*))?->([a-z]*)$/i.exec(text.replaceAll(" ", ""));
  need(found, "here it must be letters for one operand or for two, with a comma between them, then -> and the letters of the result, such as td,sd->ts.");
  const inputs = found.slice(1, 3).filter((group) => group !== undefined);
  const output = found[3];
  need(inputs.length === shapes.length,
    `it has letters for ${inputs.length}, but there ${shapes.length > 1 ? "are 2 operands" : "is 1 operand"}.`);
  const size = {};
  inputs.forEach((letters, i) => {
    need(letters.length === shapes[i].length,
      `${letters || "no letter"} stands for ${letters.length} axes, but ${names[i]} has ${shapes[i].length}: its shape is (${shapes[i].join(", ")}).`);
    [...letters].forEach((letter, axis) => {
      const [n, known] = [shapes[i][axis], size[letter] ?? 1];
      need(n === known || n === 1 || known === 1,
        `the letter ${letter} has two sizes, ${known} and ${n} (in ${names[i]}). Equal letters run together, so their sizes must agree.`);
      size[letter] = Math.max(n, known);
    });
  });
  [...output].forEach((letter, i) => {
    need(letter in size, `the letter ${letter} stands after the arrow, but no operand has it.`);
    need(output.indexOf(letter) === i, `the letter ${letter} stands twice after the arrow.`);
  });
  need(output.length <= MOST_AXES, `the result may have at most ${MOST_AXES} axes here.`);
  const shape = [...output].map((letter) => size[letter]);
  need(product(shape) <= MOST_CELLS,
    `the result would have ${product(shape)} cells; at most ${MOST_CELLS} fit here.`);
  const summed = Object.keys(size).filter((letter) => !output.includes(letter));
  const steps = product(summed.map((letter) => size[letter]));
  need(steps <= MOST_STEPS, `each cell would be a sum of ${steps} products; at most ${MOST_STEPS} fit here.`);
  return { inputs, output, size, shape, summed };
}

/** How far one step of each letter goes in memory. Along an axis of size 1 nobody goes. */
function strides(letters, shape) {
  const found = {};
  [...letters].forEach((letter, axis) => {
    const step = shape[axis] > 1 ? product(shape.slice(axis + 1)) : 0;
    found[letter] = (found[letter] ?? 0) + step; // twice in one operand: the diagonal
  });
  return found;
}

/** Where the loops over `letters` pass by, the last letter fastest. */
function walk(letters, size, stride) {
  return [...letters].reduce(
    (places, x) => places.flatMap((place) => range(size[x]).map((i) => place + i * (stride[x] ?? 0))),
    [0],
  );
}

/** The einsum: for cell i and step j, operand o gives its number `kept[o][i] + steps[o][j]`. */
export function einsum(equation, tensors, shapes) {
  const { inputs, output, size, summed } = equation;
  const stride = inputs.map((letters, o) => strides(letters, shapes[o]));
  const kept = stride.map((one) => walk(output, size, one));
  const steps = stride.map((one) => walk(summed, size, one));
  const factors = (i, j) => tensors.map((values, o) => values[kept[o][i] + steps[o][j]]);
  const terms = (i) => steps[0].map((_, j) => product(factors(i, j)));
  const running = (i) => { // the sum after each step
    let sum = 0;
    return terms(i).map((x) => (sum += x));
  };
  const result = kept[0].map((_, i) => terms(i).reduce((a, b) => a + b, 0));
  return { kept, steps, factors, terms, running, result };
}

/** The number of a cell from the values of its letters, and back. */
export const ravel = (letters, size, at) => [...letters].reduce((n, x) => n * size[x] + at[x], 0);
export function unravel(letters, size, n) {
  const found = {};
  for (const letter of [...letters].reverse()) {
    found[letter] = n % size[letter];
    n = Math.floor(n / size[letter]);
  }
  return found;
}

export function permutations(text) {
  if (text.length < 2) return [text];
  return [...text].flatMap((x) => permutations(text.replace(x, "")).map((rest) => x + rest));
}

/** What a letter does, in the words of chapter 6. */
export function role(letter, { inputs, output }, names) {
  const homes = names.filter((_, i) => inputs[i].includes(letter));
  if (!output.includes(letter)) return ["summed", `in ${joined(homes)}, not in the result`];
  return homes.length > 1
    ? ["batched", `in ${homes.join(", ")} and the result`]
    : ["kept", `in ${homes[0]} and the result`];
}

/** The same as loops that Python runs. */
export function loops({ inputs, output, size, summed }, names, shapes) {
  const index = (letters, shape) => letters.length
    ? `[${[...letters].map((x, axis) => (shape && shape[axis] < size[x] ? 0 : x)).join(", ")}]` : "";
  const free = (name) => (name in size ? `${name}_` : name); // a letter is no tensor's name
  const lines = [];
  const add = (text) => lines.push("    ".repeat(depth) + text);
  let depth = 0;
  const loop = (letter) => {
    add(`for ${letter} in range(${size[letter]}):`);
    depth++;
  };
  [...output].forEach(loop);
  add("total = 0");
  const inside = depth;
  summed.forEach(loop);
  add(`total += ${names.map((name, i) => free(name) + index(inputs[i], shapes[i])).join(" * ")}`);
  depth = inside;
  add(`result${index(output)} = total`);
  return lines.join("\n");
}
