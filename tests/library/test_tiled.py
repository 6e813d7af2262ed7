"""Tiles of any size give what the plain formula gives, to the second derivative."""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.testing import assert_close

from evidence.helpers import B, D, H, S, T, make
from mha_lib import FusedMHA, _tiles, attention, causal_mask, tiled
from mha_lib.tiled import tiled_attention

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


@pytest.fixture(params=[1, 10, 40, 71, 105], ids="tile{}".format)
def tile(request, monkeypatch):
    """One row of one head; rows of one; one head; two heads in one tile.

    The map of 210 numbers is kept for the backward pass at the last size alone.
    """
    monkeypatch.setattr(_tiles, "TILE", request.param)
    monkeypatch.setattr(_tiles, "MASKED_ROWS", 2)
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """How often the tiles, not the plain formula, did the work."""
    counted, apply = [], tiled._Tiled.apply
    monkeypatch.setattr(
        tiled._Tiled, "apply", lambda *args: counted.append(1) or apply(*args)
    )
    return counted


@pytest.fixture
def products_of_bfloat16(monkeypatch):
    """As where the processor has them: on another the tiles are slow, and right."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    name = "_is_mkldnn_bf16_supported"
    monkeypatch.setattr(torch.ops.mkldnn, name, lambda: True, raising=False)


@pytest.mark.long
@pytest.mark.sweep(3)  # each tile and each of the four others is among them
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


@pytest.mark.parametrize("kind", ["NaN", "inf"])
def test_who_sees_nothing_does_not_see_what_it_is(tile, calls, kind):
    q, k, v = operands(torch.float32, requires_grad=False)
    mask = torch.ones(H, T, S, dtype=torch.bool)
    mask[0, 0], mask[..., 2] = False, False  # the other head sees keys with query 0
    k[..., 2, :] = float(kind)
    ours, plain = (f(q, k, v, mask) for f in (tiled_attention, attention))
    assert_close(ours, plain)
    assert calls and not ours[0][:, 0, 0].any()


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


@pytest.mark.parametrize("masked", [False, True])
def test_biases_of_minus_infinity_hide_beside_a_mask_alone(tile, calls, masked):
    q, k, v = operands(requires_grad=False)
    bias, mask = torch.zeros(T, S).double(), causal_mask(T, S) if masked else None
    if masked:
        mask[1] = True
    bias[1] = float("-inf")
    ours, plain = (f(q, k, v, mask, bias=bias) for f in (tiled_attention, attention))
    for x in plain:
        row = x[:, :, 1]
        assert (row == 0).all() if masked else row.isnan().all()
    assert_close(ours, plain, equal_nan=True)
    assert calls


def test_queries_are_scaled_first_where_a_product_could_overflow(tile, calls):
    """q kᵀ is 4e38, beyond float32, and (q / √D) kᵀ is not: as in the formula."""
    q, k, v = (torch.zeros(1, 4, n, d) for n, d in ((T, 16), (S, 16), (S, V)))
    v.normal_()
    q[..., 0] = 4e38 / 4
    k[..., 0] = 4.0
    k[..., 1, 0] = 0.0  # one key that is not attended to
    assert (q @ k.mT).isinf().any()
    plain = attention(q, k, v)
    assert plain[1].isfinite().all() and calls == []
    assert_close(tiled_attention(q, k, v), plain)
    assert calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 68.9, 69.4, 500.0])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_scores_large_and_small(tile, calls, size, sign, dtype):
    """69.3 is the last at which 2^x is taken without the maximum: 100 / log₂ e."""
    torch.manual_seed(7)
    q = torch.nn.functional.normalize(torch.randn(B, H, T, D), dim=-1)
    k = q[:, :, :1].expand(B, H, S, D) * torch.linspace(0.9, 1.0, S)[:, None]
    q = (q * sign * size * D**0.5).to(dtype)
    k, v = k.to(dtype), torch.randn(B, H, S, V).to(dtype)
    k[..., -1, :] *= -1  # a key that is far from all others
    wide = attention(*(x.double() for x in (q, k, v)))
    eps = torch.finfo(dtype).eps
    # a score is rounded to eps of itself; so, to first order, is log(weight)
    # (in bfloat16 that is more than 1 for large scores: there, no NaN is what counts)
    for ours, exact in zip(tiled_attention(q, k, v), wide):
        assert_close(ours.double(), exact, rtol=0, atol=4 * size * eps + 4 * eps)
    assert calls


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
def test_a_maximum_is_taken_off_only_where_a_sum_asks_for_it(biased):
    """Sums of 2^−100 to 2^100 do not: one key, its score up to 100 / log₂ e = 69.3."""
    q, k = torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 1, 4)
    for score in (69.3, -69.3, 69.4, -69.4, math.inf, math.nan):
        bias = torch.tensor([0.0, score]).reshape(1, 1, 2, 1) if biased else None
        q[..., 1, 2] = 0.0 if biased else 2 * score  # √D = 2
        tiles = _tiles.Tiles(q, k, None, False)
        computed = _tiles.Weights(tiles, q, k, None, bias)
        first, second = (
            (slice(1), slice(1), slice(row, row + 1), slice(1)) for row in range(2)
        )
        assert computed.tile(first).item() == 1.0 and computed.by_powers
        assert computed.tile(second).item() == 1.0 or not math.isfinite(score)
        assert computed.by_powers is (abs(score) == 69.3)


def test_ordinary_scores_are_made_once(tile, calls, monkeypatch):
    """Powers of two do for them, whatever is hidden, and for rows that see nothing."""
    monkeypatch.setattr(_tiles.Weights, "_softmax", None)
    for mask, is_causal in product(masks(), (False, True)):
        tiled_attention(*operands(requires_grad=False), mask, is_causal=is_causal)
    assert len(calls) == 14


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_biases_may_be_as_low_as_the_dtype_goes(tile, calls, dtype):
    """Times log₂ e they are −inf, which hides a key; they alone do not."""
    q, k, v = operands(dtype, requires_grad=False)
    bias, mask = torch.zeros(T, S, dtype=dtype), torch.ones(T, S, dtype=torch.bool)
    bias[1:3] = bias[3, 2:] = torch.finfo(dtype).min
    mask[0, 3:] = mask[3, 1:4] = False
    for hidden in (None, mask):
        plain = attention(q, k, v, hidden, bias=bias)
        ours = tiled_attention(q, k, v, hidden, bias=bias)
        assert_close(ours, plain, rtol=0, atol=20 * torch.finfo(dtype).eps)
    mask[1, 2:] = False  # query 1 sees two keys, both with the lowest bias
    _, weights = tiled_attention(q, k, v, mask, bias=bias)
    assert_close(weights[..., 1, :2].sum(-1), torch.ones(B, H, dtype=dtype))
    assert len(calls) == 3


@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
@pytest.mark.parametrize("sequences", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_whole_sequences_in_a_tile(monkeypatch, sequences, average, dtype):
    heads, tiles = 4, []
    size = sequences * heads * T * S // (2 if dtype == torch.bfloat16 else 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(_tiles, "TILE", size)
    monkeypatch.setattr(_tiles, "MASKED_ROWS", T)
    cut = _tiles.Tiles.__iter__
    monkeypatch.setattr(
        _tiles.Tiles, "__iter__", lambda self: tiles.extend(cut(self)) or iter(tiles)
    )
    torch.manual_seed(5)
    # as a layer splits them: the heads of a position lie side by side
    q, k, v = (torch.randn(4, n, heads, D, dtype=dtype) for n in (T, S, S))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = torch.rand(4, heads, T, S) < 0.7
    ours = tiled_attention(q, k, v, mask, average=average)
    assert {index[0].stop - index[0].start for index in tiles} == {sequences}
    assert all(index[1] == slice(0, heads) for index in tiles)
    context, weights = attention(q, k, v, mask)
    plain = (context, weights.mean(1) if average else weights)
    # both round the scores and the weights
    assert_close(ours, plain, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    "shape, short, masked, threads, cut",
    [
        # sequences, heads, queries
        ((8, 8, 128, 128), False, False, 1, (4, 8, 128)),
        ((8, 8, 128, 128), True, False, 1, (8, 8, 128)),
        ((3, 8, 128, 128), False, False, 1, (3, 8, 128)),
        ((8, 8, 128, 128), False, False, 2, (8, 8, 128)),
        ((2, 16, 1024, 1024), False, False, 1, (1, 1, 512)),
        ((2, 16, 1024, 1024), False, False, 2, (1, 2, 512)),
        ((2, 16, 1024, 1024), True, False, 1, (1, 1, 1024)),
        ((2, 16, 1024, 1024), False, True, 1, (1, 4, 128)),
        ((1, 12, 100, 2048), False, True, 1, (1, 2, 100)),
        ((1, 3, 2048, 2048), False, False, 64, (1, 3, 256)),
        ((1, 2, 2, 2**21), False, False, 1, (1, 1, 1)),
        ((2, 3, 4096, 64), False, False, 1, (1, 2, 4096)),
    ],
)
def test_how_the_map_is_cut(monkeypatch, shape, short, masked, threads, cut):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert _tiles.cut(shape, short, masked) == cut


def test_averages_are_rounded_once(monkeypatch):
    """The mean of four heads is summed from weights that are not rounded yet."""
    monkeypatch.setattr(_tiles, "TILE", T * S)  # two heads in a tile
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.manual_seed(5)
    q, k, v = (torch.randn(B, 4, n, D).bfloat16() for n in (T, S, S))
    _, mean = tiled_attention(q, k, v, average=True)
    units = D**-0.5 * _tiles.LOG2_E  # of the scores, which are rounded as well
    scores = torch.baddbmm(
        q.new_zeros(1), q.flatten(0, 1), k.flatten(0, 1).mT, alpha=units
    )
    powers = torch.exp2(scores.double())
    exact = (powers / powers.sum(-1, keepdim=True)).view(B, 4, T, S).mean(1)
    # half a unit of the last place, and a little for the sums in float32
    half = 0.505 * torch.finfo(torch.bfloat16).eps
    assert_close(mean.double(), exact, rtol=half, atol=0)


@pytest.mark.parametrize("second", [1.0078125, -1.0078125])
def test_equal_values_give_scores_no_gradient_at_all(monkeypatch, second):
    """Both sums over the values are made in float32 and rounded to bfloat16 once."""
    monkeypatch.setattr(_tiles, "TILE", 1)
    q, k = (torch.randn(1, 1, n, 4).bfloat16().requires_grad_() for n in (3, 2))
    v = torch.tensor([1.0078125, 1.0]).bfloat16().expand(1, 1, 2, 2)
    k.data[..., 1, :] = k.data[..., 0, :]  # both weights are 1/2
    context, _ = tiled_attention(q, k, v)
    assert_close(context, v[:, :, :1].expand(1, 1, 3, 2), rtol=0, atol=0)
    factor = torch.tensor([1.0078125, second]).bfloat16()
    context.backward(factor.expand_as(context))
    assert not q.grad.any() and not k.grad.any()


@pytest.mark.parametrize("size, again", [(B * H * T * S // 2 - 1, 1), (105, 0)])
@pytest.mark.parametrize("returned", ["none", "mean"])
def test_a_small_map_is_kept_for_the_backward_pass(monkeypatch, size, again, returned):
    """One of at most two tiles; else the weights are computed a second time."""
    monkeypatch.setattr(_tiles, "TILE", size)
    made, init = [], _tiles.Weights.__init__
    monkeypatch.setattr(
        _tiles.Weights, "__init__", lambda *x: made.append(1) or init(*x)
    )
    q, k, v = operands()
    context, _ = tiled._Tiled.apply(q, k, v, None, None, False, returned)
    ours = torch.autograd.grad(context.sin().sum(), (q, k, v))
    assert len(made) == 1 + again
    plain, _ = attention(q, k, v)
    assert_close(ours, torch.autograd.grad(plain.sin().sum(), (q, k, v)))


def test_no_map_is_kept_where_nothing_learns(monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", B * H * T * S // 2)
    made, apply = [], torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda *x, **y: made.append(x[1:]) or apply(*x, **y)
    )
    for learns in (False, True):
        tiled_attention(*operands(requires_grad=learns), average=True)
        assert ((B, H, T, S) in made) is learns


def test_a_tile_does_not_outlive_its_call(monkeypatch):
    """All calls of a thread share the memory of their tiles; no result does."""
    monkeypatch.setattr(_tiles, "TILE", 12)
    first, second = operands(torch.float32), operands(torch.bfloat16)
    results = tiled_attention(*first)
    kept = [x.clone() for x in results]
    tiled_attention(*(2 * x for x in first))
    tiled_attention(*second)
    assert_close(results, tuple(kept), rtol=0, atol=0)


def test_tiles_made_in_inference_mode_serve_outside_of_it(tile):
    inputs = operands(torch.bfloat16)

    def first_without_then_with_gradients():
        with torch.inference_mode():
            tiled_attention(*inputs)
        return tiled_attention(*inputs)[0].sum().backward()

    with ThreadPoolExecutor(1) as fresh:  # a thread that has no tile yet
        fresh.submit(first_without_then_with_gradients).result()
    assert all(x.grad is not None for x in inputs)


def test_tiles_lie_where_the_operands_do_under_any_default_device(tile):
    inputs = operands(requires_grad=False)
    expected = tiled_attention(*inputs)

    def first_under_another_default():
        with torch.device("meta"):
            found = tiled_attention(*inputs)
        return found, tiled_attention(*inputs)

    with ThreadPoolExecutor(1) as fresh:  # a thread that has no tile yet
        for found in fresh.submit(first_under_another_default).result():
            assert_close(found, expected)


def test_threads_do_not_share_tiles(monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 2**10)
    torch.manual_seed(8)
    tasks = [[torch.randn(2, 4, 64, 8) for _ in range(3)] for _ in range(16)]
    alone = [tiled_attention(*task) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda task: tiled_attention(*task), tasks))
    assert_close(together, alone, rtol=0, atol=0)


def test_one_query_of_many_heads(monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 2 * S)  # two heads in a tile
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


@pytest.mark.long
@pytest.mark.parametrize("average", [False, True], ids=["each", "mean"])
def test_first_and_second_derivatives(average, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 3)
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
    monkeypatch.setattr(_tiles, "TILE", 1)
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


@pytest.mark.long
@pytest.mark.parametrize("is_causal", [False, True])
def test_without_weights_bfloat16_goes_through_tiles(
    tile, calls, is_causal, products_of_bfloat16
):
    q, k, v = operands(torch.bfloat16)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    bias = torch.randn(H, T, S, dtype=torch.bfloat16)
    tolerance = {"rtol": 0, "atol": 20 * torch.finfo(torch.bfloat16).eps}
    for count, (mask, added) in enumerate(product(masks(), (None, bias)), 1):
        context, weights = tiled_attention(
            q, k, v, mask, bias=added, is_causal=is_causal, need_weights=False
        )
        assert weights is None and len(calls) == count
        added = None if added is None else added.double()
        expected, _ = attention(*wide, mask, bias=added, is_causal=is_causal)
        assert_close(context.double(), expected, **tolerance)
        factor = torch.randn_like(context)
        ours = torch.autograd.grad(context, (q, k, v), factor)
        exact = torch.autograd.grad(expected, wide, factor.double())
        for x, y in zip(ours, exact):
            assert_close(x.double(), y, **tolerance)


@pytest.mark.parametrize("library", [False, True])
def test_a_processor_without_products_of_bfloat16_keeps_torchs_kernel(
    tile, calls, monkeypatch, library
):
    """The library that makes them may be absent, or know of none here."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: library)
    answer, name = not library, "_is_mkldnn_bf16_supported"
    monkeypatch.setattr(torch.ops.mkldnn, name, lambda: answer, raising=False)
    tiled_attention(*operands(torch.bfloat16), need_weights=False)
    assert not calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_weights_long_causal_inference_goes_through_tiles(calls, dtype):
    torch.manual_seed(9)
    q, k, v = (torch.randn(1, 4, n, D, dtype=dtype) for n in (600, 512, 512))
    context, weights = tiled_attention(q, k, v, is_causal=True, need_weights=False)
    assert weights is None and len(calls) == 1
    assert_close(context, attention(q, k, v, is_causal=True)[0])
    some = [x.requires_grad_() for x in (q, k, v)]
    with torch.no_grad():
        tiled_attention(*some, is_causal=True, need_weights=False)
    assert len(calls) == 2


