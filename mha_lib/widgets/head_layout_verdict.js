// What the code of a step claims about each place, and whether that stands there.
import { run, STARTS } from "./head_layout_steps.js";
import { cellsOf, indices } from "./tensor.js";

export const TOKENS = ["abcdef", "uvwxyz"]; // of sequence 0 and of sequence 1

export const and = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
export const axisName = (letters, axis) => (letters?.length ? letters.join("·").replace("H·D", "E") : `axis ${axis}`);
export const isAxis = (letters, name) => Boolean(letters) && letters.join("") === name;

export function origin(element, { T, H, D }) {
  const e = element % (H * D);
  const row = (element - e) / (H * D);
  return { b: Math.floor(row / T), t: row % T, h: Math.floor(e / D), d: e % D, e };
}

export const tokenOf = ({ b, t }) => TOKENS[b][t];
export const labelOf = (element, sizes) => {
  const place = origin(element, sizes);
  return tokenOf(place) + place.e;
};

/** The element that belongs at these indices if each axis is what its name says. */
function claimed(names, index, sizes) {
  const found = { B: 0, T: 0, H: 0, D: 0 };
  const seen = names.flat();
  names.forEach((letters, axis) => {
    let rest = index[axis];
    for (const letter of [...(letters ?? [])].reverse()) {
      found[letter] = rest % sizes[letter];
      rest = Math.floor(rest / sizes[letter]);
    }
  });
  const once = (letter) => seen.filter((x) => x === letter).length === 1;
  const known = Object.keys(found).every((l) => once(l) || (sizes[l] === 1 && !seen.includes(l)));
  return known && !seen.includes(null) ? STARTS.x(found.B, found.H, found.T, found.D, sizes) : null;
}

/** What `of(x, sizes)` gives, computed once for each x: it was made for these sizes alone. */
function once(of) {
  const known = new WeakMap();
  return (x, sizes) => {
    if (!known.has(x)) known.set(x, of(x, sizes));
    return known.get(x);
  };
}

/** Every place of a value in reading order; the parts of a tuple are one more axis. */
export const places = once(({ parts, name, tuple }, sizes) => {
  return parts.flatMap((x, part) => {
    const cells = cellsOf(x);
    return indices(x.shape).map((index, n) => ({
      part, index,
      cell: cells[n],
      element: x.memory[cells[n]],
      claim: claimed(tuple ? [name, ...x.names] : x.names, tuple ? [part, ...index] : index, sizes),
      table: [part, ...index.slice(0, -2)].join(),
      row: [part, ...index.slice(0, -1)].join(),
    }));
  });
});

/** Sorted numbers as "0–3, 8". */
function spans(sorted) {
  const begins = sorted.filter((n, i) => n !== sorted[i - 1] + 1);
  const ends = sorted.filter((n, i) => n !== sorted[i + 1] - 1);
  return begins.map((n, i) => (n === ends[i] ? n : `${n}–${ends[i]}`)).join(", ");
}

const several = (word, count) => (count > 1 ? `${word}s` : word);

/** "features 0–1 of tokens a, b and c" */
function describe(sorted, sizes) {
  const of = (key, items) => Object.entries(Object.groupBy(items, key));
  const tokens = of((place) => tokenOf(place), sorted.map((element) => origin(element, sizes)))
    .map(([token, list]) => ({ token, text: `${several("feature", list.length)} ${spans(list.map(({ e }) => e))}` }));
  return of(({ text }) => text, tokens)
    .map(([text, list]) => `${text} of ${several("token", list.length)} ${and(list.map(({ token }) => token))}`)
    .join(", and ");
}

