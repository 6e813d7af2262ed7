"""The laws of attention: what holds for any sizes, numbers, masks and layouts.

Each is a function of a subject, one way to attend; it draws cases at random and raises
AssertionError, with the smallest case that it can find, where one breaks the law. To
hold all subjects to another law, write it below `@law`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from evidence.strategies import MASKS, SUBJECTS, Case, Subject, cases, examples

HIDING = [kind for kind in MASKS if kind != "all"]
LAWS: dict[Callable[[Subject], None], Sequence[Subject]] = {}  # who has to keep it


def law(*drawn: st.SearchStrategy, subjects: Sequence[Subject] = SUBJECTS):
    """Make a law of a function of a subject and of what is drawn."""

    def make(function: Callable) -> Callable[[Subject], None]:
        made = examples(given(*drawn)(function))
        LAWS[made] = subjects
        return made

    return make


# --- what the laws share --------------------------------------------------------


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    """Equal up to rounding, measured by the largest number.

    A result passes four products of at most 16 terms, so a few roundings add up: at
    most 9 units in the last place were seen in float32 and fewer in half precision.
    In float64 the inputs may be six times as large; then scores of some hundreds carry
    their rounding into the weights, and 300 units were seen. Below: about twice and
    ten times as much. A fault is some hundredths of the largest number or more.
    """
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    units = 3000 if ours.dtype == torch.float64 else 20
    largest = max(1.0, theirs.abs().max().item()) if theirs.numel() else 1.0
    tolerance = units * torch.finfo(ours.dtype).eps * largest
    assert_close(ours, theirs, atol=tolerance, rtol=0.0)


def assert_same(ours, theirs) -> None:
    """Equal up to rounding, one by one; None (no weights) equals None."""
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            assert_near(mine, other)


def evaluate(run, inputs, mask=None, upstream=None) -> list[Tensor | None]:
    """Output and weights; if something meets them upstream, the inputs' gradients."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    output, weights = run(*leaves, mask=mask)
    results = [output.detach(), None if weights is None else weights.detach()]
    if upstream is None:
        return results
    loss = (output * upstream[0]).sum()
    if weights is not None:
        loss = loss + (weights * upstream[1]).sum()
    return [*results, *torch.autograd.grad(loss, leaves)]


def pick(mask: Tensor | None, index: Tensor, axis: int) -> Tensor | None:
    """The mask's entries along an axis (from the end); size 1 stands for all."""
    if mask is None or mask.dim() < -axis or mask.shape[axis] == 1:
        return mask
    return mask.index_select(axis, index)


def pick_weights(weights: Tensor | None, *index) -> Tensor | None:
    return None if weights is None else weights[index]


def definition(case: Case, with_weights: bool) -> list[Tensor | None]:
    """softmax(QKᵀ/√D)V in every head, by the formula, in float64."""
    plain = case.plain.double()
    leaves = [x.detach().double().requires_grad_() for x in case.inputs]
    q, k, v = (
        linear(x).reshape(case.B, x.shape[1], case.H, case.D)
        for linear, x in zip((plain.q_proj, plain.k_proj, plain.v_proj), leaves)
    )
    scores = torch.einsum("bthd,bshd->bhts", q, k) / case.D**0.5
    powers = scores.exp() * case.visible
    total = powers.sum(-1, keepdim=True)
    weights = powers / total.where(total > 0, torch.ones_like(total))
    context = torch.einsum("bhts,bshd->bthd", weights, v).flatten(2)
    output = plain.out_proj(context)
    loss = (output * case.upstream[0]).sum()
    if with_weights:
        loss = loss + (weights * case.upstream[1]).sum()
    results = [output, weights, *torch.autograd.grad(loss, leaves)]
    results = [x.detach().to(case.dtype) for x in results]
    return results if with_weights else [results[0], None, *results[2:]]


# --- the laws --------------------------------------------------------------------


@law(cases())
def equals_the_definition(subject, case):
    """So each equals each, in outputs, weights and gradients."""
    run, case = subject.take(case)
    ours = evaluate(run, case.inputs, case.mask, case.upstream)
    assert_same(ours, definition(case, with_weights=ours[1] is not None))


