import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from evidence.helpers import B, D, E, H, S, T, random_mask
from mha_lib import attention
from mha_lib.masks import (
    additive_mask,
    causal_mask,
    check_mask,
    combine_masks,
    embedding_mask,
    from_sequence_first_mask,
    from_torch_mask,
    mask_to_bhts,
    padding_mask,
    split_torch_masks,
    to_heads_on_batch_mask,
    to_sequence_first_mask,
    to_torch_mask,
)

SHAPE = (B, H, T, S)
MASKS = {
    "T S": random_mask(T, S),
    "1 S": random_mask(1, S),
    "B T S": random_mask(B, T, S),
    "B 1 S": random_mask(B, 1, S),
    "B H T S": random_mask(B, H, T, S),
    "1 H T S": random_mask(1, H, T, S),
    "B 1 T S": random_mask(B, 1, T, S),
}
any_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def qkv():
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, T, D), (B, H, S, D), (B, H, S, D))
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def test_causal_mask_allows_the_past_and_the_present():
    mask = causal_mask(T, S)
    assert mask.dtype == torch.bool
    assert all(mask[t, s] == (s <= t) for t in range(T) for s in range(S))


def test_causal_mask_top_left_is_torchs_is_causal():
    q, k, v = qkv()
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(attention(q, k, v, causal_mask(T, S))[0], expected)


def test_causal_mask_bottom_right_lets_the_last_query_see_everything():
    mask = causal_mask(T, S, align="bottom-right")
    assert all(mask[t, s] == (s <= t + S - T) for t in range(T) for s in range(S))
    square = causal_mask(S)
    assert torch.equal(mask, square[S - T :])  # the last rows of a whole sequence


def test_causal_mask_with_more_queries_than_keys():
    mask = causal_mask(S, T, align="bottom-right")
    assert not mask[: S - T].any() and mask[-1].all()


def test_causal_mask_is_made_where_it_is_wanted():
    assert causal_mask(2, device="meta").device.type == "meta"


def test_causal_mask_refuses_nonsense():
    with pytest.raises(ValueError, match="align must be .*; got \"?'?middle"):
        causal_mask(2, align="middle")
    for sizes in ((-1, -1), (-1, 2), (2, -1)):
        message = f"must not be negative; got {sizes[0]} and {sizes[1]}"
        with pytest.raises(ValueError, match=message):
            causal_mask(*sizes)


def test_padding_mask_hides_the_keys_past_the_end():
    lengths = torch.tensor([4, 0, 7])
    mask = padding_mask(lengths)
    assert mask.shape == (B, 1, S)
    assert mask[:, 0].sum(-1).tolist() == [4, 0, 7]
    assert mask[0, 0].tolist() == [True] * 4 + [False] * 3


def test_padding_mask_takes_a_longer_padded_length():
    assert padding_mask(torch.tensor([1, 2]), S=9).shape == (2, 1, 9)
    assert padding_mask(torch.tensor([], dtype=torch.int64)).shape == (0, 1, 0)


def test_padding_mask_counts_past_what_its_lengths_can_hold():
    lengths = torch.tensor([5, 7], dtype=torch.uint8)  # 256 would wrap round to 0
    assert padding_mask(lengths, S=256).sum(-1).tolist() == [[5], [7]]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_padding_mask_takes_lengths_without_a_sign(dtype):
    lengths = torch.tensor([2, 3]).to(dtype)
    assert padding_mask(lengths).sum(-1).tolist() == [[2], [3]]


def test_padding_mask_follows_its_lengths_to_the_meta_device():
    lengths = torch.zeros(4, dtype=torch.int64, device="meta")
    assert padding_mask(lengths, S=6).device.type == "meta"


