"""Build the book into `_build/html` and make sure that it is all there.

    python -m tools.build

The build is always clean: an incremental one notices no change in `mha_lib`.
"""

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jupytext
from bs4 import BeautifulSoup

from tools import book, notebook

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
COMMAND = ["build", ".", "-W", "-n", "--keep-going"]  # warnings fail the build
COLOUR = re.compile(r"\x1b\[[\d;]*m")
FAILED_CELL = re.compile(
    r"following cell:\n-{18}\n(?P<source>.*?)\n-{18}\n(?P<report>.*?)"
    r"\n+The above exception",
    re.DOTALL,
)
FAILED_LINE = re.compile(r"^-+> \d+ +(.*)$", re.MULTILINE)
ERROR = re.compile(r"^\w+(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)
COMPLAINT = re.compile(
    r"^\S.*\b(?:WARNING|ERROR|\w+Error|Extension error)\b[^:\n]*:\s\S.*$",
    re.MULTILINE,
)
MOST_COMPLAINTS = 5
FAILED_PAGE = re.compile(r"ExecutionError: (?P<path>\S.*\.(?:ipynb|md))$", re.MULTILINE)
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
            said.append(COLOUR.sub("", line))
            print(line if sys.stdout.isatty() else said[-1], end="", flush=True)
    return process.returncode, "".join(said)


def why_it_failed(said: str) -> str:
    """Name the page and the cell where it stopped, or repeat the complaints."""
    stopped = FAILED_PAGE.search(said)
    if stopped is None:
        complaints = dict.fromkeys(COMPLAINT.findall(said))  # each once, in order
        return "\n".join(["", *list(complaints)[:MOST_COMPLAINTS]])
    path = Path(stopped["path"])
    reason = str(path.relative_to(book.ROOT))
    if cell := FAILED_CELL.search(said):
        page = jupytext.read(path)  # a notebook, or text with cells of code
        sources = [c.source.strip() for c in page.cells]
        index = sources.index(cell["source"].strip())
        reason += f", {notebook.name_of_cell(page, index)}"
        error = ERROR.findall(cell["report"])[-1:]
        line = FAILED_LINE.findall(cell["report"])[:1]
        reason += "".join(f": {part.strip(': ')}" for part in (*error, *line))
    return reason


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


def main() -> int:
    if problem := wrong_tool():
        print(problem, file=sys.stderr)
        return 1
    if absent := absent_sources():
        names = ", ".join(absent)
        print(f"_toc.yml names what does not exist: {names}.", file=sys.stderr)
        return 1
    shutil.rmtree(book.HTML.parent, ignore_errors=True)
    status, said = run_jupyter_book()
    if status:
        print(f"The book was not built: {why_it_failed(said)}", file=sys.stderr)
        shutil.rmtree(book.HTML, ignore_errors=True)  # or it would be served
        return 1
    if missing := missing_pages():
        print(f"Missing or empty pages: {', '.join(missing)}.", file=sys.stderr)
        return 1
    print(f"The book is in {book.HTML.relative_to(book.ROOT)}: open index.html there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