/** A verdict on one state: a mark, a few words, a sentence. */
export const judge = once((state, sizes) => {
  const verdict = (mark, short, text) => ({ mark, short, text });
  if (state.error) {
    const { type, why } = state.error;
    return verdict("!", `torch raises ${type}`, why || "No tensor comes out of this step.");
  }
  const { names } = state.value.parts[0];
  const all = places(state.value, sizes);
  if (all[0].claim === null) {
    return verdict("·", "axes without names", "These axes are not named by B, T, H and D, one each. " +
      "So nothing is claimed about a place, and nothing can be wrong.");
  }
  const ends = (row, column) => isAxis(names.at(-2), row) && isAxis(names.at(-1), column);
  const heads = ends("T", "D");
  const unit = heads ? "table" : "row"; // what one head, or one line, holds together
  const mates = (place) => all.filter((other) => other[unit] === place[unit]);
  const sorted = (group, key) => group.map((place) => place[key]).sort((a, b) => a - b);
  const holding = (group, key) => describe(sorted(group, key), sizes);
  const owner = (place) => {
    const { b, h: head } = origin(place.claim, sizes);
    return heads ? `Head ${head}${sizes.B > 1 ? ` of sequence ${b}` : ""}`
      : `The row ${caption(leading(place, state.value, 1, sizes))}`;
  };
  const told = (group) =>
    `${owner(group[0])} reads the cells ${spans(sorted(group, "cell"))}: ${holding(group, "element")}`;

  const wrong = all.filter((place) => place.claim !== place.element);
  if (wrong.length) {
    const groups = wrong.map(mates);
    const bad = groups.find((one) => `${sorted(one, "claim")}` !== `${sorted(one, "element")}`) ?? groups[0];
    const due = holding(bad, "claim");
    const order = due === holding(bad, "element") ? ", in another order" : `. It should hold ${due}`;
    const differs = (key) => wrong.some(({ claim, element }) =>
      origin(claim, sizes)[key] !== origin(element, sizes)[key]);
    const what = differs("b") ? "Sequences" : differs("t") ? "Tokens" : null;
    if (what) {
      return verdict("✗", `${what.toLowerCase()} are mixed`,
        `${told(bad)}${order}. ${what} are mixed. torch raises no error: the shape fits.`);
    }
    return verdict("✗", "heads own other features",
      `${told(bad)}${order}. No token is mixed, but a model trained with the usual split fails here.`);
  }
  if (heads) {
    return verdict("✓", "ready for attention",
      `${told(mates(all[0]))}. Its last two axes are (T, D), as attention needs and returns them.`);
  }
  if (ends("T", "HD")) {
    return verdict("✓", "one row a token", "Every row is one token with all its features in order.");
  }
  return verdict("…", "right so far", ends("H", "D")
    ? "Every row is one slice of one token. But attention works on the last two axes, here (H, D): " +
      "it would compare the heads of one token. T and H have to change places."
    : "Every number stands where the names of the axes say.");
});

/** Where a number belongs and where it lies in each of [where, state]; "" where nothing is claimed. */
export function whereItLies(element, states, sizes) {
  const nameOf = (place) =>
    `token ${tokenOf(place)}${sizes.B > 1 ? ` of sequence ${place.b}` : ""}, head ${place.h}`;
  const home = origin(element, sizes);
  const found = states.map(([where, state]) => ({
    where, state, place: state.value && places(state.value, sizes).find((one) => one.element === element),
  })).filter(({ place }) => place && place.claim !== null);
  const faults = found.flatMap(({ where, state, place: { claim } }) => {
    const here = origin(claim, sizes);
    const otherwise = nameOf(here) === nameOf(home) ? `, but as number ${here.d} instead of ${home.d}` : "";
    if (claim !== element) return [`${where} it lies in ${nameOf(here)}${otherwise} ✗`.trim()];
    return judge(state, sizes).mark === "✗" ? [`${where} it lies right by chance`.trim()] : [];
  });
  const there = found.length > 1 ? " in both" : found[0]?.where && ` ${found[0].where}`;
  const told = faults.length ? `; ${and(faults)}` : `, and lies there${there} ✓`;
  return found.length ? `${labelOf(element, sizes)} belongs to ${nameOf(home)}${told}.` : "";
}

/** Right only because an axis has size 1? Then say with which sizes it is wrong. */
export function luck(steps, sizes) {
  const ones = ["B", "T", "H", "D"].filter((letter) => sizes[letter] === 1);
  for (const letter of ones) {
    const grown = { ...sizes, [letter]: 2 };
    grown.E = grown.H * grown.D;
    const { mark, short } = judge(run(steps, grown).at(-1), grown);
    if ("✗!".includes(mark)) return ` But only because ${letter} = 1: with ${letter} = 2, ${short}.`;
  }
  return "";
}

/** An index under its axis' name; that of a product such as H·B as two indices. */
function indexNames(letters, axis, i, sizes) {
  const name = axisName(letters, axis).toLowerCase();
  if (!name.includes("·")) return [[name, i]];
  let rest = i;
  return [...letters].reverse().map((letter) => {
    const here = rest % sizes[letter];
    rest = Math.floor(rest / sizes[letter]);
    return [letter.toLowerCase(), here];
  }).reverse();
}

/** A place's indices with their names, without the last `hidden` ones. */
export function leading({ part, index }, { parts: [x], name, tuple }, hidden, sizes) {
  const axes = index.slice(0, index.length - hidden).flatMap((i, axis) => indexNames(x.names[axis], axis, i, sizes));
  if (tuple) axes.unshift(...(name ? indexNames(name, 0, part, sizes) : [["part", part]]));
  return axes;
}

export const caption = (axes) => axes.map(([axis, i]) => `${axis} = ${i}`).join(", ");
