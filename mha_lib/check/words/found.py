"""Words for what the numbers tell of a submission, and what its verdict rests on."""

import math
from collections.abc import Callable, Mapping

from mha_lib.check.letters import shape

OF_CALLS = {None: "", True: "of those with a mask, ", False: "of those without one, "}


def _reproduced(count: int, all: int, mistakes: int = 1, ways: int = 1) -> str:
    """What it means that something is named, and what to do."""
    calls = "all" if count == all else f"{count} of the"
    calls = f"{calls} {all} calls that were" if all > 1 else "the one call that was"
    this = "This explains" if mistakes == 1 else "Together these explain"
    each = "Each of these explains" if mistakes == 1 else "Each of these pairs explains"
    this = this if ways == 1 else each
    mend = "mend it" if mistakes == ways == 1 else "mend one"
    return f"{this} {calls} tried: {mend}, then check again."


def _divided_by(number: float) -> str:
    """A constant in place of √D, and for which D it would be right."""
    by = f"divided by {number:.3g}" if number > 1 else f"multiplied by {1 / number:.3g}"
    said = f"The scores are {by} in every call, whatever D is"
    if (D := round(number**2)) and math.isclose(number**2, D):
        said += f"; that is √D where D = {D} alone, as in an example perhaps"
    return f"{said}. Take D from the queries: q.shape[-1]."


def _wrong_at_one(letters: list[str], masked: bool | None) -> str:
    """That it is wrong where one of these sizes is 1, and nowhere else."""
    *most, last = letters
    one = f"{', '.join(most)} or {last}" if most else last
    return f"In our tries, {OF_CALLS[masked]}it is wrong only where {one} is 1."


def _wrong_alike(letters: list[str], masked: bool | None) -> str:
    """That it is wrong where these sizes are equal, and nowhere else."""
    return (
        f"In our tries, {OF_CALLS[masked]}it is wrong only where {' = '.join(letters)}."
    )


def _wrong_from(limits: list[tuple[str, int, int]], masked: bool | None) -> str:
    """Up to which size it is right, and from which on it is wrong."""
    (letter, right, wrong), *more = limits
    said = f"for {letter} up to {right}, and wrong from {letter} = {wrong} on"
    if more:  # which of them matters nobody knows
        up_to = " and ".join(f"{letter} up to {right}" for letter, right, _ in limits)
        here = " and ".join(f"{letter} = {wrong}" for letter, _, wrong in limits)
        said = f"for {up_to}, and of the larger ones wrong with {here}"
    return f"In our tries, {OF_CALLS[masked]}it is right {said}."


