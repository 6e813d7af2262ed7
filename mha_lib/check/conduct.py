"""Probes of conduct: what the ordinary calls of a task do not show.

They are made of a task's own probes, whatever sizes those have. The option ``conduct``
of each is the property that it shows; no mistake is looked for in their numbers.
Options and keys beside those of `mha_lib.check.tasks`::

    "options": {"conduct": "leading_axes", "as_called": True,  adapt nothing
                "same": ["query", "key"],                      one tensor for these
                "dropout": None,                               as the class has it
                "reloaded": True,                 called first with numbers of its own
                "held": True,                     and with the very tensors of before
                "no_grad": True,                               as who reads or writes
                "strided": ["mask"]},                          no block of memory
    "before": [{"sizes": ..., "inputs": ...}]                  calls that come first
    "another": {"sizes": ...}                                  made after the first one
"""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["AXES", "conduct"]

Probe = dict
AXES = {  # of the inputs of each task, a letter each
    "attention": {"q": "BHTD", "k": "BHSD", "v": "BHSD", "mask": "B1TS"},
    "mha": {"query": "BTE", "key": "BSE", "value": "BSE", "mask": "BTS"},
    "mha_sequence_first": {
        "query": "TBE",
        "key": "SBE",
        "value": "SBE",
        "mask": "TSB",
    },
    "split_concat": {"queries": "BTE", "keys": "BSE"},
    "split_heads": {"x": "BTE"},
    "merge_heads": {"x": "BHTD"},
}
LOW = 5000.0  # of scores: a finite number for hidden keys has to be lower
MASKS = ("causal_mask", "padding_mask", "combine_masks")
ORDINARY = {"repeat"}  # options of a probe that is called once, with an eye on it
LOUD = {  # a score whose exponential no number of the dtype holds
    torch.float64: 1000.0,
    torch.float32: 200.0,
    torch.bfloat16: 128.0,
    torch.float16: 60.0,
}


def conduct(task: str, probes: list[Probe]) -> list[Probe]:
    """The probes of conduct of a task, out of its probes."""
    if task not in (*AXES, *MASKS):
        return []
    ordinary = [p for p in probes if p["options"].keys() <= ORDINARY]
    plain = next(p for p in ordinary if not _hides(p))
    masked = next((p for p in ordinary if _hides(p)), None)
    if task in MASKS:
        found = [_other_mask(plain)]
    elif masked is None:
        found = _of_part(task, plain)
    else:
        longest = max(ordinary, key=lambda p: min(p["sizes"]["T"], p["sizes"]["S"]))
        found = [*_conduct(task, plain, masked, longest)]
        # Its √D is exact, in whatever dtype it is kept.
        narrow = [p for p in ordinary if p["sizes"]["D"] == 1][:1]
        found += [_changed(p, "double_precision", dtype="float64") for p in narrow]
        if task != "split_concat":
            found += _for_many(task, max(ordinary, key=lambda p: p["sizes"]["T"]))
    return [_copied(probe) for probe in found]


def _other_mask(plain: Probe) -> Probe:
    """Other numbers after a call of the same shape, or of the same T."""
    inputs, sizes = dict(plain["inputs"]), plain["sizes"]
    for name, x in inputs.items():
        if name == "lengths":
            inputs[name] = x % sizes["S"] + 1
        elif isinstance(x, Tensor):
            inputs[name] = ~x
    if "T" in inputs:
        sizes = sizes | {"S": sizes["S"] + 1}
        inputs["S"] = sizes["S"]
    before = {"sizes": plain["sizes"], "inputs": plain["inputs"]}
    changed = _changed(plain, "other_sizes")
    return changed | {"sizes": sizes, "inputs": inputs, "before": [before]}


def _of_part(task: str, plain: Probe) -> Iterator[Probe]:
    yield _changed(plain, "gradients", grad=True)
    inputs = dict(plain["inputs"])
    inputs["x"] = inputs["x"].double() / 3  # numbers that no float32 holds
    yield _changed(plain, "double_precision", dtype="float64") | {"inputs": inputs}
    yield _changed(plain, "strided", strided=["x"])  # as a transpose, or a split


