// What all widgets share: a root that follows its model, controls, tables.
import { acceptable, changed, packed, unpacked } from "./address.js";
import { Problem } from "./arithmetic.js";
import { forget } from "./canvas.js";
import { focusKeeper } from "./focus.js";
import { idleTasks, inFrames } from "./frames.js";

// --- the root ---------------------------------------------------------------------

let serial = 0;
const [LINK, ALOUD] = ["copy link", "mha-aloud"];

/**
 * Make the `render` of a widget. `build(ui)` fills `ui.root` once; what it gives to
 * `ui.follow` runs at once and again after every change, once a frame. What it gives to
 * `ui.draw` runs after all of these: a canvas asks for styles, and so the page for its
 * layout, which then stands. What follows `ui.later()` has a frame of its own after these;
 * when all is drawn, the root is no longer `aria-busy`.
 * `ui.width(element)` is its clientWidth, read when it changed, or `anew`.
 * What an act may ask for is given to `ui.ahead`: each task runs once, while the page is
 * idle, after the reader's pointer or focus has come.
 *
 * `question` and `lead` stand above all else: what to find out, and in one sentence how;
 * a lead that depends on what is shown is left out here and given by `ui.lead`, and what
 * a copied link opens, where it is not the state that is seen, by `ui.linked`.
 * `lesson` names the traits that *reset* brings back and a link carries, `answered` those
 * that *reset* brings back and no link gives away.
 */
