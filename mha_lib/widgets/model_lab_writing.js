// What the model's lab folds away: it writes on, and the loss of what is written.
import { fixed, range } from "./arithmetic.js";
import { button, controls, h, more, motionReduced, put, say, slider } from "./common.js";
import { readable } from "./model_lab_views.js";

const TEMPERATURES = range(21).map((i) => i / 10);
const AT_ONCE = 40; // tokens that it writes before it stops
const PAUSE = 90; // milliseconds from one to the next
const SHARE = 6; // milliseconds of a frame for writing, where nothing may move

/**
 * `view()` is what is shown, `lab()` the model at work, `which()` says without which heads;
 * `examples` are the states to try that need what lies here, `note` says what they show.
 */
export function writing(ui, {
  area, asked, begins, change, full, which, withModel, lab, view, examples, note,
}) {
  const fold = more("More: writing, temperature, loss");
  const cells = range(2).map(() => [h("th", { scope: "row" }), h("td"), h("td", { class: "mha-goes" })]);
  const beside = h("table", { class: "mha-beside" },
    h("caption", {}, "loss: average surprise, mean over the text so far; what comes next is in the bars"),
    h("thead", {}, h("tr", {}, h("td"), ["loss (nats)", "how it goes on"].map((x) => h("th", { scope: "col" }, x)))),
    h("tbody", {}, cells.map((row) => h("tr", {}, row))));
  const both = h("div", { class: "mha-both" }, beside, note);
  let drawnBefore = null;
  ui.follow(() => {
    if (!fold.open) return;
    const now = view();
    const later = now !== drawnBefore && now !== ui.get("first"); // ten tokens: in a frame of their own
    if (later) ui.redraw();
    drawnBefore = now;
    const some = ui.get("off").length > 0;
    put(beside, { "aria-label": "the whole model beside the one with heads off: loss of the text in nats a token, and how it goes on" });
    cells.forEach(([title, loss, goes], k) => {
      title.parentElement.hidden = k === 1 && !some;
      say(title, k ? which() : "whole model");
      say(loss, now.losses[k] === null ? "–" : fixed(now.losses[k]));
      if (!later) say(goes, readable(now.goes[k]) || "No room: the context is full.");
    });
  });

  // --- writing on -----------------------------------------------------------------------
  let timer = 0;
  let left = 0;
  let [from, draft] = ["", ""]; // the text that is seen, and what it becomes
  let [begun, written] = ["", ""]; // what was written on, and what came of it
  const write = button("write on", () => (left ? stop(true) : withModel(() => {
    begins();
    writeOn();
  })));
  function writeOn() {
    left = AT_ONCE;
    from = draft = ui.get("text");
    if (from !== written) begun = written = from;
    writeSome();
  }
  /** One token a frame and a pause; or, where nothing may move, all of them seen at once. */
  function writeSome() {
    if (!ui.root.isConnected || ui.get("text") !== from) return stop(); // somebody else wrote
    const still = motionReduced();
    const until = performance.now() + SHARE;
    do {
      const text = lab().writeOn(draft, { ...asked(), seed: ui.get("seed") });
      left = text ? left - 1 : 0;
      draft = text || draft;
    } while (still && left && performance.now() < until);
    if (!still || !left) showDraft();
    timer = left ? setTimeout(writeSome, still ? 0 : PAUSE) : 0;
    ui.redraw();
  }
  function showDraft() {
    if (draft !== from) change({ text: draft });
    from = written = draft;
  }
  function stop(keep = false) {
    clearTimeout(timer);
    if (left && keep) showDraft();
    left = 0;
    ui.redraw();
  }
  /** Another text after the same beginning: what the last seed wrote goes. */
  const again = button("", () => withModel(() => {
    stop(true);
    begins();
    const seed = (ui.get("seed") + 1) % 2 ** 31;
    change({ seed, text: ui.get("text") === written ? begun : ui.get("text") });
    writeOn();
  }));
  ui.follow(() => {
    say(write, left ? "stop" : ui.get("off").length ? `write on ${which()}` : "write on, whole model");
    write.disabled = !left && (!ui.get("text") || full());
    const sure = ui.get("temperature") === 0;
    say(again, sure ? "nothing is drawn at 0" : `seed ${ui.get("seed")}: take another`);
    again.disabled = sure || !ui.get("text") || (full() && ui.get("text") !== written);
    if (left) area.scrollTop = area.scrollHeight;
  });

  const warmth = slider({ ...ui, set: (trait, value) => {
    begins(trait);
    ui.set(trait, value);
  } }, {
    label: "temperature", trait: "temperature", values: () => TEMPERATURES,
    format: (t) => fixed(t, 1),
  });
  fold.append(controls(warmth, write, again, examples), both);
  return { fold, both, stop };
}
