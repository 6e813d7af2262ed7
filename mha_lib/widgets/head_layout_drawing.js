// What the steps have made so far, drawn: shape and strides, one line of memory, tables.
import { range } from "./arithmetic.js";
import { as } from "./common.js";
import {
  and, axisName, caption, isAxis, judge, labelOf, leading, origin, places, tokenOf,
} from "./head_layout_verdict.js";
import { contiguous } from "./tensor.js";

export const tuple = (list) => `(${list.join(list.length === 1 ? "" : ", ")}${list.length === 1 ? "," : ""})`;

function facts({ parts: [x, ...others] }, before) {
  const shape = `${tuple(x.names.map(axisName))} = ${tuple(x.shape)}`;
  const kept = before?.parts[0].memory === x.memory;
  const memory = before && (kept ? "no copy" : "a copy");
  return [
    { name: others.length ? "shapes" : "shape", what: others.length ? `${others.length + 1} × ${shape}` : shape },
    { name: "strides", what: tuple(x.strides), strided: true },
    others.length && { name: "from cells", what: and([x, ...others].map(({ offset }) => offset)), strided: true },
    { name: contiguous(x) ? "contiguous" : "not contiguous", what: "", strided: true },
    memory && { name: memory, what: "" },
  ].filter(Boolean);
}

/** A cell is a button; the one that is followed is the group's only tab stop. */
function cellButton(element, followed, sizes, name, ...more) {
  const { h: head, t, b } = origin(element, sizes);
  return as("button", {
    type: "button", class: "mha-cell", tabindex: element === followed ? 0 : -1, "aria-label": `${labelOf(element, sizes)}, ${name}`,
    "aria-pressed": element === followed, "data-element": element, "data-head": head % 5, "data-token": (b * sizes.T + t) % 6,
  }, labelOf(element, sizes), ...more);
}

