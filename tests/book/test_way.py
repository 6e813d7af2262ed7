"""*Where we are*: the steps of the layer, drawn above the sections of the lesson."""

import importlib
import re

import pytest
from bs4 import BeautifulSoup

from tests.book.test_pages import soup
from tools import book, notebook

LESSON = book.chapters()[:5]
SENTENCE = re.compile(r"^Where we are: (.*)$", re.MULTILINE)


@pytest.fixture
def way(monkeypatch):
    """Our extension that draws it."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module("way")


def drawn(html: str) -> list[tuple[str, bool]]:
    """Each step, and whether it is the section's."""
    items = BeautifulSoup(html, "html.parser").select(".way li")
    return [(item.span.get_text(), "aria-current" in item.attrs) for item in items]


def test_the_bold_steps_are_those_of_the_section(way):
    html = way.way("x → <strong>q, k, v → scores</strong> → <strong>weights</strong>")
    here = [("q, k, v", True), ("scores", True), ("weights", True)]
    assert drawn(html) == [("x", False), *here]


def test_an_unknown_step_stops_the_build_and_says_what_is_known(way):
    with pytest.raises(ValueError, match="no step 'score'; it knows: x; q, k, v;"):
        way.way("x → score")


@pytest.mark.parametrize("end", ["Concat", "merge"])
def test_each_head_has_maps_of_its_own_once_there_are_heads_to_join(way, end):
    for html, heads in ((way.way("weights"), 1), (way.way(f"weights → {end}"), 2)):
        weights = BeautifulSoup(html, "html.parser").select_one(".way li")
        colours = {path["class"][0] for path in weights.select("path")}
        assert sorted(colours) == ["h0", "h1"][:heads]


@pytest.mark.parametrize("path", LESSON, ids=lambda path: path.stem)
def test_a_chapter_of_the_lesson_says_where_we_are(path, way):
    page = notebook.read(path)
    prose = "\n".join(c.source for c in page.cells if c.cell_type == "markdown")
    said = SENTENCE.findall(prose)
    html = soup(book.HTML / "book" / f"{path.stem}.html")
    shown = [drawn(str(nav)) for nav in html.select(".way")]
    assert 2 <= len(said) == len(shown)
    order = [step for step in way.DRAWN if step != "Concat"]
    for sentence, steps in zip(said, shown):
        names = [name.replace("Concat", "merge") for name, _ in steps]
        assert names == sorted(names, key=order.index)  # as the layer goes
        assert any(here for _, here in steps)
        assert " → ".join(name for name, _ in steps) == sentence.replace("**", "")


def test_the_way_only_grows(way):
    """What one chapter has added is there in all that follow."""
    met = set()
    for path in LESSON[:4]:  # the fifth leaves the mask out
        prose = "\n".join(cell.source for cell in notebook.read(path).cells)
        ways = [set(x.replace("**", "").split(" → ")) for x in SENTENCE.findall(prose)]
        longest = {x.replace("Concat", "merge") for x in max(ways, key=len)}
        assert met <= longest
        met = longest
    assert met == set(way.DRAWN) - {"Concat"}