@pytest.mark.parametrize(
    ("lengths", "S", "error", "message"),
    [
        ([1, 2], None, TypeError, "tensor of integers; got list"),
        (torch.tensor([1.0]), None, TypeError, "integers; got torch.float32"),
        (torch.tensor([True]), None, TypeError, "integers; got torch.bool"),
        (torch.tensor([1j]), None, TypeError, "integers; got torch.complex64"),
        (torch.tensor([], dtype=torch.int64), -1, ValueError, "negative; got -1"),
        (torch.zeros(1, device="meta").int(), None, ValueError, "S must be given"),
        (torch.tensor([[1]]), None, ValueError, r"shape \(B,\); got \(1, 1\)"),
        (torch.tensor([1, 5]), 4, ValueError, "lie in 0…4; got 1 to 5"),
        (torch.tensor([-1, 3]), None, ValueError, "lie in 0…3; got -1 to 3"),
    ],
)
def test_padding_mask_refuses_nonsense(lengths, S, error, message):
    with pytest.raises(error, match=message):
        padding_mask(lengths, S)


def test_embedding_mask_keeps_a_token_whose_features_cancel():
    embeddings = torch.randn(B, S, E)
    embeddings[1, 2] = 0
    embeddings[0, 4] = 0
    embeddings[0, 4, :2] = torch.tensor([1.0, -1.0])
    expected = torch.ones(B, 1, S, dtype=torch.bool)
    expected[1, 0, 2] = False
    assert torch.equal(embedding_mask(embeddings), expected)
    with pytest.raises(TypeError, match="must be a tensor; got list"):
        embedding_mask([[[1.0]]])
    with pytest.raises(ValueError, match=r"\(B, S, E\); got \(2, 3\)"):
        embedding_mask(torch.zeros(2, 3))


def test_combine_masks_is_a_logical_and_over_every_rank():
    two, three, four = MASKS["T S"], MASKS["B 1 S"], MASKS["B H T S"]
    combined = combine_masks(None, two, three, four)
    for b, h, t, s in torch.cartesian_prod(*map(torch.arange, SHAPE)).tolist():
        allowed = two[t, s] and three[b, 0, s] and four[b, h, t, s]
        assert combined[b, h, t, s] == allowed


def test_combine_masks_keeps_the_highest_rank_that_came():
    assert combine_masks(MASKS["T S"], MASKS["B 1 S"]).shape == (B, T, S)
    assert combine_masks(MASKS["T S"]).shape == (T, S)
    assert combine_masks() is None and combine_masks(None, None) is None


def test_combine_masks_refuses_nonsense():
    with pytest.raises(
        ValueError, match=r"broadcast to one another; got shapes \[\(5, 7\)"
    ):
        combine_masks(MASKS["T S"], torch.ones(4, 7, dtype=torch.bool))
    with pytest.raises(TypeError, match="got torch.float32"):
        combine_masks(MASKS["T S"], torch.ones(T, S))
    with pytest.raises(ValueError, match="rank 2"):
        combine_masks(torch.ones(S, dtype=torch.bool))


@any_mask
def test_mask_to_bhts_means_the_same_entry_by_entry(mask):
    aligned = mask_to_bhts(mask, SHAPE)
    assert aligned.dim() == 4 and aligned.data_ptr() == mask.data_ptr()
    whole = aligned.expand(SHAPE)
    for b, h in ((0, 0), (B - 1, H - 1)):
        if mask.dim() == 2:
            expected = mask
        elif mask.dim() == 3:
            expected = mask[b]
        else:
            expected = mask[min(b, mask.shape[0] - 1), min(h, mask.shape[1] - 1)]
        assert torch.equal(whole[b, h], expected.expand(T, S))


@pytest.mark.parametrize("shape", [(S,), (1, B, H, T, S), (S, T), (B, S, T), (H, T, S)])
def test_mask_to_bhts_refuses_what_does_not_fit(shape):
    with pytest.raises(ValueError, match="mask must"):
        mask_to_bhts(torch.ones(shape, dtype=torch.bool), SHAPE)


def test_check_mask_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match="boolean .* got list"):
        check_mask([[True]], (1, 1))


