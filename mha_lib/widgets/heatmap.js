// Heat maps: of attention, of a mask.
import { css, ink, palette, shade, widthsOf } from "./canvas.js";
import { h, put } from "./common.js";

const FONT = "system-ui, sans-serif";
const LABEL = 14; // pixels that a label needs from the next
const WRITTEN = 26; // pixels of a cell that has room for a number
const TITLE = 46; // pixels of “← query”
const TINT = -0.3; // of hidden cells in a column that is tinted
const BARE = 4; // pixels on the left of rows without labels

/**
 * A map of rows × columns on a canvas, steered by mouse, touch and keyboard.
 *
 * `content()` gives {rows, columns: labels, value(i, j) in −1…1, text(i, j), hidden(i, j),
 * cursor: [i, j] or null, row: the row that is lit, outlined(i, j), tinted(j), label, of}. `of` is a
 * list of all that the cells depend on; while it and the labels stay the same, only what
 * is lit is drawn again.
 * `move(i, j)` is called where the pointer or the arrow keys go, `pick(i, j)` for a
 * click, Enter or Space. A text stands in cells of 26 pixels and more, or of `least`. No cell is wider than `most()`, the map no higher than `tall()`.
 * Rows whose labels are empty stand beside a map that has them.
 */
export function heatmap(ui, { content, move, pick, rowTitle = "query", columnTitle = "key", most = () => 40, tall }) {
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

  ui.draw(() => {
    now = content();
    const { rows, columns } = now;
    put(frame, { "aria-label": now.label });
    const context = canvas.getContext("2d");
    if (measured?.rows !== rows || measured.columns !== columns) {
      const [tall, wide] = [rows, columns].map((labels) =>
        Math.max(0, ...widthsOf(labels.map((x) => x.trim()), `12px ${FONT}`)));
      measured = { rows, columns, tall, wide };
    }
    const left = measured.tall ? Math.min(96, Math.ceil(measured.tall) + 24) : BARE;
    const wide = Math.max(120, ui.width(frame) || ui.width(ui.root));
    const above = (side) => (measured.wide > side - 4 ? Math.min(96, Math.ceil(measured.wide) + 24) : 34);
    const fits = (side) => Math.floor(((tall?.() ?? Infinity) - above(side) - 2) / rows.length);
    let cell = Math.min(most(), Math.floor((wide - left - 2) / columns.length));
    if (fits(cell) < cell) cell = fits(fits(cell)); // smaller cells may turn the labels
    cell = Math.max(3, cell);
    const slanted = measured.wide > cell - 4;
    const top = above(cell);
    layout = { left, top, cell, slanted };
    const scale = window.devicePixelRatio || 1;
    const colours = palette(ui.root);
    const of = now.of && [...now.of, wide, scale, colours, rows, columns];
    if (!of || !of.every((x, i) => x === known?.[i])) {
      const [width, height] = [left + Math.max(TITLE, cell * columns.length) + 2, // of one cell, too, the titles are read whole
        top + Math.max(left === BARE ? 0 : TITLE, cell * rows.length) + 2];
      for (const one of [canvas, unlit]) {
        one.width = Math.round(width * scale);
        one.height = Math.round(height * scale);
      }
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      const below = unlit.getContext("2d");
      below.scale(scale, scale);
      drawTitles(below, { ...layout, width }, colours, rowTitle, columnTitle);
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

function drawTitles(context, { left, top, cell, width }, colours, rowTitle, columnTitle) {
  context.textBaseline = "middle";
  context.font = `11px ${FONT}`;
  context.fillStyle = colours.muted;
  context.textAlign = "left";
  const [every, title] = [everyOf(cell), `${columnTitle} →`];
  const nth = `every ${every}${["nd", "rd"][every - 2] ?? "th"}`;
  const notes = every > 1 ? [` (${nth} named; point for more)`, ` (${nth} named)`, ` (${nth})`] : [];
  const fits = (note) => left + context.measureText(title + note).width <= width;
  context.fillText(title + (notes.find(fits) ?? ""), left, 8);
  if (left === BARE) return;
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
      context.fillText(label.trim(), 0, 0, length)));
  }
}

/** The labels at the cursor, in place of those that they would cover. */
function lightLabels(context, { rows, columns, cursor, row }, layout, colours) {
  const every = everyOf(layout.cell);
  context.fillStyle = colours.accent;
  context.font = `bold 12px ${FONT}`;
  [[rows, cursor?.[0] ?? row], [columns, cursor?.[1]]].forEach(([labels, lit], axis) => {
    if (lit == null || lit >= labels.length || (axis === 0 && layout.left === BARE)) return;
    const first = Math.max(0, Math.ceil((lit - every + 1) / every) * every);
    for (let k = first; k < lit + every && k < labels.length; k += every) {
      atLabel(context, layout, axis, k, (length, from) =>
        context.clearRect(from, -LABEL / 2, length, LABEL));
    }
    atLabel(context, layout, axis, lit, (length) => context.fillText(labels[lit].trim(), 0, 0, length));
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
      const fill = shade(colours, hidden ? (now.tinted?.(j) ? TINT : 0) : now.value(i, j));
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
      const text = cell >= (now.least ?? WRITTEN) && !hidden && now.text?.(i, j);
      if (text) {
        context.fillStyle = ink(fill);
        context.font = `${cell >= WRITTEN ? 11 : 9}px ${FONT}`;
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
