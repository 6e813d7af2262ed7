"""What failures give away: of one call its message, of several the sizes they had."""

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import combinations

from mha_lib.check.beside import OTHER_SHAPE, SQUARE_MASK, located
from mha_lib.check.letters import legend, of_numbers
from mha_lib.check.search import Case
from mha_lib.check.words import Fact

OF_TORCH = {  # what its messages give away
    "fill-overflows-half": r"without overflow",
    "constant-device": r"same device|expected device",
    "constant-dtype": r"same dtype|expected scalar type",
}
WHOLE = " A size is a whole number: E // num_heads is one, E / num_heads is none."
FIRST_AXIS = (
    " q[t] is a place of the first axis, the batch; the last but one has the queries, "
    "so that q[..., t, :] is one of them."
)
ANY_AXES = " @ multiplies stacks of matrices, however many axes stand before the two."
HINTS = {  # and what they ask for in words of their own
    r"view size is not compatible": " What a transpose returns has its numbers in "
    "another order than memory has: reshape copies them where view cannot.",
    r"before Module.__init__\(\) call": " The first line of __init__ has to be "
    "super().__init__().",
    r"must be (tuple of )?ints?\b.*\bfloat|slice indices must be int": WHOLE,
    r"'float' object cannot be interpreted as an integer": WHOLE,
    r"softmax\(\) missing": " The keys are the last axis: softmax(dim=-1).",
    r"sqrt\(\): .* must be Tensor, not (int|float)": " The root of a plain number is "
    "math.sqrt, or ** 0.5.",
    r"(self|mat\d?) must be a matrix|must be a 3D tensor|1D tensors expected": ANY_AXES,
    r"shape of the mask .* does not match the shape of the indexed": " An index of "
    "True and False has to have the full shape; masked_fill takes one that broadcasts.",
    r"expected Tensor as element \d+ in argument 0, but got tuple": " Tuples are "
    "joined here: where each head returns (context, weights), take them apart first: "
    "contexts, weights = zip(*pairs).",
    r"name '(num_heads|head_dim|embed_dim|\w+_proj|heads)' is not defined": " In a "
    "method it is self.{0}, which __init__ has to set.",
}
OF_LINES = {  # what a message asks for, and a line of theirs that goes with it
    (r"Boolean value of Tensor", r"\bnot\b"): " To turn each entry of a mask, write "
    "~mask; whether there is one, `mask is not None` tells.",
    (r"Boolean value of Tensor", r"mask"): " Whether there is a mask asks "
    "`if mask is not None:`.",
    (r"NoneType", r"mask"): " Where no mask is given it is None: first ask "
    "`if mask is not None:`.",
    (r"too many values to unpack", r"\.shape|\.size\("): " More axes come than are "
    "unpacked: *_, T, D = q.shape takes the last two, whatever stands before.",
    (r"not enough values to unpack|tuple index out of", r"chunk\((?!.*dim)"): " chunk "
    "cuts the first axis, the batch, unless it is told: chunk(3, dim=-1).",
}
OF_SCORES = {  # the same, where queries and keys meet
    (r"tensor a .* tensor b|batch2 tensor to be|t\(\) expects", r"\.(T\b|t\(\))"): " "
    "More than two axes come: k.mT, or k.transpose(-2, -1), turns the last two alone.",
    (r"tensor a .* tensor b|batch2 tensor to be", r"transpose\(\d, ?\d\).*"): " Count "
    "the axes from the end, whatever stands before: k.transpose(-2, -1).",
}
CUTS = r"split|cut|heads"  # in the name of what cuts a tensor into heads
JOINS = r"merge|join|concat|combine"  # and of what brings them together
OF_CODE = {SQUARE_MASK: "causal-square"}  # and what we have noted ourselves


def of_error(outcome: dict) -> list[str]:
    """The mistake that an error gives away: ours by its code, torch's by its words."""
    if outcome.get("code") in OF_CODE:
        return [OF_CODE[outcome["code"]]]
    if outcome.get("raised_by") != "torch":
        return []
    text = outcome.get("error", "")
    found = [name for name, pattern in OF_TORCH.items() if re.search(pattern, text)]
    return found[:1]