@any_mask
def test_torch_mask_hides_in_torch_what_ours_hides_here(mask):
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    mask = mask_to_bhts(mask, SHAPE) | torch.tensor([True] + [False] * (S - 1))
    query, key = torch.randn(B, T, E).double(), torch.randn(B, S, E).double()
    _, weights = mha(
        query,
        key,
        key,
        attn_mask=to_torch_mask(mask, SHAPE),
        average_attn_weights=False,
    )
    assert torch.equal(weights != 0, mask.expand(SHAPE))


@any_mask
def test_torch_mask_and_back(mask):
    theirs = to_torch_mask(mask, SHAPE)
    back = mask_to_bhts(from_torch_mask(theirs, num_heads=H), SHAPE)
    assert torch.equal(back.expand(SHAPE), mask_to_bhts(mask, SHAPE).expand(SHAPE))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("T S", (T, S)), ("1 S", (T, S)), ("1 H T S", (B * H, T, S))],
)
def test_torch_mask_is_as_small_as_torch_takes_it(name, shape):
    assert to_torch_mask(MASKS[name], SHAPE).shape == shape


def test_from_torch_mask_joins_attn_mask_and_key_padding_mask():
    hidden, padded = ~MASKS["T S"], ~MASKS["B 1 S"][:, 0]
    ours = from_torch_mask(hidden, padded, num_heads=H)
    assert torch.equal(ours, MASKS["T S"] & MASKS["B 1 S"])
    assert from_torch_mask(num_heads=H) is None
    assert torch.equal(from_torch_mask(None, padded, num_heads=H), MASKS["B 1 S"])


def test_from_torch_mask_reads_float_masks():
    floats = additive_mask(MASKS["T S"])
    assert torch.equal(from_torch_mask(floats, num_heads=H), MASKS["T S"])


@pytest.mark.parametrize(
    ("attn", "padding", "error", "message"),
    [
        (
            torch.zeros(5, 2, 2).bool(),
            None,
            ValueError,
            "multiple of num_heads = 2; got 5",
        ),
        (torch.zeros(2).bool(), None, ValueError, r"\(T, S\) or \(B·H, T, S\)"),
        (
            torch.zeros(2, 2).int(),
            None,
            TypeError,
            "boolean or floating; got torch.int32",
        ),
        (torch.ones(2, 2), None, ValueError, "only 0 and -inf"),
        (torch.full((2, 2), -1e10), None, ValueError, "only 0 and -inf"),
        (torch.tensor([[0.0, 0.5]]), None, ValueError, "only 0 and -inf"),
        ([[True]], None, TypeError, "attn_mask must be a tensor; got list"),
        (None, torch.zeros(2).bool(), ValueError, r"key_padding_mask must be \(B, S\)"),
    ],
)
def test_from_torch_mask_refuses_nonsense(attn, padding, error, message):
    with pytest.raises(error, match=message):
        from_torch_mask(attn, padding, num_heads=2)


@pytest.mark.parametrize("num_heads", [0, -2])
def test_from_torch_mask_needs_a_head(num_heads):
    with pytest.raises(ValueError, match=f"multiple of num_heads = {num_heads}; got 4"):
        from_torch_mask(torch.zeros(4, 2, 2).bool(), num_heads=num_heads)


def test_from_torch_mask_takes_one_head():
    mask = random_mask(B, T, S)
    assert torch.equal(from_torch_mask(~mask, num_heads=1), mask[:, None])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_additive_mask_added_to_the_scores_hides_the_same_keys(dtype):
    mask = MASKS["T S"][:-1]  # without the row that sees nothing
    added = additive_mask(mask, dtype)
    assert added.dtype == dtype
    weights = (torch.zeros(T - 1, S, dtype=dtype) + added).softmax(-1)
    assert torch.equal(weights != 0, mask)
    with pytest.raises(TypeError, match="boolean"):
        additive_mask(added)
    with pytest.raises(TypeError, match="dtype must be floating; got torch.int64"):
        additive_mask(mask, torch.int64)
    assert additive_mask(mask.to("meta"), dtype).device.type == "meta"


