"""What all six styles promise, checked on each of them in the same words."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from evidence import reference
from evidence.helpers import B, D, E, H, S, T, call, inputs, make, random_mask
from mha_lib import (
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    PerHeadMHA,
    SplitConcatMHA,
    attention,
    convert,
)
from mha_lib.layouts import merge_heads, split_heads
from mha_lib.masks import mask_to_bhts
from mha_lib.styles import STYLES
from mha_lib.styles.per_head import Head

every_style = pytest.mark.parametrize("style", STYLES, ids=lambda s: s.__name__)

MASKS = {
    "none": None,
    "T S": random_mask(T, S),
    "1 S": random_mask(1, S),
    "B T S": random_mask(B, T, S),
    "B 1 S": random_mask(B, 1, S),
    "B H T S": random_mask(B, H, T, S),
    "1 H T S": random_mask(1, H, T, S),
}
CASES = [
    pytest.param(style, mask, id=f"{style.__name__}-{name}")
    for style in STYLES
    for name, mask in MASKS.items()
    # sequence-first masks have no axis for the heads
    if not (style is EinsumMHA and "H" in name)
]


def expected(module, query, key, value, mask):
    """The reference's output and weights for the parameters of any style."""
    plain = convert(module, SplitConcatMHA)
    parameters = {
        name: tuple(p.tolist() for p in (linear.weight, linear.bias))
        for name, linear in (
            ("q", plain.q_proj),
            ("k", plain.k_proj),
            ("v", plain.v_proj),
            ("out", plain.out_proj),
        )
    }
    shape = (query.shape[0], H, query.shape[1], key.shape[1])
    mask = torch.tensor(True) if mask is None else mask_to_bhts(mask, shape)
    lists = [x.tolist() for x in (query, key, value)]
    results = reference.multi_head_attention(
        *lists, parameters, H, mask.expand(shape).tolist()
    )
    return [torch.tensor(result, dtype=torch.float64) for result in results]


