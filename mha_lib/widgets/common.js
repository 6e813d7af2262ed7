// What all widgets share: a root that follows its model, controls, heat maps, tables.
// `base.py` puts this text before a widget's own, so each stays one module.

// --- the root ---------------------------------------------------------------------

/** A requirement that the data does not meet; its message is shown in the widget. */
export class Problem extends Error {}

export function need(condition, message) {
  if (!condition) throw new Problem(message);
}

let serial = 0;

/**
 * Make the `render` of a widget. `build(ui)` fills `ui.root` once; what it gives to
 * `ui.follow` runs at once and again after every change, once a frame.
 */
export function widget(name, build) {
  function render({ model, el }) {
    const own = `mha-${name.toLowerCase().replaceAll(" ", "-")}`; // as in `style` of base.py
    const root = h("div", { class: `mha ${own}`, role: "group", "aria-label": name });
    el.replaceChildren(root);
    // Arrow keys are the notebook's: JupyterLab and the classic one take them on their
    // way up, Notebook 7 on their way down, unless what has the focus bears this mark.
    root.addEventListener("focusin", ({ target }) => put(target, { "data-lm-suppress-shortcuts": true }));
    for (const type of ["keydown", "keyup", "keypress"]) {
      root.addEventListener(type, (event) => event.stopPropagation());
    }
    let followers = [];
    let broken = true;
    let frame = 0;
    const guarded = (action) => {
      try {
        action();
      } catch (error) {
        broken = true;
        const reason = error instanceof Problem ? error.message : `${error}`;
        root.replaceChildren(
          h("p", { class: "mha-problem", role: "status" }, `${name} cannot be drawn: ${reason}`),
        );
      }
    };
    const ui = {
      root,
      id: `mha-${++serial}`,
      get: (trait) => model.get(trait),
      set: (trait, value) => ui.setAll({ [trait]: value }),
      /** Several traits in one message, so that Python never sees one without the other. */
      setAll(values) {
        for (const [trait, value] of Object.entries(values)) model.set(trait, value);
        model.save_changes();
        schedule();
      },
      follow: (follower) => followers.push(follower),
      redraw: () => schedule(),
    };
    const rebuild = () => {
      followers = [];
      root.replaceChildren();
      broken = false;
      build(ui);
    };
    const update = () => {
      frame = 0;
      guarded(() => {
        if (broken) rebuild();
        followers.forEach((follower) => follower());
      });
    };
    const schedule = () => {
      frame ||= requestAnimationFrame(update);
    };
    update();
    model.on("change", schedule);
    const size = new ResizeObserver(schedule);
    size.observe(root);
    const theme = new MutationObserver(() => {
      palettes.delete(root);
      update(); // now: paper does not wait for a frame
    });
    const attributeFilter = ["data-theme", "data-jp-theme-light", "class", "theme"];
    for (const node of [document.documentElement, document.body]) {
      theme.observe(node, { attributes: true, attributeFilter });
    }
    return () => {
      cancelAnimationFrame(frame);
      model.off("change", schedule);
      size.disconnect();
      theme.disconnect();
    };
  }
  return { render };
}

/** An element: properties that start with "on" are listeners, the rest attributes. */
export function h(tag, properties = {}, ...children) {
  return furnish(document.createElement(tag), properties, children);
}

/** The same for a drawing: svg("svg", {width: 9, height: 9}, svg("rect", {…})). */
export function svg(tag, properties = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function furnish(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** Write a text only where it differs: a live region speaks of each change. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Write attributes only where they differ: each one written is style computed anew. */
export function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
  }
}

/** A line that screen readers speak when it changes. */
export function readout() {
  return h("output", { class: "mha-readout", "aria-live": "polite" });
}

export const motionReduced = () =>
  matchMedia("(prefers-reduced-motion: reduce)").matches;

// --- controls, each bound to one trait ---------------------------------------------

