"""A hundred unusual programs are right, and none is called wrong."""

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mha_lib.check import TASKS, diagnose
from tests.check.unusual import (  # noqa: F401 (each fills PROGRAMS)
    attention,
    compiled,
    layers,
    pieces,
    sequences,
    tensorflow,
)
from tests.check.unusual.registry import PROGRAMS, plain_attention, plain_layer

pytestmark = pytest.mark.long

LAYERS = "mha", "mha_sequence_first", "split_concat"


def of_task(*tasks):
    return [name for name, program in PROGRAMS.items() if program.task in tasks]


def seen_by_all(*shape, generator):
    """A random mask in which each query sees a key."""
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[..., 0] |= ~mask.any(-1)
    return mask


def close(theirs, expected):
    """Wherever the formula has a value: a query may see no key."""
    assert theirs.shape == expected.shape
    known = ~expected.isnan()
    slack = {"rtol": 1e-3, "atol": 1e-4} if theirs.dtype == torch.float32 else {}
    assert_close(theirs[known], expected[known].to(theirs), **slack)


def halves(answer):
    """Output and weights, or None where none came."""
    return answer if isinstance(answer, tuple) else (answer, None)


def test_there_are_more_than_a_hundred_of_all_tasks():
    ours = {name for name, task in TASKS.items() if not task.conclude}
    assert {program.task for program in PROGRAMS.values()} == ours
    assert len(PROGRAMS) >= 120
    sentences = [program.sentence for program in PROGRAMS.values()]
    assert all(sentence.endswith(".") for sentence in sentences)


# --- they are right -----------------------------------------------------------------


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", of_task("attention"))
def test_attention_equals_the_formula(name, dtype):
    program = PROGRAMS[name].make
    program = program() if isinstance(program, type) else program
    draw = torch.Generator().manual_seed(len(name))

    def drawn(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)

    for lead, T, S, D, V in (
        ((), 4, 5, 3, 2),
        ((2,), 1, 3, 1, 4),
        ((2, 3), 5, 2, 4, 4),
        ((1, 2), 3, 1, 2, 3),
    ):
        q, k, v = drawn(*lead, T, D), drawn(*lead, S, D), drawn(*lead, S, V)
        if len(lead) == 1:
            q *= 3000  # exp overflows
        one_for_all = seen_by_all(T, S, generator=draw)
        row = seen_by_all(S, generator=draw)
        own = seen_by_all(*lead[:1], *[1 for _ in lead[1:]], T, S, generator=draw)
        with_empty_row = own.clone()
        with_empty_row[..., 0, :] = False
        for mask in (None, one_for_all, row, own, with_empty_row):
            given = [x.clone() for x in (q, k, v, mask) if x is not None]
            context, weights = halves(program(*given))
            expected = plain(q, k, v, mask)
            close(context, expected[0])
            if weights is not None:
                close(weights, expected[1])
            assert_close(given, [x for x in (q, k, v, mask) if x is not None])


def plain(q, k, v, mask):
    """plain_attention for each of the leading axes."""
    lead, shape = q.shape[:-2], (*q.shape[:-1], k.shape[-2])
    mask = None if mask is None else mask.expand(shape)
    found = [
        plain_attention(q[i], k[i], v[i], None if mask is None else mask[i])
        for i in itertools.product(*map(range, lead))
    ]
    return [
        torch.stack(each).unflatten(0, lead or (1,)) if lead else each[0]
        for each in zip(*found)
    ]


@pytest.mark.parametrize("name", of_task("split_heads", "merge_heads"))
def test_heads_lie_where_they_should(name):
    task, _, program, _ = PROGRAMS[name]
    for B, T, H, D in ((2, 3, 4, 5), (1, 5, 1, 3), (3, 1, 2, 1)):
        x = torch.randn(B, T, H * D)
        heads = torch.zeros(B, H, T, D)
        for b, t, h, d in itertools.product(*map(range, (B, T, H, D))):
            heads[b, h, t, d] = x[b, t, h * D + d]
        if task == "split_heads":
            assert torch.equal(program(x, H), heads)
            assert torch.equal(program(x.mT.contiguous().mT, H), heads)
        else:
            assert torch.equal(program(heads), x)
            assert torch.equal(program(heads.mT.contiguous().mT), x)


@pytest.mark.parametrize("name", of_task("causal_mask"))
def test_causal_masks_allow_no_later_key(name):
    for T, S in ((4, 4), (3, 5), (5, 3), (1, 1), (1, 4), (20, 17)):
        mask = PROGRAMS[name].make(T, S)
        assert mask.dtype == torch.bool and mask.shape == (T, S)
        assert all(mask[t, s] == (s <= t) for t in range(T) for s in range(S))


@pytest.mark.parametrize("name", of_task("padding_mask"))
def test_padding_masks_allow_what_is_before_the_end(name):
    for lengths, S in (([3, 1, 4], 4), ([2], 6), ([0, 5, 5, 2], 5), ([18], 20)):
        for given in (lengths, torch.tensor(lengths)):
            mask = PROGRAMS[name].make(given, S)
            assert mask.dtype == torch.bool and mask.shape == (len(lengths), 1, S)
            for b, n in enumerate(lengths):
                assert all(mask[b, 0, s] == (s < n) for s in range(S))