@pytest.mark.parametrize(("style", "mask"), CASES)
def test_equals_the_definition(style, mask):
    module, operands = make(style), inputs()
    output, weights = call(module, *operands, mask)
    assert output.shape == (B, T, E) and weights.shape == (B, H, T, S)
    for ours, theirs in zip((output, weights), expected(module, *operands, mask)):
        assert_close(ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize(("style", "mask"), CASES)
def test_gradcheck_of_inputs_and_parameters(style, mask):
    module = make(style)
    operands = [x[:2, :4].detach() for x in inputs()]
    names, parameters = zip(*module.named_parameters())
    if mask is not None:
        shape = (B, H, T, S)
        mask = mask_to_bhts(mask, shape).expand(shape)[:2, :1, 1:5, :4]
        mask = mask.clone()
        mask[:, :, -1] = False

    def run(*tensors):
        state = dict(zip(names, tensors[3:]))
        if isinstance(module, EinsumMHA):
            turned = [x.transpose(0, 1) for x in tensors[:3]]
            hidden = None if mask is None else mask[:, 0].permute(1, 2, 0)
            return torch.func.functional_call(module, state, (*turned, hidden))[0]
        return torch.func.functional_call(module, state, (*tensors[:3], mask))[0]

    leaves = [x.detach().requires_grad_() for x in (*operands, *parameters)]
    # fast mode projects on random directions: the full Jacobian takes minutes
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@every_style
def test_it_knows_its_sizes(style):
    layer = make(style)
    assert (layer.embed_dim, layer.num_heads) == (E, H)


@every_style
@pytest.mark.parametrize("whole", [0, 1])
def test_a_probability_may_be_an_integer(style, whole):
    assert style(E, H, dropout=whole).dropout == whole


@pytest.mark.parametrize(("style", "mask"), CASES)
def test_inputs_and_mask_are_left_alone(style, mask):
    operands = [x.detach() for x in inputs()]
    before = [x.clone() for x in operands]
    kept = None if mask is None else mask.clone()
    call(make(style), *operands, mask)
    assert all(torch.equal(x, y) for x, y in zip(operands, before))
    assert mask is None or torch.equal(mask, kept)


@every_style
def test_gradients_flow_through_the_returned_weights(style):
    module, operands = make(style), inputs()
    leaves = [x.detach()[:1, :3].requires_grad_() for x in operands[:2]]
    assert torch.autograd.gradcheck(
        lambda query, key: call(module, query, key)[1], leaves, fast_mode=True
    )
    _, weights = call(module, *operands)
    (weights * torch.arange(S)).sum().backward()
    assert operands[0].grad.any() and operands[1].grad.any()


@every_style
@pytest.mark.parametrize("mask", [None, random_mask(T, T)], ids=["none", "mask"])
def test_inference_mode_changes_nothing(style, mask):
    # torch has a fast path of its own there
    module, query = make(style), inputs()[0].detach()
    with torch.inference_mode():
        quiet = call(module, query, mask=mask)
    for ours, theirs in zip(quiet, call(module, query, mask=mask)):
        assert_close(ours, theirs)


@every_style
def test_key_defaults_to_the_query_and_value_to_the_key(style):
    module, (query, key, _) = make(style), inputs()
    for ours, whole in zip(call(module, query), call(module, query, query, query)):
        assert_close(ours, whole)
    for ours, whole in zip(call(module, query, key), call(module, query, key, key)):
        assert_close(ours, whole)


@every_style
def test_two_of_the_three_inputs_may_be_one_object(style):
    module, (_, key, value) = make(style), inputs()
    for operands in ((key, key, value), (key, value, key), (value, key, key)):
        copies = [x.clone() for x in operands]
        for ours, theirs in zip(call(module, *operands), call(module, *copies)):
            assert_close(ours, theirs)


@every_style
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("own", [True, False], ids=["self", "cross"])
def test_a_fully_masked_row_is_the_output_bias(style, grad, own):
    module, (query, key, value) = make(style), inputs()
    operands = (query,) if own else (query, key, value)
    mask = torch.ones(T, T if own else S, dtype=torch.bool)
    mask[2] = False
    with torch.set_grad_enabled(grad):
        output, weights = call(module, *operands, mask=mask)
    bias = getattr(module, "mha", module).out_proj.bias
    assert_close(output[:, 2], bias.expand(B, E))
    assert not weights[:, :, 2].any()
    assert_close(weights[:, :, 1].sum(-1), torch.ones(B, H, dtype=torch.float64))


@every_style
def test_a_fully_masked_row_has_zero_gradients(style):
    module, operands = make(style), inputs()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    output, weights = call(module, *operands, mask)
    (output[:, 2].square().sum() + weights[:, :, 2].sum()).backward()
    for x in operands:
        assert x.grad is None or not x.grad.any()
    for name, parameter in module.named_parameters():
        if not name.endswith("out_proj.bias"):
            assert parameter.grad is None or not parameter.grad.any(), name


@every_style
def test_dropout_is_off_in_evaluation(style):
    plain, module = make(style), make(style, dropout=0.9)
    for ours, theirs in zip(call(module, *inputs()), call(plain, *inputs())):
        assert torch.equal(ours, theirs)


@every_style
@pytest.mark.parametrize("mask", [None, MASKS["B T S"]], ids=["none", "mask"])
def test_dropout_in_training_changes_the_output_and_not_the_weights(style, mask):
    module = make(style, dropout=0.5)
    quiet, weights = call(module, *inputs(), mask)
    module.train()
    noisy, same = call(module, *inputs(), mask)
    assert_close(same, weights)
    assert not torch.allclose(noisy, quiet)


@every_style
def test_dropout_keeps_the_mean(style):
    module = make(style, dropout=0.3)
    query, key, value = (x[:1] for x in inputs())
    quiet, _ = call(module, query, key, value)
    module.train()
    copies = 4000
    many = [x.expand(copies, -1, -1) for x in (query, key, value)]
    with torch.no_grad():
        noisy, _ = call(module, *many)
    # each entry's mean has a standard error of its spread / √copies: allow 6 of them
    error = noisy.std(0) / copies**0.5
    assert ((noisy.mean(0) - quiet[0]).abs() < 6 * error + 1e-12).all()


@every_style
def test_dropout_can_be_set_later(style):
    module = make(style)
    quiet, weights = call(module, *inputs())
    module.dropout = 0.5
    assert convert(module, SplitConcatMHA).dropout == 0.5
    noisy, same = call(module.train(), *inputs())
    assert_close(same, weights)
    assert not torch.allclose(noisy, quiet)


@pytest.mark.parametrize("style", [PerHeadMHA, BuiltinMHA])
def test_dropout_set_later_is_a_probability_as_well(style):
    module = style(E, 1, dropout=0.25)  # one head: there is no second one to ask
    assert module.dropout == 0.25
    with pytest.raises(ValueError, match="probability in 0…1; got 1.5"):
        module.dropout = 1.5


@every_style
def test_no_dropout_and_every_bias_unless_asked_otherwise(style):
    module = style(E, H).double()
    assert module.training and module.dropout == 0.0
    assert sum(p.numel() for p in module.parameters()) == 4 * E * E + 4 * E
    noisy, _ = call(module, *inputs())
    assert_close(noisy, call(module.eval(), *inputs())[0])


def test_one_head_alone_has_biases_and_no_dropout():
    head = Head(E, D)
    assert head.dropout == 0.0
    assert sum(p.numel() for p in head.parameters()) == 3 * D * E + 3 * D


@every_style
def test_no_bias_means_no_bias_anywhere(style):
    assert all(p.dim() == 2 for p in style(E, H, bias=False).parameters())
    assert_close(
        call(make(style, bias=False), torch.zeros(B, T, E).double())[0],
        torch.zeros(B, T, E).double(),
    )


@every_style
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_dtype_is_kept(style, dtype):
    module = make(style, dtype)
    output, weights = call(module, *inputs(dtype), MASKS["B T S"])
    assert output.dtype == weights.dtype == dtype
    exact, _ = call(make(style), *inputs(), MASKS["B T S"])
    # 22 products are summed, twice; their rounding errors partly cancel
    tolerance = 40 * torch.finfo(dtype).eps
    assert_close(output.double(), exact, atol=tolerance, rtol=tolerance)


@every_style
def test_shapes_follow_on_the_meta_device(style):
    module = style(E, H).to("meta")
    mask = torch.ones(B, T, S, dtype=torch.bool, device="meta")
    operands = [x.to("meta").float() for x in inputs()]
    output, weights = call(module, *operands, mask)
    assert output.device.type == weights.device.type == "meta"
    assert output.shape == (B, T, E) and weights.shape == (B, H, T, S)


@every_style
@pytest.mark.parametrize("own", [True, False], ids=["self", "cross"])
@pytest.mark.parametrize("masked", [0, 2, 3], ids=["none", "T S", "B T S"])
@pytest.mark.parametrize("sizes", [(0, T, S), (B, 0, S), (B, T, 0)], ids=str)
def test_empty_axes_pass_through(style, sizes, masked, own):
    b, t, s = sizes
    s = t if own else s
    mask = torch.ones((b, t, s)[-masked:], dtype=torch.bool) if masked else None
    module, query = make(style), torch.zeros(b, t, E).double()
    key = None if own else torch.zeros(b, s, E).double()
    with torch.no_grad():
        output, weights = call(module, query, key, mask=mask)
    assert output.shape == (b, t, E) and weights.shape == (b, H, t, s)
    if s == 0:  # nothing to attend to
        bias = getattr(module, "mha", module).out_proj.bias
        assert_close(output, bias.expand(b, t, E))


@every_style
def test_one_head_and_as_many_heads_as_features(style):
    for num_heads in (1, 4):
        output, weights = call(style(4, num_heads), torch.randn(B, T, 4))
        assert output.shape == (B, T, 4) and weights.shape == (B, num_heads, T, T)


@every_style
def test_copies_and_pickles_compute_the_same(style):
    module = make(style)
    output, _ = call(module, *inputs())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(call(twin, *inputs())[0], output)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
# what is asked of the inputs is asked of the traced ones alone
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@every_style
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["three", "self"])
def test_a_trace_computes_the_same_at_other_sizes(style, own, masked):
    module = make(style).eval()

    def arguments(B, T, S):
        S = T if own else S
        first, *others = (torch.randn(B, n, E).double() for n in (T, S, S))
        operands = [first] * 3 if own else [first, *others]
        if masked:
            mask = torch.rand(B, T, S) < 0.5
            mask[:, 0] = False  # sees no key
            operands.append(mask)
        if style is EinsumMHA:
            operands[:3] = [x.transpose(0, 1) for x in operands[:3]]
            operands[3:] = [x.permute(1, 2, 0) for x in operands[3:]]
        return operands

    program = torch.jit.trace(module, arguments(B, T, S), check_trace=False)
    for sizes in ((B, T, S), (1, 8, 4), (2, 1, 9)):
        given = arguments(*sizes)
        assert_close(program(*given), module(*given))