function labelled(text, input, ...rest) {
  input.id = `mha-input-${++serial}`; // not inside the label: its text would be the name
  return h("span", { class: "mha-control" }, h("label", { for: input.id }, text), input, ...rest);
}

/** A list to choose from. `options()` gives [value, text] pairs, anew on each change. */
export function choice(ui, { label, trait, options }) {
  const select = h("select", {
    onchange: () => ui.set(trait, pairs[select.selectedIndex][0]),
  });
  let pairs = [];
  let shown = "";
  ui.follow(() => {
    pairs = typeof options === "function" ? options() : options;
    const texts = JSON.stringify(pairs);
    if (texts !== shown) {
      select.replaceChildren(...pairs.map(([, text]) => h("option", {}, `${text}`)));
      shown = texts;
    }
    select.selectedIndex = pairs.findIndex(([value]) => value === ui.get(trait));
  });
  return labelled(label, select);
}

/**
 * A slider with its value beside it. `range()` gives {min, max, step}; or `values()` gives
 * the numbers that it steps through, whatever lies between them.
 */
export function slider(ui, { label, trait, range, values, format = (x) => `${x}` }) {
  const input = h("input", {
    type: "range",
    oninput: () => ui.set(trait, steps ? steps[input.value] : Number(input.value)),
  });
  const value = h("span", { class: "mha-value", "aria-hidden": "true" });
  const nearest = (x) => steps.reduce((i, y, j) => (Math.abs(y - x) < Math.abs(steps[i] - x) ? j : i), 0);
  let steps = null;
  ui.follow(() => {
    steps = values?.();
    const all = steps ? { min: 0, max: steps.length - 1 } : typeof range === "function" ? range() : range;
    const { min, max, step = 1 } = all;
    Object.assign(input, { min, max, step });
    input.value = steps ? nearest(ui.get(trait)) : ui.get(trait);
    const text = format(ui.get(trait));
    input.setAttribute("aria-valuetext", text);
    say(value, text);
  });
  return labelled(label, input, value);
}

export function toggle(ui, { label, trait }) {
  const input = h("input", {
    type: "checkbox",
    onchange: () => ui.set(trait, input.checked),
  });
  ui.follow(() => {
    input.checked = ui.get(trait);
  });
  return h("label", { class: "mha-control mha-toggle" }, input, h("span", {}, label));
}

export function button(label, action) {
  return h("button", { type: "button", class: "mha-button", onclick: action }, label);
}

/** Show whether a button is the chosen one. */
export const press = (one, pressed) => put(one, { "aria-pressed": pressed });

export function controls(...children) {
  return h("div", { class: "mha-controls" }, ...children);
}

// --- tables: the text alternative of every picture ----------------------------------

/** A folded table; `content()` gives {caption, columns, rows: [[head, ...cells]]}. */
export function numbers(ui, title, content) {
  const table = h("table");
  const details = h(
    "details",
    { class: "mha-numbers", ontoggle: () => ui.redraw() },
    h("summary", {}, title),
    h("div", { class: "mha-scroll", tabindex: "0", role: "group", "aria-label": title }, table),
  );
  let drawn = null;
  ui.follow(() => {
    if (!details.open) return; // a large table takes longer than a frame
    const wanted = content();
    if (wanted === drawn) return; // the same object: nothing changed
    drawn = wanted;
    const { caption, columns, rows } = wanted;
    const cells = ([head, ...rest]) =>
      h("tr", {}, h("th", { scope: "row" }, `${head}`), rest.map((x) => h("td", {}, `${x}`)));
    table.replaceChildren(
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((x) => h("th", { scope: "col" }, `${x}`)))),
      h("tbody", {}, rows.map(cells)),
    );
  });
  return details;
}

// --- numbers ------------------------------------------------------------------------

const MINUS = "−";

export function fixed(x, digits = 2) {
  if (!Number.isFinite(x)) return x > 0 ? "∞" : x < 0 ? `${MINUS}∞` : "not a number";
  return x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", MINUS);
}

