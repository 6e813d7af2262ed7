"""What a worker can be asked for. Each takes plain words and returns plain numbers."""

import torch
from torch import nn

from benchmarks import memory, models, parity, roofline, shares, timing
from benchmarks.contestants import FLOOR, HERE, Contestant
from benchmarks.cuda import ON_CUDA
from benchmarks.peers import PEERS
from benchmarks.workload import Size, Workload

LONG = 1e10  # operations of a pass; no core does them in less than 10 milliseconds
EVERYBODY = {contestant.name: contestant for contestant in HERE + PEERS + ON_CUDA}


def race(
    size: list[int],
    causal: bool,
    run: str,
    dtype: str,
    names: list[str],
    budget: float,
    *,
    threads: int,
    device: str,
) -> dict[str, dict]:
    """One cell: who may enter is built, checked, and timed against the floor.

    Returns the rows of those who were timed, those who computed something else
    ("refused"), and those who could not run ("cannot"), the last two with the reason.
    """
    training = run == "training"
    kind = getattr(torch, dtype)
    workload = Workload.draw(Size(*size), causal=causal, dtype=kind, device=device)
    reference = parity.Reference(workload, training=training)
    calls, refused, cannot = {}, {}, {}
    for name in names:
        if not EVERYBODY[name].enters(causal, run, dtype, device):
            continue
        try:
            calls[name] = ready(EVERYBODY[name], reference)
        except parity.Refused as error:
            refused[name] = str(error)
        except Exception as error:  # whatever it was, it must not stop the others
            cannot[name] = reason(error)
    floor = ready(FLOOR, reference)
    del reference
    clock = timing.clock_for(device, threads)
    long = device == "cpu" and workload.size.flops > LONG
    samples = timing.race(calls, floor, clock, budget, long=long)
    rows = {name: own.summary() for name, own in samples.items()}
    return {"rows": rows, "refused": refused, "cannot": cannot}


def reason(error: Exception) -> str:
    """The first line of what happened, short enough for a table."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:120]}"


def ready(contestant: Contestant, reference: parity.Reference) -> timing.Call:
    """A call of a contestant that has been found right."""
    workload = reference.workload
    layer = contestant.build(workload).train(reference.training)
    reference.check(contestant, layer)
    return (training_call if reference.training else forward_call)(layer, workload)


def forward_call(layer: nn.Module, workload: Workload) -> timing.Call:
    def call() -> object:
        with torch.inference_mode():
            return layer(workload.x)

    return call


def training_call(layer: nn.Module, workload: Workload) -> timing.Call:
    x = workload.x.clone().requires_grad_()

    def call() -> None:
        x.grad = None
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(workload.gradient)

    return call


def memory_of(name: str, size: list[int], *, threads: int, device: str) -> dict:
    """MiB that one forward pass takes; to be asked of a fresh process."""
    try:
        mib = memory.growth(EVERYBODY[name], Size(*size), device)
    except parity.Refused as error:
        return {"refused": {name: str(error)}}
    return {"mib": round(mib, 2)}


def shares_of(name: str, size: list[int], *, threads: int, device: str) -> dict:
    """Where the time of one forward pass goes."""
    workload = Workload.draw(Size(*size), device=device)
    return {"shares": shares.shares(EVERYBODY[name], workload)}


def moved_by(name: str, size: list[int], *, threads: int, device: str) -> dict:
    """The bytes that one forward pass asks to move."""
    workload = Workload.draw(Size(*size), device=device)
    return {"bytes": roofline.moved(EVERYBODY[name], workload)}


def limits_of(dtype: str, *, threads: int, device: str) -> dict:
    """The machine's peak and bandwidth."""
    clock = timing.clock_for(device, threads)
    return roofline.limits(getattr(torch, dtype), clock, device)


BY_KIND = {
    "race": race,
    "memory": memory_of,
    "shares": shares_of,
    "moved": moved_by,
    "limits": limits_of,
    "learning": models.race_learning,
    "writing": models.race_writing,
}