@every_style
def test_state_dicts_load_back(style):
    module, fresh = make(style), style(E, H).double().eval()
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(call(fresh, *inputs())[0], call(module, *inputs())[0])


# --- wrong input ----------------------------------------------------------------


@every_style
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3), "divisible by num_heads; got 10 and 3"),
        ((0, 1), "at least 1; got 0 and 1"),
        ((6, 0), "at least 1; got 6 and 0"),
        ((6, 2, 1.5), "probability in 0…1; got 1.5"),
        ((6, 2, -0.1), "probability in 0…1; got -0.1"),
        ((6, 2, float("nan")), "probability in 0…1; got nan"),
    ],
)
def test_wrong_sizes_are_named(style, arguments, message):
    with pytest.raises(ValueError, match=message):
        style(*arguments)


@every_style
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((6.0, 3), "must be integers; got 6.0 and 3"),
        ((6, 3.0), "must be integers; got 6 and 3.0"),
        ((6, True), "must be integers; got 6 and True"),
        ((True, 1), "must be integers; got True and 1"),
        ((6, "3"), "must be integers; got 6 and '3'"),
        ((None, 3), "must be integers; got None and 3"),
        ((6, 3, "0.1"), "dropout must be a number; got str"),
        ((6, 3, None), "dropout must be a number; got NoneType"),
        ((6, 3, True), "dropout must be a number; got bool"),  # meant as the bias
    ],
)
def test_wrong_types_of_sizes_are_named(style, arguments, message):
    with pytest.raises(TypeError, match=message):
        style(*arguments)