@law(cases())
def permuting_keys_values_and_mask_together_changes_nothing(subject, case):
    run, case = subject.take(case)
    order = case.permutation(case.S)
    (query, key, value), (for_output, for_weights) = case.inputs, case.upstream
    ours = evaluate(
        run,
        (query, key[:, order], value[:, order]),
        pick(case.mask, order, -1),
        (for_output, for_weights[..., order]),
    )
    output, weights, *grads = evaluate(run, case.inputs, case.mask, case.upstream)
    permuted = [grads[0], grads[1][:, order], grads[2][:, order]]
    assert_same(ours, [output, pick_weights(weights, ..., order), *permuted])


@law(cases())
def permuting_queries_permutes_outputs(subject, case):
    run, case = subject.take(case)
    order = case.permutation(case.T)
    (query, key, value), (for_output, for_weights) = case.inputs, case.upstream
    ours = evaluate(
        run,
        (query[:, order], key, value),
        pick(case.mask, order, -2),
        (for_output[:, order], for_weights[:, :, order]),
    )
    output, weights, *grads = evaluate(run, case.inputs, case.mask, case.upstream)
    weights = pick_weights(weights, slice(None), slice(None), order)
    assert_same(ours, [output[:, order], weights, grads[0][:, order], *grads[1:]])


@law(cases(kinds=HIDING, may_be_empty=False), st.integers(0, 5))
def what_a_mask_hides_changes_nothing(subject, case, s):
    """Not in the gradients either; at the hidden place they are exactly 0."""
    run, case = subject.take(case)
    s = s % case.S
    hidden = ~case.visible[..., s]  # (B, H, T)
    blind = hidden.all(1)  # (B, T): queries none of whose heads see the key
    query, *keys_and_values = case.inputs
    upstream = (
        case.upstream[0] * blind[..., None],
        case.upstream[1] * blind[:, None, :, None],
    )
    results = []
    for change in (False, True):
        others = [x.clone() for x in keys_and_values]
        if change:
            for i, x in enumerate(others):
                x[:, s] = 10 * case.random(case.B, case.E, salt=20 + i)
        output, weights, *grads = evaluate(run, (query, *others), case.mask, upstream)
        assert not grads[1][:, s].any() and not grads[2][:, s].any()
        if weights is not None:
            assert not weights[..., s][hidden].any()
            weights = weights.transpose(1, 2)[blind]
        results.append([output[blind], weights, *grads])
    assert_same(*results)


@law(cases(kinds=(None, "random", "causal")), st.integers(0, 3))
def heads_are_independent(subject, case, h):
    """Another slice of the projections changes only that head's weights and context."""
    _, case = subject.take(case)
    h = h % case.H
    features = slice(h * case.D, (h + 1) * case.D)
    results = []
    for change in (0.0, 1.0):
        plain = case.plain
        with torch.no_grad():
            plain.out_proj.weight.copy_(torch.eye(case.E))  # the output is the context
            for i, linear in enumerate((plain.q_proj, plain.k_proj, plain.v_proj)):
                linear.weight[features] += change * case.random(1, case.E, salt=20 + i)
                linear.bias[features] += change
        output, weights = evaluate(subject.on(plain), case.inputs, case.mask)
        others = [i for i in range(case.H) if i != h]
        context = output.unflatten(-1, (case.H, case.D))[:, :, others]
        results.append([context, pick_weights(weights, slice(None), others)])
    assert_same(*results)


@law(cases(kinds=(None, "random", "rows"), ranks=(4, 4, 3)))
def permuting_the_slices_permutes_the_heads(subject, case):
    """Rows of W^Q, W^K, W^V, columns of W^O and the mask's heads, all together."""
    run, case = subject.take(case)
    order = case.permutation(case.H)
    features = torch.arange(case.E).reshape(case.H, case.D)[order].flatten()
    plain = case.plain
    with torch.no_grad():
        for linear in (plain.q_proj, plain.k_proj, plain.v_proj):
            linear.weight.copy_(linear.weight[features])
            linear.bias.copy_(linear.bias[features])
        plain.out_proj.weight.copy_(plain.out_proj.weight[:, features])
    mask = case.mask
    if mask is not None and mask.dim() == 4:
        mask = pick(mask, order, -3)
    ours = evaluate(subject.on(plain), case.inputs, mask)
    output, weights = evaluate(run, case.inputs, case.mask)
    assert_same(ours, [output, pick_weights(weights, slice(None), order)])


