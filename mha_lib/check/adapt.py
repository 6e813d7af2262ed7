"""What runs beside a submission: call it, load weights into it, note what it did.

Plain data in (probes, see `mha_lib.check.tasks`), plain data out (outcomes). This file
needs torch alone and imports nothing of mha_lib, so that a grader can load it by its
path into a process that holds no answers.

An outcome is a dictionary::

    {"outputs": {"output": tensor, "weights": tensor}}   or {"error": sentence}
                                                         or {"skipped": sentence}
    "alternatives": {"transposed": {"outputs": ...}}     other ways to load the weights
    "changed_inputs": ["mask"]                           differ after the call
    "repeat_differs": True                               a second call, another answer
    "without_gradient": ["key"]                          the output does not move them
    "notes": ["…"]                                       what had to be adapted, or
                                                         that it remembers
    "missing": ["b_k"]                                   a layer that has no bias
"""

import inspect
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = ["Advice", "find_layers", "run", "sizes"]

NAMES = {  # the arguments of each task, in order
    "attention": ("q", "k", "v"),
    "split_heads": ("x", "num_heads"),
    "merge_heads": ("x",),
    "causal_mask": ("T", "S"),
    "padding_mask": ("lengths", "S"),
    "combine_masks": ("causal", "padding"),
    "mha": ("query", "key", "value"),
    "mha_sequence_first": ("query", "key", "value"),
    "split_concat": ("queries", "keys"),
}
RAN_WITH = "it ran with"  # how a note begins that says in what way it was called
REMEMBERS = "it remembers"  # and one that says that a call changes the next one
FOLDED = "the heads folded into the batch (B·H, T, D)"
LAYERED = ("mha", "mha_sequence_first", "split_concat")
NOT_THEIRS = (str(Path(torch.__file__).parents[1]), inspect.__file__[:-10], __file__)


class Advice(Exception):
    """The submission cannot be called as it is; the message says what to do."""


def run(
    submission: Callable | type | nn.Module,
    probes: list[dict],
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
) -> list[dict]:
    """Call the submission with every probe and note what comes back.

    Args:
        submission: a function, a class or a module, as its task says.
        probes: of one task, in their order. Their options: ``repeat`` (call twice),
            ``grad`` (note which inputs get no gradient), ``dtype`` and ``device`` (cast
            first), ``train`` (in training mode).
        layers: where a module keeps its weights: ``{"q": "lin1", "k": …}`` with keys
            out of q, k, v, o, qkv and kv; None finds them.
        num_heads: H of a module that does not say; None finds it.

    Returns:
        One outcome for each probe. Nothing that the submission does raises.
    """
    runner = _Runner(submission, layers, num_heads)
    # Their warnings are no errors; random numbers come and go without a trace.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), with_gradients():
        warnings.simplefilter("ignore")
        return [runner.outcome(probe) for probe in probes]


