// A language model that computes in the page: type, switch heads off, let it write on.
import { fixed, need, range } from "./arithmetic.js";
import { palette, shade } from "./canvas.js";
import { button, h, keepRoom, numbers, press, put, readout, say, widget } from "./common.js";
import { idle } from "./frames.js";
import { heatmap } from "./heatmap.js";
import { arcs } from "./model_lab_arcs.js";
import { labelOf, makeLab, QUOTE, readable, spoken, STRANGE } from "./model_lab_views.js";
import { writing } from "./model_lab_writing.js";
import { loadPacked } from "./packed_model.js";

const MOST_LETTERS = 2000;
const TALL = 188; // pixels that the map may take: with its buttons as high as the heads beside it
const WINDOW = 8; // tokens in the large map: their cells and words are read
const PART = 6; // milliseconds of a frame for reading, before anything is shown
const SMALL = 64; // pixels of a head's own map
const STEP = 4; // tokens from one window to the next

const begin = { temperature: 1, query: -1, key: -1, start: -1, off: [], compared: [] };
const TRIES = {
  "the bracket": {
    note: "Layer 0, head 3 looks back at “[”. Without it, “]” falls from 79 % to 12 %.",
    state: { ...begin, text: "foo[bar, baz", off: [3], layer: 0, head: 3 },
  },
  "looks, no help": {
    note: "Layer 1, head 0 looks at the quote. Without it, closing is more likely than before.",
    state: { ...begin, text: 'The "name', off: [4], layer: 1, head: 0, key: 1 },
  },
  "looks away, matters": {
    note: "Layer 0, head 2 hardly looks at the quote. Without it, closing is less than half as likely.",
    state: { ...begin, text: 'The "name', off: [2], layer: 0, head: 2, key: 1 },
  },
};
const OF_WRITING = { // under the fold, as the temperature is
  "only the likeliest": {
    note: "At temperature 0 it gets stuck: “x x x”. Choose 0.8, then write on.",
    state: { ...begin, text: ">>> x = [1, 2, 3", layer: 0, head: 3, temperature: 0 },
  },
};

const EXAMPLES = Object.values({ ...TRIES, ...OF_WRITING });

const percent = (p) => (p > 0 && p < 0.005 ? "< 1 %" : `${Math.round(100 * p)} %`);

function check(ui, { layers, heads }) {
  const whole = (trait, least, most) => {
    const x = ui.get(trait);
    need(Number.isInteger(x) && x >= least && x < most, `${trait} must be a whole number from ${least} to ${most - 1}.`);
  };
  need(typeof ui.get("text") === "string" && ui.get("text").length <= MOST_LETTERS,
    `the text must have at most ${MOST_LETTERS} characters.`);
  whole("layer", 0, layers);
  whole("head", 0, heads);
  whole("seed", 0, 2 ** 31);
  for (const trait of ["query", "key", "start"]) whole(trait, -1, MOST_LETTERS);
  for (const trait of ["off", "compared"]) {
    const list = ui.get(trait);
    need(Array.isArray(list) && list.every((x) => Number.isInteger(x) && x >= 0 && x < layers * heads),
      `${trait} must list heads, layer · ${heads} + head.`);
  }
  const t = ui.get("temperature");
  need(Number.isFinite(t) && t >= 0 && t <= 2, "the temperature must be from 0 to 2.");
}