def _shapes(
    required: tuple, got: tuple, axes: str = "", sizes: Mapping[str, int] | None = None
) -> str:
    """The shape that is due, in letters and numbers, and the one that came."""
    due = f"{axes} = {required}" if axes else f"{required}"
    said = f"the output must have the shape {due}; got {shape(got, sizes or {})}"
    said += _moved(tuple(required), tuple(got), axes, sizes or {})
    apart = "H" in (sizes or {}) and len(got) == len(required) + 1
    if apart and math.prod(got) == math.prod(required):
        said += "; the heads have an axis of their own still: join it with D"
    if "H" in (sizes or {}) and math.prod(got) == 3 * math.prod(required):
        said += "; three times as many numbers: chunk(3, dim=-1) gives q, k and v"
    if got[-1:] == (3 * required[-1],) and got[:1] == (required[0] // 3,):
        said += "; chunk cuts the first axis, the batch, unless told: chunk(3, dim=-1)"
    return said


def _moved(required: tuple, got: tuple, axes: str, sizes: Mapping[str, int]) -> str:
    """Which axis stands in front or behind, if that is all that is wrong."""
    letters = axes.strip("()").split(", ")
    known = [*sizes.values()]
    for place, size in enumerate(required):
        if size == 1 or known.count(size) != 1 or len(letters) != len(required):
            continue
        rest = (*required[:place], *required[place + 1 :])
        front, behind = (size, *rest), (*rest, size)
        if got == required or got not in (front, behind):
            continue
        where = "first" if got == front else "last"
        said = f"; the axis of {letters[place]} stands {where}"
        new = got == front and letters[place] != "B"
        dim = place - len(required) if letters[-1] == "V" else place  # any leading axes
        made = f", where torch.stack puts a new one unless told: stack(…, dim={dim})"
        return said + made * new
    return ""


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


def _lost(names: list[str], where: list[str]) -> str:
    """Which inputs get no gradient, and where if not everywhere."""
    places = f" ({'; '.join(dict.fromkeys(where))})" if where else ""
    who = ", ".join(names)
    used, them = ("is it", "it") if len(names) == 1 else ("are they", "them")
    return (
        f"No gradient reaches {who}{places}: {used} used? If so, a detach, .data, a "
        f"no_grad or NumPy cuts {them} off."
    )


def _other_gradient(names: list[str], where: list[str], finite: bool = True) -> str:
    """A gradient that is another, though the output is right."""
    who, places = ", ".join(names), "; ".join(where)
    if finite:
        return (
            f"The output is right, and the gradient that reaches {who} is not "
            f"({places}): part of the way is detached?"
        )
    return (
        f"The output is right, and NaN or infinity is in the gradient that reaches "
        f"{who} ({places}): what divides by 0 on the way, or takes a root or logarithm "
        "of it?"
    )


FOUND: dict[str, str | Callable[..., str]] = {
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
    "as-if-equal": "A key is seen where the masks agree, and so where both hide it: "
    "they are compared with ==. Both have to allow it: & (AND).",
    "as-if-apart": "Each query sees every key but that at its own place, s ≠ t, as "
    "where a difference t - s is taken for a boolean. Compare them: s <= t.",
    "cut-otherwise": lambda cut: (
        f"It is right if the rows of a fused projection are those of {', '.join(cut)}; "
        "q, k, v is expected. Cut it in that order, or tell check what you mean: "
        f"layers={{'{cut}': '…', 'o': '…'}}."
    ),
    "heads-and-features": "x is cut into D heads of size H: write view(B, T, H, D) "
    "before the transpose, not view(B, T, D, H); the rest is right.",
    "tokens-as-heads": "Tokens and heads are taken for each other: before a merge, "
    "(B, H, T, D), the heads come before the tokens, B, H, T, D = x.shape.",
    "mask-in-front": "Without a mask all is right. With one the result has an axis too "
    "many in front, as {wrote} makes it: the mask fits the scores as it is.",
    "hidden-unmasked": "With a mask all is right. Without one every key is hidden, as "
    "by a mask of zeros: where no mask is given, nothing is to be hidden.",
    "slices-overlap": "It is right but for the cut, where head h gets the features h "
    "to h + D - 1, which overlap: h * D to (h + 1) * D - 1 are due.",
    "cut-in-one-view": "x (T, B, E) is cut by one view or reshape to (B·H, T, D), so a "
    "head holds pieces of several sequences: view(T, B * H, D) and then "
    "transpose(0, 1); the rest is right.",
    "cut-and-joined-in-one-view": "x (T, B, E) is cut by one view or reshape to "
    "(B·H, T, D), and joined by one, so a head holds pieces of several sequences: "
    "view(T, B * H, D) and then transpose(0, 1), and the same back; the rest is right.",
    "padding-at-left": "These are the masks of padding at the left: the last "
    "lengths[b] keys are seen. The first ones are due, s < lengths[b].",
    "padding-turned": "These are the answers of causal & ~padding: in both masks True "
    "= may attend already, so none is to be turned.",
    "padding-of-one": "The padding of sequence 0 stands for that of all, as with "
    "padding[0]: with its axis of the batch, (B, 1, S), it fits as it is.",
    "as-if-folded": "These are the answers of (B·H, T, D) brought to (T, B, E) by one "
    "view or reshape: is the transpose(0, 1) before it missing?",
    "as-if-left": "These are the answers of heads that stay behind the tokens, and "
    "of a transpose when they are joined: is the transpose missing when they are cut?",
    "right-at-first": "As the first call of a new layer it is right, and after a call "
    "with other inputs it is wrong: something is kept from one call to the next (a "
    "cache of masks, or of keys and values?). Fix this first.",
    "right-in-training": "In training mode, every nn.Dropout set to 0, it is right, "
    "and in evaluation mode it is not: what does the code do only if self.training, or "
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
    "masks-of-heads": lambda right, wrong: (
        "Without a mask all is right. With one these heads are: "
        f"{', '.join(map(str, right))}; and these are not: "
        f"{', '.join(map(str, wrong))}. Each head has to be masked, and alike."
    ),
    "wrong-at-one": _wrong_at_one,
    "wrong-alike": _wrong_alike,
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
    "weights-laid": lambda axes: (
        f"The weights that you return are {axes}, where (B, H, T, S) is due: "
        + (
            "unflatten(0, (B, H)) brings them there."
            if axes.startswith("(B·H")
            else "of a list with a map (B, T, S) for each head, torch.stack(…, dim=1) "
            "makes it, with the heads behind the batch."
        )
    ),
    "weights-are": "What you return as the weights is {what}.",
    "inputs-changed": _changed,
    "other-dtype": lambda came, went: f"{came} came in, {', '.join(went)} came out.",
    "no-gradient": _lost,
    "other-gradient": _other_gradient,
    "other-dropout": "In training the output is like no dropout we know.",
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
