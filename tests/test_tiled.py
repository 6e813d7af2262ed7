"""Tiles of any size give what the plain formula gives, to the second derivative."""

from itertools import product

import pytest
import torch
from torch.autograd import forward_ad
from torch.testing import assert_close

from mha_lib import FusedMHA, attention, causal_mask, tiled
from mha_lib.tiled import tiled_attention
from tests.helpers import B, D, H, S, T, make

# torch's compiler and jvp still import modules that script a function.
SCRIPTED = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
V = 4  # values of another width than the keys


def operands(dtype=torch.float64, **options):
    torch.manual_seed(3)
    options = {"dtype": dtype, "requires_grad": True, **options}
    return [torch.randn(B, H, n, d, **options) for n, d in ((T, D), (S, D), (S, V))]


def masks():
    """Every rank; a row and whole columns that nobody sees."""
    torch.manual_seed(4)
    random = torch.rand(B, H, T, S) < 0.6
    random[..., -1, :] = False
    random[..., -2:] = False
    yield None
    yield from (random, random[:, :1], random[0, 0], random[:1, :, :1])
    yield torch.zeros(T, S, dtype=torch.bool)
    yield causal_mask(T, S)


@pytest.fixture(params=[1, 10, 40, 71], ids="tile{}".format)
def tile(request, monkeypatch):
    """One row of one head; rows of one; one head; two heads in one tile."""
    monkeypatch.setattr(tiled, "TILE", request.param)
    monkeypatch.setattr(tiled, "MASKED_ROWS", 2)
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """How often the tiles, not the plain formula, did the work."""
    counted, apply = [], tiled._Tiled.apply
    monkeypatch.setattr(
        tiled._Tiled, "apply", lambda *args: counted.append(1) or apply(*args)
    )
    return counted


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
def test_same_results_and_gradients_as_the_formula(tile, calls, average, biased):
    bias = torch.randn(H, T, S, dtype=torch.float64) if biased else None
    for count, (mask, is_causal) in enumerate(product(masks(), (False, True)), 1):
        q, k, v = operands()
        options = {"bias": bias, "is_causal": is_causal}
        ours = tiled_attention(q, k, v, mask, average=average, **options)
        context, weights = attention(q, k, v, mask, **options)
        plain = (context, weights.mean(1) if average else weights)
        factors = [torch.randn_like(x) for x in plain]
        # float64: rounding alone, as the default tolerance of assert_close has it
        assert_close(ours, plain)
        for used in ([0, 1], [0], [1]):  # both results, the context, the weights
            grads = []
            # a gradient that shall be derived again comes from the formula
            for results, again in ((plain, False), (ours, False), (ours, True)):
                loss = sum((results[i] * factors[i]).sum() for i in used)
                grads.append(
                    torch.autograd.grad(
                        loss,
                        (q, k, v),
                        retain_graph=True,
                        create_graph=again,
                        materialize_grads=True,
                    )
                )
            assert_close(grads[1], grads[0])
            assert_close(grads[2], grads[0])
        assert len(calls) == count


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
@pytest.mark.parametrize("kind", ["NaN", "inf", "product", "bias"])
def test_what_is_hidden_may_be_anything(tile, calls, kind, average):
    q, k, v = operands(torch.float32, requires_grad=False)
    bias = torch.zeros(T, S)
    mask = masked = causal_mask(T, S)
    if kind in ("NaN", "inf"):
        k[..., 1, :] = float(kind)
        mask = masked.clone()
        mask[:, 1] = False
    elif kind == "product":  # finite factors, an infinite score
        q, k = q.abs(), k.abs()
        q[..., -1, :], k[..., 2, :] = 1e30, 1e10
        mask = masked.clone()
        mask[:, 2] = False
    else:  # the first row sees −inf alone and is empty; what it may not see is NaN
        bias[~masked], bias[0, 0] = float("nan"), float("-inf")
    context, weights = attention(q, k, v, mask, bias=bias)
    assert weights.isfinite().all()
    plain = (context, weights.mean(1) if average else weights)
    assert_close(tiled_attention(q, k, v, mask, bias=bias, average=average), plain)
    assert calls


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
@pytest.mark.parametrize("kind", ["NaN", "inf", "product"])
def test_what_comes_later_may_be_anything(tile, calls, kind, average):
    """Query 2 and all before it see neither of the keys 3 and later."""
    q, k, v = (x[:, :, :3] for x in operands(torch.float32, requires_grad=False))
    k, v = (torch.cat([x, x], dim=2) for x in (k, v))
    if kind == "product":
        q, k = q.abs() * 1e25, k.abs()
        k[..., 3:, :], k[..., :3, :] = 1e25, 1e-25
    else:
        k[..., 3:, :] = float(kind)
    context, weights = attention(q, k, v, is_causal=True)
    assert weights.isfinite().all()
    plain = (context, weights.mean(1) if average else weights)
    assert_close(tiled_attention(q, k, v, is_causal=True, average=average), plain)
    assert calls


