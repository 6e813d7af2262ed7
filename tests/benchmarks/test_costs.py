"""Growth, bytes, shares and memory, held to what is known by hand."""

import pytest
import torch

from benchmarks import memory, roofline, shares, views, worker
from benchmarks.contestants import FLOOR
from benchmarks.jobs import EVERYBODY
from benchmarks.workload import Size, Workload
from evidence.helpers import B, E, H, T

SIZE = Size(B, T, E, H)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_exponent_of_a_power_law(power):
    sizes = [3, 7, 20, 100]
    costs = [5 * size**power for size in sizes]
    assert views.power(sizes, costs) == pytest.approx(power, abs=1e-12)


def test_exponents_leave_the_short_lengths_out():
    costs = {128: 900.0, 1024: 1.0, 2048: 4.0, 4096: 16.0}
    assert views.exponent(costs) == pytest.approx(2)
    assert views.exponent({128: 1.0, 1024: 1.0}) is None


def test_bytes_of_known_operations():
    x = torch.zeros(6, 10)  # 240 bytes
    with roofline.CountBytes() as counter:
        x.view(60).unsqueeze(0).transpose(0, 1)
    assert counter.moved == 0
    with roofline.CountBytes() as counter:
        x + x.clone()
    assert counter.moved == (240 + 240) + (240 + 240 + 240)
    with roofline.CountBytes() as counter:
        torch.add(x, x, out=torch.empty(6, 10))
    assert counter.moved == 240 + 240 + 240
    batch = torch.zeros(2, 3, 10)
    with roofline.CountBytes() as counter:  # a product of matrices, seen as a batch
        batch @ x.T
    assert counter.moved == 4 * (60 + 60 + 36)


def test_a_map_that_is_made_is_moved():
    workload = Workload.draw(SIZE._replace(T=512))
    map_bytes = 4 * SIZE.B * SIZE.H * 512**2
    without = roofline.moved(FLOOR, workload)
    with_map = roofline.moved(EVERYBODY["BatchedMHA"], workload)
    # scores are written and read, weights are written and read
    assert 3.9 * map_bytes < with_map - without < 4.5 * map_bytes


def test_shares_sum_to_one_and_name_the_steps():
    workload = Workload.draw(Size(2, 64, 48, 3))
    by_hand = shares.shares(EVERYBODY["BatchedMHA"], workload)
    for parts in (by_hand, shares.shares(FLOOR, workload)):
        assert sum(parts.values()) == pytest.approx(1, abs=1e-3)
    assert min(by_hand[s] for s in ("linear", "scores", "softmax", "values")) > 0
    assert by_hand["fused attention"] == 0
    assert shares.shares(FLOOR, workload)["fused attention"] > 0


@pytest.mark.parametrize(
    ("name", "operands", "step"),
    [
        ("addmm", [[22], [15, 22], [22, 66]], "linear"),
        ("mm", [[15, 22], [22, 66]], "linear"),
        ("bmm", [[6, 5, 11], [6, 11, 5]], "scores"),
        ("baddbmm", [[6, 5, 5], [6, 5, 11], [6, 11, 5]], "scores"),
        ("bmm", [[6, 5, 5], [6, 5, 11]], "values"),
        ("_softmax", [[3, 2, 5, 5]], "softmax"),
        ("_scaled_dot_product_flash_attention_for_cpu", [], "fused attention"),
        ("copy_", [[3, 5, 22]], "copies"),
        ("empty", [], "rest"),
    ],
)
def test_steps_are_told_by_what_they_sum_over(name, operands, step):
    assert shares.step_of(name, operands, Workload.draw(SIZE)) == step


def test_sizes_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="T, E and D must differ"):
        shares.shares(FLOOR, Workload.draw(Size(1, 8, 8, 2)))


def test_memory_of_a_map_in_a_fresh_process():
    size = [1, 1024, 64, 8]  # maps of 32 MiB; everything else is below 1 MiB
    setting = worker.Setting(allocator="own pages")
    orders = [
        worker.Job("memory", "memory", {"name": name, "size": size})
        for name in ("BatchedMHA", "FusedMHA, no weights")
    ]
    by_hand, streamed = (worker.answer(setting, order) for order in orders)
    assert 60 < by_hand["mib"] < 110  # scores and weights, and the softmax's parts
    assert streamed["mib"] < 8


def test_memory_reads_the_peak_not_what_is_left():
    before = memory.now("cpu")
    torch.empty(2**26, dtype=torch.uint8).fill_(1)
    assert memory.peak("cpu") - before >= 0.9 * 2**26
    assert memory.now("cpu") - before < 2**25
