"""Numbers, tables and names in words."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as Markdown has it."""
    lines = [header, [":--"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def power(number: float) -> str:
    """9e-16 as "9 · 10⁻¹⁶", with spaces at which no line breaks; 0 as "none"."""
    if not number:
        return "none"
    digit, exponent = f"{number:.0e}".split("e")
    superscript = str(int(exponent)).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )
    return f"{digit}\u00a0·\u00a010{superscript}"


def sentence(test: str) -> str:
    """The name of a test, which says what it holds, in words."""
    name = test.split("::")[-1].removeprefix("test_")
    return name.replace("torchs_", "torch’s_").replace("_", " ")


def which_of(known: dict[str, Tensor], tensor: Tensor | None) -> str:
    """The name of the known tensor that it is."""
    if tensor is None:
        return "not returned"
    if tensor.isnan().all():
        return "NaN"
    found = [
        name
        for name, value in known.items()
        # some compute in float32, whatever comes in
        if torch.allclose(tensor, value.to(tensor), rtol=1e-5, atol=1e-5)
    ]
    assert len(found) == 1, f"neither NaN nor {' nor '.join(known)}: {tensor}"
    return found[0]
