// What ModelLab shows of a text: the whole model beside the same with heads off.
import { range } from "./arithmetic.js";
import { chance, chances, draw, goOn, lossOf, makeRunner } from "./model_run.js";
import { makeTokenizer, UNKNOWN } from "./model_tokens.js";
import { unpackModel } from "./packed_model.js";

const SHOWN = 32; // tokens in a map, the last ones
const LISTED = 6; // of the tokens that may come next
const FURTHER = 10; // tokens that a model goes on with

export const STRANGE = "‹?›"; // in place of a sign that the model has never seen
/** A token with its spaces and line ends made visible. */
export const readable = (token) => token.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll(UNKNOWN, STRANGE);
export const QUOTE = '" quote'; // a mark alone is a speck where it stands small or turned
export const labelOf = (token) => (token.trim() === '"' ? readable(token).replace('"', QUOTE) : readable(token));
/** The same in a sentence, without a mark between marks. */
export const spoken = (token) => (token.trim() === '"' ? `‘${labelOf(token)}’` : `“${readable(token)}”`);

/** A packed model at work; it keeps what it has read of a text and its beginnings. */
export function makeLab(packed) {
  const model = unpackModel(packed);
  const { tokens, encode } = makeTokenizer(model);
  const { context } = model.sizes;
  const whole = makeRunner(model);
  let changed = whole;
  let written = { text: null, ids: [] }; // its own tokens, which a text may be cut into otherwise
  let last = null;

  const idsOf = (text) => (text === written.text ? written.ids : encode(text));
  const read = (text) => idsOf(text).slice(-context);
  const without = (off) => {
    if (!off.length) return whole;
    if (`${changed.off}` !== `${off}`) changed = makeRunner(model, off);
    return changed;
  };

  /** What is drawn; the same object as long as nothing changed. */
  function view(asked) {
    const key = JSON.stringify(asked);
    if (last?.key !== key) last = { key, view: look(asked) };
    return last.view;
  }

  /** `compared`: of all heads on, those that were off before; what they had changed is told. */
  function look({ text, off, compared = [], temperature }) {
    const ids = read(text);
    if (!ids.length) return null;
    const runners = [whole, without(off)];
    let [lost, further] = [null, null];
    const reads = runners.map((runner) => runner.read(ids));
    const before = chances(reads[0].at(-1).logits, temperature);
    const now = off.length ? chances(reads[1].at(-1).logits, temperature) : before;
    const likeliest = (other) => {
      const most = before.map((p, i) => Math.max(p, other[i]));
      const least = most.toSorted().at(-LISTED) ?? 0; // few are left to be put in order
      return range(tokens.length).filter((i) => most[i] && most[i] >= least)
        .sort((a, b) => most[b] - most[a] || a - b).slice(0, LISTED);
    };
    const other = off.length || !compared.length ? now
      : chances(without(compared).read(ids).at(-1).logits, temperature);
    const moved = (i) => Math.abs(before[i] - other[i]);
    const one = likeliest(other).reduce((most, i) => (moved(i) > moved(most) ? i : most));
    const from = Math.max(0, ids.length - SHOWN);
    return {
      words: ids.slice(from).map((id) => tokens[id]),
      read: ids.length,
      of: idsOf(text).length,
      next: likeliest(now).map((i) => [tokens[i], before[i], now[i]]),
      most: off.length || compared.length ? [tokens[one], before[one], other[one]] : null,
      get losses() { // each of all tokens: as what goes on
        return (lost ??= reads.map(lossOf));
      },
      get goes() { // ten tokens more: computed when it is asked for
        return (further ??= runners.map((runner) => goOn(runner, ids, FURTHER).map((i) => tokens[i]).join("")));
      },
      maps: reads[1][0].maps.map((_, head) =>
        reads[1].slice(from).map(({ maps }) => [...maps[head].slice(from)])),
    };
  }

  /** The text with one token more, or null where the context is full. */
  function append(text, token) {
    const ids = [...idsOf(text), tokens.indexOf(token)];
    if (ids.length > context) return null;
    written = { text: text + token, ids };
    return written.text;
  }

  /** The same with a token that is drawn: from the same seed the same text. */
  function writeOn(text, { off, temperature, seed }) {
    const ids = idsOf(text);
    if (!ids.length || ids.length >= context) return null;
    const { logits } = without(off).read(ids).at(-1);
    return append(text, tokens[draw(chances(logits, temperature), chance(seed, ids.length))]);
  }
  /** What a view of this text needs, in short tasks: a token of one model in each. */
  function readings({ text, off }) {
    const ids = read(text);
    return [whole, without(off)].flatMap((runner) => ids.map((_, i) => () => runner.read(ids.slice(0, i + 1))));
  }
  return { view, append, writeOn, readings, context };
}
