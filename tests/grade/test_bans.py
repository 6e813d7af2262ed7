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


PRODUCT = re.compile(r"mm\(|matmul|einsum| @ ")
# From a line that is not indented to the next one.
STATEMENT = re.compile(r"^[^\s#)\]}].*\n(?:(?:[ \t#)\]}].*)?\n)*", re.MULTILINE)


def named() -> Iterator[str]:
    """What computes attention in torch as installed, as "module:qualified name".

    Modules that nobody can read are long, and there is no need to look into them.
    """
    for module, path in bans._places().items():
        text = "" if unread(module) else path.read_text(encoding="utf-8")
        for tree in parsed(text) if may_compute(text) else ():
            yield from computing(tree, f"{module}:")


def may_compute(text: str) -> bool:
    return "softmax" in text and bool(PRODUCT.search(text))


def parsed(text: str) -> list[ast.Module]:
    """The statements that may compute attention: of long modules, a small part."""
    try:
        return [ast.parse(x) for x in STATEMENT.findall(f"{text}\n") if may_compute(x)]
    except SyntaxError:  # a string goes on in a line that is not indented
        return [ast.parse(text)]


def unread(module: str) -> bool:
    """Its file cannot be read, and nobody has read it."""
    patterns = (ready.modules for ready in bans.READY_MADE.values())
    return module not in sys.modules and any(
        re.fullmatch(pattern, module) for pattern in patterns
    )


def replaced(name: str) -> bool:
    return any(re.match(x.functions, name) for x in bans.READY_MADE.values())


def test_all_that_computes_attention_is_closed():
    assert unread("torch.nn.attention.varlen")
    found = list(named())
    assert "torch.nn.functional:multi_head_attention_forward" in found
    assert [name for name in found if not replaced(name)] == []


FORKS = """
import gc, os, re, sys, weakref, torch
from torch.nn import functional as F
sys.path.insert(0, {folder!r})
from inside import bans
for banned, before, codes in {tries!r}:
    if not os.fork():
        exec(before)
        files = bans.apply(banned)
        for each in codes:
            exec(each)
            print("END", flush=True)
        os._exit(0)
    os.wait()
"""
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


GONE = "print(code(), other())"
LINEAR = "print(torch.nn.Linear(2, 3).bias.shape)"
CALL = "x = torch.eye(2)\ntry: print({})\nexcept RuntimeError as e: print(e)"


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What is printed in processes out of which built-ins were taken, in turn."""
    tries = [(BANNED, TAKEN, [GONE, KERNELS, SOURCES, LINEAR])]
    tries += [([*x], "", [CALL.format(call) for call in CALLS[x]]) for x in CALLS]
    code = FORKS.format(folder=str(Path(bans.__file__).parents[1]), tries=tries)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    return [answer.strip() for answer in done.stdout.split("END\n")]


def test_the_code_is_gone_and_not_only_out_of_reach(said):
    assert said[0] == "None None"


def test_every_kernel_is_replaced(said):
    assert said[1] == "True"


def test_what_is_compiled_from_its_source_still_is(said):
    assert said[2].splitlines() == ["[[0.5, 0.5]] True", "False"]


def test_other_layers_are_not_taken_with_it(said):
    assert said[3] == "torch.Size([3])"


def test_a_ban_ends_with_its_name(said):
    *answers, end = said[4:]
    due = [pair for calls in CALLS.values() for pair in calls.items()]
    for (call, words), answer in zip(due, answers, strict=True):
        assert words in answer, call
    assert end == "", "each of them came to its end"
