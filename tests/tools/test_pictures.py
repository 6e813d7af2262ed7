"""The README's pictures and the card can be taken anew, and show what they say."""

import re

import pytest

from tools import book, first_look, pictures


def test_all_are_taken_and_kept(chromium, tmp_path):
    for path in pictures.take(chromium, tmp_path):
        folder = pictures.STATIC if path.name == "card.png" else pictures.PICTURES
        for picture in (path, folder / path.name):
            data = picture.read_bytes()
            assert data.startswith(b"\x89PNG")
            assert 20_000 < len(data) < 400_000


def test_the_readme_shows_them():
    readme = (book.ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^\]]{40,})\]\((.+?)\)", readme)
    names = {path.name for path in pictures.PICTURES.iterdir()}
    assert {path.split("/")[-1] for _, path in shown} == names
    assert all((book.ROOT / path).exists() for _, path in shown)


def test_the_first_page_shows_what_a_reader_has_learned():
    intro = (book.ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    assert first_look.PAGE.relative_to(book.ROOT / "book").as_posix() in intro


def test_the_report_names_the_mistake():
    assert "mask-inverted" in pictures.told()


def test_without_pages_there_is_nothing_to_show(monkeypatch, tmp_path):
    monkeypatch.setattr(book, "HTML", tmp_path)
    with pytest.raises(SystemExit, match="run: make book"):
        pictures.main()
