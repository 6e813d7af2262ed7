// Where one word looks: an arc to each earlier word, as wide as its weight.
import { fixed } from "./arithmetic.js";
import { palette } from "./canvas.js";
import { h, put } from "./common.js";

const HIGH = 17; // pixels of a word's row
const [THIN, WIDE] = [0.5, 9]; // pixels of an arc of weight 0 and 1
const FAINT = 0.01; // weights below it have no arc

/**
 * `content()` gives {words, row: the one that looks, weights: of the words up to it, earlier:
 * the weight of all words before these, label}; `move(row)` is called where the pointer or
 * the arrow keys go.
 */
export function arcs(ui, { content, move }) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", {
    class: "mha-map mha-arcs", tabindex: "0", role: "application", "aria-roledescription": "arcs",
  }, canvas);
  let now = null;
  const at = (event) => {
    const i = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / HIGH) - 1;
    if (i >= 0 && i < now.words.length && i !== now.row) move(i);
  };
  frame.addEventListener("pointermove", at);
  frame.addEventListener("pointerdown", at);
  frame.addEventListener("keydown", (event) => {
    const last = now.words.length - 1;
    const to = { ArrowUp: now.row - 1, ArrowDown: now.row + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    now.row = Math.max(0, Math.min(last, to)); // a second key may come before the next frame
    move(now.row);
  });

  let known = [];
  ui.draw(() => {
    if (frame.hidden) return;
    now = content();
    const state = [JSON.stringify(now), ui.width(frame), window.devicePixelRatio, palette(ui.root)];
    if (state.every((x, i) => x === known[i])) return;
    known = state;
    put(frame, { "aria-label": now.label });
    const { words, row, weights, earlier } = now;
    const colours = palette(ui.root);
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.max(120, ui.width(frame)), HIGH * (words.length + 1)];
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.textBaseline = "middle";
    const write = (text, x, i, align, colour, font = "12px") => {
      Object.assign(context, { textAlign: align, fillStyle: colour, font: `${font} system-ui, sans-serif` });
      context.fillText(text, x, (i + 1.5) * HIGH);
    };
    const left = width * 0.45; // where the words begin
    const all = earlier > 0 ? [[-1, earlier], ...weights.entries()] : [...weights.entries()];
    for (const [i, weight] of all) {
      const [from, to] = [(row + 1.5) * HIGH, (i + 1.5) * HIGH];
      const strong = weight >= FAINT;
      write(fixed(weight), width - 2, i, "right", strong ? colours.text : colours.muted);
      if (!strong) continue;
      const out = Math.min(left - 10, 14 + (row - i) * HIGH * 0.6);
      Object.assign(context, {
        strokeStyle: `rgb(${colours.ramp[1].join(" ")})`, lineWidth: THIN + weight * (WIDE - THIN), lineCap: "round",
      });
      context.beginPath();
      context.moveTo(left - 6, from);
      if (i === row) context.arc(left - 14, from, 6, 0.4, 5.9); // a look at itself
      else context.bezierCurveTo(left - 6 - out * 1.3, from, left - 6 - out * 1.3, to, left - 6, to);
      context.stroke();
    }
    if (earlier > 0) write("earlier", left, -1, "left", colours.muted);
    words.forEach((word, i) => write(word, left, i, "left",
      i === row ? colours.accent : i < row ? colours.text : colours.muted, i === row ? "bold 12px" : "12px"));
  });
  return frame;
}
