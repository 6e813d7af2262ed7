"""What is right for some sizes alone, or for probes seen before, is not right."""

import functools
from collections.abc import Callable, Iterable
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mha_lib.check import TASKS, beside, conclude
from mha_lib.check.catalogue import MASKS
from mha_lib.check.tasks.draw import Draw
from tests.check.executed import SEARCHED
from tests.check.layers import Right
from tests.check.submissions_right import tensorflow_way

pytestmark = pytest.mark.long

SEEDS = (0, 11, 20261123)
EACH_SEED = (
    *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in SEEDS[:-1]),
    SEEDS[-1],
)


def verdict(submission, task, seed):
    probes = TASKS[task].probes(seed)
    outcomes = beside.run(submission, probes)
    return conclude(task, probes, outcomes, search=False).verdict


# --- right for some sizes -----------------------------------------------------------


def attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, mask)


def mha(query, key, value, weights, num_heads, mask=None):
    q, k, v = (
        F.linear(x, weights[f"W_{n}"], weights[f"b_{n}"])
        .unflatten(-1, (num_heads, -1))
        .transpose(1, 2)
        for n, x in (("q", query), ("k", key), ("v", value))
    )
    context = attention(q, k, v, None if mask is None else mask[:, None])
    merged = context.transpose(1, 2).flatten(2)
    return F.linear(merged, weights["W_o"], weights["b_o"])


def mha_sequence_first(query, key, value, weights, num_heads, mask=None):
    batch_first = (x.transpose(0, 1) for x in (query, key, value))
    mask = None if mask is None else mask.permute(2, 0, 1)
    return mha(*batch_first, weights, num_heads, mask).transpose(0, 1)


def split_heads(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def causal_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


def padding_mask(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None]


def combine_masks(causal, padding):
    return causal & padding


RIGHT = {
    "attention": attention,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "causal_mask": causal_mask,
    "padding_mask": padding_mask,
    "combine_masks": combine_masks,
    "mha": mha,
    "mha_sequence_first": mha_sequence_first,
    "split_concat": tensorflow_way,
}
LETTERS = {
    "split_heads": "BTHDE",
    "merge_heads": "BTHDE",
    "causal_mask": "TS",
    "padding_mask": "BS",
    "combine_masks": "BTS",
}
LIMITS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "H is 3": ("H", lambda n: n == 3),
    "H is odd": ("H", lambda n: n % 2 == 1),
    "H is even": ("H", lambda n: n % 2 == 0),
    "at most four heads": ("H", lambda n: n <= 4),
    "not one head": ("H", lambda n: n != 1),
    "D is 5": ("D", lambda n: n == 5),
    "not D = 1": ("D", lambda n: n != 1),
    "E is 15": ("E", lambda n: n == 15),
    "at most four sequences": ("B", lambda n: n <= 4),
    "not one sequence": ("B", lambda n: n != 1),
    "at most eight queries": ("T", lambda n: n <= 8),
    "at most 64 queries": ("T", lambda n: n <= 64),
    "not one query": ("T", lambda n: n != 1),
    "at most seven keys": ("S", lambda n: n <= 7),
    "at most 16 keys": ("S", lambda n: n <= 16),
    "at most 64 keys": ("S", lambda n: n <= 64),
    "not one key": ("S", lambda n: n != 1),
}
LIMITED = [
    (task, limit)
    for task in SEARCHED
    for limit, (letter, _) in LIMITS.items()
    if letter in LETTERS.get(task, "BTSHDE")
]


def sizes(task: str, given: tuple) -> dict[str, int]:
    """The sizes of a call."""
    if task == "attention":
        (B, H, T, D), S = given[0].shape, given[1].shape[-2]
    elif task == "split_heads":
        (B, T, E), H, S = given[0].shape, given[1], 0
        D = E // H
    elif task == "merge_heads":
        (B, H, T, D), S = given[0].shape, 0
    elif task == "causal_mask":
        return dict(zip("TS", given))
    elif task == "padding_mask":
        return {"B": len(given[0]), "S": given[1]}
    elif task == "combine_masks":
        return {"B": len(given[1]), "T": len(given[0]), "S": given[0].shape[1]}
    else:
        weights, H = given[3:5] if task != "split_concat" else given[2:4]
        E = len(weights["W_q"])
        B, T = given[0].shape[:2]
        S = given[1].shape[1]
        if task == "mha_sequence_first":
            T, B, S = B, T, len(given[1])
        D = E // H
    return {"B": B, "T": T, "S": S, "H": H, "D": D, "E": H * D}


