"""The plan of a term in the guide: what is handed out has its chapters behind it."""

import re

from tools import book

GUIDE = (book.ROOT / "book" / "instructors_guide.md").read_text(encoding="utf-8")
INDEX = (book.ROOT / "book/assignments/index.md").read_text(encoding="utf-8")
WEEK = re.compile(r"^\| (\d+) \| \[(\d+)\]\((\d\d)_\w+\.ipynb\) \| (.*)\|$", re.M)
ROW = re.compile(r"^\| \[(\d) · .*?\| ([^|]+) \| [^|]+ \|$", re.M)
SHOWS = {4: 11, 5: 12}  # an assignment, and the chapter that gives it away


def weeks() -> list[tuple[int, int, list[int]]]:
    """Week, chapter, and the assignments that are handed out then."""
    found = WEEK.findall(GUIDE)
    assert all(int(shown) == int(linked) for _, shown, linked, _ in found)
    return [
        (int(week), int(chapter), [int(x) for x in re.findall(r"\d", handed)])
        for week, chapter, _, handed in found
    ]


def read_first() -> dict[int, set[int]]:
    """{assignment: the chapters that its row asks for}"""
    return {
        int(number): {int(x) for x in re.findall(r"\[(\d+)\]\(", needed)}
        for number, needed in ROW.findall(INDEX)
    }


def test_weeks_and_chapters_rise_and_each_assignment_comes_once():
    numbers, chapters, handed = zip(*weeks())
    assert numbers == tuple(range(1, len(numbers) + 1))
    assert list(chapters) == sorted(set(chapters))
    assert sum(handed, []) == sorted(read_first()) == list(range(1, 7))


def test_what_is_handed_out_has_its_chapters_behind_it():
    needed, read = read_first(), set()
    for _, chapter, handed in weeks():
        read.add(chapter)
        for assignment in handed:
            assert needed[assignment] and needed[assignment] <= read, assignment


def test_an_assignment_comes_before_the_chapter_that_shows_its_answers():
    week_of = {chapter: week for week, chapter, _ in weeks()}
    for week, _, handed in weeks():
        for assignment in set(handed) & set(SHOWS):
            assert week < week_of[SHOWS[assignment]]