export function widget(name, build, { question, lead = "", lesson = [], answered = [] } = {}) {
  function render({ model, el }) {
    const own = `mha-${name.toLowerCase().replaceAll(" ", "-")}`; // as in `style` of base.py
    const root = h("div", { class: `mha ${own}`, role: "group", "aria-label": name });
    el.replaceChildren(root);
    const state = () => Object.fromEntries(lesson.map((trait) => [trait, model.get(trait)]));
    const first = state();
    const untouched = Object.fromEntries(answered.map((trait) => [trait, model.get(trait)]));
    const hint = h("p", { class: "mha-lead" });
    const place = el.dataset.widget === undefined ? "" // no page of ours around it
      : `${own}-${document.querySelectorAll(`[data-widget] .${own}`).length}`;
    // Arrow keys are the notebook's: JupyterLab and the classic one take them on their
    // way up, Notebook 7 on their way down, unless what has the focus bears this mark.
    root.addEventListener("focusin", ({ target }) => put(target, { "data-lm-suppress-shortcuts": true }));
    for (const type of ["keydown", "keyup", "keypress"]) {
      root.addEventListener(type, (event) => event.stopPropagation());
    }
    let [followers, drawers, laters] = [[], [], []];
    const widths = new Map();
    let [wide, stale] = [0, false]; // stale: drawn for another width, or in part
    /** What was once as high stays so, while nothing is folded out: nothing below jumps up. */
    const reserve = () => {
      if (!root.querySelector("details[open]")) root.style.minHeight = `${root.offsetHeight}px`;
    };
    const resized = () => {
      const other = root.clientWidth !== wide;
      if (wide && other) [stale, root.style.minHeight] = [true, ""];
      wide = root.clientWidth;
      stale ||= root.getAttribute("aria-busy") === "true";
      if (!stale) reserve();
      return other;
    };
    const size = new ResizeObserver((entries) => {
      const all = entries.some(({ target }) => target === root) && resized();
      const other = entries.filter(({ target }) => widths.get(target) !== target.clientWidth);
      for (const { target } of other) widths.set(target, target.clientWidth);
      if (!other.length) return;
      if (all || matchMedia("print").matches) { // in one frame: no paper comes in between
        fitting ||= requestAnimationFrame(() => {
          fitting = 0;
          update();
        });
      } else schedule(); // by an act
    });
    let fitting = 0;
    let broken = true;
    const ahead = idleTasks(root, () => !broken);
    const guarded = (action) => {
      try {
        action();
      } catch (error) {
        broken = true;
        const reason = error instanceof Problem ? error.message : `${error}`;
        root.replaceChildren(
          h("p", { class: "mha-problem", role: "status" }, `${name} cannot be drawn: ${reason}`),
        );
      }
    };
    const ui = {
      root,
      id: `mha-${++serial}`,
      get: (trait) => model.get(trait),
      set: (trait, value) => ui.setAll({ [trait]: value }),
      /** Several traits in one message, so that Python never sees one without the other. */
      setAll(values) {
        for (const [trait, value] of Object.entries(values)) model.set(trait, value);
        model.save_changes();
        schedule();
      },
      follow: (follower) => followers.push(follower),
      draw: (drawer) => drawers.push(drawer),
      later() {
        const steps = [];
        laters.push(() => steps.forEach((step) => step()));
        const add = (step) => steps.push(step);
        return { ...ui, follow: add, draw: add };
      },
      ahead: ahead.add,
      busy: (waits) => hold(waits), // for something that comes from elsewhere
      width(element, anew = false) {
        if (!widths.has(element)) size.observe(element);
        if (anew || !widths.has(element)) widths.set(element, element.clientWidth);
        return widths.get(element);
      },
      redraw: () => schedule(),
      first,
      answered,
      reset: () => ui.setAll({ ...first, ...untouched }),
      lead: (text) => say(hint, text),
      question: (text = question) => say(asked, text),
      linked: (text) => { opens = text; },
    };
    let opens = ""; // else the state that is seen
    const said = readout();
    let meant = ""; // the state that it speaks of
    const tell = (text, how = "") => {
      meant = JSON.stringify(state());
      said.className = `mha-readout ${how}`;
      say(said, text);
      say(link, how === ALOUD ? "copied ✓" : LINK);
    };
    const link = button(LINK, async () => {
      window.history.replaceState(null, "", `#${place}=${packed(changed(state(), first))}`);
      const taken = await toClipboard(location.href);
      if (taken) tell(`Copied. ${opens || "The link opens this page in this state."}`, ALOUD); // the button shows it, and nothing moves
      else tell("The address bar now holds this state: copy it.", "mha-over"); // as on file://
    });
    const asked = h("p", { class: "mha-question" }, question);
    const top = question ? h("div", { class: "mha-top" },
      asked,
      h("span", { class: "mha-tools" }, button("reset", () => {
        ui.reset();
        if (location.hash.startsWith(`#${place}=`)) history.replaceState(null, "", location.href.split("#")[0]);
      }), place ? link : null)) : null;
    const rebuild = () => {
      [followers, drawers, laters] = [[], [], []];
      ahead.clear();
      ahead.add(() => due() || followers.forEach((step) => step())); // their code is then at hand for the first act
      size.disconnect();
      widths.clear();
      ui.width(root);
      root.replaceChildren();
      broken = false;
      if (top) root.append(top, hint, said);
      ui.lead(lead);
      build(ui);
    };
    const part = (action) => {
      const keep = focusKeeper(root);
      guarded(action);
      keep();
    };
    const { ask: schedule, now: update, due, hold, stop } = inFrames(root, {
      first: () => part(() => {
        if (broken) rebuild();
        if (said.textContent && meant !== JSON.stringify(state())) tell("");
        for (const step of [...followers, ...drawers]) step();
      }),
      rest: () => laters.map((later) => () => broken || part(later)),
      done() {
        if (stale) reserve();
        stale = false;
      },
    });
    /** The state that the address holds, if it is of this widget and can be drawn; its place alone is the first. */
    const follow = () => {
      const [target, text] = location.hash.slice(1).split("=");
      if (!place || target !== place) return;
      const values = text === undefined ? {} : acceptable(unpacked(text), first);
      if (values) ui.setAll({ ...first, ...values });
      update();
      const drawn = !broken;
      if (!drawn) {
        ui.setAll(first);
        update();
      }
      tell(values && drawn ? "" : "The link does not hold a state that can be shown. This is where the lesson begins.");
      root.scrollIntoView({ block: "center", behavior: "instant" }); // no page flies past
    };
    update();
    follow();
    root.addEventListener("toggle", () => schedule(), true); // what was folded may be undrawn
    addEventListener("hashchange", follow);
    model.on("change", schedule);
    const theme = new MutationObserver(() => {
      forget(root);
      update(); // now: paper does not wait for a frame
    });
    const attributeFilter = ["data-theme", "data-jp-theme-light", "class", "theme"];
    for (const node of [document.documentElement, document.body]) {
      theme.observe(node, { attributes: true, attributeFilter });
    }
    return () => {
      cancelAnimationFrame(fitting);
      stop();
      removeEventListener("hashchange", follow);
      model.off("change", schedule);
      size.disconnect();
      theme.disconnect();
    };
  }
  return { render };
}

/** An element: properties that start with "on" are listeners, the rest attributes. */
export function h(tag, properties = {}, ...children) {
  return furnish(document.createElement(tag), properties, children);
}

