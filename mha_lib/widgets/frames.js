// When work is done: an act is answered in one frame, what takes long besides is drawn in
// those after it, and what an act may ask for is made while the page is idle.

/**
 * `ask()` has `first()` done in the next frame, each of `rest()` in a frame of its own,
 * then `done()`. Who asks meanwhile has all of it in the next frame: a part of `rest()` needs
 * what `first()` has made of the same state. `now()` does all at once; `due()` is whether a frame
 * will do something.
 * Until all is drawn, and while it is held, the root is `aria-busy`.
 */
export function inFrames(root, { first, rest, done }) {
  let [frame, asked, parts, held] = [0, false, [], false];
  const tell = () => root.setAttribute("aria-busy", held || Boolean(frame && rest().length));
  const step = () => {
    if (asked) {
      const late = parts.length > 0;
      asked = false;
      first();
      parts = rest();
      while (late && parts.length) parts.shift()();
    } else parts.shift()();
    if (!parts.length) done();
    frame = asked || parts.length ? requestAnimationFrame(step) : 0;
    tell();
  };
  return {
    ask() {
      asked = true;
      frame ||= requestAnimationFrame(step);
      tell();
    },
    now() {
      cancelAnimationFrame(frame);
      [frame, asked, parts] = [0, false, []];
      first();
      for (const part of rest()) part();
      done();
      tell();
    },
    due: () => frame !== 0,
    hold(waits) {
      held = waits;
      tell();
    },
    stop: () => cancelAnimationFrame(frame),
  };
}

/** Wait until the page has nothing else to do. */
export const idle = () =>
  new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(() => resolve())); // Safari has none

/** Tasks that run once, each while the page is idle, after the pointer or the focus has come. */
export function idleTasks(root, alive) {
  let [tasks, near] = [[], false];
  const go = async () => {
    await idle();
    while (tasks.length && root.isConnected && alive()) {
      const task = tasks.shift();
      try {
        task();
      } catch { /* the act that asks for it says why */ }
      await idle();
    }
  };
  const approached = () => {
    if (!near) go();
    near = true;
  };
  for (const type of ["pointerenter", "focusin"]) root.addEventListener(type, approached);
  return {
    add(...given) {
      tasks.push(...given);
      if (near) go();
    },
    clear: () => { tasks = []; },
  };
}
