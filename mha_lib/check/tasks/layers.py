"""The probes of attention itself and of whole layers."""

from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.check.tasks.draw import FAR, LONG, MANY, Draw, Probe, probe

__all__ = ["attention", "mha", "split_concat"]

FEW = {"H": range(2, 4), "D": range(3, 6), "T": range(3, 7)}  # for the first look
MANY_WIDE = {"B": MANY, "D": range(9, 13)}
FEW_LONG = {"B": range(2, 5), "H": range(2, 4), "T": LONG, "S": LONG}  # for loops
MANY_HEADS = {"B": range(5, 7), "H": range(17, 19), "D": range(10, 12)}
TEXTS = MANY_HEADS | {"T": range(17, 22), "S": range(17, 22)}
SHORT = {"B": 1, "H": range(2, 4), "D": range(2, 5)}
MANY_KEYS = SHORT | {"T": range(2, 5), "S": FAR}
MANY_QUERIES = SHORT | {"T": FAR, "S": range(5, 9)}
ONE_QUERY = SHORT | {"B": LONG, "T": 1, "S": range(3, 7)}
EXTREME = (  # of these a size is smaller or larger than elsewhere
    *("one query", "one key", "one sequence", "one head", "D = 1", "64 features"),
    *("many sequences", "many texts", "many keys", "many queries", "long"),
    *("one query of few", "more sequences", "one narrow head"),
)
CUBE = range(3, 6)  # a table of 2 × 2 × 2 is often its own transpose
WIDE_HEAD = range(65, 73)

MAP = range(9, 14)  # features that can hold two maps of four keys, side by side


def _ordinary(one: Callable[..., Probe], draw: Draw) -> list[Probe]:
    """What `attention` and a layer begin with: `one` makes a probe."""
    return [
        one("plain", sizes=draw.sizes(**FEW), repeat=True),
        one("square", sizes=draw.sizes("TS")),
        one("T = H", sizes=draw.sizes("TH")),
        one("holes", "holes", repeat=True),
        one("causal", "causal", draw.sizes("TS")),
        one("padding", "padding", draw.sizes(B=MANY)),
        one("left padding", "left padding", draw.sizes("TS")),
        one("B = H", "holes", draw.sizes("BH", "TS")),
        one("one query", "holes", draw.sizes(**ONE_QUERY)),
        one("one key", sizes=draw.sizes(S=1)),
        one("one sequence", "holes", draw.sizes(B=1, H=MANY)),
        one("64 features", "causal", draw.wide()),
    ]


def _apart(one: Callable[..., Probe], draw: Draw) -> list[Probe]:
    """Sizes that go with another extreme one before; each of them alone."""
    found = [
        one("one query of few", "holes", draw.sizes(T=1)),
        one("more sequences", sizes=draw.sizes(B=LONG)),
    ]
    if not draw.fixed:
        found.append(one("one narrow head", "holes", draw.sizes(H=1)))
    return found


def _twins(probes: list[Probe], shape: str) -> list[Probe]:
    """The extreme ones without their mask, or with one that hides nothing.

    So a fault of a size is told from one of a mask.

    Args:
        probes: of the task.
        shape: of a mask, in letters and ones.
    """
    found = []
    for each in probes:
        if each["name"] not in EXTREME:
            continue
        inputs, masked = dict(each["inputs"]), "mask" in each["inputs"]
        if masked:
            del inputs["mask"]
        else:
            sizes = {"1": 1, **each["sizes"]}
            inputs["mask"] = torch.ones([sizes[x] for x in shape], dtype=torch.bool)
        name = f"{each['name']}, {'no mask' if masked else 'all seen'}"
        found.append(probe(name, each["sizes"], inputs, each["weights"]))
    return found


def _alike(sizes: dict[str, int]) -> dict[str, int]:
    """T and S are B, too: no shape tells which axis is which."""
    return sizes | dict.fromkeys("TS", sizes["B"])


def _cast(one: Callable[..., Probe]) -> list[Probe]:
    """What asks for gradients, another dtype and another device."""
    return [
        one("gradient", "holes", grad=True),
        one("half", "holes", dtype="float16"),
        one("device", "holes", device="meta"),
    ]


