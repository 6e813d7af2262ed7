// Who may see whom: paint a mask or combine rules, see the weights, copy it for a framework.
import { fixed, need, needArray, range, softmax } from "./arithmetic.js";
import {
  button, choice, controls, h, more, numbers, press, readout, say, slider, toClipboard, toggle,
  tryThis, widget,
} from "./common.js";
import { heatmap } from "./heatmap.js";
import { FORMS, received, shapeText } from "./mask_forms.js";

// --- rules --------------------------------------------------------------------------

const RULES = ["causal", "align", "length", "side", "window", "block", "swapped"];
const CELL = 34; // pixels: a finger's
const NARROW = 560;
const TALL = { wide: 270, narrow: 215 }; // pixels that a map may take
const NAMED = 3; // queries that a warning names; of more it says how many
const BORDERS = 6; // of a map without labels

/** The rules that are switched on: as Python, which is shown, and as what they mean. */
function conditions(get) {
  const [S, length, window, block] = [get("key_tokens").length, ...["length", "window", "block"].map(get)];
  const found = [];
  if (get("causal")) found.push(["s <= t", (t, s) => s <= t]);
  if (length < S && get("side") === "right") found.push([`s < ${length}`, (t, s) => s < length]);
  if (length < S && get("side") === "left") found.push([`s >= ${S - length}`, (t, s) => s >= S - length]);
  if (window) found.push([`abs(t - s) < ${window}`, (t, s) => Math.abs(t - s) < window]);
  if (block) {
    const together = (t, s) => Math.floor(t / block) === Math.floor(s / block);
    found.push([`t // ${block} == s // ${block}`, together]);
  }
  return found;
}

/** At which key query 0 stands. */
function offset(get) {
  return get("align") === "top-left" ? 0 : get("key_tokens").length - get("query_tokens").length;
}

/** Is a key padding, as the rules have it? */
function isPadding(get) {
  const [S, length, left] = [get("key_tokens").length, get("length"), get("side") === "left"];
  return (s) => (left ? s < S - length : s >= length);
}

/** What the rules alone make: they say who may attend or, swapped, who may not. */
function ruled(get) {
  const [first, rules, swapped] = [offset(get), conditions(get), get("swapped")];
  return get("query_tokens").map((_, t) =>
    get("key_tokens").map((_, s) => rules.every(([, allows]) => allows(t + first, s)) !== swapped));
}

const same = (a, b) => a.every((row, t) => row.every((x, s) => x === b[t][s]));
const opposite = (mask) => mask.map((row) => row.map((x) => !x));

// --- the widget ---------------------------------------------------------------------

/** All that is drawn, from the traits. */
function read(get) {
  const mask = get("mask");
  const [T, S] = [get("query_tokens").length, get("key_tokens").length];
  need(T > 0 && S > 0, "it was given no tokens.");
  const [rows, columns] = needArray(get("scores"), "scores", 2);
  need(rows === T && columns === S, "scores must have a row for each query and a column for each key.");
  const fits = Array.isArray(mask) && mask.length === T && mask.every((row) => row?.length === S);
  need(fits, "the mask must have a row for each query and a column for each key.");
  need(mask.flat().every((x) => typeof x === "boolean"), "the mask must hold true and false alone.");
  for (const trait of ["length", "window", "block"]) {
    need(Number.isInteger(get(trait)) && get(trait) >= 0, `${trait} must be a whole number that is not negative.`);
  }
  const byRules = ruled(get);
  const first = offset(get);
  const real = range(S).map((s) => mask.some((row) => row[s]));
  const equals = (allows) => mask.every((row, t) => row.every((x, s) => x === allows(t, s)));
  return {
    mask, byRules, real, offset: first, shape: [T, S], swapped: get("swapped"),
    weights: mask.map((row, t) => softmax(get("scores")[t], row)),
    painted: mask.flat().filter((x, i) => x !== byRules[Math.floor(i / S)][i % S]).length,
    taken: mask.some((row, t) => row.some((x, s) => !x && byRules[t][s])), // paint that hides
    rules: conditions(get).map(([text]) => text),
    empty: range(T).filter((t) => !mask[t].some(Boolean)),
    padding: range(S).map(isPadding(get)),
    early: mask.flatMap((row, t) => row.flatMap((x, s) => (x && s > t + first ? [[t, s]] : []))),
    padded: equals((t, s) => real[s]),
    causalPadded: equals((t, s) => real[s] && s <= t),
    isCausal: equals((t, s) => s <= t),
    isBottomRight: T !== S && equals((t, s) => s <= t + S - T),
  };
}

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** The cells on the way from one to another, so that a quick stroke leaves no gap. */
function stroke([i, j], [a, b]) {
  const steps = Math.max(Math.abs(a - i), Math.abs(b - j), 1);
  const between = (x, y, k) => Math.round(x + ((y - x) * k) / steps);
  return range(steps + 1).map((k) => [between(i, a, k), between(j, b, k)]);
}

