"""Submissions that are alike: a hint to look at both, and never a verdict.

Code is compared as tokens, so that comments, blanks and names of variables do not
count, nor lines that give a number to a name which is not used. Runs of tokens that
stand in the template do not count either, nor those that most of the class share: there
are few ways to write a mask. This is the idea of MOSS (Schleimer, Wilkerson and Aiken,
2003) without its sampling, which a class does not need. copydetect does the same on
characters and files; it knows no limit for what many share, which decides in tasks of
five lines, and nothing of cells.
"""

import io
import json
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

from mha_lib.grade.submission import Submission, refused

__all__ = ["Alike", "Pair", "code"]

RUN = 12  # tokens that are compared together
LEAST = 40  # tokens of one's own; below, honest work is the same
MANY = 20  # who share a run, and more than half of the class: it is common
SHARE = 0.8  # of the runs of the smaller one, from which on two are listed
LONGEST = 200_000  # characters of code that are looked at
SKIPPED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING, tokenize.ERRORTOKEN,
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two submissions that are alike.

    Attributes:
        one: a name.
        other: a name.
        share: of the smaller one's own code that stands in the other.
        kind: in words.
    """

    one: str
    other: str
    share: float
    kind: str


class Alike:
    r"""Looks for submissions that are alike, among those that were added.

    Args:
        template: what everybody was given.

    Example:
        >>> from mha_lib.grade.alike import Alike
        >>> from mha_lib.grade.submission import taken
        >>> ada = "\n".join(f"y{n} = f{n}(y, {n})  # {n}" for n in range(9))
        >>> alike = Alike()
        >>> alike.add("ada.py", taken(ada.encode(), "ada.py"))
        >>> alike.add("ben.py", taken(ada.replace("y", "z").encode(), "ben.py"))
        >>> alike.pairs()[0].kind
        'the same code with other names'
    """

    def __init__(self, template: Submission | None = None):
        self.template = _Own(template or refused(b"", ""), set(), set())
        self.owned: dict[str, _Own] = {}

    def add(self, name: str, submission: Submission) -> None:
        """Take what is in it, and keep what tells it from others."""
        own = _Own(submission, self.template.cells, self.template.runs)
        if own.length >= LEAST:
            self.owned[name] = own

    def pairs(self, groups: Mapping[str, set[str]] | None = None) -> list[Pair]:
        """Which submissions are alike, most alike first.

        Args:
            groups: for whom a submission counts, by its name; where two have somebody
                in common, they may be alike.
        """
        shared = Counter(run for own in self.owned.values() for run in own.runs)
        many = max(MANY, len(self.owned) / 2)  # a ring of copiers is no class
        rare = {
            name: {run for run in own.runs if shared[run] <= many}
            for name, own in self.owned.items()
        }
        found, theirs = [], groups or {}
        for one, other in _candidates(self.owned, rare):
            share, kind = _compared(
                self.owned[one], self.owned[other], rare[one], rare[other]
            )
            if kind and not (theirs.get(one, set()) & theirs.get(other, set())):
                found.append(Pair(one, other, share, kind))
        return sorted(found, key=lambda pair: (-pair.share, pair.one, pair.other))


class _Own:
    """What tells a submission from others, without what was given."""

    def __init__(self, submission: Submission, cells: set[str], runs: set[int]):
        self.digest, self.cells = submission.digest, set()
        exact, renamed = [], []
        for text in code(submission):
            tokens, plain = _tokens(text)
            cell = _hash(plain)
            self.cells.add(cell)
            if cell not in cells:
                exact += tokens
                renamed += plain
        self.length, self.exact, self.plain = len(exact), _hash(exact), _hash(renamed)
        starts = range(len(renamed) - RUN + 1)
        self.runs = {hash(tuple(renamed[x : x + RUN])) for x in starts} - runs


def _candidates(
    owned: Mapping[str, _Own], rare: Mapping[str, set[int]]
) -> set[tuple[str, str]]:
    """Pairs that have something in common; no others are compared."""
    places = defaultdict(list)
    for name in sorted(owned):
        for trait in (*rare[name], owned[name].plain):
            places[trait].append(name)
    return {pair for names in places.values() for pair in combinations(names, 2)}


def _compared(
    one: _Own, other: _Own, runs: set[int], others: set[int]
) -> tuple[float, str]:
    if one.digest == other.digest:
        return 1.0, "the same file"
    if one.exact == other.exact:
        return 1.0, "the same code"
    if one.plain == other.plain:
        return 1.0, "the same code with other names"
    least = min(len(runs), len(others))
    if least < LEAST - RUN + 1:
        return 0.0, ""  # all the rest is what many have
    share = len(runs & others) / least
    return share, f"{share:.0%} of it the same" if share >= SHARE else ""


def code(submission: Submission) -> list[str]:
    """The text of each cell of code; nothing of a file that is no notebook.

    Example:
        >>> from mha_lib.grade.alike import code
        >>> from mha_lib.grade.submission import taken
        >>> code(taken(b"x = 1", "ada.py"))
        ['x = 1']
    """
    text = submission.content.decode("utf-8", errors="replace")
    if submission.kind != "ipynb":
        return [text[:LONGEST]] if submission.kind else []
    try:
        cells = json.loads(text)["cells"]
        found = [x["source"] for x in cells if x["cell_type"] == "code"]
        texts = ["".join(source) for source in found]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []  # the grader says what is wrong with it
    kept, left = [], LONGEST
    for text in texts:
        kept.append(text[:left])
        left -= len(kept[-1])
    return kept


def _tokens(text: str) -> tuple[list[str], list[str]]:
    """The tokens of a cell: as they are, and with one word for all variables.

    What Jupyter alone knows is left out, and all after what no Python can read.
    """
    lines = (line for line in text.splitlines(True) if line.lstrip()[:1] not in "%!")
    exact, renamed = [], []
    for token in _that_count(io.StringIO("".join(lines))):
        attribute = exact[-1:] == ["."]
        exact.append(token.string)
        renamed.append(_renamed(token, attribute))
    return exact, renamed


def _that_count(text: io.StringIO) -> Iterator[tokenize.TokenInfo]:
    """Without lines such as ``n = 0``, where n stands in no others."""
    lines: list[list[tokenize.TokenInfo]] = [[]]
    try:
        for token in tokenize.generate_tokens(text.readline):
            if token.type == tokenize.NEWLINE:
                lines.append([])
            elif token.type not in SKIPPED and token.string.strip():
                lines[-1].append(token)
    except (tokenize.TokenError, SyntaxError):
        pass
    fillers = [_may_be_filler(line) for line in lines]
    used = {x.string for line, may in zip(lines, fillers) if not may for x in line}
    for line, may in zip(lines, fillers):
        if not may or line[0].string in used:
            yield from line


def _may_be_filler(line: list[tokenize.TokenInfo]) -> bool:
    kinds = [token.type for token in line]
    return kinds == [tokenize.NAME, tokenize.OP, tokenize.NUMBER]


def _renamed(token: tokenize.TokenInfo, attribute: bool) -> str:
    if token.type == tokenize.STRING:
        return "a text"
    name = token.type == tokenize.NAME and not attribute
    return "a name" if name and not keyword.iskeyword(token.string) else token.string


def _hash(tokens: list[str]) -> str:
    return sha256("\0".join(tokens).encode("utf-8", errors="replace")).hexdigest()
