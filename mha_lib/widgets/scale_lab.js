// Why divide by √D? One row of scores and weights, undivided and divided; all rows over all D.
import { fixed, need, needArray, range } from "./arithmetic.js";
import {
  choice, controls, h, more, numbers, put, readout, say, slider, svg, tryThis, widget,
} from "./common.js";
import { bars } from "./scale_lab_bars.js";
import {
  dotProducts, headSizes, mean, measure, median, plain, raised, short, variance,
} from "./scale_lab_measures.js";

// `mark` stands at the curve of a divisor; a dash pattern tells the curves apart as well.
const DIVISORS = {
  none: { option: "1: no division", mark: "÷ 1", scores: "q·k", by: () => 1, dash: "6 4" },
  sqrt: { option: "√D", mark: "÷ √D", scores: "q·k / √D", by: Math.sqrt, dash: "none" },
  D: { option: "D", mark: "÷ D", scores: "q·k / D", by: (D) => D, dash: "2 3" },
  temperature: {
    option: "τ: your own number", mark: "÷ τ", scores: "q·k / τ", by: (D, tau) => tau, dash: "9 3 2 3",
  },
};
const LEADS = { // what to do next
  none: "Choose a divisor: it gets a side of its own, beside this one.",
  sqrt: "Move D: on which side does the largest weight stay about the same?",
  D: "Move D: does dividing by D keep the largest weight about the same?",
  temperature: "Move D: does one number keep the largest weight about the same?",
};
const FIXED = ["none", "sqrt", "D"];
const sideOf = (kind) => (kind === "none" ? "undivided" : "divided");
const AVERAGES = { mean, median };
const NEARLY_ALL = 0.99;
const FLOOR = 1e-12; // where a logarithmic axis ends

// --- the state --------------------------------------------------------------------------

function checkVectors(q, k) {
  const [, most] = needArray(q, "q", 2);
  const [S, entries] = needArray(k, "k", 2);
  need(most === entries, "each query must have as many entries as each key.");
  need(S > 1, "there must be at least two keys: one key always has the weight 1.");
}

function checkChoices(ui, sizes) {
  const among = (trait, all) => need(all.includes(ui.get(trait)), `${trait} must be one of ${all.join(", ")}.`);
  const index = (trait, n) => need(range(n).includes(ui.get(trait)), `${trait} must be one of 0 to ${n - 1}.`);
  among("D", sizes);
  among("divisor", Object.keys(DIVISORS));
  among("average", Object.keys(AVERAGES));
  index("query", ui.get("q").length);
  index("key", ui.get("k").length);
  need(ui.get("temperature") > 0 && Number.isFinite(ui.get("temperature")), "τ must be a positive number.");
}