export default widget("Model lab", (ui) => {
  const sizes = ui.get("sizes");
  const name = (i) => `L${Math.floor(i / sizes.heads)} H${i % sizes.heads}`;
  const inWords = (i) => `layer ${Math.floor(i / sizes.heads)}, head ${i % sizes.heads}`;
  const chosen = () => ui.get("layer") * sizes.heads + ui.get("head");
  const isOff = (i) => ui.get("off").includes(i);
  const asked = () => Object.fromEntries(["text", "off", "compared", "temperature"].map((x) => [x, ui.get(x)]));

  // --- the model: the first view is stored, all others wait for its numbers -------------
  let lab = null;
  let asking = null;
  let trouble = "";
  const load = () => {
    const { packed, packed_name: called, packed_at: address } = Object.fromEntries(
      ["packed", "packed_name", "packed_at"].map((trait) => [trait, ui.get(trait)]));
    ui.busy(true);
    asking ??= (packed ? Promise.resolve(packed) : loadPacked(called, address))
      .then(async (text) => { // in short parts: a press meanwhile is answered
        const made = makeLab(text);
        let since = -Infinity;
        for (const read of made.readings(asked())) {
          if (performance.now() > since + PART) {
            await idle();
            since = performance.now();
          }
          read();
        }
        await idle();
        made.view(asked()); // the next view then finds its code at hand
        lab = made;
        trouble = "";
      }).catch((error) => {
        trouble = `The model cannot compute: ${error.message} Change something to try again.`;
      })
      .then(() => {
        asking = null;
        ui.busy(false);
        ui.redraw();
      });
    return asking;
  };
  /** Do something with the model, once it is there. */
  const withModel = (action) => (lab ? action() : load().then(() => lab && action()));

  if (ui.get("packed")) ui.ahead(load); // else it is a file, loaded when it is asked for

  let now = ui.get("first"); // what is shown
  let waiting = false; // what is shown is of another state
  let known = null; // the traits of which `now` is the view, whether computed or not
  ui.follow(() => {
    check(ui, sizes);
    const wanted = JSON.stringify(asked());
    const first = ui.get("first");
    const isFirst = Object.entries(asked()).every(([trait, x]) => // a notebook sorts their names
      JSON.stringify(x) === JSON.stringify(first.asked[trait]));
    if (isFirst) [now, waiting] = [first, false];
    else if (lab) [now, waiting] = [lab.view(asked()) ?? now, false]; // of no text the last one stays
    else {
      waiting = true;
      if (known !== wanted) load();
    }
    known = wanted;
  });

  /** [first, behind the last] of the tokens in the large map; what is outlined is among them. */
  const shown = () => {
    const count = now.words.length;
    const most = Math.max(0, count - WINDOW);
    const [start, i] = [ui.get("start"), Math.min(ui.get("query"), count - 1)];
    let from = start < 0 ? most : Math.min(start, most);
    if (i >= 0) from = Math.max(Math.min(from, i), i - WINDOW + 1);
    return [from, Math.min(count, from + WINDOW)];
  };
  const place = () => {
    const [from, end] = shown();
    const i = ui.get("query") < 0 ? end - 1 : Math.min(ui.get("query"), end - 1);
    const row = now.maps[chosen()][i].slice(from);
    const j = ui.get("key") < from ? from + row.indexOf(Math.max(...row)) : Math.min(ui.get("key"), end - 1);
    return [i, j];
  };
  const change = (traits) => ui.setAll({ query: -1, key: -1, ...("text" in traits ? { compared: [], start: -1 } : {}), ...traits });

  // --- the way back: the state before each act --------------------------------------
  const KEPT = ["text", "off", "compared", "temperature", "seed", "layer", "head"];
  const kept = () => Object.fromEntries(KEPT.map((trait) => [trait, ui.get(trait)]));
  const past = [];
  let act = null;
  /** Before an act. One that goes on, as typing does, keeps its name and counts once. */
  function begins(name = {}) {
    if (name !== act && JSON.stringify(past.at(-1)) !== JSON.stringify(kept())) past.push(kept());
    act = name;
  }
  const undo = button("undo", () => {
    stop();
    act = null;
    change(past.pop());
  });
  ui.follow(() => {
    undo.disabled = !past.length;
  });
  ui.reset = () => {
    stop();
    begins();
    mine = [];
    ui.setAll(ui.first);
  };

  // --- the text ---------------------------------------------------------------------
  const area = h("textarea", {
    id: `${ui.id}-text`, rows: 2, maxlength: MOST_LETTERS, spellcheck: "false",
    oninput: () => {
      stop();
      begins("text");
      const own = tried() < 0 ? {} : { temperature: begin.temperature }; // that of the example goes with it
      change({ text: area.value, ...own });
    },
  });
  ui.follow(() => {
    if (area.value !== ui.get("text")) area.value = ui.get("text");
  });
  const tried = () => EXAMPLES.findIndex(({ state }) =>
    ["text", "off", "temperature", "layer", "head"].every((x) => `${state[x]}` === `${ui.get(x)}`));
  const toTry = (examples) => Object.entries(examples).map(([title, { state }]) => button(title, () => {
    stop();
    begins();
    mine = [];
    ui.setAll(state);
  }));
  const [ofHeads, ofWriting] = [TRIES, OF_WRITING].map(toTry);
  const tries = h("div", { class: "mha-tries", role: "group", "aria-label": "try this" },
    h("span", { class: "mha-caption" }, "Try this:"), ofHeads);
  const [note, noteOfWriting] = range(2).map(() => h("p", { class: "mha-note" }));
  const room = h("div", { class: "mha-room" }, note);
  keepRoom(room, Object.values(TRIES).map((one) => one.note));
  /** What the heads that are off, or were, have changed most, in a sentence. */
  const told = () => {
    if (!now.most || !ui.get("text")) return ""; // of no text the last view stays
    const [token, before, after] = now.most;
    return ui.get("off").length
      ? `With ${ui.get("off").map(name).join(", ")} off, ${spoken(token)} goes from ${percent(before)} to ${percent(after)}.`
      : `With every head on, ${spoken(token)} is back at ${percent(before)}.`;
  };
  let added = {}; // the token that the reader has pressed last, and of which state
  /** What was written, and what is likeliest after it. */
  const toldOfAdded = () => {
    const [token, , p] = now.next.reduce((most, one) => (one[2] > most[2] ? one : most));
    const who = ui.get("off").length ? `, ${which()},` : "";
    return `Added ${spoken(added.token)}. Likeliest now${who} is ${spoken(token)}, ${percent(p)}.`;
  };
  ui.follow(() => {
    const text = EXAMPLES[tried()]?.note;
    const folded = tried() >= ofHeads.length;
    [...ofHeads, ...ofWriting].forEach((one, i) => press(one, i === tried()));
    say(note, folded ? "" : text ?? (added.to === JSON.stringify(asked()) && !waiting ? toldOfAdded() : told()));
    say(noteOfWriting, folded ? text : "");
    if (folded && !wasFolded) fold.open = true;
    wasFolded = folded;
  });
  let wasFolded = false; // the state before was one of what lies under the fold

  // --- all heads, small; one of them large --------------------------------------------
  const canvases = range(sizes.layers * sizes.heads).map(() => h("canvas", { "aria-hidden": "true", width: SMALL, height: SMALL }));
  const small = h("div", { class: "mha-grid", role: "group", "aria-label": "heads, a layer in each row" },
    canvases.map((canvas, i) => {
      const one = button("", () => change({ layer: Math.floor(i / sizes.heads), head: i % sizes.heads }));
      one.append(canvas, h("span", {}, name(i)));
      return one;
    }));
  const chances = ui.later(); // drawn before the maps
  let drawn = null;
  ui.later().draw(() => {
    const colours = palette(ui.root);
    if (now && (drawn?.now !== now || drawn.colours !== colours)) {
      canvases.forEach((canvas, i) => paint(canvas, now.maps[i], colours));
      drawn = { now, colours };
    }
  });
  ui.follow(() => {
    [...small.children].forEach((one, i) => {
      press(one, i === chosen());
      put(one, { title: inWords(i), "aria-label": `${name(i)}: ${inWords(i)}${isOff(i) ? ", switched off" : ""}` });
      one.classList.toggle("mha-off", isOff(i));
    });
  });
  let mine = []; // what the reader has turned off himself
  const flip = button("", () => {
    begins();
    mine = isOff(chosen()) ? mine.filter((i) => i !== chosen()) : [...mine, chosen()];
    const off = isOff(chosen()) ? ui.get("off").filter((i) => i !== chosen()) : [...ui.get("off"), chosen()];
    switchOff(off.sort((a, b) => a - b));
  });
  const allOn = button("all on", () => {
    begins();
    switchOff([]);
  });
  /** When all are on again, the sentence says what the heads that were off had changed. */
  const switchOff = (off) => ui.setAll({ off, compared: off.length ? [] : ui.get("off") });
  ui.follow(() => {
    const what = `turn ${name(chosen())} ${isOff(chosen()) ? "on" : "off"}`;
    say(flip, what);
    put(flip, { title: inWords(chosen()), "aria-label": `${what}: ${inWords(chosen())}` });
    allOn.disabled = !ui.get("off").length;
  });

  ui.follow(() => {
    const [i, who] = [chosen(), name(chosen())];
    flip.classList.toggle("mha-invite", Boolean(ui.get("text"))); // the lead speaks of it
    if (!ui.get("text")) ui.lead("Type a text.");
    else if (isOff(i)) ui.lead(mine.includes(i) ? "Now try another head." : `Head ${who} is off: turn it on.`);
    else ui.lead(ui.get("compared").includes(i) ? "Now press another head, and turn it off."
      : `Now press “turn ${who} off”.`);
  });

  const labels = new WeakMap(); // the same list for the same words, or the map is drawn anew
  const wordsOf = (view) => {
    if (!labels.has(view)) labels.set(view, view.words.map(labelOf));
    return labels.get(view);
  };
  let inside = null; // the words in the window
  const wordsShown = () => {
    const [from, end] = shown();
    if (inside?.now !== now || inside.from !== from) inside = { now, from, words: wordsOf(now).slice(from, end).map(shortened) };
    return inside.words;
  };
  const picture = ui.later();
  picture.follow(() => { [large.hidden, oneWord.hidden] = [ui.get("arcs"), !ui.get("arcs")]; }); // before it is drawn
  const large = heatmap(picture, {
    most: () => 24,
    tall: () => TALL,
    move: (i, j) => ui.setAll({ query: shown()[0] + i, key: shown()[0] + Math.min(i, j) }),
    content() {
      const [map, [from], words] = [now.maps[chosen()], shown(), wordsShown()];
      const [i, j] = place().map((x) => x - from);
      return {
        rows: words,
        columns: words,
        value: (a, b) => map[from + a][from + b] ?? 0,
        text: (a, b) => fixed(map[from + a][from + b]),
        hidden: (a, b) => b > a,
        of: [map],
        cursor: [i, j],
        row: i,
        label: `weights of ${inWords(chosen())}: arrow keys move from cell to cell`,
      };
    },
  });
  const oneWord = arcs(picture, {
    move: (row) => ui.setAll({ query: shown()[0] + row, key: -1 }),
    content() {
      const [[from], [i]] = [shown(), place()];
      const weights = now.maps[chosen()][i].slice(from);
      const rest = 1 - weights.reduce((sum, x) => sum + x, 0);
      return {
        words: wordsOf(now).slice(...shown()), row: i - from, weights, earlier: now.read > now.words.length || from ? Math.max(0, rest) : 0,
        label: `where ${spoken(now.words[i])} looks, of ${inWords(chosen())}: arrow keys go from word to word`,
      };
    },
  });
  const [asMap, asArcs] = [["map", false], ["one word", true]].map(([label, value]) =>
    button(label, () => ui.set("arcs", value)));
  const [sooner, later] = [["◂", -STEP, "earlier tokens"], ["▸", STEP, "later tokens"]].map(([label, by, title]) => {
    const one = button(label, () => ui.setAll({
      start: Math.max(0, Math.min(now.words.length - WINDOW, shown()[0] + by)), query: -1, key: -1 }));
    put(one, { "aria-label": title, title });
    return one;
  });
  ui.follow(() => {
    press(asMap, !ui.get("arcs"));
    press(asArcs, ui.get("arcs"));
    const [from, end] = shown();
    sooner.hidden = later.hidden = now.words.length <= WINDOW;
    put(sooner, { "aria-disabled": from === 0 }); // not disabled: they keep the focus
    put(later, { "aria-disabled": end === now.words.length });
  });
  const whose = h("div", { class: "mha-caption" });
  picture.follow(() => say(whose, `map of ${name(chosen())}, ${isOff(chosen()) ? "off" : "on"}`));
  const line = readout();
  const panels = h("div", { class: "mha-panels" });
  picture.follow(() => { // with the map of which it speaks
    const [i, j] = place();
    const [query, key] = [i, j].map((k) => spoken(now.words[k]));
    const who = inWords(chosen()).replace("l", "L");
    const weight = `${who}: query ${query} looks at key ${key} with weight ${fixed(now.maps[chosen()][i][j])}.`;
    const hint = waiting && !trouble ? "Loading the model … " : trouble && waiting ? `${trouble} ` : "";
    const [from, end] = shown().map((x) => x + now.read - now.words.length);
    const tokens = now.of > now.read ? ` Only the last ${now.read} of ${now.of} tokens are read.`
      : now.of > WINDOW && !hint ? ` Room for ${WINDOW}: tokens ${from + 1}–${end} of ${now.of}.` : "";
    const strange = wordsOf(now).slice(...shown()).includes(STRANGE) ? ` ${STRANGE} is a sign that the model does not know.` : "";
    const empty = !ui.get("text");
    say(line, empty ? "Type something: the model says what comes next." : `${hint}${weight}${tokens}${strange}`);
    for (const part of [panels, both]) {
      part.classList.toggle("mha-past", empty);
      part.inert = empty;
    }
  });

  // --- what comes next ------------------------------------------------------------------
  const next = h("ol", { class: "mha-next", "aria-label": "what comes next" });
  const full = () => Boolean(lab) && now.of >= lab.context;
  const legend = h("div", { class: "mha-caption mha-legend" });
  const which = () => {
    const off = ui.get("off");
    return `without ${off.length > 1 ? `${off.length} heads` : name(off[0])}`;
  };
  const silent = () => {
    const off = ui.get("off");
    const still = isOff(chosen()) ? "" : "still "; // the map is of another head
    return off.length > 3 ? `; ${off.length} heads are ${still}silent`
      : off.length ? `; ${still}silent: ${off.map(name).join(", ")}` : "";
  };
  const inOneLine = (...parts) => h("span", { class: "mha-whole-line" }, ...parts);
  chances.follow(() => {
    const some = ui.get("off").length > 0;
    const rows = now.next;
    while (next.children.length > rows.length) next.lastChild.remove();
    while (next.children.length < rows.length) {
      const at = next.children.length;
      next.append(h("li", {},
        button("", () => withModel(() => appendToken(now.next[at][0]))),
        h("span", { class: "mha-bars", "aria-hidden": "true" }, h("i"), h("i")), h("span", { class: "mha-value" })));
    }
    rows.forEach(([token, before, after], i) => {
      const [one, bars, value] = next.children[i].children;
      say(one, readable(token));
      put(one, { "aria-label": `append ${spoken(token)}` });
      one.disabled = full();
      [before, some ? after : 0].forEach((p, k) => put(bars.children[k], { style: `width: ${(100 * p).toFixed(1)}%` }));
      say(value, some ? `${percent(before)} → ${percent(after)}` : percent(before));
    });
    legend.replaceChildren(
      h("div", {}, `What comes next${silent()}${ui.get("temperature") === 0 ? " (temperature 0)" : ""}`),
      h("div", {}, inOneLine(h("i", { class: "mha-whole" }), "whole model"),
        ...(some ? [", ", inOneLine(h("i"), which())] : [])),
      h("div", {}, "press a token to add it"));
  });
  function appendToken(token) {
    const text = lab.append(ui.get("text"), token);
    if (text === null) return;
    begins();
    change({ text });
    added = { token, to: JSON.stringify(asked()) };
  }

  const { fold, both, stop } = writing(ui, {
    area, asked, begins, change, full, which, withModel, lab: () => lab, view: () => now,
    examples: ofWriting, note: noteOfWriting,
  });
  panels.append(
    h("div", { class: "mha-all" }, small, h("div", { class: "mha-switch" }, flip, allOn)),
    h("div", { class: "mha-one" }, whose, large, oneWord,
      h("div", { class: "mha-views", role: "group", "aria-label": "how weights are shown" }, asMap, asArcs, sooner, later)),
    h("div", { class: "mha-chances" }, legend, next));
  ui.root.append(
    tries, room,
    h("div", { class: "mha-typed" }, h("span", { class: "mha-side" }, h("label", { for: area.id }, "text"), undo), area),
    panels, line,
    h("div", { class: "mha-last" }, fold, numbers(ui, "The map as a table", () => ({
      caption: `weights of ${inWords(chosen())}`,
      columns: ["query \\ key", ...wordsOf(now)],
      rows: now.maps[chosen()].map((row, i) => [
        wordsOf(now)[i], ...now.words.map((_, j) => (j > i ? "hidden" : fixed(row[j], 3)))]),
    }))));
}, {
  question: "Which head knows what comes next?",
  lesson: ["text", "off", "compared", "layer", "head", "query", "key", "start", "arcs", "temperature", "seed"],
});

/** A word at a row of the map: what is longer takes the cells' room. */
const shortened = (word) => (word.length > 5 && !word.endsWith(QUOTE) ? `${word.slice(0, 4)}…` : word);

/** A causal map as one picture, always as large: another size would be laid out anew. */
function paint(canvas, map, colours) {
  const picture = new ImageData(SMALL, SMALL);
  const pixels = new Uint32Array(picture.data.buffer);
  const bytes = new Uint8Array(4); // of one colour
  const edge = (k) => Math.round(k * SMALL / map.length);
  map.forEach((row, i) => {
    const [from, to] = [edge(i), edge(i + 1)].map((y) => y * SMALL);
    for (let j = 0; j <= i; j++) {
      bytes.set([...shade(colours, row[j]), 255]);
      pixels.fill(new Uint32Array(bytes.buffer)[0], from + edge(j), from + edge(j + 1));
    }
    for (let line = from + SMALL; line < to; line += SMALL) pixels.copyWithin(line, from, from + SMALL);
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}
