// Where does each number of a tensor go? Shape and strides over one line of memory,
// step by step, in the right order and in the wrong one.
import { need, range } from "./arithmetic.js";
import {
  as, become, button, choice, controls, h, more, motionReduced, numbers, put, readout, say, toggle, tryThis, widget,
} from "./common.js";
import { run } from "./head_layout_steps.js";
import { along, drawing, tuple } from "./head_layout_drawing.js";
import { judge, labelOf, luck, origin, places, TOKENS, whereItLies } from "./head_layout_verdict.js";
import { halt, travel, whereabouts } from "./head_layout_travel.js";
import { contiguous } from "./tensor.js";

const MOST_CELLS = 48;
const [TIGHT, TIGHTER] = [12, 13]; // cells: tables share their heads; all is narrower
const MOST_STEPS = 8;

/** The steps as one line of Python: [text, the step that it belongs to], in order. */
function pieces(steps) {
  return steps.reduce((before, step, i) => {
    const [, name, text] = /^(\w+)(?:\((.*)\))?$/.exec(step);
    if (name === "cat") return [["torch.cat(", i], ...before, [`, dim=${text})`, i]];
    if (name === "split") return [...before, [`.split(${text.replace(/, */, ", dim=")})`, i]];
    return [...before, [text === undefined ? name : `.${name}(${text})`, i]];
  }, []);
}

function check(ui) {
  const texts = (steps) => Array.isArray(steps) && steps.every((step) => typeof step === "string");
  need(["steps", "beside"].every((trait) => texts(ui.get(trait))), "the steps must be a list of texts.");
  need(ui.get("steps").length, "it was given no steps.");
  need(Math.max(ui.get("steps").length, ui.get("beside").length) <= MOST_STEPS + 1,
    `it shows at most ${MOST_STEPS} steps.`);
  need(ui.get("recipes").every(([name, steps]) => typeof name === "string" && texts(steps)),
    "a recipe must be a name and its steps.");
  const element = ui.get("element");
  need(Number.isInteger(element) && element >= 0 && element < MOST_CELLS,
    `it has no number ${element} to follow.`);
  need(Number.isInteger(ui.get("at")) && ui.get("at") >= -1, `there is no step ${ui.get("at")} to show.`);
  need(COLOURS.some(([name]) => name === ui.get("colour")), "colour must be “head” or “token”.");
}

function sizesOf(ui) {
  const [B, T, H, D] = ["batch", "tokens", "num_heads", "head_dim"].map(ui.get);
  const sizes = { B, T, H, D, E: H * D };
  need(Object.values(sizes).every((n) => Number.isInteger(n) && n > 0),
    "B, T, H and D must be whole numbers of at least 1.");
  need(B <= TOKENS.length && T <= TOKENS[0].length,
    `it draws at most ${TOKENS.length} sequences of ${TOKENS[0].length} tokens.`);
  need(B * T * H * D <= MOST_CELLS,
    `B·T·E = ${B * T * H * D} cells are too many to follow; at most ${MOST_CELLS} are drawn.`);
  return sizes;
}

/**
 * One list of steps: its code, its verdict, and what it has made up to the step shown.
 * `look` sees where its numbers are, `tell` writes code and verdict, `draw` where they come to,
 * `go` lets them travel.
 */