def _conduct(task: str, plain: Probe, masked: Probe, longest: Probe) -> Iterator[Probe]:
    square, masked_square = _square(task, plain), _square(task, masked)
    for probe in plain, square, masked_square, _cut(task, masked, B=1), longest:
        yield _changed(probe, "gradients", grad=True)
    yield _changed(plain, "gradients", grad=True, train=True, dropout=0.0)
    D = longest["sizes"]["D"]  # T = S = D: who asks shapes which axis is which errs
    cube = _cut(task, longest, T=D, S=D) if D > 1 else masked_square
    for probe in square, cube:
        yield _alike(task, probe)
    for pair in ("qk", "kv") if task != "split_concat" else ():  # and another third one
        yield _alike(task, square, pair)
    yield _changed(masked, "without_gradients", no_grad=True, reloaded=True, held=True)
    yield _changed(masked, "double_precision", dtype="float64")
    yield _changed(masked, "training", train=True, dropout=0.0)
    yield _changed(masked, "no_dropout", train=True, dropout=None)
    small = _cut(task, masked, B=1, T=masked["sizes"]["T"] - 1)
    small = _cut(task, small, S=masked["sizes"]["S"] - 1)
    sizes = masked["sizes"]
    H = next(n for n in range(sizes["H"] + 1, sizes["E"] + 2) if sizes["E"] % n)
    wider = sizes | {"H": H, "E": H * sizes["D"]}
    turned = sizes | {"H": sizes["D"], "D": sizes["H"]}  # the same E
    for probe, another, before in (
        (masked, wider, [small, _cut(task, plain, B=1), plain]),
        (_bare(masked), turned, [_bare(small), masked]),
    ):
        yield _changed(probe, "other_sizes") | {
            "before": [{"sizes": x["sizes"], "inputs": x["inputs"]} for x in before],
            "another": {"sizes": another},
        }
    # As in writing, where a cache has its temptations.
    for step, reading in (
        (_cut(task, plain, T=1), True),
        (_cut(task, plain, T=1, S=1), False),
    ):
        x = step["inputs"]
        other = {k: -x[k] if isinstance(x[k], Tensor) else x[k] for k in x}
        before = [{"sizes": step["sizes"], "inputs": other}]
        options = {"reloaded": True, "no_grad": reading}
        yield _changed(step, "other_sizes", **options) | {"before": before}
    if task == "split_concat":  # hides keys whose embedding is zero, and no others
        inputs = {k: x for k, x in plain["inputs"].items() if k != "causality"}
        bare = _changed(plain, "causality_optional", as_called=True)
        yield bare | {"inputs": inputs}
    else:
        yield _changed(_loud(task, masked, True), "large_scores")
        loud = _loud(task, masked, False)
        x = loud["inputs"][[*AXES[task]][0]]
        exact = torch.finfo(x.dtype).bits > 16  # else rounding would be called a fault
        yield _changed(loud, "loud_hidden_keys", grad=exact)
        if task == "attention" and exact:
            yield _changed(_low(masked), "large_scores", dtype="float64")
        yield from _shapes(task, masked)


def _shapes(task: str, masked: Probe) -> Iterator[Probe]:
    """Other shapes that a task may say it takes."""
    mask = masked["inputs"]["mask"]
    # What comes out of a split, or of another order of axes, is no block of memory.
    yield _changed(masked, "strided", strided=[*AXES[task]])

    def probe(
        name: str, change=lambda x: x, of: Probe = masked, **inputs: Tensor
    ) -> Probe:
        inputs = {k: change(x) for k, x in (of["inputs"] | inputs).items()}
        return _changed(of, name, as_called=True) | {"inputs": inputs}

    if task == "attention":
        each = range(masked["sizes"]["H"])  # other queries in each head
        mask = torch.cat([mask.roll(head, dims=-2) for head in each], dim=1)
        yield probe("leading_axes", lambda x: x[0, 0])
        yield probe("three_axes", lambda x: x[:, 0])
        yield probe("leading_axes", lambda x: torch.stack([x, x.flip(0)]))
        every = torch.ones_like(mask[0, 0, :, :1])  # (T, 1), and each query sees all
        for other in mask[0, 0], mask[:1, :1], mask[:, :1, :1], mask, every:
            yield probe("mask_broadcasts", mask=other)
        n = min(masked["sizes"][x] for x in "BH")  # B = H: (H, T, S), not (B, T, S)
        alike = _cut(task, masked, B=n, H=n)
        yield probe("mask_broadcasts", of=alike, mask=mask[0, :n])
    elif task == "mha":
        yield probe("mask_for_all", mask=mask[0])
        n = min(masked["sizes"][x] for x in "BT")  # B = T: (T, S), not (B, S)
        alike = _cut(task, masked, B=n, T=n)
        yield probe("mask_for_all", of=alike, mask=mask[0, :n])
        yield probe("mask_broadcasts", mask=mask[:1])
        yield probe("mask_broadcasts", mask=mask[:, :1])
    else:
        yield probe("mask_broadcasts", mask=mask[..., :1])
        yield probe("mask_broadcasts", mask=mask[:1])
        yield probe("mask_broadcasts", mask=mask[:1, :, :1])


def _for_many(task: str, far: Probe) -> Iterator[Probe]:
    """One row of a mask for all of many queries."""
    queries = AXES[task]["mask"].index("T")
    inputs = far["inputs"] | {"mask": far["inputs"]["mask"].narrow(queries, 0, 1)}
    yield _changed(far, "mask_broadcasts", as_called=True) | {"inputs": inputs}