@contextmanager
def with_gradients():
    """Whatever the notebook has switched off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def sizes(submission: object, num_heads: int | None = None) -> tuple[int, int] | None:
    """(E, H) of a module that exists already; None where the probes may choose.

    Raises:
        Advice: the module does not show its number of heads, or its layers.
    """
    if not isinstance(submission, nn.Module):
        return None
    H = num_heads
    if H is None:
        owners = [vars(module) for module in submission.modules()]
        found = {
            value
            for owner in owners
            for name, value in owner.items()
            if re.fullmatch(HEAD_COUNT, name, re.I) and type(value) is int
        }
        if len(found) != 1:
            raise Advice(
                "the number of heads must be known; your module shows "
                f"{sorted(found) or 'none'} in an attribute like num_heads. Pass "
                "num_heads=… or the class instead of the module"
            )
        H = found.pop()
    if _lazy(submission):
        raise Advice("call your module once before it is checked: it has lazy layers")
    candidates = _candidates(submission)
    first = _weight(submission, candidates[0]) if candidates else None
    if first is None:
        raise Advice(_LAYERS.format(found="no matrices"))
    linear = candidates[0] not in dict(submission.named_parameters())
    if first.dim() == 3:  # (H, E, D)
        E = round(first.numel() ** 0.5)
    else:
        E = first.shape[1] if linear else min(first.shape)
    if not 1 <= H <= E:
        raise Advice(f"the number of heads must be from 1 to {E}, the width; got {H}")
    return E, H


class _Runner:
    """One submission under several probes; remembers how it wants to be called."""

    def __init__(self, submission, layers, num_heads) -> None:
        self.submission, self.layers, self.num_heads = submission, layers, num_heads
        self.way: dict[bool, str] = {}  # masked or not -> what worked
        self.places: dict[str, list[str]] = {}  # where a module keeps its weights

    def outcome(self, probe: dict) -> dict:
        torch.default_generator.manual_seed(0)
        options = probe["options"]
        try:
            with _prepared(self, probe) as (call, loadings, load, missing):
                self.weights = getattr(load, "weights", {})
                outcomes = {}
                for loading in loadings:
                    load(loading)
                    outcomes[loading] = self._attempts(call, probe)
        except Advice as advice:
            return {"error": str(advice), "advice": True}
        except _Skip as reason:
            return {"skipped": str(reason)}
        except (Exception, SystemExit) as error:  # whatever theirs raises
            return {"error": sentence(error)}
        outcome, *others = outcomes.values()
        if missing:
            outcome["missing"] = missing
        if others:
            outcome["alternatives"] = dict(zip(loadings[1:], others))
        if options.get("device"):  # a shape says enough
            outcome.pop("outputs", None)
        return outcome

    def _attempts(self, call: Callable, probe: dict) -> dict:
        """The first way of calling that does not raise; the first error otherwise."""
        masked = "mask" in probe["inputs"]
        ways = _ways(probe)
        if masked in self.way:
            ways = {self.way[masked]: ways[self.way[masked]]}
        first = None
        for name, change in ways.items():
            try:
                outcome = _observe(call, change(probe), probe["options"], self.weights)
            except (Advice, _Skip):
                raise
            except (Exception, SystemExit) as error:
                first = first or {"error": sentence(error)}
                continue
            if probe["call"] == "attention" and name.startswith(FOLDED):
                lead = probe["inputs"]["q"].shape[:2]
                for key, x in outcome.get("outputs", {}).items():
                    if x.dim() and x.shape[0] == lead.numel():
                        outcome["outputs"][key] = x.unflatten(0, lead)
            if name and first:
                error = first["error"]
                note = f"{RAN_WITH} {name}, not as the task says: {error}"
                outcome["notes"] = [*outcome.get("notes", ()), note]
            self.way.setdefault(masked, name)
            return outcome
        return first


# --- ways to call -------------------------------------------------------------------


def _ways(probe: dict) -> dict[str, Callable[[dict], dict]]:
    """Inputs as the task says, then as other right code may want them."""
    inputs = probe["inputs"]
    if probe["call"] not in ("attention", "mha", "mha_sequence_first"):
        return {"": lambda probe: probe["inputs"]}
    forms: dict[str, Callable[[Tensor], Tensor]] = {"": lambda mask: mask}
    if probe["call"] == "mha":
        forms["a mask (B, 1, T, S)"] = lambda mask: mask[:, None]
    elif probe["call"] == "mha_sequence_first":
        forms["a mask (T, S, B, 1)"] = lambda mask: mask[..., None]
        forms["a mask (B, T, S)"] = lambda mask: mask.permute(2, 0, 1)
        forms["a mask (B, 1, T, S)"] = lambda mask: mask.permute(2, 0, 1)[:, None]
    else:
        H = probe["sizes"]["H"]
        forms["a mask (B, H, T, S)"] = lambda mask: mask.expand(-1, H, -1, -1)
    numbers = probe["weights"]["W_q"] if probe["weights"] else inputs["q"]
    for name, form in list(forms.items()):
        words = f"{name or 'a mask'} of numbers 0 and 1"
        forms[words] = lambda mask, form=form: form(mask).to(numbers.dtype)

    ways: dict[str, Callable[[dict], dict]] = {}
    if "mask" not in inputs:
        ways[""] = lambda probe: probe["inputs"]
    for name, form in forms.items():
        if "mask" not in inputs:
            name = f"{name or 'a mask'} that is all True"

        def change(probe, form=form):
            return probe["inputs"] | {"mask": form(_mask(probe))}

        ways[name] = change
    if probe["call"] == "attention":
        for name, way in list(ways.items()):
            ways[f"{FOLDED}, {name}".strip(", ")] = lambda probe, way=way: {
                key: x.expand(-1, probe["sizes"]["H"], -1, -1).flatten(0, 1)
                for key, x in way(probe).items()
            }
    return ways


def _mask(probe: dict) -> Tensor:
    """The mask of the probe, or one that allows everything."""
    if "mask" in probe["inputs"]:
        return probe["inputs"]["mask"]
    B, T, S = (probe["sizes"][x] for x in "BTS")
    forms = {"attention": (B, 1, T, S), "mha_sequence_first": (T, S, B)}
    return torch.ones(forms.get(probe["call"], (B, T, S)), dtype=torch.bool)


def _observe(
    call: Callable, inputs: dict, options: dict, weights: Mapping[str, Tensor]
) -> dict:
    """Call once, or as the options say, and note what happened."""
    given = {k: _cast(x, options) for k, x in inputs.items()}
    leaves = {}
    if options.get("grad"):
        leaves = {
            name: x.requires_grad_()
            for name, x in given.items()
            if isinstance(x, Tensor) and x.is_floating_point() and name != "mask"
        }
        given |= {name: x * 1 for name, x in leaves.items()}
        leaves |= weights
    before = {k: x.clone() for k, x in given.items() if isinstance(x, Tensor)}
    outcome = {}
    if options.get("repeat"):  # a layer must not remember what came before
        others = given | {k: x.flip(0) for k, x in before.items()}
        call({k: _copy(x) for k, x in others.items()})
        try:
            outcome["outputs"] = _returned(call(given))
        except Exception as error:
            if _raises(call, others):  # these inputs were taken before
                return {"error": sentence(error), "notes": [REMEMBERS]}
            raise
    else:
        outcome["outputs"] = _returned(call(given))
    output = outcome["outputs"]["output"]
    devices = {x.device for x in before.values()}
    if devices and not options.get("device") and output.device not in devices:
        (device,) = devices
        raise Advice(
            f"the output must be on {device}, as the inputs; got {output.device}"
        )
    if not options.get("device"):
        changed = [k for k, x in before.items() if not torch.equal(x, given[k])]
        if changed:
            outcome["changed_inputs"] = changed
    if options.get("repeat"):
        again = _returned(call(given | before))["output"]
        first = outcome["outputs"]["output"]
        if again.shape == first.shape and not torch.equal(again, first):
            outcome["repeat_differs"] = not _alike(again, first)
            if outcome["repeat_differs"] and not _by_chance(call, given | before):
                outcome["notes"] = [REMEMBERS]
    if leaves:
        grads = [None] * len(leaves)
        if output.requires_grad:
            grads = torch.autograd.grad(
                output.square().sum(), list(leaves.values()), allow_unused=True
            )
        none = [k for k, grad in zip(leaves, grads) if grad is None]
        if none:
            outcome["without_gradient"] = none
    outcome["outputs"] = {k: x.detach() for k, x in outcome["outputs"].items()}
    return outcome


def _copy(x: object) -> object:
    return x.clone() if isinstance(x, Tensor) else x


def _raises(call: Callable, inputs: dict) -> bool:
    try:
        call(inputs)
    except Exception:
        return True
    return False


def _alike(one: Tensor, two: Tensor) -> bool:
    same = one.shape == two.shape
    return same and torch.allclose(one, two, rtol=1e-3, atol=1e-4, equal_nan=True)


def _by_chance(call: Callable, inputs: dict) -> bool:
    """Whether the answer follows the seed: the same one for the same seed alone."""
    numpy = sys.modules.get("numpy")  # they may have drawn from any of the three
    before = random.getstate(), numpy and numpy.random.get_state()
    answers = []
    try:
        for seed in (1, 1, 2):
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            if numpy:
                numpy.random.seed(seed)
            copies = {k: _copy(x) for k, x in inputs.items()}
            answers.append(_returned(call(copies))["output"])
    except Exception:  # it took these inputs before
        return False
    finally:
        random.setstate(before[0])
        if numpy:
            numpy.random.set_state(before[1])
    return _alike(*answers[:2]) and not _alike(*answers[1:])


def _cast(x: object, options: dict) -> object:
    if not isinstance(x, Tensor):
        return x
    dtype = getattr(torch, options.get("dtype", ""), None)
    dtype = dtype if x.is_floating_point() else None
    return x.to(options.get("device"), dtype, copy=True)


def _returned(result: object) -> dict[str, Tensor]:
    """What came back, as {"output": tensor} or with "weights" too."""
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    for place, item in enumerate(items[:2]):
        if place == 1 and item is None:
            continue
        if type(item) not in (Tensor, nn.Parameter):
            kind = "None" if item is None else f"{type(item).__module__}."
            kind += "" if item is None else type(item).__name__
            hint = "; is a `return` missing?" if item is None else ""
            raise Advice(f"a torch.Tensor must be returned; got {kind}{hint}")
        if item.layout != torch.strided or item.is_quantized or item.is_nested:
            raise Advice("a dense torch.Tensor must be returned; got another layout")
    if not items:
        raise Advice("a torch.Tensor must be returned; got an empty tuple")
    return {k: x for k, x in zip(("output", "weights"), items) if x is not None}


def sentence(error: BaseException) -> str:
    """The error in one line, with the line of the submission where it arose."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception may define its own __str__
        text = "it cannot be printed"
    text = f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(NOT_THEIRS):
            line = f": {frame.line}" if frame.line else ""
            return f"{text} (your line {frame.lineno}{line})"
    return text