def test_scores_in_bfloat16_are_rounded_where_torchs_kernel_keeps_them(
    calls, products_of_bfloat16
):
    torch.manual_seed(6)
    q, k, v = (2 * torch.randn(1, 2, 600, 32) for _ in range(3))
    exact, _ = attention(*(x.bfloat16().double() for x in (q, k, v)))
    short = [x.bfloat16() for x in (q, k, v)]
    pieces, _ = tiled_attention(*short, need_weights=False)
    kernel, _ = attention(*short, need_weights=False)
    far, near = ((x.double() - exact).abs().mean() for x in (pieces, kernel))
    assert calls and 4 < far / near < 8


@pytest.mark.parametrize("why", ["few keys", "learns", "mask", "bias", "all", "half"])
def test_without_weights_sdpa_does_the_rest(calls, why):
    torch.manual_seed(9)
    dtype = torch.float16 if why == "half" else torch.float32
    keys = 511 if why == "few keys" else 512
    q, k, v = (torch.randn(1, 4, n, D, dtype=dtype) for n in (600, keys, keys))
    options = {"is_causal": why != "all"}
    if why == "mask":
        options["mask"] = torch.rand(600, keys) < 0.9
    if why == "bias":
        options["bias"] = torch.randn(600, keys)
    for learner in (q, k, v) if why == "learns" else (q,):
        learner.requires_grad_(why == "learns")
        context, weights = tiled_attention(q, k, v, need_weights=False, **options)
        expected, _ = attention(q, k, v, need_weights=False, **options)
        assert_close(context, expected, rtol=0, atol=0)
        assert weights is None and not calls
        learner.requires_grad_(False)


