"""Take the first pictures anew: `python -m tools.pictures`, after a build.

For the README the book's first picture, with both endings, and what `check` says of a
layer with one mistake; for links that are shared a card with the first picture.
"""

import inspect
import sys
from html import escape
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

from mha_lib.check import check
from tools import book, first_look
from tools.browser import NoChromium, Visit, launch

PICTURES = book.ROOT / ".github" / "pictures"
STATIC = book.ROOT / "book" / "_static"
FIRST = "book/intro"
SCREEN = {"viewport": {"width": 720, "height": 900}, "device_scale_factor": 2}
CARD_SIZE = {"width": 1200, "height": 630}
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 }}
main {{ padding: 16px }}
pre {{ background: #f3f4f6; padding: 12px; font-size: 15px; line-height: 1.5 }}
</style></head><body><main><pre>{code}</pre>{said}</main></body></html>
"""
CARD = """<!doctype html><html lang="en" data-theme="dark"><head><meta charset="utf-8">
<style>{style}
body {{ background: #10243d; color: #fff; font: 27px/1.4 system-ui, sans-serif;
  margin: 0; padding: 56px 70px }}
h1 {{ font-size: 50px; margin: 0 0 6px; white-space: nowrap }}
.first-look {{ margin-top: 52px }}
.first-look svg.flat {{ max-width: none }}
.first-look .ending-1 {{ display: none }}
</style></head><body><h1>{title}</h1>
<div>What does <em>it</em> mean? Where two trained heads look to find out.</div>
<div class="first-look">{picture}</div></body></html>
"""


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return scores.softmax(dim=-1) @ v


# The picture as it stands, and below it once more, with the other ending chosen.
TWICE = """(first) => {
    const both = document.createElement('div');
    both.className = 'first-looks';
    first.replaceWith(both);
    const second = first.cloneNode(true);
    second.querySelectorAll('input').forEach((x) => (x.name = 'second-look'));
    both.append(first, second);
    second.querySelectorAll('input')[1].checked = true;
}"""


def told() -> str:
    """A page with the function above and what `check` says of it."""
    code = f"{inspect.getsource(attention)}\ncheck(attention)"
    return PAGE.format(code=escape(code), said=check(attention)._repr_html_())


def card() -> str:
    """A page with the title above the first picture."""
    return CARD.format(
        style=(STATIC / "book.css").read_text(encoding="utf-8"),
        title=escape(book.read_yaml("_config.yml")["title"]),
        picture=first_look.drawing(first_look.looks(), upright=False),
    )


def take(browser: Browser, into: Path) -> list[Path]:
    """All three, as files of this folder."""
    look, report, shared = (into / f"{x}.png" for x in ("look", "check", "card"))
    root = book.HTML.as_uri()
    visit = Visit(browser, f"{root}/{FIRST}.html", root, color_scheme="light", **SCREEN)
    visit.page.emulate_media(
        reduced_motion="reduce"
    )  # arcs do not swing to their place
    visit.page.locator(".first-look").evaluate(TWICE)
    visit.page.locator(".first-looks").screenshot(path=look)
    visit.page.set_content(told())
    visit.page.locator("main").screenshot(path=report)
    visit.context.close()
    visit = Visit(browser, "about:blank", root, viewport=CARD_SIZE)
    visit.page.set_content(card())
    visit.page.screenshot(path=shared)
    visit.context.close()
    return [look, report, shared]


def main() -> None:
    if not (book.HTML / f"{FIRST}.html").exists():
        sys.exit("The pages are not built; run: make book")
    try:
        with sync_playwright() as playwright:
            *pictures, shared = take(launch(playwright), PICTURES)
        shared.replace(STATIC / shared.name)
        print(*(path.name for path in (*pictures, shared)))
    except NoChromium as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