/** Arrow keys go along the buttons of a group, `data-width` of them up and down. */
export function along(event) {
  const group = event.target.closest("[data-width]");
  if (!group) return;
  const [buttons, width] = [[...group.querySelectorAll("button")], Number(group.dataset.width)];
  const at = buttons.indexOf(event.target);
  const to = {
    ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - width, ArrowDown: at + width,
    Home: 0, End: buttons.length - 1,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  buttons[to]?.focus();
  buttons[to]?.click();
}

/** Axes that lead to a table, short: h0 b1; one without a letter as [0]; of one sequence no b0,
 *  which would read like the number b0 of token b. */
function brief(axes, { B }, between = " ") {
  const needed = axes.filter(([axis]) => B > 1 || axis !== "b");
  return needed.map(([axis, i]) => (axis.length > 1 ? `[${i}]` : axis + i)).join(between);
}

/** The memory in its own order; below it, which table reads each cell. */
function strip(value, all, followed, sizes) {
  const reader = new Map(all.map((place) => [place.cell, place]));
  const readers = value.parts[0].memory.map((_, cell) => reader.get(cell)?.table);
  const alone = readers.some((one, cell) => one !== readers[cell - 1] && one !== readers[cell + 1]);
  const short = (place) => {
    return brief(leading(place, value, 2, sizes), sizes, alone ? "\n" : " "); // one cell is too narrow for two
  };
  const cells = value.parts[0].memory.map((element, cell) => {
    const [here, last, next] = [cell, cell - 1, cell + 1].map((c) => readers[c]);
    const ends = `${here === last ? "" : " mha-begins"}${here === next ? "" : " mha-ends"}`;
    return as("span", { class: `mha-memory-cell${ends}` },
      as("span", { class: "mha-address", "aria-hidden": "true" }, `${cell}`),
      cellButton(element, followed, sizes, `memory cell ${cell}`),
      as("span", { class: "mha-reader" }, here === last ? "" : short(reader.get(cell))));
  });
  const runs = range(cells.length / sizes.E).map((i) =>
    as("span", { class: "mha-run" }, cells.slice(i * sizes.E, (i + 1) * sizes.E)));
  const label = "memory; below each cell the table that reads it";
  const lines = short(all[0]).split("\n").length;
  return as("div", {
    class: "mha-memory", role: "group", "aria-label": label, style: `--mha-lines: ${lines}`, "data-width": sizes.E,
  }, runs);
}

/** The tensor as tables of its last two axes, one for every index of the others. */
function tables(value, all, followed, sizes) {
  const [x] = value.parts;
  const [rows, columns] = [x.names.at(-2), x.names.at(-1)];
  const head = (letters, axis, i) =>
    [axisName(letters, axis).toLowerCase(), as("span", { class: "mha-full" }, "="), `${i}`];
  const rank = x.shape.length;
  const keys = [...new Set(all.map(({ table }) => table))];
  const drawn = keys.map((key) => {
    const mine = all.filter((place) => place.table === key);
    const lines = [...new Set(mine.map(({ row }) => row))].map((row) => mine.filter((place) => place.row === row));
    const rowHead = ([first]) => {
      if (rank < 2) return "";
      const token = isAxis(rows, "T") && first.claim !== null ? ` ${tokenOf(origin(first.claim, sizes))}` : "";
      return [...head(rows, rank - 2, first.index.at(-2)), as("span", { class: "mha-token" }, token)];
    };
    const axes = leading(mine[0], value, 2, sizes);
    const place = caption(axes) || "the whole tensor";
    return as("table", {},
      as("caption", {}, as("span", { class: "mha-full" }, value.tuple ? `part ${mine[0].part}: ${place}` : place),
        as("span", { class: "mha-brief" }, brief(axes, sizes) || place)),
      as("thead", {}, as("tr", {}, as("td", {}), lines[0].map((place) =>
        as("th", { scope: "col" }, head(columns, rank - 1, place.index.at(-1)))))),
      as("tbody", {}, lines.map((line) => as("tr", {}, as("th", { scope: "row" }, rowHead(line)),
        line.map((place) => {
          const wrong = place.claim !== null && place.claim !== place.element;
          const name = `memory cell ${place.cell}${wrong ? ", wrong place" : ""}`;
          return as("td", {}, cellButton(place.element, followed, sizes, name, wrong ? as("sup", {}, "✗") : ""));
        })))));
  });
  return as("div", { class: "mha-tables", "data-width": x.shape.at(-1) }, drawn);
}

/** Where an element is, and how its cell is computed. */
function pathTo(element, { parts, tuple }, all, sizes) {
  const { part, index, cell } = all.find((one) => one.element === element);
  const { strides, offset } = parts[part];
  const terms = index.map((i, axis) => `${i}·${strides[axis]}`);
  if (offset) terms.unshift(`${offset}`);
  return `${labelOf(element, sizes)} is at ${tuple ? `[${part}]` : ""}[${index.join(", ")}]: ${terms.join(" + ")} = cell ${cell}`;
}

/** What the steps have made so far, and in it the element that is followed. */
export function drawing(state, before, followed, sizes) {
  const { value, error } = state;
  const { mark, text } = judge(state, sizes);
  const all = value && places(value, sizes);
  return as("div", { class: "mha-state" }, value ? [
    as("dl", {}, facts(value, before).map(({ name, what, strided }) =>
      as("div", { class: strided ? "mha-strided" : "" }, as("dt", {}, name), as("dd", {}, what)))),
    as("div", { class: "mha-pictures" },
      as("div", {}, strip(value, all, followed, sizes),
        as("p", { class: "mha-path mha-strided" }, pathTo(followed, value, all, sizes))),
      tables(value, all, followed, sizes)),
  ] : as("p", {}, as("code", {}, `${error.type}: ${error.message}`)),
  as("p", { class: "mha-verdict", "data-mark": mark }, text));
}
