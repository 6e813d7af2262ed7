// Ranks sections where Sphinx ranks pages, and hands them to Sphinx' list of results.
// The index is sections.js (book/_ext/search.py); the stems are Sphinx' own. Works from
// a file, too: nothing is fetched.
"use strict";

(() => {
  const MOST = 30; // results
  const RARE_ENOUGH = 0.3; // of a query's weight has to be found in a section
  const KINDS = [
    [/^book\/\d\d_/, 1.2], // a chapter explains what others use
    [/^book\/assignments/, 0.8],
    [/^book\/glossary/, 0.35], // a definition, where no section has that name
    [/./, 1],
  ];
  // Words of a question that say nothing of what is asked for.
  const ASKING = new Set(("all always can could do does each gets have how i instead me mine my only should "
    + "that use what when which would you your").split(" "));
  const { pages, sections, stems, asked } = bookSections;
  const known = Object.keys(stems).sort();

  // "1f7 03" → [[section, strength], …]
  const postings = (stem) => {
    let section = 0;
    return stems[stem].split(" ").map((entry) => {
      section += parseInt(entry.slice(0, -1), 36);
      return [section, Number(entry.at(-1))];
    });
  };

  // A name counts as a whole and in parts, as in the index.
  const words = (text) => {
    const names = text.match(/\w*[^\W_]_[^\W_]\w*/g) ?? [];
    const plain = text.match(/[\p{L}\p{N}]+/gu) ?? [];
    const parts = plain.flatMap((word) => {
      const pieces = word.split(/(?<=[a-z0-9])(?=[A-Z])/);
      return pieces.length > 1 ? [word, ...pieces] : [word];
    });
    return [...names, ...parts].map((word) => word.toLowerCase());
  };

  const oneOff = (a, b) => {
    // one letter more, less, other or swapped with its neighbour
    if (Math.abs(a.length - b.length) > 1) return false;
    let start = 0;
    while (start < a.length && a[start] === b[start]) start += 1;
    let end = 0;
    const most = Math.min(a.length, b.length) - start;
    while (end < most && a.at(-1 - end) === b.at(-1 - end)) end += 1;
    const [restA, restB] = [a.length - start - end, b.length - start - end];
    if (restA <= 1 && restB <= 1) return true;
    const swapped = a[start] === b[start + 1] && a[start + 1] === b[start];
    return restA === 2 && restB === 2 && swapped;
  };

  // The stem itself; else those that begin with it; else those a slip away.
  const alike = (stem) => {
    if (stem in stems) return [stem];
    if (stem.length < 3) return [];
    const longer = known.filter((other) => other.startsWith(stem));
    if (longer.length > 0) return longer.slice(0, 20);
    return stem.length < 5 ? [] : known.filter((other) => oneOff(stem, other));
  };

  const plain = (text) => words(text).join(" ");

  const rank = (query) => {
    const stemmer = new Stemmer();
    const all = words(query);
    const telling = all.filter((word) => !stopwords.includes(word) && !ASKING.has(word));
    const wanted = new Set(
      (telling.length > 0 ? telling : all).map((word) => stemmer.stemWord(word)),
    );
    const scores = new Map();
    const covered = new Map();
    let total = 0;
    for (const stem of wanted) {
      const strengths = new Map();
      for (const other of alike(stem)) {
        for (const [section, strength] of postings(other)) {
          strengths.set(section, Math.max(strength, strengths.get(section) ?? 0));
        }
      }
      const rare = Math.log(1 + sections.length / (1 + strengths.size));
      total += rare;
      for (const [section, strength] of strengths) {
        const score = (rare * strength) / (strength + 3);
        scores.set(section, (scores.get(section) ?? 0) + score);
        covered.set(section, (covered.get(section) ?? 0) + rare);
      }
    }
    const phrase = plain(query);
    const meant = new Map(); // sections that answer what many ask, and how much of the query it is
    const unsaid = new Set([...stopwords, ...ASKING].map((word) => stemmer.stemWord(word)));
    for (const [section, all] of asked) {
      const said = all.filter((stem) => !unsaid.has(stem));
      if (said.length === 0 || !said.every((stem) => wanted.has(stem))) continue;
      meant.set(section, Math.max(said.length / wanted.size, meant.get(section) ?? 0));
    }
    const ranked = [];
    for (const [section, score] of scores) {
      const share = covered.get(section) / total;
      if (share < RARE_ENOUGH) continue;
      const [page, anchor, heading] = sections[section];
      const text = plain(heading);
      let bonus = 1;
      if (` ${text} `.includes(` ${phrase} `)) {
        bonus += (2 * phrase.length) / text.length;
      }
      bonus += 2 * (meant.get(section) ?? 0);
      if (anchor === "") bonus += 0.1; // a page before its sections
      const weight = KINDS.find(([kind]) => kind.test(pages[page][0]))[1];
      ranked.push([section, score * share * share * bonus * weight]);
    }
    ranked.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    return ranked.slice(0, MOST);
  };

  const escaped = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // Sphinx shows the last one first.
  Search._performSearch = (query) => {
    document.getElementById("search-progress")?.replaceChildren();
    return rank(query)
      .map(([section, score]) => {
        const [page, anchor, heading] = sections[section];
        const [name, title] = pages[page];
        const place = anchor === "" ? "the page" : escaped(title);
        const hash = anchor === "" ? "" : `#${anchor}`;
        return [name, escaped(heading), hash, place, score, `${name}.html`];
      })
      .reverse();
  };
})();
