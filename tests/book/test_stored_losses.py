"""The losses that chapter 4 stores are those that its deeper page trains."""

from tools import book, notebook


def printed(path, start: str) -> str:
    """What the cell that begins so, or holds it, prints."""
    (cell,) = (
        cell
        for cell in notebook.read(path).cells
        if cell.cell_type == "code" and start in cell.source
    )
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def test_the_chapter_prints_what_the_deeper_page_found():
    (chapter,) = (path for path in book.chapters() if path.stem.startswith("04_"))
    deeper = book.DEEPER / "04_a_guesser_that_must_not_peek.ipynb"
    stored = printed(chapter, "LOSSES = ")
    assert stored.count("mask") == 2
    assert stored == printed(deeper, "guessers.append")
