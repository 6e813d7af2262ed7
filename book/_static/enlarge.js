// A picture that is pressed fills the screen, with its caption and what is seen.
addEventListener("DOMContentLoaded", () => {
  const dialog = document.createElement("dialog");
  dialog.className = "enlarged";
  dialog.setAttribute("aria-label", "Enlarged picture");
  const [large, caption, words] = ["img", "p", "p"].map((x) => document.createElement(x));
  dialog.append(large, caption, words);
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", ({ key }) => {
    if (["Escape", "Enter", " "].includes(key)) dialog.close(); // the theme keeps Escape
  });
  document.body.append(dialog);

  function enlarge(picture) {
    [large.src, large.alt, words.textContent] = [picture.src, "", picture.alt];
    const told = picture.closest("figure")?.querySelector("figcaption p")?.cloneNode(true);
    told?.querySelector(".headerlink")?.remove();
    caption.replaceChildren(...told?.childNodes ?? []);
    dialog.showModal();
    dialog.scrollTo(0, 0);
  }

  for (const picture of document.querySelectorAll("article .cell_output img, article figure img")) {
    picture.closest("a.image-reference")?.replaceWith(picture); // led to the bare file
    picture.tabIndex = 0;
    picture.setAttribute("role", "button");
    picture.setAttribute("aria-label", `Enlarge: ${picture.alt}`);
    picture.addEventListener("click", () => enlarge(picture));
    picture.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      enlarge(picture);
    });
  }
});
