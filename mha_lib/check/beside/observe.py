"""Call once, and note what came back and what else happened."""

import dataclasses
import random
import re
from collections.abc import Callable, Mapping, Sequence

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from .words import MAKES_LAYERS, REMEMBERS, RESHAPED, RETURNED, Advice, failure


def outcome_of(
    call: Callable,
    inputs: dict,
    options: dict,
    weights: Mapping[str, Tensor],
    earlier: Sequence[dict] = (),
) -> dict:
    """Call once, or as the options say, and note what happened."""
    with torch.set_grad_enabled(not options.get("no_grad")):
        for others in [*earlier] * 2:  # kept for good, perhaps from the second call on
            _raises(call, {k: cast(x, options) for k, x in others.items()})
    given = {k: cast(x, options) for k, x in inputs.items()}
    for name in given.keys() & options.get("strided", ()):
        given[name] = _strided(given[name])
    if same := options.get("same"):
        given |= dict.fromkeys(same, given[same[0]])
    leaves: dict[str, Tensor] = {}
    if options.get("grad"):
        leaves = {
            name: x.requires_grad_() for name, x in given.items() if _is_input(name, x)
        }
        given |= {name: x * 1 for name, x in leaves.items()}
        leaves |= weights
    before = {k: x.clone() for k, x in given.items() if isinstance(x, Tensor)}
    outcome = {}
    if options.get("repeat"):  # a layer must not remember what came before
        others = given | {k: x.flip(0) for k, x in before.items()}
        of_others = _returned(call({k: copied(x) for k, x in others.items()}))["output"]
        try:
            returned = call(given)
            outcome["outputs"] = _returned(returned)
        except Exception as error:
            if _raises(call, others):  # these inputs were taken before
                return failure(error) | {"notes": [{"code": REMEMBERS}]}
            raise
    else:
        trained = options.get("train")
        state = torch.get_rng_state() if trained else None
        with torch.set_grad_enabled(not options.get("no_grad")):
            returned = call(given)
            outcome["outputs"] = _returned(returned)
        if trained and not torch.equal(state, torch.get_rng_state()):
            outcome["draws"] = True
    output = outcome["outputs"]["output"]
    devices = {x.device for x in before.values()}
    elsewhere = {x.device for x in outcome["outputs"].values()} - devices
    if devices and elsewhere and not options.get("device"):
        (device,), (other, *_) = devices, elsewhere
        raise Advice("other-device", required=device, got=other)
    if not options.get("device"):
        outcome |= altered(before, given)
    if options.get("repeat"):
        outcome["outputs"] = {k: copied(x) for k, x in outcome["outputs"].items()}
        output = outcome["outputs"]["output"]  # a view would change with its input
        _rewritten(given, others)  # the same tensors, which hold other numbers
        late = _returned(call(given))["output"]
        again = _returned(call(given | before))["output"]
        pairs = (again, output), (late, of_others)
        changes = [
            (one, two)
            for one, two in pairs
            if one.shape == two.shape and not torch.equal(one, two)
        ]
        if changes:
            outcome["repeat_differs"] = not all(alike(*pair) for pair in changes)
            notes = outcome.setdefault("notes", [])
            if outcome["repeat_differs"] and not _by_chance(call, given | before):
                notes.append({"code": REMEMBERS})
            elif outcome["repeat_differs"] and _makes_layers(call, given | before):
                notes.append({"code": MAKES_LAYERS})
    if leaves:
        grads = [None] * len(leaves)
        if output.requires_grad:
            grads = torch.autograd.grad(
                output.square().sum(),
                list(leaves.values()),
                allow_unused=True,
            )
        found = dict(zip(leaves, grads))
        none = [k for k, grad in found.items() if grad is None]
        if none:
            outcome["without_gradient"] = none
        outcome["gradients"] = {
            k: grad
            for k, grad in found.items()
            if grad is not None and k not in weights
        }
        others = []
        if "weights" in outcome["outputs"]:  # anew: some free their graph on the way
            given |= {k: x * 1 for k, x in leaves.items() if k not in weights}
            others = [_returned(call(given))["weights"]]
        outcome["weights_detached"] = not all(_has_slope(x, leaves) for x in others)
    if got := _no_pair(returned):
        outcome["notes"] = [*outcome.get("notes", ()), {"code": RETURNED, "got": got}]
    outcome["outputs"] = {k: x.detach() for k, x in outcome["outputs"].items()}
    return outcome


def altered(before: Mapping[str, Tensor], after: Mapping[str, object]) -> dict:
    """Which tensors a call has changed, as an outcome says it; nothing if none."""
    changed = {
        name: (was, now)
        for name, was in before.items()
        if not (isinstance(now := after.get(name), Tensor) and torch.equal(was, now))
    }
    shapes = {
        name: [str((*x.shape,)) for x in pair if isinstance(x, Tensor)]
        for name, pair in changed.items()
    }
    notes = [
        {"code": RESHAPED, "name": name, "before": was, "after": now}
        for name, (was, *others) in shapes.items()
        for now in others
        if was != now
    ]
    return {"changed_inputs": [*changed], "notes": notes} if changed else {}


