"""Tables as CSV: read what a platform or a spreadsheet wrote, write what is safe."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from unicodedata import category

from mha_lib.grade import lines

__all__ = ["Row", "cell", "original", "read", "text"]

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # begin one
JOINERS = "\u200c\u200d"  # invisible, and letters of Persian and Hindi need them
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's categories: control, bidirectional
SEPARATORS = ",;\t"
ESCAPED = re.compile(r"\\([\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


@dataclass(frozen=True)
class Row:
    """The cells of one line, by the headers, and the place of the line."""

    cells: dict[str, str]
    where: str

    def fail(self, reason: str) -> ValueError:
        """An error that says in which file and line."""
        return ValueError(f"{self.where}: {reason}")


def read(path: Path) -> tuple[list[str], list[Row]]:
    """The headers of a CSV file and its rows; blank lines are left out.

    Raises:
        ValueError: it is no such table; the message names file and line.
    """
    content = lines.decoded(path.read_bytes(), path)
    first = content.partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    text = io.StringIO(content, newline="")
    table = csv.reader(text, delimiter=separator, strict=True)
    headers, rows, before = None, [], 0
    try:
        for cells in table:
            where, before = f"{path}, line {table.line_num}", table.line_num
            if not any(x.strip() for x in cells):
                continue
            if headers is None:
                headers = [x.strip() for x in cells]
                _check_headers(headers, where)
            elif len(cells) != len(headers):
                came, due = len(cells), len(headers)
                raise ValueError(
                    f"{where}: as many cells as in the line of headers are required, "
                    f"which is {due}; got {came}. A text with {separator!r} in it "
                    'stands in quotes, "like this"'
                )
            else:
                rows.append(Row(dict(zip(headers, cells)), where))
    except csv.Error as error:
        where = f"{path}, line {before + 1}"
        raise ValueError(f"{where}: {error}; is a quote open or too many?") from None
    if headers is None:
        raise ValueError(f"{path}: a table with a line of headers is required")
    return headers, rows


def _check_headers(headers: list[str], where: str) -> None:
    """A dict has room for each name once."""
    named = [header for header in headers if header]
    for header in named:
        if named.count(header) > 1:
            raise ValueError(f"{where}: the headers must differ; got {header!r} twice")


def text(headers: list[str], rows: Iterable[Iterable[str]]) -> str:
    """A table as CSV: a line a row, every cell in quotes and no formula.

    Example:
        >>> from mha_lib.grade.tables import text
        >>> print(text(["name", "points"], [["=1+1", "2"]]), end="")
        "name","points"
        "'=1+1","2"
    """
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(map(cell, headers))
    table.writerows(map(cell, row) for row in rows)
    return written.getvalue()


def cell(given: str) -> str:
    """A text of one line that shows what is in it, and is no formula.

    What would begin another line, turn the text round or not be seen at all is written
    as Python writes it; an apostrophe marks what a spreadsheet would compute.
    """
    shown = "".join(
        x.encode("unicode_escape").decode()
        if x == "\\" or (category(x) in UNSEEN and x not in JOINERS)
        else x
        for x in given
    )
    # A dash alone is what Moodle writes for nothing.
    computed = shown != "-" and shown.lstrip().startswith((*FORMULA, "'"))
    return "'" * computed + shown


def original(shown: str) -> str:
    r"""What `cell` was given.

    Example:
        >>> from mha_lib.grade.tables import cell, original
        >>> original(cell("=1+1\n")) == "=1+1\n"
        True
    """
    shown = shown.removeprefix("'")
    return ESCAPED.sub(lambda x: x[0].encode().decode("unicode_escape"), shown)