/** The same for a drawing: svg("svg", {width: 9, height: 9}, svg("rect", {…})). */
export function svg(tag, properties = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function furnish(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** Write a text only where it differs: a live region speaks of each change. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const OF_ROLES = /\b((?:[Wb]_)?[qkv](?:_\w+)?|query|key|value)\b/;

/** Code as parts, in which each name of query, key or value has its colour. */
export const inRoles = (code) => code.split(OF_ROLES).map((part, i) => (i % 2
  ? h("span", { class: `mha-role-${part.replace(/^[Wb]_/, "")[0]}` }, part) : part));

/** Write attributes only where they differ: each one written is style computed anew. */
export function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
  }
}

/** What an element is to be, for `become`: of plain texts and numbers, without listeners. */
export const as = (tag, properties = {}, ...children) => ({ tag, properties, children: children.flat() });

const became = new WeakMap(); // of an element, what it was to be

/** Make an element so from the nodes that it has: what stays alike is not laid out anew. */
export function become(element, { tag, properties, children }) {
  const old = became.get(element) ?? as(tag);
  became.set(element, { properties, children });
  for (const name in old.properties) if (!(name in properties)) element.removeAttribute(name);
  for (const name in properties) {
    if (old.properties[name] !== properties[name]) element.setAttribute(name, properties[name]);
  }
  const nodes = [...element.childNodes];
  children.forEach((child, i) => {
    if (child === old.children[i]) return;
    if (nodes[i] && old.children[i].tag === child.tag) {
      if (child.tag) become(nodes[i], child);
      else nodes[i].data = child;
      return;
    }
    const node = child.tag ? become(document.createElement(child.tag), child) : document.createTextNode(child);
    if (nodes[i]) nodes[i].replaceWith(node);
    else element.append(node);
  });
  for (const node of nodes.slice(children.length)) node.remove();
  return element;
}

/** A line that screen readers speak when it changes. */
export function readout() {
  return h("output", { class: "mha-readout", "aria-live": "polite" });
}

/** Put a text where the reader can paste it from; false where the browser refuses. */
export const toClipboard = (text) =>
  (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => true, () => false);

export const motionReduced = () =>
  matchMedia("(prefers-reduced-motion: reduce)").matches;

// --- controls, each bound to one trait ---------------------------------------------

function labelled(text, input, ...rest) {
  input.id = `mha-input-${++serial}`; // not inside the label: its text would be the name
  return h("span", { class: "mha-control" }, h("label", { for: input.id }, text), input, ...rest);
}

/** A list to choose from. `options()` gives [value, text] pairs, anew on each change. */
export function choice(ui, { label, trait, options }) {
  const select = h("select", {
    onchange: () => ui.set(trait, pairs[select.selectedIndex][0]),
  });
  let pairs = [];
  let shown = "";
  ui.follow(() => {
    pairs = typeof options === "function" ? options() : options;
    const texts = JSON.stringify(pairs);
    if (texts !== shown) {
      select.replaceChildren(...pairs.map(([, text]) => h("option", {}, `${text}`)));
      shown = texts;
    }
    select.selectedIndex = pairs.findIndex(([value]) => value === ui.get(trait));
  });
  return labelled(label, select);
}

/**
 * A slider with its value beside it. `range()` gives {min, max, step}; or `values()` gives
 * the numbers that it steps through, whatever lies between them.
 */
export function slider(ui, { label, trait, range, values, format = (x) => `${x}` }) {
  const input = h("input", {
    type: "range",
    oninput: () => ui.set(trait, steps ? steps[input.value] : Number(input.value)),
  });
  const value = h("span", { class: "mha-value", "aria-hidden": "true" });
  const nearest = (x) => steps.reduce((i, y, j) => (Math.abs(y - x) < Math.abs(steps[i] - x) ? j : i), 0);
  let steps = null;
  ui.follow(() => {
    steps = values?.();
    const all = steps ? { min: 0, max: steps.length - 1 } : typeof range === "function" ? range() : range;
    const { min, max, step = 1 } = all;
    Object.assign(input, { min, max, step });
    input.value = steps ? nearest(ui.get(trait)) : ui.get(trait);
    const text = format(ui.get(trait));
    input.setAttribute("aria-valuetext", text);
    say(value, text);
  });
  return labelled(label, input, value);
}

