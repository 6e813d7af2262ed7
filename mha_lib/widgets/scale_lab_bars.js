// One row of scores and its weights as bars, with a number where there is room for it.
import { fixed, range } from "./arithmetic.js";
import { h, put, say, svg } from "./common.js";
import { plain, short } from "./scale_lab_measures.js";

const LEFT = 34; // room for the numbers at an axis
const RIGHT = 8;
const ABOVE = 14; // and below: room for the number at a bar's end
const SCORES = 64; // pixels
const WEIGHTS = 64;

/** Bars of the scores and of the weights; the pointer lights a key, arrow keys and a press choose it. */
export function bars(ui, { now, name, scores, reach, press }) {
  const frame = h("div", { class: "mha-bars", tabindex: "0", role: "slider", "aria-valuemin": 0 });
  const row = (what) => now()[what][ui.get("query")];
  const of = h("div", { class: "mha-caption" });
  ui.follow(() => say(of, `scores x = ${scores()}`));
  frame.append(
    of,
    panel(ui, frame, SCORES, () => ({
      values: row("scores"), low: -reach(), high: reach(),
      text: (x) => fixed(x, Math.abs(x) < 9.95 ? 1 : 0),
    })),
    h("div", { class: "mha-caption" }, "weights w = softmax(x)"),
    panel(ui, frame, WEIGHTS, () => ({
      values: row("weights"), low: 0, high: 1, text: (w) => (w < 0.005 ? "0" : fixed(w)),
    })),
  );
  const go = (event, s) => {
    event.preventDefault();
    const key = Math.max(0, Math.min(row("scores").length - 1, s));
    if (event.type !== "pointermove" || event.buttons) press(key);
    ui.set("key", key);
  };
  const point = (event) => {
    const box = frame.getBoundingClientRect();
    go(event, Math.floor((event.clientX - box.left - LEFT) * row("scores").length / (box.width - LEFT - RIGHT)));
  };
  frame.addEventListener("pointermove", point);
  frame.addEventListener("pointerdown", point);
  frame.addEventListener("keydown", (event) => {
    const s = ui.get("key");
    const to = {
      ArrowLeft: s - 1, ArrowDown: s - 1, ArrowRight: s + 1, ArrowUp: s + 1, Home: 0, End: Infinity,
    }[event.key];
    if (to !== undefined) go(event, to);
  });
  ui.follow(() => {
    const key = ui.get("key");
    put(frame, {
      "aria-label": `key, ${name()}`, "aria-valuemax": row("scores").length - 1, "aria-valuenow": key,
      "aria-valuetext": `key ${key}: x = ${fixed(row("scores")[key])}, w = ${short(row("weights")[key])}`,
    });
  });
  return frame;
}

