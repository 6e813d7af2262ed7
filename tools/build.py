"""Build the book into `_build/html` and make sure that it is all there.

    python -m tools.build

First every page with code that changed is run (`tools.executed`), then jupyter-book
makes the pages from the outputs. That half is always clean: an incremental one notices
no change in `mha_lib`. Where nothing changed at all, the pages stay as they are.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version

from bs4 import BeautifulSoup

from tools import book, executed, notebook

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
COMMAND = ["build", ".", "-W", "-n", "--keep-going"]  # warnings fail the build
SOURCES = ("book", "mha_lib", "tools", "_config.yml", "_toc.yml")
COMPLAINT = re.compile(
    r"^\S.*\b(?:WARNING|ERROR|\w+Error|Extension error)\b[^:\n]*:\s\S.*$",
    re.MULTILINE,
)
MOST_COMPLAINTS = 5
LEAST_TEXT = 50  # characters; a page with less was not really written


def wrong_tool() -> str | None:
    """Say what is wrong with the installed jupyter-book, if anything."""
    installed = version("jupyter-book")
    if installed.startswith("1."):
        return None
    return (
        f"The book needs jupyter-book 1.x, and {installed} is installed. "
        "Run: pip install -r requirements.txt"
    )


def run_jupyter_book() -> tuple[int, str]:
    """Show the build as it goes, and return its exit status and all it said."""
    said = []
    with subprocess.Popen(
        [sys.executable, "-c", JUPYTER_BOOK, *COMMAND],
        cwd=book.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    ) as process:
        for line in process.stdout:
            said.append(notebook.COLOUR.sub("", line))
            print(line if sys.stdout.isatty() else said[-1], end="", flush=True)
    return process.returncode, "".join(said)


def complaints(said: str) -> str:
    """What it complained of, each once and in order, but not all of a flood."""
    return "\n".join(
        ["", *list(dict.fromkeys(COMPLAINT.findall(said)))[:MOST_COMPLAINTS]]
    )


def absent_sources() -> list[str]:
    """The pages that _toc.yml names and that nobody has written."""
    suffixes = (".md", ".ipynb")
    return [
        page
        for page in book.pages()
        if not any((book.ROOT / f"{page}{suffix}").exists() for suffix in suffixes)
    ]


def missing_pages() -> list[str]:
    """The pages of the table of contents that are absent or hold next to nothing."""
    return [page for page in book.pages() if len(text_of(page)) < LEAST_TEXT]


def text_of(page: str) -> str:
    path = book.HTML / f"{page}.html"
    if not path.exists():
        return ""
    article = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").article
    return article.get_text(strip=True) if article else ""


def sources(outputs: Iterable[str]) -> str:
    """Changes with everything that the pages are made from."""
    parts = [executed.digest_of_files(source) for source in SOURCES]
    return hashlib.sha256("\n".join([*parts, *outputs]).encode()).hexdigest()


def main() -> int:
    if problem := wrong_tool():
        print(problem, file=sys.stderr)
        return 1
    if absent := absent_sources():
        names = ", ".join(absent)
        print(f"_toc.yml names what does not exist: {names}.", file=sys.stderr)
        return 1
    where = book.HTML.relative_to(book.ROOT)
    pages = executed.pages()
    digests = executed.digests(pages)
    made_from, now = book.HTML / ".made_from", sources(digests.values())
    if made_from.exists() and made_from.read_text() == now and not missing_pages():
        print(f"Nothing has changed: the book is in {where}; open index.html there.")
        return 0
    shutil.rmtree(book.HTML, ignore_errors=True)  # or the old one would be served
    shutil.rmtree(book.HTML.parent / ".doctrees", ignore_errors=True)
    if failed := executed.fill(pages, digests):
        print("The book was not built:", *failed, sep="\n", file=sys.stderr)
        return 1
    status, said = run_jupyter_book()
    if status:
        print(f"The book was not built: {complaints(said)}", file=sys.stderr)
        shutil.rmtree(book.HTML, ignore_errors=True)
        return 1
    if missing := missing_pages():
        print(f"Missing or empty pages: {', '.join(missing)}.", file=sys.stderr)
        return 1
    made_from.write_text(now)
    print(f"The book is in {where}: open index.html there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
