// What does an einsum do for one cell? The loops of any equation, one product at a time.
import { fixed, need, needArray, Problem, product, range, shapeOf } from "./arithmetic.js";
import {
  button, choice, controls, h, more, motionReduced, numbers, put, readout, say, slider, tryThis, widget,
} from "./common.js";
import { extremes, grid, moved } from "./einsum_grid.js";
import {
  einsum, joined, loops, MOST_AXES, MOST_CELLS, parse, permutations, ravel, role, unravel,
} from "./einsum_loops.js";

const TERMS = 12; // products that are shown at once
const PAUSE = 900; // milliseconds from step to step

/** Whether a result whose axes are turned looks otherwise: a symmetric table does not. */
function isTurned(equation, operands, names) {
  const [inputs, output = ""] = `${equation}`.split("->");
  if (output.length < 2) return false;
  const [values, shapes] = [operands.map((x) => [x].flat(Infinity)), operands.map(shapeOf)];
  const [one, other] = [output, [...output].reverse().join("")].map((order) => {
    const read = parse(`${inputs}->${order}`, shapes, names);
    return `${read.shape} ${einsum(read, values, shapes).result}`;
  });
  return one !== other;
}

/** The shapes of the example's operands. */
function check(ui) {
  const [equations, operands, names] = ["equations", "operands", "operand_names"].map(ui.get);
  const example = ui.get("example");
  need(equations.length > 0, "it was given no equations.");
  need(example in equations, `there is no example number ${example}.`);
  const given = operands[example];
  need([1, 2].includes(given?.length), "an equation must have one or two operands.");
  need(names[example]?.length === given.length, "every operand must have a name.");
  return given.map((values, o) => {
    const name = names[example][o];
    const shape = shapeOf(values);
    if (shape?.length === 0) need(Number.isFinite(values), `${name} is not a finite number.`);
    else needArray(values, name, shape?.length);
    need(shape.length <= MOST_AXES && product(shape) <= MOST_CELLS,
      `${name} must have at most ${MOST_AXES} axes and ${MOST_CELLS} cells.`);
    return shape;
  });
}

