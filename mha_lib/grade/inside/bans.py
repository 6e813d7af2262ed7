"""Ready-made attention, taken out of the warm process before a submission is forked.

Nothing is kept that would bring it back: operators are replaced in torch's dispatcher,
which every way to them goes through; the code of Python functions is replaced and so
freed; the files from which they could be loaded or copied are closed by the kernel,
where it can. What is left is to write it oneself, or to copy it from elsewhere.
"""

import ast
import ctypes
import gc
import linecache
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

import torch

SHORT = {"F": "torch.nn.functional", "nn": "torch.nn"}
ROOT = Path(torch.__file__).parent


class ReadyMade(NamedTuple):
    """What computes the same, each a pattern of names.

    Attributes:
        operators: of torch, whatever they are reached by.
        functions: in Python, as "module:qualified name".
        modules: of torch, whose files are closed; what is loaded of them works on.
    """

    operators: str
    functions: str
    modules: str


READY_MADE = {
    "torch.nn.functional.scaled_dot_product_attention": ReadyMade(
        operators=r"scaled_dot|(flash|efficient|cudnn|varlen)_attention|[aA]ttention(\.|$)",
        functions=r"torch\.(_higher_order_ops\.flex_attention"
        r"|nn\.attention\.(flex_attention|varlen|experimental\b.*)"
        r"|nested\._internal\.sdpa|onnx\.ops\b.*):"
        r"|torch\._decomp\.decompositions:scaled_dot",
        modules=r"torch\.(nn\.attention\.[a-z]\w*|_higher_order_ops\.flex_attention"
        r"|nested\._internal\.sdpa|onnx\.(ops|reference|_internal)"
        r"|distributed\.tensor\.experimental|_decomp\.decompositions"
        r"|_inductor\.(kernel\.flex|fx_passes\.(fuse_attention|serialized_patterns))"
        r"|sparse\._triton_ops|testing\._internal\.(common_(methods|modules|nn)\w*"
        r"|opinfo|hop_db|generated))(\..*)?",
    ),
    "torch.nn.MultiheadAttention": ReadyMade(
        operators=r"multi_head_attention|transformer_(en|de)coder_layer",
        functions=r"torch\.nn\.functional:multi_head_attention_forward"
        r"|torch\.(ao\.)?nn\.[\w.]*:(MultiheadAttention|Transformer\w*)\.",
        modules=r"torch\.nn\.(functional|modules\.(activation|transformer))"
        r"|torch\.ao\.nn\.quanti[\w.]*\.activation"
        r"|torch\.testing\._internal\.(common_(modules|nn)\w*)",
    ),
}


def full(name: str) -> str:
    """'F.softmax' → 'torch.nn.functional.softmax'."""
    head, _, rest = name.partition(".")
    return f"{SHORT.get(head, head)}.{rest}"


def apply(names: Iterable[str]) -> list[Path]:
    """Take built-ins out of this process, for good; the files to be closed."""
    closed: list[Path] = []
    places = _places()
    for name in map(full, names):
        text = f"{name} is not available in this exercise: write what it does yourself"
        ready = READY_MADE.get(name) or _alone(name)
        with warnings.catch_warnings():  # torch warns of what is meant here
            warnings.simplefilter("ignore")
            for operator in torch._C._dispatch_get_all_op_names():
                if re.search(ready.operators, operator):
                    _close_operator(operator, text)
        known = re.compile(ready.modules)
        modules = {name: path for name, path in places.items() if known.fullmatch(name)}
        for module, path in modules.items():
            if module in sys.modules:
                _keep_the_rest(path, module, ready.functions)
            closed += [path, *path.parent.glob(f"__pycache__/{path.stem}.*.pyc")]
        for function in _functions(ready.functions):
            function.__code__ = _refusal(text, function.__code__.co_freevars)
        sys.meta_path.insert(0, Closed(modules.keys() - sys.modules.keys(), text))
    return closed


def _alone(name: str) -> ReadyMade:
    """Of any other built-in: the operator and the function of its name."""
    module, _, last = name.rpartition(".")
    last, module = re.escape(last), re.escape(module)
    function = rf"torch\..*:{last}(\.__init__|\.forward)?$"
    return ReadyMade(rf"^aten::{last}(\.|$)", function, r"(?!)")


# --- operators ----------------------------------------------------------------------


def _close_operator(name: str, text: str) -> None:
    """Whatever torch has for it, on every device and in every mode, it refuses."""

    def refuse(*args: object, **kwargs: object) -> None: ...

    refuse.__code__ = _refusal(text)
    namespace, _, operator = name.partition("::")
    library = torch._C._dispatch_library("IMPL", namespace, "")
    kernels = re.findall(
        r"(?m)^(\w+)(?:\[alias\])?: reg", torch._C._dispatch_dump(name)
    )
    for key in {"CPU", "AutogradCPU", *kernels} - {"debug", "Meta"}:
        library.impl(operator, key, refuse)
    # What was there comes back with the end of the library, so it must never end: one
    # reference is counted that nobody holds.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))


# --- functions in Python --------------------------------------------------------------


def _functions(pattern: str) -> Iterator[FunctionType]:
    known = re.compile(pattern)
    for function in gc.get_objects():
        if type(function) is FunctionType:
            module = function.__module__ or ""
            if module.startswith("torch") and known.match(
                f"{module}:{function.__qualname__}"
            ):
                yield function


def _refusal(text: str, free: tuple[str, ...] = ()) -> CodeType:
    """Code that raises, for a function with these free variables."""
    scope: dict = {}
    exec(f"def refuse(*args, **kwargs): raise RuntimeError({text!r})", scope)
    # A message about an error shows the last line that is not torch's.
    code = scope["refuse"].__code__
    return code.replace(co_filename=torch.__file__, co_freevars=free)


# --- files ---------------------------------------------------------------------------


def _places() -> dict[str, Path]:
    """Where the modules of torch are, loaded or not, by their names."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[: -1 if parts[-1] == "__init__" else None])] = path
    return found


def _keep_the_rest(path: Path, module: str, pattern: str) -> None:
    """Let Python show the source of a closed file, but for what is taken out of it.

    Whoever compiles functions from their source, as torch.jit.script does, needs it.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(True)
    for node in _defined(ast.parse(text), f"{module}:", re.compile(pattern)):
        first = min(x.lineno for x in (node, *node.decorator_list)) - 1
        blanks = [" " * node.col_offset + "pass\n"]
        blanks += ["\n"] * (node.end_lineno - first - 1)
        lines[first : node.end_lineno] = blanks
    # Without a time, it is never compared with the file.
    linecache.cache[str(path)] = (len(text), None, lines, str(path))


def _defined(tree: ast.AST, name: str, known: re.Pattern) -> Iterator[ast.FunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _defined(node, f"{name}{node.name}.", known)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if known.match(name + node.name):
                yield node
        else:  # what is defined under a condition
            yield from _defined(node, name, known)


class Closed(MetaPathFinder, Loader):
    """Says in words what else the kernel says with an error of a file."""

    def __init__(self, names: Iterable[str], text: str):
        self.names, self.text = frozenset(names), text

    def find_spec(self, name: str, path: object = None, target: object = None):
        """A specification that cannot be loaded, for a module that is closed."""
        return ModuleSpec(name, self) if name in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Say that there is none."""
        raise ImportError(f"{self.text} ({spec.name} holds it)", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""