def test_tensors_without_numbers_see_the_plain_formula(calls, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 1)
    with FakeTensorMode():
        context, weights = tiled_attention(*operands(), average=True)
    assert context.shape == (B, H, T, V) and weights.shape == (B, T, S)
    assert not calls


@SCRIPTED
def test_the_plain_formula_where_tiles_cannot_go(calls, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 1)
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
    monkeypatch.setattr(_tiles, "TILE", 1)
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

    monkeypatch.setattr(_tiles, "TILE", 1)
    inputs = operands()
    inputs[i] = inputs[i].as_subclass(Kind)
    context, _ = tiled_attention(*inputs)
    assert isinstance(context, Kind)
    assert not calls


def test_other_axes_than_four_see_the_plain_formula(monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 1)
    q, k, v = operands()
    assert_close(tiled_attention(q[0], k[0], v[0]), attention(q[0], k[0], v[0]))


@SCRIPTED
def test_the_compiler_sees_the_plain_formula(calls, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 1)
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
    layer, length = make(FusedMHA, torch.float32), 1 + int((_tiles.TILE / H) ** 0.5)
    x = torch.randn(1, length, H * D)
    output, weights = layer(x, is_causal=True)
    assert calls and weights.shape == (1, H, length, length)
    without, none = layer(x, is_causal=True, need_weights=False)
    assert none is None
    # another order of the sums over up to 500 keys, in float32
    assert_close(output, without, rtol=1e-4, atol=1e-5)
    assert not weights.triu(1).any()