def _loud(task: str, masked: Probe, everywhere: bool) -> Probe:
    """Loud scores at every key, or at one that is hidden from all queries.

    Where they are loud everywhere, those of every other query are far below 0.
    """
    axes, found = AXES[task], masked | {"inputs": dict(masked["inputs"])}
    x, (q, k) = found["inputs"], [*axes][:2]
    dtype, S, D = x[q].dtype, masked["sizes"]["S"], masked["sizes"]["D"]
    scores = torch.linspace(-1, 1, S, dtype=torch.float64)
    if everywhere and torch.finfo(dtype).bits < 32:
        scores[:] = 0.0  # next to a loud score it has no digits for a small one
    scores[0 if everywhere else -1 :] += LOUD[dtype]
    if not everywhere:  # what is hidden may hold anything
        v = [*axes][2]
        loud = torch.ones(S, dtype=x[v].dtype)
        loud[-1] = 1e3 if torch.finfo(dtype).bits < 32 else 1e4
        along = [S if letter == "S" else 1 for letter in axes[v]]
        x[v] = x[v] * loud.view(along)
        x["mask"] = x["mask"].clone()
        keys = x["mask"].movedim(axes["mask"].index("S"), -1)
        keys[..., 0], keys[..., -1] = True, False
    if task == "attention":
        direction = torch.full((x[q].shape[-1],), D**-0.25, dtype=torch.float64)
    else:  # each head sees itself in the keys
        W = found["weights"] = dict(found["weights"])
        direction = x[q].reshape(-1, x[q].shape[-1])[0].double()
        heads = W["W_q"].double().unflatten(0, (-1, D))
        length = (heads @ direction).norm(dim=-1)[:, None, None]
        W["W_q"] = W["W_k"] = (heads / length * D**0.25).flatten(0, 1).to(dtype)
        W["b_q"] = W["b_k"] = torch.zeros_like(W["b_q"])
    x[q] = direction.to(dtype).expand_as(x[q]).clone()
    if everywhere:
        x[q].movedim(axes[q].index("T"), 0)[1::2] *= -1
    keys = scores[:, None] * direction
    if axes[k].startswith("S"):
        keys = keys[:, None]
    x[k] = keys.to(dtype).expand_as(x[k])
    return found


def _low(masked: Probe) -> Probe:
    """Scores of `attention` so low that a finite number seldom hides a key."""
    found = masked | {"inputs": dict(masked["inputs"])}
    x, (q, k) = found["inputs"], [*AXES["attention"]][:2]
    scores = torch.linspace(-1, 1, masked["sizes"]["S"], dtype=x[k].dtype) - LOW
    direction = torch.full_like(x[q], masked["sizes"]["D"] ** -0.25)
    x[q], x[k] = direction, scores[:, None] * direction[..., :1, :].expand_as(x[k])
    return found


# --- parts ---------------------------------------------------------------------------


def _hides(probe: Probe) -> bool:
    return "mask" in probe["inputs"] or bool(probe["inputs"].get("causality"))


def _bare(probe: Probe) -> Probe:
    """The same, and nothing is hidden but by the keys themselves."""
    inputs = {k: x for k, x in probe["inputs"].items() if k != "mask"}
    if "causality" in inputs:
        inputs["causality"] = False
    return probe | {"inputs": inputs}


def _changed(probe: Probe, name: str, **options: object) -> Probe:
    options = {"conduct": name, **options}
    return probe | {"name": f"{name}: {probe['name']}", "options": options}


def _copied(probe: Probe) -> Probe:
    """It shares no memory between its tensors."""

    def copy(x: object) -> object:
        if isinstance(x, Tensor):
            return x.clone(memory_format=torch.contiguous_format)
        if isinstance(x, dict):
            return {key: copy(y) for key, y in x.items()}
        return [copy(y) for y in x] if isinstance(x, list) else x

    return copy(probe)


def _cut(task: str, probe: Probe, **lengths: int) -> Probe:
    """The same with fewer sequences, queries or keys, at least one of each."""
    lengths = {letter: max(1, n) for letter, n in lengths.items()}

    def cut(name: str, x: object) -> object:
        if not isinstance(x, Tensor):
            return x
        for axis, letter in enumerate(AXES[task][name][-x.dim() :]):
            if letter in lengths:
                x = x.narrow(axis, 0, min(lengths[letter], x.shape[axis]))
        return x

    inputs = {name: cut(name, x) for name, x in probe["inputs"].items()}
    return probe | {"sizes": probe["sizes"] | lengths, "inputs": inputs}


def _square(task: str, probe: Probe) -> Probe:
    """T = S."""
    n = min(probe["sizes"]["T"], probe["sizes"]["S"])
    return _cut(task, probe, T=n, S=n)


def _alike(task: str, square: Probe, which: str = "qkv") -> Probe:
    """These inputs are one tensor: the first of them."""
    names = [name for name in AXES[task] if name[0] in which]
    shared = dict.fromkeys(names, square["inputs"][names[0]])
    changed = _changed(square, "same_tensor", same=names)
    return changed | {"inputs": square["inputs"] | shared}
