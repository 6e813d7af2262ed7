"""The page *How we know it is right* says what ran, and can fail."""

import re
from math import inf, nan
from pathlib import Path
from unittest.mock import patch

import jupytext
import pytest
import torch
from bs4 import BeautifulSoup
from torch import tensor

from evidence import agreement, judged, oracles, watch
from evidence.distance import distance
from evidence.helpers import STYLES
from evidence.laws import LAWS, equals_the_definition
from evidence.oracles import BLIND_SPOTS, COUNTS
from evidence.strategies import SUBJECTS
from evidence.words import power, sentence, table, which_of
from mha_lib.layouts import merge_heads
from mha_lib.styles import batched
from tools import book

NAME = "book/how_we_know"
SOURCE = book.ROOT / f"{NAME}.md"


@pytest.fixture(scope="module")
def cells():
    return jupytext.read(SOURCE).cells


@pytest.fixture(scope="module")
def built() -> BeautifulSoup:
    path = book.HTML / f"{NAME}.html"
    if not path.exists():
        pytest.fail("the page was not built; run: make book")
    html = path.read_text(encoding="utf-8").replace("<wbr>", "")
    return BeautifulSoup(html, "html.parser").article


@pytest.fixture(scope="module")
def wrong() -> list[agreement.Agreement]:
    """How far every way is from every other if BatchedMHA forgets the scale."""
    real = batched.attention
    with patch.object(batched, "attention", lambda *x, **o: real(*x, **o, scale=1.0)):
        return agreement.agreements()


def columns(built: BeautifulSoup, *header: str) -> list[list[str]]:
    """The rows of the table with that header."""
    for found in built.find_all("table"):
        rows = [
            [cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])]
            for row in found.find_all("tr")
        ]
        if rows[0] == list(header):
            return rows[1:]
    raise AssertionError(f"no table with the columns {header}")


# --- the source -----------------------------------------------------------------


def test_it_stands_between_the_last_chapter_and_the_references():
    pages = book.pages()
    place = pages.index(NAME)
    chapters = [path.relative_to(book.ROOT).with_suffix("") for path in book.chapters()]
    assert chapters
    assert all(pages.index(chapter.as_posix()) < place for chapter in chapters)
    assert pages[place + 1] == "book/references"


def test_no_number_is_typed_into_the_text(cells):
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    known = [
        r"\{[\w:]+\}`\w+`",  # computed by a cell, or a source
        r"\[[Cc]hapter \d+(?=\])",
        r"\]\([^)]*\)",
        r"b?float(16|32|64)",
        r"\$\$[^$]*\$\$|\$[^$]*\$",
        r"\b[125]/8\b",  # the example that is to be done on paper
    ]
    assert re.findall(r"\d+", re.sub("|".join(known), "", text)) == []


def test_code_is_narrow(cells):
    for cell in cells:
        if cell.cell_type == "code":
            assert max(map(len, cell.source.splitlines())) <= 88, cell.source


def test_the_page_loads_none_of_its_judges(cells):
    # To load them and to run their cases takes twice as long as a page may take.
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    judges = r"(?:import|from) (?:keras|jax|flax|onnx|transformers|x_transformers)\b"
    assert re.findall(rf"{judges}|empty_rows", code) == []
    assert re.findall(r"watch\.run\((.*?)\)", code) == ["definition"]


def test_the_picture_comes_first_and_is_described(built):
    (picture,) = built.find_all("img")
    assert len(picture["alt"]) > 100 and picture.find_previous("table") is None
    assert picture.find_parent("figure").figcaption.get_text(strip=True)


def test_a_wrong_library_stops_the_page(cells, monkeypatch, wrong):
    sources = [cell.source for cell in cells if cell.cell_type == "code"][:2]
    setup, compare = (re.sub(r"(?m)^%.*$", "", source) for source in sources)
    monkeypatch.chdir(SOURCE.parent)  # the set-up leaves it
    monkeypatch.setattr("myst_nb.glue", lambda *args, **options: None)
    monkeypatch.setattr(agreement, "agreements", lambda: wrong)
    scope = {}
    exec(setup, scope)
    with pytest.raises(AssertionError, match="two ways to attend differ: .*BatchedMHA"):
        exec(compare, scope)


# --- what the page calls ---------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),  # relative to the largest entry
        ([1.0, 2.0], [-4.0, 2.0], 1.25),
        ([0.5, 0.0], [0.25, 0.0], 0.25),  # which is small
        ([nan, -inf, 2.0], [nan, -inf, 2.0], 0.0),
        ([nan, -inf, 3.0], [nan, -inf, 2.0], 0.5),
        ([1.0, inf], [1.0, 2.0], inf),
        ([1.0, 2.0], [1.0, inf], inf),
        ([], [], 0.0),
    ],
)
def test_distance(ours, theirs, expected):
    assert distance(tensor(ours), tensor(theirs)) == expected