def attention(draw: Draw) -> list[Probe]:
    """Of `attention`."""

    def one(name, mask=None, sizes=None, **options):
        s = dict(sizes or draw.sizes())
        few = range(22, 27) if s["T"] > 16 and s["S"] > 16 else range(2, 10)
        s.setdefault("V", draw.pick(few, s.values()))
        B, T, S, H, D, V = (s[x] for x in "BTSHDV")
        inputs = {
            "q": draw.normal(B, H, T, D, scale=1.2),
            "k": draw.normal(B, H, S, D, scale=1.2),
            "v": draw.normal(B, H, S, V),
        }
        if name == "one query":  # scores so near to 0 that a fill must not be
            inputs["q"] *= 0.01
        if mask is not None:
            inputs["mask"] = draw.masks(s)[mask][:, None]
            key = inputs["k"][..., _seen(mask), :]  # its score, allowed, is exactly 0
            key[:] = 0.0
            if mask == "holes":  # of a key that is none
                key[..., :2] = torch.tensor([1.0, -1.0])
                inputs["q"][..., 1] = inputs["q"][..., 0]
        return probe(name, s, inputs, **options)

    def low():
        """All scores are one number, which no fill may come near."""
        found = one("low scores", "holes")
        q, k = found["inputs"]["q"], found["inputs"]["k"]
        q[:] = found["sizes"]["D"] ** -0.25
        k[:] = draw.low() * q[0, 0, 0]
        return found

    def reveal():
        s = draw.sizes() | {"V": draw.pick(MAP)}
        plain = one("reveal", sizes=s)
        values = _one_hot(s["S"], s["V"], draw.dtype)
        plain["inputs"]["v"] = values.expand(s["B"], s["H"], -1, -1).clone()
        return plain

    probes = [
        *_ordinary(one, draw),
        one("one head", "holes", draw.sizes(H=1, D=WIDE_HEAD)),
        one("D = 1", sizes=draw.sizes(D=1) | {"V": 1}),
        one("empty row", "empty", draw.sizes(B=range(3, 6))),
        reveal(),
        *_cast(one),
        low(),
        one("all seen", "open"),
        one("B = T = S", "holes", _alike(draw.sizes("BH", "TS", H=CUBE))),
        one("many sequences", sizes=draw.sizes(**MANY_WIDE, T=range(17, 25))),
        one("many texts", "holes", draw.sizes(**TEXTS)),
        one("many keys", "left padding", draw.sizes(**MANY_KEYS)),
        one("many queries", "holes", draw.sizes(**MANY_QUERIES)),
        one("long", "holes", draw.sizes(**FEW_LONG)),
        *_apart(one, draw),
    ]
    return probes + _twins(probes, "B1TS")


