"""Numbers of a message as sizes: "5 is D, 15 is E"."""

import re
from collections.abc import Iterable, Mapping

__all__ = ["legend", "of_error", "of_numbers", "shape"]

PAIRS = ("BH", "BT", "BS")  # that code folds into one axis
NOT_A_SIZE = re.compile(r"(dim(ension)?|index|argument|element) #?-?\d+|\d+-?[dD]\b")
NUMBER = re.compile(r"(?<![\w.#-])\d+(?![\w.])")


def of_numbers(numbers: Iterable[int], sizes: Mapping[str, int]) -> str:
    """What each number is, once; "" where none is a size.

    Example:
        >>> from mha_lib.check.letters import of_numbers
        >>> sizes = {"B": 2, "T": 7, "S": 7, "H": 3, "D": 5, "E": 15}
        >>> of_numbers([2, 7, 15, 6, 45, 11], sizes)
        '2 is B, 7 is T = S, 15 is E, 6 is B·H, 45 is 3·E'
    """
    known = {n: _letters(n, sizes) for n in numbers if n > 1}
    return ", ".join(f"{n} is {name}" for n, name in known.items() if name)


def _letters(n: int, sizes: Mapping[str, int]) -> str:
    """Sizes as large as n; else the one product of them that is."""
    same = [letter for letter, size in sizes.items() if size == n]
    if same:
        return " = ".join(same)
    known = [pair for pair in PAIRS if {*pair} <= sizes.keys()]
    products = ["·".join(x) for x in known if sizes[x[0]] * sizes[x[1]] == n]
    products += ["3·E"] * (3 * sizes.get("E", 0) == n)
    return products[0] if len(products) == 1 else ""


def shape(got: tuple[int, ...], sizes: Mapping[str, int]) -> str:
    """A shape, and what its numbers are."""
    named = of_numbers(got, sizes)
    return f"{got}, where {named}" if named else f"{got}"


def of_error(text: str, sizes: Mapping[str, int]) -> str:
    """What the sizes in a message of torch are."""
    text = re.sub(r"(?<=\d)x(?=\d)", " ", NOT_A_SIZE.sub("", text))
    return of_numbers(map(int, NUMBER.findall(text)), sizes)


def legend(text: str, sizes: Mapping[str, int]) -> str:
    """The same as a sentence to be put behind the message; "" where it tells nothing.

    Example:
        >>> from mha_lib.check.letters import legend
        >>> text = "mat1 and mat2 shapes cannot be multiplied (14x5 and 15x3)"
        >>> legend(text, {"B": 2, "T": 7, "H": 3, "D": 5, "E": 15})
        ' Here 14 is B·T, 5 is D, 15 is E, 3 is H.'
    """
    named = of_error(text, sizes)
    return f" Here {named}." if named else ""
