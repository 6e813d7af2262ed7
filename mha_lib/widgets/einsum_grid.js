// A tensor as blocks of tables: its cells, and where the arrow keys lead among them.
import { fixed, product, range } from "./arithmetic.js";
import { h } from "./common.js";
import { ravel, unravel } from "./einsum_loops.js";

const whole = (x) => Math.abs(x - Math.round(x)) < 1e-6;

/**
 * A tensor as blocks of tables, its cells in memory order; `pick(n)` is called for a click.
 * `passing`: numbers that a cell may show for a while.
 */
export function grid(letters, shape, values, pick, passing = []) {
  const digits = values.every(whole) ? 0 : 2;
  const text = (x) => fixed(x, whole(x) ? digits : 2);
  const texts = values.map(text);
  const cells = texts.map((one, n) => h("span", { class: "mha-es-cell", "data-n": n }, one));
  const [rows, columns] = [shape.at(-2) ?? 1, shape.at(-1) ?? 1];
  const outer = shape.slice(0, -2);
  const head = (text) => h("span", { class: "mha-es-index" }, text);
  const corner = letters.length > 1 ? `${letters.at(-2)}\\${letters.at(-1)}` : letters;
  const block = (n) => {
    const line = (i) => [
      head(shape.length > 1 ? `${i}` : ""),
      ...cells.slice((n * rows + i) * columns, (n * rows + i + 1) * columns),
    ];
    const columnHeads = range(columns).map((j) => head(shape.length ? `${j}` : ""));
    const table = h("div", { class: "mha-es-table" }, head(corner), columnHeads, range(rows).flatMap(line));
    table.style.setProperty("--columns", columns);
    const place = unravel(outer.keys(), outer, n);
    const title = outer.map((_, axis) => `${letters[axis]} = ${place[axis]}`).join(", ");
    return h("div", { class: "mha-es-block" }, title, table);
  };
  const across = outer.at(-1) ?? 1; // blocks side by side; the first of four axes goes down
  const bands = range(product(outer) / across).map((band) =>
    h("div", { class: "mha-es-band" }, range(across).map((n) => block(band * across + n))));
  const onclick = ({ target }) => {
    const cell = target.closest("[data-n]");
    if (cell) pick(Number(cell.dataset.n));
  };
  const picture = h("div", { class: "mha-es-tensor", onclick, "aria-hidden": "true" }, bands);
  picture.style.setProperty("--wide", `${Math.max(...texts.concat(passing.map(text)).map((one) => one.length))}ch`);
  return { picture, cells, texts, text };
}

/** Where an arrow key leads: blocks side by side are one table, those below go on. */
export function moved(key, letters, size, at) {
  const lanes = [[-4, -2], [-3, -1]].map((axes) => axes.map((k) => [...letters].at(k)).filter(Boolean));
  const [i, j] = lanes.map((lane) => ravel(lane, size, at));
  const last = lanes.map((lane) => product(lane.map((x) => size[x])) - 1);
  const to = {
    ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
    Home: [i, 0], End: [i, last[1]], PageUp: [0, j], PageDown: [last[0], j],
  }[key];
  return to && Object.assign({}, ...lanes.map((lane, n) =>
    unravel(lane, size, Math.max(0, Math.min(last[n], to[n])))));
}

/** The smallest and the largest sums on the way to any cell, whole ones and others. */
export function extremes({ result, running }) {
  const found = {};
  result.forEach((_, i) => running(i).forEach((x) => {
    const [low, high] = (found[whole(x)] ??= [x, x]);
    if (x < low || x > high) found[whole(x)] = [Math.min(x, low), Math.max(x, high)];
  }));
  return Object.values(found).flat();
}