@pytest.mark.parametrize(("ours", "theirs"), [(nan, 1.0), (1.0, nan)])
def test_nan_is_near_nothing(ours, theirs):
    assert not distance(tensor([ours, 1.0]), tensor([theirs, 1.0])) < inf


def test_pairs_are_found_in_whatever_is_compared():
    ours = {"a": [tensor(1), tensor(2)], "b": tensor(3)}
    theirs = {"b": tensor(6), "a": [tensor(4), tensor(5)]}
    found = [(int(x), int(y)) for x, y in watch.pairs(ours, theirs)]
    assert sorted(found) == [(1, 4), (2, 5), (3, 6)]


TESTS = """
import pytest, torch
from torch.testing import assert_close

@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_near(n):
    torch.testing.assert_close(torch.full((n,), 4.0), torch.full((n,), 4.0 + 2**-20))
    assert_close({"x": torch.ones(n).half()}, {"x": torch.ones(n).half()})
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """A file of tests; no other has its name, which stays known to Python."""
    path = tmp_path / f"test_{tmp_path.name}.py"
    path.write_text(TESTS)
    return path


def test_a_run_says_what_passed_and_what_was_compared(tests):
    before = torch.testing.assert_close
    judged = watch.run(tests.name, root=tests.parent)
    assert judged.passed == [f"{tests.name}::test_near[{n}]" for n in range(1, 6)]
    assert [(x.dtype, x.numbers) for x in judged.comparisons] == [
        (dtype, n) for n in range(1, 6) for dtype in (torch.float32, torch.float16)
    ]
    far, same = judged.comparisons[:2]
    assert far.distance == pytest.approx(2**-22, rel=1e-5) and same.distance == 0.0
    assert far.test == judged.passed[0]
    assert torch.testing.assert_close is before


def test_a_run_takes_every_nth_case(tests):
    judged = watch.run(every={f"{tests.name}::test_near": 2}, root=tests.parent)
    assert judged.passed == [f"{tests.name}::test_near[{n}]" for n in (1, 3, 5)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("def test_far(): assert_close(torch.ones(2), torch.zeros(2))", "not close"),
        ("def test_far(thing): pass", "fixture 'thing' not found"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
    ],
)
def test_a_failure_is_named(tests, more, message):
    tests.write_text(f"{TESTS}\n{more}\n")
    with pytest.raises(AssertionError, match=message) as failure:
        watch.run(tests.name, root=tests.parent)
    said = str(failure.value)
    assert said.startswith(f"1 failed, first {tests.name}")
    assert len(said.splitlines()) == 1


def test_a_summary_keeps_each_distance_to_two_digits(tests):
    short = judged.summary(watch.run(tests.name, root=tests.parent).comparisons)
    assert short["numbers"] == 2 * (1 + 2 + 3 + 4 + 5)
    found = judged.points(short["distances"])
    near = [x for x, dtype in found if dtype == torch.float32]
    assert near == [float(f"{2**-22:.1e}")] * 5
    assert [x for x, dtype in found if dtype == torch.float16] == [0.0] * 5


def test_the_stored_run_has_every_judge_and_every_blind_spot():
    stored = judged.stored()
    files = [oracles.tests_of(key) for key in COUNTS]
    assert list(stored["comparisons"]) == [*files, judged.OPTIONS]
    assert all(x["numbers"] for x in stored["comparisons"].values())
    assert {x.seen_by for x in BLIND_SPOTS} <= set(stored["names"])


def test_a_stored_run_grows_stale(monkeypatch, tmp_path):
    monkeypatch.setattr(judged, "ROOT", tmp_path)
    (tmp_path / "mha_lib").mkdir()
    seen = {judged.sources()}
    for text in ("x = 1", "x = 2"):
        (tmp_path / "mha_lib" / "new.py").write_text(text)
        seen.add(judged.sources())
    monkeypatch.setattr(judged, "version", lambda judge: f"{judge} 99")
    assert len(seen | {judged.sources()}) == 4


@pytest.mark.exhaustive  # half a minute, for tests that `make test` runs anyway
def test_the_stored_run_is_what_the_judges_say_now():
    assert not judged.is_stale(), "run: python -m evidence.judged"
    asked, stored = judged.ask(), judged.stored()
    for key in ("tests", "names", "options", "empty rows"):
        assert asked[key] == stored[key], key
    numbers = [
        {place: x["numbers"] for place, x in run["comparisons"].items()}
        for run in (asked, stored)
    ]
    assert numbers[0] == numbers[1]


def test_nothing_to_run_is_a_failure(tests):
    tests.write_text("")
    with pytest.raises(AssertionError, match="no tests ran"):
        watch.run(tests.name, root=tests.parent)


def test_every_way_meets_every_other_in_every_quantity():
    found = agreement.agreements()
    ways = {s.name for s in SUBJECTS}
    weightless = {name for name in ways if "no weights" in name}
    seen = {}
    for x in found:
        seen.setdefault((x.mask, x.crossed, x.ways), set()).add(x.quantity)
    for (mask, _, pair), quantities in seen.items():
        assert len(quantities) == (3 if weightless & set(pair) else 4)
        assert "EinsumMHA" not in pair or mask != "random, one for each head"
    n, masks = len(ways), len(agreement.masks(agreement.S))
    assert len(seen) == 2 * (masks * n * (n - 1) // 2 - (n - 1))
    assert all(x.numbers for x in found)


def test_a_wrong_way_is_far_from_every_other(wrong):
    far = {x.ways for x in wrong if not x.distance < 1e-12}
    others = {s.name for s in SUBJECTS} - {"BatchedMHA"}
    assert {frozenset(ways) - {"BatchedMHA"} for ways in far} == {
        frozenset([name]) for name in others
    }


def test_a_wrong_way_breaks_a_law(monkeypatch):
    [subject] = [x for x in SUBJECTS if x.name == "BatchedMHA"]
    law = equals_the_definition.hypothesis.inner_test  # for a case that is chosen
    law(subject, agreement.SELF)
    monkeypatch.setattr(batched, "merge_heads", lambda x: merge_heads(x.flip(1)))
    with pytest.raises(AssertionError, match="not close"):
        law(subject, agreement.SELF)


def test_an_answer_that_nobody_has_foreseen_is_an_error():
    known = {"0": torch.zeros(3), "1": torch.ones(3)}
    assert which_of(known, tensor([1.0, 1.0, 1.0 + 1e-6])) == "1"
    assert which_of(known, None) == "not returned"
    assert which_of(known, tensor([nan, nan, nan])) == "NaN"
    with pytest.raises(AssertionError, match="neither NaN nor 0 nor 1"):
        which_of(known, tensor([1.0, 1.0, nan]))


def test_numbers_and_names_in_words():
    assert power(8.6e-16) == "9\u00a0·\u00a010⁻¹⁶"
    assert power(0.0) == "none"
    assert sentence("tests/test_a.py::test_it_is_so") == "it is so"
    assert sentence("test_it_is_torchs_map") == "it is torch’s map"
    assert table("ab", [[1, "`x`"]]) == "| a | b |\n| :-- | :-- |\n| 1 | `x` |"


# --- the built page ---------------------------------------------------------------


def test_the_page_quotes_every_count(built):
    rows = columns(built, "judge", "cases", "numbers", "largest distance")
    cases = [int(cases) for _, cases, *_ in rows]
    assert sorted(cases) == sorted(counts["cases"] for counts in COUNTS.values())
    text = " ".join(built.get_text().split())
    assert f"{sum(cases)} cases of {len(cases)} judges agree" in text
    assert f"{len(SUBJECTS)} ways to attend" in text


def test_the_page_shows_every_blind_spot_and_that_it_is_covered(built):
    rows = columns(built, "judge", "does not see", "our test, by its name")
    assert {row[1] for row in rows} == {x.blind_to for x in BLIND_SPOTS}
    assert all(row[2].startswith("✓ ") for row in rows)


def test_what_a_query_gets_that_may_attend_to_nothing(built):
    # A new release may change its mind: then the text of the page has to change too.
    zero, even, nan_, none = "0", "1/5 each", "NaN", "not returned"
    mean = "the mean of all values"
    assert columns(built, "library", "called", "weights", "context") == [
        ["mha_lib", f"all {len(STYLES) + 1} layers", zero, zero],
        ["mha_lib", "torch_empty_rows = True", nan_, nan_],
        ["torch, the layer", "with weights", nan_, nan_],
        ["torch, the layer", "without weights", none, zero],
        ["torch, the layer", "the same, for inference", none, nan_],
        ["torch", "scaled_dot_product_attention", none, zero],
        ["ONNX", "Attention", zero, zero],
        ["Keras", "with scores", zero, zero],
        ["Keras", "without scores", none, mean],
        ["flax", "with weights", even, mean],
        ["flax", "without weights", none, mean],
        ["flax", "the same, in float64", none, nan_],
        ["Hugging Face, GPT-2", "eager", even, mean],
        ["x-transformers", "", even, zero],
        ["x-transformers", "the same, in float64", nan_, zero],
    ]


def test_the_page_names_every_law(built):
    names = [item.get_text(strip=True) for item in built.select(".cell_output li")]
    assert names == [sentence(law.__name__) for law in LAWS]


def test_the_full_check_finds_what_each_other_one_misses(built):
    first, *others = columns(built, "check", "finds", "misses")
    assert first[0] == "everything" and first[2] == "–"
    assert all(row[2] != "–" for row in others)


def test_no_library_speaks_on_the_page(built):
    assert built.select(".output.stderr, .stderr") == []
    assert "Warning" not in built.get_text()


def test_the_page_has_no_launch_button():
    # Colab and Binder would lack the tests, and cannot open a page of text.
    html = BeautifulSoup((book.HTML / f"{NAME}.html").read_text(), "html.parser")
    links = [link["href"] for link in html.find_all("a", href=True)]
    assert [x for x in links if "colab" in x or "mybinder" in x] == []
