// The pictures of the break-it machine: a map as it should be and as it is, two losses.
import { fixed, range } from "./arithmetic.js";
import { corner, css, palette, shade, widthsOf } from "./canvas.js";
import { h, put, svg } from "./common.js";

const FONT = "system-ui, sans-serif";
const WIDEST = 24; // pixels of a cell
const HIGH = { desk: 17, phone: 16 };
const CORNER = 6;
const GAP = 12;
const CLOSE = 1; // nats: losses that end nearer to each other are drawn larger

/** On a phone, where all of it has to fit one screen. */
const narrow = (ui) => ui.width(ui.root) < 560;

function prepared(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

/**
 * What is right beside what is here, on one scale of colours and with one cursor; a red
 * corner marks each number that differs.
 *
 * `content()` gives {rows, heads: labels, columns: count, right, here: cells, cursor, label,
 * quantity: what both are};
 * `move(i, j)` is called where the pointer or the arrow keys go.
 */
export function twofold(ui, { content, move }) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", { class: "mha-map", tabindex: "0", role: "application", "aria-roledescription": "two maps" }, canvas);
  let [layout, now] = [null, null];

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const { left, top, wide, high, step } = layout;
    const x = event.clientX - box.left - left;
    const inside = x - Math.floor(x / step) * step;
    const [i, j] = [Math.floor((event.clientY - box.top - top) / high), Math.floor(inside / wide)];
    if (x >= 0 && x < 2 * step && i >= 0 && i < now.rows.length && j < now.columns && `${now.cursor}` !== `${[i, j]}`) move(i, j);
  };
  frame.addEventListener("pointermove", at);
  frame.addEventListener("pointerdown", at);
  frame.addEventListener("keydown", (event) => {
    const [i, j] = now.cursor;
    const last = [now.rows.length - 1, now.columns - 1];
    const step = {
      ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
      Home: [i, 0], End: [i, last[1]], PageUp: [0, j], PageDown: [last[0], j],
    }[event.key];
    if (!step) return;
    event.preventDefault();
    now.cursor = step.map((x, axis) => Math.max(0, Math.min(last[axis], x)));
    move(...now.cursor);
  });

  let known = [];
  ui.draw(() => {
    now = content();
    const { rows, heads, columns, right, here, cursor, quantity } = now;
    put(frame, { "aria-label": now.label });
    const colours = palette(ui.root);
    const width = Math.max(220, ui.width(frame));
    const state = [`${[rows, heads, right, here, cursor, quantity]}`, width, colours, window.devicePixelRatio];
    if (state.every((x, i) => x === known[i])) return;
    known = state;
    const left = Math.ceil(Math.max(...widthsOf(rows, `bold 12px ${FONT}`))) + 8;
    const should = `${quantity}, ${quantity.endsWith("s") ? "as they should be" : "as it should be"}`;
    const wide = Math.min(WIDEST, Math.floor((width - left - GAP - 2) / 2 / columns));
    const [panel, high] = [wide * columns, HIGH[narrow(ui) ? "phone" : "desk"]];
    const room = Math.max(GAP, width - left - 2 * panel - 2); // between the two, at most
    const gap = Math.min(room, Math.max(GAP, Math.ceil(widthsOf([should], `12px ${FONT}`)[0]) + GAP - panel));
    const top = 13 + Math.ceil(Math.max(...widthsOf(rows.concat(heads), `bold 11px ${FONT}`))) + 2;
    layout = { left, top, wide, high, step: panel + gap };
    const most = [panel + gap - GAP / 2, width - left - panel - gap]; // of a title, pixels
    const context = prepared(canvas, Math.max(left + 2 * panel + gap + 2, width), top + rows.length * high + 2);
    const number = (x) => Number.isFinite(x) && Math.abs(x) < 1e300;
    const largest = Math.max(1e-9, ...right.concat(here).filter(number).map(Math.abs));
    const same = (a, b) => a === b || (Number.isNaN(a) && Number.isNaN(b)) || Math.abs(a - b) <= 1e-9 * largest;
    const differs = here.map((x, i) => !same(x, right[i]));
    context.textBaseline = "middle";
    const write = (text, x, y, align, font = "12px", colour = colours.text, across = panel) => {
      Object.assign(context, { textAlign: align, fillStyle: colour, font: `${font} ${FONT}` });
      context.fillText(text, x, y, across);
    };
    rows.forEach((text, i) => write(text, left - 6, top + (i + 0.5) * high, "right",
      i === cursor[0] ? "bold 12px" : "12px", i === cursor[0] ? colours.accent : colours.text));
    [should, `${quantity}, ${differs.some(Boolean) ? "here" : "here: no difference"}`].forEach((title, n) => {
      const x0 = left + n * (panel + gap);
      write(title, x0, 7, "left", "12px", colours.muted, most[n]);
      heads.forEach((text, j) => { // upright, as narrow as its column
        if (wide < 11 && j % 2 && j !== cursor[1]) return; // or they would touch
        if (wide < 11 && Math.abs(j - cursor[1]) === 1) return;
        context.save();
        context.translate(x0 + (j + 0.5) * wide, top - 2);
        context.rotate(-Math.PI / 2);
        write(text, 0, 0, "left", j === cursor[1] ? "bold 11px" : "11px", j === cursor[1] ? colours.accent : colours.text);
        context.restore();
      });
      [right, here][n].forEach((x, k) => {
        const [i, j] = [Math.floor(k / columns), k % columns];
        const [cx, cy] = [x0 + j * wide, top + i * high];
        context.fillStyle = css(shade(colours, number(x) ? x / largest : 0));
        context.fillRect(cx, cy, wide - 1, high - 1);
        if (!number(x)) {
          context.strokeStyle = x === -Infinity ? colours.hidden : colours.wrong;
          context.lineWidth = 1;
          context.beginPath();
          context.moveTo(cx + 2, cy + high - 3);
          context.lineTo(cx + wide - 3, cy + 2);
          context.stroke();
        }
        if (differs[k]) corner(context, colours.wrong, cx + wide - 1, cy, CORNER);
      });
      Object.assign(context, { strokeStyle: colours.accent, lineWidth: 2 });
      context.strokeRect(x0 + cursor[1] * wide, top + cursor[0] * high, wide - 1, high - 1);
    });
  });
  return frame;
}

