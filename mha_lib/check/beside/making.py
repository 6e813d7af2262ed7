"""From a submission to a call: make its class, find names for its arguments."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType

import torch
from torch import nn

from .find import OUT_IN, candidates_of, not_found, slot_of
from .ways import LAYERS, NAMES
from .words import NO_MASK, SQUARE_MASK, Advice, failure, located

HEAD_COUNT = (
    r"((num(ber)?|nb?|count)_?(of_?)?)?(att(entio)?n_?)?heads?(_?(num|count))?|h"
)
WEIGHTS = r"w|weights?|param(eter)?s?|state(_dict)?|matrices"
MEANT = {  # what an argument is for, by its name
    name: re.compile(pattern, re.I)
    for name, pattern in {
        **{x: f"{x[0]}.*" for names in NAMES.values() for x in names},
        "weights": WEIGHTS,
        "num_heads": HEAD_COUNT,
    }.items()
}
ROLES = (  # what a constructor's parameter is, by its name
    ("dropout", r".*drop.*"),
    ("bias", r".*bias.*"),
    ("H", HEAD_COUNT),
    ("D", r"d_?[kv]|.*head.*"),
    ("length", r".*(context|block_?size|max|len).*"),
    ("E", r"[de]|.*(dim|model|emb|hidden|width|size|_in|_out).*"),
)


def makes_layers(submission: object) -> bool:
    """Whether it is a class, or a functools.partial of one."""
    partial = isinstance(submission, functools.partial)
    return inspect.isclass(submission.func if partial else submission)


def unwrapped(submission: object) -> object:
    """What torch.compile has wrapped; the module of a partial that knows its sizes.

    Raises:
        Advice: such a module cannot be made, or its class is not told.
    """
    try:
        _ = submission.__class__  # which isinstance asks for, and may be theirs
    except (Exception, SystemExit) as error:
        raise Advice("no-class", error=failure(error)["error"]) from None
    for name in ("_orig_mod", "_torchdynamo_orig_callable"):
        inner = getattr(submission, name, None)
        submission = submission if inner is None else inner
    if isinstance(submission, functools.partial) and makes_layers(submission):
        heads = any(re.fullmatch(HEAD_COUNT, x, re.I) for x in submission.keywords)
        if submission.args or heads and not _needed(submission):
            return _made(submission, {})
    return submission


def is_lazy(module: nn.Module) -> bool:
    """Whether a layer waits for its first input to know its sizes."""
    return any(nn.parameter.is_lazy(x) for x in module.parameters())


def sizes(submission: object, num_heads: int | None = None) -> tuple[int, int] | None:
    """(E, H) of a module that exists already; None where the probes may choose.

    Raises:
        Advice: the module does not show its number of heads, or its layers.
    """
    if not isinstance(submission, nn.Module):
        return None
    if isinstance(submission, torch.jit.ScriptModule):
        raise Advice("scripted")
    H = num_heads
    if H is None:
        owners = [vars(module) for module in submission.modules()]
        found = _head_counts(owners)
        if not found:  # a config may know
            configs = (x for owner in owners for x in owner.values())
            found = _head_counts(map(_entries, configs))
        if len(found) != 1:
            raise Advice("unknown-heads", found=sorted(found) or "none")
        H = found.pop()
    if is_lazy(submission):
        raise Advice("lazy")
    candidates = candidates_of(submission)
    if not candidates:
        raise not_found(submission, [])
    E = _width(submission, candidates)
    if not 1 <= H <= E:
        raise Advice("wrong-heads", E=E, H=H)
    return E, H


def _head_counts(owners: Iterable[Mapping]) -> set[int]:
    """Numbers that are called like a number of heads."""
    return {
        value
        for owner in owners
        for name, value in owner.items()
        if re.fullmatch(HEAD_COUNT, str(name), re.I) and type(value) is int
    }


def _entries(config: object) -> Mapping:
    """Of a dictionary, or the attributes of an object; a class has none of its own."""
    if isinstance(config, Mapping):
        return config
    return {} if isinstance(config, type) else getattr(config, "__dict__", {})


def _width(module: nn.Module, candidates: list[str]) -> int:
    """E, read off the first matrix that tells it."""
    first, *_ = slots = [slot_of(module, path) for path in candidates]
    if isinstance(first.owner, OUT_IN):
        return first.shape[1]
    for slot in slots:
        *rest, rows, columns = slot.shape
        if rows == columns and len(rest) < 2:  # also one of a stack
            return rows
    return max(first.shape) if len(first.shape) > 2 else min(first.shape)


def construct(cls: Callable, probe: dict) -> object:
    """The class with the sizes of the probe, by name and by place."""
    layer = probe["call"] in LAYERS
    roles = roles_of(cls) if layer else _by_name(cls, (("D", r"d.*|.*(dim|size)"),))
    parameters, needed = _parameters(cls), _needed(cls)
    for name in needed:
        if name not in roles:
            raise Advice("wants-more", name=_name(cls), wants=name)
    dropout = probe["options"].get("dropout", 0.5)  # None leaves its default
    p = 0.5 if dropout is None else dropout
    values = probe["sizes"] | {"bias": True, "length": 1056, "dropout": p}
    asked = {"H"} if dropout is None else {"H", "dropout"}
    given: dict[str, object] = {}
    for name, role in roles.items():
        is_size = role in ("E", "length") and type(parameters[name].default) is int
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            given[name] = tuple(values[one] for one in role)
        elif name in needed or is_size or layer and role in asked:
            given[name] = values[role]
    return _made(cls, given)


def axes_of(cls: Callable, probe: dict) -> dict[str, str]:
    """The axes of what it keeps head by head: {"W": "ehnd"} of (E, H, 3, D)."""
    sizes = {"H": 5, "D": 7, "E": 35}
    letters = {2: "n", 3: "n", 5: "h", 7: "d", 35: "e"}
    try:
        twin = construct(cls, probe | {"sizes": probe["sizes"] | sizes})
    except Advice:  # the sizes of the probe will tell why
        return {}
    if not isinstance(twin, nn.Module) or is_lazy(twin):
        return {}
    axes = {
        name: "".join(letters.get(size, "?") for size in x.shape)
        for name, x in twin.named_parameters()
    }
    whole = {"de", "deh", "dehn"}
    return {n: found for n, found in axes.items() if "".join(sorted(found)) in whole}


def roles_of(cls: Callable) -> dict[str, str]:
    """What the parameters of a layer's class are: E, H, D, dropout, bias, length.

    Names that tell E and H are believed in any order. Else those that tell nothing are
    the missing ones in the order of the task, E and H; ``*sizes`` may be both. A letter
    tells nothing alone: h may be the heads, or the width of what is hidden.
    """
    roles = _by_name(cls, ROLES)
    if not {"E", "H"} <= {*roles.values()}:
        roles = {name: role for name, role in roles.items() if len(name) > 1}
    missing = [role for role in "EH" if role not in roles.values()]
    parameters = _parameters(cls)
    sizes = [name for name, x in parameters.items() if type(x.default) is int]
    untold = [name for name in (*_needed(cls), *sizes) if name not in roles]
    rest = [name for name, x in parameters.items() if x.kind is x.VAR_POSITIONAL]
    if rest and len(untold) < len(missing):
        roles[rest[0]] = "".join(missing[len(untold) :])
    if rest or len(untold) >= len(missing):
        roles |= dict(zip(untold, missing))
    return roles


def _by_name(cls: Callable, patterns: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The role that each name tells."""
    found = {
        name: _role(name, patterns)
        for name, x in _parameters(cls).items()
        if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
    }
    return {name: role for name, role in found.items() if role}