/** How large a nested list is, or null where its rows differ in length. */
export function shapeOf(nested) {
  if (!Array.isArray(nested)) return [];
  const shapes = nested.map(shapeOf);
  if (shapes.some((shape) => !shape || shape.join() !== shapes[0].join())) return null;
  return [nested.length, ...(shapes[0] ?? [])];
}

export function needArray(nested, what, rank, { finite = true } = {}) {
  const shape = shapeOf(nested);
  need(shape && shape.length === rank, `${what} must have ${rank} axes of even length.`);
  need(shape.every((n) => n > 0), `${what} is empty: its shape is (${shape.join(", ")}).`);
  const numeric = nested.flat(rank - 1).every((x) => (finite ? Number.isFinite(x) : typeof x === "number"));
  need(numeric, `${what} holds something that is not a finite number.`);
  return shape;
}

/** softmax of one row of scores; a row that hides everything gives zeros. */
export function softmax(scores, allowed = null) {
  const visible = (s) => allowed === null || allowed[s];
  const highest = scores.reduce((m, x, s) => (visible(s) && x > m ? x : m), -Infinity);
  const powers = scores.map((x, s) => (visible(s) ? Math.exp(x - highest) : 0));
  const total = powers.reduce((sum, x) => sum + x, 0);
  return total ? powers.map((x) => x / total) : powers;
}

export const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
export const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
export const transpose = (m) => m[0].map((_, j) => m.map((row) => row[j]));
/** a (n, d) times b (m, d) transposed: every row of one with every row of the other. */
export const products = (a, b) => a.map((row) => b.map((other) => dot(row, other)));
export const range = (n) => Array.from({ length: n }, (_, i) => i);

// --- colour -------------------------------------------------------------------------

const palettes = new WeakMap(); // asking for a style costs more than a drawing

/** The colours of `common.css` as [r, g, b] or text, for drawing on a canvas. */
export function palette(root) {
  if (!palettes.has(root)) palettes.set(root, readPalette(root));
  return palettes.get(root);
}

