"""Submissions that are alike: copies are listed, honest work is not."""

import json

import pytest

from mha_lib.grade import alike
from mha_lib.grade.alike import Alike, code
from mha_lib.grade.submission import refused, taken

ATTENTION = '''
def attention(q, k, v, mask=None):
    """Scaled dot products."""
    scale = q.shape[-1] ** 0.5
    scores = torch.einsum("...td,...sd->...ts", q, k) / scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.nan_to_num(scores.softmax(dim=-1))
    return weights @ v, weights
'''
RENAMED = ATTENTION.replace("scores", "s").replace("weights", "w").replace("scale", "c")
OTHER = """
def attention(query, key, value, mask=None):
    logits = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)
    if mask is not None:
        logits = torch.where(mask, logits, torch.full_like(logits, -1e30))
    top = logits.amax(dim=-1, keepdim=True)
    p = (logits - top).exp()
    if mask is not None:
        p = p * mask
    p = p / p.sum(-1, keepdim=True).clamp(min=1e-9)
    return torch.matmul(p, value), p
"""
SPLIT = """
def split_heads(x, num_heads):
    batch, length, width = x.shape
    parts = x.reshape(batch, length, num_heads, width // num_heads)
    return parts.permute(0, 2, 1, 3).contiguous()
"""


def notebook(*cells: str) -> bytes:
    made = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
    made.append({"cell_type": "markdown", "source": ["words"]})
    return json.dumps({"cells": made}).encode()


def pairs(texts: dict, template=None, groups=None) -> dict:
    """Kinds by the two names."""
    looking = Alike(template and taken(template, "t.ipynb"))
    for name, text in texts.items():
        content = text if isinstance(text, bytes) else text.encode()
        looking.add(name, taken(content, name))
    return {(x.one, x.other): x.kind for x in looking.pairs(groups)}


COMMENTED = ATTENTION.replace("    if", "    # the mask\n\n    if").replace(
    ", k)", ",k)"
)


@pytest.mark.parametrize(
    "copy, kind",
    [
        (ATTENTION, "the same file"),
        (COMMENTED, "the same code"),
        ("%pip install x\n" + ATTENTION, "the same code"),
        (RENAMED, "the same code with other names"),
        (RENAMED.replace("Scaled", "My"), "the same code with other names"),
        (ATTENTION + SPLIT, "100% of it the same"),
        (ATTENTION.replace("nan_to_num", "relu"), "83% of it the same"),
    ],
)
def test_a_copy_is_listed_however_it_was_changed(copy, kind):
    texts = {"ada.py": ATTENTION, "ben.py": copy, "cleo.py": OTHER}
    assert pairs(texts) == {("ada.py", "ben.py"): kind}


def test_work_of_ones_own_is_not_listed():
    assert pairs({"ada.py": ATTENTION, "ben.py": OTHER, "cleo.py": SPLIT * 2}) == {}
    assert pairs({"ada.py": "x = 1\n" * 10, "ben.py": "y = 1\n" * 10}) == {}, (
        "too short"
    )


def test_the_template_does_not_count():
    template = notebook(OTHER, SPLIT, "x = ...  # your code here")
    blank = {"ada.ipynb": template, "ben.ipynb": template + b" "}
    assert pairs(blank, template) == {}
    assert pairs(blank) == {("ada.ipynb", "ben.ipynb"): "the same code"}
    filled = {
        "ada.ipynb": notebook(OTHER, SPLIT, ATTENTION),
        "ben.ipynb": notebook(OTHER, SPLIT, RENAMED),
        "cleo.ipynb": notebook(OTHER, SPLIT, ATTENTION[:-30]),
        "dan.ipynb": notebook(OTHER + "# mine\n", SPLIT),
        "eve.ipynb": notebook(OTHER.replace("top", "most"), SPLIT),
    }
    found = pairs(filled, template)
    assert found.pop(("ada.ipynb", "ben.ipynb")) == "the same code with other names"
    assert set(found) == {("ada.ipynb", "cleo.ipynb"), ("ben.ipynb", "cleo.ipynb")}