@pytest.mark.parametrize("name", ["T S", "1 S", "B T S", "B 1 S", "B 1 T S"])
def test_sequence_first_mask_and_back(name):
    mask = MASKS[name]
    theirs = to_sequence_first_mask(mask, SHAPE)
    assert theirs.dim() == 3 and theirs.shape[1] == S
    back = mask_to_bhts(from_sequence_first_mask(theirs), SHAPE)
    assert torch.equal(back.expand(SHAPE), mask_to_bhts(mask, SHAPE).expand(SHAPE))


def test_sequence_first_mask_has_no_place_for_heads():
    with pytest.raises(ValueError, match="same for all heads; .* head axis of 2"):
        to_sequence_first_mask(MASKS["B H T S"], SHAPE)
    with pytest.raises(ValueError, match=r"\(T or 1, S, B or 1\); got shape \(5, 7\)"):
        from_sequence_first_mask(MASKS["T S"])
    with pytest.raises(TypeError, match="boolean .* got torch.float32"):
        from_sequence_first_mask(torch.ones(T, S, B))


@any_mask
def test_heads_on_batch_mask_puts_head_h_of_sequence_b_in_row_h_times_b(mask):
    theirs = to_heads_on_batch_mask(mask, SHAPE)
    whole = mask_to_bhts(mask, SHAPE).expand(SHAPE)
    for b in range(B):
        for h in range(H):
            assert torch.equal(theirs[h * B + b], whole[b, h])


def test_torch_masks_split_into_what_hides_and_what_is_added():
    hidden = ~random_mask(T, S)
    added = torch.randn(B * H, T, S)
    padding = torch.tensor([0.0, 1.0, -1.0, 0.5, 0.0, float("-inf"), float("-inf")])
    shape = (B, H, T, S)

    def split(*masks):
        return split_torch_masks(*masks, shape, torch.float64)

    assert split(None, None) == (None, None)
    mask, bias = split(hidden, None)
    assert torch.equal(mask, ~hidden) and bias is None
    mask, bias = split(added, padding.expand(B, S))
    total = added.view(B, H, T, S).double() + padding.double()
    assert bias.dtype == torch.float64
    assert torch.equal(mask.expand(shape), total != float("-inf"))
    assert torch.equal(bias.expand(shape), total.masked_fill(~mask, 0.0))
    mask, bias = split(hidden, padding.expand(B, S))
    assert torch.equal(mask.expand(shape)[0, 0], ~hidden & (padding != float("-inf")))
    mask, _ = split(hidden, padding.isinf().expand(B, S))
    assert torch.equal(mask.expand(shape)[0, 0], ~hidden & ~padding.isinf())


def test_a_bias_of_two_masks_has_the_dtype_of_the_scores():
    added, padding = torch.randn(T, S).double(), torch.randn(B, S).double()
    for masks in ((added, padding), (added.float(), padding), (added, padding.float())):
        _, bias = split_torch_masks(*masks, (B, H, T, S), torch.float32)
        assert bias.dtype == torch.float32


def test_torch_masks_that_do_not_fit_are_named():
    shape = (B, H, T, S)
    for masks, error, message in (
        ((torch.zeros(T, S).int(), None), TypeError, "attn_mask must be boolean or"),
        ((torch.zeros(S, T), None), ValueError, r"be \(5, 7\) or \(6, 5, 7\); got \(7"),
        ((torch.zeros(B, T, S), None), ValueError, r"got \(3, 5, 7\)"),
        ((None, torch.zeros(S)), ValueError, r"key_padding_mask must be \(3, 7\); got"),
        ((None, torch.zeros(B, S).long()), TypeError, "floating; got torch.int64"),
    ):
        with pytest.raises(error, match=message):
            split_torch_masks(*masks, shape, torch.float32)