@law(cases())
def constant_values_come_through(subject, case):
    """A mean of equal values is that value; a row that sees nothing has no mean."""
    run, case = subject.take(case)
    query, key, _ = case.inputs
    constant = case.random(case.B, 1, case.E, salt=20)
    output, _ = run(query, key, constant.expand_as(key), case.mask)
    sees = case.visible.any(-1).transpose(1, 2)  # (B, T, H)
    context = case.plain.v_proj(constant) * sees.repeat_interleave(case.D, dim=-1)
    assert_near(output, case.plain.out_proj(context))


@law(
    cases(kinds=(None, "random", "padding"), ranks=(4, 3, 3), may_be_empty=False),
    st.integers(0, 2),
)
def sequences_do_not_see_one_another(subject, case, b):
    run, case = subject.take(case)
    b = torch.tensor([b % case.B])
    mask = case.mask
    if mask is not None and mask.dim() > 2:
        mask = pick(mask, b, -mask.dim())
    alone = evaluate(
        run, [x[b] for x in case.inputs], mask, [x[b] for x in case.upstream]
    )
    together = evaluate(run, case.inputs, case.mask, case.upstream)
    assert_same(alone, [None if x is None else x[b] for x in together])


@law(cases(kinds=["causal", "causal and padding"]), st.integers(0, 5))
def the_past_does_not_depend_on_the_future(subject, case, t):
    """Other later tokens, or none at all, give the same outputs and gradients."""
    run, case = subject.take(case)
    for_output, for_weights = (x.clone() for x in case.upstream)
    for_output[:, t:], for_weights[:, :, t:] = 0, 0
    future = [x.clone() for x in case.inputs]
    for i, x in enumerate(future):
        x[:, t:] = case.random(*x[:, t:].shape, salt=20 + i)
    past = []
    for inputs in (case.inputs, future):
        results = evaluate(run, inputs, case.mask, (for_output, for_weights))
        output, weights, *grads = results
        assert not any(grad[:, t:].any() for grad in grads)
        weights = pick_weights(weights, ..., slice(t), slice(t))
        past.append([output[:, :t], weights, *(grad[:, :t] for grad in grads)])
    alone = evaluate(
        run,
        [x[:, :t] for x in case.inputs],
        subject.fit(case.visible[..., :t, :t]),
        (for_output[:, :t], for_weights[..., :t, :t]),
    )
    assert_same(past[0], past[1])
    assert_same(past[0], alone)


@law(cases(), subjects=[x for x in SUBJECTS if x.causal])
def is_causal_is_one_more_mask(subject, case):
    run, case = subject.take(case)
    ours = evaluate(partial(run, is_causal=True), case.inputs, case.mask, case.upstream)
    both = case.visible.tril()
    assert_same(ours, evaluate(run, case.inputs, both, case.upstream))


@law(cases())
def weights_are_shares_among_the_visible_keys(subject, case):
    run, case = subject.take(case)
    output, weights = run(*case.inputs, case.mask)
    assert output.shape == case.inputs[0].shape and output.dtype == case.dtype
    if weights is not None:
        assert weights.shape == case.shape
        assert not weights[~case.visible].any() and (weights >= 0).all()
        assert_near(weights.sum(-1), case.visible.any(-1).to(case.dtype))


@law(cases())
def the_bias_of_the_keys_is_not_seen(subject, case):
    """It adds q·b to every score of a row, and the softmax does not see that."""
    run, case = subject.take(case)
    plain = case.plain
    with torch.no_grad():
        plain.k_proj.bias += case.random(case.E, salt=20)
    ours = evaluate(subject.on(plain), case.inputs, case.mask, case.upstream)
    assert_same(ours, evaluate(run, case.inputs, case.mask, case.upstream))