@functools.lru_cache(maxsize=64)  # each probe asks the same
def _role(name: str, patterns: tuple[tuple[str, str], ...]) -> str:
    """The first that fits; "" if none does."""
    return next((r for r, p in patterns if re.fullmatch(p, name, re.I)), "")


def signature_of(f: Callable) -> inspect.Signature:
    """Of a class it is asked for by each probe, and found out once."""
    if type(f) is type and type(f.__init__) is FunctionType:
        return _of_class(f, f.__init__, f.__new__)
    return inspect.signature(f)


@functools.lru_cache(maxsize=1)  # of the last one alone, as for `_named`
def _of_class(cls: type, *_: Callable) -> inspect.Signature:
    return inspect.signature(cls)


def _parameters(f: Callable) -> dict[str, inspect.Parameter]:
    return dict(signature_of(f).parameters)


def _needed(f: Callable) -> list[str]:
    """Names of the parameters without a default."""
    return [
        name
        for name, x in _parameters(f).items()
        if x.default is x.empty and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
    ]


def _name(cls: Callable) -> str:
    return getattr(cls, "func", cls).__name__  # of a partial, what it calls


def _made(cls: Callable, arguments: dict) -> object:
    try:
        if not arguments:
            return cls()
        call = signature_of(cls).bind_partial()
        call.arguments |= arguments
        return cls(*call.args, **call.kwargs)
    except (Exception, SystemExit) as error:
        given = ", ".join(f"{k}={v}" for k, v in arguments.items())
        raised = failure(error)
        said = located(raised["error"], raised.get("line", ""))
        raise Advice("not-made", name=_name(cls), given=given, error=said) from error


