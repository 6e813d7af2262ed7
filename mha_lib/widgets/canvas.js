// What is drawn on a canvas: colours, widths of texts, marks.

const palettes = new WeakMap(); // asking for a style costs more than a drawing

/** The colours of `common.css` as [r, g, b] or text, for drawing on a canvas. */
export function palette(root) {
  if (!palettes.has(root)) palettes.set(root, readPalette(root));
  return palettes.get(root);
}

/** Read them anew: the page has another theme. */
export const forget = (root) => palettes.delete(root);

function readPalette(root) {
  const probe = document.createElement("span");
  probe.hidden = true;
  root.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--mha-${name})`;
    return getComputedStyle(probe).color;
  };
  const rgb = (name) => colour(name).match(/[\d.]+/g).slice(0, 3).map(Number);
  const found = {
    text: colour("text"), muted: colour("muted"), line: colour("line"),
    accent: colour("accent"), wrong: colour("wrong"), surface: colour("surface"), hidden: colour("hidden"),
    ramp: [rgb("low"), rgb("high")],
    below: rgb("below"),
  };
  probe.remove();
  return found;
}

let unseen = null;

/** How wide each text is; on a canvas of no page, as one in a page asks for its layout. */
export function widthsOf(texts, font) {
  unseen ??= document.createElement("canvas").getContext("2d");
  unseen.font = font;
  return texts.map((text) => unseen.measureText(text).width);
}

const mix = (a, b, x) => a.map((from, i) => Math.round(from + (b[i] - from) * x));
const luminance = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;

/** The colour of x in −1…1: from `low` to `high`, or to `below` where it is negative. */
export function shade(colours, x) {
  const part = Math.min(1, Math.abs(x) || 0);
  return mix(colours.ramp[0], x < 0 ? colours.below : colours.ramp[1], part);
}

/** [r, g, b] as CSS writes it. */
export const css = (rgb) => `rgb(${rgb.join(" ")})`;
export const ink = (rgb) => (luminance(rgb) > 0.55 ? "#111" : "#fff");

/** A mark by shape as well as by colour: this number is another on the other side. */
export function corner(context, colour, right, top, size) {
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(right - size, top);
  context.lineTo(right, top);
  context.lineTo(right, top + size);
  context.fill();
}