def in_full(outcome: Mapping[str, str], sizes: Mapping[str, int]) -> tuple[str, bool]:
    """An error in words, and whether they say what to do about it.

    Args:
        outcome: of the call that failed.
        sizes: of the call: B, T, S, H, D, E.
    """
    error, line = outcome["error"], outcome.get("line", "")
    said = located(error, line)
    if outcome.get("raised_by") == "torch":
        said += legend(error, sizes)
    if outcome.get("code") == OTHER_SHAPE:
        said += f".{legend(error, {letter: sizes[letter] for letter in 'HDE'})}"
    name, _, given = outcome.get("got", "").partition("(")
    here = f"called in your line {outcome.get('called')}"
    if name and (cause := _came_so_already(name, given, sizes)):
        return f"{cause}; {here}. What it raised: {said}", True
    advice = hint(error, line, sizes)
    advice += _wrong_count(error, (line, outcome.get("called", "")), sizes)
    if name:
        shapes = " ".join(re.findall(r"=\([\d, ]*\)", given))
        letters = of_numbers(map(int, re.findall(r"\d+", shapes)), sizes)
        given = given.removesuffix(")").replace("=", " ")
        came = (
            f"got {given}{f', where {letters}' * bool(letters)}; " if given else "is "
        )
        return f"{said}{advice} {name} {came}{here}", bool(advice)
    return said + advice, bool(advice or "code" in outcome)


def _came_so_already(name: str, given: str, sizes: Mapping[str, int]) -> str:
    """Heads that are to be cut a second time, or joined without being apart."""
    shapes = re.findall(r"=\(([\d, ]+)\)", given)
    if len(shapes) != 1 or "H" not in sizes:
        return ""
    got = tuple(map(int, re.findall(r"\d+", shapes[0])))
    joins = re.search(JOINS, name)
    if not joins and not re.search(CUTS, name):
        return ""
    for length in "TS":
        axes = ("B", length, "E") if joins else ("B", "H", length, "D")
        if got == tuple(sizes.get(letter) for letter in axes):
            so = "its heads are joined already" if joins else "it is split already"
            letters = f"({', '.join(axes)})"
            return f"{name} got a tensor of {len(got)} axes, {letters}: {so}"
    return ""