def _one_hot(S: int, width: int, dtype: torch.dtype) -> Tensor:
    """Values (S, width) that turn the context into the map, twice if it fits."""
    times = min(2, width // S)
    values = torch.zeros(S, width, dtype=dtype)
    values[:, : times * S] = torch.eye(S, dtype=dtype).repeat(1, times)
    return values


def _seen(mask: str) -> int:
    """A key that every query sees."""
    return -1 if mask == "left padding" else 0


def mha(draw: Draw, sequence_first: bool = False) -> list[Probe]:
    """Of `mha`, or of `mha_sequence_first`."""

    def one(name, mask=None, sizes=None, **options):
        s = sizes or draw.sizes()
        B, T, S, E = (s[x] for x in "BTSE")
        inputs = {"query": draw.normal(B, T, E)}
        inputs |= {name: draw.normal(B, S, E) for name in ("key", "value")}
        weights = draw.weights(E)
        if mask is not None:
            inputs["mask"] = draw.masks(s)[mask]
            key = inputs["key"][:, _seen(mask)]  # its score, allowed, is exactly 0
            key[:] = 0.0
            weights["b_k"][:] = 0.0
            if mask == "holes":  # of a key that is none
                key[:, 0] = 1.0
                weights["b_k"] -= weights["W_k"][:, 0]
        return probe(name, s, inputs, weights, **options)

    def reveal(name, **options):
        s = draw.sizes(D=MAP, S=4)
        found = one(name, sizes=s, **options)
        values = _one_hot(s["S"], s["D"], draw.dtype).repeat(1, s["H"])  # (S, E)
        found["inputs"]["value"] = values.expand(s["B"], -1, -1).clone()
        eye, zero = torch.eye(s["E"], dtype=draw.dtype), torch.zeros(s["E"])
        for role in "vo":
            found["weights"][f"W_{role}"] = eye.clone()
            found["weights"][f"b_{role}"] = zero.to(draw.dtype)
        return found

    def low():
        """All scores are one number, which no fill may come near."""
        found = one("low scores", "holes")
        x, W = found["inputs"], found["weights"]
        H, D = found["sizes"]["H"], found["sizes"]["D"]
        x["query"][:] = x["key"][:] = x["query"][0, 0]
        W["b_q"][:] = W["b_k"][:] = 0.0
        heads = W["W_q"].double().unflatten(0, (H, D))
        lengths = (heads @ x["query"][0, 0].double()).norm(dim=-1)[:, None, None]
        heads = (heads / lengths * D**0.25).flatten(0, 1)
        W["W_q"], W["W_k"] = (y.to(draw.dtype) for y in (heads, draw.low() * heads))
        return found

    probes = [
        *_ordinary(one, draw),
        one("empty row", "empty", draw.sizes(B=range(3, 6))),
        *_cast(one),
    ]
    if not draw.fixed:
        probes.append(one("one head", "holes", draw.sizes(H=1, D=WIDE_HEAD)))
        probes.append(one("D = 1", sizes=draw.sizes(D=1)))
    if not draw.fixed or draw.own["D"] >= 8:
        probes += [reveal("reveal"), reveal("training", train=True, dropout=0.5)]
    probes += [
        low(),
        one("all seen", "open"),
        one("B = T = S", "holes", _alike(draw.sizes("BH", "TS", H=CUBE))),
        one("many sequences", sizes=draw.sizes("TS", **MANY_WIDE, S=range(17, 25))),
        one("many texts", "holes", draw.sizes(**TEXTS)),
        one("many keys", "left padding", draw.sizes(**MANY_KEYS)),
        one("many queries", "holes", draw.sizes(**MANY_QUERIES)),
        one("long", "holes", draw.sizes(**FEW_LONG)),
        *_apart(one, draw),
    ]
    probes += _twins(probes, "BTS")
    if sequence_first:
        for x in probes:
            for name, tensor in x["inputs"].items():
                order = (1, 2, 0) if name == "mask" else (1, 0, 2)
                x["inputs"][name] = tensor.permute(order).contiguous()
    return probes


def split_concat(draw: Draw) -> list[Probe]:
    """Of `split_concat`: its masks come from the keys, and from the causality."""

    def one(name, causality=False, padding=None, sizes=None, empty=False, **options):
        """`padding` says how to draw it; nothing is padded where it is None."""
        s = sizes or draw.sizes()
        B, T, S, E = (s[x] for x in "BTSE")
        queries, keys = draw.normal(B, T, E), draw.normal(B, S, E)
        if padding is not None:
            keys[~draw.real(B, S, least=2, **padding)] = 0.0
            queries[~draw.real(B, T, least=2, **padding)] = 0.0
        if padding == RIGHT:
            keys[:, 1, 0] = -keys[:, 1, 1:].sum(-1)  # real, though its sum is 0
            keys[:, 0] *= 1e-6  # as these are
            keys[:, 0, 0] = 0.0
        if empty:
            keys[-1, 0] = 0.0
        inputs = {"queries": queries, "keys": keys, "causality": causality}
        return probe(name, s, inputs, draw.weights(E), **options)

    probes = [
        one("plain", sizes=draw.sizes(**FEW), repeat=True),
        one("square", sizes=draw.sizes("TS")),
        one("T = H", sizes=draw.sizes("TH")),
        one("causal", True, sizes=draw.sizes("TS")),
        one("causal, T ≠ S", True),
        one("padding", padding=RIGHT, sizes=draw.sizes(B=MANY)),
        one("B = H", True, RIGHT, draw.sizes("BH", "TS")),
        one("empty row", True, RIGHT, empty=True),
        one("one query", sizes=draw.sizes(T=1)),
        one("one key", sizes=draw.sizes(S=1)),
        one("one sequence", True, RIGHT, draw.sizes(B=1, H=MANY)),
        one("gradient", True, RIGHT, grad=True),
        one("half", True, RIGHT, dtype="float16"),
        one("device", True, RIGHT, device="meta"),
        # In sequence 0, not in the last; without causality though T = S; no sum is 0.
        one("padding, T = S", padding=LEFT, sizes=draw.sizes("TS")),
    ]
    if not draw.fixed:
        probes.append(one("one head", True, RIGHT, draw.sizes(H=1)))
        probes.append(one("D = 1", sizes=draw.sizes(D=1)))
    return [
        *probes,
        one("many sequences", sizes=draw.sizes("TS", **MANY_WIDE, S=range(17, 25))),
        one("many keys", sizes=draw.sizes(**MANY_KEYS)),
        one("many queries", padding=RIGHT, sizes=draw.sizes(**MANY_QUERIES)),
        one("long", True, RIGHT, draw.sizes(**FEW_LONG)),
    ]


RIGHT: dict[str, object] = {"full": (-1,)}
LEFT: dict[str, object] = {"left": True, "full": (0,)}
