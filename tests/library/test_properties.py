"""Every way to attend keeps every law, and what lies below them has laws of its own."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

from evidence import strategies
from evidence.derivatives import EMPTY_ROW, differentiable
from evidence.laws import LAWS, assert_near, assert_same
from evidence.strategies import MASKS, SUBJECTS, Case, cases, examples, masks, whole
from mha_lib import attention, combine_masks, masked_softmax, tiled
from mha_lib.layouts import (
    batch_to_heads,
    heads_to_batch,
    merge_heads,
    merge_heads_sequence_first,
    split_heads,
    split_heads_sequence_first,
)
from mha_lib.masks import (
    additive_mask,
    from_sequence_first_mask,
    from_torch_mask,
    to_heads_on_batch_mask,
    to_sequence_first_mask,
    to_torch_mask,
)

every_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=repr)
with_and_without_mask = pytest.mark.parametrize(
    "mask", [None, EMPTY_ROW], ids=["none", "empty row"]
)


@pytest.fixture(autouse=True)
def small_tiles():
    with strategies.small_tiles():
        yield


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    ("law", "subject"),
    [
        pytest.param(law, subject, id=f"{law.__name__}-{subject}")
        for law, subjects in LAWS.items()
        for subject in subjects
    ],
)
def test_every_way_keeps_the_law(law, subject):
    law(subject)


# --- first and second derivatives ------------------------------------------------


@pytest.mark.long
@every_subject
@with_and_without_mask
def test_gradcheck(subject, mask):
    # on random directions, which no wrong column leaves as they are
    assert gradcheck(*differentiable(subject, mask), fast_mode=True)


@pytest.mark.exhaustive
@every_subject
@with_and_without_mask
def test_gradcheck_of_each_column(subject, mask):
    assert gradcheck(*differentiable(subject, mask))


@pytest.mark.long
@pytest.mark.sweep(3)
@every_subject
@with_and_without_mask
def test_gradgradcheck(subject, mask):
    # fast mode projects on random directions: all columns would take half a minute
    run, leaves = differentiable(subject, mask)
    if subject.kernel == "always" or (
        subject.kernel == "under a mask" and mask is not None
    ):
        missing = "flash_attention_for_cpu_backward is not implemented"
        with pytest.raises(RuntimeError, match=missing):
            gradgradcheck(run, leaves, fast_mode=True)
        # torch's other kernel has what the fused one lacks
        with sdpa_kernel(SDPBackend.MATH):
            assert gradgradcheck(run, leaves, fast_mode=True)
    else:
        assert gradgradcheck(run, leaves, fast_mode=True)


@with_and_without_mask
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_attention_and_masked_softmax_have_both_derivatives(check, mask):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 2, 3), (2, 3, 3), (2, 3, 5))  # (B, T, D), (B, S, D), (B, S, V)
    q, k, v = (
        torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_()
        for s in shapes
    )
    assert check(lambda *x: attention(*x, mask), (q, k, v))
    scores = q.detach().requires_grad_()  # any numbers will do
    assert check(lambda x: masked_softmax(x, mask), scores)


# --- masks and layouts -----------------------------------------------------------


@examples
@given(cases(kinds=list(MASKS)))
def test_masks_come_back_from_every_other_form(case):
    B, H, T, S = shape = case.shape
    to_torch = to_torch_mask(case.mask, shape)
    assert torch.equal(
        whole(from_torch_mask(to_torch, num_heads=H), shape), case.visible
    )
    on_batch = to_heads_on_batch_mask(case.mask, shape)
    assert torch.equal(on_batch.unflatten(0, (H, B)).transpose(0, 1), case.visible)
    if case.mask.dim() < 4 or case.mask.shape[1] == 1:
        turned = to_sequence_first_mask(case.mask, shape)
        assert torch.equal(whole(from_sequence_first_mask(turned), shape), case.visible)
    added = additive_mask(case.mask, case.dtype)
    assert torch.equal(added.exp().bool(), case.mask) and added.dtype == case.dtype


@settings(examples, max_examples=100)  # few of them have masks of rank 3 and 4
@given(st.data())
def test_a_key_is_visible_if_every_mask_allows_it(data):
    shape = data.draw(cases(may_be_empty=False)).shape
    several = data.draw(st.lists(masks(shape, (None, *MASKS)), min_size=1, max_size=3))
    combined = whole(combine_masks(*several), shape)
    expected = torch.ones(shape, dtype=torch.bool)
    for mask in several:
        expected &= whole(mask, shape)
    assert torch.equal(combined, expected)


@examples
@given(cases())
def test_heads_are_slices_in_every_layout_and_come_back(case):
    B, H, T, _ = case.shape
    x = case.inputs[0]
    slices = torch.stack(x.split(case.D, dim=-1), dim=1)  # (B, H, T, D)
    assert torch.equal(split_heads(x, H), slices)
    assert torch.equal(merge_heads(slices), x)
    turned = x.transpose(0, 1)
    assert torch.equal(
        split_heads_sequence_first(turned, H), slices.permute(2, 0, 1, 3)
    )
    assert torch.equal(merge_heads_sequence_first(slices.permute(2, 0, 1, 3)), turned)
    on_batch = slices.transpose(0, 1).reshape(H * B, T, case.D)
    assert torch.equal(heads_to_batch(x, H), on_batch)
    assert torch.equal(batch_to_heads(on_batch, H), x)


# --- the functions below the layers ----------------------------------------------

CORES = {
    "attention": attention,
    "no weights": partial(attention, need_weights=False),
    "tiled": tiled.tiled_attention,
}
every_core = pytest.mark.parametrize("core", CORES.values(), ids=CORES)


def heads(case: Case) -> list[Tensor]:
    """Queries, keys and values (B, H, length, D), ready for gradients."""
    sizes = (case.T, case.S, case.S)
    return [
        case.random(case.B, case.H, n, case.D, salt=i).requires_grad_()
        for i, n in enumerate(sizes, start=1)
    ]


@every_core
@examples
@given(cases())
def test_a_bias_is_added_to_the_scores(core, case):
    """softmax(QKᵀ/√D + bias)V, by the formula; to a row a constant makes no change."""
    bias = case.random(*case.shape, salt=20)
    shift = case.random(*case.shape[:3], 1, salt=21)
    q, k, v = exact = [x.detach().double().requires_grad_() for x in heads(case)]
    powers = (q @ k.mT / case.D**0.5 + bias).exp() * case.visible
    total = powers.sum(-1, keepdim=True)
    context = powers / total.where(total > 0, torch.ones_like(total)) @ v
    upstream = case.random(*context.shape, salt=22)
    expected = [context, *torch.autograd.grad((context * upstream).sum(), exact)]
    expected = [x.detach().to(case.dtype) for x in expected]
    for added in (bias, bias + shift):
        ours = heads(case)
        context, _ = core(*ours, case.visible, bias=added)
        grads = torch.autograd.grad((context * upstream).sum(), ours)
        assert_same([context.detach(), *grads], expected)


@examples
@given(cases())
def test_averaged_weights_are_the_mean_over_the_heads(case):
    results = []
    for average in (False, True):
        ours = heads(case)
        context, weights = tiled.tiled_attention(*ours, case.visible, average=average)
        if not average:
            weights = weights.mean(1)
        loss = (context * case.random(*context.shape, salt=20)).sum()
        loss = loss + (weights * case.random(*weights.shape, salt=21)).sum()
        grads = torch.autograd.grad(loss, ours)
        results.append([context.detach(), weights.detach(), *grads])
    assert_same(*results)


@examples
@given(cases(), st.integers(0, 3))
def test_masked_softmax_along_any_axis(case, axis):
    """exp(x_j) / Σ exp(x_i) over the visible i, wherever the keys lie."""
    scores = case.random(*case.shape)
    powers = scores.double().exp() * case.visible
    total = powers.sum(-1, keepdim=True)
    shares = powers / total.where(total > 0, torch.ones_like(total))
    moved = [x.movedim(-1, axis) for x in (scores, case.visible, shares)]
    assert_near(masked_softmax(*moved[:2], dim=axis), moved[2].to(case.dtype))
    if case.mask is None:
        assert_near(masked_softmax(moved[0], dim=axis), moved[2].to(case.dtype))
