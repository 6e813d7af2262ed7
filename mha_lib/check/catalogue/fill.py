"""What is wrong with how hidden keys are hidden."""

from collections.abc import Callable

from torch import Tensor

from mha_lib.check.catalogue.mistake import GIVEN, WRONG_MASK, Mistake

_EIGHT = "deeper/04_fill_values_and_half_precision#eight-fills"
_BEFORE = "04_masks#before-the-softmax-not-after-it"


def _keep(weights: Tensor, allowed: Tensor) -> Tensor:
    return weights


def _fills(do: Callable[[Tensor, Tensor], Tensor]) -> tuple[Callable, Callable]:
    return lambda scores, allowed, policy: do(scores, allowed), _keep


def _zeros_hidden(scores: Tensor, allowed: Tensor) -> Tensor:
    scores = scores * allowed
    return scores.masked_fill(scores == 0, float("-inf"))


MISTAKES = (
    Mistake(
        "fill-positive",
        "The hidden keys take all the weight",
        "hidden scores are filled with a large positive number such as +1e10",
        _EIGHT,
        stages={
            "fill": _fills(lambda scores, allowed: scores.masked_fill(~allowed, 1e10))
        },
    ),
    Mistake(
        "fill-minus-one",
        "Hidden keys keep some weight",
        "hidden scores are filled with -1, a score like any other",
        WRONG_MASK,
        stages={
            "fill": _fills(lambda scores, allowed: scores.masked_fill(~allowed, -1.0))
        },
    ),
    Mistake(
        "fill-zero",
        "Hidden keys keep some weight",
        "hidden scores become 0 (multiplied by the mask), and exp(0) is 1",
        WRONG_MASK,
        "huggingface/transformers#542",
        stages={"fill": _fills(lambda scores, allowed: scores * allowed)},
    ),
    Mistake(
        "fill-tiny",
        "Hidden keys keep some weight",
        "hidden scores are filled with 1e-9, which is nearly 0; -1e9 was meant",
        _EIGHT,
        stages={
            "fill": _fills(lambda scores, allowed: scores.masked_fill(~allowed, 1e-9))
        },
    ),
    Mistake(
        "mask-added-as-number",
        "Hidden keys keep weight, only e times less than they had",
        "the boolean mask is added to the scores as 0 and 1",
        WRONG_MASK,
        "huggingface/transformers#24897",
        stages={
            "fill": _fills(lambda scores, allowed: scores + allowed.to(scores.dtype))
        },
    ),
    Mistake(
        "mask-after-softmax",
        "Rows sum to less than 1 where keys are hidden",
        "the mask is applied after the softmax, and nothing renormalises",
        _BEFORE,
        "lucidrains/memory-compressed-attention#2",
        stages={
            "fill": (
                lambda scores, allowed, policy: scores,
                lambda weights, allowed: weights * allowed,
            )
        },
    ),
    Mistake(
        "fill-thrown-away",
        "The mask has no effect",
        "the mask is not used, or masked_fill returned a new tensor that nobody kept",
        WRONG_MASK,
        stages={"fill": _fills(lambda scores, allowed: scores)},
    ),
    Mistake(
        "zero-scores-hidden",
        "An allowed key whose score is exactly 0 gets no weight",
        "scores == 0 are taken for hidden",
        "deeper/04_faults_and_checks#the-right-mask-used-wrongly",
        stages={"fill": _fills(_zeros_hidden)},
        tasks=GIVEN,
    ),
)