export default widget("Scale lab", (ui) => {
  let sizes = [];
  let dots = [];
  let curves = {}; // per divisor what `measure` finds for each D
  let known = [];
  let tau = null;
  let reach = 0; // of the axis of scores: one for all D and both sides, or nothing could be compared
  ui.follow(() => {
    const given = ["q", "k"].map(ui.get);
    const fresh = given.some((x, i) => x !== known[i]);
    if (fresh) {
      checkVectors(...given); // every number: too long for every frame
      sizes = headSizes(given[0][0].length);
      dots = dotProducts(...given, sizes);
      const most = dots.flatMap(({ rows }) => rows.flat()).reduce((m, x) => Math.max(m, Math.abs(x)), 1);
      reach = most > 10 ? 10 * Math.ceil(most / 10) : Math.ceil(most);
      known = given;
      tau = null;
    }
    checkChoices(ui, sizes);
    if (fresh) curves = Object.fromEntries(FIXED.map((kind) => [kind, measured(kind)]));
    if (ui.get("divisor") === "temperature" && tau !== ui.get("temperature")) {
      tau = ui.get("temperature");
      curves.temperature = measured("temperature");
    }
  });
  const measured = (kind) =>
    dots.map((map, i) => measure(map, DIVISORS[kind].by(sizes[i], ui.get("temperature"))));
  const shown = () => [...FIXED, ...(ui.get("divisor") === "temperature" ? ["temperature"] : [])];
  const place = () => sizes.indexOf(ui.get("D"));
  const chosen = () => ui.get("divisor");
  ui.follow(() => ui.lead(LEADS[chosen()]));
  const one = (kind) => curves[kind][place()];
  const now = () => one(chosen());
  const average = (row) => AVERAGES[ui.get("average")](row);
  const formula = () => DIVISORS[chosen()].scores;
  const largest = (kind) => average(one(kind).largest);

  const content = (of, { log }) => () => ({
    of, log, curves, kinds: shown(), sizes, place: place(), limit: Math.log(known[1].length),
  });

  /** What one side shows of the query, and of all queries. */
  const told = (kind) => {
    const { weights, largest } = one(kind);
    const t = ui.get("query");
    const sure = largest.filter((w) => w >= NEARLY_ALL).length;
    const who = kind === "none" ? `Undivided: query ${t}` : "Divided: it";
    return `${who} gives key ${weights[t].indexOf(largest[t])} weight ${fixed(largest[t], 3)}; ` +
      `in ${sure} of ${largest.length} queries one key has ${NEARLY_ALL} or more.`;
  };
  const line = readout();
  ui.follow(() => {
    const sides = [...new Set(["none", chosen()])];
    say(line, sides.map(told).join(" "));
  });

  const both = (of) => `undivided ${of("none")}, divided ${of(chosen())}.`;
  const largests = () => `Largest weight: ${both((kind) => fixed(largest(kind), 3))}`;
  /** At another D, of the query now or another: the key with the largest undivided weight. */
  const largestKey = (D, query = ui.get("query")) => {
    const row = dots[sizes.indexOf(D)].rows[query];
    return row.indexOf(Math.max(...row));
  };
  const tries = tryThis(ui, () => Object.fromEntries([
    ["a small head", { D: sizes[Math.min(1, sizes.length - 1)], divisor: "sqrt" },
      largests],
    ["a large head", { D: sizes.at(-1), divisor: "sqrt" },
      () => `${largests()} Near 1, little gradient remains.`],
    ["too much", { D: sizes.at(-1), divisor: "D" },
      () => `No key is chosen: the largest weight is ${fixed(Math.max(...now().largest))}, an even share ${fixed(1 / known[1].length)}.`],
  ].map(([title, state, note]) => [title, { state: { ...state, key: largestKey(state.D) }, holds: state, note: note() }])));

  const tauSlider = slider(ui, {
    label: "τ", trait: "temperature", format: plain,
    values: () => range(4 * Math.ceil(Math.log2(sizes.at(-1))) + 1).map((i) => 2 ** (i / 4)),
  });
  ui.follow(() => {
    tauSlider.hidden = chosen() !== "temperature";
  });

  // A key is lit: the one with the largest weight, until the reader presses another.
  let held = null;
  const back = ui.reset;
  ui.reset = () => {
    held = null;
    back();
  };
  const followed = { ...ui, set: (trait, value) => {
    const { D, query } = { D: ui.get("D"), query: ui.get("query"), [trait]: value };
    ui.setAll({ [trait]: value, key: held === ui.get("key") ? held : largestKey(D, query) });
  } };

  const detail = h("div", { class: "mha-detail" });
  ui.follow(() => {
    const [t, s] = [ui.get("query"), ui.get("key")];
    const dot = fixed(dots[place()].rows[t][s]);
    const parts = [...new Set(["none", chosen()])].map((kind) => {
      const { scores, weights, divisor } = one(kind);
      const x = divisor === 1 ? "" : `x = ${dot} / ${plain(divisor)} = ${fixed(scores[t][s])}, `;
      return `${sideOf(kind)}: ${x}w = ${short(weights[t][s])}`;
    });
    say(detail, `key ${s}: q·k = ${dot}; ${parts.join("; ")}`);
  });
  const side = (kind, its) => {
    const title = h("p", { class: "mha-side" });
    const node = h("div", {}, title,
      meter(its, { name: () => sideOf(kind()), value: () => largest(kind()), even: () => 1 / known[1].length }),
      bars(its, {
        now: () => one(kind()), name: () => sideOf(kind()), scores: () => DIVISORS[kind()].scores, reach: () => reach,
        press: (key) => { held = key; },
      }));
    its.follow(() => say(title, `${sideOf(kind())}: ${DIVISORS[kind()].scores}`));
    return node;
  };
  const meaning = h("p", { class: "mha-caption mha-meaning" });
  ui.follow(() => say(meaning, `First bar: the largest weight, ${ui.get("average")} of ${known[0].length} queries; its mark: an even share. Below: query ${ui.get("query")}.`));
  const spreads = h("p", { class: "mha-caption mha-spreads" });
  ui.follow(() => {
    const spread = (kind) => short(Math.sqrt(one(kind).variance));
    const found = chosen() === "none" ? `${spread("none")}.` : both(spread);
    say(spreads, `Spread of the scores, where √D is ${short(Math.sqrt(ui.get("D")))}: ${found}`);
  });
  const [first, second] = [ui.later(), ui.later()];
  const right = side(chosen, second);
  second.follow(() => {
    right.hidden = chosen() === "none";
  });

  ui.root.append(
    ui.get("note") ? h("p", { class: "mha-warning" }, ui.get("note")) : "",
    tries,
    controls(
      slider(followed, { label: "D, the size of a head", trait: "D", values: () => sizes }),
      choice(ui, {
        label: "divide by", trait: "divisor",
        options: Object.entries(DIVISORS).map(([kind, { option }]) => [kind, option]),
      }),
      tauSlider),
    meaning, h("div", { class: "mha-sides" }, side(() => "none", first), right),
    line, spreads, detail,
    more("More: other queries, all D, tables",
      controls(
        slider(followed, { label: "query", trait: "query", range: () => ({ min: 0, max: known[0].length - 1 }) }),
        choice(ui, {
          label: "average over the queries", trait: "average",
          options: Object.keys(AVERAGES).map((name) => [name, name]),
        })),
      measures(ui, { now, average }),
      h("div", { class: "mha-charts" },
        chart(ui, () => "variance of all scores", content((x) => x.variance, { log: true })),
        chart(ui, () => `${ui.get("average")} entropy in nats`, content((x) => average(x.nats), { log: false })),
        chart(ui, () => `${ui.get("average")} remaining gradient`, content((x) => average(x.norm), { log: true }))),
      numbers(ui, "Scores and weights as a table", () => {
        const { scores, weights, divisor } = now();
        const t = ui.get("query");
        return {
          caption: `query ${t}, D = ${ui.get("D")}, x = ${formula()}`,
          columns: ["key", "q·k", `x = q·k / ${plain(divisor)}`, "weight w"],
          rows: scores[t].map((x, s) => [s, fixed(dots[place()].rows[t][s], 3), fixed(x, 3), short(weights[t][s])]),
        };
      }),
      numbers(ui, "The curves as a table", () => ({
        caption: `entropy and norm: ${ui.get("average")} over ${known[0].length} queries`,
        columns: ["D", ...shown().flatMap((kind) =>
          ["variance", "entropy", "norm"].map((what) => `${what}, ${DIVISORS[kind].scores}`))],
        rows: sizes.map((D, i) => [D, ...shown().flatMap((kind) => {
          const one = curves[kind][i];
          return [one.variance, average(one.nats), average(one.norm)].map(short);
        })]),
      }))),
  );
}, {
  question: "Why divide by √D?",
  lesson: ["D", "divisor", "temperature", "query", "key", "average"],
});