export function toggle(ui, { label, trait }) {
  const input = h("input", {
    type: "checkbox",
    onchange: () => ui.set(trait, input.checked),
  });
  ui.follow(() => {
    input.checked = ui.get(trait);
  });
  return h("label", { class: "mha-control mha-toggle" }, input, h("span", {}, label));
}

export function button(label, action) {
  return h("button", { type: "button", class: "mha-button", onclick: action }, label);
}

/** What is seldom needed, folded away below the rest. */
export function more(title, ...children) {
  return h("details", { class: "mha-more" }, h("summary", {}, title), ...children);
}

/** Show whether a button is the chosen one. */
export const press = (one, pressed) => put(one, { "aria-pressed": pressed });

/**
 * Buttons that set the states which are worth a look. `offered()` gives
 * {title: {state, note, notes, holds, under}}: the traits to set, and a sentence on what
 * is seen then; `notes`, if it may become another. Such a state lasts as long as the traits of `holds` do, or else all of it.
 * `under` is [the question's words before the title, those after it]: the first of a
 * question has them before it, as a caption. Of a state of the reader's own `own()` speaks.
 */
export function tryThis(ui, offered, caption = "Try this", own = () => "") {
  const row = h("div", { class: "mha-tries", role: "group", "aria-label": caption.toLowerCase() });
  const note = h("output", { class: "mha-note", "aria-live": "polite" });
  const room = h("div", { class: "mha-room" }, note);
  const is = (state) => Object.entries(state).every(([trait, x]) => ui.answered.includes(trait) ||
    JSON.stringify(ui.get(trait)) === JSON.stringify(x));
  let [all, shown] = [{}, ""];
  ui.follow(() => {
    all = offered();
    const titles = Object.keys(all);
    if (`${titles}` !== shown) {
      let last = null;
      row.replaceChildren(captioned(`${caption}:`), ...titles.flatMap((title) => {
        const { under } = all[title];
        const one = button(title, () => ui.setAll(all[title].state));
        if (under) put(one, { "aria-label": `${under[0]} ${title}${under[1]}` });
        const head = under && under[0] !== last ? [h("span", { class: "mha-line-end" }), captioned(`${under[0]}:`)] : [];
        last = under?.[0];
        return [...head, one];
      }));
      shown = `${titles}`;
    }
    const now = titles.findIndex((title) => is(all[title].holds ?? all[title].state));
    row.querySelectorAll("button").forEach((one, i) => press(one, i === now));
    const text = now < 0 ? own() : all[titles[now]].note ?? "";
    put(note, { "data-mark": "✓✗".includes(text[0]) ? text[0] : "" });
    say(note, text);
    row.hidden = !titles.length;
    const notes = titles.flatMap((title) => all[title].notes ?? all[title].note ?? []);
    keepRoom(room, notes);
    room.hidden = !notes.length; // some speak elsewhere
  });
  return h("div", {}, row, room);
}

/** Give the line of a `mha-room` the place of the longest of these texts, whatever it says. */
export function keepRoom(room, texts) {
  const [line, ...unsaid] = room.children;
  if (`${unsaid.map((one) => one.textContent)}` === `${texts}`) return;
  room.replaceChildren(line, ...texts.map((text) => h("span", { class: "mha-unsaid", "aria-hidden": "true" }, text)));
}

const captioned = (text) => h("span", { class: "mha-caption" }, text);

export function controls(...children) {
  return h("div", { class: "mha-controls" }, ...children);
}

// --- tables: the text alternative of every picture ----------------------------------

/** A folded table; `content()` gives {caption, columns, rows: [[head, ...cells]]}. */
export function numbers(ui, title, content) {
  const table = h("table");
  const details = h(
    "details",
    { class: "mha-numbers", ontoggle: () => ui.redraw() },
    h("summary", {}, title),
    h("div", { class: "mha-scroll", tabindex: "0", role: "group", "aria-label": title }, table),
  );
  let drawn = null;
  ui.follow(() => {
    if (!details.open) return; // a large table takes longer than a frame
    const wanted = content();
    if (wanted === drawn) return; // the same object: nothing changed
    drawn = wanted;
    const { caption, columns, rows } = wanted;
    const cells = ([head, ...rest]) =>
      h("tr", {}, h("th", { scope: "row" }, Array.isArray(head) ? head : `${head}`), rest.map((x) => h("td", {}, `${x}`)));
    table.replaceChildren(
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((x) => h("th", { scope: "col" }, `${x}`)))),
      h("tbody", {}, rows.map(cells)),
    );
  });
  return details;
}