def test_biases_of_minus_infinity_are_no_mask(tile, calls):
    q, k, v = operands(requires_grad=False)
    bias, mask = torch.zeros(T, S).double(), causal_mask(T, S)
    mask[1], bias[1] = True, float("-inf")
    ours, plain = (f(q, k, v, mask, bias=bias) for f in (tiled_attention, attention))
    assert plain[0][:, :, 1].isnan().all()
    assert_close(ours, plain, equal_nan=True)
    assert calls


def test_a_score_is_finite_where_no_sum_of_products_can_overflow():
    largest = torch.finfo(torch.float32).max
    q, k = torch.ones(2, 8), torch.ones(3, 8)
    for x, y, finite in (
        (largest / 9, 1, True),
        (largest / 7, 1, False),  # 8 such products
        (1, -largest / 7, False),
        (-largest / 7, 1, False),
        (float("nan"), 1, False),
    ):
        assert tiled._finite_products(q * x, k * y) is finite


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_whole_sequences_of_short_numbers_in_a_tile(monkeypatch, sequences, average):
    heads, tiles = 4, []
    monkeypatch.setattr(tiled, "TILE", sequences * heads * T * S)
    monkeypatch.setattr(tiled, "MASKED_ROWS", T)
    cut = tiled._Weights.tiles
    monkeypatch.setattr(
        tiled._Weights, "tiles", lambda self: tiles.extend(cut(self)) or iter(tiles)
    )
    torch.manual_seed(5)
    q, k, v = (torch.randn(3, heads, n, D).bfloat16() for n in (T, S, S))
    mask = torch.rand(3, heads, T, S) < 0.7
    if sequences == 3:  # the map must be larger than a tile
        monkeypatch.setattr(tiled, "TILE", sequences * heads * T * S - 1)
        sequences = 2
    ours = tiled_attention(q, k, v, mask, average=average)
    assert {index[0].stop - index[0].start for index in tiles} == {sequences}
    assert all(index[1] == slice(0, heads) for index in tiles)
    context, weights = attention(q, k, v, mask)
    plain = (context, weights.mean(1) if average else weights)
    # both round the scores and the weights to bfloat16
    assert_close(ours, plain, rtol=0, atol=20 * torch.finfo(torch.bfloat16).eps)


def test_two_heads_and_two_heads_in_a_tile(monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 2 * T * S)
    torch.manual_seed(5)
    q, k, v = (torch.randn(B, 4, n, D, dtype=torch.bfloat16) for n in (T, S, S))
    _, each = tiled_attention(q, k, v)
    _, mean = tiled_attention(q, k, v, average=True)
    # In float32 the sum of four such numbers is exact: it is rounded once.
    assert_close(mean, each.float().mean(1).bfloat16(), rtol=0, atol=0)


def test_one_query_of_many_heads(monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 2 * S)  # two heads in a tile
    torch.manual_seed(5)
    q, k, v = (torch.randn(B, 4, n, D).double() for n in (1, S, S))
    context, weights = attention(q, k, v)
    assert_close(tiled_attention(q, k, v, average=True), (context, weights.mean(1)))


def test_more_queries_than_keys(tile):
    q, k, v = operands()
    for mask, is_causal in ((None, False), (causal_mask(S, T), False), (None, True)):
        inputs = (k, q, v[:, :, :T], mask)
        ours, plain = (
            f(*inputs, is_causal=is_causal) for f in (tiled_attention, attention)
        )
        assert_close(ours, plain)


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
def test_first_and_second_derivatives(average, monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 3)
    sizes = ((2, 3), (3, 3), (3, 2))
    q, k, v = (
        torch.randn(1, 2, *size, dtype=torch.float64, requires_grad=True)
        for size in sizes
    )
    mask = torch.tensor([[True, False, True], [False, False, False]])

    def function(q, k, v):
        return tiled_attention(q, k, v, mask, average=average)

    assert torch.autograd.gradcheck(function, (q, k, v))
    assert torch.autograd.gradgradcheck(function, (q, k, v))


