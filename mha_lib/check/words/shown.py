"""Words for what a probe shows of the map, for one example, and for what to do next."""

import math
from collections.abc import Callable

from mha_lib.check.digits import apart
from mha_lib.check.letters import shape


def _heads(which: list[int]) -> str:
    """Heads with their verb."""
    said = f"Head{'s' * (len(which) > 1)} {', '.join(map(str, which))}"
    return f"{said} {'are' if len(which) > 1 else 'is'}"


def _factor(factor: float, scale: float, letters: str = "") -> str:
    """How much too large the scores are, and what that is a division by."""
    said = f"Its scores are {factor:.3f} times the right ones"
    if factor <= 0:
        return f"{said}."
    if math.isclose(factor, math.log(2), rel_tol=1e-3):
        return f"{said}, and that is ln 2: are these powers of 2? exp takes those of e."
    number = scale / factor
    by, due = f"{number:.3g}", f"{scale:.3g}"
    if by == due:
        by, due = apart(number, scale, 2)
    cut = math.isclose(number, int(scale), rel_tol=1e-3) and scale != int(scale)
    if cut:
        return (
            f"{said}: they are divided by {number:.0f}, and √D = {due} is due; is its "
            "fraction cut off, by int(…), // or math.isqrt?"
        )
    by += f" (here {letters})" * bool(letters)
    return f"{said}: they are divided by {by}, where √D = {due} is due."


def _sums(low: float, high: float) -> str:
    """What the rows of a map sum to; it is 1, or all digits that tell."""
    ends = (apart(x, 1.0, 2)[0] if abs(x - 1) > 1e-5 else "1" for x in (low, high))
    return (
        "With one-hot values the output shows the map: its rows sum to "
        f"{' … '.join(dict.fromkeys(ends))}."
    )


def _row_sum(
    sequence: int, head: int, row: int, yours: float, right: float, masked: bool = True
) -> str:
    """By what is wrong with it: all is hidden, too much is seen, or neither."""
    where = f"(sequence {sequence}, head {head})"
    if not right:
        return (
            f"Every key is hidden from query {row} {where}: its weights have to be 0, "
            f"and yours sum to {yours:.2f}."
        )
    if math.isnan(yours):
        cause = (
            "is every key hidden from it?"
            if masked
            else "the root of a negative number, 0/0 or ∞/∞ makes the first NaN, or a "
            "softmax of -∞ alone."
        )
        return (
            f"The weights of query {row} are NaN {where}, and have to sum to 1: {cause}"
        )
    if abs(yours) < 0.005:
        return (
            f"Query {row} gives every key the weight 0 {where}; its weights have to "
            "sum to 1."
        )
    got, _ = apart(yours, 1.0, 2)
    return f"Row {row} of your map {where} sums to {got}; it has to sum to 1."


def _weight(query: int, key: int, yours: float, right: float, **place: int) -> str:
    """A weight that is another."""
    got, due = apart(yours, right, 2)
    return (
        f"Query {query} gives key {key} the weight {got}; {due} is right "
        f"(sequence {place['sequence']}, head {place['head']})."
    )


def _some(names: list[str], most: int | None) -> str:
    """All names, or the first ones and how many more there are."""
    rest = len(names) - len(names[:most])
    return ", ".join(names[:most]) + f" and {rest} more" * bool(rest)


def _number(place: list[int], yours: float, right: float) -> str:
    """A number of the output that is another."""
    got, due = apart(yours, right, 3)
    where = f"output{place}" if place else "The output"
    return f"{where} is {got}; {due} is right."