def test_what_many_have_does_not_count():
    own = [f"x{n} = [f{n}.a{n}.b{n}(y) for y in range({n})]\n" * 3 for n in range(60)]
    texts = {f"{n:02}.py": OTHER + SPLIT + own[n] for n in range(alike.MANY + 1)}
    assert pairs(texts) == {}
    few = dict(list(texts.items())[: alike.MANY])
    assert len(pairs(few)) == alike.MANY * (alike.MANY - 1) // 2
    rest = {f"{n:02}.py": own[n] * 9 for n in range(alike.MANY + 1, 60)}
    assert len(pairs(texts | rest)) == (alike.MANY + 1) * alike.MANY // 2, "no class"


def test_a_ring_of_copiers_is_listed_pair_by_pair():
    ring = {
        f"{n:02}.py": ATTENTION.replace("scale", f"s{n}") + SPLIT
        + f"y{n} = [{', '.join('1' * (n + 1))}].pop()\n"
        for n in range(13)
    }  # fmt: skip
    assert len(pairs(ring)) == 13 * 12 // 2


def test_lines_of_filler_do_not_count():
    lines = (ATTENTION + SPLIT).splitlines()
    filled = "\n".join(
        f"{line}\n{line[: len(line) - len(line.lstrip())]}_n = 0"
        if line.startswith("    ") and not line.endswith((":", '"""'))
        else line
        for line in lines
    )
    assert filled.count("_n = 0") == 8
    found = pairs({"ada.py": ATTENTION + SPLIT, "ben.py": filled})
    assert found == {("ada.py", "ben.py"): "the same code"}
    used = [f"n = {n}\nprint(n, 'of these there are so many', n)\n" * 9 for n in (1, 2)]
    assert pairs(dict(zip(["a.py", "b.py"], used))) != {
        ("a.py", "b.py"): "the same code with other names"
    }, "a number that is used counts"


def test_a_line_in_common_is_nothing_where_the_rest_is_what_many_have():
    line = "z = [f.a(y) for y in range(3) if y != 7]\n"
    texts = {f"{n:02}.py": OTHER + SPLIT + line * (n < 2) for n in range(22)}
    assert [x for x in pairs(texts) if x == ("00.py", "01.py")] == [("00.py", "01.py")]
    texts["01.py"] = "w = {}\n" + texts["01.py"]  # no longer the same as a whole
    assert ("00.py", "01.py") not in pairs(texts)


def test_those_for_whom_it_counts_may_be_alike():
    texts = {"1.py": ATTENTION, "2.py": ATTENTION, "3.py": ATTENTION}
    groups = {"1.py": {"ada", "ben"}, "2.py": {"ben"}, "3.py": {"cleo"}}
    assert list(pairs(texts, groups=groups)) == [("1.py", "3.py"), ("2.py", "3.py")]


def test_the_most_alike_come_first():
    changed = ATTENTION.replace("nan_to_num", "relu")
    found = pairs({"a.py": changed, "b.py": ATTENTION, "c.py": RENAMED})
    assert list(found.values())[0] == "the same code with other names"


@pytest.mark.parametrize(
    "text",
    [
        b"{", b"[1]", b"{}", b'{"cells": [1]}', b'{"cells": [{"cell_type": "code"}]}',
        b'{"cells": [{"cell_type": "code", "source": [1]}]}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_left_to_the_grader(text):
    assert code(taken(text, "ada.ipynb")) == []


def test_what_was_not_read_has_no_code():
    assert code(refused(b"", "a link")) == []


def test_only_so_much_is_looked_at(monkeypatch):
    monkeypatch.setattr(alike, "LONGEST", 10)
    assert code(taken(b"x" * 11, "ada.py")) == ["x" * 10]
    assert code(taken(notebook("x" * 7, "y" * 7, "z"), "a.ipynb")) == [
        "x" * 7,
        "yyy",
        "",
    ]


@pytest.mark.parametrize(
    "end", ["def f(:\n  'x", "'''", "\tx\n  y", "if x:\n    1\n  2"]
)
def test_what_no_python_can_read_ends_the_cell_alone(end):
    broken = {"ada.py": ATTENTION + end, "ben.py": RENAMED + end}
    assert list(pairs(broken)) == [("ada.py", "ben.py")]