def bound(f: Callable, task: str, extra: tuple, target: Callable | None = None):
    """A function of the inputs alone: finds names for the arguments of ``f``."""
    own = _named(f)
    target = target or f
    wanted = (*NAMES[task], *("weights", "num_heads")[: len(extra)])
    whole = task in ("attention", *LAYERS)
    masks = sorted((x for x in own if whole and "mask" in x.lower()), key=_mask_rank)
    flags = [x for x in own if whole and "caus" in x.lower()]
    free = [x for x in own if x not in (*masks, *flags)]
    places = (whole and _told(tuple(free), wanted)) or dict(zip(wanted, free))
    masks = masks or [x for x in free if x not in places.values()]
    closed = whole and len(own) == len(wanted) and _takes_no_more(f)
    single = task == "causal_mask" and len(own) == 1

    def call(inputs: dict) -> object:
        if single:
            if inputs["T"] != inputs["S"]:
                raise Advice(SQUARE_MASK)
            return target(inputs["T"])
        values = zip(wanted, (*(inputs[n] for n in NAMES[task]), *extra))
        named, more = {}, []
        for name, value in values:
            if name in places:
                named[places[name]] = value
            else:  # more than it takes, as its error will tell
                more.append(value)
        for key, found in (("mask", masks), ("causality", flags)):
            if key in inputs and (key == "mask" or inputs[key] or found):
                if found:
                    named[found[0]] = inputs[key]
                elif key == "mask" and closed:
                    raise Advice(NO_MASK, name=_name(f))
                else:
                    more.append(inputs[key])
        arguments = []
        for name, kind in own.items():  # by place as far as that goes
            if name not in named or kind is inspect.Parameter.KEYWORD_ONLY:
                break
            arguments.append(named.pop(name))
        return target(*arguments, *more, **named)

    last = flags if task == "split_concat" else masks
    asked = [*(places[name] for name in wanted if name in places), *last[:1]]
    by_place = [
        x for x, kind in own.items() if kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    if asked != by_place[: len(asked)]:
        names = [*own][: 1 + max(map([*own].index, asked), default=0)]
        call.order = [x if x in by_place else f"{x} by keyword" for x in names]
    return call


def _named(f: Callable) -> dict[str, object]:
    """The parameters of f that have a name, and of which kind they are."""
    key = (getattr(f, "__func__", f), type(f))
    if type(key[0]) is FunctionType and key in _NAMED:  # it is asked for by each probe
        return _NAMED[key]
    try:
        theirs = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        theirs = ()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = {p.name: p.kind for p in theirs if p.kind not in variable}
    if type(key[0]) is FunctionType:
        _NAMED.clear()  # of the last one alone: a notebook defines them again and again
        _NAMED[key] = own
    return own


_NAMED: dict[tuple, dict[str, object]] = {}


def _takes_no_more(f: Callable) -> bool:
    """Whether its arguments have a name, each of them."""
    return len(_named(f)) == len(_parameters(f))


@functools.lru_cache(maxsize=16)  # each probe asks the same
def _told(names: tuple[str, ...], wanted: tuple[str, ...]) -> dict[str, str] | None:
    """Which of the names is meant for each input; None where they do not tell."""
    told = {}
    for one in wanted:
        fitting = [x for x in names if MEANT[one].fullmatch(x)]
        if len(fitting) != 1:
            return None
        (told[one],) = fitting
    return told


def _mask_rank(name: str) -> int:
    """Which of several masks is meant: mask, attn_mask, then any other."""
    return 0 if name == "mask" else 1 if name.startswith("att") else 2