def _strided(x: Tensor) -> Tensor:
    """The same numbers in no single block of memory, as a split into heads leaves them.

    Its middle axes lie in the other order: of (T, B, E) the first two, of (B, H, T, D)
    those of heads and tokens.
    """
    middle = x.dim() // 2
    return x.transpose(middle - 1, middle).contiguous().transpose(middle - 1, middle)


def _is_input(name: str, x: object) -> bool:
    """Whether it is a tensor of numbers, and no mask."""
    return isinstance(x, Tensor) and x.is_floating_point() and name != "mask"


def _has_slope(x: Tensor, leaves: dict[str, Tensor]) -> bool:
    """Whether a gradient other than zero arrives anywhere; of one key there is none."""
    if not x.requires_grad or x.numel() > 1000:  # the small ones tell
        return x.requires_grad
    slopes = torch.autograd.grad(
        x.square().sum(), list(leaves.values()), allow_unused=True
    )
    return x.shape[-1] == 1 or any(y is not None and y.any() for y in slopes)


def _rewritten(given: dict, numbers: dict) -> None:
    """Put numbers into the tensors, or new tensors where theirs have another shape."""
    for name, x in numbers.items():
        if isinstance(x, Tensor) and given[name].shape == x.shape:
            given[name].copy_(x)
        else:
            given[name] = copied(x)


def copied(x: object) -> object:
    """A tensor of its own; anything else as it is."""
    return x.clone() if isinstance(x, Tensor) else x


def _raises(call: Callable, inputs: dict) -> bool:
    try:
        call(inputs)
    except Exception:
        return True
    return False


def alike(one: Tensor, two: Tensor) -> bool:
    """Whether two answers are the same up to rounding."""
    same = one.shape == two.shape
    return same and torch.allclose(one, two, rtol=1e-3, atol=1e-4, equal_nan=True)


def _by_chance(call: Callable, inputs: dict) -> bool:
    """Whether the answer follows the seed: the same one for the same seed alone."""
    before = random.getstate(), numpy.random.get_state()  # from any of the three
    answers = []
    try:
        for seed in (1, 1, 2):
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed)
            copies = {k: copied(x) for k, x in inputs.items()}
            answers.append(_returned(call(copies))["output"])
    except Exception:  # it took these inputs before
        return False
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
    return alike(*answers[:2]) and not alike(*answers[1:])


def _makes_layers(call: Callable, inputs: dict) -> bool:
    """Whether parameters are made in the call."""
    made = []
    hook = register_module_parameter_registration_hook(lambda *x: made.append(x))
    try:
        _raises(call, {k: copied(x) for k, x in inputs.items()})
    finally:
        hook.remove()
    return bool(made)


def cast(x: object, options: dict) -> object:
    """A copy in the dtype and on the device that a probe asks for."""
    if not isinstance(x, Tensor):
        return x
    dtype = getattr(torch, options.get("dtype", ""), None)
    dtype = dtype if x.is_floating_point() else None
    return x.to(options.get("device"), dtype, copy=True)


def _returned(result: object) -> dict[str, Tensor]:
    """What came back, as {"output": tensor} or with "weights" too."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = {x.name: getattr(result, x.name) for x in dataclasses.fields(result)}
    if hasattr(result, "_fields"):  # a named tuple: names first, else their order
        result = _by_name(result._asdict()) or list(result)
    elif isinstance(result, Mapping):
        names = ", ".join(map(str, result))
        result = _by_name(result)
        if result is None:
            raise Advice("which-output", names=names)
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    for place, item in enumerate(items[:2]):
        if place == 1 and item is None:
            continue
        if type(item) not in (Tensor, nn.Parameter):
            if item is None:
                raise Advice("nothing-returned")
            kind = f"{type(item).__module__}.{type(item).__name__}"
            if place:
                raise Advice("no-tensor-beside", got=type(item).__name__)
            raise Advice("no-tensor", got=kind)
        if item.layout != torch.strided or item.is_quantized or item.is_nested:
            raise Advice("not-dense")
    if not items:
        raise Advice("no-tensor", got="an empty tuple")
    return {k: x for k, x in zip(("output", "weights"), items) if x is not None}


def _no_pair(result: object) -> str:
    """In words what came back that `output, weights = …` cannot take; "" if it can."""
    if isinstance(result, Tensor):
        return ""
    if isinstance(result, Mapping):
        return f"a dict with the keys {', '.join(map(str, result))}"[:200]
    if not isinstance(result, (tuple, list)):
        return f"one object of the class {type(result).__name__}"
    kind = "list" if isinstance(result, list) else "tuple"
    if len(result) != 2:
        return f"a {kind} of {len(result)}"
    if hasattr(result, "_fields"):
        names = _by_name(result._asdict())
        if names and names[0] is not result[0]:
            return "a named tuple in which the output comes second"
    return ""


def _by_name(fields: Mapping) -> list | None:
    """Output and weights; None if the names do not tell the output."""
    given = {str(k).lower(): x for k, x in fields.items() if x is not None}
    outs = [k for k in given if re.search(r"out|hidden|context|result", k)]
    others = [k for k in given if k not in outs]
    maps = [k for k in others if re.search(r"weight|att|prob|map|score", k)]
    outs = outs or [k for k in others if k not in maps]
    if len(outs) != 1:
        return None
    return [given[k] for k in (*outs, *maps[:1])]
