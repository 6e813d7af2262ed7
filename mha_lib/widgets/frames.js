// An act is answered in one frame; what takes long besides is drawn in those after it.

/**
 * `ask()` has `first()` done in the next frame, each of `rest()` in a frame of its own,
 * then `done()`; what is asked for meanwhile comes after them. `now()` does all at once.
 */
export function inFrames(root, { first, rest, done }) {
  let [frame, asked, due] = [0, false, []];
  const step = () => {
    if (due.length) due.shift()();
    else {
      asked = false;
      first();
      due = rest();
    }
    if (!due.length) done();
    frame = asked || due.length ? requestAnimationFrame(step) : 0;
    if (!frame && rest().length) root.removeAttribute("aria-busy");
  };
  return {
    ask() {
      asked = true;
      frame ||= requestAnimationFrame(step);
      if (rest().length) root.setAttribute("aria-busy", "true");
    },
    now() {
      due = [];
      first();
      for (const part of rest()) part();
      done();
    },
    stop: () => cancelAnimationFrame(frame),
  };
}
