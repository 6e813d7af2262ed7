// A formula that is wider than the page scrolls; let the keyboard reach it too.
addEventListener("load", async () => {
  await document.fonts.ready;
  const mark = () => {
    for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("resize", mark);
});
