"""Take the first pictures anew: `python -m tools.pictures`, after a build.

For the README a widget as it stands on its page, and what `check` says of a layer with
one mistake; for the first page of the book what a head of chapter 1 has learned.
"""

import base64
import inspect
import sys
from html import escape
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

from mha_lib.check import check
from tools import book, notebook
from tools.browser import NoChromium, Visit, launch

PICTURES = book.ROOT / ".github" / "pictures"
HERO = book.ROOT / "book" / "pictures" / "hero.png"
DRAWN = book.ROOT / "book" / "01_attention.ipynb", "hero"  # the page and its cell
LOOK = (
    "book/02_heads_in_a_loop",
    ".mha-attention-explorer",
)  # the page and what is on it
SCREEN = {"viewport": {"width": 640, "height": 900}, "device_scale_factor": 2}
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 }}
main {{ padding: 16px }}
pre {{ background: #f3f4f6; padding: 12px; font-size: 15px; line-height: 1.5 }}
</style></head><body><main><pre>{code}</pre>{said}</main></body></html>
"""


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return scores.softmax(dim=-1) @ v


def told() -> str:
    """A page with the function above and what `check` says of it."""
    code = f"{inspect.getsource(attention)}\ncheck(attention)"
    return PAGE.format(code=escape(code), said=check(attention)._repr_html_())


def hero() -> bytes:
    """The picture of the cell that draws what chapter 1 trained, as it was last run."""
    page, name = DRAWN
    (cell,) = [cell for cell in notebook.read(page).cells if cell.id == name]
    (picture,) = [out.data["image/png"] for out in cell.outputs if "data" in out]
    return base64.b64decode(picture)


def take(browser: Browser, into: Path) -> list[Path]:
    """Both pictures of the README, as files of this folder."""
    page, widget = LOOK
    root = book.HTML.as_uri()
    visit = Visit(browser, f"{root}/{page}.html", root, color_scheme="light", **SCREEN)
    shown = visit.page.locator(widget).first
    shown.scroll_into_view_if_needed()
    shown.get_by_role("button", name="chased", exact=True).click()
    look = into / "look.png"
    shown.screenshot(path=look)
    visit.page.set_content(told())
    report = into / "check.png"
    visit.page.locator("main").screenshot(path=report)
    visit.context.close()
    return [look, report]


def main() -> None:
    if not (book.HTML / f"{LOOK[0]}.html").exists():
        sys.exit("The pages are not built; run: make book")
    HERO.write_bytes(hero())
    try:
        with sync_playwright() as playwright:
            for path in take(launch(playwright), PICTURES):
                print(path.relative_to(book.ROOT))
    except NoChromium as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