export default widget("Einsum steps", (ui) => {
  let now = null; // the equation that is shown, its numbers and its grids; null if it is wrong
  let live = []; // what follows a change of the cell or of the step
  let due = false; // the tensors of another equation are still to be drawn
  let shapes = [];
  let drawn = {}; // the operands' grids, by number and letters
  let known = [];
  let marked = [];
  let growing = null; // the number of the result's cell that shows the sum so far

  const names = () => ui.get("operand_names")[ui.get("example")];
  const at = (size = now.size) => Object.fromEntries(Object.entries(size).map(([letter, n]) =>
    [letter, Math.max(0, Math.min(n - 1, Math.trunc(ui.get("at")?.[letter]) || 0))]));
  const go = (letters) => ui.set("at", { ...ui.get("at"), ...letters });
  /** To a cell of the result, at the first step of its sum. */
  const goCell = (letters) => go({ ...letters, ...unravel(now.summed, now.size, 0) });
  /** The same at the first step of its sum: what is not after the arrow begins at 0. */
  const begun = (state, cell = {}) => ({ ...state, at: Object.fromEntries(Object.entries({ ...ui.get("at"), ...cell }).map(([letter, n]) =>
    [letter, state.equation.split("->")[1]?.includes(letter) ? n : 0])) });
  const step = () => ravel(now.summed, now.size, at());
  const steps = () => now.steps[0].length;
  const goStep = (j) => go(unravel(now.summed, now.size, Math.max(0, Math.min(steps() - 1, j))));
  const show = (x) => fixed(x, 3).replace(/\.?0+$/, "");
  const indexed = (name, letters, open = []) => (letters.length
    ? `${name}[${[...letters].map((x) => (open.includes(x) ? x : `${x}=${at()[x]}`)).join(", ")}]` : name);
  const result = () => indexed("result", now.output);

  // The equation: chosen, written by hand, or its result put into another order.
  const examples = choice({
    ...ui,
    set: (_, n) => {
      const chosen = { example: n, equation: ui.get("equations")[n] };
      ui.setAll(begun(chosen, isIdle(chosen) ? liveliest(chosen) : {}));
    },
  }, {
    label: "example", trait: "example",
    options: () => ui.get("equations").map((equation, n) =>
      [n, ui.get("names")[n] || equation]), // what is computed stands in the field
  });
  const typed = h("input", {
    id: `${ui.id}-equation`, type: "text", class: "mha-es-typed", size: 18, spellcheck: "false",
    autocapitalize: "off", autocomplete: "off", oninput: () => ui.setAll(begun({ equation: typed.value })),
  });
  const [tensorsDrawn, restDrawn] = [ui.later(), ui.later()];
  const orders = choice({ ...restDrawn, get: () => now && `${now.inputs}->${now.output}` }, {
    label: "order of the result", trait: "equation",
    options: () => (now ? permutations(now.output).map((x) => [`${now.inputs}->${x}`, x]) : []),
  });
  const note = h("p", { class: "mha-warning" });
  let readable = false; // an equation was read before: it stays in sight behind a wrong one
  const wrong = h("p", { class: "mha-problem", role: "status" });

  const words = h("p", { class: "mha-es-words" });
  const letters = h("ul", { class: "mha-es-letters", "aria-label": "letters" });
  const tensors = h("div", { class: "mha-es-tensors" });
  const formula = h("p", { class: "mha-es-words" });
  const stepper = h("div", { role: "group", "aria-label": "steps of the sum" });
  const terms = h("ol", { class: "mha-es-terms", tabindex: "0", "aria-label": "products of this cell" });
  const line = readout();
  const order = h("p", { class: "mha-es-words" });
  const code = h("pre", { class: "mha-es-code", tabindex: "0", role: "group", "aria-label": "the same as loops" });
  const slabs = h("p", { class: "mha-es-slabs" },
    "Of each tensor only the blocks that take part: the sliders lead to the others.");
  const board = h("div", {}, words, letters, tensors, slabs, formula,
    h("div", { class: "mha-es-sum" }, stepper, terms), line);

  /** The result of this example turned, or, if it is its own mirror image, of the next that shows it. */
  let turning = { of: [], to: [] };
  function turnedResult(example) {
    const of = ["equations", "operands", "operand_names"].map(ui.get);
    if (of.some((x, n) => x !== turning.of[n])) turning = { of, to: [] };
    const [equations] = of;
    if (turning.to[example] === undefined) {
      const shows = range(equations.length).map((n) => (example + n) % equations.length).find((n) => isTurned(...of.map((list) => list[n])));
      turning.to[example] = shows === undefined ? null : to(shows, equations[shows], shows === example);
    }
    return turning.to[example];
  }
  ui.ahead(...ui.get("equations").map((_, n) => () => turnedResult(n)));
  /** Another example, read and computed. */
  function computed({ example, equation }) {
    const values = ui.get("operands")[example];
    const ofAll = values.map(shapeOf);
    const read_ = parse(equation, ofAll, ui.get("operand_names")[example]);
    return { ...read_, ...einsum(read_, values.map((x) => [x].flat(Infinity)), ofAll) };
  }
  /** Whether the framed cell would stay 0 in another example. */
  function isIdle(chosen) {
    const { output, size, terms } = computed(chosen);
    return !terms(ravel(output, size, at(size))).some(Boolean);
  }
  /** The cell of another example whose sum changes most often, from 0 on. */
  function liveliest(chosen) {
    const { output, size, result: cells, running } = computed(chosen);
    const changes = cells.map((_, i) => new Set([0, ...running(i)]).size);
    return unravel(output, size, changes.indexOf(Math.max(...changes)));
  }
  function to(example, equation, same) {
    const [inputs, output] = equation.split("->");
    const order = [...output].reverse().join("");
    const found = { ...(same ? {} : { example }), equation: `${inputs}->${order}` };
    const called = ui.get("names")[example];
    const title = `${order.length > 2 ? "reverse" : "transpose"}: ${output} → ${order}`;
    const of = called ? `Now “${called}”. ` : ""; // it may be another than before
    return { title, of, from: equation, holds: found, cell: same ? {} : liveliest(found) };
  }

  // What to try: the example with a letter less, or with its result turned.
  const tries = tryThis(ui, () => {
    check(ui);
    const equation = ui.get("equations")[ui.get("example")] ?? "";
    const [inputs, output = ""] = equation.split("->");
    const found = {};
    if (/^[a-z]+$/i.test(output)) {
      const last = output.at(-1);
      const dropped = { equation: `${inputs}->${output.slice(0, -1)}` };
      found["sum one more"] = { state: begun(dropped), holds: dropped,
        note: `${last} is summed now, too. The sizes still fit, so nothing complains: was it meant?` };
    }
    const turned = turnedResult(ui.get("example"));
    if (turned) {
      found[turned.title] = { state: begun(turned.holds, turned.cell), holds: turned.holds,
        note: `${turned.of}Each sum is that of ${turned.from}, only its place is another.` };
    }
    return found;
  });

  // Play: one step after the other, to the end of the sum.
  let timer = 0;
  const stop = () => {
    clearTimeout(timer);
    timer = 0;
    ui.redraw();
  };
  const tick = () => {
    if (!now || !board.isConnected || step() >= steps() - 1) return stop();
    goStep(step() + 1);
    timer = setTimeout(tick, PAUSE);
  };
  const play = button("play", () => {
    if (timer) return stop();
    if (step() >= steps() - 1) goStep(0);
    timer = setTimeout(tick, PAUSE);
    ui.redraw();
  });
  const previous = button("previous", () => goStep(step() - 1));
  const next = button("next", () => goStep(step() + 1));

  const own = { get: (x) => at()[x], follow: (follower) => live.push(follower) };

  /** What the equation says, in words and letters. */
  function introduce() {
    const { inputs, output, size, summed } = now;
    live = [];
    letters.replaceChildren(...[...output, ...summed].map((x) => {
      const [what, where] = role(x, now, names());
      const dial = output.includes(x)
        ? slider({ ...own, set: (_, value) => goCell({ [x]: value }) },
          { label: x, trait: x, range: { min: 0, max: size[x] - 1 } })
        : h("span", { class: "mha-control" }, h("b", {}, x), `runs 0…${size[x] - 1}`);
      return h("li", { "data-role": what }, dial, h("span", {}, h("b", {}, what), h("span", { class: "mha-es-where" }, `: ${where}`)));
    }));
    const thing = inputs.length > 1 ? "product" : "number";
    say(words, (output ? `For every ${joined([...output])}: ` : "The result is one number: ") + (summed.length
      ? `add ${steps()} ${thing}s, one for every ${joined(summed)}.`
      : `one ${thing}. No letter is missing after the arrow, so nothing is summed.`));
  }

  /** All else that depends on the equation and not on the cell. */
  function build() {
    const { inputs, output, size, summed, shape } = now;
    now.grids = inputs.map((group, o) => (drawn[[o, group]] ??= grid(group, shapes[o], now.values[o], (n) => {
      const place = unravel(shapes[o].keys(), shapes[o], n);
      go(Object.fromEntries([...group].map((x, axis) => [x, place[axis]])));
    })));
    now.grids.push(grid(output, shape, now.result, (n) => goCell(unravel(output, size, n)), extremes(now)));
    growing = null;
    const cellCount = now.grids.reduce((sum, one) => sum + one.cells.length, 0);
    tensors.classList.toggle("mha-es-large", cellCount < 40);
    board.classList.toggle("mha-es-four", [...inputs, output].some((group) => group.length > 3));
    const operands = now.grids.map((one, o) => (one.operand ??= titled(one.picture, o)));
    operands.forEach((x, o) => { // what stays is not laid out anew
      if (!tensors.children[o]) tensors.append(x);
      else if (tensors.children[o] !== x) tensors.children[o].replaceWith(x);
    });
    while (tensors.children.length > operands.length) tensors.lastChild.remove();
    stepper.hidden = terms.hidden = steps() < 2;
    stepper.replaceChildren(controls(previous, next, play, slider(
      { ...own, get: step, set: (_, j) => goStep(j) },
      {
        label: "step", trait: "step", range: { min: 0, max: steps() - 1 },
        format: (j) => assigned(unravel(summed, size, j)),
      },
    )));
    terms.replaceChildren(...range(Math.min(TERMS, steps())).map(() => h("li", {}, h("b"), h("span"))));
    live.push(follow);
    live.forEach((follower) => follower());
  }

  /** A tensor under its name and shape; the result takes the arrow keys. */
  function titled(picture, o) {
    const { inputs, output, size, shape } = now;
    const title = h("div", {}, h("b", {}, names()[o] ?? "result"),
      ` (${[...(inputs[o] ?? output)].join(", ")}) = (${(shapes[o] ?? shape).join(", ")})`,
      o < inputs.length ? "" : h("span", { class: "mha-es-sofar" }, "; framed: so far"));
    return h("div", { class: "mha-es-operand" }, title, o < inputs.length ? picture : h("div", {
      tabindex: "0", role: "application", "aria-roledescription": "tensor",
      "aria-label": "result: arrow keys move from cell to cell",
      onkeydown: (event) => {
        const to = moved(event.key, output, size, at());
        if (!to) return;
        event.preventDefault();
        goCell(to);
      },
    }, picture));
  }

  const assigned = (which) => now.summed.map((x) => `${x} = ${which[x]}`).join(", ");
  /** One product in words: 2 · 3 = 6. */
  const written = (i, j) => {
    const parts = now.steps.map((one, o) => now.grids[o].texts[now.kept[o][i] + one[j]]);
    return parts.length > 1 ? `${parts.join(" · ")} = ${show(product(now.factors(i, j)))}` : parts[0];
  };
  const mark = (element, state) => {
    element.dataset.state = state;
    marked.push(element);
    const band = element.closest(".mha-es-band");
    if (band.dataset.state) return;
    band.dataset.state = "shown";
    marked.push(band);
  };
  const state = (n, j) => (n < j ? "done" : n > j ? "later" : "now");

  /** All that depends on the cell and on the step. */
  function follow() {
    const [i, j] = [ravel(now.output, now.size, at()), step()];
    marked.forEach((element) => delete element.dataset.state);
    marked = [];
    now.steps.forEach((one, o) => {
      const cell = (n) => now.grids[o].cells[now.kept[o][i] + one[n]];
      one.forEach((_, n) => mark(cell(n), state(n, j)));
      mark(cell(j), "now"); // also where an earlier or a later step comes by again
    });
    const results = now.grids.at(-1);
    const sofar = now.running(i)[j];
    if (growing !== null) say(results.cells[growing], results.texts[growing]);
    growing = i;
    say(results.cells[i], results.text(sofar));
    mark(results.cells[i], "result");
    results.operand.querySelector(".mha-es-sofar").classList.toggle("mha-unsaid", j === steps() - 1);

    const first = Math.max(0, Math.min(steps() - TERMS, j - TERMS / 2));
    [...terms.children].forEach((item, n) => {
      say(item.firstChild, assigned(unravel(now.summed, now.size, first + n)));
      say(item.lastChild, written(i, first + n));
      item.dataset.state = state(first + n, j);
      item.setAttribute("aria-current", first + n === j ? "step" : "false");
    });
    const factors = names().map((name, o) => indexed(name, now.inputs[o], now.summed)).join(" · ");
    const sum = now.summed.length ? `Σ over ${joined(now.summed)} of ` : "";
    say(formula, `${result()} = ${sum}${factors} = ${show(now.result[i])}`);
    say(line, steps() > 1
      ? `${result()}, step ${j + 1} of ${steps()}: ${written(i, j)}. The sum is ${show(sofar)} after this step, ${show(now.result[i])} after all ${steps()}.`
      : `${result()}: ${written(i, j)}.`);
    const [idle, following] = [!now.terms(i).some(Boolean), now.terms(i)[j + 1]];
    const elsewhere = now.result.length > 1 ? ": press another cell of the result." : ".";
    next.classList.toggle("mha-invite", following !== undefined && !idle); // the lead speaks of it
    ui.lead(steps() < 2 ? `Nothing is summed here${elsewhere}`
      : idle ? `Every product here is 0${elsewhere}`
      : following === undefined ? `This sum is whole${elsewhere}`
      : `Press “next” below: ${following ? `the framed sum ${following > 0 ? "grows" : "falls"}` : "that product is 0, the sum stays"}.`);
    say(play, timer ? "pause" : "play");
    play.hidden = motionReduced();
    put(previous, { "aria-disabled": j === 0 }); // not disabled: the focus would be lost
    put(next, { "aria-disabled": j === steps() - 1 });
  }

  /** Where the cell lies as written, and where in the order of the example. */
  function reordered(i) {
    const [inputs, theirs] = ui.get("equations")[ui.get("example")].split("->");
    const ours = now.output;
    const sorted = (text) => [...text].sort().join("");
    if (ours.length < 2 || inputs !== `${now.inputs}` || sorted(theirs) !== sorted(ours)) return "";
    const place = `Read row by row, this is number ${i} of ${now.result.length}, counted from 0`;
    if (theirs === ours) return `${place}. Choose another order of the result: what moves, and what stays?`;
    const cell = (text) => `result_${text}[${[...text].map((x) => at()[x]).join(", ")}]`;
    const axes = [...ours].map((x) => theirs.indexOf(x)).join(", ");
    return `${cell(ours)} and ${cell(theirs)} are one sum of the same products. Only the place differs. ` +
      `${place}; in the order ${theirs} it is number ${ravel(theirs, now.size, at())}. ` +
      `result_${ours} = result_${theirs}.permute(${axes}).`;
  }

  /** Read the equation. A wrong one the reader can mend, so the controls stay. */
  function read(text) {
    let problem = "";
    now = null;
    try {
      const equation = parse(text, shapes, names());
      const values = ui.get("operands")[ui.get("example")].map((x) => [x].flat(Infinity));
      now = { ...equation, ...einsum(equation, values, shapes), values };
      introduce();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = `“${text}” cannot be shown: ${error.message}`;
    }
    due = Boolean(now);
    say(wrong, problem);
    wrong.hidden = !problem;
    readable ||= Boolean(now);
    board.hidden = folded.hidden = !readable;
    typed.setAttribute("aria-invalid", !now);
  }

  ui.follow(() => {
    const traits = ["equations", "operands", "operand_names", "example", "equation"].map(ui.get);
    if (traits.some((x, n) => x !== known[n])) {
      shapes = check(ui);
      if (traits.slice(0, 4).some((x, n) => x !== known[n])) drawn = {};
      known = traits;
      const text = ui.get("equation");
      if (typed.value !== text) typed.value = text;
      say(note, ui.get("notes")[ui.get("example")] ?? "");
      note.hidden = !note.textContent;
      read(text);
    }
    if (now) live.forEach((follower) => follower());
    else {
      ui.lead("Mend the equation: a line below says what is wrong.");
      next.classList.remove("mha-invite");
    }
  });

  tensorsDrawn.follow(() => {
    board.inert = folded.inert = !now;
    if (due) build();
    due = false;
  });

  /** What lies beyond the right edge shows by a sign, until it has been scrolled to. */
  const further = () => {
    terms.toggleAttribute("data-further", terms.scrollLeft + terms.clientWidth < terms.scrollWidth - 4);
  };
  terms.addEventListener("scroll", further, { passive: true });
  restDrawn.follow(() => {
    if (!now) return;
    orders.hidden = now.output.length < 2;
    say(order, reordered(ravel(now.output, now.size, at())));
    say(code, loops(now, names(), shapes));
  });
  restDrawn.draw(() => { // to ask for a place is to lay the page out
    const item = terms.querySelector('[aria-current="step"]');
    if (!item) return;
    const end = item.offsetLeft + item.offsetWidth; // begin with the one before it, if both are seen whole
    const from = [item.previousElementSibling, item].find((one) => one && end - one.offsetLeft <= terms.clientWidth);
    terms.scrollLeft = from === terms.firstElementChild ? 0 : (from ?? item).offsetLeft;
    further();
  });

  const table = (title, content) => {
    let shown = { caption: "", columns: [], rows: [] };
    return numbers(ui, title, () => (now ? (shown = content(ravel(now.output, now.size, at()))) : shown));
  };
  const folded = more("More: loops, order of the result, tables", controls(orders), order, code,
    table("The sum of this cell as a table", (i) => {
      let sum = 0;
      return {
        caption: result(),
        columns: ["step", ...names(), "product", "sum after it"],
        rows: now.terms(i).map((term, j) => [
          assigned(unravel(now.summed, now.size, j)) || "the only one",
          ...now.factors(i, j).map(show), show(term), show((sum += term)),
        ]),
      };
    }),
    table("All cells as a table", (i) => {
      const parts = now.steps.map((one, o) => new Set(one.map((place) => now.kept[o][i] + place)));
      const tensor = (name, group, shape, values, part) => values.map((x, n) => {
        const place = unravel(shape.keys(), shape, n);
        return [name, group, shape.map((_, axis) => place[axis]).join(", "), show(x), part(n)];
      });
      return {
        caption: `The operands and the result, and who takes part in ${result()}`,
        columns: ["tensor", "axes", "index", "number", "part"],
        rows: [
          ...now.inputs.flatMap((group, o) => tensor(names()[o], group, shapes[o], now.values[o],
            (n) => (parts[o].has(n) ? "takes part" : ""))),
          ...tensor("result", now.output, now.shape, now.result, (n) => (n === i ? "this cell" : "")),
        ],
      };
    }));

  ui.root.append(
    tries,
    controls(examples, h("span", { class: "mha-control" }, h("label", { for: typed.id }, "equation"), typed)),
    note, h("div", { class: "mha-es-body" }, board, wrong, folded),
  );
}, {
  question: "What does an einsum do for one cell?",
  lesson: ["example", "equation", "at"],
});
