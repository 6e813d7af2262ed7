// Paper is white: print the light page, whatever the screen shows, with its folds open.
{
  const root = document.documentElement;
  // Folded code, tables of numbers and controls are left out: book.css.
  const FOLDS = "article details:not(.hide, .mha-more, .mha-numbers, .toggle-details, [open])";
  let theme = null;
  let opened = [];
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    opened = [...document.querySelectorAll(FOLDS)];
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
    for (const fold of opened) fold.open = false;
  });
}