@every_style
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((T, E), (T, E), (T, E)), r"query must have shape .*; got \(5, 22\)"),
        (((B, T, 9), (B, S, E), (B, S, E)), "query must be embed_dim = 22 wide; got 9"),
        (((B, T, E), (B, S, 9), (B, S, E)), "key must be embed_dim = 22 wide; got 9"),
        (((B, T, E), (B, S, E), (B, S, 9)), "value must be embed_dim = 22 wide; got 9"),
        (((B, T, E), (4, S, E), (4, S, E)), r"share B in \(.*\); got 3, 4 and 4"),
        (((B, T, E), (4, S, E), (B, S, E)), r"share B in \(.*\); got 3, 4 and 3"),
        (((B, T, E), (B, S, E), (4, S, E)), r"share B in \(.*\); got 3, 3 and 4"),
        (((B, T, E), (B, S, E), (B, 8, E)), "share their length S; got 7 and 8"),
    ],
)
def test_wrong_shapes_are_named(style, shapes, message):
    operands = [torch.zeros(shape) for shape in shapes]
    if style is EinsumMHA:
        operands = [x.transpose(0, 1) if x.dim() == 3 else x for x in operands]
    with pytest.raises(ValueError, match=message):
        style(E, H)(*operands)


@every_style
def test_mixed_dtypes_are_named(style):
    query, key, value = inputs()
    with pytest.raises(TypeError, match="one dtype; got torch.float64, torch.float32"):
        make(style)(query, key.float(), value)