def only(task: str, keeps: Callable[[tuple], bool]) -> Callable[..., Tensor]:
    """Right where it keeps to something, else zeros."""
    right = RIGHT[task]

    @functools.wraps(right)  # with its parameters
    def call(*given: object, **named: object) -> Tensor:
        out = right(*given, **named)
        return out if keeps(given) else torch.zeros_like(out)

    return call


@pytest.mark.parametrize("seed", EACH_SEED)
@pytest.mark.parametrize("task", SEARCHED)
def test_what_is_limited_below_is_right_without_its_limit(task, seed):
    assert verdict(RIGHT[task], task, seed) == "right"


def verdict_where(limit, task, seed):
    """Of what is right for these sizes alone."""
    letter, keeps = LIMITS[limit]
    submission = only(task, lambda given: keeps(sizes(task, given)[letter]))
    return verdict(submission, task, seed)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("task", "limit"), LIMITED)
def test_what_is_right_for_some_sizes_alone_is_not_right(task, limit):
    assert verdict_where(limit, task, SEEDS[-1]) != "right"


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS[:-1])
@pytest.mark.parametrize(("task", "limit"), LIMITED)
def test_what_is_right_for_some_sizes_alone_is_right_by_no_seed(task, limit, seed):
    assert verdict_where(limit, task, seed) != "right"


# --- constants in the code ----------------------------------------------------------


class ThreeHeads(Right):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, 3)
        self.d_k = embed_dim // 3


class FiveFeatures(Right):
    def scale(self):
        return 5**0.5


class FifteenWide(Right):
    def __init__(self, embed_dim, num_heads):
        super().__init__(15, 3)


class Squeezed(Right):
    """An axis of size 1 goes that was to stay."""

    def join(self, x):
        return super().join(x.squeeze())


def cut_in_five(x, num_heads):
    return x.view(len(x), -1, num_heads, 5).transpose(1, 2)


def table_of_eight(T, S):
    return causal_mask(8, 8)[:T, :S]


def buffer_of_32(T, S):
    return causal_mask(32, 32)[:T, :S]


def literals(lengths, S):
    known = [[7, 2, 5], [4, 1, 3, 2], [3, 1], [0, 6]]
    return torch.tensor([[[s < n for s in range(S)]] for n in known[len(lengths) % 4]])


def own_triangle(causal, padding):
    """Makes the table that it is given."""
    return causal_mask(*causal.shape) & padding


def counted(causal, padding):
    """Takes every row for some True, and then False."""
    return (torch.arange(causal.shape[1]) < causal.sum(1)[:, None]) & padding


def padded_on_the_right(causal, padding):
    """Takes the padding for some True, and then False."""
    return causal & padding_mask(padding.sum((1, 2)), padding.shape[2])


def as_wide_as_the_keys(q, k, v, mask=None):
    return attention(q, k, v, mask) + torch.zeros_like(q)


