import pytest
import torch

from evidence.helpers import B, D, E, H, T
from mha_lib.layouts import (
    batch_to_heads,
    head_size,
    heads_to_batch,
    merge_heads,
    merge_heads_sequence_first,
    split_heads,
    split_heads_sequence_first,
)


def numbered(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


def test_head_h_is_the_column_slice_h():
    x = numbered(B, T, E)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, T, D)
    for h in range(H):
        assert torch.equal(heads[:, h], x[..., h * D : (h + 1) * D])


def test_split_heads_is_a_view_and_merge_heads_its_inverse():
    x = numbered(B, T, E)
    assert split_heads(x, H).data_ptr() == x.data_ptr()
    assert torch.equal(merge_heads(split_heads(x, H)), x)


def test_sequence_first_holds_the_same_heads():
    x = numbered(B, T, E)
    heads = split_heads_sequence_first(x.transpose(0, 1), H)
    assert torch.equal(heads.permute(1, 2, 0, 3), split_heads(x, H))
    assert torch.equal(merge_heads_sequence_first(heads), x.transpose(0, 1))


def test_sequence_first_takes_any_leading_axes():
    assert split_heads_sequence_first(numbered(B, E), H).shape == (B, H, D)
    assert merge_heads_sequence_first(numbered(H, D)).shape == (E,)


def test_heads_on_the_batch_axis_are_head_major():
    x = numbered(B, T, E)
    stacked = heads_to_batch(x, H)
    assert stacked.shape == (H * B, T, D)
    for h in range(H):
        for b in range(B):
            assert torch.equal(stacked[h * B + b], split_heads(x, H)[b, h])
    assert torch.equal(batch_to_heads(stacked, H), x)


@pytest.mark.parametrize("split", [split_heads, heads_to_batch])
def test_splits_name_what_does_not_fit(split):
    with pytest.raises(ValueError, match="divisible by num_heads; got 22 and 3"):
        split(numbered(B, T, E), 3)
    with pytest.raises(ValueError, match=r"shape \(B, T, E\); got \(3, 22\)"):
        split(numbered(B, E), H)


def test_merges_name_what_does_not_fit():
    with pytest.raises(ValueError, match=r"\(B, H, T, D\); got \(3, 5, 22\)"):
        merge_heads(numbered(B, T, E))
    with pytest.raises(ValueError, match=r"\(H, D\); got shape \(5,\)"):
        merge_heads_sequence_first(numbered(T))
    with pytest.raises(ValueError, match=r"\(H·B, T, D\); got"):
        batch_to_heads(numbered(T), H)
    for num_heads in (4, 0):
        with pytest.raises(ValueError, match=f"num_heads = {num_heads}; got 6"):
            batch_to_heads(numbered(H * B, T, D), num_heads)


@pytest.mark.parametrize(
    ("embed_dim", "num_heads", "message"),
    [
        (10, 3, "divisible by num_heads; got 10 and 3, which leaves 1"),
        (0, 3, "at least 1; got 0 and 3"),
        (6, 0, "at least 1; got 6 and 0"),
        (6, -2, "at least 1; got 6 and -2"),
    ],
)
def test_head_size_names_what_is_wrong(embed_dim, num_heads, message):
    with pytest.raises(ValueError, match=message):
        head_size(embed_dim, num_heads)


def test_head_size_may_be_one():
    assert head_size(1, 1) == 1 and head_size(6, 6) == 1