# --- from a submission to a call ----------------------------------------------------

HEAD_COUNT = (
    r"((num(ber)?|nb?|count)_?(of_?)?)?(att(entio)?n_?)?heads?(_?(num|count))?|h"
)
WIDTH = r"[de]|.*(dim|model|emb|hidden|width|size|_in|_out).*"


class _Skip(Exception):
    """The probe does not apply to this submission."""


@contextmanager
def _prepared(runner: _Runner, probe: dict):
    """The call, ways to load the weights, the loader and which biases do not exist."""
    submission, task = runner.submission, probe["call"]
    if inspect.isclass(submission):
        submission = _construct(submission, probe)
    if not callable(submission):
        kind = type(submission).__name__
        raise Advice(f"a function, a class or a module is required; got {kind}")
    weights = probe["weights"]
    if weights is not None:
        weights = {k: _cast(x, probe["options"]) for k, x in weights.items()}
    if not isinstance(submission, nn.Module):
        if probe["options"].get("train"):
            raise _Skip("a function has no training mode")
        extra = () if weights is None else (weights, probe["sizes"]["H"])
        call = _bound(submission, task, extra)
        yield call, [""], lambda loading: None, []
        return
    if _lazy(submission):
        if submission is runner.submission:
            raise Advice(
                "call your module once before it is checked: it has lazy layers"
            )
        _first_that_works(_bound(submission.forward, task, (), submission), probe)
    with _as_it_was(submission):
        dropped = _set_dropout(submission, probe["options"].get("dropout", 0.5))
        if inspect.isclass(runner.submission):
            asked = inspect.signature(runner.submission).parameters
            dropped |= any("drop" in name.lower() for name in asked)
        if probe["options"].get("train") and not dropped:
            raise _Skip("the module has no dropout")
        submission.train(bool(probe["options"].get("train")))
        wanted = next(x for x in probe["inputs"].values() if isinstance(x, Tensor))
        dtype = getattr(torch, probe["options"].get("dtype", ""), wanted.dtype)
        submission.to(probe["options"].get("device", wanted.device), dtype)
        call = _bound(submission.forward, task, (), submission)
        if weights is None or task not in LAYERED:
            yield call, [""], lambda loading: None, []
            return
        if not runner.places:
            runner.places = _places(submission, runner.layers, call, probe)
        holders = _holders(submission, runner.places)

        def load(loading: str) -> None:
            for holder in holders:
                holder.load(weights, probe["sizes"], loading)

        load.weights = {f"W_{h.parts}": h.weights[0] for h in holders}
        has = {role for holder in holders if holder.biases for role in holder.parts}
        missing = [f"b_{role}" for role in "qkvo" if role not in has]
        loadings = [""]
        if any(len(holder.parts) > 1 for holder in holders):
            loadings.append("head by head")
        if any(holder.either_way for holder in holders):
            loadings.append("transposed")
        yield call, loadings, load, missing


