"""Numbers, tables and names in words."""

from collections.abc import Iterable, Sequence


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
    return test.split("::")[-1].removeprefix("test_").replace("_", " ")