function way(ui, trait, title, followed) {
  const code = h("code", {});
  const verdict = h("p", { class: "mha-outcome" });
  const picture = h("div");
  const body = h("div", {}, picture);
  const node = h("div", { class: "mha-way", role: "group", "aria-label": title },
    h("div", { class: "mha-head" }, h("p", {}, code), verdict), body);
  let [known, shown, at] = ["", null, 0]; // shown: the state, and what was there before
  let [from, same, anew, moved] = [null, false, false, false];
  const statement = () => JSON.stringify([ui.get(trait), sizesOf(ui), Math.min(stepOf(ui), ui.get(trait).length - 1)]);
  /** The state that is reached: an error ends the steps. */
  const reached = (states) => Math.min(stepOf(ui), ui.get(trait).length - 1, states.length - 1);
  const stepsOnce = () => Math.abs(reached(run(ui.get(trait), sizesOf(ui))) - at) === 1; // else nothing travels
  const look = () => {
    from = shown && ui.get(trait).length && stepsOnce() && !motionReduced() ? whereabouts(body) : new Map();
  };
  const tell = () => {
    const [steps, sizes] = [ui.get(trait), sizesOf(ui)];
    node.hidden = steps.length === 0;
    if (!steps.length) return;
    same = trait === "beside" && !parted(ui);
    const state = `${statement()} ${same}`;
    if (state !== known) {
      const states = run(steps, sizes);
      const here = reached(states);
      const ended = here === states.length - 1;
      const { mark, short } = here ? judge(states[here], sizes) : { mark: "…", short: "as it lies in memory" };
      become(code, as("code", {}, pieces(steps).map(([text, i]) => as("span", {
        class: i > here ? "mha-later" : i === here ? "mha-now" : "", ...(i === here && { "aria-current": "step" }),
      }, text))));
      become(verdict, as("p", { class: "mha-outcome" }, as("b", { "data-mark": mark }, mark),
        ` ${short}${same ? ", as above" : ""}.${ended && "✓…".includes(mark) ? luck(steps, sizes) : ""}`));
      anew = true;
      moved = Math.abs(here - at) === 1;
      [known, shown, at] = [state, [states[here], states[here - 1]?.value], here];
    }
  };
  const draw = () => {
    if (node.hidden) return;
    if (anew) halt(body);
    anew = false;
    put(body, { class: same ? "mha-same" : "" }); // in its place already, and it travels on
    become(picture, drawing(...shown, followed(), sizesOf(ui)));
  };
  const go = () => {
    if (moved) travel(body, from);
    moved = false;
  };
  return { node, look, tell, draw, go };
}

/** How two ways are drawn: beside another one, and with many numbers, closer together. */
function closeness(ui) {
  const two = ui.get("beside").length > 0;
  const { B, T, E } = sizesOf(ui);
  return { "data-two": two, "data-tight": two && B * T * E >= TIGHT, "data-narrow": two && B * T * E >= TIGHTER };
}

/** How high the ways are at each step of the lesson and in what there is to try: drawn unseen, measured. */
function tallestOf(ui, tries, ways) {
  const steps = range(Math.max(ui.first.steps.length, ui.first.beside.length)).map((at) => ({ at }));
  const high = [...steps, ...tries].map((state) => {
    const all = { ...ui.first, ...state };
    const other = { ...ui, get: (trait) => all[trait] ?? ui.get(trait) };
    const two = ["steps", "beside"].map((trait) => way(other, trait, trait, () => all.element));
    for (const { tell, draw } of two) [tell, draw].forEach((part) => part());
    const unseen = h("div", { class: "mha-ways mha-unseen", "aria-hidden": "true", style: `width: ${ways.clientWidth}px` },
      two.map(({ node }) => node));
    put(unseen, closeness(other));
    ways.after(unseen);
    const { offsetHeight } = unseen;
    unseen.remove();
    return offsetHeight;
  });
  return Math.max(...high);
}

/** The step that is shown; −1 stands for the last, however many there are. */
function stepOf(ui) {
  const last = lastStep(ui);
  return ui.get("at") < 0 ? last : Math.min(ui.get("at"), last);
}

/** What a list of steps has made at the step that is shown: an error ends the steps. */
function stateOf(ui, trait) {
  const states = run(ui.get(trait), sizesOf(ui));
  return states[Math.min(stepOf(ui), states.length - 1)];
}

/** Whether the second list of steps has made something else than the first. */
function parted(ui) {
  const [ours, theirs] = ["steps", "beside"].map((trait) => `${ui.get(trait).slice(0, stepOf(ui) + 1)}`);
  return ours !== theirs;
}

