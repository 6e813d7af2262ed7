// How pictures are drawn, and the checks, are for who wants them: a button in the bar of a
// lesson shows them, unless a name in them is used below. Where no script runs they stand
// there, folded.
{
  const KEPT = "asides";
  const root = document.documentElement;
  try {
    root.dataset.asides = localStorage.getItem(KEPT) ?? "hidden"; // before anything is drawn
  } catch { // nothing can be kept here
    root.dataset.asides = "hidden";
  }
  addEventListener("click", ({ target }) => {
    if (!target.closest?.(".lesson-bar .asides")) return;
    root.dataset.asides = root.dataset.asides === "hidden" ? "shown" : "hidden";
    try {
      localStorage.setItem(KEPT, root.dataset.asides);
    } catch { /* it holds for this page */ }
  });
}