/** A share of all weight as a bar, with a mark where all keys would have as much. */
function meter(ui, { name, value, even }) {
  const fill = h("i");
  const mark = h("s");
  const number = h("b", { "aria-hidden": "true" });
  const node = h("div", { class: "mha-meter", role: "meter", "aria-valuemin": 0, "aria-valuemax": 1 },
    h("span", { class: "mha-track" }, fill, mark));
  const percent = (x) => `${(100 * x).toFixed(1)}%`;
  ui.follow(() => {
    put(fill, { style: `width: ${percent(value())}` });
    put(mark, { style: `left: ${percent(even())}` });
    say(number, fixed(value(), 3));
    put(node, { "aria-label": `largest weight, ${name()}`, "aria-valuenow": value(), "aria-valuetext": fixed(value(), 3) });
  });
  return h("div", { class: "mha-largest" }, node, number);
}

// --- the measures of this query and of all -------------------------------------------------

function measures(ui, { now, average }) {
  const S = () => ui.get("k").length;
  const theory = () => ui.get("D") / now().divisor ** 2;
  const rows = [
    { title: () => "largest weight", of: (x) => x.largest },
    { title: () => `entropy H in nats (at most ln ${S()} = ${short(Math.log(S()))})`, of: (x) => x.nats },
    { title: () => "entropy in bits, H / ln 2", of: (x) => x.nats.map((nats) => nats / Math.LN2) },
    { title: () => `effective number of keys, exp H (of ${S()})`, of: (x) => x.nats.map(Math.exp) },
    { title: () => "norm of the Jacobian ∂w/∂x", of: (x) => x.norm },
    {
      title: () => `norm of ∂w/∂(q·k): that divided by ${plain(now().divisor)}`,
      of: (x) => x.norm.map((norm) => norm / x.divisor),
    },
  ].map(({ title, of }) => ({ title, cells: () => [of(now())[ui.get("query")], average(of(now()))].map(short) }));
  rows.unshift({
    title: () => `variance of the scores (theory: ${short(theory())})`,
    cells: () => [short(variance(now().scores[ui.get("query")])), `${short(now().variance)} all together`],
  });
  const heads = [h("th", { scope: "col" }), h("th", { scope: "col" })];
  const body = rows.map(() => h("tr", {}, h("th", { scope: "row" }), h("td"), h("td")));
  ui.follow(() => {
    say(heads[0], `query ${ui.get("query")}`);
    say(heads[1], `${ui.get("q").length} queries, ${ui.get("average")}`);
    rows.forEach(({ title, cells }, i) =>
      [title(), ...cells()].forEach((text, j) => say(body[i].children[j], text)));
  });
  return h("table", { class: "mha-measures" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "measure"), heads)),
    h("tbody", {}, body));
}

