// What there is to find: a wrong line, or what the patient of a day has.
import { patientOf, today } from "./break_it_daily.js";
import { WRONG } from "./break_it_mistakes.js";
import { NAMES } from "./break_it_programs.js";

export const SHOWN = "shown"; // in place of a guess: who gives up

export const GROUPS = { // of the mistakes, by the step where they are made
  mask: "making the mask", project: "projections and inputs", split: "cutting into heads", scores: "scores and scale",
  hide: "hiding keys", weights: "softmax", context: "weights meet values", merge: "merging the heads", output: "output projection",
};

export const none = ["", "", "", "", "", ""];
export const fresh = { step: "", b: -1, h: -1, row: -1, column: -1 };
export const begin = { ...fresh, three: false, patient: "", sealed: false, guess: "" };
/** A state, and what of it has to stay for it to be the same puzzle: other numbers may be looked at. */
const holding = (state) => {
  const { mistakes, opened, patient, sealed } = state;
  return { state, holds: { mistakes, opened, patient, sealed } };
};
const puzzle = (style, mistake) => {
  const opened = NAMES.indexOf(style);
  return holding({ ...begin, sealed: true, mistakes: none.with(opened, mistake), opened });
};
export const visiting = (date) => ({ ...begin, mistakes: none, patient: date, opened: patientOf(date).at });
export const PUZZLES = () => ({ // named by the symptom, not by its cause
  "low loss": puzzle("FusedMHA", "causal-sees-next"),
  "flat map": puzzle("BatchedMHA", "scale-embed-dim"),
  "odd map": puzzle("BuiltinMHA", "split-by-view"),
  output: puzzle("SplitConcatMHA", "merge-batch-major"),
  silent: puzzle("EinsumMHA", "kv-from-query"),
  daily: holding(visiting(today())),
});

/**
 * How far the reader is. `known` is the catalogue, `now()` the open program,
 * `programs()` are all six.
 *
 * patient(): of the day that is shown, or null. answer(): the last one to what he has;
 * secret(): whether that is hidden still. sought(): of a sealed program the step that is
 * wrong, while nobody has found it; seeking(): whether any of the six is so; solved(): that step, once it is found or shown;
 * over(): the same, of a patient too.
 * `tried.steps`: the answers that were wrong.
 */
export function quest(ui, known, now, programs) {
  const patient = () => (ui.get("patient") ? patientOf(ui.get("patient")) : null);
  /** The last answer to what the patient has; the right one uncovers it, or giving up. */
  const answer = () => {
    const [date, name] = ui.get("guess").split(" ");
    return patient() && date === ui.get("patient") && [...Object.keys(known), SHOWN].includes(name) ? name : "";
  };
  const secret = () => patient() && ![patient().name, SHOWN].includes(answer());
  /** Of a sealed program: the step that is wrong, while nobody has found it. */
  const soughtOf = ({ mistake, first }) => {
    const step = first || WRONG[mistake]?.step;
    return ui.get("sealed") && mistake && !patient() && ![step, SHOWN].includes(ui.get("guess")) ? step : "";
  };
  const sought = () => soughtOf(now());
  const seeking = () => programs().some(soughtOf);
  /** Of a puzzle that is over: the line that makes the difference. */
  const solved = () => (ui.get("sealed") && ui.get("guess") && !patient() && !sought() && now().mistake
    ? now().first || WRONG[now().mistake].step : "");
  const over = () => solved() || (patient() && !secret() ? now().first || (WRONG[now().mistake]?.step ?? "") : "");
  const tried = { of: null, steps: new Set() }; // of one puzzle: the answers that are wrong
  ui.follow(() => {
    const [of, guess] = [now(), ui.get("guess")];
    if (of !== tried.of || !guess) [tried.of, tried.steps] = [of, new Set()];
    if (sought() && guess) tried.steps.add(guess);
    if (secret() && answer()) tried.steps.add(answer());
  });
  return { patient, answer, secret, sought, seeking, solved, over, tried };
}

/** What is asked, of what the numbers of the six programs show. */
export function titleOf(programs, { secret, seeking, patient }, opened) {
  const wrong = programs.filter(({ first }) => first).length;
  if (secret()) return "One of six is wrong: what is its mistake?";
  if (opened.first) return `Program ${opened.style.replace("MHA", "")} is wrong: in which line?`;
  if (!opened.mistake && seeking()) return `This program is right: in which line ${wrong > 1 ? "are the others" : "is the other"} wrong?`;
  if (wrong && !opened.mistake) return `This program is right${patient() ? "." : ": which mistake would show in it?"}`;
  if (programs.some(({ mistake }) => mistake)) return "No number is wrong here: is each line right?";
  return "Six programs, one function: which mistake shows?";
}