@pytest.mark.parametrize("seed", EACH_SEED)
@pytest.mark.parametrize(
    ("submission", "task"),
    [
        (ThreeHeads, "mha"),
        (FiveFeatures, "mha"),
        (FifteenWide, "mha"),
        (Squeezed, "mha"),
        (cut_in_five, "split_heads"),
        (table_of_eight, "causal_mask"),
        (buffer_of_32, "causal_mask"),
        (literals, "padding_mask"),
        (own_triangle, "combine_masks"),
        (counted, "combine_masks"),
        (padded_on_the_right, "combine_masks"),
        (as_wide_as_the_keys, "attention"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_constant_or_a_guess_in_the_code_is_not_right(submission, task, seed):
    assert verdict(submission, task, seed) != "right"


# --- probes seen before -------------------------------------------------------------


def key_of(given: Iterable) -> tuple:
    """What tells one call from another."""
    tensors = [x for x in given if torch.is_tensor(x)]
    return tuple(x.detach().numpy().tobytes() for x in tensors) or tuple(given)


@pytest.mark.parametrize("task", SEARCHED)
def test_a_table_of_the_probes_of_one_seed_is_right_for_that_seed_alone(task):
    known = set()
    recorder = only(task, lambda given: known.add(key_of(given)) or True)
    assert verdict(recorder, task, SEEDS[0]) == "right"
    submission = only(task, lambda given: key_of(given) in known)
    found = [verdict(submission, task, seed) for seed in SEEDS]
    assert found[0] == "right" and "right" not in found[1:]


# --- the drawing itself -------------------------------------------------------------

TENS = [range(first, first + 10) for first in range(0, 60, 10)]
AGREE = {  # which sizes may be equal, by the name of the probe
    "square": {"TS"},
    "causal": {"TS"},
    "left padding": {"TS"},
    "padding, T = S": {"TS"},
    "T = H": {"TH"},
    "T = D": {"TD"},
    "B = H": {"BH", "TS"},
    "B = T = S": {"BH", "BT", "BS", "TS", "TH", "SH"},
    "B = S": {"BS"},
    "B = T": {"BT", "TS", "BS"},
    "any square": {"TS"},
    "many sequences": {"TS"},
    "D = 1": {"HE"},
    "one head": {"DE"},
    "one narrow head": {"DE"},
}


def pairs(sizes):
    letters = [x for x in "BTSHDE" if x in sizes]
    return {a + b for a, b in combinations(letters, 2) if sizes[a] == sizes[b]}


@pytest.mark.sweep(6)
@pytest.mark.parametrize("task", SEARCHED)
@pytest.mark.parametrize("seeds", TENS, ids=str)
def test_the_sizes_of_a_run_are_many_and_those_of_a_probe_differ(task, seeds):
    letters = LETTERS.get(task, "BTSHDE")
    for seed in seeds:
        probes = TASKS[task].probes(seed)
        taken = {x: {probe["sizes"][x] for probe in probes} for x in letters}
        assert all(len(found) >= 2 for found in taken.values())
        assert all(1 in taken[x] for x in letters if x != "E")
        if "B" in letters:
            assert max(taken["B"]) > 4
        if "H" in letters:
            assert any(h % 2 for h in taken["H"] - {1}) and max(taken["H"]) > 4
            assert any(h % 2 == 0 for h in taken["H"])
        for letter in set(letters) & set("TS"):
            assert 64 < max(taken[letter]) < (32_785 if task in MASKS else 1100)
        for probe in (p for p in probes if "conduct" not in p["options"]):
            one = {x for x, n in probe["sizes"].items() if n == 1}
            equal = {ab for ab in pairs(probe["sizes"]) if not set(ab) <= one}
            of = probe["name"].removesuffix(", no mask").removesuffix(", all seen")
            square = task == "causal_mask" and of == "plain"
            assert equal <= ({"TS"} if square else AGREE.get(of, set()))
            if task == "attention" and of not in ("reveal", "D = 1"):
                V = probe["sizes"]["V"]
                assert V not in [n for x, n in probe["sizes"].items() if x != "V"]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("task", ["mha", "mha_sequence_first", "split_concat"])
@pytest.mark.parametrize("seeds", TENS[:2], ids=str)
@pytest.mark.parametrize(
    ("E", "H"), [(16, 2), (4, 1), (6, 6), (96, 8), (9, 3), (64, 4)]
)
def test_a_layer_that_exists_keeps_its_sizes(task, seeds, E, H):
    for seed in seeds:
        found = [x["sizes"] for x in TASKS[task].probes(seed, embed_dim=E, num_heads=H)]
        assert {(s["E"], s["H"], s["D"]) for s in found} == {(E, H, E // H)}
        assert max(s["S"] for s in found) > 64 and max(s["B"] for s in found) > 4


def test_lengths_are_of_short_and_of_full_sequences():
    draw = Draw(3, torch.float32)
    for _ in range(50):
        found = draw.lengths(4, 7, least=2).tolist()
        assert found[-1] == 7 and min(found) <= 3 and min(found) >= 2
        assert max(draw.lengths(4, 7, full=()).tolist()) < 7
        assert draw.lengths(1, 7).item() <= 3
        ends = draw.lengths(4, 7, full=(0, -1)).tolist()
        assert ends[0] == ends[-1] == 7 > min(ends)
        left = draw.real(2, 6, left=True)
        assert left[:, -1].all() and not left[0, 0]


def test_tables_and_masks_hide_something_and_show_something():
    draw = Draw(5, torch.float32)
    for _ in range(50):
        table = draw.table(1, 3)
        assert table.any() and not table.all()
        masks = draw.masks({"B": 3, "T": 3, "S": 3})
        assert (
            masks["holes"][..., 0].all() and not masks["holes"].flatten(1).all(1).any()
        )
        assert (~masks["empty"].any(-1)).any(1).tolist() == [False, True, True]
        assert masks["padding"][0].all() and not masks["padding"].all()
