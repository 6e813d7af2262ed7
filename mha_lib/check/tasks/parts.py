"""The probes of the parts: heads cut and merged, masks made and joined."""

import torch

from mha_lib.check.tasks.draw import (
    BYTES,
    ENDLESS,
    ENDLESS_KEYS,
    LONG,
    MANY,
    Draw,
    Probe,
    probe,
)

__all__ = ["causal_mask", "combine_masks", "heads", "padding_mask"]


def _probe(name: str, letters: str, sizes: dict, inputs: dict, **options) -> Probe:
    """A probe that has no other sizes than its task, so that none is named."""
    return probe(name, {x: sizes[x] for x in letters}, inputs, **options)


def heads(draw: Draw, merge: bool) -> list[Probe]:
    """Of `split_heads`, or of `merge_heads`."""

    def one(name, sizes, **options):
        B, T, H, D, E = (sizes[x] for x in "BTHDE")
        if merge:
            inputs = {"x": draw.normal(B, H, T, D)}
            return _probe(name, "BTHDE", sizes, inputs, **options)
        inputs = {"x": draw.normal(B, T, E), "num_heads": H}
        return _probe(name, "BTHDE", sizes, inputs, **options)

    plain = draw.sizes()
    turned = {"H": plain["D"], "D": plain["H"]}  # the same E, cut otherwise
    return [
        one("plain", plain, repeat=True),
        one("again", draw.sizes(**turned)),
        one("B = H", draw.sizes("BH")),
        one("T = H", draw.sizes("TH")),
        one("T = D", draw.sizes("TD")),
        one("one head", draw.sizes(H=1)),
        one("one token", draw.sizes(T=1)),
        one("one sequence", draw.sizes(B=1)),
        one("D = 1", draw.sizes(D=1)),
        one("one feature", draw.sizes(H=1, D=1)),
        one("many sequences", draw.sizes(B=LONG)),
        one("64 features", draw.wide()),
        one("long", draw.sizes(T=BYTES, H=range(17, 25))),
    ]


def causal_mask(draw: Draw) -> list[Probe]:
    """Of `causal_mask`."""

    def one(name, sizes, **options):
        return _probe(name, "TS", sizes, {x: sizes[x] for x in "TS"}, **options)

    def ordered(smaller, **ranges):
        """T and S of which the smaller is the one that is named."""
        sizes = draw.sizes(**ranges)
        larger = "TS".replace(smaller, "")
        return sizes | dict(zip((smaller, larger), sorted(sizes[x] for x in "TS")))

    few = ordered("T")
    return [
        one("plain", draw.sizes("TS"), repeat=True),
        one("T < S", few),
        one("T > S", few | {"T": few["S"], "S": few["T"]}),  # as many places
        one("one query", draw.sizes(T=1)),
        one("one key", draw.sizes(S=1)),
        one("long", ordered("T", T=BYTES, S=BYTES)),
        one("long with T > S", ordered("S", T=BYTES, S=BYTES)),
        # More keys than queries ever: a table that grows with T does not grow here.
        one("endless", ordered("T", T=range(17, 25), S=ENDLESS_KEYS)),
        one("endless with T > S", ordered("S", T=ENDLESS, S=range(17, 25))),
    ]


def padding_mask(draw: Draw) -> list[Probe]:
    """Of `padding_mask`."""

    def one(name, sizes, **given):
        lengths = draw.lengths(sizes["B"], sizes["S"], **given)
        if name == "empty":
            lengths[draw.pick(range(sizes["B"] - 1))] = 0
        if name == "long":  # more than a byte holds, and next to one another
            lengths = sizes["S"] - torch.arange(1, sizes["B"] + 1)
        return _probe(name, "BS", sizes, {"lengths": lengths, "S": sizes["S"]})

    return [
        one("plain", draw.sizes(), full=(draw.pick((0, -1)),)),
        one("B = S", draw.sizes("BS")),
        one("none full", draw.sizes(), full=()),
        one("empty", draw.sizes()),
        one("one sequence", draw.sizes(B=1)),
        one("one key", draw.sizes(S=1), least=0),
        one("many sequences", draw.sizes(B=LONG), full=(draw.pick((0, -1)),)),
        one("long", draw.sizes(B=MANY, S=ENDLESS), full=()),
    ]


def combine_masks(draw: Draw) -> list[Probe]:
    """Of `combine_masks`: two boolean tables, in the end of any kind."""

    def one(name, sizes):
        masks = draw.masks(sizes)
        inputs = {"causal": masks["causal"][0], "padding": masks["padding"][:, :1]}
        return _probe(name, "BTS", sizes, inputs)

    def any_tables(name, sizes):
        B, T, S = (sizes[x] for x in "BTS")
        inputs = {"causal": draw.table(T, S), "padding": draw.table(B, 1, S)}
        if name == "no padding":
            inputs["padding"][:] = True
        return _probe(name, "BTS", sizes, inputs)

    return [
        one("plain", draw.sizes()),
        one("square", draw.sizes("TS")),
        one("B = T", draw.sizes("BT", "TS")),
        any_tables("any tables", draw.sizes()),
        any_tables("any square", draw.sizes("TS", B=LONG)),
        any_tables("one query", draw.sizes(T=1)),
        any_tables("one key", draw.sizes(S=1)),
        any_tables("one sequence", draw.sizes(B=1)),
        any_tables("no padding", draw.sizes()),
        any_tables("long", draw.sizes(T=LONG, S=BYTES)),
    ]