@contextmanager
def _as_it_was(module: nn.Module):
    """Give the module back with its own numbers, mode and dropout."""
    attributes = [(child, dict(vars(child))) for child in module.modules()]
    copies: dict[int, Tensor] = {}  # a tensor used twice stays one tensor
    for child, _ in attributes:
        for kind, make in (("_parameters", nn.Parameter), ("_buffers", Tensor.clone)):
            tensors = vars(child)[kind]
            vars(child)[kind] = {
                name: None
                if x is None
                else copies.setdefault(id(x), make(x.detach().clone()))
                for name, x in tensors.items()
            }
    try:
        yield
    finally:
        for child, old in attributes:
            vars(child).clear()
            vars(child).update(old)


def _lazy(module: nn.Module) -> bool:
    """Whether a layer waits for its first input to know its sizes."""
    return any(nn.parameter.is_lazy(x) for x in module.parameters())


def _set_dropout(module: nn.Module, p: float) -> bool:
    """Every dropout of the module to p; False if it has none."""
    found = False
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p, found = p, True
        for name, value in vars(child).items():
            if "drop" in name.lower() and type(value) is float:
                setattr(child, name, p)
                found = True
    return found


def _construct(cls: type, probe: dict) -> object:
    """The class with the sizes of the probe, by the names of its parameters."""
    sizes = probe["sizes"]
    if probe["call"] not in LAYERED:
        values: list[tuple[str, object]] = [(r"d.*|.*(dim|size)", sizes["D"])]
    else:
        values = [
            (r".*drop.*", probe["options"].get("dropout", 0.5)),
            (r".*bias.*", True),
            (HEAD_COUNT, sizes["H"]),
            (r"d_?[kv]|.*head.*", sizes["D"]),
            (r".*(context|block|max|len).*", 64),
            (WIDTH, sizes["E"]),
        ]
    arguments = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = next((v for p, v in values if re.fullmatch(p, name, re.I)), None)
        needed = parameter.default is parameter.empty
        if value is None and needed:
            raise Advice(
                f"{cls.__name__} must be made as {cls.__name__}(embed_dim, num_heads); "
                f"it also wants {name!r}. Pass a module that you made, or give the "
                "parameter a default"
            )
        if needed or "drop" in name.lower() or re.fullmatch(HEAD_COUNT, name, re.I):
            arguments[name] = value
    try:
        return cls(**arguments)
    except Exception as error:
        given = ", ".join(f"{k}={v}" for k, v in arguments.items())
        text = sentence(error)
        raise Advice(f"{cls.__name__}({given}) could not be made: {text}") from error


