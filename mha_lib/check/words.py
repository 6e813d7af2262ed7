"""Words for what was found: one table, from a code and its values to a sentence.

Everything before is data. A `Fact` that came from beside a submission, and the advice
that is given there, have their words in `mha_lib.check.beside.words`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mha_lib.check.beside import RAN_WITH, RETURNED, located
from mha_lib.check.letters import legend, shape

__all__ = ["CONFIDENCE", "WORDS", "Fact", "in_words"]


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


def _way(
    error: str = "",
    line: str = "",
    mask: object = "",
    numbers: object = False,
    added: object = False,
    folded: object = False,
    hint: str = "",
    **_: object,
) -> str:
    """In what way a submission was called that takes no call as its task says."""
    ways = ["the heads folded into the batch (B·H, T, D)"] if folded else []
    if mask or numbers or added:
        way = f"a mask {mask}".strip()
        way += " of numbers 0 and 1" if numbers else ""
        ways.append(way + (" that is all True" if added else ""))
    by_hand = " Add the axis of the heads yourself: mask[..., None, :, :]."
    return (
        f"As the task calls it, it fails: {located(error, line)}.{hint} It ran with "
        f"{', '.join(ways)}.{by_hand if mask == '(B, 1, T, S)' else ''}"
    )


def _unkept(where: str, hint: str = "") -> Callable[..., str]:
    """What a probe of conduct showed, which calls as ``where`` says."""

    def words(
        error: str = "",
        line: str = "",
        weights: str = "",
        finite: bool = True,
        dtype: str = "",
        sizes: Mapping[str, int] | None = None,
    ) -> str:
        if error:
            said = f"As the task calls it, {where}, it fails: {located(error, line)}."
            return said + legend(error, sizes or {})
        seen = "the output is wrong" if finite else "NaN or infinity comes out"
        seen = f"the returned weights {weights}" if weights else seen
        seen = f"{dtype} comes out" if dtype else seen
        stop = "" if hint.endswith("?") else "."
        return f"{where[0].upper()}{where[1:]}, {seen}{hint}{stop}"

    return words


def _no_pair(got: str, pair: bool) -> str:
    """What came back where a tensor is due, or two."""
    taken = "`output, weights = …`" if pair else "`output = …`"
    due = "(output, weights) or, if the weights are not asked for, the output alone"
    due = due if pair else "one tensor"
    return f"As the task calls it, {taken} fails: {got} comes back. Return {due}."


def _weights(some: bool = False, kind: str = "", empty: bool = False) -> str:
    """What is amiss with the returned weights."""
    if empty:
        return (
            "Where a query sees no key, the output holds numbers and the weights that "
            "come back hold NaN: return the weights that the output is made of."
        )
    if not kind:
        asked = "The weights have to be returned too, after the output"
        return asked + (
            ": some calls return them, others do not." if some else "; none came back."
        )
    asked = "The returned weights have to be (B, H, T, S), a map for each head; "
    said = {
        "averaged": "yours are averaged.",
        "no-head-axis": "where there is one head, yours lack the axis of the heads.",
        "others": "yours are others.",
    }
    return asked + said[kind]


def _lost(names: list[str], where: list[str]) -> str:
    """Which inputs get no gradient, and where if not everywhere."""
    places = f" ({'; '.join(dict.fromkeys(where))})" if where else ""
    who = ", ".join(names)
    used, them = ("is it", "it") if len(names) == 1 else ("are they", "them")
    return (
        f"No gradient reaches {who}{places}: {used} used? If so, a detach, .data, a "
        f"no_grad or NumPy cuts {them} off."
    )


def _heads(which: list[int]) -> str:
    """Heads with their verb."""
    said = f"Head{'s' * (len(which) > 1)} {', '.join(map(str, which))}"
    return f"{said} {'are' if len(which) > 1 else 'is'}"


def _reproduced(count: int, all: int, mistakes: int = 1, ways: int = 1) -> str:
    """What it means that something is named, and what to do."""
    calls = "all" if count == all else f"{count} of the"
    calls = f"{calls} {all} calls that were" if all > 1 else "the one call that was"
    this = "This explains" if mistakes == 1 else "Together these explain"
    this = this if ways == 1 else "Each of these explains"
    mend = "mend it" if mistakes == ways == 1 else "mend one"
    return f"{this} {calls} tried: {mend}, then check again."


def _shapes(
    required: tuple, got: tuple, axes: str = "", sizes: Mapping[str, int] | None = None
) -> str:
    """The shape that is due, in letters and numbers, and the one that came."""
    due = f"{axes} = {required}" if axes else f"{required}"
    said = f"the output must have the shape {due}; got {shape(got, sizes or {})}"
    apart = "H" in (sizes or {}) and len(got) == len(required) + 1
    if apart and math.prod(got) == math.prod(required):
        said += "; the heads have an axis of their own still: join it with D"
    if "H" in (sizes or {}) and math.prod(got) == 3 * math.prod(required):
        said += "; three times as many numbers: chunk(3, dim=-1) gives q, k and v"
    if got[-1:] == (3 * required[-1],) and got[:1] == (required[0] // 3,):
        said += "; chunk cuts the first axis, the batch, unless told: chunk(3, dim=-1)"
    T, H, D = ((sizes or {}).get(letter) for letter in "THD")
    if T != H and T and D and tuple(got[1:]) == (H, T * D):
        said += "; before a merge, (B, H, T, D), the heads come before the tokens"
    return said


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
            else ("the root of a negative number, 0/0 or ∞/∞ makes the first NaN.")
        )
        return (
            f"The weights of query {row} are NaN {where}, and have to sum to 1: {cause}"
        )
    if abs(yours) < 0.005:
        return (
            f"Query {row} gives every key the weight 0 {where}; its weights have to "
            "sum to 1."
        )
    return f"Row {row} of your map {where} sums to {yours:.2f}; it has to sum to 1."


def _factor(factor: float, scale: float, letters: str = "") -> str:
    """How much too large the scores are, and what that is a division by."""
    said = f"Its scores are {factor:.3f} times the right ones"
    if factor <= 0:
        return f"{said}."
    if math.isclose(factor, math.log(2), rel_tol=1e-3):
        return f"{said}, and that is ln 2: are these powers of 2? exp takes those of e."
    by = f"{scale / factor:.3g}" + f" (here {letters})" * bool(letters)
    return f"{said}: they are divided by {by}, where √D = {scale:.3g} is due."


def _divided_by(number: float) -> str:
    """A constant in place of √D, and for which D it would be right."""
    by = f"divided by {number:.3g}" if number > 1 else f"multiplied by {1 / number:.3g}"
    said = f"The scores are {by} in every call, whatever D is"
    if (D := round(number**2)) and math.isclose(number**2, D):
        said += f"; that is √D where D = {D} alone, as in an example perhaps"
    return f"{said}. Take D from the queries: q.shape[-1]."


def _changed(inputs: Mapping[str, tuple]) -> str:
    """What became of inputs that are not what they were."""
    numbers = [name for name, shapes in inputs.items() if not shapes]
    said = [f"{' and '.join(numbers)} held other numbers"] if numbers else []
    said += [
        f"{name} had another shape, {shapes[1]} where {shapes[0]} came in"
        for name, shapes in inputs.items()
        if shapes
    ]
    return f"After the call {', and '.join(said)}."


OF_CALLS = {None: "", True: "of those with a mask, ", False: "of those without one, "}


def _wrong_at_one(letters: list[str], masked: bool | None) -> str:
    """That it is wrong where one of these sizes is 1, and nowhere else."""
    *most, last = letters
    one = f"{', '.join(most)} or {last}" if most else last
    return f"In our tries, {OF_CALLS[masked]}it is wrong only where {one} is 1."


def _wrong_from(limits: list[tuple[str, int, int]], masked: bool | None) -> str:
    """Up to which size it is right, and from which on it is wrong."""
    said = " and ".join(
        f"for {letter} up to {right}, and wrong from {letter} = {wrong} on"
        for letter, right, wrong in limits
    )
    both = " (both were large together)" if len(limits) > 1 else ""
    return f"In our tries, {OF_CALLS[masked]}it is right {said}{both}."


MADE_OF = {  # where no key is seen
    "nan": "NaN",
    "zeros": "zeros",
    "uniform": "equal weights",
    "unmasked": "the weights of all keys",
}
WORDS: dict[str, str | Callable[..., str]] = {
    # two calls
    "it-remembers": "The same call, with the same seed too, goes another way the "
    "second time: something is kept from one call to the next (a cache of keys and "
    "values?), or random numbers come from a generator of its own. Fix this first.",
    "it-varies": "Two calls with the same input gave different answers.",
    "it-makes-layers": "Two calls with the same input gave different answers: each "
    "call makes a layer, with new weights. Make it once, in __init__.",
    # several mistakes that are rather one
    "as-if-exchanged": "These are the answers of k and v exchanged after the "
    "projections: attention(q, v, k)?",
    "as-if-inverted": "These are the answers of a causal mask alone the wrong way "
    "round: later keys are seen, and earlier ones hidden?",
    "cut-otherwise": lambda cut: (
        f"It is right if the rows of a fused projection are those of {', '.join(cut)}; "
        "q, k, v is expected. Cut it in that order, or tell check what you mean: "
        f"layers={{'{cut}': '…', 'o': '…'}}."
    ),
    "heads-and-features": "It is right but for x, which is cut into D heads of size "
    "H: view(B, T, H, D) is due before the transpose, not view(B, T, D, H).",
    "slices-overlap": "It is right but for x, of which head h gets the features h to "
    "h + D - 1, which overlap: h * D to (h + 1) * D - 1 are due.",
    "as-if-folded": "These are the answers of (B·H, T, D) brought to (T, B, E) by one "
    "view or reshape: is the transpose(0, 1) before it missing?",
    "as-if-left": "These are the answers of heads that stay behind the tokens, and "
    "of a transpose when they are joined: is the transpose missing when they are cut?",
    "right-in-training": "In training mode, every dropout set to 0, it is right, and "
    "in evaluation mode it is not: what does the code do only if self.training, or "
    "only if not?",
    # the verdict
    "right-elsewhere": lambda ones=(): (
        f"Where it answers, {f'with {one} = 1, ' if (one := ' = '.join(ones)) else ''}"
        "it is right."
    ),
    "reproduced": _reproduced,
    "dots-left": "A `...` still stands in line {where}: is that part written?",
    "turned": lambda matrices: (
        f"It concerns {', '.join(matrices)} alone."
        if len(matrices) < 4
        else f"It concerns all of {', '.join(matrices)}."
    ),
    "divided-by": _divided_by,
    "masks-later": "The masks cannot be judged before that: fix this first.",
    "masks-unknown": "Without a mask all is right: look at what the mask does, which "
    "no mistake that has a name here explains.",
    "wrong-at-one": _wrong_at_one,
    "wrong-from": _wrong_from,
    "fill-nan": "Where a key is hidden, NaN comes out: 0 times ∞, ∞ minus ∞ or a fill "
    "of +∞ makes it. Fill with masked_fill(~mask, float('-inf')), and add nothing.",
    "fill-leaks": "Where the scores of all visible keys are far below 0, hidden keys "
    "take the weight: they are filled with a number that is not low enough, such as "
    "-20. Use float('-inf') or torch.finfo(dtype).min.",
    "wrong-shape": _shapes,
    "weights-came-first": "That is the shape of the weights: the output comes first, "
    "return (output, weights).",
    # beside the numbers
    "weights-laid": "The weights that you return are {axes}, where (B, H, T, S) is "
    "due: of a list with a map (B, T, S) for each head, torch.stack(…, dim=1) makes "
    "it, with the heads behind the batch.",
    "weights-are": "What you return as the weights is {what}.",
    "inputs-changed": _changed,
    "other-dtype": lambda came, went: f"{came} came in, {', '.join(went)} came out.",
    "no-gradient": _lost,
    "other-gradient": lambda names, where: (
        f"The output is right, and the gradient that reaches {', '.join(names)} is not "
        f"({'; '.join(where)}): part of the way is detached?"
    ),
    "other-dropout": "In training the output is like no dropout we know.",
    # what the task asks for and the submission does not do
    RAN_WITH: _way,
    RETURNED: _no_pair,
    "leading_axes": _unkept(
        "with other leading axes: (T, D), (B, T, D), (A, B, H, T, D)"
    ),
    "three_axes": _unkept("with q (B, T, D) and a mask (B, T, S)"),
    "mask_broadcasts": _unkept("with a mask that has to be broadcast to the scores"),
    "mask_for_all": _unkept("with one mask (T, S) for all sequences"),
    "large_scores": _unkept(
        "where all scores are far from 0",
        ". Most often an exp overflows, or a hidden score is not the lowest; else "
        "scores are cut off, or computed as a difference of much larger numbers",
    ),
    "loud_hidden_keys": _unkept(
        "where a hidden key has by far the largest score",
        ": hide scores before the softmax, not weights after it",
    ),
    "same_tensor": _unkept("where several inputs are one tensor"),
    "double_precision": _unkept("with inputs of float64"),
    "training": _unkept("in training mode, every dropout set to 0"),
    "no_dropout": _unkept("in training mode, as it was made", ": is there a dropout?"),
    "other_sizes": _unkept(
        "after other calls, and beside another layer",
        ": something is kept from one call to the next",
    ),
    "gradients": _unkept("with inputs that require gradients"),
    "half_precision": _unkept("with inputs of float16"),
    "any_device": _unkept("with inputs on another device"),
    "weights": _weights,
    "wrong-axes": lambda required, got, sizes=None: (
        f"The mask must have the shape {required}; got {shape(got, sizes or {})}."
    ),
    "strided": _unkept(
        "with an input that is no single block of memory, such as a transpose",
        ": use reshape, not view",
    ),
    "causality_optional": _unkept("without causality, which is False then"),
    "without_gradients": _unkept("under torch.no_grad"),
    "one-tensor": "One tensor has to be returned, and more than one is.",
    "weights_gradients": "No gradient flows through the returned weights: a detach, "
    ".data, a no_grad or a rounding?",
    "zeros_for_empty_rows": lambda beside="": (
        f"A query that sees no key has to get zeros: the output does, and {beside} "
        "stand in its row of the weights that come back."
        if beside
        else "A query that sees no key has to get zeros, and does not."
    ),
    "biases": lambda names: (
        f"Your layer lacks biases: {', '.join(names)}. (Of the key's none is asked: it "
        "would change no weight.)"
    ),
    "projection_names": lambda names: (
        "The task names the linear layers of q, k, v and the output q_proj, k_proj, "
        f"v_proj and out_proj. Not called so in yours: {', '.join(names)}."
    ),
    "call_by_place": "It has to take its arguments by place, in the order of the task; "
    "yours has {order}.",
    "not-seen": lambda name: (
        "The task asks for this, and it was not seen to hold: "
        f"{name.removeprefix('right: ').replace('_', ' ')}."
    ),
    # choices that are no mistakes
    "no-mask-for-all": "one mask (T, S) for all sequences does not fit it, or masks "
    "each head by a row; mask[..., None, :, :] would take both forms",
    "no-biases": lambda names: f"your layer has no {', '.join(names)}; they count as 0",
    "averaged": "the returned weights are averaged over the heads",
    "no-head-axis": "where there is one head, the returned weights lack its axis",
    "empty-rows": lambda output, weights: (
        "the output of a query that sees no key is made of "
        f"{MADE_OF[output]}; in its row of the weights that come back stand {weights}"
    ),
    # the map that a probe reveals
    "map-sums": "With one-hot values the output shows the map: its rows sum to "
    "{low:.2f} … {high:.2f}.",
    "map-negative": "Some of them are negative.",
    "no-mix": "With one-hot values a mix of them has to come back, and does not: look "
    "at how the values are projected and cut, and at what follows the weights.",
    "not-times-values": "The output is not the weights that you return times the "
    "values: look at the values, and at what follows the weights.",
    "weights-right": "The weights that you return are right: look at the values, and "
    "at what follows the weights.",
    "weights-first": "The output is the weights that you return times the values, and "
    "these weights are wrong: look at what comes before them.",
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
    "other-weight": "Query {query} gives key {key} the weight {yours:.2f}; "
    "{right:.2f} is right (sequence {sequence}, head {head}).",
    "other-shape": lambda yours, right, sizes=None: (
        f"Your result has the shape {shape(yours, sizes or {})}; {right} is right."
    ),
    "other-kind": "Your result holds {yours}; {right} is right.",
    "other-mask": "mask{place} is {yours}; {right} is right.",
    "other-number": lambda place, yours, right: (
        f"{f'output{place}' if place else 'The output'} is {yours:.3f}; {right:.3f} is "
        "right."
    ),
}
WORDS |= {
    # of what has no name: where it shows, and what to do next
    "cases": lambda right, wrong: (
        f"It is right in the cases {', '.join(right)}, and wrong in {', '.join(wrong)}."
        if right and wrong
        else f"It is wrong in every case: {', '.join(wrong)}."
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
CONFIDENCE = {
    "right": "every probe agrees with the reference",
    "unmet": "the ordinary probes agree with the reference, as far as they were "
    "answered; what the task asks beside does not hold",
    "named": "this mistake, and no other that check knows, gives your answers",
    "named by an error": "what your code raised shows this mistake",
    "stacked": "these mistakes together, and no fewer, give your answers",
    "stacked by an error": "what your code raised shows {raised}, and where it "
    "answered the others were seen",
    "ambiguous": "your answers are consistent with each of these; they cannot be told "
    "apart from outside",
    "unknown": "no mistake that check knows, alone or with others, gives your answers",
    "failed": "there is no answer to compare",
    "unfinished": "a part of your code is not written yet",
}
