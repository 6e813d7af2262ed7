"""Pictures: pressed they fill the screen; in the dark they turn over."""

import base64
import importlib
import re
from collections import Counter
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tests.book.conftest import DESK, NARROW, PHONE, switch
from tools import book, notebook

PAGE = "book/01_attention"
FIRST = "article .cell_output img"


def test_a_picture_is_enlarged_and_put_back_by_keyboard(visit):
    page = visit(PAGE, viewport=DESK).page
    picture, dialog = page.locator(FIRST).first, page.locator("dialog.enlarged")
    small = picture.bounding_box()["width"]
    for key in ("Enter", " "):
        picture.focus()
        page.keyboard.press(key)
        assert dialog.is_visible(), key
        assert dialog.locator("img").bounding_box()["width"] > 1.5 * small
        assert dialog.locator("p").last.inner_text() == picture.get_attribute("alt")
        page.keyboard.press("Escape")
        assert not dialog.is_visible(), key
        assert picture.evaluate("x => x === document.activeElement")
        picture.evaluate("x => x.blur()")


def test_an_enlarged_picture_keeps_its_caption_and_no_other(visit):
    page = visit(PAGE, viewport=DESK).page
    dialog = page.locator("dialog.enlarged")
    captioned = page.locator(".cell_output figure").first
    said = captioned.locator("figcaption").inner_text().removesuffix("#").strip()
    bare = page.locator(".cell_output figure").nth(1)
    bare.locator("figcaption").evaluate("x => x.remove()")  # as in somebody's fork
    for picture, wanted in ((captioned, said), (bare, "")):
        picture.locator("img").click()
        assert dialog.locator("p").first.inner_text().strip() == wanted
        page.keyboard.press("Escape")
    assert said.startswith("Fig. 1.1")


def test_on_a_phone_its_letters_are_as_large_as_the_text(visit):
    page = visit(PAGE, viewport=PHONE, has_touch=True).page
    picture, dialog = page.locator(FIRST).first, page.locator("dialog.enlarged")
    small = picture.bounding_box()["width"]
    picture.tap()
    assert dialog.locator("img").bounding_box()["width"] > 1.5 * small
    assert dialog.evaluate("x => x.scrollWidth > x.clientWidth"), "it is moved sideways"
    dialog.tap()
    assert not dialog.is_visible()


def test_in_the_dark_its_paper_is_the_page_and_its_ink_light(visit):
    page = visit(PAGE, colours="dark", viewport=DESK).page
    picture = page.locator(FIRST).first
    assert_turned_over(page, picture)
    picture.click()
    assert_turned_over(page, page.locator("dialog.enlarged img"))


def assert_turned_over(page, picture):
    picture.evaluate("x => x.decode()")
    seen = Image.open(BytesIO(picture.screenshot())).convert("RGB")
    seen.thumbnail((200, 200), Image.Resampling.NEAREST)
    colours = Counter(map(tuple, np.asarray(seen).reshape(-1, 3).tolist()))
    (most, often), *_ = colours.most_common(1)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    wanted = [int(number) for number in re.findall(r"\d+", ground)]
    assert max(abs(a - b) for a, b in zip(most, wanted)) <= 1
    assert often > 0.5 * colours.total()
    assert max(min(colour) for colour in colours) > 180, "the words"


LETTERS = """all => all.filter(x => x.checkVisibility()).map(x => {
    return 10 / 72 * 100 * x.clientWidth / (x.naturalWidth / 2);
})"""  # of 10 points, in pixels
TURNED_OVER = """all => all.filter(x => x.checkVisibility()).every(x =>
    getComputedStyle(x).filter.startsWith('invert('))"""


@pytest.mark.parametrize(
    "page", ["book/02_heads_in_a_loop", "book/08_tensorflow_style"]
)
def test_letters_have_eleven_pixels_where_the_page_has_358(visit, page):
    opened = visit(page, viewport=NARROW)
    pictures = opened.page.locator(".cell_output img")
    pictures.evaluate_all("all => Promise.all(all.map(x => x.decode()))")
    for colours in ("light", "dark"):
        switch(opened, colours, NARROW)
        text = opened.page.locator("article > section")
        assert text.evaluate("x => x.clientWidth") == 358
        letters = pictures.evaluate_all(LETTERS)
        assert len(letters) >= 5 and min(letters) >= 11
        assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
        assert pictures.evaluate_all(TURNED_OVER) == (colours == "dark")


def test_code_is_large_enough_and_a_line_fits(visit):
    page = visit("book/03_all_heads_at_once", viewport=DESK).page
    found = page.locator("article pre").evaluate_all(
        """all => all.filter(x => x.checkVisibility()).map(x => [
            parseFloat(getComputedStyle(x).fontSize), x.scrollWidth - x.clientWidth])"""
    )
    assert len(found) > 20
    assert min(size for size, _ in found) >= 13
    assert max(hidden for _, hidden in found) <= 0


@pytest.mark.parametrize("name", ["01_attention", "14_a_real_model"])
def test_a_packed_picture_has_the_colours_of_the_drawn_one(name, tmp_path, monkeypatch):
    """A pale cell stays pale and in its colour, for each pixel of each picture."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    pack = importlib.import_module("offline").pack
    cells = notebook.read(book.ROOT / f"book/{name}.ipynb").cells
    outputs = [data for cell in cells for data in cell.get("outputs", [])]
    shown = [data.get("data", {}) for data in outputs]
    drawn = [data["image/png"] for data in shown if "image/png" in data]
    assert drawn
    for png in drawn:
        (picture := tmp_path / "drawn.png").write_bytes(base64.b64decode(png))
        levels = np.asarray(Image.open(picture).convert("RGB"), dtype=int)
        pack(picture)
        packed = np.asarray(Image.open(picture.with_suffix(".webp")).convert("RGB"))
        assert np.abs(levels - packed).max() <= 10  # of 256
