import math
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from evidence.helpers import B, D, H, S, T, random_mask
from mha_lib import _tiles, attention, causal_mask, masked_softmax, tiled
from mha_lib.attention import attention_weights
from mha_lib.tiled import tiled_attention

V = 13  # a value size of its own


def qkv(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, T, D), (B, H, S, D), (B, H, S, V))
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator)
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    ]


@pytest.mark.parametrize("mask", [None, random_mask(B, H, T, S)], ids=["none", "mask"])
def test_equals_torch_in_output_and_gradients(mask):
    ours, theirs = qkv(), qkv()
    context, _ = attention(*ours, mask)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask)
    assert_close(context, expected)
    upstream = torch.randn(context.shape, dtype=torch.float64)
    context.backward(upstream)
    expected.backward(upstream)
    for mine, other in zip(ours, theirs):
        assert_close(mine.grad, other.grad)


def test_context_is_the_mean_of_the_values_under_the_weights():
    q, k, v = qkv()
    context, weights = attention(q, k, v)
    assert weights.shape == (B, H, T, S)
    assert_close(context, torch.einsum("bhts,bhsv->bhtv", weights, v))
    assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))


def test_gradcheck_with_and_without_mask():
    q, k, v = (x[:1, :1].detach().requires_grad_() for x in qkv())
    mask = random_mask(T, S)
    assert torch.autograd.gradcheck(lambda *x: attention(*x), (q, k, v))
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask), (q, k, v))


def test_scale_replaces_the_default():
    q, k, v = qkv()
    assert_close(attention(q, k, v, scale=1 / math.sqrt(D)), attention(q, k, v))
    context, weights = attention(q, k, v, scale=0.0)
    assert_close(weights, torch.full_like(weights, 1 / S))
    assert_close(attention(q, k, v, scale=0.0, need_weights=False)[0], context)


def test_two_dimensional_operands_are_enough():
    q, k, v = qkv()
    whole, _ = attention(q, k, v)
    single, _ = attention(q[1, 0], k[1, 0], v[1, 0])
    assert_close(single, whole[1, 0])


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")  # it has
def test_fully_masked_row_is_zero_with_zero_gradients_and_no_nan_on_the_way():
    q, k, v = qkv()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    with torch.autograd.detect_anomaly(check_nan=True):
        context, weights = attention(q, k, v, mask)
        (context.square().sum() + weights.square().sum()).backward()
    assert not context[:, :, 2].any() and not weights[:, :, 2].any()
    assert not q.grad[:, :, 2].any() and q.grad[:, :, 1].any()
    assert k.grad.isfinite().all() and v.grad.isfinite().all()


def test_hidden_keys_change_nothing_even_if_they_hold_nan():
    q, k, v = qkv()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[:, 3] = False
    before, _ = attention(q, k, v, mask)
    poisoned = k.detach().clone()
    poisoned[:, :, 3] = torch.nan
    after, _ = attention(q, poisoned, v, mask)
    assert torch.equal(before, after)


def test_weights_are_returned_before_dropout():
    q, k, v = qkv()
    _, plain = attention(q, k, v)
    context, weights = attention(q, k, v, dropout_p=0.5)
    assert torch.equal(weights, plain)
    assert not torch.allclose(context, weights @ v)


def test_dropout_drops_whole_weights_and_keeps_the_mean():
    ones = torch.zeros(1, 4000, 1), torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    torch.manual_seed(0)
    context, _ = attention(*ones, dropout_p=0.2)
    kept = context[context != 0]
    assert_close(kept, torch.full_like(kept, 1 / 0.8))
    # 4000 draws: the share kept has a standard deviation of 0.0063
    assert abs(kept.numel() / 4000 - 0.8) < 0.03


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_keeps_its_dtype_and_stays_near_float64(dtype):
    exact, _ = attention(*qkv(), causal_mask(T, S))
    context, weights = attention(*qkv(dtype), causal_mask(T, S))
    assert context.dtype == weights.dtype == dtype
    # a few units in the last place of values around 1
    tolerance = 20 * torch.finfo(dtype).eps
    assert_close(context.double(), exact, atol=tolerance, rtol=tolerance)


def test_half_precision_does_not_overflow_where_the_scaled_scores_fit():
    q = torch.full((1, 1, 64), 60.0, dtype=torch.float16)
    k = torch.full((1, 2, 64), 60.0, dtype=torch.float16)
    assert (q @ k.mT).isinf().all()  # scaling afterwards would be too late
    context, weights = attention(q, k, torch.ones_like(k))
    assert context.isfinite().all()
    assert_close(weights, torch.full_like(weights, 0.5))


