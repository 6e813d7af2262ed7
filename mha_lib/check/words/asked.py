"""Words for what a task asks for and a submission does not do, and for its choices."""

from collections.abc import Callable, Mapping

from mha_lib.check.beside import RAN_WITH, RETURNED, located
from mha_lib.check.letters import legend, shape

MADE_OF = {  # where no key is seen
    "nan": "NaN",
    "zeros": "zeros",
    "uniform": "equal weights",
    "unmasked": "the weights of all keys",
}

STILL_DRAWN = (
    ", and random numbers are drawn all the same, as by F.dropout with a p of its own"
)


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
    if hint or "mask" not in line or "None" in line or "unsqueeze" in line:
        by_hand = ""  # it is there, or not what is missing
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
        advice: str = "",
        anyway: bool = False,
        draws: bool = False,
    ) -> str:
        if error:
            said = f"As the task calls it, {where}, it fails: {located(error, line)}."
            return said + legend(error, sizes or {}) + advice
        seen = "the output is wrong" if finite else "NaN or infinity comes out"
        seen = f"the returned weights {weights}" if weights else seen
        seen = f"{dtype} comes out" if dtype else seen
        seen += STILL_DRAWN * draws
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


ASKED: dict[str, str | Callable[..., str]] = {
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
        ": hide scores, before the softmax and with a number that is low enough, such "
        "as float('-inf'), not weights after it",
    ),
    "same_tensor": _unkept("where several inputs are one tensor"),
    "double_precision": _unkept("with inputs of float64"),
    "training": _unkept("in training mode, every nn.Dropout set to 0"),
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
        f"Your layer lacks biases: {', '.join(names)}."
        + " (That of the key changes no weight; the task asks for all four.)"
        * ("b_k" in names)
    ),
    "learns-more": lambda names: (
        "The task gives the layer four linear layers, and all that it learns is in "
        f"them; yours learns {', '.join(names)}, too."
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
    "more-learned": lambda names: (
        f"beside its projections your layer learns {', '.join(names)}: as it was made "
        "this changes nothing, but training may move it"
    ),
    "digits-of-float32": "float64 comes back with the digits of float32: somewhere it "
    "is computed in float32",
    "rows-otherwise": lambda order, axes, usual: (
        f"the rows of its fused matrix lie {order}, {axes}; chapter 5, GPT-2 and "
        f"nn.MultiheadAttention keep them role by role, {usual}, so parameters of the "
        "one do not fit the other"
    ),
    "averaged": "the returned weights are averaged over the heads",
    "no-head-axis": "where there is one head, the returned weights lack its axis",
    "empty-rows": lambda output, weights: (
        "the output of a query that sees no key is made of "
        f"{MADE_OF[output]}; in its row of the weights that come back stand {weights}"
    ),
}