@every_style
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_inputs_of_another_dtype_than_the_layer_are_named(style, dtype):
    message = f"dtype of the layer; got {dtype} for a layer of torch.float64"
    for device in ("cpu", "meta"):  # which knows no autocast
        with pytest.raises(TypeError, match=message):
            make(style).to(device)(torch.zeros(B, T, E, dtype=dtype, device=device))


@every_style
def test_value_alone_of_another_dtype_is_named(style):
    query, key, value = inputs()
    with pytest.raises(
        TypeError, match="torch.float64, torch.float64 and torch.float32"
    ):
        make(style)(query, key.transpose(0, 1), value.float())


@every_style
@pytest.mark.parametrize("nonsense", [None, [[1.0]], "query"], ids=repr)
def test_inputs_that_are_no_tensors_are_named(style, nonsense):
    with pytest.raises(TypeError, match="query must be a tensor; got"):
        style(E, H)(nonsense)


@every_style
def test_autocast_may_mix_dtypes(style):
    module, query = make(style, torch.float32), inputs(torch.float32)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = call(module, query.bfloat16())
    exact, _ = call(module, query)
    # bfloat16 keeps 8 bits; the outputs are a few units large
    assert_close(output.float(), exact, atol=0.2, rtol=0.1)


@every_style
def test_autocast_may_mix_dtypes_of_the_three(style):
    module = make(style, torch.float32)
    query, key, value = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = call(module, query, key.bfloat16(), value)
    exact, _ = call(module, query, key, value)
    assert_close(output.float(), exact, atol=0.2, rtol=0.1)


@every_style
@pytest.mark.parametrize("nonsense", [[[True]], True, "mask"], ids=repr)
def test_masks_that_are_no_tensors_are_named(style, nonsense):
    with pytest.raises(TypeError, match="mask must be boolean"):
        make(style)(torch.zeros(B, T, E).double(), mask=nonsense)


@every_style
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_masks_that_are_not_boolean_are_refused(style, dtype):
    shape = (T, S, 1) if style is EinsumMHA else (T, S)
    operands = [torch.zeros(B, n, E).double() for n in (T, S, S)]
    if style is EinsumMHA:
        operands = [x.transpose(0, 1) for x in operands]
    with pytest.raises(TypeError, match=f"True = may attend; got {dtype}"):
        make(style)(*operands, torch.ones(shape, dtype=dtype))


@every_style
@pytest.mark.parametrize("shape", [(S, T), (T,), (B, S, T), (B, H + 1, T, S)])
def test_masks_that_do_not_fit_are_named(style, shape):
    operands = [torch.zeros(B, n, E).double() for n in (T, S, S)]
    if style is EinsumMHA:
        operands = [x.transpose(0, 1) for x in operands]
    with pytest.raises(ValueError, match=r"mask must .*got shape \("):
        make(style)(*operands, torch.ones(shape, dtype=torch.bool))


# --- what one style has and the others lack -------------------------------------


def test_per_head_keeps_three_matrices_a_head():
    module = make(PerHeadMHA)
    assert [head.q_proj.weight.shape for head in module.heads] == [(D, E)] * H


