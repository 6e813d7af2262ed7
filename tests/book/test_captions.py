"""Every figure has one: numbered by page, a finding, no number that no cell asserts."""

import re

import pytest

from tools import book, notebook

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?")
LONGEST = 125  # characters: two lines of a page
NEAR = 5  # cells


def captions(page):
    """(place, name, caption) of each."""
    for place, cell in enumerate(page.cells):
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if figure:
            yield place, figure["name"], figure["caption"]


def asserted_near(page, place) -> set[str]:
    near = page.cells[max(0, place - NEAR) : place + NEAR + 1]
    code = [cell.source for cell in near if cell.cell_type == "code"]
    return set(NUMBER.findall("\n".join(x for x in code if "assert" in x)))


def draws(cell) -> bool:
    """Whether it shows a picture that is no still of a widget."""
    shown = [x.get("data", {}).get("text/plain", "") for x in cell.get("outputs", [])]
    return any(x.startswith("<Figure ") for x in shown)


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_a_caption_says_what_its_cells_assert(path):
    page = notebook.read(path)
    found = list(captions(page))
    chapter = path in book.chapters()
    drawn = [place for place, cell in enumerate(page.cells) if draws(cell)]
    assert drawn == [place for place, *_ in found]
    for place, name, caption in found:
        kind = f"{int(path.stem[:2])}" if chapter else r"(\d\dd|play)"
        assert re.fullmatch(rf"fig-{kind}-[a-z-]+", name)
        assert len(caption) <= LONGEST and caption.endswith(".")
        assert set(NUMBER.findall(caption)) <= asserted_near(page, place), caption


def test_no_two_figures_have_one_name():
    pages = map(notebook.read, book.lessons())
    names = [name for page in pages for _, name, _ in captions(page)]
    assert len(names) == len(set(names)) > 80


# A page in the dark turns a picture's lightness over: much weight is light there.
SHADE = re.compile(r"\b(dark\w*|pale\w*|light(er|est)?|bright\w*|black|white)\b")


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_words_for_a_picture_are_true_in_the_light_and_in_the_dark(path):
    for cell in notebook.read(path).cells:
        said = cell.metadata.get("mystnb", {})
        words = said.get("image", {}).get("alt", "")
        words += said.get("figure", {}).get("caption", "")
        assert not SHADE.findall(words), "say strong and weak, or name the colour"
