// A formula that is a little wider than the page gets smaller letters; one that is much
// wider scrolls, and the keyboard reaches it too.
addEventListener("load", async () => {
  await document.fonts.ready;
  const SMALLEST = 0.8; // of its own letters
  const mark = () => {
    for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
      formula.style.removeProperty("font-size");
      const fits = formula.clientWidth / formula.scrollWidth;
      if (fits < 1 && fits > SMALLEST) {
        const size = parseFloat(getComputedStyle(formula).fontSize);
        formula.style.setProperty("font-size", `${size * (fits - 0.01)}px`, "important");
      }
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("resize", mark);
});