// --- one measure over D ---------------------------------------------------------------------

const CHART = { height: 150, left: 36, right: 38, top: 10, bottom: 34 };

/**
 * A curve for each divisor. `content()` gives {curves, kinds, sizes, place, of, log, limit}:
 * `of` takes a point from what `measure` found, `place` is the head size now.
 */
function chart(ui, what, content) {
  const caption = h("figcaption");
  const drawing = svg("g");
  const ring = svg("circle", { class: "mha-ring", r: 5 });
  const cursor = svg("line", { class: "mha-cursor", y1: CHART.top, y2: CHART.height - CHART.bottom });
  const picture = svg("svg", { height: CHART.height, role: "img" }, cursor, drawing, ring);
  const frame = h("figure", {}, caption, picture);
  let drawn = "";
  ui.follow(() => {
    if (frame.closest("details:not([open])")) return; // unfolded, all is drawn again
    const { curves, kinds, sizes, place, of, log, limit } = content();
    const { left, right, top, bottom, height } = CHART;
    const width = Math.max(160, ui.width(frame));
    const points = kinds.map((kind) => curves[kind].map(of));
    const ticks = log ? decades(points.flat()) : range(Math.floor(limit) + 1);
    const [low, high] = log ? [ticks[0], ticks.at(-1)] : [0, 1.08 * limit];
    const level = (value) => (log ? Math.log10(Math.max(value, FLOOR)) : value);
    const y = (u) => top + (height - top - bottom) * (high - u) / (high - low);
    const x = (i) => left + (width - left - right) * (sizes.length > 1 ? i / (sizes.length - 1) : 0.5);
    const kind = ui.get("divisor");

    const state = JSON.stringify([width, kind, kinds, sizes, points, limit]);
    if (state !== drawn) {
      drawn = state;
      picture.setAttribute("width", width);
      const ends = apart(points.map((row) => y(level(row.at(-1)))), 12);
      const every = Math.ceil(26 * sizes.length / (width - left - right));
      drawing.replaceChildren(
        ...ticks.flatMap((tick) => [
          svg("line", { class: "mha-axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
          svg("text", { x: left - 5, y: y(tick), dy: "0.35em", "text-anchor": "end" }, log ? power(tick) : `${tick}`),
        ]),
        ...sizes.flatMap((D, i) => (i % every ? [] : [
          svg("text", { x: x(i), y: height - bottom + 14, "text-anchor": "middle" }, `${D}`)])),
        svg("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, "head size D"),
        ...kinds.flatMap((one, n) => [
          svg("polyline", {
            class: one === kind ? "mha-curve mha-lit" : "mha-curve",
            points: points[n].map((value, i) => `${x(i).toFixed(1)},${y(level(value)).toFixed(1)}`).join(" "),
            "stroke-dasharray": DIVISORS[one].dash,
          }),
          svg("text", { x: width - right + 6, y: ends[n], dy: "0.35em", class: one === kind ? "mha-lit" : "" }, DIVISORS[one].mark),
        ]),
      );
    }
    const value = points[kinds.indexOf(kind)][place];
    put(ring, { cx: x(place), cy: y(level(value)) });
    put(cursor, { x1: x(place), x2: x(place) });
    say(caption, `${what()}: ${short(value)}`);
    put(picture, { "aria-label": `${what()} over D, a curve for each divisor: ${kinds.map((one) => DIVISORS[one].mark).join(", ")}. ` +
      `At D = ${sizes[place]}, ${DIVISORS[kind].mark}: ${short(value)}. A table below has all numbers.` });
  });
  return frame;
}

/** Whole powers of ten around all values, at most five steps apart from each other. */
function decades(values) {
  const powers = values.map((value) => Math.log10(Math.max(value, FLOOR)));
  const low = Math.floor(Math.min(...powers));
  const high = Math.max(low + 1, Math.ceil(Math.max(...powers)));
  const step = Math.ceil((high - low) / 4);
  return range(Math.ceil((high - low) / step) + 1).map((i) => low + i * step);
}

const power = (n) => (n < -2 || n > 3 ? `10${raised(n)}` : `${10 ** n}`.slice(0, 5));

/** Places of labels, pushed down until none covers another. */
function apart(places, gap) {
  const order = range(places.length).sort((a, b) => places[a] - places[b]);
  const found = [...places];
  order.forEach((n, i) => {
    if (i) found[n] = Math.max(found[n], found[order[i - 1]] + gap);
  });
  return found;
}