SHOWN: dict[str, str | Callable[..., str]] = {
    # the map that a probe reveals
    "map-sums": _sums,
    "map-negative": "Some of them are negative.",
    "no-mix": "With one-hot values a mix of them has to come back, and does not: look "
    "at how the values are projected and cut, and at what follows the weights.",
    "not-times-values": "The output is not the weights that you return times the "
    "values: look at the values, and at what follows the weights.",
    "weights-right": "The weights that you return are right: look at the values, and "
    "at what follows the weights.",
    "weights-first": "The output is the weights that you return times the values, and "
    "these weights are wrong: look at what comes before them.",
    "values-of-others": "With one-hot values, the same in all sequences and heads, the "
    "output is the weights that you return times the values; with others it is not, "
    "and these weights are wrong, too. Do the queries, keys and values that meet come "
    "from one sequence and one head?",
    "numbers-moved": "Every number of the input comes back, some of them at another "
    "place.",
    "heads-right": lambda right, wrong: (
        f"{_heads(right)} right, {_heads(wrong).lower()} not: which queries, keys and "
        "values does each head get?"
    ),
    "heads-in-order": lambda order: (
        f"Its heads are those of the reference in the order "
        f"{', '.join(map(str, order))}."
    ),
    "scores-times": _factor,
    "map-right": "In this call, with T = {T} and S = {S}, the map is right: what is "
    "different in the calls that are wrong?",
    "sums-alone": "Within each row the shares are right, and their sum is not 1: "
    "divide each row by the sum of its own, exp.sum(dim=-1, keepdim=True).",
    "later-unseen": "Where nothing is hidden, later keys get the weight 0, and earlier "
    "ones do not: is a causal mask applied that nobody gave?",
    "some-unseen": "Where nothing is hidden, query {query} gives key {key} the weight "
    "0; each weight has to be larger than 0 (sequence {sequence}, head {head}).",
    "normalised": "Each token of the output has the mean 0 and the deviation 1: is "
    "there a LayerNorm behind the layer?",
    # one example
    "row-sum": _row_sum,
    "hidden-weight": "Query {query} gives key {key}, which is hidden, the weight "
    "{yours:.2f} (sequence {sequence}, head {head}).",
    "other-weight": _weight,
    "other-shape": lambda yours, right, sizes=None: (
        f"Your result has the shape {shape(yours, sizes or {})}; {right} is right."
    ),
    "other-kind": "Your result holds {yours}; {right} is right.",
    "other-mask": "mask{place} is {yours}; {right} is right.",
    "other-truth": "output{place} is {yours}; {right} is right.",
    "other-number": _number,
    # of what has no name: where it shows, and what to do next
    "cases": lambda right, wrong, most=None: (
        f"It is right in {len(right)} of {len(right) + len(wrong)} cases "
        f"({_some(right, most)}), and wrong in {_some(wrong, most)}."
        if right and wrong
        else f"It is wrong in every case: {_some(wrong, most)}."
        if wrong
        else "In every case the answer is right."
    ),
    "with-and-without": lambda plain, masked: (
        "It is wrong without a mask and with one."
        if not plain and not masked
        else f"It is right {'without' if plain else 'with'} a mask, and wrong "
        f"{'with one' if plain else 'without one'}."
    ),
    "rows-lost": "The rows of the weights that you return do not all sum to 1.",
    "next-numbers": "Next: let x hold 0, 1, 2, … in order, with B = 1, T = 2, H = 2 "
    "and D = 3, print what you return, and draw on paper where each number should lie.",
    "next-table": "Next: print your mask for T = 3 and S = 4 (two lengths, if it takes "
    "lengths) beside the table that you draw on paper.",
    "next-smallest": "Next: call it yourself with the smallest case that is wrong, and "
    "print what each line makes of it: which is the first that you did not expect?",
    "next-mask": "Next: with T = 2 and S = 3, hide one key. Print the scores before "
    "the softmax and the weights after it: a hidden score has to be -inf, its weight "
    "0, and the other weights of the row have to sum to 1.",
    "next-size": "Next: call it yourself at a size that is right and at one that is "
    "wrong, and print the shape after each line: which axis is taken for another, or "
    "which number of yours is a limit?",
    "next-after": "Next: print weights @ v for one sequence with E = 4 and two heads, "
    "and after it each step up to what you return: how are the heads joined, and what "
    "is done to them?",
    "next-values": "Next: with T = 2 and S = 3, let v hold 1, 2, 3 in its one column. "
    "Print the v that you multiply, weights @ v and what you return: is v still what "
    "came in, and is the product what you return?",
    "next-before": "Next: with D = 4 and short vectors of 0 and 1, compute one score "
    "by hand, q · k divided by 2, and one row of the softmax. Print yours beside them.",
    "next-stages": "Next: with B = 1, T = 2, S = 3 and two heads, print each step: the "
    "projections, the heads, the scores, the weights, the context, the output. Compare "
    "them with a loop over the heads; the first that differs holds the mistake.",
    "next-one": "Next: with T = 2, S = 3 and D = 4, print each step: the scores, the "
    "weights, the output. Compute one row of each by hand; the first that differs "
    "holds the mistake.",
}
