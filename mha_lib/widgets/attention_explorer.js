// Where does each query look? All heads small, one head large, one query in words.
import { dot, fixed, need, needArray, products, range, softmax } from "./arithmetic.js";
import {
  button, choice, controls, h, numbers, palette, press, put, readout, say, shade, slider,
  toggle, widget,
} from "./common.js";
import { heatmap } from "./heatmap.js";

const VIEWS = { weights: "weights", scores: "scores (before softmax)" };
const LOG_FLOOR = 4; // decades that the logarithmic colours span
const LISTED = 16; // keys that are listed with their weights; of more, the largest
const LARGEST = 8;

/** The maps of one layer: weights, and scores where q and k are there. */
export function maps(ui) {
  const layer = ui.get("layer");
  const [q, k] = [ui.get("q")[layer], ui.get("k")[layer]];
  const mask = ui.get("mask");
  if (!q) return { weights: ui.get("weights")[layer], scores: null };
  const scale = 1 / Math.sqrt(q[0][0].length);
  const scores = q.map((head, i) =>
    products(head, k[i]).map((row) => row.map((x) => x * scale)));
  const allowed = (head, t) => (mask.length ? mask[mask.length > 1 ? head : 0][t] : null);
  const weights = scores.map((map, head) => map.map((row, t) => softmax(row, allowed(head, t))));
  return { weights, scores };
}

/** A value as a shade in −1…1. Scores are held against the largest of their layer. */
function shading(x, largest, log) {
  const part = x / largest;
  if (!log) return part;
  const decades = Math.log10(Math.max(Math.abs(part), 1e-30));
  return Math.sign(part) * Math.max(0, 1 + decades / LOG_FLOOR);
}

function check(ui) {
  const layers = Math.max(ui.get("weights").length, ui.get("q").length);
  need(layers > 0, "it was given no weights.");
  const [queries, keys] = [ui.get("query_tokens").length, ui.get("key_tokens").length];
  if (ui.get("q").length) {
    const [a, b] = [needArray(ui.get("q"), "q", 4), needArray(ui.get("k"), "k", 4)];
    need(a[3] === b[3], "q and k must have the same head size.");
    need(a[2] === queries && b[2] === keys, "q and k must have a row for each label.");
    need(a[0] === b[0] && a[1] === b[1], "q and k must have the same layers and heads.");
  } else {
    const shape = needArray(ui.get("weights"), "weights", 4);
    need(shape[2] === queries && shape[3] === keys, "weights must have a row and a column for each label.");
  }
  const mask = ui.get("mask");
  if (mask.length) {
    const heads = (ui.get("q")[0] ?? ui.get("weights")[0]).length;
    need([1, heads].includes(mask.length), "the mask must be one map, or one for each head.");
    need(mask.every((map) => map.length === queries && map.every((row) => row.length === keys)),
      "the mask must have a row for each query and a column for each key.");
  }
}

