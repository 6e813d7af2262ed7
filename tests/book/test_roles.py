"""Query, key and value have one colour each: in letters, names, code and pictures."""

import importlib
import re

import pytest
from bs4 import BeautifulSoup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mha_lib.plots import COLOURS, INK, ROLES
from tests.book.conftest import DESK, printing, switch
from tests.book.test_pages import soup
from tools import book

CSS = [
    book.ROOT / place
    for place in ("book/_static/book.css", "mha_lib/widgets/common.css")
]


@pytest.fixture
def extension(monkeypatch):
    """A function that brings one of our Sphinx extensions."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module


def roles_in(html) -> list[str]:
    """What is coloured, and as what: "q:W" is a W in the colour of queries."""
    return [
        f"{name.removeprefix('role-')}:{node.get_text()}"
        for node in html.select("[class*=role-]")
        for name in node["class"]
        if name.startswith("role-")
    ]


# --- one table ------------------------------------------------------------------------


@pytest.mark.parametrize("css", CSS, ids=lambda css: css.stem)
def test_pages_widgets_and_pictures_have_the_same_inks(css):
    said = re.findall(r"-role-(\w): (#\w{6});", css.read_text(encoding="utf-8"))
    assert len(said) == 6
    for place, found in enumerate((said[:3], said[3:])):  # in the light, in the dark
        assert dict(found) == {role: INK[role][place].lower() for role in ROLES}


@pytest.mark.parametrize("role", "qkv")
def test_an_ink_has_the_hue_of_its_cells(role):
    """Which of red, green and blue are strong, and which is weak, is the same."""

    def order(colour):
        parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return [part > sum(parts) / 3 for part in parts]

    assert {tuple(order(ink)) for ink in INK[role]} == {
        tuple(order(COLOURS[ROLES[role]]))
    }


# --- what is coloured -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tex", "coloured"),
    [
        (r"q k^\top / \sqrt{D}", "q:q k:k"),
        (r"\sum_s w_{ts} v_s \cdot q_t", "v:v q:q"),
        (r"W^Q", "q:W q:Q"),
        (r"x\,W_h^K", "k:W k:K"),
        (r"W^{QK} = W^Q (W^K)^\top", "q:Q k:K q:W q:Q k:W k:K"),
        (r"W^V W^O", "v:W v:V"),
        (r"\operatorname{MultiHead}(Q, K)", "q:Q k:K"),
        (r"(B, T, V), \quad D \ne V, \quad d_k, d_v, x^k, x_q", ""),
        (r"\sum_k x_k + \max_v y", ""),
    ],
)
def test_letters_of_a_formula(extension, tex, coloured):
    drawn = extension("formulas").draw(tex, False)
    picture, words = drawn.split("<mjx-assistive-mml")
    spoken = roles_in(BeautifulSoup(words, "html.parser"))
    assert spoken == coloured.split()
    seen = roles_in(BeautifulSoup(picture, "html.parser"))
    assert [x[0] for x in seen] == [x[0] for x in spoken]


def test_a_capital_v_is_a_value_where_no_other_meaning_is_named(extension):
    draw = extension("formulas").draw
    assert "role-v" in draw("V", False, "") and "role-v" not in draw("V", False)


NAMES = "q_proj k value W_v b_q k_bhsd self.v_proj top_k keys k_and_v x.value kv W_o"


@pytest.mark.parametrize(
    ("code", "coloured"),
    [
        (NAMES, "q:q_proj k:k v:value v:W_v q:b_q k:k_bhsd v:v_proj"),
        ("[f(k, q) for k in (1, 4)]", "q:q"),
        ("for name, value in pairs:\n    key = value", "k:key"),
        ("max(q, key=q.get)", "q:q q:q"),
        ("layer(query, key=key)", "q:query k:key k:key"),
        ("u, v = x, y\nv, k", "k:k"),
    ],
)
def test_names_in_code(extension, code, coloured):
    html = highlight(code, PythonLexer(), HtmlFormatter())
    roles = extension("roles")
    block = roles.BLOCK.search(html)[0]
    painted = f"<pre>{roles.colour_code(block, set())}</pre>"
    shown = BeautifulSoup(painted, "html.parser")
    assert roles_in(shown) == coloured.split()
    assert shown.get_text().strip() == code


# --- on the pages ---------------------------------------------------------------------

CHAPTERS = {
    "01_attention": ("q:q k:k v:v q:W q:Q", "q:q k:k v:v q:W_q", "q:W_q k:k"),
    "02_heads_in_a_loop": ("q:Q k:K v:V v:W v:V", "q:query v:value", "q:q_proj"),
    "03_all_heads_at_once": ("", "q:q_bhtd k:k_bhsd", "q:q_proj"),
    "05_one_matrix_for_qkv": ("q:W k:K v:v", "q:q k:k_heads", "q:W_q v:W_v"),
    "04_masks": ("", "q:query k:k v:v", "q:q k:k v:v"),
}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_them_in_formulas_code_and_sentences(chapter):
    page = soup(book.HTML / f"book/{chapter}.html").article
    formulas, code, text = (set(x.split()) for x in CHAPTERS[chapter])
    assert formulas <= {x for math in page.select("math") for x in roles_in(math)}
    assert code <= {x for pre in page.select("pre") for x in roles_in(pre)}
    assert text <= {
        f"{name[-1]}:{node.get_text()}"
        for node in page.select("code[class*=role-]")
        for name in node["class"]
        if name.startswith("role-")
    }


@pytest.mark.parametrize(
    ("page", "letter"),
    [
        ("book/08_tensorflow_style", "V"),
        ("book/deeper/01_one_function_for_a_batch", "V"),
        ("book/deeper/06_what_torch_makes_of_a_pattern", "V"),
        ("book/deeper/08_the_layer_of_keras", "V"),
    ],
)
def test_a_width_is_not_coloured(page, letter):
    formulas = soup(book.HTML / f"{page}.html").article.select("math")
    alone = [
        x
        for math in formulas
        for x in math.find_all("mi", string=letter)
        if not x.find_parent("msup") and not x.find_parent("msubsup")
    ]
    assert alone and not any(x.get("class") for x in alone)


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("book/12_a_model_of_our_own_layer", "k"),
        ("book/12_a_model_of_our_own_layer", "top_k"),
        ("book/12_a_model_of_our_own_layer", "key"),
        ("book/play/break_it", "key"),
        ("book/assignments/student/a5_language_model", "query"),
    ],
)
def test_another_meaning_is_not_coloured(page, name):
    text = (book.HTML / f"{page}.html").read_text(encoding="utf-8")
    article = BeautifulSoup(text, "html.parser").article  # with the tokens of code
    found = [x for x in article.select("pre span") if x.get_text() == name]
    assert found and all(x["class"] == ["n"] for x in found)


def test_the_notation_has_values_and_a_width_in_one_letter():
    rows = soup(book.HTML / "book/notation.html").article.select("tr")
    starts = {row.get_text(" ", strip=True)[:1]: row for row in reversed(rows)}
    assert roles_in(starts["V"].math) == []
    of_inputs = next(row for row in rows if row.find("code", string="query"))
    found = [x.split(":")[0] for x in roles_in(of_inputs)]
    assert found == [*"qkv"] * 2 + [*"qkv"]


# --- how it looks ---------------------------------------------------------------------

CONTRASTS = """() => {
    const light = colour => colour.map(x => x / 255)
        .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
        .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const paper = node => {
        const under = node.parentElement ? paper(node.parentElement) : [255, 255, 255];
        const [r, g, b, a = 1] = parts(getComputedStyle(node).backgroundColor);
        return [r, g, b].map((x, i) => a * x + (1 - a) * under[i]);
    };
    return [...document.querySelectorAll('article [class*=role-]')]
        .filter(x => x.checkVisibility() && !x.closest('a, mjx-assistive-mml'))
        .map(x => {
            const ink = parts(getComputedStyle(x).color).slice(0, 3);
            const [low, high] = [light(ink), light(paper(x))].sort((a, b) => a - b);
            const name = [...x.classList].find(x => x.startsWith('role-'));
            return [name.slice(-1), ink.map(Math.round), (high + 0.05) / (low + 0.05)];
        });
}"""


def of_hex(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.mark.parametrize("page", ["book/01_attention", "book/notation"])
def test_they_can_be_read(visit, page):
    """axe-core reads the first of them, too, in `test_browser.py`."""
    opened = visit(page, colours="light", at_once=True)
    for colours in ("light", "dark"):
        switch(opened, colours, DESK)
        found = opened.page.evaluate(CONTRASTS)
        assert {role for role, _, _ in found} == {*"qkv"}
        for role, ink, contrast in found:
            assert ink == of_hex(INK[role][colours == "dark"])
            assert contrast > 4.5, (role, ink)


def test_paper_has_the_inks_of_a_light_page(visit):
    opened = visit("book/01_attention", colours="dark").page
    with printing(opened):
        found = opened.evaluate(CONTRASTS)
    assert found and all(ink == of_hex(INK[role][0]) for role, ink, _ in found)
