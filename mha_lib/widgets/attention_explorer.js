// Where does each word look? All heads small, one query's arcs, one head large.
import { dot, fixed, need, needArray, range } from "./arithmetic.js";
import { largestOf, layerMaps, likeness, PATTERNS } from "./attention_explorer_heads.js";
import { palette, shade } from "./canvas.js";
import {
  button, choice, controls, h, inRoles, more, numbers, press, put, readout, say, slider, svg, toggle, tryThis, widget,
} from "./common.js";
import { heatmap } from "./heatmap.js";

const VIEWS = { weights: "weights", scores: "scores (before softmax)" };
const LOG_FLOOR = 4; // decades that the logarithmic colours span
const LISTED = 10; // words that stand one below the other; of more keys the largest
const LARGEST = { wide: 8, narrow: 6 };
const ROW = 26; // pixels from word to word, as in the style sheet
const LINE = 32; // pixels that a question takes
const SPARE = 54; // pixels of a phone where nothing is asked
const GAP = 64; // from query to key
const NARROW = 560;
const TALL = { few: { wide: 310, narrow: 200 }, many: { wide: 340, narrow: 280 } }; // pixels that the map may take
const LIKE = 0.5; // of its weight: then a head is called by the pattern's name

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
  for (const trait of ["layer", "head", "query", "key"]) {
    need(Number.isInteger(ui.get(trait)) && ui.get(trait) >= -1, `${trait} must be a whole number from −1.`);
  }
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
  const given = () => Object.fromEntries(["weights", "q", "k", "mask"].map((trait) => [trait, ui.get(trait)]));
  const layers = () => Math.max(ui.get("weights").length, ui.get("q").length);
  let all = []; // the maps of each layer, once they are asked for
  let now = {}; // those of the layer that is shown
  let known = [];
  ui.follow(() => {
    const traits = ["weights", "q", "k", "mask"].map(ui.get);
    if (traits.some((x, i) => x !== known[i])) {
      check(ui);
      [all, known] = [[], traits];
    }
    now = mapsOf(Math.min(layer(), layers() - 1));
  });
  const layer = () => Math.max(0, ui.get("layer"));
  const mapsOf = (i) => (all[i] ??= layerMaps(given(), i));

  const heads = () => now.weights.length;
  const alone = () => heads() === 1 && layers() === 1; // no head to tell from it
  const head = () => Math.max(0, Math.min(ui.get("head"), heads() - 1));
  const kind = () => (ui.get("view") === "scores" && now.scores ? "scores" : "weights");
  const map = (i = head()) => now[kind()][i];
  const isHidden = (i) => {
    const mask = ui.get("mask");
    const one = mask.length && mask[mask.length > 1 ? i : 0];
    return (t, s) => Boolean(one) && !one[t][s];
  };
  const largest = () => {
    if (kind() === "weights") return 1;
    now.largest ??= now.scores.flat(2).reduce((most, x) => Math.max(most, Math.abs(x)), 1e-9);
    return now.largest;
  };
  /** Query and key; −1 stands for the last query, and for the key with the largest weight. */
  const place = () => {
    const [T, S] = [ui.get("query_tokens").length, ui.get("key_tokens").length];
    const [t, s] = [ui.get("query"), ui.get("key")];
    const query = t < 0 ? T - 1 : Math.min(t, T - 1);
    return [query, s < 0 ? largestOf(now.weights[head()][query], 1)[0] : Math.min(s, S - 1)];
  };
  const name = (trait, i) => `${ui.get(trait)[i]}`;
  /** With its place, where the same word stands twice. */
  const placed = (trait, i) => {
    const all = ui.get(trait);
    return all.indexOf(all[i]) === all.lastIndexOf(all[i]) ? name(trait, i) : `${name(trait, i)} (${i})`;
  };
  const ask = (query) => ui.setAll({ query, key: -1 });
  const narrow = () => ui.width(ui.root) < NARROW;

  // What to try: rows that stand out, and heads that are like a pattern with a name.
  let found = {};
  let asked = null;
  function rowsToTry() {
    const rows = now.weights.flatMap((one, i) => one.map((row, t) => ({
      i, t, most: Math.max(...row), visible: row.filter((w) => w > 0).length,
    }))).filter(({ visible }) => visible > 1);
    if (!rows.length) return {};
    const best = (measure) => rows.reduce((a, b) => (measure(b) > measure(a) ? b : a));
    const [sure, even] = [best(({ most }) => most), best(({ most, visible }) => -most * visible)];
    const last = ui.get("query_tokens").length - 1; // −1, as the lesson begins
    const state = ({ i, t }) => ({ head: i, query: t === last ? -1 : t, key: -1, pattern: "", guess: "" });
    const who = ({ i, t }) => `${alone() ? "" : `Head ${i}, `}“${name("query_tokens", t)}”:`;
    const top = largestOf(now.weights[sure.i][sure.t], 1)[0];
    return {
      "the surest row": {
        state: state(sure), note: `${who(sure)} “${name("key_tokens", top)}” gets ${fixed(sure.most)} of the weight.` },
      "the most even row": {
        state: state(even), note: `${who(even)} ${even.visible} ${ui.get("unit")}s, and none gets more than ${fixed(even.most)}.` },
    };
  }
  /** Patterns that some heads have and others have not. */
  function patternsToTry() {
    const [queries, keys] = [ui.get("query_tokens"), ui.get("key_tokens")];
    if (queries.length < 3 || `${queries}` !== `${keys}`) return [];
    const every = range(layers()).flatMap((i) => mapsOf(i).weights);
    return Object.keys(PATTERNS).filter((one) => {
      const like = every.map((weights) => likeness(weights, PATTERNS[one]) >= LIKE);
      return like.some(Boolean) && !like.every(Boolean);
    });
  }
  /** What the pressed head is worth as an answer; nothing is said before one is pressed. */
  function judged(one) {
    const here = `${layer()} ${head()}`;
    if (ui.get("guess") !== here) return layers() > 1
      ? "Your turn: move “layer”, compare the small maps, then press the head that does."
      : "Your turn: compare the small maps, then press the head that does.";
    const share = likeness(now.weights[head()], PATTERNS[one]);
    const most = Math.max(...range(layers()).flatMap((i) => mapsOf(i).weights.map((w) => likeness(w, PATTERNS[one]))));
    if (share < LIKE) return verdicts(share)[now.weights.some((w) => likeness(w, PATTERNS[one]) >= LIKE) ? "no" : "none"];
    return verdicts(share)[share === most ? "most" : "too"];
  }
  function verdicts(share) {
    const where = layers() > 1 ? `Head ${head()} of layer ${layer()}` : `Head ${head()}`;
    const no = `✗ ${where} does not: ${fixed(share)} of its weight.`;
    return {
      no: `${no} Press another.`,
      none: `${no} Nor do the others here: change layer.`,
      most: `✓ ${where} does: ${fixed(share)} of its weight, and no head has more.`,
      too: `✓ ${where} does, too: ${fixed(share)} of its weight. But another has more: which?`,
    };
  }
  let patterns = null;
  const tries = tryThis(ui, () => {
    if (asked !== now) [found, asked] = [rowsToTry(), now];
    if (patterns?.all !== all) patterns = { all, names: patternsToTry() };
    const quests = patterns.names.map((one) => [PATTERNS[one].name,
      { state: { pattern: one, guess: "" }, note: judged(one), notes: Object.values(verdicts(0)), under: ["Find the head that looks at", ""] }]);
    return { ...found, ...Object.fromEntries(quests) };
  }, "Try this", told);
  /** Of the row that is shown: where it looks most. */
  function told() {
    const [t] = place();
    const row = now.weights[head()][t];
    const most = Math.max(...row);
    const [first, ...others] = range(row.length).filter((s) => row[s] === most);
    const who = `${alone() ? "" : `Head ${head()}, `}“${placed("query_tokens", t)}”`;
    return most === 0 ? `${who} looks at nothing.`
      : others.length ? `${who}: ${others.length + 1} ${ui.get("unit")}s get the most, ${fixed(most)} each.`
        : `${who} looks most at “${placed("key_tokens", first)}”: ${fixed(most)}.`;
  }

  ui.follow(() => {
    const unit = ui.get("unit");
    ui.question(`Where does each ${unit} look?`);
    ui.lead(patterns.names.length ? "Choose what to find, then press the right head."
      : `Choose a ${unit}: thicker arcs carry more weight.`);
  });

  // All heads, small. They are drawn again only when their numbers change.
  const small = h("div", { class: "mha-heads", role: "group", "aria-label": "heads" });
  let drawn = null;
  ui.follow(() => {
    const colours = palette(ui.root);
    const state = JSON.stringify([kind(), ui.get("log"), colours]);
    if (drawn?.now !== now || drawn.state !== state) {
      const top = largest();
      small.replaceChildren(...range(heads()).map((i) => {
        const one = button(`${i}`, () => ui.setAll({ head: i, guess: `${layer()} ${i}` }));
        put(one, { "aria-label": `head ${i}` });
        one.prepend(thumbnail(map(i), (x) => shade(colours, shading(x, top, ui.get("log")))));
        return one;
      }));
      drawn = { now, state };
    }
    [...small.children].forEach((one, i) => press(one, i === head()));
    put(small, { "data-asked": ui.get("pattern") !== "" && ui.get("guess") === "" });
    chooser.hidden = alone();
  });
  const chooser = h("div", { class: "mha-chooser" },
    layers() > 1 ? slider(ui, { label: "layer", trait: "layer", range: { min: 0, max: layers() - 1 } }) : "",
    h("div", { class: "mha-caption" }, "heads"), small);

  const line = readout();
  const large = heatmap(ui, {
    move: (t, s) => ui.setAll({ query: t, key: s }),
    tall: () => TALL[manyQueries() ? "many" : "few"][narrow() ? "narrow" : "wide"]
      + (patterns.names.length ? -LINE : manyQueries() && narrow() ? SPARE : 0),
    content() {
      const [i, j] = place();
      const top = largest();
      const [one, hidden] = [map(), isHidden(head())];
      return {
        rows: ui.get("query_tokens"),
        columns: ui.get("key_tokens"),
        value: (a, b) => shading(one[a][b], top, ui.get("log")),
        text: (a, b) => fixed(one[a][b]),
        hidden: (a, b) => hidden(a, b),
        of: [one, ui.get("mask"), ui.get("log"), top],
        cursor: [i, j],
        row: i,
        label: `${VIEWS[kind()]}${alone() ? "" : ` of head ${head()}`}: arrow keys move from cell to cell`,
      };
    },
  });

  // One query in words: arcs to the tokens that it looks at, the thicker the more.
  const manyQueries = () => ui.get("query_tokens").length > LISTED;
  const words = h("div", { class: "mha-words", role: "group", "aria-label": "query" });
  const one = choice({ ...ui, get: () => place()[0], set: (_, t) => ask(t) }, {
    label: "query", trait: "query",
    options: () => ui.get("query_tokens").map((word, t) => [t, manyQueries() ? `${t}: ${word}` : word]),
  });
  const keys = () => ui.get("key_tokens").length;
  const looks = h("ol", { class: "mha-words mha-right" });
  const arcs = svg("svg", { width: GAP, "aria-hidden": "true" });
  const rest = h("div", { class: "mha-caption" });
  const listed = h("ol", { class: "mha-every", "aria-label": "weight of each key" });
  const allKeys = h("details", { class: "mha-numbers", ontoggle: () => ui.redraw() }, h("summary"), listed);
  const title = h("div", { class: "mha-caption" }, "query (looks) → key (is looked at)");
  const asker = h("div", { class: "mha-words mha-asker" }, h("div"));
  let asking = null;
  ui.follow(() => {
    const [i] = place();
    const row = now.weights[head()][i];
    const colours = palette(ui.root);
    if (asking !== ui.get("query_tokens")) {
      asking = ui.get("query_tokens");
      if (!manyQueries()) words.replaceChildren(...asking.map((word, t) => button(word, () => ask(t))));
    }
    [...words.children].forEach((word, t) => press(word, t === i));
    words.hidden = title.hidden = manyQueries();
    one.hidden = asker.hidden = !manyQueries();
    say(asker.firstChild, name("query_tokens", i));
    const many = keys() > LISTED;
    const most = LARGEST[narrow() ? "narrow" : "wide"];
    const places = many ? largestOf(row, most) : range(keys());
    const list = (ol, some) => listWeights(ol, some.map((s) => [placed("key_tokens", s), row[s]]), colours);
    list(looks, places);
    put(looks, { "aria-label": many ? `the ${most} largest weights` : "weight of each key" });
    allKeys.hidden = !many;
    if (many && allKeys.open) list(listed, range(keys()));
    say(allKeys.firstChild, `All ${keys()} keys in their order`);
    const others = row.reduce((sum, w) => sum + w, 0) - places.reduce((sum, s) => sum + row[s], 0);
    say(rest, many ? `The ${most} largest weights; the others add up to ${fixed(others)}.` : "");

    const [left, right] = [manyQueries() ? 1 : asking.length, places.length];
    const tall = ROW * Math.max(left, right);
    put(arcs, { height: tall });
    const middle = (count, n) => tall / 2 + ROW * (n + 0.5 - count / 2);
    const from = middle(left, manyQueries() ? 0 : i);
    places.forEach((s, n) => {
      const path = arcs.children[n] ?? arcs.appendChild(svg("path"));
      const to = middle(right, n);
      put(path, {
        d: `M0,${from} C${GAP / 2},${from} ${GAP / 2},${to} ${GAP},${to}`,
        "stroke-width": fixed(0.5 + 6 * row[s], 1), "stroke-opacity": row[s] < 0.005 ? 0 : fixed(0.25 + 0.75 * row[s]),
      });
    });
    while (arcs.children.length > places.length) arcs.lastChild.remove();
  });
  ui.follow(() => {
    const [i, j] = place();
    const sum = now.weights[head()][i].reduce((a, b) => a + b, 0);
    const said = isHidden(head())(i, j) ? "hidden by the mask" : fixed(map()[i][j], 3);
    say(line, `${alone() ? "Query" : `Head ${head()}, query`} “${placed("query_tokens", i)}” → key “${placed("key_tokens", j)}”: ` +
      `${kind().replace(/s$/, "")} ${said}. The row of weights sums to ${fixed(sum)}.`);
  });

  // q · k, one dimension after the other.
  const parts = numbers(ui, "q · k, dimension by dimension", () => {
    const [i, j] = place();
    const a = ui.get("q")[layer()][head()][i];
    const b = ui.get("k")[layer()][head()][j];
    const row = (title, cells, total) => [title, ...cells.map((x) => fixed(x)), total];
    const sum = dot(a, b);
    return {
      caption: `q · k = ${fixed(sum, 3)}, divided by √${a.length}: score ${fixed(sum / Math.sqrt(a.length), 3)}`,
      columns: ["part", ...a.map((_, d) => `d = ${d}`), "sum"],
      rows: [
        row([...inRoles("q"), ` of “${name("query_tokens", i)}”`], a, ""),
        row([...inRoles("k"), ` of “${name("key_tokens", j)}”`], b, ""),
        row("product", a.map((x, d) => x * b[d]), fixed(sum)),
      ],
    };
  });
  const table = numbers(ui, "The map as a table", () => ({
    caption: `${VIEWS[kind()]}${alone() ? "" : ` of head ${head()}`}`,
    columns: ["query \\ key", ...ui.get("key_tokens"), ...(kind() === "weights" ? ["sum"] : [])],
    rows: map().map((row, t) => [
      name("query_tokens", t),
      ...row.map((x, s) => (isHidden(head())(t, s) ? `hidden (${fixed(x, 3)})` : fixed(x, 3))),
      ...(kind() === "weights" ? [fixed(row.reduce((a, b) => a + b, 0))] : []),
    ]),
  }));

  const panels = h("div", { class: "mha-panels" },
    chooser,
    h("div", { class: "mha-looks" },
      title, one, h("div", { class: "mha-arcs" }, h("div", {}, words, asker), arcs, looks), rest),
    h("div", { class: "mha-large" }, large));
  ui.follow(() => panels.classList.toggle("mha-many", manyQueries()));
  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    tries,
    panels,
    line,
    h("div", { class: "mha-last" },
      ui.get("q").length ? parts : "",
      more("More: scores, colours, tables",
        controls(
          ui.get("q").length ? choice(ui, { label: "show", trait: "view", options: Object.entries(VIEWS) }) : null,
          toggle(ui, { label: "logarithmic colours", trait: "log" })),
        allKeys, table)),
  );
}, {
  question: "Where does each word look?",
  lesson: ["layer", "head", "query", "key", "view", "log", "pattern"],
  answered: ["guess"],
});

/** Words and weights as items of a list, which stay: only what changed is written. */
function listWeights(list, items, colours) {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length) list.append(h("li", {}, h("b"), h("span")));
  items.forEach(([word, weight], i) => {
    const item = list.children[i];
    say(item.firstChild, word);
    say(item.lastChild, fixed(weight));
    item.style.borderColor = `rgb(${shade(colours, weight).join(" ")})`;
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
