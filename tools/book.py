"""What `_toc.yml` and `_config.yml` say: the pages, the notebooks, the repository."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
STUDENT = ROOT / "book" / "assignments" / "student"
DEEPER = ROOT / "book" / "deeper"
INTRO = ROOT / "book" / "intro.md"
PLAY = ROOT / "book" / "play"


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def pages() -> list[str]:
    """Every page in reading order, as paths from the root without a suffix."""
    return [*_pages((ROOT / "_toc.yml").read_text(encoding="utf-8"))]


@cache
def _pages(toc: str) -> tuple[str, ...]:
    return tuple(_files(yaml.safe_load(toc)))


def _files(entry: dict) -> Iterator[str]:
    yield from (entry[key] for key in ("root", "file") if key in entry)
    for key in ("parts", "chapters", "sections"):
        for child in entry.get(key) or []:
            yield from _files(child)


def notebooks() -> list[Path]:
    """Every page that is a notebook, in reading order."""
    candidates = (ROOT / f"{page}.ipynb" for page in pages())
    return [path for path in candidates if path.exists()]


def lessons() -> list[Path]:
    """Every chapter, beneath it its deeper pages, and the pages to play with."""
    return [path for path in notebooks() if path.parent != STUDENT]


def chapters() -> list[Path]:
    """Every chapter in reading order."""
    return [path for path in lessons() if path.parent == ROOT / "book"]


def deeper() -> list[Path]:
    """Every deeper page in reading order."""
    return [path for path in lessons() if path.parent == DEEPER]


def play() -> list[Path]:
    """Every page that is a widget first, and lesson after it."""
    return [path for path in lessons() if path.parent == PLAY]


def assignments() -> list[Path]:
    """Every assignment as students get it, in reading order."""
    return [path for path in notebooks() if path.parent == STUDENT]


def sources() -> list[Path]:
    """Every assignment with its solutions; `tools.assignments` derives the others."""
    return sorted(STUDENT.parent.glob("a*.ipynb"))


def repository() -> tuple[str, str]:
    """The address and the branch that every link and set-up cell derives from."""
    setting = read_yaml("_config.yml")["repository"]
    return setting["url"], setting["branch"]
