"""What people get wrong, each as a small replacement of a stage of the reference.

`MISTAKES` maps names to mistakes. A name never changes. A mistake with stages is found
by comparing numbers; one without is found by what the submission does beside that:
inputs that changed, dropout, dtypes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.check.reference import (
    DEFAULT,
    LAYERS,
    Layer,
    Problem,
    Stage,
    merge_plain,
    ones,
    real_keys,
)

__all__ = ["MISTAKES", "SAME_FUNCTION", "Mistake", "stages_for"]

MISTAKES: dict[str, "Mistake"] = {}
MASKS = ("causal_mask", "padding_mask", "combine_masks")
WEIGHTED = ("attention", *LAYERS)
MADE = ("causal", "padding", "combine")  # stages that make a mask
TORCH_LAYERS = ("mha", "mha_sequence_first")


@dataclass(frozen=True)
class Mistake:
    """One mistake that people make.

    Attributes:
        name: stable, for tools.
        symptom: what is seen.
        cause: what the code does.
        section: page and anchor in the book.
        source: where it happened in public, as repository#number, or "".
        stages: the stages that it replaces; each of them alone is this mistake.
        tasks: where it can happen.
        undo: see `Stage`.
    """

    name: str
    symptom: str
    cause: str
    section: str
    source: str = ""
    stages: dict[str, Callable] = field(default_factory=dict)
    tasks: tuple[str, ...] = WEIGHTED
    undo: Callable[[Tensor], Tensor] | None = None

    @property
    def message(self) -> str:
        """Symptom and cause in one sentence."""
        return f"{self.symptom}: {self.cause}."


def _add(name: str, symptom: str, cause: str, section: str, source="", **more) -> None:
    assert name not in MISTAKES
    fields = Mistake.__dataclass_fields__
    rest = {key: more.pop(key) for key in list(more) if key in fields}
    MISTAKES[name] = Mistake(name, symptom, cause, section, source, more, **rest)


def stages_for(call: str) -> dict[str, list[Stage]]:
    """For each stage of a task the right way and then all wrong ones."""
    unused = MADE if call in _GIVEN else ("mask",)
    found: dict[str, list[Stage]] = {}
    for stage, do in HARMLESS:
        if call in LAYERS:
            found.setdefault(stage, [DEFAULT[stage]]).append(Stage(stage, (), do))
    for mistake in MISTAKES.values():
        if call in mistake.tasks:
            for stage, do in mistake.stages.items():
                if stage in unused:
                    continue
                others = found.setdefault(stage, [DEFAULT[stage]])
                others.append(Stage(stage, (mistake.name,), do, mistake.undo))
    return found


# --- softmax ------------------------------------------------------------------------

_AXIS = "01_attention#the-softmax-over-the-wrong-axis"


def _flat_softmax(scores: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


_add(
    "softmax-over-queries",
    "The columns of your map sum to 1, its rows do not",
    "the softmax ran over dim=-2, the queries, not over dim=-1, the keys",
    _AXIS,
    "PetrochukM/PyTorch-NLP#2",
    softmax=lambda scores: scores.softmax(-2),
)
_add(
    "softmax-over-heads",
    "For each query and key the weights of the heads sum to 1",
    "the softmax ran over the axis of the heads (dim=1 of (B, H, T, S))",
    "06_einsum_sequence_first#the-softmax-over-the-last-axis-from-habit",
    softmax=lambda scores: scores.softmax(-3),
)
_add(
    "softmax-over-batch",
    "The weights of one place sum to 1 over the sequences of the batch",
    "the softmax ran over dim=0, the batch",
    _AXIS,
    "nerminnuraydogan/vision-transformer#1",
    softmax=lambda scores: scores.softmax(-4),
)
_add(
    "softmax-over-map",
    "Each map as a whole sums to 1, not each of its rows",
    "the softmax ran over queries and keys together, a flattened map",
    _AXIS,
    softmax=_flat_softmax,
)
_add(
    "softmax-twice",
    "The map is almost flat, though its rows sum to 1",
    "a second softmax was applied to the weights",
    "01_attention#weights-that-are-called-scores",
    softmax=lambda scores: scores.softmax(-1).softmax(-1),
)
_add(
    "log-softmax",
    "The weights are negative",
    "log_softmax was used, whose logarithms are no weights",
    _AXIS,
    softmax=lambda scores: scores.log_softmax(-1),
)
_add(
    "no-softmax",
    "The rows of your map sum to anything",
    "the scores met the values without a softmax",
    "01_attention#weights-that-are-called-scores",
    softmax=lambda scores: scores,
)

# --- scale --------------------------------------------------------------------------

_SCALE = "01_attention#the-scale-forgotten-or-taken-from-the-wrong-size"


def _over_root(letter: str) -> Callable:
    return lambda p, width: (getattr(p, letter) ** -0.5, 1.0)


_add(
    "no-scale",
    "The map is too sharp",
    "the scores are not divided by √D",
    _SCALE,
    "huggingface/blog#2893",
    scale=lambda p, width: (1.0, 1.0),
)
_add(
    "scale-embed-dim",
    "The map is too flat, by the factor √H in the scores",
    "the scores are divided by √E (embed_dim), not by √D (the size of a head)",
    _SCALE,
    "lucidrains/vit-pytorch#65",
    scale=_over_root("E"),
    tasks=LAYERS,
)
_add(
    "scale-num-heads",
    "The differences of scores have the wrong size",
    "the scores are divided by √H, the number of heads, not by √D",
    _SCALE,
    "omihub777/ViT-CIFAR#11",
    scale=_over_root("H"),
)
_add(
    "scale-query-length",
    "The map depends on the number of queries",
    "the scores are divided by √T, a length, not by √D",
    "08_tensorflow_style#eight-published-faults",
    scale=_over_root("T"),
)
_add(
    "scale-key-length",
    "The map depends on the number of keys",
    "the scores are divided by √S, a length, not by √D",
    "08_tensorflow_style#eight-published-faults",
    scale=_over_root("S"),
)
_add(
    "scale-twice",
    "The map is too flat",
    "the scores are divided by D: √D was applied twice, or its root forgotten",
    _SCALE,
    "juho-lee/set_transformer#18",
    scale=lambda p, width: (1 / width, 1.0),
)
_add(
    "scale-multiplied",
    "The map is almost one-hot",
    "the scores are multiplied by √D, not divided",
    _SCALE,
    scale=lambda p, width: (width**0.5, 1.0),
)
_add(
    "scale-after-softmax",
    "The rows of your map sum to 1/√D",
    "√D divides the weights after the softmax, not the scores before it",
    _SCALE,
    "rasbt/LLMs-from-scratch#856",
    scale=lambda p, width: (1.0, width**-0.5),
)
_add(
    "scale-hard-coded",
    "The map is right for heads of size 64 alone",
    "the scores are divided by a constant 8, not by √D",
    _SCALE,
    scale=lambda p, width: (1 / 8, 1.0),
)

# --- scores and mix -----------------------------------------------------------------


def _square(x: Tensor) -> Tensor:
    if x.shape[-1] != x.shape[-2]:
        raise IndexError("T and S differ")
    return x.mT


_add(
    "scores-transposed",
    "Query and key change roles, and the code fails unless T = S",
    "the scores are K Qᵀ, not Q Kᵀ",
    "01_attention#what-goes-wrong",
    scores=lambda p, q, k: _square(q @ k.mT),
)
_add(
    "weights-transposed",
    "Values go to the keys, not to the queries, and the code fails unless T = S",
    "the weights are transposed before they meet V",
    "01_attention#what-goes-wrong",
    mix=lambda weights, v: _square(weights) @ v,
)
_add(
    "cosine-scores",
    "The lengths of queries and keys have no effect",
    "the scores are cosines: q and k are normalised before the product",
    "01_attention#why-divide-by-d",
    scores=lambda p, q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT,
)
_add(
    "key-transposed-by-view",
    "Shuffling keys and values together changes the output",
    "k was brought to (…, D, S) by view or reshape, which moves nothing; "
    "transpose(-2, -1) is needed",
    "03_all_heads_at_once#the-key-transposed-by-its-shape",
    "hyunwoongko/transformer#4",
    scores=lambda p, q, k: q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]),
)

# --- splitting ----------------------------------------------------------------------

_SPLIT = ("split_heads", *LAYERS)
_TWO_CUTS = "03_all_heads_at_once#two-more-cuts"


_add(
    "split-by-view",
    "A head holds pieces of several tokens",
    "x was cut by view(B, H, T, D) or view(B*H, -1, D) with no transpose",
    "03_all_heads_at_once#heads-cut-without-a-transpose",
    "reczoo/FuxiCTR#30",
    split=lambda p, x: x.reshape(len(x), p.H, -1, p.D),
    tasks=_SPLIT,
)
_add(
    "split-interleaved",
    "Head h holds every H-th feature, not D neighbours",
    "x was cut by view(B, T, D, H), with the heads as the last axis",
    _TWO_CUTS,
    split=lambda p, x: x.unflatten(-1, (p.D, p.H)).movedim(-1, -3),
    tasks=_SPLIT,
)
_add(
    "split-axis-left",
    "The heads of one token attend to each other, no token sees another",
    "after view(B, T, H, D) the transpose(1, 2) is missing",
    _TWO_CUTS,
    split=lambda p, x: x.unflatten(-1, (p.H, p.D)),
    undo=lambda context: context.transpose(-3, -2),
    tasks=("split_heads", *TORCH_LAYERS),
)
_add(
    "heads-ignored",
    "The layer has one head, whatever num_heads says",
    "q, k and v are never cut into heads (the scale may be √E or √D)",
    "02_heads_in_a_loop#what-goes-wrong",
    split=lambda p, x: x.unsqueeze(-3),
    tasks=LAYERS,
)
# --- merging ------------------------------------------------------------------------

_MERGE = ("merge_heads", *LAYERS)
_BACK = "03_all_heads_at_once#heads-merged-without-a-transpose"
_LOOP = "02_heads_in_a_loop#what-goes-wrong"


def _tokens(context: Tensor) -> Tensor:
    """(…, H, T, D) -> (…, T, H, D)."""
    return context.transpose(-3, -2)


def _batch_major(context: Tensor) -> Tensor:
    swapped = context.transpose(-4, -3)  # (…, H, B, T, D), as stacked
    return merge_plain(_tokens(swapped.reshape(context.shape)))


_add(
    "merge-no-transpose",
    "A token of the output holds pieces of several tokens",
    "(B, H, T, D) went to (B, T, E) by view or reshape without the transpose back",
    _BACK,
    "jsbaan/transformer-from-scratch#6",
    merge=merge_plain,
    tasks=_MERGE,
)
_add(
    "merge-interleaved",
    "The features of the heads alternate",
    "the heads were merged as (B, T, D, H): the head is the last axis, not D",
    "03_all_heads_at_once#the-way-back",
    merge=lambda context: merge_plain(_tokens(context).transpose(-2, -1)),
    tasks=_MERGE,
)
_add(
    "merge-mean",
    "All heads could change places",
    "the heads are averaged, not concatenated",
    _LOOP,
    merge=lambda context: context.mean(-3),
    tasks=_MERGE,
)
_add(
    "merge-sum",
    "All heads could change places",
    "the heads are summed, not concatenated",
    _LOOP,
    "awf/functional-transformer#8",
    merge=lambda context: context.sum(-3),
    tasks=_MERGE,
)
_add(
    "merge-first-head",
    "Only head 0 reaches the output",
    "the loop takes heads[0] every time, or the others are dropped",
    _LOOP,
    merge=lambda context: context[..., 0, :, :],
    tasks=_MERGE,
)
_add(
    "merge-reversed",
    "The last head comes first",
    "the heads are concatenated in reverse order",
    _LOOP,
    merge=lambda context: merge_plain(_tokens(context.flip(-3))),
    tasks=_MERGE,
)
_add(
    "merge-batch-major",
    "Heads land in other sequences of the batch",
    "the rows were stacked head by head (h·B + b) but cut sequence by sequence "
    "(b·H + h)",
    "08_tensorflow_style#the-way-there-the-way-back",
    "jadore801120/attention-is-all-you-need-pytorch#7",
    merge=_batch_major,
    tasks=_MERGE,
)

# --- inputs and projections ---------------------------------------------------------

_THIRDS = "04_one_matrix_for_qkv#what-goes-wrong"
_FUSED = "04_one_matrix_for_qkv#a-published-fault"
_CROSS = "09_they_all_agree#self-attention-hides-cross-attention"


def _takes(*names: str) -> dict:
    return {"inputs": lambda p: tuple(p.x[name] for name in names)}


def _layers(roles: str) -> Callable:
    """The layers of these roles, biases and all; "-" for none."""

    def layers(p: Problem) -> list[Layer]:
        none = None, torch.zeros(())
        return [none if r == "-" else (p.W[f"W_{r}"], p.W[f"b_{r}"]) for r in roles]

    return layers


def _biases(q: bool, k: bool, v: bool) -> Callable:
    def bias(p: Problem, projected: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
        kept = [b * keep for b, keep in zip(biases, (q, k, v))]
        return DEFAULT["bias"].do(p, projected, kept)

    return bias


for _name, _roles, _symptom, _cause, _section, _source in (
    (
        "kv-from-query",
        "query query query",
        "Key and value have no effect on the output",
        "k and v are computed from the query, as when one fused projection of the "
        "query is cut in three",
        _FUSED,
        "",
    ),
    (
        "k-from-query",
        "query query value",
        "The key has no effect on the output",
        "k is computed from the query",
        _CROSS,
        "",
    ),
    (
        "q-from-key",
        "key key value",
        "The query has no effect on the output",
        "q is computed from the key input",
        _CROSS,
        "",
    ),
    (
        "v-from-key",
        "query key key",
        "The value input has no effect on the output",
        "v is computed from the key input",
        _CROSS,
        "",
    ),
    (
        "v-from-query",
        "query key query",
        "The value input has no effect on the output",
        "v is computed from the query",
        _CROSS,
        "",
    ),
    (
        "key-value-inputs-swapped",
        "query value key",
        "Keys act as values and values as keys",
        "the inputs key and value are exchanged (Keras takes query, value, key)",
        "07_pytorchs_own#what-goes-wrong",
        "",
    ),
):
    _only = LAYERS if _name in ("kv-from-query", "v-from-query") else TORCH_LAYERS
    _add(
        _name,
        _symptom,
        _cause,
        _section,
        _source,
        tasks=_only,
        **_takes(*_roles.split()),
    )

for _name, _roles, _symptom, _cause in (
    (
        "wq-wk-swapped",
        "kqv",
        "The matrices of q and k have changed roles",
        "W_k is applied to the query and W_q to the key",
    ),
    (
        "wk-wv-swapped",
        "qvk",
        "The matrices of k and v have changed roles",
        "W_v is applied to the key and W_k to the value: a fused projection cut in "
        "another order",
    ),
    (
        "one-matrix-q",
        "qqq",
        "W_k and W_v have no effect",
        "one matrix, W_q, projects query, key and value",
    ),
    (
        "one-matrix-k",
        "kkk",
        "W_q and W_v have no effect",
        "one matrix, W_k, projects query, key and value",
    ),
    (
        "one-matrix-v",
        "vvv",
        "W_q and W_k have no effect",
        "one matrix, W_v, projects query, key and value",
    ),
    ("wk-for-v", "qkk", "W_v has no effect", "the values are projected with W_k"),
    ("wq-for-k", "qqv", "W_k has no effect", "the keys are projected with W_q"),
    (
        "no-projection",
        "---",
        "W_q, W_k and W_v have no effect",
        "query, key and value are used without projections",
    ),
    (
        "v-not-projected",
        "qk-",
        "W_v has no effect",
        "the value input is used without a projection",
    ),
):
    _add(_name, _symptom, _cause, _THIRDS, tasks=LAYERS, project=_layers(_roles))

_add(
    "weights-not-transposed",
    "The projections are those of the transposed matrices",
    "x @ W was computed where the weights, kept as (out, in), need x @ W.T",
    "09_they_all_agree#nothing-complains",
    project=lambda p: [(W.mT, b) for W, b in DEFAULT["project"].do(p)],
    out=lambda p, merged, query: merged @ p.W["W_o"] + p.W["b_o"],
    tasks=LAYERS,
)
_add(
    "relu-after-projection",
    "Queries, keys and values have no negative entries",
    "a ReLU follows the projections, which is right in the TensorFlow style alone",
    "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
    bias=lambda p, *x: [y.relu() for y in DEFAULT["bias"].do(p, *x)],
    tasks=TORCH_LAYERS,
)
_add(
    "relu-missing",
    "Queries, keys and values have negative entries",
    "the ReLU after the projections is missing",
    "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
    bias=lambda p, projected, biases: [x + b for x, b in zip(projected, biases)],
    tasks=("split_concat",),
)
_BIAS = "09_they_all_agree#zero-biases-hide-bias-mistakes"
_add(
    "no-bias-q",
    "The bias of the query has no effect",
    "b_q is not added",
    _BIAS,
    bias=_biases(False, True, True),
    tasks=LAYERS,
)
_add(
    "no-bias-v",
    "The bias of the value has no effect",
    "b_v is not added",
    _BIAS,
    bias=_biases(True, True, False),
    tasks=LAYERS,
)
_add(
    "no-bias-qkv",
    "The biases of query, key and value have no effect",
    "the weight is cut into thirds and its bias forgotten",
    _BIAS,
    bias=_biases(False, False, False),
    tasks=LAYERS,
)

# --- output -------------------------------------------------------------------------

_OUT = "02_heads_in_a_loop#what-the-output-projection-does"
_add(
    "no-output-projection",
    "Feature e of the output comes from one head alone",
    "the merged heads are returned without the output projection W_o",
    _OUT,
    "Kyubyong/transformer#117",
    out=lambda p, merged, query: merged,
    tasks=LAYERS,
)
_add(
    "output-projection-twice",
    "The output is projected once too often",
    "W_o is applied twice",
    _OUT,
    out=lambda p, merged, query: DEFAULT["out"].do(
        p, DEFAULT["out"].do(p, merged, query), query
    ),
    tasks=LAYERS,
)
_add(
    "no-bias-out",
    "The bias of the output has no effect",
    "b_o is not added",
    _BIAS,
    out=lambda p, merged, query: merged @ p.W["W_o"].mT,
    tasks=LAYERS,
)
_add(
    "residual",
    "The query is contained in the output",
    "a residual connection stands inside the layer: query + output",
    "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
    out=lambda p, merged, query: DEFAULT["out"].do(p, merged, query) + query,
    tasks=LAYERS,
)
_add(
    "layout-exchanged",
    "A sequence sees the other sequences of the batch, and none of its own tokens",
    "batch and sequence are exchanged: (T, B, E) is read as (B, T, E), or the reverse",
    "06_einsum_sequence_first#batch-and-sequence-exchanged",
    "om-ai-lab/OmDet#19",
    inputs=lambda p: [p.x[name].transpose(0, 1) for name in ("query", "key", "value")],
    undo=lambda output: output.transpose(-3, -2),
    tasks=TORCH_LAYERS,
)
_add(
    "output-reshaped",
    "Tokens land in other sequences of the batch",
    "the output went from (B, T, E) to (T, B, E) by reshape, not by transpose(0, 1)",
    "06_einsum_sequence_first#back-to-batch-first-by-reshape",
    layout=lambda output: output.reshape(*output.shape[1::-1], -1),
    tasks=("mha_sequence_first",),
)

# --- what hides ---------------------------------------------------------------------

_BEFORE = "05_masks#before-the-softmax-not-after-it"
_WRONG_MASK = "05_masks#what-goes-wrong"


def _keep(weights: Tensor, allowed: Tensor) -> Tensor:
    return weights


def _fills(do: Callable[[Tensor, Tensor], Tensor]) -> tuple[Callable, Callable]:
    return lambda scores, allowed, policy: do(scores, allowed), _keep


def _zeros_hidden(scores: Tensor, allowed: Tensor) -> Tensor:
    scores = scores * allowed
    return scores.masked_fill(scores == 0, float("-inf"))


_add(
    "fill-positive",
    "The hidden keys take all the weight",
    "hidden scores are filled with a large positive number such as +1e10",
    "08_tensorflow_style#eight-published-faults",
    fill=_fills(lambda scores, allowed: scores.masked_fill(~allowed, 1e10)),
)
_add(
    "fill-minus-one",
    "Hidden keys keep some weight",
    "hidden scores are filled with -1, a score like any other",
    _WRONG_MASK,
    fill=_fills(lambda scores, allowed: scores.masked_fill(~allowed, -1.0)),
)
_add(
    "fill-zero",
    "Hidden keys keep some weight",
    "hidden scores become 0 (multiplied by the mask), and exp(0) is 1",
    _WRONG_MASK,
    "huggingface/transformers#542",
    fill=_fills(lambda scores, allowed: scores * allowed),
)
_add(
    "fill-tiny",
    "Hidden keys keep some weight",
    "hidden scores are filled with 1e-9, which is nearly 0; -1e9 was meant",
    "05_masks#fill-values-and-half-precision",
    fill=_fills(lambda scores, allowed: scores.masked_fill(~allowed, 1e-9)),
)
_add(
    "mask-added-as-number",
    "Hidden keys keep weight, only e times less than they had",
    "the boolean mask is added to the scores as 0 and 1",
    _WRONG_MASK,
    "huggingface/transformers#24897",
    fill=_fills(lambda scores, allowed: scores + allowed.to(scores.dtype)),
)
_add(
    "mask-after-softmax",
    "Rows sum to less than 1 where keys are hidden",
    "the mask is applied after the softmax, and nothing renormalises",
    _BEFORE,
    "lucidrains/memory-compressed-attention#2",
    fill=(
        lambda scores, allowed, policy: scores,
        lambda weights, allowed: weights * allowed,
    ),
)
_add(
    "fill-thrown-away",
    "The mask has no effect",
    "the mask is not used, or masked_fill returned a new tensor that nobody kept",
    _WRONG_MASK,
    fill=_fills(lambda scores, allowed: scores),
)
_add(
    "zero-scores-hidden",
    "An allowed key whose score is exactly 0 gets no weight",
    "scores == 0 are taken for hidden",
    _WRONG_MASK,
    fill=_fills(_zeros_hidden),
    tasks=("attention", *TORCH_LAYERS),
)

# --- what the mask means ------------------------------------------------------------

_TRUE = "05_masks#is-true-true"
_GIVEN = ("attention", *TORCH_LAYERS)
_REPEAT = "08_tensorflow_style#tile-or-repeat-the-order-of-the-mask"


def _reads(do: Callable[[Problem, Tensor], Tensor]) -> Callable:
    return lambda p: do(p, DEFAULT["mask"].do(p))


def _row_masks(p: Problem, mask: Tensor, order: Callable) -> Tensor:
    """The mask of the sequence that stands in each row of a stack of heads."""
    b, h = torch.arange(p.B)[:, None], torch.arange(p.H)
    return mask.expand(p.B, -1, -1, -1)[order(b, h), 0]


def _tiled(p: Problem, mask: Tensor) -> Tensor:
    return _row_masks(p, mask, lambda b, h: (b * p.H + h) % p.B)


def _interleaved(p: Problem, mask: Tensor) -> Tensor:
    return _row_masks(p, mask, lambda b, h: (h * p.B + b) // p.H)


def _as_heads(p: Problem, mask: Tensor) -> Tensor:
    if p.B != p.H:
        raise IndexError("B and H differ")
    return mask.transpose(0, 1)


_add(
    "mask-inverted",
    "Hidden keys are seen and visible keys are hidden",
    "the mask is read or made with True = hidden; here True = may attend",
    _TRUE,
    "rasbt/LLMs-from-scratch#1061",
    polarity=lambda mask: ~mask,
    tasks=("causal_mask", "combine_masks", *WEIGHTED),
)
_add(
    "mask-transposed",
    "Rows and columns of the mask have changed roles",
    "the mask is transposed before it is used",
    "05_masks#the-causal-mask",
    mask=_reads(lambda p, mask: _square(mask)),
    tasks=_GIVEN,
)
_add(
    "mask-of-first-sequence",
    "Every sequence is masked like sequence 0",
    "mask[0] is used for the whole batch",
    _WRONG_MASK,
    mask=_reads(lambda p, mask: mask[:1]),
    tasks=_GIVEN,
)
_add(
    "mask-of-first-query",
    "All queries see what query 0 may see",
    "one row of the mask, its first, is used for all queries",
    "05_masks#on-the-way-to-the-scores",
    mask=_reads(lambda p, mask: mask[..., :1, :]),
    tasks=_GIVEN,
)
_add(
    "mask-of-last-query",
    "All queries see what the last query may see",
    "one row of the mask, its last, is used for all queries: a padding mask was "
    "expected",
    "05_masks#on-the-way-to-the-scores",
    mask=_reads(lambda p, mask: mask[..., -1:, :]),
    tasks=_GIVEN,
)
_add(
    "batch-axis-as-heads",
    "Head h is masked like sequence h, and the code fails unless B = H",
    "a mask (B, T, S) meets scores (B, H, T, S) without mask[:, None]",
    "04_one_matrix_for_qkv#masks-of-rank-2-3-and-4",
    mask=_reads(_as_heads),
    tasks=TORCH_LAYERS,
)
_add(
    "mask-tiled",
    "Some heads use the mask of another sequence",
    "the mask is tiled (repeat) where the rows lie as b·H + h and need "
    "repeat_interleave",
    _REPEAT,
    "ArrowLuo/CLIP4Clip#22",
    mask=_reads(_tiled),
    tasks=TORCH_LAYERS,
)
_add(
    "mask-interleaved",
    "Some heads use the mask of another sequence",
    "the mask is repeated by repeat_interleave where the rows lie as h·B + b and "
    "need to be tiled",
    _REPEAT,
    "lsdefine/attention-is-all-you-need-keras#36",
    mask=_reads(_interleaved),
    padding=lambda p: _interleaved(p, DEFAULT["padding"].do(p)),
    tasks=LAYERS,
)

# --- making masks -------------------------------------------------------------------

_CAUSAL = "05_masks#the-causal-mask"
_MAKES_CAUSAL = ("causal_mask", "split_concat")
for _name, _symptom, _cause, _make, _section in (
    (
        "causal-transposed",
        "Queries see the future and not the past",
        "the causal mask is the upper triangle (triu), not the lower one (tril)",
        lambda T, S: ones(T, S).triu(),
        _CAUSAL,
    ),
    (
        "causal-blocks-diagonal",
        "No query sees its own position",
        "the causal mask is s < t (tril(-1)), not s ≤ t",
        lambda T, S: ones(T, S).tril(-1),
        _CAUSAL,
    ),
    (
        "causal-sees-next",
        "Query t sees key t + 1, the token that it should predict",
        "the causal mask is s ≤ t + 1 (tril(1)), not s ≤ t",
        lambda T, S: ones(T, S).tril(1),
        _CAUSAL,
    ),
    (
        "causal-only-diagonal",
        "Every query sees its own position alone",
        "the causal mask is the unit matrix, not a triangle",
        lambda T, S: ones(T, S).tril().triu(),
        _CAUSAL,
    ),
    (
        "causal-ignored",
        "Every query sees the future",
        "the causal mask is not applied, or is all True",
        ones,
        _CAUSAL,
    ),
    (
        "causal-bottom-right",
        "With T ≠ S the diagonal ends in the bottom-right corner",
        "the mask is shifted by S - T, as a cache of earlier keys needs it",
        lambda T, S: ones(T, S).tril(S - T),
        "05_masks#when-t-and-s-differ-which-corner",
    ),
    (
        "causal-square",
        "The mask has as many columns as rows",
        "the mask is made as (T, T), and S is not used",
        lambda T, S: ones(T, T).tril(),
        "05_masks#when-t-and-s-differ-which-corner",
    ),
):
    _add(
        _name,
        _symptom,
        _cause,
        _section,
        causal=lambda p, _make=_make: _make(p.T, p.S),
        tasks=_MAKES_CAUSAL if _name != "causal-square" else ("causal_mask",),
    )

_PADDING = "05_masks#the-padding-mask"
_RAW = "08_tensorflow_style#a-key-mask-from-raw-embeddings"
_MAKES_PADDING = ("padding_mask", "split_concat")


def _real_queries(p: Problem) -> Tensor:
    """(B, 1, T, 1)."""
    real = (p.x["queries"] != 0).any(-1) if "queries" in p.x else real_keys(p)
    return real[:, None, :, None]


def _keys(p: Problem) -> Tensor:
    return real_keys(p)[:, None, None]


_add(
    "padding-on-queries",
    "Padded queries are hidden, padded keys are seen",
    "the padding mask has the shape (B, T, 1), not (B, 1, S)",
    _WRONG_MASK,
    "hyunwoongko/transformer#40",
    padding=_real_queries,
    tasks=_MAKES_PADDING,
)
_add(
    "padding-on-both",
    "Padded queries see nothing",
    "the padding hides rows and columns; it has to hide columns, the keys",
    _WRONG_MASK,
    padding=lambda p: _keys(p) & _real_queries(p),
    tasks=_MAKES_PADDING,
)
_add(
    "padding-inverted",
    "The padding is seen and the real keys are hidden",
    "the padding mask is True for padding; here True = may attend",
    _TRUE,
    "rasbt/LLMs-from-scratch#1061",
    padding=lambda p: ~_keys(p),
    tasks=_MAKES_PADDING,
)
_add(
    "padding-of-first-sequence",
    "Every sequence is padded like sequence 0",
    "the length of sequence 0 is used for the whole batch",
    _PADDING,
    padding=lambda p: _keys(p)[:1].expand(p.B, -1, -1, -1),
    tasks=_MAKES_PADDING,
)
_add(
    "padding-ignored",
    "The padding is seen",
    "the padding mask is not applied, or is all True",
    _PADDING,
    padding=lambda p: torch.ones_like(_keys(p)),
    tasks=_MAKES_PADDING,
)
_add(
    "padding-off-by-one",
    "One padded key of each sequence is seen",
    "the mask is s ≤ length, not s < length",
    _PADDING,
    padding=lambda p: (torch.arange(p.S) <= p.x["lengths"][:, None])[:, None, None],
    tasks=("padding_mask",),
)
_add(
    "padding-last-key-lost",
    "The last real key of each sequence is hidden",
    "the mask is s < length - 1, not s < length",
    _PADDING,
    padding=lambda p: (torch.arange(p.S) < p.x["lengths"][:, None] - 1)[:, None, None],
    tasks=("padding_mask",),
)
_add(
    "padding-rank-two",
    "The mask is (B, S) and would be read as (T, S)",
    "the axis of the queries is missing: (B, 1, S) is needed",
    "05_masks#what-the-library-refuses",
    padding=lambda p: real_keys(p)[:, None],
    tasks=("padding_mask",),
)
_add(
    "key-mask-from-sum",
    "A real key whose features sum to 0 is hidden",
    "the key mask asks for the sum of the features, not for each of them",
    _RAW,
    "kang205/SASRec#14",
    padding=lambda p: (p.x["keys"].sum(-1).abs() > 1e-4)[:, None, None],
    tasks=("split_concat",),
)
_COMBINES = ("combine_masks", "split_concat")
for _name, _symptom, _cause, _both in (
    (
        "masks-or",
        "A key is seen if one of the masks allows it",
        "the masks are joined by OR (|); with True = may attend it has to be AND (&)",
        lambda causal, padding: causal | padding,
    ),
    (
        "mask-overwritten-by-padding",
        "The future is seen as soon as there is a padding mask",
        "the second mask overwrites the first: only the padding mask acts",
        lambda causal, padding: padding,
    ),
    (
        "mask-overwritten-by-causal",
        "The padding is seen as soon as there is a causal mask",
        "the second mask overwrites the first: only the causal mask acts",
        lambda causal, padding: causal,
    ),
    (
        "masks-xor",
        "A key is seen if exactly one of the masks allows it",
        "the masks are compared (^ or !=), not joined by AND (&)",
        lambda causal, padding: causal ^ padding,
    ),
):
    _add(
        _name,
        _symptom,
        _cause,
        "05_masks#both-at-once",
        combine=_both,
        tasks=_COMBINES,
    )

# --- found by what the submission does beside its numbers ---------------------------

_DROPS = "04_one_matrix_for_qkv#which-number-does-dropout-drop"
for _name, _symptom, _cause, _section, _source in (
    (
        "dropout-in-eval",
        "The same call gives another answer each time",
        "dropout is active in evaluation mode (F.dropout without training=self."
        "training)",
        "09_they_all_agree#training-mode",
        "",
    ),
    (
        "dropout-on-scores",
        "In training hidden and visible scores become 0, and rows still sum to 1",
        "dropout is applied to the scores, before the softmax",
        _DROPS,
        "",
    ),
    (
        "dropout-on-output",
        "In training single features drop, not whole weights",
        "dropout is applied to the output only, not to the weights",
        _DROPS,
        "",
    ),
    (
        "dropout-not-rescaled",
        "In training the kept weights are not larger",
        "weights are dropped without the factor 1/(1 - p)",
        _DROPS,
        "",
    ),
    (
        "dropout-unused",
        "Training and evaluation give the same answer",
        "the dropout probability is taken and never used",
        _DROPS,
        "",
    ),
    (
        "weights-after-dropout",
        "The returned weights do not sum to 1 in training",
        "the weights are returned after dropout, not before it",
        _DROPS,
        "",
    ),
    (
        "weights-returned-wrong",
        "The output is right and the returned weights are not",
        "another tensor than the weights (B, H, T, S) is returned beside the output",
        "01_attention#weights-that-are-called-scores",
        "",
    ),
    (
        "inputs-changed",
        "After the call an input holds other numbers",
        "an operation in place (one that ends in _, or x[…] = …) writes into an input",
        "05_masks#what-goes-wrong",
        "",
    ),
    (
        "wrong-output-dtype",
        "The output has another dtype than the input",
        "a constant or a cast of a fixed dtype decides the dtype of the output",
        "07_pytorchs_own#what-goes-wrong",
        "",
    ),
    (
        "constant-dtype",
        "In half precision the code fails or changes the dtype",
        "a tensor made with a fixed dtype meets the inputs",
        "07_pytorchs_own#what-goes-wrong",
        "pytorch/pytorch#41508",
    ),
    (
        "constant-device",
        "On another device the code fails",
        "a tensor is made without device=x.device",
        "08_tensorflow_style#eight-published-faults",
        "",
    ),
    (
        "fill-overflows-half",
        "In half precision the code fails",
        "-1e9 does not fit into float16; use float('-inf') or torch.finfo(dtype).min",
        "05_masks#fill-values-and-half-precision",
        "pytorch/pytorch#41508",
    ),
    (
        "needs-equal-sizes",
        "The code runs only where two sizes agree",
        "an axis is taken for another one of the same size",
        "09_they_all_agree#one-query-is-not-enough",
        "",
    ),
    (
        "mask-not-boolean",
        "The mask holds numbers",
        "it is not of dtype torch.bool, so nothing says what 1 means",
        "05_masks#what-the-library-refuses",
        "",
    ),
):
    _add(_name, _symptom, _cause, _section, _source)

# The same function under two names: the check says "X or Y".
SAME_FUNCTION = (
    ("fill-zero", "fill-tiny"),  # they differ by 1e-9
    ("causal-ignored", "mask-overwritten-by-padding"),  # in a whole layer
)


def _scale_of_a_head(p: Problem, width: int) -> tuple[float, float]:
    if width == p.D:
        raise IndexError("the right way")
    return p.D**-0.5, 1.0


# Other ways that are no mistakes of their own: no bias in k, which the softmax does not
# see; √D of a head where the heads are ignored.
HARMLESS = (("bias", _biases(True, False, True)), ("scale", _scale_of_a_head))
