"""Where a module keeps its weights: by mapping, name, shape or what flows in."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode

from .ways import NAMES, try_ways
from .words import Advice

PARTS = r"(?!.*(.).*\1)[qkvo]+"  # each once
OUT_IN = (nn.Linear, nn.Conv1d, nn.Conv2d)  # whose weights are (out, in)
BIAS = r"(^|\.|_)b(ias(es)?)?(_|\.|$)"
_OLD = ("weight_g", "weight_orig")  # of torch.nn.utils.weight_norm and spectral_norm
_NOISE = (
    r"w|weights?|b|bias|to|lin|linear|fc|proj|projection|layers?|dense|matrix|conv(1d)?"
)
_ROLES = {
    "o": r"o|out|output|c|concat|unify|unifyheads|merge|final|mix",
    "qkv": r"in|attn|c_attn",
}
_QKV = {
    "q": r"q|qs|query|queries",
    "k": r"k|ks|keys?",
    "v": r"v|vs|values?",
}
_BESIDE = r"c|h|net|fused|packed|all|att|attn|attention|self|multi|heads?|mha|in(put)?"


@dataclass
class Slot:
    """A place for a matrix: an attribute of a module, perhaps parametrized."""

    owner: nn.Module
    name: str
    path: str

    @property
    def shape(self) -> torch.Size:
        """Without the kernel of a convolution over one token."""
        shape = getattr(self.owner, self.name).shape
        return shape[:2] if isinstance(self.owner, OUT_IN) else shape

    @property
    def leaf(self) -> Tensor:
        """What an optimizer would move."""
        if is_parametrized(self.owner, self.name):
            return [*self.owner.parametrizations[self.name].parameters()][-1]
        return getattr(self.owner, self.name)

    def put(self, value: Tensor) -> None:
        """Write the matrix; one that is computed has to come out as it was put in."""
        there = getattr(self.owner, self.name)
        if there.shape[value.dim() :].numel() > 1:
            kernel = " × ".join(map(str, there.shape[value.dim() :]))
            raise Advice("wide-kernel", path=self.path, kernel=kernel)
        value = value.reshape(there.shape)
        if not is_parametrized(self.owner, self.name):
            there.data.copy_(value)
            old = [x for x in vars(self.owner)["_parameters"] if x in _OLD]
            kept = not old
        else:
            with torch.no_grad():
                setattr(self.owner, self.name, value)
                there = getattr(self.owner, self.name)
            slack = 1e-5 if value.dtype == torch.float32 else 1e-2
            kept = value.is_meta or torch.allclose(there, value, slack, slack)
        if not kept:
            raise Advice("computed-weights", path=self.path)


def slot_of(module: nn.Module, path: str) -> Slot:
    """The weight of a layer, or a bare matrix."""
    above, _, name = path.rpartition(".")
    owner = module.get_submodule(above)
    if name in owner._parameters:
        return Slot(owner, name, path)
    return Slot(module.get_submodule(path), "weight", path)


def places_of(module, layers=None, call=None, probe=None) -> dict[str, list[str]]:
    """Paths of what holds each part, by mapping, by name or by what flows in."""
    candidates = candidates_of(module)
    if layers is not None:
        known = [*candidates, *dict(module.named_parameters())]
        wrong = [path for path in layers.values() if path not in known]
        wrong += [x for x in layers if not re.fullmatch(PARTS, x)]
        if wrong:
            listed = ", ".join(map(repr, wrong))
            raise Advice("layers-misnamed", wrong=listed, found=in_words(candidates))
        return {parts: [path] for parts, path in layers.items()}
    places: dict[str, list[str]] = {}
    for path in candidates:
        if (role := role_of(path)) is not None:
            places.setdefault(role, []).append(path)
    if call is not None and any(
        p != "".join(sorted(p, key="qkvo".index)) for p in places
    ):
        raise not_found(module, candidates)  # a name is no proof
    twice = {parts for parts, paths in places.items() if not _alike(paths)}
    lost = [p for p in candidates if role_of(p) is None or role_of(p) in twice]
    places = {parts: paths for parts, paths in places.items() if parts not in twice}
    if not _complete(places) and call is not None:
        places |= _by_shape(module, lost, places)
        lost = [p for p in lost if [p] not in places.values()]
    if not _complete(places) and call is not None:
        places |= _by_flow(module, lost, call, probe)
    if not _complete(places) and call is not None:  # names may mislead
        places = _by_flow(module, candidates, call, probe)
    if not _complete(places) and (call is not None or twice):
        raise not_found(module, candidates)
    return places


def not_found(module: nn.Module, candidates: list[str]) -> Advice:
    """Why a part has no place: its layers stand where torch does not look, perhaps."""
    for child in module.modules():
        for name, kept in vars(child).items():
            items = [*kept.values()] if type(kept) is dict else kept
            if name.startswith("_") or not isinstance(items, (list, tuple)):
                continue
            for kind, cure in ((nn.Module, "Module"), (nn.Parameter, "Parameter")):
                if items and all(isinstance(x, kind) for x in items):
                    end = "Dict({…})" if type(kept) is dict else "List([…])"
                    plain = {"kind": type(kept).__name__, "cure": cure + end}
                    return Advice("layers-hidden", name=name, **plain)
    if names := _of_one_layer(module):
        return Advice("one-layer-for-two", names=" and ".join(names))
    return Advice("layers-not-found", found=in_words(candidates))


def _of_one_layer(module: nn.Module) -> list[str]:
    """The names of a layer that has those of several parts; empty if none has."""
    names: dict[int, list[str]] = {}
    for path, child in module.named_modules(remove_duplicate=False):
        if path and role_of(path) is not None:
            names.setdefault(id(child), []).append(path)
    return next((x for x in names.values() if len({*map(role_of, x)}) > 1), [])


def one_for_all(module: nn.Module) -> Advice | None:
    """What to say of a list that holds one layer again and again; None if none does."""
    for path, child in module.named_modules():
        kept = [*child._modules.values()] if isinstance(child, nn.ModuleList) else []
        if len(kept) > 1 and len({*map(id, kept)}) == 1:
            return Advice("one-layer-for-all", name=path, times=len(kept))
    return None


def for_all_heads(module: nn.Module, places: dict[str, list[str]]) -> dict:
    """The places with as many heads as the module has now.

    Paths were found with another number of heads, perhaps with one. Parts that differ
    in a number alone, such as layers.0 and layers.1 for q and k, are no heads.
    """
    patterns = [_pattern(paths[0]) for paths in places.values()]
    candidates = sorted(candidates_of(module), key=_numbers)
    grown = {}
    for parts, paths in places.items():
        pattern = _pattern(paths[0])
        shape = slot_of(module, paths[0]).shape
        whole = len(shape) > 2 or shape.numel() == len(parts) * min(shape) ** 2
        own = patterns.count(pattern) == 1 and (len(paths) > 1 or not whole)
        same = [path for path in candidates if _pattern(path) == pattern]
        grown[parts] = (own and same) or paths
    return grown


def _pattern(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _alike(paths: list[str]) -> bool:
    """Whether they differ in numbers alone: one for each head."""
    return len({*map(_pattern, paths)}) == 1


def _numbers(path: str) -> list[int]:
    """In its name; head 10 comes after head 9."""
    return [int(number) for number in re.findall(r"\d+", path)]


def _complete(places: dict[str, list[str]]) -> bool:
    return "".join(sorted("".join(places))) == "koqv"


def _by_shape(module, paths: list[str], known: dict) -> dict[str, list[str]]:
    """What only one matrix can be: three times as long as wide, or three in a stack."""
    found: dict[str, list[str]] = {}
    for path in paths:
        shape = slot_of(module, path).shape
        parts = {3: "qkv", 4: "qkvo"}.get(shape[0] if len(shape) == 3 else 0)
        if len(shape) == 2 and max(shape) == 3 * min(shape):
            parts = "qkv"
        if _of_parts(shape) == 3:
            parts = "qkv"
        if parts and (len(shape) != 3 or shape[1] == shape[2]):
            found.setdefault(parts, []).append(path)
    if len(found) != 1 or len(*found.values()) != 1:
        return {}
    ((parts, (path,)),) = found.items()
    if set(parts) & set("".join(known)):
        return {}
    rest = [p for p in paths if p != path]
    if parts == "qkv" and "o" not in known and len(rest) == 1:
        found["o"] = rest
    return found


def candidates_of(module: nn.Module) -> list[str]:
    """Paths of linear layers and of bare matrices, also one for each head and part."""
    children = [
        path
        for path, child in module.named_modules()
        if path
        and isinstance(getattr(child, "weight", None), Tensor)
        and (child.weight.dim() == 2 or _one_token(child))
    ]
    return children + [
        path
        for path, x in module.named_parameters()
        if (x.dim() in (2, 3) or _of_parts(x.shape))
        and path.rpartition(".")[0] not in children
        and ".parametrizations." not in f".{path}"
        and x.numel() > x.shape[0] * x.shape[-1] * (x.dim() == 3)
        and not re.search(BIAS, path)
    ]


def _of_parts(shape: torch.Size) -> int:
    """How many parts one cube (E, H, 3, D) holds, in any order of its axes."""
    square = max(shape, default=0) ** 2
    held = (n for n in (2, 3) if len(shape) == 4 and n * square == shape.numel())
    return next(held, 0)


def _one_token(child: nn.Module) -> bool:
    """A convolution that looks at one place is a linear layer."""
    convolution = isinstance(child, (nn.Conv1d, nn.Conv2d))
    return convolution and child.groups == 1 and {*child.kernel_size} == {1}


def in_words(candidates: list[str]) -> str:
    """The paths, one after the other."""
    return ", ".join(candidates) or "no matrices"


@functools.lru_cache(maxsize=4096)
def role_of(path: str) -> str | None:
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
        rest = [w for w in rest if not re.fullmatch(_BESIDE, w)]
        parts = "".join(map(_letters, rest))
        if parts and re.fullmatch(PARTS, parts):
            return parts
    last = path.rsplit(".", 1)[-1].lower()
    return "o" if re.fullmatch(r"proj|projection|fc", last) else None


def _letters(word: str) -> str:
    """The parts that a word names: q of queries, kqv of kqv; "?" of any other."""
    for letter, pattern in _QKV.items():
        if re.fullmatch(pattern, word):
            return letter
    return word.rstrip("s") if re.fullmatch(r"[qkv]{2,3}s?", word) else "?"


class _Meetings(TorchFunctionMode):
    """Notes which input each bare matrix meets first; "o" where it is none of them."""

    def __init__(self, matrices: dict[str, Tensor], part_of: Callable) -> None:
        super().__init__()
        self.paths = {_storage(x): path for path, x in matrices.items()}
        self.part_of, self.seen = part_of, {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Let every function do its work."""
        flat = [*args, *(kwargs or {}).values()]
        flat += [y for x in flat if isinstance(x, (tuple, list)) for y in x]
        tensors = [x for x in flat if isinstance(x, Tensor) and x.dim() > 1]
        met = [x for x in tensors if _storage(x) in self.paths]
        others = [x for x in tensors if _storage(x) not in self.paths]
        if len(met) == 1 and others:
            self.seen.setdefault(self.paths[_storage(met[0])], self.part_of(others[0]))
        return func(*args, **(kwargs or {}))


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _by_flow(module, paths: list[str], call, probe) -> dict[str, list[str]]:
    """Roles of layers without telling names, from which input reaches each of them."""
    seen: dict[str, str] = {}
    sums = {
        n[0]: probe["inputs"][n].double().flatten().sort()[0]
        for n in NAMES[probe["call"]]
    }

    def part_of(x: Tensor) -> str:
        flat = x.detach().double().flatten().sort()[0]
        return next((r for r, y in sums.items() if torch.equal(flat, y)), "o")

    def watch(path):
        def hook(_, arguments):
            seen[path] = part_of(arguments[0])

        return hook

    modules = dict(module.named_modules())
    hooks = [
        modules[path].register_forward_pre_hook(watch(path))
        for path in paths
        if isinstance(modules.get(path), OUT_IN)
    ]
    bare = {n: x for n, x in module.named_parameters() if n in paths}
    try:
        with _Meetings(bare, part_of) as meetings:
            try_ways(call, probe)
    finally:
        for hook in hooks:
            hook.remove()
    seen |= meetings.seen
    found: dict[str, list[str]] = {}
    for path in sorted(seen, key=_numbers):
        found.setdefault(seen[path], []).append(path)
    return {role: same for role, same in found.items() if _alike(same)}
