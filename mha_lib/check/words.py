"""Words for what was found: one table, from a code and its values to a sentence.

Everything before is data. A `Fact` that came from beside a submission, and the advice
that is given there, have their words in `mha_lib.check.beside.words`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mha_lib.check.beside import RAN_WITH, located

__all__ = ["CONFIDENCE", "WORDS", "Fact", "in_words"]


@dataclass(frozen=True)
class Fact:
    """Something that was seen, as data.

    Attributes:
        code: a key of `WORDS`.
        values: what its words name, plain data.

    Example:
        >>> from mha_lib.check import Fact, in_words
        >>> in_words(Fact("map-sums", {"low": 0.5, "high": 1.25}))
        'The rows of your map sum to 0.50 … 1.25.'
    """

    code: str
    values: dict[str, object] = field(default_factory=dict)


def in_words(said: Fact | str) -> str:
    """The sentence of a fact; words of somebody else stay as they are."""
    if isinstance(said, str):
        return said
    words = WORDS[said.code]
    return words(**said.values) if callable(words) else words.format(**said.values)


def _way(
    error: str = "",
    line: str = "",
    mask: object = "",
    numbers: object = False,
    added: object = False,
    folded: object = False,
    **_: object,
) -> str:
    """In what way a submission was called that takes no call as its task says."""
    ways = ["the heads folded into the batch (B·H, T, D)"] if folded else []
    if mask or numbers or added:
        way = f"a mask {mask}".strip()
        way += " of numbers 0 and 1" if numbers else ""
        ways.append(way + (" that is all True" if added else ""))
    return (
        f"it ran with {', '.join(ways)}, not as the task says: {located(error, line)}"
    )


WORDS: dict[str, str | Callable[..., str]] = {
    # two calls
    "it-remembers": "The same call, with the same seed too, goes another way the "
    "second time: something is kept from one call to the next (a cache of keys and "
    "values?), or random numbers come from a generator of its own. Fix this first.",
    "it-varies": "Two calls with the same input gave different answers.",
    # the verdict
    "right-elsewhere": "Where it answers, it is right.",
    "reproduced": "{count} of {all} answers are reproduced exactly.",
    "masks-later": "The masks cannot be judged before that: fix this first.",
    "masks-unknown": "Without a mask all is right; what the mask does is in no "
    "catalogue.",
    "fill-leaks": "Where the scores of all visible keys are far below 0, hidden keys "
    "take the weight: they are filled with a number that is not low enough, such as "
    "-20. Use float('-inf') or torch.finfo(dtype).min.",
    "wrong-shape": "the output must have the shape {required}; got {got}",
    # beside the numbers
    "inputs-changed": lambda names: (
        f"After the call {' and '.join(names)} held other numbers."
    ),
    "other-dtype": lambda came, went: f"{came} came in, {', '.join(went)} came out.",
    "no-gradient": lambda names: (
        f"No gradient reaches {', '.join(names)}: a detach, .data, a no_grad or NumPy?"
    ),
    "other-dropout": "In training the output is like no dropout we know.",
    # choices that are no mistakes
    RAN_WITH: _way,
    "no-biases": lambda names: f"your layer has no {', '.join(names)}; they count as 0",
    "averaged": "averaged over the heads",
    # the map that a probe reveals
    "map-sums": "The rows of your map sum to {low:.2f} … {high:.2f}.",
    "map-negative": "Some of your weights are negative.",
    "heads-in-order": lambda order: (
        f"Its heads are those of the reference in the order "
        f"{', '.join(map(str, order))}."
    ),
    "scores-times": "Its scores are {factor:.3f} times the right ones.",
    # one example
    "row-sum": "Row {row} of your map (sequence {sequence}, head {head}) sums to "
    "{yours:.2f}; it has to sum to {right:.0f}.",
    "hidden-weight": "Query {query} gives key {key}, which is hidden, the weight "
    "{yours:.2f} (sequence {sequence}, head {head}).",
    "other-weight": "Query {query} gives key {key} the weight {yours:.2f}; "
    "{right:.2f} is right (sequence {sequence}, head {head}).",
    "other-shape": "Your result has the shape {yours}; {right} is right.",
    "other-mask": "mask{place} is {yours}; {right} is right.",
    "other-number": "output{place} is {yours:.3f}; {right:.3f} is right.",
}
CONFIDENCE = {
    "right": "every probe agrees with the reference",
    "named": "this mistake, and no other of the catalogue, gives your answers",
    "named by an error": "what your code raised shows this mistake",
    "stacked": "these mistakes together, and no fewer, give your answers",
    "stacked by an error": "what your code raised shows {raised}, and where it "
    "answered the others were seen",
    "ambiguous": "your answers are consistent with each of these; they cannot be told "
    "apart from outside",
    "unknown": "no mistake of the catalogue, alone or with others, gives your answers",
    "failed": "there is no answer to compare",
}
