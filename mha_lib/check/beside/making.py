"""From a submission to a call: make its class, find names for its arguments."""

import functools
import inspect
import re
from collections.abc import Callable

from torch import nn

from .find import OUT_IN, candidates_of, in_words, slot_of
from .ways import LAYERS, NAMES
from .words import SQUARE_MASK, Advice, failure, located

HEAD_COUNT = (
    r"((num(ber)?|nb?|count)_?(of_?)?)?(att(entio)?n_?)?heads?(_?(num|count))?|h"
)
WEIGHTS = r"w|weights?|param(eter)?s?|state(_dict)?|matrices"
WIDTH = r"[de]|.*(dim|model|emb|hidden|width|size|_in|_out).*"


def makes_layers(submission: object) -> bool:
    """Whether it is a class, or a functools.partial of one."""
    partial = isinstance(submission, functools.partial)
    return inspect.isclass(submission.func if partial else submission)


def unwrapped(submission: object) -> object:
    """What torch.compile has wrapped; the module of a partial that knows its sizes.

    Raises:
        Advice: such a module cannot be made.
    """
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
            raise Advice("unknown-heads", found=sorted(found) or "none")
        H = found.pop()
    if is_lazy(submission):
        raise Advice("lazy")
    candidates = candidates_of(submission)
    if not candidates:
        raise Advice("layers-not-found", found=in_words([]))
    E = _width(submission, candidates)
    if not 1 <= H <= E:
        raise Advice("wrong-heads", E=E, H=H)
    return E, H


def _width(module: nn.Module, candidates: list[str]) -> int:
    """E, read off the first matrix that tells it."""
    first, *_ = slots = [slot_of(module, path) for path in candidates]
    if isinstance(first.owner, OUT_IN):
        return first.shape[1]
    for slot in slots:
        if slot.shape[-1] == slot.shape[-2]:  # also one of a stack
            return slot.shape[-1]
    if len(first.shape) == 3:  # (H, E, D)
        return round(first.shape.numel() ** 0.5)
    return min(first.shape)


def construct(cls: Callable, probe: dict) -> object:
    """The class with the sizes of the probe, by the names of its parameters."""
    sizes = probe["sizes"]
    if probe["call"] not in LAYERS:
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
    needed = _needed(cls)
    for name, parameter in inspect.signature(cls).parameters.items():
        value = next((v for p, v in values if re.fullmatch(p, name, re.I)), None)
        if name in needed and value is None:
            raise Advice("wants-more", name=_name(cls), wants=name)
        ours = "drop" in name.lower() or re.fullmatch(HEAD_COUNT, name, re.I)
        if type(parameter.default) is int and value == sizes["E"]:
            ours = True  # a width that has a default
        if name in needed or ours:
            arguments[name] = value
    return _made(cls, arguments)


def _needed(f: Callable) -> list[str]:
    """Names of the parameters without a default."""
    return [
        name
        for name, x in inspect.signature(f).parameters.items()
        if x.default is x.empty and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
    ]


def _name(cls: Callable) -> str:
    return getattr(cls, "func", cls).__name__  # of a partial, what it calls


def _made(cls: Callable, arguments: dict) -> object:
    try:
        return cls(**arguments)
    except (Exception, SystemExit) as error:
        given = ", ".join(f"{k}={v}" for k, v in arguments.items())
        raised = failure(error)
        said = located(raised["error"], raised.get("line", ""))
        raise Advice("not-made", name=_name(cls), given=given, error=said) from error


def bound(f: Callable, task: str, extra: tuple, target: Callable | None = None):
    """A function of the inputs alone: finds names for the arguments of ``f``."""
    try:
        theirs = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        theirs = ()
    own = {
        p.name: p.kind
        for p in theirs
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    target = target or f
    wanted = (*NAMES[task], *("weights", "num_heads")[: len(extra)])
    whole = task in ("attention", *LAYERS)
    masks = sorted((x for x in own if whole and "mask" in x.lower()), key=_mask_rank)
    flags = [x for x in own if whole and "caus" in x.lower()]
    free = [x for x in own if x not in (*masks, *flags)]
    places = (whole and _told(free, wanted)) or dict(zip(wanted, free))
    masks = masks or [x for x in free if x not in places.values()]
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
                else:
                    more.append(inputs[key])
        arguments = []
        for name, kind in own.items():  # by place as far as that goes
            if name not in named or kind is inspect.Parameter.KEYWORD_ONLY:
                break
            arguments.append(named.pop(name))
        return target(*arguments, *more, **named)

    return call


def _told(names: list[str], wanted: tuple[str, ...]) -> dict[str, str] | None:
    """Which of the names is meant for each input; None where they do not tell."""
    patterns = {"weights": WEIGHTS, "num_heads": HEAD_COUNT}
    told = {}
    for one in wanted:
        pattern = patterns.get(one, f"{one[0]}.*")
        fitting = [x for x in names if re.fullmatch(pattern, x, re.I)]
        if len(fitting) != 1:
            return None
        (told[one],) = fitting
    return told


def _mask_rank(name: str) -> int:
    """Which of several masks is meant: mask, attn_mask, then any other."""
    return 0 if name == "mask" else 1 if name.startswith("att") else 2
