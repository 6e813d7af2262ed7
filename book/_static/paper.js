// Paper is white: print the light page, whatever the screen shows, with its folds open.
// Who works on paper finds the solutions together at its end; hints, which are given one
// at a time, are left out.
{
  const root = document.documentElement;
  // Folded code, tables of numbers and controls are left out: book.css.
  const FOLDS = "article details:not(.hide, .mha-more, .mha-numbers, .toggle-details, [open])";
  const line = (text) => {
    const p = document.createElement("p");
    p.className = "on-paper";
    p.textContent = text;
    return p;
  };
  /** What paper leaves out is on the page: where that is, and what of it is meant. */
  function said() {
    const left = [];
    const checks = [...document.querySelectorAll("article .quiet summary")].some((x) => x.textContent.includes("✓"));
    const folded = checks ? "The set-up cell, the checks and the code of pictures" : "The set-up cell and the code of pictures";
    if (document.querySelector("article .tag_setup")) left.push(`${folded} are folded on this page and not printed`);
    if ([...document.querySelectorAll("article details")].some(isHint)) left.push("so are the hints to its tasks");
    const page = left.length ? "It is" : "This page is";
    const address = location.protocol === "file:" ? "" : `${page} ${location.origin}${location.pathname}.`;
    return line([left.length && `${left.join("; ")}.`, address].filter(Boolean).join(" "));
  }
  const isHint = (fold) => /^Hint \d/.test(fold.firstElementChild?.textContent.trim());
  let back = []; // what brings the screen back, the last first
  addEventListener("beforeprint", () => {
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    back = [() => (root.dataset.theme = theme)];
    const note = said();
    document.querySelector("article h1")?.after(note);
    back.push(() => note.remove());
    for (const fold of document.querySelectorAll(FOLDS)) {
      const trait = isHint(fold) ? "hidden" : "open";
      fold[trait] = true;
      back.unshift(() => (fold[trait] = false));
    }
    const solutions = [...document.querySelectorAll("article .solution")];
    if (!solutions.length) return;
    const end = document.createElement("section");
    const title = document.createElement("h2");
    title.textContent = "Solutions";
    end.append(title);
    back.unshift(() => end.remove());
    for (const solution of solutions) {
      const place = document.createComment("");
      solution.replaceWith(place);
      end.append(solution);
      back.unshift(() => place.replaceWith(solution));
    }
    document.querySelector("article > section").append(end);
  });
  addEventListener("afterprint", () => {
    for (const step of back) step();
    back = [];
  });
}
