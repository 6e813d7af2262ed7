// Byte pairs: a text into numbered tokens, as the library `tokenizers` cuts it.

export const UNKNOWN = "\uFFFD"; // token 0; in a text it is a piece of its own
// White space as that library counts it: JavaScript's \s lacks U+0085 and has U+FEFF.
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

/** {tokens, merges, pieces} of a packed model → {encode, tokens}. */
export function makeTokenizer({ tokens, merges, pieces }) {
  const pattern = pieces
    .replaceAll("0-9\\s]", `0-9${SPACE}]`)
    .replaceAll("\\s", `[${SPACE}]`)
    .replaceAll("\\S", `[^${SPACE}]`);
  const cut = new RegExp(pattern, "gu");
  const numbers = new Map(tokens.map((token, number) => [token, number]));
  const ranks = new Map(merges.map(([a, b], rank) => [a * tokens.length + b, rank]));
  const known = new Map(); // pieces come again and again

  /** Of the pairs that may become one token the earliest learned, from the left. */
  function merged(piece) {
    const found = Array.from(piece, (character) => numbers.get(character) ?? 0);
    for (;;) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < found.length; i++) {
        const rank = ranks.get(found[i] * tokens.length + found[i + 1]) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return found;
      const both = tokens[found[at]] + tokens[found[at + 1]];
      found.splice(at, 2, numbers.get(both));
    }
  }

  function encode(text) {
    const found = [];
    text.split(UNKNOWN).forEach((part, i) => {
      if (i > 0) found.push(0);
      for (const [piece] of part.matchAll(cut)) {
        if (!known.has(piece)) known.set(piece, merged(piece));
        found.push(...known.get(piece));
      }
    });
    return found;
  }
  return { encode, tokens };
}