@pytest.mark.parametrize("name", of_task("combine_masks"))
def test_combined_masks_allow_what_both_allow(name):
    for B, T, S in ((2, 3, 4), (1, 5, 2), (3, 1, 6)):
        causal, padding = torch.rand(T, S) < 0.6, torch.rand(B, 1, S) < 0.6
        before = causal.clone(), padding.clone()
        both = PROGRAMS[name].make(causal, padding)
        assert both.dtype == torch.bool and both.shape == (B, T, S)
        for b, t, s in itertools.product(*map(range, (B, T, S))):
            assert both[b, t, s] == (causal[t, s] and padding[b, 0, s])
        assert_close((causal, padding), before)


SIZES = (2, 4, 5, 15, 3), (1, 1, 3, 15, 3), (3, 6, 6, 8, 2), (2, 3, 1, 4, 1)


def made(name, E, H, draw):
    """A layer that evaluates and its weights, or a function of weights and these."""
    program = PROGRAMS[name]
    if program.read is None:
        weights = {
            f"{x}_{n}": torch.randn(*[E] * (1 + (x == "W")), generator=draw) / 2
            for x in "Wb"
            for n in "qkvo"
        }
        return lambda *a: program.make(*a[:-1], weights, H, a[-1]), weights
    layer = program.make
    if isinstance(layer, type):
        layer = layer(E, H).eval()
        nothing = torch.zeros(1, 1, E)
        layer(nothing, nothing, *[nothing] * (program.task != "split_concat"))
    return layer, program.read(layer)


def sizes_of(name):
    return SIZES[:2] if isinstance(PROGRAMS[name].make, nn.Module) else SIZES


@pytest.mark.parametrize("name", of_task("mha", "mha_sequence_first"))
def test_layers_equal_the_formula(name):
    first = PROGRAMS[name].task == "mha_sequence_first"
    draw = torch.Generator().manual_seed(len(name))
    torch.manual_seed(0)
    for B, T, S, E, H in sizes_of(name):
        layer, weights = made(name, E, H, draw)
        x, *xs = (torch.randn(B, n, E, generator=draw) for n in (T, S, S))
        masked = seen_by_all(B, T, S, generator=draw)
        empty = masked.clone()
        empty[0, 0] = False
        for mask in (None, masked, empty):
            given = [x, *xs, mask]
            if first:
                given = [x.transpose(0, 1) for x in (x, *xs)]
                given += [None if mask is None else mask.permute(1, 2, 0)]
            output, maps = halves(layer(*given))
            expected = plain_layer(x, *xs, weights, H, mask)
            close(output.transpose(0, 1) if first else output, expected[0])
            if maps is not None:
                close(maps, expected[1])


@pytest.mark.parametrize("name", of_task("split_concat"))
def test_layers_of_the_tensorflow_way_equal_the_formula(name):
    draw = torch.Generator().manual_seed(len(name))
    torch.manual_seed(0)
    for B, T, S, E, H in sizes_of(name):
        layer, weights = made(name, E, H, draw)
        queries = torch.randn(B, T, E, generator=draw)
        keys = torch.randn(B, S, E, generator=draw)
        keys[0, 1:2] = 0  # hidden, but not the first: each query sees a key
        for causality in (False, True):
            mask = (keys != 0).any(-1)[:, None].repeat(1, T, 1)
            if causality:
                mask &= torch.arange(T)[:, None] >= torch.arange(S)
            expected, _ = plain_layer(queries, keys, keys, weights, H, mask, torch.relu)
            close(layer(queries, keys, causality), expected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", of_task("attention", *LAYERS))
def test_gradients_are_those_of_the_output(name):
    draw, E, H = torch.Generator().manual_seed(1), 6, 2
    torch.manual_seed(0)
    task, _, program, _ = PROGRAMS[name]

    def drawn(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_()

    if task == "attention":
        layer = program() if isinstance(program, type) else program
        inputs = drawn(2, 3, 2), drawn(2, 4, 2), drawn(2, 4, 3)
        rest = (seen_by_all(2, 3, 4, generator=draw),)
    else:
        if isinstance(program, nn.Module):
            E, H = 15, 3
        layer, weights = made(name, E, H, draw)
        for x in weights.values():
            x.data = x.double()
        inputs = drawn(2, 2, E), drawn(2, 2, E), drawn(2, 2, E)
        rest = (seen_by_all(2, 2, 2, generator=draw),)
        if task == "split_concat":
            inputs, rest = inputs[:2], (True,)
    if isinstance(layer, nn.Module):
        layer.double()
    try:
        assert torch.autograd.gradcheck(
            lambda *x: halves(layer(*x, *rest))[0], inputs, fast_mode=True
        )
    finally:
        if isinstance(layer, nn.Module):
            layer.float()


# --- and none is called wrong -------------------------------------------------------


def not_faulted(name, seed):
    program = PROGRAMS[name]
    found = diagnose(program.make, program.task, seed=seed)
    assert (found.verdict, found.mistakes) == ("right", []), found.error


EACH = [name for name in PROGRAMS if name != "mha-scripted"]


@pytest.mark.parametrize("given", [{}, {"num_heads": 3}])
def test_a_scripted_module_is_asked_for_before_it_was_scripted(given):
    program = PROGRAMS["mha-scripted"]
    found = diagnose(program.make, program.task, **given)
    assert found.verdict == "failed"
    assert found.error.endswith("Pass the module that it was made of")


@pytest.mark.sweep(7)
@pytest.mark.parametrize("name", EACH)
def test_no_unusual_program_is_faulted(name):
    not_faulted(name, seed=len(name))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", EACH)
def test_no_seed_faults_an_unusual_program(name, seed):
    not_faulted(name, seed)


def test_a_bias_of_k_that_is_not_used_is_no_fault():
    """It cancels in the softmax, and so its gradient is 0."""
    assert diagnose(PROGRAMS["mha-Bilinear"].make, "mha").verdict == "right"