const lastStep = (ui) => Math.max(ui.get("steps").length, ui.get("beside").length) - 1;

/** The ways that are wrong at these sizes, or right only because an axis has size 1. */
function wrongOf(ui) {
  const sizes = sizesOf(ui);
  const [B, T, H, D] = [Math.max(sizes.B, ui.first.batch), ...["T", "H", "D"].map((x) => Math.max(2, sizes[x]))];
  const grown = { B, T, H, D, E: H * D };
  const wrong = (steps, at) => "✗!".includes(judge(run(steps, at).at(-1), at).mark);
  return ui.get("recipes").filter(([, steps]) => wrong(steps, sizes) || wrong(steps, grown));
}

/** A number that goes astray, from the start; every wrong way from where ours starts. */
function waysToTry(ui, wrongWays) {
  const sizes = sizesOf(ui);
  const last = (steps) => run(steps, sizes).at(-1);
  const wrong = wrongWays.filter(([, steps]) => steps[0] === ui.get("steps")[0]);
  const astray = wrong.map(([, steps]) => {
    const { value } = last(steps);
    return value ? places(value, sizes).filter(({ claim, element }) => claim !== null && claim !== element) : [];
  }).map((list) => list.map(({ element }) => element));
  const shown = astray[wrong.findIndex(([, steps]) => `${steps}` === `${ui.get("beside")}`)] ?? [];
  const everywhere = shown.filter((one) => astray.every((list) => !list.length || list.includes(one)));
  const element = Math.max(...(everywhere.length ? everywhere : shown)); // one, whatever is compared
  if (!wrongWays.length) return ordersToTry(ui);
  const trait = ui.first.beside.length ? "beside" : "steps"; // where one way fills the screen
  return Object.fromEntries([
    ...(shown.length ? [[`follow ${labelOf(element, sizes)} step by step`, { state: { element, at: 0 } }]] : []),
    ...wrong.map(([name, steps]) => [name.replace(/^[^:]*, /, ""), { state: { [trait]: steps, at: -1 } }]),
  ]);
}

/** Where two ways are right: a number that stands elsewhere in each, and one that does not. */
function ordersToTry(ui) {
  const { steps, batch, tokens, num_heads, head_dim } = ui.first;
  const sizes = sizesOf({ get: (trait) => ui.first[trait] });
  const two = ui.get("recipes").slice(0, 2).map(([, way_]) => way_);
  const orders = two.map((way_) => places(run(way_, sizes).at(-1).value, sizes).map(({ element }) => element));
  if (two.length < 2 || !two.some((way_) => `${way_}` === `${steps}`)) return {};
  const cells = batch * tokens * num_heads * head_dim;
  const ofLast = range(cells).slice(cells - cells / batch); // the numbers of the last sequence
  const stays = (element) => orders[0].indexOf(element) === orders[1].indexOf(element);
  const followed = [ofLast.find((x) => !stays(x)), ofLast.find(stays)].filter((x) => x !== undefined);
  return Object.fromEntries(followed.map((element) => [`${labelOf(element, sizes)} in both orders`,
    { state: { steps: two[0], beside: two[1], batch, tokens, num_heads, head_dim, element, at: -1 } }]));
}

/** Both lists of steps as the rows of one table. */
function everyStep(ui, element) {
  const sizes = sizesOf(ui);
  const rows = ["steps", "beside"].filter((trait) => ui.get(trait).length).flatMap((trait) =>
    run(ui.get(trait), sizes).map((state, i) => {
      const { mark, short } = judge(state, sizes);
      const head = [`${trait === "steps" ? "shown" : "beside"} ${i}`, state.step];
      if (state.error) return [...head, "", "", "", "", `${mark} ${short}`];
      const [x] = state.value.parts;
      const { index, cell } = places(state.value, sizes).find((place) => place.element === element);
      return [...head, tuple(x.shape), tuple(x.strides), contiguous(x) ? "yes" : "no",
        `[${index.join(", ")}], cell ${cell}`, `${mark} ${short}`];
    }));
  return {
    caption: "Of a tuple, the shape and the strides of its first part",
    columns: ["list", "step", "shape", "strides", "contiguous", `${labelOf(element, sizes)} is at`, "verdict"],
    rows,
  };
}

