"""Formulas are drawn when the book is built; here is what a reader gets of them."""

import importlib
import re

import pytest
from fontTools.ttLib import TTFont

from tools import book

STYLES = book.HTML / "_static" / "formulas.css"
FONTS = book.HTML / "_static" / "formulas"
DRAWN = """() => [...document.querySelectorAll('mjx-c')].map(sign => {
    const style = getComputedStyle(sign, '::before');
    return [style.content, style.fontFamily];
})"""


@pytest.fixture
def formulas(monkeypatch):
    """Our Sphinx extension that draws them."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module("formulas")


def test_a_formula_is_spoken_by_its_mathml_alone(formulas):
    drawn = formulas.draw(r"\frac{QK^\top}{\sqrt{d}}", True)
    picture, words = drawn.split("<mjx-assistive-mml")
    assert 'aria-hidden="true"' in picture
    assert "<mfrac>" in words and "<msqrt><mi>d</mi></msqrt>" in words
    assert 'display="block"' in words


@pytest.mark.parametrize(
    "tex, said",
    [
        (r"\sofmax(x)", "Undefined control sequence"),
        (r"\frac{1", "Missing close brace"),
    ],
)
def test_wrong_tex_is_refused(formulas, tex, said):
    with pytest.raises(formulas.JSEvalException) as refused:
        formulas.draw(tex, False)
    assert said in str(refused.value).splitlines()[0]


def faces() -> dict[str, set[str]]:
    """What each font of formulas can draw."""
    found = re.findall(
        r'font-family: (MJX[\w-]+);\s*src: url\("formulas/([\w-]+\.woff)"\)',
        STYLES.read_text(encoding="utf-8"),
    )
    return {
        family: {chr(code) for code in TTFont(FONTS / file).getBestCmap()}
        for family, file in found
    }


@pytest.mark.parametrize(
    "page",
    ["book/notation", "book/10_what_it_costs", "book/deeper/10_softmax_in_pieces"],
)
def test_fonts_have_every_sign(visit, page):
    known = faces()
    drawn = {tuple(each) for each in visit(page).page.evaluate(DRAWN)}
    assert len(drawn) > 20
    for content, families in drawn:
        signs = content.strip('"') if content != "none" else ""
        able = set().union(*(known.get(x.strip(), set()) for x in families.split(",")))
        assert set(signs) <= able, (content, families)
