"""Words for what was found: one table, from a code and its values to a sentence.

Everything before is data. A `Fact` that came from beside a submission, and the advice
that is given there, have their words in `mha_lib.check.beside.words`. ::

    found   what the numbers tell, and what a verdict rests on
    asked   what a task asks for and a submission does not do; its choices
    shown   what a probe shows of the map, one example, what to do next
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mha_lib.check.words.asked import ASKED
from mha_lib.check.words.found import CONFIDENCE, FOUND
from mha_lib.check.words.shown import SHOWN

__all__ = ["CONFIDENCE", "WORDS", "Fact", "in_words"]

WORDS: dict[str, str | Callable[..., str]] = {**FOUND, **ASKED, **SHOWN}


@dataclass(frozen=True)
class Fact:
    """Something that was seen, as data.

    Attributes:
        code: a key of `WORDS`.
        values: what its words name, plain data.

    Example:
        >>> from mha_lib.check import Fact, in_words
        >>> in_words(Fact("rows-lost"))
        'The rows of the weights that you return do not all sum to 1.'
    """

    code: str
    values: dict[str, object] = field(default_factory=dict)


def in_words(said: Fact | str) -> str:
    """The sentence of a fact; words of somebody else stay as they are."""
    if isinstance(said, str):
        return said
    words = WORDS[said.code]
    return words(**said.values) if callable(words) else words.format(**said.values)