function readPalette(root) {
  const probe = h("span", { hidden: true });
  root.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--mha-${name})`;
    return getComputedStyle(probe).color;
  };
  const rgb = (name) => colour(name).match(/[\d.]+/g).slice(0, 3).map(Number);
  const found = {
    text: colour("text"), muted: colour("muted"), line: colour("line"),
    accent: colour("accent"), surface: colour("surface"), hidden: colour("hidden"),
    ramp: [rgb("low"), rgb("high")],
    below: rgb("below"),
  };
  probe.remove();
  return found;
}

const mix = (a, b, x) => a.map((from, i) => Math.round(from + (b[i] - from) * x));
const luminance = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;

/** The colour of x in −1…1: from `low` to `high`, or to `below` where it is negative. */
export function shade(colours, x) {
  const part = Math.min(1, Math.abs(x) || 0);
  return mix(colours.ramp[0], x < 0 ? colours.below : colours.ramp[1], part);
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
export const ink = (rgb) => (luminance(rgb) > 0.55 ? "#111" : "#fff");

// --- heat maps ----------------------------------------------------------------------

const FONT = "system-ui, sans-serif";
const LABEL = 14; // pixels that a label needs from the next

/**
 * A map of rows × columns on a canvas, steered by mouse, touch and keyboard.
 *
 * `content()` gives {rows, columns: labels, value(i, j) in −1…1, text(i, j), hidden(i, j),
 * cursor: [i, j] or null, row: the row that is lit, outlined(i, j), label, of}. `of` is a
 * list of all that the cells depend on; while it and the labels stay the same, only what
 * is lit is drawn again.
 * `move(i, j)` is called where the pointer or the arrow keys go, `pick(i, j)` for a
 * click, Enter or Space.
 */
export function heatmap(ui, { content, move, pick, rowTitle = "query", columnTitle = "key", most = 40 }) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", {
    class: "mha-map", tabindex: "0", role: "application",
    "aria-roledescription": "map",
  }, canvas);
  const unlit = h("canvas"); // labels and cells, drawn once for many places of the cursor
  let known = null;
  let measured = null;
  let layout = null;
  let now = null;

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - layout.left) / layout.cell);
    const i = Math.floor((event.clientY - box.top - layout.top) / layout.cell);
    const inside = i >= 0 && j >= 0 && i < now.rows.length && j < now.columns.length;
    return inside ? [i, j] : null;
  };
  const steer = (action) => (event) => {
    const place = layout && at(event);
    if (place) action?.(...place, event);
  };
  frame.addEventListener("pointermove", steer((i, j, event) => {
    if (`${now.cursor}` !== `${[i, j]}`) move?.(i, j, event);
  }));
  frame.addEventListener("pointerdown", steer((i, j, event) => {
    move?.(i, j, event);
    pick?.(i, j, event);
  }));
  frame.addEventListener("keydown", (event) => {
    if (!now) return;
    const [i, j] = now.cursor ?? [0, 0];
    const last = [now.rows.length - 1, now.columns.length - 1];
    const step = {
      ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1],
      ArrowRight: [i, j + 1], Home: [i, 0], End: [i, last[1]],
      PageUp: [0, j], PageDown: [last[0], j],
    }[event.key];
    if (step) {
      event.preventDefault();
      const next = step.map((x, axis) => Math.max(0, Math.min(last[axis], x)));
      if (now.cursor) now.cursor = next; // a second key may come before the next frame
      move?.(...next, event);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick?.(i, j, event);
    }
  });

  ui.follow(() => {
    now = content();
    const { rows, columns } = now;
    put(frame, { "aria-label": now.label });
    const context = canvas.getContext("2d");
    if (measured?.rows !== rows || measured.columns !== columns) {
      context.font = `12px ${FONT}`;
      const [tall, wide] = [rows, columns].map((labels) =>
        Math.max(0, ...labels.map((x) => context.measureText(x).width)));
      measured = { rows, columns, tall, wide };
    }
    const left = Math.min(96, Math.ceil(measured.tall) + 24);
    const wide = Math.max(120, frame.clientWidth || ui.root.clientWidth);
    const cell = Math.max(3, Math.min(most, Math.floor((wide - left - 2) / columns.length)));
    const slanted = measured.wide > cell - 4;
    const top = slanted ? Math.min(96, Math.ceil(measured.wide) + 24) : 34;
    layout = { left, top, cell, slanted };
    const scale = window.devicePixelRatio || 1;
    const colours = palette(ui.root);
    const of = now.of && [...now.of, wide, scale, colours, rows, columns];
    if (!of || !of.every((x, i) => x === known?.[i])) {
      const [width, height] = [left + cell * columns.length + 2, top + cell * rows.length + 2];
      for (const one of [canvas, unlit]) {
        one.width = Math.round(width * scale);
        one.height = Math.round(height * scale);
      }
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      const below = unlit.getContext("2d");
      below.scale(scale, scale);
      drawTitles(below, layout, colours, rowTitle, columnTitle);
      drawLabels(below, now, layout, colours);
      drawCells(below, now, layout, colours);
      known = of;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalCompositeOperation = "copy"; // nothing of the last picture stays
    context.drawImage(unlit, 0, 0);
    context.globalCompositeOperation = "source-over";
    context.scale(scale, scale);
    lightLabels(context, now, layout, colours);
    drawCursor(context, now, layout, colours);
  });
  return frame;
}

function drawTitles(context, { left, top }, colours, rowTitle, columnTitle) {
  context.textBaseline = "middle";
  context.font = `11px ${FONT}`;
  context.fillStyle = colours.muted;
  context.textAlign = "left";
  context.fillText(`${columnTitle} →`, left, 8);
  context.save();
  context.translate(8, top);
  context.rotate(-Math.PI / 2);
  context.textAlign = "right";
  context.fillText(`← ${rowTitle}`, 0, 0);
  context.restore();
}

/** All labels where they fit, else every so many. */
const everyOf = (cell) => Math.max(1, Math.ceil(LABEL / cell));

function drawLabels(context, { rows, columns }, layout, colours) {
  context.fillStyle = colours.text;
  context.font = `12px ${FONT}`;
  for (const [axis, labels] of [rows, columns].entries()) {
    const every = everyOf(layout.cell);
    labels.forEach((label, k) => k % every || atLabel(context, layout, axis, k, (length) =>
      context.fillText(label, 0, 0, length)));
  }
}

/** The labels at the cursor, in place of those that they would cover. */
function lightLabels(context, { rows, columns, cursor, row }, layout, colours) {
  const every = everyOf(layout.cell);
  context.fillStyle = colours.accent;
  context.font = `bold 12px ${FONT}`;
  [[rows, cursor?.[0] ?? row], [columns, cursor?.[1]]].forEach(([labels, lit], axis) => {
    if (lit == null || lit >= labels.length) return;
    const first = Math.max(0, Math.ceil((lit - every + 1) / every) * every);
    for (let k = first; k < lit + every && k < labels.length; k += every) {
      atLabel(context, layout, axis, k, (length, from) =>
        context.clearRect(from, -LABEL / 2, length, LABEL));
    }
    atLabel(context, layout, axis, lit, (length) => context.fillText(labels[lit], 0, 0, length));
  });
}

/** Draw where label k of the rows (axis 0) or columns (axis 1) is anchored. */
function atLabel(context, { left, top, cell, slanted }, axis, k, draw) {
  const centre = (k + 0.5) * cell;
  context.save();
  context.textBaseline = "middle";
  if (axis === 0) {
    context.translate(left - 5, top + centre);
    context.textAlign = "right";
    draw(left - 22, 22 - left);
  } else if (slanted) {
    context.translate(left + centre, top - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    draw(top - 22, 0);
  } else {
    context.translate(left + centre, top - 10);
    context.textAlign = "center";
    draw(cell, -cell / 2);
  }
  context.restore();
}

const gapOf = (cell) => (cell > 6 ? 1 : 0);

function drawCells(context, now, { left, top, cell }, colours) {
  const gap = gapOf(cell);
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (let i = 0; i < now.rows.length; i++) {
    for (let j = 0; j < now.columns.length; j++) {
      const [x, y] = [left + j * cell, top + i * cell];
      const hidden = now.hidden?.(i, j);
      const fill = shade(colours, hidden ? 0 : now.value(i, j));
      context.fillStyle = css(fill);
      context.fillRect(x, y, cell - gap, cell - gap);
      if (hidden && cell > 4) {
        context.strokeStyle = colours.hidden; // a stroke, so that colour is not all
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(x + 2, y + cell - gap - 2);
        context.lineTo(x + cell - gap - 2, y + 2);
        context.stroke();
      }
      const text = cell >= 26 && !hidden && now.text?.(i, j);
      if (text) {
        context.fillStyle = ink(fill);
        context.font = `${cell >= 34 ? 11 : 9}px ${FONT}`;
        context.fillText(text, x + (cell - gap) / 2, y + (cell - gap) / 2, cell - 3);
      }
    }
  }
}

function drawCursor(context, now, { left, top, cell }, colours) {
  const { rows, columns, cursor, row } = now;
  const gap = gapOf(cell);
  const box = (i, j, width, inset, across = cell) => {
    context.lineWidth = width;
    context.strokeRect(left + j * cell + inset, top + i * cell + inset, across - gap - 2 * inset, cell - gap - 2 * inset);
  };
  context.strokeStyle = colours.accent;
  if (now.outlined) {
    rows.forEach((_, i) => columns.forEach((_, j) => now.outlined(i, j) && box(i, j, 2, 1)));
  }
  if (row != null && row < rows.length) box(row, 0, 2, 0, cell * columns.length);
  if (cursor) box(...cursor, 3, 0);
}
