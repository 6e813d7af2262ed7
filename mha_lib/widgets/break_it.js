// Six programs for one function; any mistake in any of them, and who notices it.
import { fixed, need, needArray, range, shapeOf } from "./arithmetic.js";
import { button, h, more, numbers, press, put, readout, say, toggle, tryThis, widget } from "./common.js";
import { daysAfter, isDate, patientOf, today, written } from "./break_it_daily.js";
import { WRONG } from "./break_it_mistakes.js";
import { lossPicture, shown, twofold } from "./break_it_pictures.js";
import { NAMES, sixPrograms, worst } from "./break_it_programs.js";
import { begin, fresh, GROUPS, none, PUZZLES, quest, SHOWN, titleOf, visiting } from "./break_it_puzzles.js";

const MARKS = { // of a line
  "?": "not known yet", "–": "not this one", "✓": "right", "✗": "the wrong line", "≠": "its numbers differ, because of the wrong line",
};
const SEEN = 0.1; // nats a character: less is not seen in a curve
const LAST = 5; // points of a loss whose mean is its end

function check(ui, known) {
  const [, B, T, E] = needArray(ui.get("inputs"), "inputs", 4);
  const H = ui.get("num_heads");
  need(Number.isInteger(H) && H >= 1 && E % H === 0, `the number of heads must divide E = ${E}; it is ${H}.`);
  need(B <= 2 && T <= 6 && E <= 12 && H <= 3, `it shows at most 2 sequences, 6 tokens, 12 features and 3 heads; there are ${B}, ${T}, ${E} and ${H}.`);
  for (const [trait, wanted] of [["matrices", [4, E, E]], ["biases", [4, E]], ["lengths", [B]], ["tokens", [B, T]]]) {
    need(`${shapeOf(ui.get(trait))}` === `${wanted}`, `${trait} must have the shape (${wanted.join(", ")}).`);
  }
  const mistakes = ui.get("mistakes");
  need(Array.isArray(mistakes) && mistakes.length === NAMES.length, `mistakes must be ${NAMES.length} names, "" for none.`);
  for (const name of mistakes) need(name === "" || (Object.hasOwn(WRONG, name) && Object.hasOwn(known, name)), `there is no mistake “${name}” here.`);
  const opened = ui.get("opened");
  need(Number.isInteger(opened) && opened >= 0 && opened < NAMES.length, `opened must be a whole number from 0 to ${NAMES.length - 1}.`);
  need(ui.get("step") === "" || Object.hasOwn(GROUPS, ui.get("step")), `there is no step “${ui.get("step")}”.`);
  need(ui.get("patient") === "" || isDate(ui.get("patient")), "patient must be a date such as 2026-03-01.");
}