def test_changing_one_head_changes_its_slice_alone():
    module, operands = make(PerHeadMHA), inputs()
    with torch.no_grad():
        module.out_proj.weight.copy_(torch.eye(E))
        before, _ = call(module, *operands)
        module.heads[1].v_proj.weight.add_(1.0)
        after, _ = call(module, *operands)
    changed = (before != after).any(dim=(0, 1))
    assert changed.tolist() == [False] * D + [True] * D


def test_fused_cross_attention_looks_at_the_key_and_the_value():
    module, (query, key, value) = make(FusedMHA), inputs()
    call(module, query, key, value)[0].sum().backward()
    assert key.grad.any() and value.grad.any()


def test_fused_draws_each_block_within_its_own_xavier_bound():
    torch.manual_seed(0)
    module = FusedMHA(64, 4)
    bound = (6 / (64 + 64)) ** 0.5
    for block in module.in_proj.weight.chunk(3):
        # the largest of 4096 uniform draws misses the bound by less than 1 %
        assert 0.99 * bound < block.abs().max() <= bound
    assert not module.in_proj.bias.any() and not module.out_proj.bias.any()


def test_fused_output_dropout_is_a_probability_and_off_in_evaluation():
    with pytest.raises(ValueError, match="probability in 0…1; got 2.0"):
        FusedMHA(E, H, output_dropout=2.0)
    ours, _ = call(make(FusedMHA, output_dropout=0.9), *inputs())
    assert torch.equal(ours, call(make(FusedMHA), *inputs())[0])


def test_fused_output_dropout_drops_outputs():
    module = make(FusedMHA, output_dropout=0.5).train()
    output, _ = call(module, *inputs())
    dropped = output == 0
    assert 0.3 < dropped.double().mean() < 0.7
    exact, _ = call(make(FusedMHA), *inputs())
    assert_close(output[~dropped], 2 * exact[~dropped])


def test_einsum_get_scores_can_be_overridden():
    class Recent(EinsumMHA):
        def get_scores(self, q, k):
            ages = torch.arange(len(q))[:, None] - torch.arange(len(k))
            return super().get_scores(q, k) - 100.0 * ages.abs()[..., None, None]

    module = make(Recent)
    _, weights = call(module, inputs()[0])
    assert_close(weights, torch.eye(T, dtype=torch.float64).expand(B, H, T, T))


@pytest.mark.parametrize(
    "shape", [(T, S), (T, S, B, 1), (T, S + 1, B), (2, S, B), (T, S, 2), (T, 1, B)]
)
def test_einsum_masks_are_sequence_first(shape):
    operands = [x.transpose(0, 1) for x in inputs()]
    message = r"\(T or 1, S, B or 1\) with \(T, S, B\) = \(5, 7, 3\); got shape \("
    with pytest.raises(ValueError, match=message):
        make(EinsumMHA)(*operands, torch.ones(shape, dtype=torch.bool))


def test_einsum_keeps_and_logs_the_last_weights():
    seen = []
    module = make(EinsumMHA, log=lambda *entry: seen.append(entry))
    assert module.last_weights is None
    _, weights = call(module, *inputs(), MASKS["B T S"])
    assert torch.equal(module.last_weights, weights)
    assert not module.last_weights.requires_grad and weights.requires_grad
    assert [(name, kept is module.last_weights) for name, kept in seen] == [
        ("weights", True)
    ]


def test_einsum_copies_and_pickles_leave_the_last_weights_behind():
    module = make(EinsumMHA)
    call(module, *inputs())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert twin.last_weights is None and module.last_weights is not None


def test_einsum_value_bias_may_stand_alone():
    module = EinsumMHA(E, H, bias=False, value_bias=True)
    with_bias = [name for name, p in module.named_parameters() if p.dim() == 1]
    assert with_bias == ["v_proj.bias"]


