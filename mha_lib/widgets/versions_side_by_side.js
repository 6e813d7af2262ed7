// One input through two of the six styles: each takes its own steps in its own layout.
import { fixed, need, needArray, shapeOf } from "./arithmetic.js";
import { corner, css, ink, palette, shade } from "./canvas.js";
import {
  button, choice, h, inRoles, more, numbers, press, put, readout, say, tryThis, widget,
} from "./common.js";
import {
  compare, described, fill, letter, MISTAKES, parameters, run, STYLES,
} from "./versions_styles.js";

// --- the picture of one tensor: a block for every index of the axes before the last two

const [ROWHEAD, HEADING] = [22, 28]; // pixels; the letters of two axes stand in the first
const SIZES = [[38, 20], [30, 20], [28, 18], [26, 18], [26, 15], [18, 14], [12, 12], [8, 10], [4, 10]];
const LEGIBLE = 26; // pixels that a number needs
const RIM = 4; // of its width: there stands the outline, and no digit
const CORNER = 4;
const NARROW = 560;
const TALLEST = { wide: 190, stacked: 130, narrow: 126 }; // pixels
const ABREAST = 5; // columns of a block that stands beside another one
const SMALLEST = 8; // pixels of a cell that is seen

/** All blocks in sight: with numbers, else as colours. */
function arrange({ rows, columns, places, groups, shape }, width, tallest) {
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
  const legible = possible.filter((x) => x.wide >= LEGIBLE);
  const whole = (x) => x.height <= tallest && x.wide >= SMALLEST;
  return legible.find(whole) ?? possible.find(whole) ?? legible.at(-1) ?? possible[0] ?? layouts.at(-1);
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
    const { whole, at } = now();
    const { rows, columns, places, offset } = whole;
    const place = offset(at);
    const [block, i, j] = [Math.floor(place / (rows * columns)), Math.floor(place / columns) % rows, place % columns];
    const to = {
      ArrowUp: [block, i - 1, j], ArrowDown: [block, i + 1, j], ArrowLeft: [block, i, j - 1],
      ArrowRight: [block, i, j + 1], Home: [block, i, 0], End: [block, i, columns - 1],
      PageUp: [block - 1, i, j], PageDown: [block + 1, i, j],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const last = [places.length / (rows * columns), rows, columns];
    const [b, r, c] = to.map((x, k) => Math.max(0, Math.min(last[k] - 1, x)));
    go(places[(b * rows + r) * columns + c]);
  });

  let known = [];
  ui.draw(() => {
    const { step, at, largest, differs } = now();
    const [width, wide] = [Math.max(140, ui.width(frame)), ui.width(ui.root) >= NARROW];
    const scale = window.devicePixelRatio || 1;
    const state = [step, JSON.stringify(at), width, wide, scale, palette(ui.root)];
    if (state.every((x, i) => x === known[i])) return;
    known = state;
    put(frame, { "aria-label": `${side}: ${fill(step.name, { h: "h" })}, ${step.title}; ` +
      "arrow keys move in a block, Page Up and Page Down from block to block" });
    const tallest = TALLEST[!wide ? "narrow" : step.columns > ABREAST ? "stacked" : "wide"];
    layout = arrange(step, width, tallest);
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(layout.height * scale) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${layout.height}px` });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    drawTensor(context, step, at, largest, layout, palette(ui.root), differs);
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

function drawTensor(context, step, at, largest, { wide, high, block, across }, colours, differs) {
  const { groups, places, data, rows, columns, offset, first = 0, whose = "" } = step;
  const [down, right] = groups.slice(-2);
  const chosen = offset(at);
  let set = ""; // to name a font costs more than to write with it
  const write = (text, x, y, align, colour = colours.muted, font = "11px", most = undefined) => {
    if (font !== set) context.font = `${font} system-ui, sans-serif`;
    set = font;
    Object.assign(context, { textAlign: align, fillStyle: colour });
    context.fillText(text, x, y, most);
  };
  context.textBaseline = "middle";
  for (let start = 0, n = 0; start < data.length; start += rows * columns, n++) {
    const [x0, y0] = [(n % across) * block[0], Math.floor(n / across) * block[1]];
    const [left, top] = [x0 + ROWHEAD, y0 + HEADING];
    const head = groups.slice(0, -2).map((group) => {
      const parts = group.map((x) => (x === "r" ? "qkv"[places[start].r] : x + places[start][x])).join(" ");
      return group.length > 1 ? `${letter(group)}${(first + start) / (rows * columns)}: ${parts}` : parts;
    }).join(" ");
    const name = [whose, head].filter(Boolean).join(" · ");
    const here = chosen >= start && chosen < start + rows * columns;
    write(name, whose ? x0 : left, y0 + 7, "left", here ? colours.accent : colours.text, here ? "bold 11px" : "11px");
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
        context.fillStyle = css(back);
        context.fillRect(x, y, wide - 1, high - 1);
        if (hidden) {
          line(context, colours.hidden, 1, [x + 2, y + high - 3], [x + wide - 3, y + 2]);
        } else if (wide >= LEGIBLE) {
          const digits = fixed(data[k], (wide < 38 ? 1 : 2) - (Math.abs(data[k]) >= 9.95));
          const text = wide < 30 ? digits.replace("0.", ".") : digits; // the letters stay as large
          write(text, x + (wide - 1) / 2, y + high / 2 + 1, "center", ink(back), "11px", wide - RIM);
        }
        if (differs(k)) corner(context, colours.wrong, x + wide - 1, y, CORNER); // above the digits
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

/** Of a tensor the nth block alone. */
function blockOf(step, n) {
  const size = step.rows * step.columns;
  const first = n * size;
  const [places, data] = [step.places, step.data].map((all) => all.slice(first, first + size));
  return { ...step, first, places, data, offset: (place) => step.offset(place) - first };
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
const BEGIN = { h: 1, t: 2, d: 1 }; // the element that is outlined where nothing differs
const MOST = { r: -1, b: -1, h: -1, t: -1, s: -1, d: -1 }; // where the two differ most

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
  let pairs = []; // of each step both sides, and how they differ
  let sizes = {};

  const steps = (style, mistake) => {
    const key = `${style} ${mistake}`;
    if (!made.has(key)) {
      const found = Object.entries(run(STYLES[style], parameters(ui.get, mistake)));
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
      const { B, H, T, D } = parameters(ui.get, "none");
      sizes = { r: 3, b: B, h: H, t: T, s: T, d: D, e: H * D };
    }
    check(ui);
    const [left, right] = [steps(ui.get("left"), "none"), steps(ui.get("right"), ui.get("mistake"))];
    pairs = [...left].map(([name, a]) => {
      const b = right.get(name);
      const largest = [...a.data, ...b.data].reduce((m, x) => (Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m), 1e-9);
      return { name, left: a, right: b, largest, ...compare(a, b, EQUAL * largest) };
    });
    known = state;
  });
  ui.ahead(...Object.keys(MISTAKES).map((mistake) => () => steps(ui.get("right"), mistake)));
  const current = () => Math.max(0, Math.min(pairs.length - 1, ui.get("step")));
  const pair = () => pairs[current()];
  const equal = ({ count }) => count === 0;
  /** What is outlined; −1 stands for where the two differ most. */
  const cursor = () => {
    const most = equal(pair()) ? BEGIN : apart(pair().most);
    const at = Object.fromEntries([..."rbhtsd"].map((x) =>
      [x, Math.max(0, Math.min(sizes[x] - 1, ui.get(x) < 0 ? most[x] ?? 0 : ui.get(x)))]));
    return { ...at, e: at.h * sizes.d + at.d };
  };
  /** A feature of x is a number of a head. */
  const apart = ({ e, ...at }) => (e === undefined ? at : { ...at, h: Math.floor(e / sizes.d), d: e % sizes.d });
  const go = (place) => {
    const at = apart(place);
    if (Object.entries(at).some(([trait, value]) => ui.get(trait) !== value)) ui.setAll(at);
  };
  const value = (step, at) => `${step.element(at)} = ${shown(step.data[step.offset(at)])}`;

  // None, at the step that is shown; then each mistake at the step where it is made.
  const TITLES = { exchange: "exchange q, k", scale: "wrong scale", merge: "interleave" };
  const stepOf = (wanted) => pairs.findIndex(({ name }) => name === wanted);
  const tries = tryThis(ui, () => ({
    "no mistake": { state: { mistake: "none", ...(ui.get("mistake") === "none" ? {} : apart(cursor())) }, // the repair is seen where the mistake was
      holds: { mistake: "none" } },
    ...Object.fromEntries(Object.entries(TITLES).map(([mistake, title]) =>
      [title, { state: { mistake, step: stepOf(MISTAKES[mistake][1]), ...MOST }, holds: { mistake } }])),
  }), "Mistake");

  // --- both programs, a step in each row: a press opens it ---------------------------------
  const styles = ["left", "right"].map((trait) =>
    choice(ui, { label: trait, trait, options: Object.keys(STYLES).map((x) => [x, x]) }));
  const rows = h("div", { class: "mha-steps", role: "group", "aria-label": "steps of both programs" });
  ui.follow(() => {
    const all = rows.children;
    if (all.length !== pairs.length) {
      rows.replaceChildren(...pairs.map((_, i) => {
        const one = button("", () => ui.set("step", i));
        one.append(h("span"), h("span"), h("b"), h("span"));
        return one;
      }));
    }
    const first = pairs.findIndex((one) => !equal(one));
    pairs.forEach((one, i) => {
      const [name, left, sign, right] = all[i].children;
      say(name, one.name);
      say(left, one.left.shortly);
      say(sign, equal(one) ? "=" : "≠");
      say(right, one.right.shortly);
      put(sign, { "data-mark": sign.textContent });
      put(all[i], { "data-first": i === first,
        "aria-label": `${one.name} ${sign.textContent} left ${one.left.shortly}, right ${one.right.shortly}` });
      press(all[i], i === current());
    });
  });

  // --- the open step ---------------------------------------------------------------------
  /** One block, on both sides laid out as on the left. */
  let cut = null;
  const blocks = () => { // the same objects for the same block, or they are drawn anew
    const { left, laid } = pair();
    const n = Math.floor(left.offset(cursor()) / (left.rows * left.columns));
    if (cut?.laid !== laid || cut.n !== n) {
      cut = { laid, n, left: { ...blockOf(left, n), whose: "left" }, right: { ...blockOf(laid, n), whose: "right" } };
    }
    return cut;
  };
  const sides = { left: ui.later(), right: ui.later() };
  const side = (trait) => {
    const [code, shape, wrong] = [h("code"), h("p", { class: "mha-shape" }), h("p", { class: "mha-warning" })];
    sides[trait].follow(() => {
      const step = pair()[trait];
      const mistake = MISTAKES[ui.get("mistake")];
      if (code.textContent !== step.code) code.replaceChildren(...inRoles(step.code));
      say(shape, `${trait}: ${fill(step.name, { h: "h" })} · ${step.title}`);
      wrong.hidden = trait === "left" || !mistake[1];
      say(wrong, `Mistake ${pair().name === mistake[1] ? "on the right" : `in “${mistake[1]}”`}: ${mistake[0]}.`);
    });
    return h("div", { class: "mha-version" }, shape,
      h("pre", { tabindex: "0", role: "group", "aria-label": `code of the ${trait} style` }, code), wrong);
  };
  let stacked;
  sides.left.follow(() => { // before both are drawn: else in the old width, and then once more
    put(grids, { "data-stacked": pair().left.columns > ABREAST });
    if (stacked !== grids.dataset.stacked) for (const frame of grids.children) ui.width(frame, true);
    ({ stacked } = grids.dataset);
  });
  const grid = (trait) => {
    return picture(sides[trait], trait, () => {
      const [{ left: whole, largest }, { left, right, [trait]: step }, at] = [pair(), blocks(), cursor()];
      const differs = (k) => left.data[k] !== right.data[k] && !(Math.abs(left.data[k] - right.data[k]) <= EQUAL * largest);
      return { step, whole, at, largest, differs };
    }, go);
  };

  const grids = h("div", { class: "mha-grids" }, grid("left"), grid("right"));

  let [wasWrong, wasMended] = [false, false]; // what the reader has seen
  const { reset } = ui;
  ui.reset = () => {
    wasWrong = wasMended = false;
    reset();
  };
  const [element, verdict, axes] = [readout(), readout(), h("p", { class: "mha-axes" })];
  ui.follow(() => {
    const { left, right, difference, count } = pair();
    const at = cursor();
    const most = !equal(pair()) && Object.entries(pair().most).every(([x, n]) => at[x] === n);
    const letters = [...new Set(left.groups.flat())].sort((a, b) => "rbhtsde".indexOf(a) - "rbhtsde".indexOf(b));
    const place = letters.map((x) => {
      if (x === "r") return "qkv"[at.r];
      return `${x} = ${at[x]}` + ("ts".includes(x) ? ` “${ui.get("tokens")[at.b][at[x]]}”` : "");
    }).join(", ");
    say(element, `Outlined${most ? `, where they differ most, by ${fixed(difference, 4)}` : ""}: ${place}. Left ${value(left, at)}, right ${value(right, at)}.`);
    const first = pairs.find((one) => !equal(one));
    const [same, many] = [left.title === right.title, `${count} of ${left.data.length} differ.`];
    say(verdict, !equal(pair())
      ? (first === pair() ? `≠ Here the numbers part: ${many}` : `≠ They parted in “${first.name}”: ${many}`)
      : (difference ? `= Same numbers here, up to ${difference.toExponential(0)}.` : "= Exactly the same numbers here.") +
        (first ? ` They part in “${first.name}”.` : same ? "" : " Other shapes are fine."));
    put(verdict, { "data-mark": verdict.textContent[0] });
    wasWrong ||= ui.get("mistake") !== "none";
    wasMended ||= wasWrong && ui.get("mistake") === "none";
    ui.lead(first ? `Equal above the red row. Press ${wasMended ? "another row" : "“no mistake”"}.`
      : wasWrong ? "Press a row, or another mistake."
      : ui.get("left") === ui.get("right") ? "One program twice: choose another one."
        : "Other code, other shapes, the same numbers.");
    const joined = [...new Set([...left.joined, ...right.joined])];
    say(axes, `Axes: ${left.axes} ↔ ${right.axes}` + (joined.length ? `, where ${joined.join("; ")}` : "") +
      (joined.some((x) => x.includes("r·")) ? "; r = 0, 1, 2 for q, k, v" : "") + ".");
  });

  let table = null;
  const content = () => {
    if (table?.pair === pair()) return table;
    const { left, right, name } = pair();
    const cells = left.places.map((at, i) => {
      const place = Object.entries(at).map(([x, n]) => (x === "r" ? "qkv"[n] : `${x} ${n}`)).join(", ");
      return [place, left.element(at), shown(left.data[i]), right.element(at), shown(right.data[right.offset(at)])];
    });
    table = { pair: pair(), caption: `${name}: ${left.title} and ${right.title}`, rows: cells,
      columns: ["element", "left", "value on the left", "right", "value on the right"] };
    return table;
  };

  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    tries,
    h("div", { class: "mha-programs" },
      h("div", { class: "mha-list" }, h("div", { class: "mha-styles" }, styles), rows,
        h("p", { class: "mha-legend" }, "B texts, T queries, S keys, H heads of D numbers, E\u00a0=\u00a0H·D")),
      h("div", { class: "mha-open" }, verdict, side("left"), side("right"), grids),
      element),
    more("More: axes, marks, a table",
      axes,
      h("p", { class: "mha-legend" }, "Outlined: one element, the same on both sides. " +
        "Struck out: hidden by the mask. Both sides are laid out as on the left; the shapes are each side's own. " +
        "Of many blocks one is shown; Page Up and Page Down lead to the others. A red corner marks a number that differs."),
      numbers(ui, "Every element as a table", content)),
  );
}, {
  question: "Do two programs agree?",
  lesson: ["left", "right", "mistake", "step", "r", "b", "h", "t", "s", "d"],
});

const shown = (x) => (x === -Infinity ? "hidden" : fixed(x, 4));