export default widget("Attention explorer", (ui) => {
  let now = {}; // the maps of the layer that is shown
  let known = "";
  ui.follow(() => {
    const traits = ["layer", "weights", "q", "k", "mask"].map(ui.get);
    if (known && traits.every((x, i) => x === known[i])) return;
    check(ui);
    now = maps(ui);
    known = traits;
  });

  const heads = () => now.weights.length;
  const kind = () => (ui.get("view") === "scores" && now.scores ? "scores" : "weights");
  const map = (head = ui.get("head")) => now[kind()][Math.min(head, heads() - 1)];
  const isHidden = (head) => {
    const mask = ui.get("mask");
    const one = mask.length && mask[mask.length > 1 ? head : 0];
    return (i, j) => Boolean(one) && !one[i][j];
  };
  const largest = () => {
    if (kind() === "weights") return 1;
    now.largest ??= now.scores.flat(2).reduce((most, x) => Math.max(most, Math.abs(x)), 1e-9);
    return now.largest;
  };
  const place = () => [
    Math.min(ui.get("query"), ui.get("query_tokens").length - 1),
    Math.min(ui.get("key"), ui.get("key_tokens").length - 1),
  ];
  const name = (trait, i) => `${ui.get(trait)[i]}`;
  const move = (i, j) => {
    ui.set("query", i);
    ui.set("key", j);
  };

  // All heads, small. They are drawn again only when their numbers change.
  const small = h("div", { class: "mha-heads", role: "group", "aria-label": "heads" });
  let drawn = null;
  ui.follow(() => {
    const colours = palette(ui.root);
    const state = JSON.stringify([kind(), ui.get("log"), colours]);
    if (drawn?.now !== now || drawn.state !== state) {
      const top = largest();
      small.replaceChildren(...range(heads()).map((head) => {
        const one = button(`head ${head}`, () => ui.set("head", head));
        one.prepend(thumbnail(map(head), (x) => shade(colours, shading(x, top, ui.get("log")))));
        return one;
      }));
      drawn = { now, state };
    }
    [...small.children].forEach((one, head) => press(one, head === ui.get("head")));
  });

  const line = readout();
  const large = heatmap(ui, {
    move,
    content() {
      const [i, j] = place();
      const top = largest();
      const [one, hidden] = [map(), isHidden(ui.get("head"))];
      return {
        rows: ui.get("query_tokens"),
        columns: ui.get("key_tokens"),
        value: (a, b) => shading(one[a][b], top, ui.get("log")),
        text: (a, b) => fixed(one[a][b]),
        hidden: (a, b) => hidden(a, b),
        of: [one, ui.get("mask"), ui.get("log"), top],
        cursor: [i, j],
        row: i,
        label: `${VIEWS[kind()]} of head ${ui.get("head")}: arrow keys move from cell to cell`,
      };
    },
  });

  // One query in words: which tokens it looks at, and how much.
  const query = h("div", { class: "mha-tokens", role: "group", "aria-label": "query" });
  const keys = () => ui.get("key_tokens").length;
  const looks = h("ol", { class: "mha-tokens" });
  const looksTitle = h("div", { class: "mha-caption" });
  const all = h("ol", { class: "mha-tokens", "aria-label": "weight of each key" });
  const more = h("details", { class: "mha-numbers", ontoggle: () => ui.redraw() }, h("summary"), all);
  let words = null;
  ui.follow(() => {
    const [i, j] = place();
    if (words !== ui.get("query_tokens")) {
      words = ui.get("query_tokens");
      query.replaceChildren(...words.map((word, t) => button(word, () => ui.set("query", t))));
    }
    [...query.children].forEach((one, t) => press(one, t === i));
    const row = now.weights[Math.min(ui.get("head"), heads() - 1)][i];
    const many = keys() > LISTED;
    const places = many ? largestOf(row, LARGEST) : range(keys());
    const list = (ol, some) =>
      listWeights(ol, some.map((s) => [name("key_tokens", s), row[s]]), palette(ui.root));
    list(looks, places);
    more.hidden = !many;
    if (many && more.open) list(all, range(keys()));
    looks.classList.toggle("mha-largest", many);
    put(looks, { "aria-label": many ? `the ${LARGEST} largest weights` : "weight of each key" });
    say(more.firstChild, `All ${keys()} keys in their order`);
    const rest = row.reduce((sum, w) => sum + w, 0) - places.reduce((sum, s) => sum + row[s], 0);
    say(looksTitle, `looks at${many ? `: the ${LARGEST} largest weights, the others add up to ${fixed(rest)}` : ""}`);
    const one = map();
    const sum = row.reduce((a, b) => a + b, 0);
    const said = isHidden(ui.get("head"))(i, j) ? "hidden by the mask" : fixed(one[i][j], 3);
    say(line, `Head ${ui.get("head")}, query “${name("query_tokens", i)}” → key “${name("key_tokens", j)}”: ` +
      `${kind().replace(/s$/, "")} ${said}. The row of weights sums to ${fixed(sum)}.`);
  });

  // q · k, one dimension after the other.
  const parts = numbers(ui, "q · k, dimension by dimension", () => {
    const [i, j] = place();
    const head = Math.min(ui.get("head"), heads() - 1);
    const a = ui.get("q")[ui.get("layer")][head][i];
    const b = ui.get("k")[ui.get("layer")][head][j];
    const row = (title, cells, total) => [title, ...cells.map((x) => fixed(x)), total];
    const sum = dot(a, b);
    return {
      caption: `q · k = ${fixed(sum, 3)}, divided by √${a.length}: score ${fixed(sum / Math.sqrt(a.length), 3)}`,
      columns: ["part", ...a.map((_, d) => `d = ${d}`), "sum"],
      rows: [
        row(`q of “${name("query_tokens", i)}”`, a, ""),
        row(`k of “${name("key_tokens", j)}”`, b, ""),
        row("product", a.map((x, d) => x * b[d]), fixed(sum)),
      ],
    };
  });
  const table = numbers(ui, "The map as a table", () => ({
    caption: `${VIEWS[kind()]} of head ${ui.get("head")}`,
    columns: ["query \\ key", ...ui.get("key_tokens"), ...(kind() === "weights" ? ["sum"] : [])],
    rows: map().map((row, t) => [
      name("query_tokens", t),
      ...row.map((x, s) => (isHidden(ui.get("head"))(t, s) ? `hidden (${fixed(x, 3)})` : fixed(x, 3))),
      ...(kind() === "weights" ? [fixed(row.reduce((a, b) => a + b, 0))] : []),
    ]),
  }));

  const layers = Math.max(ui.get("weights").length, ui.get("q").length);
  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    controls(
      layers > 1 ? slider(ui, { label: "layer", trait: "layer", range: { min: 0, max: layers - 1 } }) : null,
      ui.get("q").length
        ? choice(ui, { label: "show", trait: "view", options: Object.entries(VIEWS) }) : null,
      toggle(ui, { label: "logarithmic colours", trait: "log" }),
    ),
    small,
    h("div", { class: "mha-caption" }, "query"), query,
    looksTitle, looks, more,
    large, line,
    ui.get("q").length ? parts : "", table,
  );
});

/** Where a row is largest, the largest first; of equals the first. */
function largestOf(row, count) {
  return range(row.length).sort((a, b) => row[b] - row[a]).slice(0, count);
}

/** Words and weights as items of a list, which stay: only what changed is written. */
function listWeights(list, items, colours) {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length) list.append(h("li", {}, h("b"), h("span")));
  items.forEach(([word, weight], i) => {
    const item = list.children[i];
    say(item.firstChild, word);
    say(item.lastChild, fixed(weight));
    item.style.borderBottomColor = `rgb(${shade(colours, weight).join(" ")})`;
  });
}

/** A map as one picture, a pixel a cell. */
function thumbnail(map, colour) {
  const canvas = h("canvas", { width: map[0].length, height: map.length, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(map[0].length, map.length);
  map.flat().forEach((x, i) => image.data.set([...colour(x), 255], 4 * i));
  context.putImageData(image, 0, 0);
  return canvas;
}