const SHAPES = [
  "B, T, E", "B, T, H, D", "B, H, T, D", "B, T, D, H", "B, H, D, T", "H, B, T, D",
  "B*H, T, D", "H*B, T, D", "B*T, E", "B*T*E",
];

/** The arguments that fit the last state of the reader's own steps. */
function proposals(ui) {
  const sizes = sizesOf(ui);
  const value = run(ui.get("steps"), sizes).at(-1).value;
  if (!value) return {};
  if (value.tuple) return { cat: range(value.parts[0].shape.length).map((axis) => `${axis}`) };
  const { shape } = value.parts[0];
  const pairs = range(shape.length).flatMap((j) => range(j).map((i) => `${i}, ${j}`));
  const cuts = shape.flatMap((n, axis) => ["B", "T", "H", "D"]
    .filter((letter) => sizes[letter] < n && n % sizes[letter] === 0).map((letter) => `${letter}, ${axis}`));
  const found = { view: SHAPES, transpose: pairs, reshape: SHAPES, contiguous: [""], split: cuts };
  return Object.fromEntries(Object.entries(found).filter(([, list]) => list.length));
}

const OUTCOMES = { // of two ways, by their marks: on the way, and at the end
  "✓✗": ["Top: correct, bottom: wrong.", "Top: correct. Bottom: ✗ marks numbers in a wrong place."],
  "✓!": ["Top: correct, bottom: refused.", "Top: correct. Bottom: torch refuses."],
  "✓✓": ["", "Both are right at these sizes."],
};
const ABOVE = { steps: "above", beside: "below" };
const COLOURS = [["head", "the head of a feature"], ["token", "the token"]];