export default widget("Break it", (ui) => {
  const known = ui.get("catalogue");
  const mistakeOf = (i) => {
    const found = patient();
    return found ? (i === found.at ? found.name : "") : ui.get("mistakes")[i];
  };

  const six = sixPrograms(ui);
  let [programs, sizes] = [[], null];
  ui.follow(() => {
    check(ui, known);
    programs = six.follow(mistakeOf);
    sizes = six.sizes();
  });
  ui.ahead(...Object.values(PUZZLES()).map(({ state }) => () => {
    const { at, name } = state.patient ? patientOf(state.patient) : { at: state.opened, name: state.mistakes[state.opened] };
    six.prepare(NAMES[at], name);
  }));
  const now = () => programs[ui.get("opened")];
  const task = quest(ui, known, now, () => programs);
  const { patient, answer, secret, sought, seeking, solved, over, tried } = task;

  // --- what is changed: every change can be taken back ------------------------------------
  const STATE = ["mistakes", "opened", "step", "three", "patient", "sealed", "guess"];
  const VIEW = ["b", "h", "row", "column"]; // no change of its own, but seen again
  const values = (traits) => Object.fromEntries(traits.map((trait) => [trait, ui.get(trait)]));
  const past = [];
  let last = null;
  const undo = button("undo", () => {
    if (!past.length) return;
    last = past.pop();
    ui.setAll({ ...last.state, ...last.view });
  });
  ui.follow(() => {
    const state = values(STATE);
    if (last && JSON.stringify(state) !== JSON.stringify(last.state)) past.push(last);
    last = { state, view: values(VIEW) };
    put(undo, { "aria-disabled": !past.length });
  });
  const visit = (date) => ui.setAll(visiting(date));

  // --- six tiles ----------------------------------------------------------------------
  const tiles = h("div", { class: "mha-tiles", role: "group", "aria-label": "six programs" });
  tiles.append(h("span", { class: "mha-caption" }, "Programs:"), ...NAMES.map((style, i) => {
    const mark = h("b");
    const one = h("button", { type: "button", class: "mha-tile", onclick: () => ui.setAll({ opened: i, ...fresh }) },
      h("b", {}, style.replace("MHA", "")), " ", mark);
    ui.follow(() => {
      const sign = programs[i].first ? "✗" : "✓";
      put(mark, { "data-mark": sign });
      say(mark, sign);
      press(one, i === ui.get("opened"));
    });
    return one;
  }));

  // --- the open program: lines, marks, shapes ----------------------------------------------
  const list = h("select", {
    id: `${ui.id}-mistake`,
    onchange: () => ui.setAll({ mistakes: ui.get("mistakes").with(ui.get("opened"), list.value), patient: "", sealed: false, ...fresh }),
  }, h("option", { value: "" }, "no mistake"), Object.entries(GROUPS).map(([step, title]) =>
    h("optgroup", { label: title }, Object.keys(known).filter((name) => WRONG[name]?.step === step).map((name) =>
      h("option", { value: name }, name)))));
  const chooser = h("span", { class: "mha-control" },
    h("label", { for: list.id }, "mistake"), list);
  ui.follow(() => {
    list.value = ui.get("mistakes")[ui.get("opened")];
    chooser.hidden = Boolean(patient() || sought());
  });

  const shownStep = () => {
    if (ui.get("step") || over()) return ui.get("step") || over();
    return now().differs.weights || !now().differs.output ? "weights" : "output";
  };
  const worked = ui.later(); // what there is to choose from, once the question stands
  const lines = h("div", { class: "mha-code", role: "group", "aria-label": "program, step by step" }, Object.keys(GROUPS).map((step) => {
    const [mark, text, shape] = [h("b", { class: "mha-mark", role: "img" }), h("code"), h("span", { class: "mha-shape" })];
    const instead = h("code", { class: "mha-instead" });
    const line = h("button", { type: "button", class: "mha-line", title: GROUPS[step], onclick: () =>
      ui.setAll(sought() ? { guess: step } : { ...fresh, step }) }, mark,
      h("span", { class: "mha-written" }, shape, text, instead));
    worked.follow(() => {
      const { here, right, differs } = now();
      const first = sought() ? "" : now().first || over(); // what no number shows is wrong, too
      say(mark, sought() ? (tried.steps.has(step) ? "–" : "?") : step === first ? "✗" : differs[step] ? "≠" : "✓");
      put(mark, { "data-mark": mark.textContent, "aria-label": MARKS[mark.textContent], title: MARKS[mark.textContent] });
      const written_ = here.code[step];
      write(text, written_);
      const lost = right.code[step].filter((x) => !written_.includes(x));
      instead.hidden = step !== first || !lost.length;
      write(instead, lost.map((x) => `right: ${x}`));
      const same = here.steps[step].parts[0].shape === right.steps[step].parts[0].shape;
      say(shape, here.steps[step].parts[0].shape + (same ? "" : " ✗"));
      put(shape, { "data-mark": same ? "" : "✗" });
      put(line, { "data-first": step === first });
      press(line, step === (sought() ? ui.get("guess") : shownStep()));
    });
    return line;
  }));

  const three = toggle({ // of the sentence that is shown: the farthest number may lie in the other
    ...ui, set: (trait, value) => ui.setAll({ [trait]: value, b: view.b }) }, { label: "three inputs", trait: "three" });
  const witnesses = h("ul", { class: "mha-witnesses" });
  const losing = h("div", { class: "mha-noticed" });

  // --- the patient of a day ----------------------------------------------------------------
  const quiz = h("div", { class: "mha-quiz", role: "group", "aria-label": "four answers" });
  const question = h("b", { class: "mha-patient" });
  const answers = range(4).map((i) => h("button", {
    type: "button", class: "mha-answer",
    onclick: () => ui.setAll({ guess: `${ui.get("patient")} ${patient().answers[i]}` }),
  }));
  const [before, after] = [["day before", -1], ["day after", 1]].map(([label, days]) =>
    button(label, () => visit(daysAfter(ui.get("patient"), days))));
  const free = button("free play", () => ui.setAll({ // with the mistake that was found
    ...begin, mistakes: none.with(patient().at, patient().name) }));
  const leave = button("leave", () => ui.setAll({ // back to what was there before
    ...ui.first, ...fresh, patient: "", ...past.findLast(({ state }) => !state.patient)?.state, guess: "" }));
  const show = button("show me", () => ui.set("guess", patient() ? `${ui.get("patient")} ${SHOWN}` : SHOWN));
  const gone = h("span", { class: "mha-button mha-gone", "aria-hidden": "true" }, "show me"); // its place: a second tap meets nothing
  quiz.append(...answers);

  // --- what comes next, once something is found or shown --------------------------------
  const says = h("span");
  const next = button("", () => ui.setAll(following()[1].state));
  const onward = h("div", { class: "mha-onward" }, next, says);
  /** What the marks of the lines say. */
  const legend = () => {
    const { first, differs } = now();
    if (!first && !over()) return "";
    const inherited = Object.keys(differs).some((step) => differs[step] && step !== first);
    return `✗ the wrong line, below it the right one${!first ? "; no number shows it." : inherited ? "; from ≠ on the numbers differ." : "."}`;
  };
  /** [title, {state}] of the puzzle after the one that is over. */
  const following = () => {
    const all = Object.entries(PUZZLES());
    const at = all.findIndex(([, { state }]) => `${state.mistakes}` === `${ui.get("mistakes")}`);
    return solved() && at >= 0 ? all[at + 1] : null;
  };
  ui.follow(() => {
    const found = patient();
    question.hidden = before.hidden = after.hidden = !found;
    after.disabled = ui.get("patient") >= today(); // nobody is told what comes
    leave.hidden = !secret();
    show.hidden = !sought() && !(secret() && answer());
    gone.hidden = !solved();
    const uncovered = found && !secret();
    free.hidden = !uncovered;
    ui.root.classList.toggle("mha-solved", Boolean(solved()));
    ui.root.classList.toggle("mha-uncovered", Boolean(uncovered));
    const given = ui.get("guess").endsWith(SHOWN); // of a patient its date stands before it
    ui.question(over() ? `${given ? "It was" : "Found"}: ${GROUPS[over()]}.` : titleOf(programs, task, now()));
    const puzzle_ = following();
    onward.hidden = !puzzle_;
    if (puzzle_) say(next, `next: ${puzzle_[0]}`);
    say(says, legend());
    ui.lead(puzzle_ ? "" // it stands beside the button
      : found && over() ? legend()
      : sought() && !now().first ? "Map, output and loss are right. Switch on three inputs, or press the line you suspect."
      : sought() ? `${symptom()}. Press the line you suspect.`
      : secret() ? "Its code is hidden. Compare its map with the right one, and choose what is wrong."
        : now().first ? legend()
          : now().mistake ? "Its code is wrong, and no number shows it. Switch on three inputs."
          : seeking() ? `All its numbers are right. Open ${programs.some(({ first }) => first) ? "the program with ✗" : "the others"} and find the wrong line.`
          : `No number of this program is wrong. Press a line for its numbers${found ? "" : ", or choose a mistake"}.`);
    ui.linked(found ? "The link opens this patient, and does not give it away." : "");
    three.hidden = Boolean(found);
    three.classList.toggle("mha-spared", Boolean(solved() && now().first)); // it shows nothing new
    if (found) say(question, uncovered ? "“copy link” sends this patient on."
      : `Patient of ${written(ui.get("patient"))}`); // its tile has the ✗
  });
  worked.follow(() => {
    const found = patient();
    quiz.hidden = !secret();
    lines.hidden = Boolean(secret());
    if (found) answers.forEach((one, i) => {
      const wrong = tried.steps.has(found.answers[i]);
      say(one, `${wrong ? "✗ " : ""}${causeOf(known[found.answers[i]])}`);
      put(one, { "data-mark": wrong ? "✗" : "" });
    });
  });

  // --- two maps and the losses ------------------------------------------------------------
  /** Of a step the part, sequence and head that are farthest from the right ones; -1: any. */
  const farthest = (step, onlyB = -1, onlyHead = -1) => {
    const { here, right } = now();
    const { order, parts } = here.steps[step];
    const wanted = right.steps[step].parts;
    const [B, H] = [sizes.B, order[1] === "h" ? sizes.H : 1];
    const columns = order === "bte" ? sizes.e : order === "bthd" ? sizes.e : order.at(-1) === "d" ? sizes.D : sizes.T;
    const count = sizes.T * columns;
    const apart = (p, start, b) => { // if it can be, in a row that is no padding
      const [all, real] = [count, ui.get("lengths")[b] * columns].map((n) => worst(parts[p].cells, wanted[p].cells, start, n));
      return real.most > 0 ? real : all;
    };
    let best = { p: 0, b: onlyB, head: onlyHead, most: -1 };
    const own = WRONG[now().mistake]?.inputs ?? []; // where no number differs, a part that is wrong comes first
    const wrongFirst = range(parts.length).sort((a, b) => (own[a] === a) - (own[b] === b));
    for (const p of wrongFirst) {
      for (const b of range(B)) {
        for (const head of range(H)) {
          if (onlyB >= 0 && b !== Math.min(onlyB, B - 1)) continue;
          if (H > 1 && onlyHead >= 0 && head !== Math.min(onlyHead, H - 1)) continue;
          const found = apart(p, (b * H + head) * count, b);
          if (found.most > best.most) best = { p, b, head, ...found };
        }
      }
    }
    const start = (best.b * H + best.head) * count;
    const cut = ({ cells }) => cells.slice(start, start + count);
    return {
      ...best, part: parts[best.p].part, H, columns, keys: order.at(-1) === "s",
      right: cut(wanted[best.p]), here: cut(parts[best.p]), words: ui.get("tokens")[best.b],
    };
  };
  const chosen = () => {
    const step = shownStep();
    const best = farthest(step, ui.get("b"), ui.get("h"));
    const { columns } = best;
    const at = best.most > 0 ? [Math.floor(best.at / columns), best.at % columns] : [Math.min(2, sizes.T - 1), Math.min(1, columns - 1)];
    const cursor = [["row", sizes.T], ["column", columns]].map(([trait, n], i) =>
      (ui.get(trait) < 0 ? at[i] : Math.min(n - 1, ui.get(trait))));
    return { ...best, step, cursor };
  };
  let view = null;
  ui.follow(() => {
    view = chosen();
  });
  const quantity = () => ({ weights: "map", hide: "masked scores" }[view.step] ?? view.part);
  const what = () => quantity() + (view.H > 1 ? ` of head ${view.head}` : "");
  const which = () => `${what()}, sequence ${view.b}`;
  const buttons = (trait, label, size) => {
    const row = h("span", { class: "mha-pick", role: "group", "aria-label": label }, `${label} `);
    ui.follow(() => {
      const n = size();
      if (row.childElementCount !== n) {
        row.replaceChildren(`${label} `, ...range(n).map((i) => button(`${i}`, () => ui.setAll({ [trait]: i, row: -1, column: -1 }))));
      }
      [...row.children].forEach((one, i) => press(one, i === (trait === "b" ? view.b : view.head)));
      row.hidden = n < 2;
    });
    return row;
  };
  const pictures = ui.later();
  const title = h("span", { class: "mha-which" });
  const cell = readout();
  const picture = twofold(pictures, {
    move: (row, column) => ui.setAll({ row, column, b: view.b, h: view.head }),
    content: () => ({
      rows: view.words, columns: view.columns, heads: view.keys ? view.words : range(view.columns).map(String), right: view.right, here: view.here, cursor: view.cursor, quantity: quantity(),
      label: `${which()}: as it should be, and here; arrow keys move the cursor`,
    }),
  });
  pictures.follow(() => {
    say(title, which());
    const [i, j] = view.cursor;
    const k = i * view.columns + j;
    const place = view.keys ? `${view.words[i]} → ${view.words[j]}` : `${view.words[i]}, feature ${j}`;
    const of = `${quantity()}${view.H > 1 ? `, head ${view.head}` : ""}, sequence ${view.b}`;
    say(cell, `${of}: ${place} ${shown(view.here[k])}, right ${shown(view.right[k])}`);
  });

  const losses = ui.get("losses");
  const healthy = end(losses.right[0]);
  const training = () => {
    const curve = losses.curves[now().mistake];
    if (!curve) return { mark: "✓", text: healthy.toFixed(2) };
    if (curve.includes(null)) return { mark: "✗", text: "not a number" };
    const gap = end(curve) - healthy;
    const how = Math.abs(gap) <= SEEN ? ["✓", "as good"] : gap < 0 ? ["!", "too good"] : ["✗", "worse"];
    return { mark: how[0], text: `${end(curve).toFixed(2)}, ${how[1]}`, gap };
  };
  const { state: odd } = PUZZLES()["odd map"];
  /** What the loss and the map show, in one line above the code. */
  const symptom = () => {
    const { gap } = training();
    const { differs } = now();
    const value = (healthy + gap).toFixed(2);
    const should = healthy.toFixed(2);
    const lost = gap === undefined ? "Loss not a number" : Math.abs(gap) <= SEEN ? `Loss right, ${value}`
      : gap < 0 ? `It predicts too well: loss ${value}, not ${should}` : `Loss too high: ${value}, not ${should}`;
    if (!differs.weights) return `${lost}; maps right, output off by ${differs.output.toFixed(2)}`;
    const ofMap = `${ui.get("mistakes")}` === `${odd.mistakes}`; // whatever its loss
    if (!ofMap && (gap === undefined || Math.abs(gap) > SEEN)) return lost;
    const { at, columns, words, here, right } = farthest("weights", ui.get("b"));
    return `${ofMap ? "Odd map:" : `${lost};`} “${words[Math.floor(at / columns)]}” gives “${words[at % columns]}” ${fixed(here[at], 2)}, not ${fixed(right[at], 2)}`;
  };
  /** What the maps say to who has guessed wrong; it names no line. */
  const hint = () => {
    if (tried.steps.size > 1) { // the second time it says more
      const steps = Object.keys(GROUPS);
      return `The wrong line stands in the ${steps.indexOf(sought()) < steps.length / 2 ? "upper" : "lower"} half.`;
    }
    if (!now().first) return "No number differs here. Switch on three inputs, and look again.";
    if (!now().differs.weights) return "All maps are right: which line changes the output alone?";
    const { at, columns, words, here, right } = farthest("weights");
    const from = at - (at % columns);
    const among = (a, b) => range(columns).some((j) => a[from + j] === 0 && b[from + j] !== 0);
    return `Row “${words[from / columns]}” of the map ${among(right, here) ? "sees keys that it must not"
      : among(here, right) ? "misses keys that it should see" : "sees the right keys, in wrong shares"}.`;
  };
  const noticed = ui.later();
  const loss = lossPicture(noticed, () => ({
    right: losses.right[0], here: losses.curves[now().mistake] ?? null,
    steps: losses.log.run.steps, gap: training().gap, seen: SEEN,
    label: `Training loss of a small language model, dashed with the right layer, solid with this one: ${training().text}`,
  }));

  // --- who notices -------------------------------------------------------------------------
  const said = h("output", { class: "mha-said", "aria-live": "polite" });
  let heard = false; // a verdict that is to be in sight
  noticed.follow(() => {
    const { differs } = now();
    const { mark, text } = training();
    const rows = [["✓", "Python", "no error"], ["✓", "shapes", "all right"], [mark, "training loss", text],
      ...["weights", "output"].map((step) => [differs[step] ? "✗" : "✓", step === "weights" ? "map" : step,
        differs[step] ? `off by ${Math.abs(differs[step]) > 1e300 ? "∞" : differs[step].toFixed(2)}` : "right"])];
    const texts = JSON.stringify(rows);
    if (witnesses.dataset.rows !== texts) {
      witnesses.dataset.rows = texts;
      witnesses.replaceChildren(...rows.map(([sign, who, what]) => h("li", { "data-mark": sign },
        h("b", {}, `${sign} ${who} `), what)));
    }
  });
  ui.follow(() => {
    const { first, mistake } = now();
    const [taken, step] = [answer(), ui.get("guess")];
    const verdict = taken === SHOWN ? "" : taken ? (taken === patient().name
      ? "✓ Found! " : `✗ Not “${causeOf(known[taken])}”. `)
      : !ui.get("sealed") || !mistake || !GROUPS[step] ? ""
        : sought() ? `✗ Not “${GROUPS[step]}”: that line is right. ` : "✓ Found! ";
    put(said, { "data-mark": verdict[0] ?? "" });
    const before = said.textContent;
    say(said, verdict + (secret() ? (taken ? "Compare the maps again, and choose another."
        : "The name of the mistake is hidden until you have found it.")
      : sought() ? (first && !verdict ? "Which line makes the difference?" : hint())
      : !mistake ? "All its numbers are those of the right program."
        : !first ? `Wrong, but one input cannot show it: query, key and value are one tensor here. Switch on three inputs. [${mistake}]`
          : `check says: ${known[mistake]} [${mistake}]`));
    heard ||= Boolean(verdict && before && before !== said.textContent);
  });
  worked.follow(() => { // below the lines, which may have become more
    if (heard) said.scrollIntoView({ block: "nearest" });
    heard = false;
  });

  losing.append(loss, h("div", {}, witnesses, h("p", { class: "mha-caption mha-trained" },
    "Loss: of a whole training. Map and output: of this input.")));

  let table = null;
  const content = () => {
    if (table?.view === view) return table;
    const rows = view.right.map((x, k) => {
      const [i, j] = [Math.floor(k / view.columns), k % view.columns];
      return [`${view.words[i]} (${i})`, view.keys ? `${view.words[j]} (${j})` : j, shown(x), shown(view.here[k])];
    });
    table = { view, caption: which(), rows, columns: ["query", view.keys ? "key" : "feature", "right", "here"] };
    return table;
  };

  ui.root.append(
    onward, tryThis(ui, PUZZLES, "Puzzles"), tiles,
    h("div", { class: "mha-controls" }, question, chooser, show, gone, three, before, after, free, leave, undo),
    h("div", { class: "mha-task" }, quiz, lines), said,
    h("div", { class: "mha-below" }, picture, cell, losing, more("More: other maps, a table",
      h("div", { class: "mha-picks" }, title, buttons("b", "sequence", () => sizes.B), buttons("h", "head", () => view.H)),
      numbers(ui, "Every number as a table", content))),
  );
}, {
  question: "One of six programs is wrong: in which line?",
  lesson: ["mistakes", "opened", "step", "b", "h", "row", "column", "three", "patient", "sealed"],
  answered: ["guess"],
});

const end = (curve) => curve.slice(-LAST).reduce((sum, x) => sum + x, 0) / LAST;
const causeOf = (message) => message.slice(message.indexOf(": ") + 2).replace(/\.$/, "");

/** Lines of code, each of them broken where a name ends, if it must be. */
function write(element, lines) {
  const text = lines.join("\n");
  if (element.textContent === text) return;
  element.replaceChildren(...lines.map((line, i) => h("span", {}, (i + 1 < lines.length ? `${line}\n` : line)
    .split(/(?=\.[a-z])/).flatMap((part, j) => (j ? [h("wbr"), part] : part)))));
}
