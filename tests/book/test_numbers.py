"""A measured number in the text is computed or asserted near it, or has a source.

What a cell prints is compared by nbval, what it asserts by the cell itself.
"""

import re

import pytest

from tools import book, notebook

NUMBER = re.compile(
    r"(?<![\w.#/·-])(\d+\.\d+"  # with a decimal point, a unit, or as a factor
    r"|\d+(?=\s?(?:%|times\b|ms\b|µs\b|[kMG]i?B\b|bytes\b|seconds?\b)))"
)
NO_NUMBERS = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\{[\w:]+\}`[^`]*`|https?://\S+"
    r"|^:label:.*$|^```\{(?:exercise|solution)-start\}.*$"
    r"|(?:[Ss]ections?|[Ee]xercises?|[Tt]orch|Python) \d+\.\d+(?:(?:,| and) \d+\.\d+)*"
    r"|\[\d+\.\d+",
    re.MULTILINE,
)
SOURCE = re.compile(r"\{cite|github\.com/")
AROUND = 2  # cells before and after, where its section is longer


def numbers(paragraph: str) -> list[str]:
    """What a paragraph states as measured; none where it names somebody's text."""
    if SOURCE.search(paragraph):
        return []
    return NUMBER.findall(NO_NUMBERS.sub(" ", paragraph))


def stem(number: str) -> str:
    """As a pattern, without the zeros at its end: 0.50 is 0.5, 1.00 is 1."""
    return re.escape(number.rstrip("0").rstrip(".") if "." in number else number)


def sections(cells) -> list[int]:
    """The number of the section that each cell ends in."""
    count, found = 0, []
    for cell in cells:
        text = cell.source if cell.cell_type == "markdown" else ""
        count += len(re.findall(r"^## ", text, re.MULTILINE))
        found.append(count)
    return found


def computed(cell) -> str:
    """What a code cell says: its code, and what it printed."""
    said = [cell.source]
    for out in cell.outputs:
        kinds = out.get("data", {})
        said += [out.get("text", "")]
        said += [kinds.get(kind, "") for kind in ("text/plain", "text/markdown")]
    return "\n".join(said)


def unchecked(cells) -> list[tuple[int, str]]:
    """Each number that no code near it holds, with the number of its cell."""
    of, found = sections(cells), []
    for i, cell in enumerate(cells):
        if cell.cell_type != "markdown" or i == 0:
            continue
        code = "\n".join(
            computed(other)
            for j, other in enumerate(cells)
            if other.cell_type == "code"
            if of[j] in {of[i], of[i - 1]} or abs(i - j) <= AROUND
        )
        found += [
            (i, number)
            for paragraph in cell.source.split("\n\n")
            for number in numbers(paragraph)
            if not re.search(rf"(?<![\d.]){stem(number)}\.?0*(?!\d)", code)
        ]
    return found


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_what_the_text_measures_is_computed(path):
    assert unchecked(notebook.read(path).cells) == []


def test_a_number_that_nobody_checks_is_found():
    def page(text, code):
        return [
            notebook.nbformat.v4.new_markdown_cell("# Title"),
            notebook.nbformat.v4.new_markdown_cell(text),
            notebook.nbformat.v4.new_code_cell(code),
        ]

    assert unchecked(page("It is 1.7 times 30 %.", "x")) == [(1, "1.7"), (1, "30")]
    assert unchecked(page("It is 1.7.", "assert x == 1.70")) == []
    assert unchecked(page("It is 1.70.", "assert x == 1.7")) == []
    assert unchecked(page("It is 1.7.", "assert x == 1.75")) == [(1, "1.7")]
    assert unchecked(page("It was 1.7 {cite}`somebody`.", "x")) == []
    assert unchecked(page("Exercise 1.7 and `1.7` of torch 2.5.", "x")) == []