export default widget("Mask painter", (ui) => {
  let now = null;
  ui.follow(() => {
    now = read(ui.get);
  });
  const place = () => [
    Math.min(ui.get("query"), now.shape[0] - 1), Math.min(ui.get("key"), now.shape[1] - 1),
  ];
  const word = (trait, i) => `“${ui.get(trait)[i]}”`;

  // The way back: the state before each act.
  const state = () => Object.fromEntries([...RULES, "mask"].map((trait) => [trait, ui.get(trait)]));
  const past = [];
  let act = null;
  /** Before an act. One that goes on, as along a slider, keeps its name and counts once. */
  function begin(name = {}) {
    if (name !== act) past.push(state());
    act = name;
  }
  function change(values) {
    begin();
    ui.setAll(values);
  }
  /** A finger scrolls again. */
  ui.reset = () => {
    finger = false;
    change(ui.first);
  };
  ui.root.addEventListener("change", () => {
    act = null; // the slider was let go
  });

  // Rules write all cells but the painted ones.
  const rules = {
    ...ui,
    set(trait, value) {
      begin(trait);
      const get = (name) => (name === trait ? value : ui.get(name));
      const [old, next] = [ruled(ui.get), ruled(get)];
      const mask = ui.get("mask").map((row, t) =>
        row.map((x, s) => (x === old[t][s] ? next[t][s] : x)));
      ui.setAll({ [trait]: value, mask });
    },
  };
  const [T, S] = [ui.get("query_tokens").length, ui.get("key_tokens").length];
  const off = (x) => (x ? `${x}` : "off");

  // The pencil: a press flips one cell, what it became is drawn while the pointer is down.
  let pencil = null;
  let finger = false; // a finger paints; else it scrolls, and chooses a cell
  const onlyChooses = (event) => event.pointerType === "touch" && !finger;
  function paint(cells, value) {
    const mask = ui.get("mask").map((row) => [...row]);
    for (const [t, s] of cells) mask[t][s] = value;
    const [query, key] = cells.at(-1);
    ui.setAll({ mask, query, key });
  }
  function pick(t, s, event) {
    if (event.button || onlyChooses(event)) return; // not the first button
    act = null; // each press is an act of its own
    begin("paint");
    const value = !ui.get("mask")[t][s];
    if (event.pointerId !== undefined) { // a key is pressed and no pointer ends it
      event.currentTarget.setPointerCapture(event.pointerId);
      pencil = value;
    }
    paint([[t, s]], value);
  }
  function move(t, s, event) {
    const [from, to] = [place(), [t, s]];
    if (event.type === "pointermove" && pencil !== null) paint(stroke(from, to), pencil);
    else if (event.type === "keydown" && event.shiftKey) {
      begin("paint");
      paint(stroke(from, to), ui.get("mask")[from[0]][from[1]]);
    } else {
      act = null;
      ui.setAll({ query: t, key: s });
    }
  }

  // On a phone the rows of the weights are those of the mask: one height, labels once.
  const narrow = () => ui.width(ui.root) < NARROW;
  const unlabelled = ui.get("query_tokens").map(() => "");
  const drawing = (its, cells, steer) => heatmap(its, {
    ...steer,
    most: () => (narrow() && ui.width(weights) ? Math.min(CELL, Math.floor((ui.width(weights) - BORDERS) / S)) : CELL),
    tall: () => TALL[narrow() ? "narrow" : "wide"],
    content: () => ({
      rows: ui.get("query_tokens"), columns: ui.get("key_tokens"),
      hidden: (t, s) => !now.mask[t][s], cursor: place(), ...cells(),
    }),
  });
  const map = drawing(ui, () => ({
    value: () => 0.75,
    text: () => "●",
    least: 12, // one sign has room where a number has none
    tinted: (s) => now.padding[s],
    outlined: (t, s) => now.mask[t][s] !== now.byRules[t][s],
    label: "mask: arrow keys move, Space paints a cell, Shift and an arrow key paint on",
  }), { move, pick });
  map.classList.add("mha-paint");
  map.addEventListener("lostpointercapture", () => {
    pencil = null;
  });
  const weights = drawing(ui.later(), () => ({
    rows: narrow() ? unlabelled : ui.get("query_tokens"),
    value: (t, s) => now.weights[t][s],
    text: (t, s) => fixed(now.weights[t][s]),
    label: "weights: arrow keys move from cell to cell",
  }), { move: (t, s) => ui.setAll({ query: t, key: s }) });

  const line = readout();
  ui.follow(() => {
    const [t, s] = place();
    const visible = now.mask[t].filter(Boolean).length;
    const said = now.mask[t][s] ? `weight ${fixed(now.weights[t][s], 3)}` : "hidden, weight 0";
    const score = fixed(ui.get("scores")[t][s]);
    const sum = fixed(now.weights[t].reduce((a, b) => a + b, 0));
    say(line, `Query ${word("query_tokens", t)} → key ${word("key_tokens", s)}: score ${score}, ${said}. ` +
      `It sees ${visible} of ${plural(S, "key")}, sum ${sum}.`);
  });

  // What may be wrong with the mask.
  const rows = h("p");
  const future = h("p");
  const padded = h("p");
  ui.follow(() => {
    const form = FORMS[ui.get("framework")];
    rows.className = now.empty.length ? "mha-warning" : "";
    const names = now.empty.map((t) => word("query_tokens", t)).join(", ");
    say(rows, now.empty.length
      ? `Empty row: ${names} ${now.empty.length > 1 ? "see" : "sees"} no key. The weights are 0 here, where torch's softmax gives NaN${form.empty === "0" ? "." : `; in ${form.name} they are ${form.empty}.`}`
      : "Every query sees at least one key.");
    const who = range(T).filter((t) => now.mask[t].some((x, s) => x && now.padding[s]));
    padded.hidden = !who.length;
    padded.className = padded.hidden ? "" : "mha-warning";
    say(padded, padded.hidden ? "" : who.length === T ? "Every query sees padding."
      : who.length > NAMED ? `${who.length} of ${T} queries see padding.`
      : `${who.length > 1 ? "Queries" : "Query"} ${who.map((t) => word("query_tokens", t)).join(", ")} ${who.length > 1 ? "see" : "sees"} padding.`);
    const leaks = ui.get("causal") && now.early.length;
    future.className = leaks ? "mha-warning" : "";
    const [t, s] = now.early[0] ?? [];
    const first = now.early.length && `${word("query_tokens", t)} sees ${word("key_tokens", s)}, a later key ` +
      `(${plural(now.early.length, "such pair")}).`;
    say(future, !first ? "No query sees a later key."
      : leaks ? `Future leak: ${first} A model could copy its answer.`
        : `${first} Right in an encoder; in a model that writes, a leak.`);
  });

  // The same mask elsewhere.
  const facts = h("p", { class: "mha-form", "aria-live": "polite" });
  const meaning = h("p");
  const given = h("pre", { tabindex: "0", role: "group", "aria-label": "what the framework is given" });
  const code = h("pre", { tabindex: "0", role: "group", "aria-label": "code" });
  const copied = readout();
  const copy = button("Copy the code", async () => {
    const taken = await toClipboard(code.textContent);
    if (!taken) getSelection().selectAllChildren(code);
    say(copied, taken ? "Copied." : "The code is selected; copy it with Ctrl+C or ⌘C.");
  });
  const fails = (form) => form.fails?.(now) ?? "";
  ui.later().follow(() => {
    const form = FORMS[ui.get("framework")];
    need(form, `it knows no framework “${ui.get("framework")}”.`);
    const [[means], hides] = form.reads;
    const turned = hides === "True" ? ", the other way round than here" : "";
    const failure = fails(form);
    say(facts, failure || `${hides[0].toUpperCase()}${hides.slice(1)} hides a key${turned}. A query that sees no key gets the weights ${form.empty}.${form.more?.(now) ?? ""}`);
    say(meaning, failure ? "" : `${form.argument}: ${form.dtype} ${shapeText(now, form)}, ${means}`);
    say(given, failure ? "" : received(now, form));
    const text = failure ? "" : form.code(now);
    if (code.textContent !== text) say(copied, "");
    say(code, text);
    elsewhere.hidden = Boolean(failure);
  });
  const elsewhere = h("div", { class: "mha-forms" },
    h("div", {}, meaning, given), h("div", {}, code, copy, copied));

  const clear = button("Remove the paint", () => change({ mask: ruled(ui.get) }));
  const swap = button("Swap True and False", () =>
    change({ swapped: !ui.get("swapped"), mask: opposite(ui.get("mask")) }));
  const undo = button("Undo", () => {
    act = null;
    ui.setAll(past.pop());
  });
  const fingers = button("Paint with a finger", () => {
    finger = !finger;
    ui.redraw();
  });
  fingers.hidden = !matchMedia("(any-pointer: coarse)").matches;
  const [padding, swapped] = [
    h("span", {}, h("i", { class: "mha-tint" }), "padding"), h("span")];
  const turned = h("p", { class: "mha-turned" }, padding, swapped);
  /** Of a mask of the reader's own; at first, what its rows and columns are. */
  const told = () => {
    if (same(now.mask, ui.first.mask)) return "A row is a query, the word that looks; a column is a key, the word looked at.";
    const [hidden, empty] = [now.mask.flat().filter((x) => !x).length, now.empty.length];
    return `${hidden} of ${plural(T * S, "cell")} ${hidden === 1 ? "is" : "are"} hidden; ` +
      `${empty ? plural(empty, "row") : "no row"} ${empty > 1 ? "are" : "is"} empty.`;
  };
  ui.follow(() => {
    ui.root.classList.toggle("mha-swapped", now.swapped);
    clear.disabled = same(now.mask, now.byRules);
    undo.disabled = !past.length;
    press(fingers, finger);
    say(fingers, finger ? "Painting is on: press to stop" : "Paint with a finger");
    ui.lead(now.swapped ? "To mend it, press “Swap True and False”."
      : now.empty.length ? "An empty row: read the warning below."
      : now.taken ? "Now hide a whole row."
      : now.painted ? "Your paint lets a query see more than the rules do."
      : fingers.hidden ? "Click a cell in the left grid: weights follow."
        : finger ? "Tap or drag over cells." : "To paint, press “Paint with a finger”.");
    map.classList.toggle("mha-finger", finger);
    press(swap, now.swapped);
    padding.hidden = !now.mask.some((row) => row.some((x, s) => !x && now.padding[s])); // a colour of hidden cells
    say(swapped, now.swapped ? "Swapped: what rules allow is hidden." : "");
  });

  const settings = h("p", { class: "mha-paper" });
  ui.follow(() => {
    const { rules: made, painted, swapped, offset: first } = now;
    const at = first ? `, query 0 at key ${first}` : "";
    say(settings, `Rule: ${swapped ? "not (" : ""}${made.join(" and ") || "all may attend"}${swapped ? ")" : ""}${at}` +
      `${painted ? `; ${plural(painted, "cell")} painted` : ""}.`);
  });

  /** A state of the rules alone, with the mask that they make. */
  const only = (some) => {
    const all = {
      causal: false, align: "top-left", length: S, side: "right", window: 0, block: 0, swapped: false, ...some,
    };
    return { ...all, mask: ruled((trait) => (trait in all ? all[trait] : ui.get(trait))) };
  };
  const some = ui.first.length % S || Math.max(1, Math.floor(S / 2)); // real keys: as the lesson has, else half
  const TRIES = {
    "add padding": {
      state: only({ causal: true, length: some }), note: "The columns of the padding are hidden too. Every query still sees a key.",
    },
    "padding on the left": {
      state: only({ causal: true, length: some, side: "left" }),
      note: "Padding first: a query that sees padding alone has an empty row. Read the warning below." },
    "a window": {
      state: only({ causal: true, window: Math.min(3, S) }), note: "Each word sees itself and the two before it." },
    "read the wrong way round": {
      state: { ...only({ causal: true, swapped: true }), query: T - 1 }, holds: only({ causal: true, swapped: true }),
      note: "Causal, with True and False exchanged: what does the last query see?" },
  };
  if (T !== S) {
    TRIES["with a cache"] = {
      state: only({ causal: true, align: "bottom-right" }), note: "The queries are the last words: the last one sees every key." };
  }

  const alike = new Set(ui.get("scores").flat()).size === 1;
  const count = (label, trait, max, format) => slider(rules, { label, trait, range: { min: 0, max }, format });
  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    tryThis({ ...ui, setAll: change }, () => TRIES, "Try this", told),
    h("div", { class: "mha-painting" },
      h("div", { class: "mha-rules" },
        toggle(rules, { label: "causal", trait: "causal" }),
        T === S ? "" : choice(rules, {
          label: "query 0 stands at", trait: "align",
          options: [["top-left", "key 0 (top-left)"], ["bottom-right", `key ${S - T} (bottom-right)`]],
        }),
        count("real keys", "length", S, (x) => `${x} of ${S}`),
        choice(rules, { label: "padding on the", trait: "side", options: ["right", "left"].map((x) => [x, x]) }),
        swap, undo, clear),
      fingers,
      h("div", { class: "mha-mask" }, h("p", {}, "mask: ● may attend, ∕ hidden"), map),
      h("div", { class: "mha-weights" }, h("p", {}, alike ? "weights (all scores equal)" : "weights of each row"), weights),
      turned),
    settings, line,
    h("div", { class: "mha-checks", role: "status" }, rows, padded, future),
    more("More: other libraries, window, block, tables",
      controls(
        count("window", "window", Math.max(T, S), off), count("block", "block", Math.max(T, S), off),
        choice(ui, {
          label: "the same mask for", trait: "framework",
          options: Object.entries(FORMS).map(([key, { name }]) => [key, name]),
        })),
      facts, elsewhere,
      numbers(ui, "All forms side by side", () => ({
        caption: "One mask, every form",
        columns: ["for", "argument", "hides a key", "shape", "dtype", "weights of an empty row"],
        rows: Object.values(FORMS).map((form) =>
          [form.name, form.argument, form.reads[1], fails(form) ? "not this mask" : shapeText(now, form), form.dtype, form.empty]),
      })),
      numbers(ui, "Mask and weights as a table", () => ({
        caption: "weights, or hidden",
        columns: ["query \\ key", ...ui.get("key_tokens")],
        rows: now.mask.map((row, t) => [
          ui.get("query_tokens")[t], ...row.map((x, s) => (x ? fixed(now.weights[t][s], 3) : "hidden"))]),
      }))),
  );
}, {
  question: "Who may see whom?",
  lesson: [...RULES, "mask", "query", "key", "framework"],
});