def _bound(f: Callable, task: str, extra: tuple, target: Callable | None = None):
    """A function of the inputs alone: finds names for the arguments of ``f``."""
    names = NAMES[task]
    try:
        theirs = inspect.signature(f).parameters
    except (TypeError, ValueError):
        theirs = {}
    own = [n for n, p in theirs.items() if p.kind is not p.VAR_KEYWORD]
    given = [n for n in own if "mask" not in n.lower()]
    by_letter = {n: [x for x in given if x[:1].lower() == n[0]] for n in names}
    by_name = task in ("attention", *LAYERED) and all(
        len(found) == 1
        and theirs[found[0]].kind is not inspect.Parameter.POSITIONAL_ONLY
        for found in by_letter.values()
    )
    single = task == "causal_mask" and len(own) == 1
    masks = sorted((x for x in own if "mask" in x.lower()), key=_mask_rank)
    flags = [x for x in own if "caus" in x.lower()]
    target = target or f

    def call(inputs: dict) -> object:
        if single:
            if inputs["T"] != inputs["S"]:
                raise Advice("causal_mask must take T and S; this one takes T alone")
            return target(inputs["T"])
        if by_name and not extra and (masks or "mask" not in inputs):
            arguments, named = (), {by_letter[n][0]: inputs[n] for n in names}
        else:
            arguments, named = (*(inputs[n] for n in names), *extra), {}
        for key, found in (("mask", masks), ("causality", flags)):
            if key in inputs and (key == "mask" or inputs[key] or found):
                if found:
                    named[found[0]] = inputs[key]
                else:
                    arguments += (inputs[key],)
        return target(*arguments, **named)

    return call