export default widget("Head layout", (ui) => {
  let hovered = null;
  const cells = () => ui.get("batch") * ui.get("tokens") * ui.get("num_heads") * ui.get("head_dim");
  const followed = () => hovered ?? Math.min(ui.get("element"), cells() - 1);
  ui.follow(() => check(ui));
  const [above, below] = [["steps", "steps"], ["beside", "steps below them"]].map(([trait, title]) => way(ui, trait, title, followed));
  const cellAt = (event) => event.target.closest?.("[data-element]")?.dataset.element ?? null;
  const hover = (event) => {
    const cell = event.pointerType === "mouse" ? cellAt(event) : null;
    if (`${cell}` === `${hovered}`) return;
    hovered = cell === null ? null : Number(cell);
    ui.redraw();
  };
  const ways = h("div", { class: "mha-ways", onpointerover: hover, onpointerleave: hover, onkeydown: along, onclick: (event) => {
    const cell = cellAt(event);
    hovered = null;
    if (cell !== null) ui.set("element", Number(cell));
  } });

  // A choice of recipe reads and writes a list of steps.
  const named = (trait) => ui.get("recipes").find(([, steps]) => `${steps}` === `${ui.get(trait)}`)?.[0];
  const recipe = (label, trait, other) => choice({
    ...ui,
    get: () => named(trait) ?? other,
    set: (_, name) => ui.setAll({ at: -1, [trait]: ui.get("recipes").find(([one]) => one === name)?.[1]
      ?? (trait === "beside" ? [] : ui.get(trait)) }),
  }, { label, options: () => [
    ...(trait === "beside" || !named(trait) ? [[other, other]] : []), ...ui.get("recipes").map(([name]) => [name, name]),
  ] });
  const size = (label, trait, most) => choice(ui, { label, trait, options: () => range(most).map((i) => i + 1)
    .filter((n) => cells() / ui.get(trait) * n <= MOST_CELLS).map((n) => [n, n]) });

  // Steps of the reader's own: an operation, what fits it, and a button.
  let [offered, known] = [{}, ""];
  ui.follow(() => {
    const state = JSON.stringify([sizesOf(ui), ui.get("steps")]);
    if (state !== known) offered = proposals(ui);
    known = state;
  });
  const draft = () => {
    const [operation, text] = /^(\w+)\((.*)\)$/.exec(ui.get("draft"))?.slice(1) ?? [];
    const name = offered[operation] ? operation : Object.keys(offered)[0];
    return { name, text: offered[name]?.includes(text) ? text : offered[name]?.[0] };
  };
  const operation = choice({
    ...ui, get: () => draft().name, set: (_, name) => ui.set("draft", `${name}(${offered[name][0]})`),
  }, { label: "add a step", options: () => Object.keys(offered).map((name) => [name, name]) });
  const argument = choice({
    ...ui, get: () => draft().text, set: (_, text) => ui.set("draft", `${draft().name}(${text})`),
  }, { label: "arguments", options: () => (offered[draft().name] ?? []).map((text) => [text, `(${text})`]) });
  const past = []; // of the reader's own steps; who takes a recipe begins anew
  let made = null;
  const own = (steps, beside = ui.get("beside")) => {
    past.push({ steps: ui.get("steps"), beside: ui.get("beside") });
    made = steps;
    ui.setAll({ steps, beside, at: -1 });
  };
  const append = button("append", () => own([...ui.get("steps"), `${draft().name}(${draft().text})`]));
  const undo = button("undo", () => {
    const before = past.pop();
    made = before.steps;
    ui.setAll({ ...before, at: -1 });
  });
  const clear = button("clear", () => own(ui.get("steps").slice(0, 1), []));
  ui.follow(() => {
    const steps = ui.get("steps").length - 1;
    for (const list of [operation, argument]) list.querySelector("select").disabled = !draft().name;
    append.disabled = !draft().name || steps >= MOST_STEPS;
    if (`${made}` !== `${ui.get("steps")}`) past.length = 0;
    undo.disabled = !past.length;
    clear.disabled = steps === 0;
    ui.root.dataset.colour = ui.get("colour");
    ui.root.dataset.strides = ui.get("strides");
  });

  // What to try: a number that the wrong way misplaces, and the other wrong ways.
  let [tries, asked] = [{}, ""];
  let [wrong, judged] = [[], ""]; // no choice of a way changes which are wrong
  ui.follow(() => {
    const sizes = sizesOf(ui);
    const given = JSON.stringify([ui.get("recipes"), sizes]);
    const state = JSON.stringify([ui.get("steps"), ui.get("beside")]);
    if (given !== judged) wrong = wrongOf(ui);
    if (given !== judged || state !== asked) tries = waysToTry(ui, wrong);
    [judged, asked] = [given, state];
  });

  // One step further, or back; after the last, from the start.
  const back = button("back", () => ui.set("at", Math.max(0, stepOf(ui) - 1)));
  const next = button("next", () => ui.set("at", stepOf(ui) === lastStep(ui) ? 0 : stepOf(ui) + 1));
  const count = h("output", { class: "mha-count", "aria-live": "polite" });
  ui.follow(() => {
    const [now, last] = [stepOf(ui), lastStep(ui)];
    put(back, { "aria-disabled": now === 0 });
    say(next, now === last && last ? "from the start" : "next step");
    put(next, { "aria-disabled": last === 0 });
    next.classList.toggle("mha-invite", now < last);
    say(count, `step ${now} of ${last}`);
  });

  const line = readout();
  /** Where two ways are right: whether they put the number into the same place. */
  const twoOrders = () => {
    const two = ["steps", "beside"].map((trait) => ui.get(trait)).filter((steps) => steps.length);
    const bad = wrong.some(([, steps]) => two.some((one) => `${one}` === `${steps}`));
    if (two.length < 2 || bad || stepOf(ui) < lastStep(ui)) return "";
    const sizes = sizesOf(ui);
    const ends = two.map((steps) => run(steps, sizes).at(-1).value);
    if (!ends.every(Boolean)) return "";
    const [one, other] = ends.map((value) =>
      `${places(value, sizes).find(({ element }) => element === followed()).index}`);
    return one === other ? "one place in both orders, so this number does not tell them apart"
      : "two places, and both are right. Each order needs its own way back";
  };
  /** Where the number belongs, and where the step that is shown has put it. */
  const lies = () => {
    if (!stepOf(ui)) return ""; // as it lies in memory
    const sizes = sizesOf(ui);
    const two = ui.get("beside").length > 0 && parted(ui);
    return whereItLies(followed(), (two ? ["steps", "beside"] : ["steps"]).map((trait) =>
      [two ? ABOVE[trait] : "", stateOf(ui, trait)]), sizes);
  };
  ui.follow(() => {
    const sizes = sizesOf(ui);
    const { b, t, h: head, d, e } = origin(followed(), sizes);
    const whose = `${TOKENS[b][t]}${sizes.B > 1 ? ` of sequence ${b}` : ""}`;
    const [label, orders] = [labelOf(followed(), sizes), twoOrders()];
    say(line, (!orders && lies()) || `${label}: ${orders || `feature ${e} of token ${whose}, number ${d} of head ${head}`}.`);
  });
  ui.follow(() => {
    if (wrong.length || ui.get("recipes").length < 2) ui.question();
    else ui.question(`Two orders, both right: where is ${labelOf(Math.min(ui.get("element"), cells() - 1), sizesOf(ui))}?`);
  });
  const outcomes = () => ["steps", "beside"].map(ui.get).filter((steps) => steps.length)
    .map((steps) => judge(run(steps, sizesOf(ui)).at(-1), sizesOf(ui)).mark).join("");
  ui.follow(() => {
    const label = labelOf(Math.min(ui.get("element"), cells() - 1), sizesOf(ui));
    const [soon, reached] = OUTCOMES[outcomes()] ?? ["", "✗ marks a number in a wrong place."];
    const said = stepOf(ui) < lastStep(ui) ? `${soon} Press “next step” and watch ${label}.`
      : wrong.length ? reached : "Press a number to follow it.";
    ui.lead(`One colour = one ${ui.get("colour")}. ${said.trim()}`);
  });
  ways.append(above.node, below.node);
  for (const { look, tell, draw, go } of [above, below]) { // each in two frames
    const [said, drawn] = [ui.later(), ui.later()];
    said.follow(look); // before anything is written: the page is laid out
    said.follow(() => {
      put(ways, closeness(ui));
      below.node.hidden ||= !ui.get("beside").length;
    });
    said.follow(tell);
    drawn.follow(draw);
    drawn.follow(go);
  }
  let measured = "";
  ui.draw(() => {
    const state = `${ui.width(ways)} ${ui.get("strides")}`;
    if (state === measured) return;
    measured = state;
    put(ways, { style: `min-height: ${tallestOf(ui, Object.values(tries).map(({ state }) => state), ways)}px` });
  });
  ui.root.append(
    tryThis(ui, () => tries),
    controls(recipe("compare with", "beside", "nothing"), h("span", { class: "mha-stepper" }, back, next, count)),
    ways, line,
    more("More: strides, steps, sizes, colours",
      controls(recipe("show", "steps", "your own steps"), choice(ui, { label: "colours show", trait: "colour", options: COLOURS }),
        toggle(ui, { label: "strides and addresses", trait: "strides" })),
      controls(
        size("B", "batch", TOKENS.length), size("T", "tokens", TOKENS[0].length),
        size("H", "num_heads", 4), size("D", "head_dim", 4),
      ),
      controls(operation, argument, append, undo, clear),
      numbers(ui, "All steps as a table", () => everyStep(ui, followed()))),
  );
}, {
  question: "Where does each number go?",
  lesson: ["steps", "beside", "batch", "tokens", "num_heads", "head_dim", "element", "colour", "strides", "at"],
});