/** A bar for each of `values`, with its number where there is room for it. */
function panel(ui, frame, tall, content) {
  const height = tall + 2 * ABOVE + 14;
  const drawing = svg("g");
  const labels = svg("g");
  const band = svg("rect", { class: "mha-band", y: 1, height: height - 2 });
  const picture = svg("svg", { height, "aria-hidden": "true" }, band, drawing, labels);
  let drawn = "";
  ui.follow(() => {
    const { values, low, high, text } = content();
    const key = ui.get("key");
    const width = Math.max(110, ui.width(frame));
    const pitch = (width - LEFT - RIGHT) / values.length;
    const x = (s) => LEFT + s * pitch;
    const y = (value) => ABOVE + tall * (high - value) / (high - low);
    const state = JSON.stringify([width, low, high, values]);
    if (state !== drawn) {
      drawn = state;
      put(picture, { width });
      const gap = Math.min(2, pitch / 5);
      renew(drawing, [
        ...[low, (low + high) / 2, high].flatMap((tick) => [
          ["line", { class: "mha-axis", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }],
          ["text", { x: LEFT - 5, y: y(tick), dy: "0.35em", "text-anchor": "end" }, plain(tick)],
        ]),
        ["text", { x: LEFT - 5, y: height - 4, dy: 0, "text-anchor": "end" }, "key"],
        ...values.map((value, s) => ["rect", {
          class: "mha-bar", x: x(s) + gap, width: pitch - 2 * gap,
          y: Math.min(y(0), y(value)), height: Math.max(1, Math.abs(y(value) - y(0))),
        }]),
      ]);
    }
    const first = (s) => (s === key ? Infinity : Math.abs(values[s]));
    const order = range(values.length).sort((a, b) => first(b) - first(a));
    const label = (s, at, said) => ({ x: x(s + 0.5), y: at, text: said, class: s === key ? "mha-lit" : "" });
    const spans = values.map((value, s) => { // of each bar: its sides, its upper and its lower end
      const top = Math.min(y(0), y(value));
      return { from: x(s), to: x(s + 1), top, foot: top + Math.max(1, Math.abs(y(value) - y(0))) };
    });
    const number = (s) => {
      const one = label(s, y(values[s]) + (values[s] < 0 ? 12 : -4), text(values[s]));
      one.x = Math.min(width - half(one), Math.max(LEFT - 2 + half(one), one.x)); // beside the axis
      if (s === key) { // always shown: beyond the ends of all bars that it would lie over
        const below = spans.filter(({ from, to }) => from < one.x + half(one) && to > one.x - half(one));
        one.y = values[s] < 0 ? Math.max(one.y, ...below.map(({ foot }) => foot + TALL + 3))
          : Math.min(one.y, ...below.map(({ top }) => top - 3));
      }
      return one;
    };
    const clear = (one) => spans.every(({ from, to, top, foot }) =>
      from >= one.x + half(one) || to <= one.x - half(one) || top >= one.y || foot <= one.y - TALL);
    const [left, right] = [x(key) - 1, x(key + 1) + 1]; // what is lit has these columns alone
    const beside = (one) => one.x + half(one) <= left || one.x - half(one) >= right;
    const most = pitch < 16 ? 7 : values.length; // narrow bars drown in numbers
    const every = Math.ceil(16 / pitch);
    const places = [key, ...range(values.length).filter((s) => s % every === 0)].map((s) => label(s, height - 4, `${s}`));
    const worth = (one) => one.class || (one.text !== "0" && clear(one) && beside(one));
    const numbers_ = fitting(order.slice(0, most).map(number).filter(worth));
    renew(labels, [...numbers_, ...fitting(places.filter((one) => one.class || beside(one)), 1)].map(({ text: said, ...place }) => ["text", place, said]));
    put(band, { x: x(key), width: pitch });
  });
  return picture;
}

/** Let a group hold what `wanted` lists, [tag, attributes, text], in the elements that it has. */
function renew(group, wanted) {
  wanted.forEach(([tag, attributes, text = ""], i) => {
    let one = group.children[i];
    if (one?.tagName !== tag) {
      const made = svg(tag);
      if (one) one.replaceWith(made);
      else group.append(made);
      one = made;
    }
    put(one, attributes);
    say(one, text);
  });
  while (group.children.length > wanted.length) group.lastChild.remove();
}

const TALL = 8; // pixels of a digit
const BETWEEN = 5; // of two labels
const WIDE = { ".": 3.6, "−": 9.3, digit: 7 }; // at 11 pixels, in the widest of the fonts

/** Of the width of a label; what is lit is bold. */
const half = ({ text, class: lit }) =>
  [...text].reduce((sum, sign) => sum + (WIDE[sign] ?? WIDE.digit) * (lit ? 1.1 : 1), 0) / 2;

/** Of all labels those that touch none before them. */
function fitting(labels, between = BETWEEN) {
  const found = [];
  for (const one of labels) {
    const free = (other) => Math.abs(one.x - other.x) >= half(one) + half(other) + between || Math.abs(one.y - other.y) > 11;
    if (found.every(free)) found.push(one);
  }
  return found;
}