def _mask_rank(name: str) -> int:
    """Which of several masks is meant: mask, attn_mask, then any other."""
    return 0 if name == "mask" else 1 if name.startswith("att") else 2


# --- where a module keeps its weights -----------------------------------------------

_LAYERS = (
    "the weights of q, k, v and the output must be found by name (q_proj, k_proj, "
    "v_proj, out_proj, or a fused qkv); found {found}. Say which is which with "
    'layers={{"q": "…", "k": "…", "v": "…", "o": "…"}} (or "qkv" for a fused one)'
)
_NOISE = r"w|weights?|b|bias|to|lin|linear|fc|proj|projection|layers?|dense|matrix"
_ROLES = {
    "q": r"q|qs|query|queries",
    "k": r"k|ks|keys?",
    "v": r"v|vs|values?",
    "o": r"o|out|output|c|concat|unify|unifyheads|merge|final|mix",
    "qkv": r"qkv|in|attn|c_attn",
    "kv": r"kv",
}


@dataclass
class _Holder:
    """One matrix, or one for each head, that holds the weights of some parts."""

    parts: str  # "q", "qkv", ...
    weights: list[Tensor]
    biases: list[Tensor]
    linear: bool  # weights are (out, in)

    @property
    def either_way(self) -> bool:
        shape = self.weights[0].shape
        return not self.linear and len(shape) == 2 and shape[0] == shape[1]

    def load(self, given: dict[str, Tensor], sizes: dict, loading: str) -> None:
        H, D, E = (sizes[x] for x in "HDE")
        W = torch.cat([given[f"W_{part}"] for part in self.parts])
        b = torch.cat([given[f"b_{part}"] for part in self.parts])
        n = len(self.parts)
        if n > 1 and (loading == "head by head" or len(self.weights) > 1):
            W = W.view(n, H, D, E).transpose(0, 1).reshape(n * E, E)
            b = b.view(n, H, D).transpose(0, 1).reshape(n * E)
        count = len(self.weights)
        axis = int(self.parts == "o")  # the heads are columns of W_o
        for x, value in zip(self.weights, W.chunk(count, axis)):
            x.data.copy_(self._fit(value, x.shape, sizes, loading))
        count = len(self.biases) or 1
        parts = [b / count] * count if self.parts == "o" else b.chunk(count)
        for x, value in zip(self.biases, parts):
            x.data.copy_(value.reshape(x.shape))

    def _fit(self, W: Tensor, shape: torch.Size, sizes: dict, loading: str) -> Tensor:
        if len(shape) == 3:  # a bare (H, E, D), or in another order
            H, D, E = (sizes[x] for x in "HDE")
            W = W.view(E, H, D) if self.parts == "o" else W.view(H, D, E)
            order = [list(W.shape).index(n) for n in shape]
            return W.permute(order)
        if self.linear or (self.either_way and loading == "transposed"):
            turned = W
        elif self.either_way or W.shape != shape:
            turned = W.T  # x @ W is what bare matrices are mostly made for
        else:
            turned = W
        if turned.shape != shape:
            raise Advice(
                f"the weights of {self.parts} must have the shape {tuple(W.shape)}; "
                f"yours has {tuple(shape)}"
            )
        return turned