@law(cases())
def larger_queries_and_smaller_keys_make_the_same_scores(subject, case):
    run, case = subject.take(case)
    plain = case.plain
    with torch.no_grad():
        for linear, factor in ((plain.q_proj, 2.0), (plain.k_proj, 0.5)):
            linear.weight *= factor
            linear.bias *= factor
    ours = evaluate(subject.on(plain), case.inputs, case.mask, case.upstream)
    assert_same(ours, evaluate(run, case.inputs, case.mask, case.upstream))


@law(cases())
def a_mixture_of_values_gives_the_mixture_of_outputs(subject, case):
    run, case = subject.take(case)
    query, key, one = case.inputs
    two = case.random(*one.shape, salt=20)
    mixed, _ = run(query, key, 0.25 * one + 0.75 * two, case.mask)
    first, second = (run(query, key, value, case.mask)[0] for value in (one, two))
    assert_near(mixed, 0.25 * first + 0.75 * second)


@law(cases(), st.integers(1, 3))
def hidden_keys_at_the_end_are_as_good_as_absent(subject, case, more):
    run, case = subject.take(case)
    query, *keys_and_values = case.inputs
    longer = [
        torch.cat([x, case.random(case.B, more, case.E, salt=20 + i)], dim=1)
        for i, x in enumerate(keys_and_values)
    ]
    upstream = case.upstream[0], F.pad(case.upstream[1], (0, more), value=1.0)
    mask = subject.fit(F.pad(case.visible, (0, more)))
    output, weights, *grads = evaluate(run, (query, *longer), mask, upstream)
    assert not any(grad[:, case.S :].any() for grad in grads[1:])
    assert weights is None or not weights[..., case.S :].any()
    weights = pick_weights(weights, ..., slice(case.S))
    ours = [output, weights, grads[0], *(grad[:, : case.S] for grad in grads[1:])]
    assert_same(ours, evaluate(run, case.inputs, case.mask, case.upstream))


@law(cases())
def two_equal_keys_share_the_weight_of_one(subject, case):
    run, case = subject.take(case)
    query, key, value = case.inputs
    mask = subject.fit(case.visible.repeat(1, 1, 1, 2))
    output, weights = run(query, key.repeat(1, 2, 1), value.repeat(1, 2, 1), mask)
    if weights is not None:
        first, second = weights.chunk(2, dim=-1)
        assert_near(first, second)
        weights = first + second
    assert_same([output, weights], evaluate(run, case.inputs, case.mask))


@law(cases(may_be_empty=False))
def a_query_that_sees_one_key_gets_its_value(subject, case):
    run, case = subject.take(case)
    chosen = case.random(case.B, case.T, case.S, salt=20).argmax(-1)
    one_hot = F.one_hot(chosen, case.S)  # (B, T, S)
    output, weights = run(*case.inputs, one_hot.bool())
    values = case.inputs[2][torch.arange(case.B)[:, None], chosen]
    assert_near(output, case.plain.out_proj(case.plain.v_proj(values)))
    if weights is not None:
        assert_near(weights, one_hot[:, None].expand(case.shape).to(case.dtype))


@law(cases())
def where_the_numbers_lie_in_memory_does_not_matter(subject, case):
    run, case = subject.take(case)
    copies = [x.clone(memory_format=torch.contiguous_format) for x in case.inputs]
    ours = evaluate(run, case.inputs, case.mask, case.upstream)
    assert_same(ours, evaluate(run, copies, case.mask, case.upstream))


@law(cases(square=True))
def self_attention_is_attention_to_a_copy(subject, case):
    run, case = subject.take(case)
    query = case.inputs[:1]
    output, weights, *grads = evaluate(run, query * 3, case.mask, case.upstream)
    ours = evaluate(run, query, case.mask, case.upstream)
    assert_same(ours, [output, weights, sum(grads)])


@law(cases(square=True), st.booleans())
def inference_computes_the_same(subject, case, own):
    """torch has fast paths of its own there."""
    run, case = subject.take(case)
    inputs = case.inputs[: 1 if own else 3]
    loud = evaluate(run, inputs, case.mask)
    with torch.inference_mode():
        assert_same(run(*inputs, mask=case.mask), loud)
