"""Mistakes have words, sections and sources, and stages that can be found."""

import json
import re
from pathlib import Path

import pytest

from mha_lib.check.catalogue import MISTAKES, ROOMS, check_name
from mha_lib.check.sections import TITLES, section_title

ROOT = Path(__file__).parents[2]


def test_the_catalogue_is_large_and_each_name_stands_for_one_mistake():
    rows = [mistake for room in ROOMS for mistake in room.MISTAKES]
    assert sum(bool(mistake.stages) for mistake in rows) >= 90
    assert {mistake.name: mistake for mistake in rows} == MISTAKES
    assert len(rows) == len(MISTAKES)


def slug(heading):
    """The anchor that myst gives a heading."""
    text = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"\s", "-", text)


def test_every_mistake_points_to_a_section_that_exists():
    headings = {}
    book = ROOT / "book"
    for page in sorted([*book.glob("[0-9]*.ipynb"), *book.glob("deeper/*.ipynb")]):
        name = page.relative_to(book).with_suffix("").as_posix()
        for cell in json.loads(page.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                for heading in re.findall(
                    r"^#{1,3} (.+)$", "".join(cell["source"]), re.MULTILINE
                ):
                    headings[f"{name}#{slug(heading)}"] = heading
    told = {
        f"{page}#{x}": y for page, found in TITLES.items() for x, y in found.items()
    }
    assert told.keys() == {m.section for m in MISTAKES.values()}
    assert told == {section: headings[section] for section in told}
    assert section_title("05_one_matrix_for_qkv#a-published-fault") == (
        "chapter 5, 'A published fault'"
    )
    dropped = "deeper/05_what_dropout_drops#which-number-does-dropout-drop"
    assert section_title(dropped) == (
        "a deeper page of chapter 5, 'Which number does dropout drop?'"
    )


def test_messages_are_sentences_and_sources_are_threads():
    for name, mistake in MISTAKES.items():
        assert re.fullmatch(r"[a-z0-9-]+", name)
        assert mistake.message.endswith(".") and len(mistake.message) < 200
        assert mistake.symptom[0].isupper()
        assert re.fullmatch(r"([\w.-]+/[\w.-]+#\d+)?", mistake.source)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("no-scal", "no-scale$"),
        ("No_Scale", "no-scale$"),
        ("mask inverted", "mask-inverted"),
        ("softmax", "no-softmax, log-softmax"),
        ("the other scale", "no-scale, scale-embed-dim"),
        ("xyzzy", "none, so look at the list again"),
        ("", "none"),
    ],
)
def test_a_name_that_is_not_in_the_list_is_told_the_near_ones(name, near):
    with pytest.raises(ValueError, match=f"is not in the list; near it: {near}"):
        check_name(name)
    check_name("no-scale")


def test_what_is_no_name_is_asked_for_one():
    with pytest.raises(ValueError, match="such as 'no-scale'; got 7"):
        check_name(7)