def test_no_keys_gives_a_zero_context():
    empty = torch.ones(2, 0, D), torch.ones(2, 0, V)
    context, weights = attention(torch.ones(2, T, D), *empty)
    assert weights.shape == (2, T, 0) and not context.any()


def test_shapes_follow_on_the_meta_device():
    q, k, v = (x.to("meta") for x in qkv())
    mask = causal_mask(T, S, device="meta")
    context, weights = attention(q, k, v, mask, is_causal=True)
    assert context.device.type == weights.device.type == "meta"
    assert context.shape == (B, H, T, V) and weights.shape == (B, H, T, S)


def test_inputs_are_left_alone():
    operands, mask = qkv(), random_mask(T, S)
    before = [x.detach().clone() for x in operands]
    attention(*operands, mask)
    assert all(torch.equal(x, y) for x, y in zip(operands, before))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 5, 7), (2, 6, 8), (2, 6, 7)), "q and k must share D; got 7 and 8"),
        (((2, 5, 7), (2, 6, 7), (2, 4, 7)), "k and v must share S; got 6 and 4"),
        (((2, 5, 7), (3, 6, 7), (3, 6, 7)), r"leading axes; got \(2,\), \(3,\) and"),
        (((2, 5, 7), (2, 6, 7), (3, 6, 7)), r"leading axes; got .* and \(3,\)"),
        (((2, 5, 7), (3, 6, 7), (2, 6, 7)), r"leading axes; got .* \(3,\) and"),
        (((7,), (6, 7), (6, 7)), r"at least the axes \(length, size\); got shapes"),
        (((6, 7), (7,), (6, 7)), r"at least the axes \(length, size\); got shapes"),
        (((6, 7), (6, 7), (7,)), r"at least the axes \(length, size\); got shapes"),
        (((5, 0), (6, 0), (6, 3)), "D must be at least 1; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        attention(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("nonsense", [None, [1.0], torch.ones(T, D).long()], ids=repr)
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_operands_that_are_no_floating_tensors_are_named(place, nonsense):
    operands = dict(zip("qkv", qkv())) | {place: nonsense}
    with pytest.raises(TypeError, match=f"{place} must be a floating tensor; got"):
        attention(**operands)


def test_mixed_dtypes_are_named():
    q, k, v = qkv()
    with pytest.raises(TypeError, match="one dtype; got torch.float64, torch.float32"):
        attention(q, k.float(), v)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_masks_that_are_not_boolean_are_refused(dtype, need_weights):
    mask = torch.ones(T, S, dtype=dtype)
    with pytest.raises(TypeError, match=f"boolean with True = may attend; got {dtype}"):
        attention(*qkv(), mask, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [True, False])
def test_masks_that_do_not_fit_are_named(need_weights):
    message = rf"mask must broadcast to \({B}, {H}, {T}, {S}\); got shape \({S}, {T}\)"
    mask = torch.ones(S, T, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        attention(*qkv(), mask, need_weights=need_weights)


def test_a_mask_may_not_widen_the_scores():
    with pytest.raises(ValueError, match="got shape"):
        masked_softmax(torch.zeros(1, S), torch.ones(T, S, dtype=torch.bool))


@pytest.mark.parametrize("came", [torch.zeros(2, 3, dtype=torch.long), [0.0, 1.0]])
def test_scores_are_floating(came):
    with pytest.raises(TypeError, match="scores must be a floating tensor; got"):
        masked_softmax(came)


def test_masked_softmax_runs_along_any_axis():
    scores = torch.randn(T, S, B, H, dtype=torch.float64)
    mask = random_mask(B, T, S).permute(1, 2, 0)[..., None]
    weights = masked_softmax(scores, mask, dim=1)
    expected = masked_softmax(scores.transpose(1, -1), mask.transpose(1, -1))
    assert_close(weights, expected.transpose(1, -1))


def test_hidden_keys_stay_hidden_beside_very_low_scores():
    scores = torch.tensor([[-1e5, 1e5, -1e5]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True]])
    expected = torch.tensor([[0.5, 0.0, 0.5]], dtype=torch.float64)
    assert_close(masked_softmax(scores, mask), expected)


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allowed_scores_may_be_the_least_number_there_is(dtype):
    least = torch.finfo(dtype).min
    scores = torch.full((3, 4), least, dtype=dtype)
    mask = torch.tensor([[True, False] * 2, [True, False, False, False], [False] * 4])
    shares = torch.tensor([[0.5, 0, 0.5, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=dtype)
    assert_close(masked_softmax(scores, mask), shares)
    assert_close(masked_softmax(scores.mT, mask.mT, dim=0), shares.mT)
    q, k, v = torch.zeros(3, 2), torch.zeros(4, 2), torch.randn(4, 5)
    bias = scores.to(dtype)
    found = attention(q.to(dtype), k.to(dtype), v.to(dtype), mask, bias=bias)
    assert_close(found[1], shares)
    assert_close(found[0], shares @ v.to(dtype))


def test_a_mask_may_lack_the_axis_of_the_keys():
    scores, mask = torch.randn(S, T), torch.arange(T) < 2  # sees all keys, or none
    expected = scores.softmax(0) * mask
    assert_close(masked_softmax(scores, mask, dim=0), expected)
    keys = torch.arange(T) < 2  # one axis for three
    assert_close(
        masked_softmax(torch.zeros(B, S, T), keys, dim=2),
        (keys / 2).expand(B, S, T),
    )


def test_a_row_that_sees_nothing_may_hold_nan():
    scores = torch.tensor([[1.0, 2.0, torch.nan], [torch.nan] * 3], requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[True, True, False], [False] * 3]))
    weights.square().sum().backward()
    assert not weights[1].any() and not scores.grad[1].any()
    assert scores.grad.isfinite().all() and scores.grad[0, 0]


def bias_like(*shape):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("bias", [None, bias_like(H, T, S)], ids=["plain", "biased"])
@pytest.mark.parametrize(
    "mask",
    [None, random_mask(B, H, T, S), random_mask(T, S), random_mask(B, 1, 1, S)],
    ids=["none", "full", "shared", "padding"],
)
def test_without_weights_the_context_and_its_gradients_stay(mask, bias, is_causal):
    results = []
    for need_weights in (True, False):
        operands = qkv()
        if bias is not None:
            operands.append(bias.clone().requires_grad_())
        context, weights = attention(
            *operands[:3],
            mask,
            bias=None if bias is None else operands[3],
            is_causal=is_causal,
            need_weights=need_weights,
        )
        assert (weights is not None) == need_weights
        (context * torch.arange(V)).sum().backward()
        results.append([context, *(x.grad for x in operands)])
    assert_close(*results)
    if mask is not None and mask.shape[-2] > 1:  # its last row is empty
        assert not results[1][0][..., -1, :].any()
        assert not results[1][1][..., -1, :].any()


def test_causal_is_the_causal_mask():
    q, k, v = qkv()
    assert_close(
        attention(q, k, v, is_causal=True), attention(q, k, v, causal_mask(T, S))
    )
    both = random_mask(T, S) & causal_mask(T, S)
    ours = attention(q, k, v, random_mask(T, S), is_causal=True)
    assert_close(ours, attention(q, k, v, both))


def test_causality_alone_needs_no_mask_tensor(monkeypatch):
    seen = []

    def spy(q, k, v, mask, dropout_p, **options):
        seen.append((mask, options["is_causal"]))
        return v[..., :T, :]

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = qkv()
    attention(q, k, v, is_causal=True, need_weights=False)
    attention(q, k, v, random_mask(T, S), is_causal=True, need_weights=False)
    assert seen[0] == (None, True)
    assert seen[1][0].dtype == torch.bool and seen[1][1] is False


def test_a_bias_is_added_to_the_scaled_scores():
    q, k, v = qkv()
    bias = bias_like(T, S)
    _, weights = attention(q, k, v, bias=bias, scale=0.5)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * 0.5 + bias
    assert_close(weights, scores.softmax(-1))


@pytest.mark.parametrize("need_weights", [True, False])
def test_no_keys_give_a_zero_context(need_weights):
    q, k, v = qkv()
    context, weights = attention(
        q, k[..., :0, :], v[..., :0, :], need_weights=need_weights
    )
    assert_close(context, torch.zeros(B, H, T, V, dtype=torch.float64))
    assert weights is None or weights.shape == (B, H, T, 0)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_without_weights_any_number_of_leading_axes(rank):
    q, k, v = (x[0, 0] if rank == 2 else x[0] if rank == 3 else x[None] for x in qkv())
    with_weights, _ = attention(q, k, v)
    without, _ = attention(q, k, v, need_weights=False)
    assert_close(with_weights, without)


@pytest.mark.parametrize("shape", [(), (1,), (S,)], ids=str)
def test_without_weights_a_mask_and_a_bias_may_lack_the_axis_of_the_queries(shape):
    q, k, v = qkv()
    bias = torch.arange(math.prod(shape), dtype=q.dtype).reshape(shape)
    mask = bias < S - 2
    for options in ({"mask": mask}, {"bias": bias}, {"mask": mask, "bias": bias}):
        expected, _ = attention(q, k, v, **options)
        found, _ = attention(q, k, v, **options, need_weights=False)
        assert_close(found, expected)


def test_half_precision_without_weights_does_not_overflow_either():
    # q kᵀ is 90 000, beyond float16; divided by √100 it is 9 000
    q = torch.full((1, 1, 3, 100), 30.0, dtype=torch.float16)
    v = torch.ones(1, 1, 3, 2, dtype=torch.float16)
    context, _ = attention(q, q, v, need_weights=False)
    assert_close(context, v)


def test_a_bias_that_does_not_fit_is_named():
    q, k, v = qkv()
    for bias, error, message in (
        ([0.0], TypeError, "bias must be a tensor of torch.float64; got list"),
        (torch.zeros(T, S), TypeError, "of torch.float64; got torch.float32"),
        (
            bias_like(S, T),
            ValueError,
            r"to \(3, 2, 5, 7\); got shape \(7, 5\)",
        ),
        (bias_like(2, B, H, T, S), ValueError, "bias must broadcast to"),
    ):
        with pytest.raises(error, match=message):
            attention(q, k, v, bias=bias)


@pytest.mark.parametrize("function", [attention, tiled_attention])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("p", [-0.5, 1.5])
def test_dropout_is_a_probability(p, need_weights, function):
    with pytest.raises(ValueError, match=f"must be a probability in 0…1; got {p}"):
        function(*qkv(), dropout_p=p, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_takes_weights_and_not_numbers_of_the_context(need_weights):
    torch.manual_seed(8)
    q, k, v = torch.zeros(40, 3), torch.zeros(8, 3), torch.ones(8, 1)
    context, _ = attention(q, k, v, dropout_p=0.5, need_weights=need_weights)
    # each of the eight weights, 1/8, is dropped or doubled: sums in steps of 1/4
    steps = 4 * context.flatten()
    assert_close(steps, steps.round())
    assert len(set(steps.round().tolist()) - {0.0, 8.0}) > 3


# --- doors and core -----------------------------------------------------------------


@pytest.mark.parametrize(
    "door",
    [
        lambda q, k, v, **masks: attention(q, k, v, **masks),
        lambda q, k, v, **masks: attention(q, k, v, need_weights=False, **masks),
        lambda q, k, v, **masks: attention_weights(q, k, **masks),
        lambda q, k, v, **masks: tiled_attention(q, k, v, **masks),
        lambda q, k, v, **masks: tiled_attention(q, k, v, dropout_p=0.5, **masks),
    ],
    ids=["attention", "without weights", "weights alone", "tiles", "formula"],
)
def test_every_door_checks_what_it_is_given_once(door, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    seen = []
    for module in (sys.modules["mha_lib.attention"], tiled):
        for name in ("check_operands", "check_mask", "check_bias"):
            check = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *x, n=name, c=check: seen.append(n) or c(*x)
            )
    bias = torch.randn(T, S, dtype=torch.float64)
    door(*qkv(), mask=random_mask(B, H, T, S), bias=bias)
    assert sorted(seen) == ["check_bias", "check_mask", "check_operands"]


@pytest.mark.parametrize("other", range(3))
def test_each_operand_must_have_the_dtype_of_the_others(other):
    operands = list(qkv())
    operands[other] = operands[other].float()
    came = f"got {operands[0].dtype}, {operands[1].dtype} and {operands[2].dtype}"
    with pytest.raises(TypeError, match=f"^q, k and v must share one dtype; {came}$"):
        attention(*operands)


# --- the weights alone ------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_weights_alone_are_those_of_attention(masked, is_causal, scale):
    (q, k, v), bias = qkv(), torch.randn(H, T, S, dtype=torch.float64)
    mask = random_mask(B, 1, T, S) if masked else None
    options = {"bias": bias, "scale": scale, "is_causal": is_causal}
    _, weights = attention(q, k, v, mask, **options)
    assert torch.equal(attention_weights(q, k, mask, **options), weights)


def test_the_weights_alone_take_no_options_for_granted():
    q, k, v = qkv()
    assert torch.equal(attention_weights(q, k), attention(q, k, v)[1])


def test_the_weights_alone_need_two_operands_that_fit():
    q, k, _ = qkv()
    for operands, error, message in (
        ((q, None), TypeError, "k must be a floating tensor; got NoneType"),
        ((q, k.float()), TypeError, "^q and k must share one dtype; got torch.float64"),
        ((q, k[..., 1:]), ValueError, f"q and k must share D; got {D} and {D - 1}"),
        (
            (q, k[0, 0, 0]),
            ValueError,
            r"^q and k need at least the axes .* and \(11,\)",
        ),
        (
            (q, k[0]),
            ValueError,
            r"^q and k must share their leading axes; got \(3, 2\)",
        ),
        ((q, k, k[..., 0] > 0), ValueError, "mask must broadcast to"),
    ):
        with pytest.raises(error, match=message):
            attention_weights(*operands)
    with pytest.raises(TypeError, match="bias must be a tensor of torch.float64"):
        attention_weights(q, k, bias=torch.zeros(T, S))