def test_a_gradient_is_found_for_the_operands_that_want_one(tile):
    for wanted in ([0], [1], [2], [0, 2]):
        inputs = [x.detach() for x in operands()]
        for i in wanted:
            inputs[i].requires_grad_()
        leaves = [inputs[i] for i in wanted]
        ours, plain = tiled_attention(*inputs)[0], attention(*inputs)[0]
        for again in (False, True):
            grads = [
                torch.autograd.grad(
                    (x**2).sum(), leaves, create_graph=again, retain_graph=True
                )
                for x in (ours, plain)
            ]
            assert_close(*grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_short_numbers(tile, dtype):
    q, k, v = operands(dtype)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    ours = tiled_attention(q, k, v, average=True)
    theirs = tiled_attention(*wide, average=True)
    # sums of up to S numbers, each rounded to eps of its dtype: 20 eps bounds them
    tolerance = {"rtol": 0, "atol": 20 * torch.finfo(dtype).eps}
    for x, y in zip(ours, theirs):
        assert x.dtype == dtype
        assert_close(x.double(), y, **tolerance)
    ours[0].sum().backward()
    theirs[0].sum().backward()
    for x, y in zip((q, k, v), wide):
        assert x.grad.dtype == dtype
        assert_close(x.grad.double(), y.grad, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_numbers_that_are_hidden(tile, dtype):
    q, k, v = operands(dtype)
    for mask in masks():
        ours, plain = (f(q, k, v, mask) for f in (tiled_attention, attention))
        assert_close(ours, plain, rtol=0, atol=20 * torch.finfo(dtype).eps)


def test_sums_over_many_tiles_of_short_numbers_do_not_stop_growing(monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    n, options = 1024, {"dtype": torch.bfloat16, "requires_grad": True}
    # Equal scores: each weight is 1/2. In bfloat16 128 + 1/2 = 128.
    q = torch.ones(1, 1, n, 1, **options)
    k = torch.zeros(1, 1, 2, 1, **options)
    v = torch.tensor([[[[1.0], [-1.0]]]], **options)
    tiled_attention(q, k, v)[0].sum().backward()
    assert v.grad.flatten().tolist() == [n / 2, n / 2]
    assert k.grad.flatten().tolist() == [n / 2, -n / 2]
    heads = [x.detach().mT.expand(1, n, -1, -1) for x in (q[:, :, :1], k.mT, v.mT)]
    _, weights = tiled_attention(*heads, average=True)
    assert weights.flatten().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("is_causal", [False, True])
def test_without_weights_and_gradients_bfloat16_goes_through_tiles(
    tile, calls, is_causal
):
    q, k, v = operands(torch.bfloat16)
    wide = [x.detach().double() for x in (q, k, v)]
    bias = torch.randn(H, T, S, dtype=torch.bfloat16)
    tolerance = {"rtol": 0, "atol": 20 * torch.finfo(torch.bfloat16).eps}
    for count, (mask, added) in enumerate(product(masks(), (None, bias)), 1):
        with torch.no_grad():
            context, weights = tiled_attention(
                q, k, v, mask, bias=added, is_causal=is_causal, need_weights=False
            )
        assert weights is None and len(calls) == count
        added = None if added is None else added.double()
        expected, _ = attention(*wide, mask, bias=added, is_causal=is_causal)
        assert_close(context.double(), expected, **tolerance)


def test_scores_in_bfloat16_are_rounded_where_torchs_kernel_keeps_them(calls):
    torch.manual_seed(6)
    q, k, v = (2 * torch.randn(1, 2, 600, 32) for _ in range(3))
    exact, _ = attention(*(x.bfloat16().double() for x in (q, k, v)))
    short = [x.bfloat16() for x in (q, k, v)]
    pieces, _ = tiled_attention(*short, need_weights=False)
    kernel, _ = attention(*short, need_weights=False)
    far, near = ((x.double() - exact).abs().mean() for x in (pieces, kernel))
    assert calls and 4 < far / near < 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_without_weights_sdpa_does_the_rest(calls, dtype, monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    q, k, v = operands(dtype)
    learners = [{0}, {1}, {2}, {0, 1, 2}]
    if dtype != torch.bfloat16:
        learners.append(set())
    cases = [
        [x.detach().requires_grad_(i in learning) for i, x in enumerate((q, k, v))]
        for learning in learners
    ]
    for case in cases:
        context, weights = tiled_attention(*case, average=True, need_weights=False)
        assert_close(context, attention(*case, need_weights=False)[0], rtol=0, atol=0)
        assert weights is None
    assert not calls


@SCRIPTED
def test_the_plain_formula_where_tiles_cannot_go(calls, monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    q, k, v = operands()
    plain = attention(q, k, v)
    bias = torch.zeros(T, S, dtype=torch.float64, requires_grad=True)
    tiled_attention(q, k, v, bias=bias)[0].sum().backward()
    assert bias.grad.abs().sum() > 0
    _, tangent = torch.func.jvp(tiled_attention, (q, k, v), (q, k, v))
    assert tangent[0].abs().sum() > 0
    mapped = torch.func.vmap(lambda *x: tiled_attention(*(y[None] for y in x)))(q, k, v)
    assert_close(mapped[0][:, 0], plain[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert tiled_attention(*operands(torch.float32))[0].dtype == torch.bfloat16
    dropped, weights = tiled_attention(q, k, v, dropout_p=0.5)
    assert_close(weights, plain[1])
    assert not torch.allclose(dropped, plain[0])
    on_meta = tiled_attention(*operands(device="meta"), average=True)
    assert on_meta[1].shape == (B, T, S)
    assert not calls
    tiled_attention(q, k, v)
    assert calls


@SCRIPTED
def test_forward_mode_sees_the_plain_formula(calls, monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    q, k, v = operands()
    tangents = []
    with forward_ad.dual_level():
        for function in (tiled_attention, attention):
            context, _ = function(forward_ad.make_dual(q, q.sin()), k, v)
            tangents.append(forward_ad.unpack_dual(context).tangent)
    assert_close(*tangents)
    assert not calls


@pytest.mark.parametrize("i", range(3))
def test_a_kind_of_tensor_sees_the_plain_formula(i, calls, monkeypatch):
    """It may want to see every operation, and any of the three may be of it."""

    class Kind(torch.Tensor):
        pass

    monkeypatch.setattr(tiled, "TILE", 1)
    inputs = operands()
    inputs[i] = inputs[i].as_subclass(Kind)
    context, _ = tiled_attention(*inputs)
    assert isinstance(context, Kind)
    assert not calls


def test_other_axes_than_four_see_the_plain_formula(monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    q, k, v = operands()
    assert_close(tiled_attention(q[0], k[0], v[0]), attention(q[0], k[0], v[0]))


@SCRIPTED
def test_the_compiler_sees_the_plain_formula(calls, monkeypatch):
    monkeypatch.setattr(tiled, "TILE", 1)
    q, k, v = operands()
    compiled = torch.compile(tiled_attention, fullgraph=True, backend="eager")
    assert_close(compiled(q, k, v), attention(q, k, v))
    assert not calls


def test_faulty_input_is_named_where_the_formula_would(tile):
    q, k, v = operands()
    for arguments, error, message in (
        ((q, k[..., :-1], v), ValueError, "q and k must share D; got 11 and 10"),
        ((q, k, v[..., :-1, :]), ValueError, "k and v must share S; got 7 and 6"),
        ((q, k, v, torch.ones(T, S)), TypeError, "boolean"),
        ((q, k, v, torch.ones(T, T) > 0), ValueError, "mask must broadcast to"),
    ):
        with pytest.raises(error, match=message):
            tiled_attention(*arguments)
    with pytest.raises(TypeError, match="bias must be a tensor of torch.float64"):
        tiled_attention(q, k, v, bias=torch.zeros(T, S))


def test_a_map_larger_than_a_tile_goes_through_the_layer(calls):
    layer, length = make(FusedMHA, torch.float32), 1 + int((tiled.TILE / H) ** 0.5)
    x = torch.randn(1, length, H * D)
    output, weights = layer(x, is_causal=True)
    assert calls and weights.shape == (1, H, length, length)
    without, none = layer(x, is_causal=True, need_weights=False)
    assert none is None
    # another order of the sums over up to 500 keys, in float32
    assert_close(output, without, rtol=1e-4, atol=1e-5)
    assert not weights.triu(1).any()