def _wrong_count(error: str, lines: tuple[str, ...], sizes: Mapping[str, int]) -> str:
    """A number of heads that is none, where E is cut."""
    H, E = sizes.get("H"), sizes.get("E")
    found = re.search(r"shape '\[([-\d, ]+)\]' is invalid|sizes \[([-\d, ]+)\]", error)
    if not found or not H or not E:
        return ""
    cut = [int(x) for x in (found[1] or found[2]).split(",")]
    for n, size in zip(cut, cut[1:]):
        if n < 2 or n == H or E % n == 0 or size not in (E // n, -1):
            continue
        if any(re.search(rf"\b{n}\b", line.partition(":")[2]) for line in lines):
            return f" Is {n} written where num_heads belongs?"
    return ""


def taken_for_another(error: str, name: str, tasks: Iterable[str]) -> str:
    """How to name the task, where a call failed for the number of its arguments.

    Args:
        error: the message.
        name: of a function, which names no task.
        tasks: all that there are.
    """
    if not re.match(rf"TypeError: .*\b{re.escape(name)}\(\) (takes|missing)\b", error):
        return ""
    near = get_close_matches(name, tasks, n=1)
    meant = near[0] if near else "…"
    others = "" if near else f", with one of {', '.join(tasks)}"
    return (
        ". No task has this name, so it was taken for attention; if it is another, say "
        f'which: check({name}, task="{meant}"){others}'
    )


def hint(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """What to do about an error of torch that has no name here.

    Args:
        error: the message.
        line: of their code, where it was raised; "" if unknown.
        sizes: of the call: B, T, S, H, D, E.
    """
    met = ((re.search(pattern, error), said) for pattern, said in HINTS.items())
    said = "".join(said.format(*found.groups()) for found, said in met if found)
    of_lines = OF_LINES | (OF_SCORES if "D" in sizes else {})
    for (pattern, code), words in of_lines.items():
        if re.search(pattern, error) and re.search(code, line):
            return said + words
    by_sizes = _heads_apart, _mask_without_heads, _axes_that_meet, _piece_of_a_token
    by_sizes += heads_in_front, _lost_axis, _entry_by_entry, _three_thirds
    by_sizes += (_tokens_for_heads, _columns_for_rows)
    of_pieces = re.search(r"[qk]\w*\[\w+\] ?(@|,) ?[qkv]\w*\[\w+\]", line)
    if of_pieces and not _keeps_batch(error, sizes):
        return said + FIRST_AXIS
    return said + "".join(words(error, line, sizes) for words in by_sizes)


def _numbers(pattern: str, error: str) -> list[int]:
    """What the groups of a pattern found; [] where it does not fit."""
    found = re.search(pattern, error)
    return [*map(int, found.groups())] if found else []


def _keeps_batch(error: str, sizes: Mapping[str, int]) -> bool:
    """Whether q[0], of a tuple or a list, still has the batch as its first axis."""
    met = _numbers(r"batch2 tensor to be: \[(\d+), \d+\] but got: ", error)
    return met == [sizes.get("B")] != [sizes.get("H")]


def _heads_apart(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """T met S where a product wants B and H."""
    met = _numbers(r"a \((\d+)\) must match .* b \((\d+)\)", error)
    if "H" not in sizes or not re.search(r"@|\b[bm]?matmul|\bbmm", line):
        return ""
    if {*met} != {sizes["T"], sizes["S"]}:
        return ""
    return (
        " A product needs all axes equal but the last two, and T and S are among those "
        "here: is the transpose missing that puts the heads before the tokens?"
    )


def _mask_without_heads(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """An axis of the mask stands where the scores have their heads."""
    met = _numbers(
        r"a \((\d+)\) must match .* b \((\d+)\) at non-singleton dimension 1", error
    )
    if "H" not in sizes or "mask" not in line:
        return ""
    if {*met} not in ({sizes["H"], sizes["B"]}, {sizes["H"], sizes["T"]}):
        return ""
    return (
        " The scores have an axis of heads, and the mask needs one of size 1 at its "
        "place: for scores (B, H, T, S), mask[..., None, :, :]."
    )


def heads_in_front(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """The heads of one tensor met the batch of another."""
    pattern = r"a \((\d+)\) must match .* b \((\d+)\) at non-singleton dimension "
    met = _numbers(pattern + ("0" if "mask" in line else "1"), error)
    if "H" not in sizes or sizes["H"] == sizes["B"]:
        return ""
    if {*met} != {sizes["H"], sizes["B"]}:
        return ""
    return (
        " The heads of one meet the batch of the other: does one lack its heads, or "
        "stand they in front? torch.stack puts its new axis there; stack(…, dim=1) "
        "puts it behind the batch."
    )


def _axes_that_meet(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """The two axes of a product that have to be of one size."""
    batches = r"first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: "
    met = _numbers(batches + r"\[\d+, (\d+)\]", error)
    if not met:
        return ""
    said = " In a product the last axis of the left tensor meets the last but one of "
    if met[1] == sizes.get("T") and re.search(r"\bv\w* ?@", line):
        return said + "the right: weights (T, S) meet values (S, D), weights @ v."
    if met == [sizes.get("S"), sizes.get("T")] and re.search(r"@ ?v", line):
        return said + (
            "the right: weights (T, S) meet values (S, D) in S, and the values have T "
            "rows here: of which input are they made?"
        )
    if met == [sizes.get("T"), sizes.get("S")]:
        return said + "the right: weights (T, S) meet values (S, D) in S."
    return said + "the right: should one be turned, with transpose(-2, -1)?"


def _piece_of_a_token(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """A head's D numbers met a matrix for all E."""
    met = _numbers(r"\(\d+x(\d+) and (\d+)x\d+\)", error)
    if not met or "H" not in sizes:
        return ""
    ours = [letter for letter, size in sizes.items() if size == met[0]]
    if ours != ["D"] or met[1] != sizes["E"]:
        return ""
    return (
        " The matrix takes E = H·D numbers: are the heads joined before it, all of "
        "them and along the last axis (torch.cat(…, dim=-1))?"
    )


def _tokens_for_heads(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """A merge joined T with D, and the matrix behind it takes E."""
    met = _numbers(r"\((\d+)x(\d+) and (\d+)x\d+\)", error)
    if not met or "H" not in sizes or sizes["T"] == sizes["H"]:
        return ""
    B, T, H, D = (sizes[letter] for letter in "BTHD")
    if met[0] not in (H, B * H) or met[1:] != [T * D, sizes["E"]]:
        return ""
    return (
        " T·D numbers came where E = H·D are due: before a merge, (B, H, T, D), the "
        "heads come before the tokens."
    )


def _columns_for_rows(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """A fused matrix was cut along its inputs."""
    met = _numbers(r"\(\d+x(\d+) and (\d+)x(\d+)\)", error)
    E = sizes.get("E", 0)
    if not met or met != [E, E // 3, 3 * E]:
        return ""
    return (
        " The stored matrix is (3E, E): its thirds are rows, weight.chunk(3) without "
        "dim=-1."
    )


def _lost_axis(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """A map (T, S) was divided by sums (T)."""
    met = _numbers(r"a \((\d+)\) must match .* b \((\d+)\)", error)
    if met != [sizes.get("S"), sizes.get("T")] or "/" not in line or "@" in line:
        return ""
    return " A sum loses its axis; sum(dim=-1, keepdim=True) keeps it, with the size 1."


def _entry_by_entry(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """Queries and keys met in a product that is none of matrices."""
    met = _numbers(r"a \((\d+)\) must match .* b \((\d+)\)", error)
    product = re.search(r"\bq\w* ?\* ?k|\bk\w* ?\* ?q", line)
    if not product or {*met} != {sizes.get("T"), sizes.get("S")}:
        return ""
    return " * multiplies entry by entry; each query meets each key in q @ k.mT."


def _three_thirds(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """All of a fused projection came where one third is cut into heads."""
    pattern = r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)"
    found = re.search(pattern, error)
    if not found or "E" not in sizes:
        return ""
    wanted = math.prod(map(int, found[1].split(",")))
    if int(found[2]) != 3 * wanted:
        return ""
    return " Three times as many numbers come: chunk(3, dim=-1) gives q, k and v."


def of_sizes(cases: list[Case]) -> list[str]:
    """Whether it failed where two sizes differ, and there alone."""
    if all(case.problem.masked for case in cases if case.output is None):
        cases = [case for case in cases if case.problem.masked]

    def needs(a: str, b: str) -> bool:
        ran = False
        for case in cases:
            one, two = case.problem.sizes[a], case.problem.sizes[b]
            fails = case.output is None
            broadcast = not fails and 1 in (one, two)  # fits whatever comes
            if fails != (one != two) and not broadcast:
                return False
            ran = ran or (not fails and one == two != 1)
        return ran

    letters = [x for x in "BTSHD" if x in cases[0].problem.sizes] if cases else []
    found = any(needs(*pair) for pair in combinations(letters, 2))
    return ["needs-equal-sizes"] if found else []


def of_ones(cases: list[Case]) -> list[str]:
    """The sizes that are 1 wherever it answered, and nowhere else."""

    def alone(letter: str) -> bool:
        return all(
            (case.problem.sizes.get(letter) == 1) == (case.output is not None)
            for case in cases
        )

    return [letter for letter in "BTSHD" if alone(letter)]


def failed_at(fact: Fact) -> object:
    """The line of theirs where it failed; the message where none is known."""
    return fact.values.get("line") or fact.values.get("error")