def find_layers(
    module: nn.Module, layers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Which part of a module holds which projection: {"q": "q_proj", …}.

    Args:
        module: a layer of multi-head attention.
        layers: where they are; None finds them by their names.

    Raises:
        Advice: not found, or found twice.
    """
    return {parts: " ".join(paths) for parts, paths in _places(module, layers).items()}


def _holders(module: nn.Module, places: dict[str, list[str]]) -> list[_Holder]:
    parameters = dict(module.named_parameters())
    holders = []
    for parts, paths in places.items():
        weights, biases, linear = [], [], True
        for path in paths:
            if path in parameters:  # a bare matrix
                linear = False
                weights.append(parameters[path])
                biases += [
                    x
                    for name, x in parameters.items()
                    if _role(name) == parts
                    and name not in _candidates(module)
                    and x.numel() < weights[-1].numel()
                ]
            else:
                child = module.get_submodule(path)
                linear &= isinstance(child, nn.Linear)
                weights.append(child.weight)
                biases += (
                    [child.bias] if getattr(child, "bias", None) is not None else []
                )
        holders.append(_Holder(parts, weights, biases, linear))
    return holders


def _places(module, layers=None, call=None, probe=None) -> dict[str, list[str]]:
    """Paths of what holds each part, by mapping, by name or by what flows in."""
    candidates = _candidates(module)
    if layers is not None:
        known = [*candidates, *dict(module.named_parameters())]
        wrong = [path for path in layers.values() if path not in known]
        wrong += [parts for parts in layers if parts not in _ROLES]
        if wrong:
            listed = ", ".join(map(repr, wrong))
            raise Advice(f"layers names {listed}; your module has {_listed(module)}")
        return {parts: [path] for parts, path in layers.items()}
    places: dict[str, list[str]] = {}
    for path in candidates:
        if (role := _role(path)) is not None:
            places.setdefault(role, []).append(path)
    twice = {
        parts
        for parts, paths in places.items()
        if len(paths) > 1 and len({re.sub(r"\d+", "#", path) for path in paths}) > 1
    }
    lost = [p for p in candidates if _role(p) is None or _role(p) in twice]
    places = {parts: paths for parts, paths in places.items() if parts not in twice}
    if "".join(sorted("".join(places))) != "koqv" and call is not None:
        places |= _by_flow(module, lost, call, probe)
    if "".join(sorted("".join(places))) != "koqv" and (call is not None or twice):
        raise Advice(_LAYERS.format(found=_listed(module)))
    return places


def _candidates(module: nn.Module) -> list[str]:
    """Paths of linear layers and of bare matrices."""
    children = [
        path
        for path, child in module.named_modules()
        if path
        and isinstance(getattr(child, "weight", None), Tensor)
        and child.weight.dim() == 2
    ]
    return children + [
        path
        for path, x in module.named_parameters()
        if x.dim() in (2, 3)
        and path.rpartition(".")[0] not in children
        and x.numel() > x.shape[0] * x.shape[-1] * (x.dim() == 3)
        and not re.search(r"(^|\.|_)b(ias)?(_|$)", path)
    ]


def _weight(module: nn.Module, path: str) -> Tensor:
    parameters = dict(module.named_parameters())
    return parameters.get(path, parameters.get(f"{path}.weight"))


def _role(path: str) -> str | None:
    """The part that a name tells: "heads.0.to_q" -> "q"; None if it tells none."""
    for name in reversed(path.split(".")):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        words = re.sub(
            r"^([wb]|lin|to)(?=([qkvo]|qkv|queries|keys|values)$)", "", words
        )
        rest = [w for w in words.split("_") if not re.fullmatch(_NOISE, w)]
        for role, pattern in _ROLES.items():
            if re.fullmatch(pattern, "_".join(rest)):
                return role
    last = path.rsplit(".", 1)[-1].lower()
    return "o" if re.fullmatch(r"proj|projection|fc", last) else None


def _by_flow(module, paths: list[str], call, probe) -> dict[str, list[str]]:
    """Roles of layers without telling names, from which input reaches each of them."""
    seen: dict[str, str] = {}
    sums = {
        n[0]: probe["inputs"][n].double().flatten().sort()[0]
        for n in NAMES[probe["call"]]
    }

    def watch(path):
        def hook(_, arguments):
            flat = arguments[0].detach().double().flatten().sort()[0]
            same = [r for r, x in sums.items() if torch.equal(flat, x)]
            seen[path] = same[0] if same else "o"

        return hook

    modules = dict(module.named_modules())
    hooks = [
        modules[path].register_forward_pre_hook(watch(path))
        for path in paths
        if isinstance(modules.get(path), nn.Linear)
    ]
    try:
        _first_that_works(call, probe)
    finally:
        for hook in hooks:
            hook.remove()
    roles = list(seen.values())
    return {r: [p] for p, r in seen.items() if roles.count(r) == 1}


def _first_that_works(call: Callable, probe: dict) -> None:
    for way in _ways(probe).values():
        try:
            _observe(call, way(probe), {}, {})
            return
        except Exception:  # noqa: S112 (the real call will tell)
            continue


def _listed(module: nn.Module) -> str:
    return ", ".join(_candidates(module)) or "no matrices"