def test_split_concat_causal_equals_a_causal_mask():
    query = inputs()[0]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    ours = call(make(SplitConcatMHA, causal=True), query)
    for mine, theirs in zip(ours, call(make(SplitConcatMHA), query, mask=mask)):
        assert_close(mine, theirs)


def test_split_concat_causal_is_top_left_and_joins_the_mask():
    operands, mask = inputs(), MASKS["B T S"]
    ours = call(make(SplitConcatMHA, causal=True), *operands, mask)
    both = mask & torch.ones(T, S, dtype=torch.bool).tril()
    for mine, theirs in zip(ours, call(make(SplitConcatMHA), *operands, both)):
        assert_close(mine, theirs)


def test_split_concat_makes_its_causal_mask_where_the_inputs_are():
    module = make(SplitConcatMHA, causal=True).to("meta")
    output, _ = module(*(x.to("meta") for x in inputs()))
    assert output.device.type == "meta"


def test_split_concat_raw_keys_have_the_length_of_the_keys():
    query, key, value = inputs()
    with pytest.raises(ValueError, match=r"share \(B, S\) = \(3, 7\) .*got shape"):
        make(SplitConcatMHA)(query, key, value, raw_keys=torch.zeros(B, 1, E))


def test_split_concat_hides_keys_whose_raw_embedding_is_zero():
    module, (query, key, value) = make(SplitConcatMHA), inputs()
    raw = torch.ones(B, S, E)
    raw[1, 4:] = 0
    _, weights = module(query, key, value, raw_keys=raw)
    assert not weights[1, :, :, 4:].any() and weights[0, :, :, 4:].all()
    _, both = module(query, key, value, MASKS["T S"], raw_keys=raw)
    assert torch.equal(
        both[1] != 0, (MASKS["T S"] & raw[1].bool()[:, 0]).expand(H, T, S)
    )


def test_split_concat_activation_acts_on_all_three_projections():
    module, operands = make(SplitConcatMHA, activation=torch.relu), inputs()
    linears = (module.q_proj, module.k_proj, module.v_proj)
    q, k, v = (
        split_heads(torch.relu(linear(x)), H) for linear, x in zip(linears, operands)
    )
    context, weights = attention(q, k, v)
    expected = module.out_proj(merge_heads(context)), weights
    for ours, theirs in zip(module(*operands), expected):
        assert_close(ours, theirs)


def test_split_concat_residual_and_norm():
    query, key, value = inputs()
    output, _ = make(SplitConcatMHA)(query, key, value)
    added, _ = make(SplitConcatMHA, residual=True)(query, key, value)
    assert_close(added, output + query)
    module = make(SplitConcatMHA, residual=True, layer_norm=True)
    normed, _ = module(query, key, value)
    norm, module.norm = module.norm, None
    assert_close(normed, norm(module(query, key, value)[0]))  # the norm comes last


def test_fused_without_weights_and_causal():
    module, (query, key, value) = make(FusedMHA), inputs()
    for mask in (None, random_mask(B, T, S)):
        results = []
        for need_weights in (True, False):
            output, weights = module(
                query, key, value, mask, is_causal=True, need_weights=need_weights
            )
            assert (weights is None) != need_weights
            loss = (output * torch.arange(E)).sum()
            leaves = (query, key, value, *module.parameters())
            results.append([output, *torch.autograd.grad(loss, leaves)])
        assert_close(*results)
        causal = torch.ones(T, S, dtype=torch.bool).tril()
        both = causal if mask is None else mask & causal
        assert_close(results[0][0], module(query, key, value, both)[0])


def test_fused_drops_weights_with_and_without_returning_them():
    module, x = make(FusedMHA, dropout=0.5), torch.randn(B, T, E, dtype=torch.float64)
    for need_weights in (True, False):
        quiet, _ = module.eval()(x, need_weights=need_weights)
        noisy, _ = module.train()(x, need_weights=need_weights)
        assert not torch.allclose(quiet, noisy)