/**
 * Two losses over the steps of a training: right, and here, and what lies between them.
 *
 * Where they end close together both axes are those of the end, and the fall before it is
 * left out: else two lines that are a tenth apart would be one.
 */
export function lossPicture(ui, content) {
  const [W, left, top, bottom] = [128, 22, 28, 16]; // above and below the curves: words
  const frame = h("div", { class: "mha-loss" });
  let known = [];
  ui.follow(() => {
    const { steps, label, gap, seen, ...curves } = content();
    const H = narrow(ui) ? 70 : 98;
    if (known[0] === curves.here && known[1] === H) return;
    known = [curves.here, H];
    const close = Math.abs(gap) < CLOSE;
    const high = 0.6 + 2 * Math.abs(gap); // room for the gap, for noise, and for words
    const both = [curves.right, curves.here ?? []];
    const numbers_ = both.flat().filter((x) => x !== null);
    const low = close ? Math.floor(10 * Math.min(...numbers_)) / 10 : 0;
    const begin = close ? curves.right.findIndex((_, i) => both.every((curve) => !(curve[i] > low + high))) : 0;
    const [right, here] = [curves.right, curves.here].map((curve) => curve?.slice(begin) ?? null);
    const highest = Math.max(...right, ...(here ?? []));
    const most = close ? Math.max(low + high, Math.ceil(10 * highest) / 10) : Math.ceil(highest);
    const first = Math.round(begin * steps / curves.right.length);
    const x = (i) => left + ((W - left - 4) * (i + 0.5)) / right.length;
    const y = (loss) => top + ((H - bottom - top) * (most - loss)) / (most - low);
    const points = (list) => list.map((loss, i) => (loss === null ? "" : `${x(i).toFixed(1)} ${y(loss).toFixed(1)}`)).filter(Boolean);
    const path = (list) => points(list).map((place, i) => `${i ? "L" : "M"}${place}`).join("");
    const text = (content_, px, py, anchor, kind = "mha-tick") =>
      svg("text", { x: px, y: py, "text-anchor": anchor, class: kind }, content_);
    const broken = here && here.includes(null);
    const window_ = svg("clipPath", { id: `${ui.id}-loss` },
      svg("rect", { x: left, y: top - 2, width: W - left, height: H - bottom - top + 2 }));
    const inside = svg("g", { "clip-path": `url(#${ui.id}-loss)` },
      gap === undefined ? null : svg("path", { d: `M${[...points(right), ...points(here).reverse()].join("L")}Z`, class: "mha-between" }),
      svg("path", { d: path(right), class: "mha-right-loss" }),
      here ? svg("path", { d: path(here), class: "mha-here-loss" }) : null);
    const said = broken ? "✗ not a number" : gap === undefined ? "" : Math.abs(gap) <= seen ? "no gap" : `gap ${fixed(Math.abs(gap), 2)}`;
    frame.replaceChildren(svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label }, window_,
      range(6).map((i) => low + (i * (most - low)) / 5).map((loss) => svg("line", { x1: left, x2: W - 4, y1: y(loss), y2: y(loss), class: "mha-grid" })),
      text(close ? low.toFixed(1) : "0", left - 3, y(low) + 4, "end"), text(close ? most.toFixed(1) : `${most}`, left - 3, y(most) + 8, "end"),
      text(first ? `loss from step ${first}` : `loss, ${steps} steps`, left, H - 4, "start"), text("– – right", left, 10, "start"),
      here ? text("— here", left, 22, "start", "mha-tick mha-here-name") : null,
      inside, said ? text(said, W, 10, "end", broken ? "mha-broken" : "mha-gap") : null));
  });
  return frame;
}

export const shown = (x) => (x === undefined ? "" : Math.abs(x) > 1e300 ? fixed(x * Infinity) : fixed(x, 3));
