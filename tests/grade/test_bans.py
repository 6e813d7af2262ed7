"""Of torch, all that computes attention is found by the patterns of names."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mha_lib.grade.inside import bans

ROOT = Path(torch.__file__).parent
BANNED = ["F.scaled_dot_product_attention", "nn.MultiheadAttention"]
PRODUCTS = {"bmm", "baddbmm", "matmul", "mm", "einsum", "dot", "vdot"}


def computing(tree: ast.AST, name: str) -> Iterator[str]:
    """The functions in which a softmax and products of matrices are called."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield from computing(node, f"{name}{node.name}.")
        else:
            yield from computing(node, name)
        if isinstance(node, ast.FunctionDef) and computes(node):
            yield name + node.name


def computes(function: ast.FunctionDef) -> bool:
    called, products = set(), 0
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(attr=word) | ast.Name(id=word):
                    called.add(word)
                    products += word in PRODUCTS
        elif isinstance(node, ast.BinOp):
            products += isinstance(node.op, ast.MatMult)
    return products > 0 and any("softmax" in word for word in called)


@pytest.fixture(scope="module")
def found() -> list[str]:
    """What computes attention in torch as installed, as "module:qualified name"."""
    product = re.compile(r"mm\(|matmul|einsum| @ ")
    named = []
    for module, path in bans._places().items():
        text = path.read_text(encoding="utf-8")
        if "softmax" in text and product.search(text):
            named += computing(ast.parse(text), f"{module}:")
    return named


def closed(name: str) -> bool:
    """Its code is replaced, or its file cannot be read and nobody has read it."""
    module = name.partition(":")[0]
    return any(
        re.match(ready.functions, name)
        or (re.fullmatch(ready.modules, module) and module not in sys.modules)
        for ready in bans.READY_MADE.values()
    )


def test_all_that_computes_attention_is_closed(found):
    assert "torch.nn.functional:multi_head_attention_forward" in found
    assert [name for name in found if not closed(name)] == []


def without(banned: list[str], *codes: str, before: str = "") -> list[str]:
    """What each code prints in a process out of which built-ins were taken."""
    start = "import gc, re, sys, weakref, torch\nfrom torch.nn import functional as F\n"
    start += f"sys.path.insert(0, {str(Path(bans.__file__).parents[1])!r})\n"
    start += f"from inside import bans\n{before}\nfiles = bans.apply({banned!r})\n"
    command = [sys.executable, "-c", start + "\nprint('END')\n".join(codes)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [said.strip() for said in done.stdout.split("END\n")]


TAKEN = """
code = weakref.ref(F.multi_head_attention_forward.__code__)
flex = sys.modules["torch._higher_order_ops.flex_attention"]
other = weakref.ref(flex.math_attention.__code__)
"""
KERNELS = r"""
for ready in bans.READY_MADE.values():
    for name in torch._C._dispatch_get_all_op_names():
        if re.search(ready.operators, name):
            table = torch._C._dispatch_dump(name)
            line = r"(?m)^(\w+)(?:.alias.)?: registered at (\S+)"
            for key, where in re.findall(line, table):
                if key not in ("debug", "Meta") and where != "/dev/null:0":
                    print(name, key, where)
print(len(files) > 100)
"""
SOURCES = """
import inspect
from torch import nn
script = torch.jit.script(torch.nn.Softmax(-1))
print(script(torch.zeros(1, 2)).tolist(), "forward" in inspect.getsource(nn.Softmax))
print("softmax" in inspect.getsource(F.multi_head_attention_forward))
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What is left where all ready-made attention was taken out."""
    gone, linear = "print(code(), other())", "print(torch.nn.Linear(2, 3).bias.shape)"
    return without(BANNED, gone, KERNELS, SOURCES, linear, before=TAKEN)


def test_the_code_is_gone_and_not_only_out_of_reach(said):
    assert said[0] == "None None"


def test_every_kernel_is_replaced(said):
    assert said[1] == "True"


def test_what_is_compiled_from_its_source_still_is(said):
    assert said[2].splitlines() == ["[[0.5, 0.5]] True", "False"]


def test_other_layers_are_not_taken_with_it(said):
    assert said[3] == "torch.Size([3])"


CALLS = {
    ("F.softmax", "nn.Linear"): {
        "F.softmax(x, -1)": "torch.nn.functional.softmax is not",
        "x.softmax(-1)": "torch.nn.functional.softmax is not",
        "F.relu(x).sum().item()": "2.0",
        "torch.nn.Linear(2, 3)": "torch.nn.Linear is not available",
        "F.linear(x, x).sum().item()": "2.0",
    },
    ("nn.MultiheadAttention",): {"F.scaled_dot_product_attention(x, x, x).sum()": "2"},
}


@pytest.mark.parametrize("banned", CALLS, ids=" ".join)
def test_a_ban_ends_with_its_name(banned):
    form = "x = torch.eye(2)\ntry: print({})\nexcept RuntimeError as e: print(e)"
    calls = CALLS[banned]
    answers = without([*banned], *map(form.format, calls))
    for (call, due), answer in zip(calls.items(), answers, strict=True):
        assert due in answer, call
