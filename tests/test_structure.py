"""The library's modules import one way, and importing it costs what it must."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mha_lib

LIBRARY = Path(mha_lib.__file__).parent
STYLES = {"per_head", "batched", "fused", "einsum", "builtin", "split_concat"}
BASE = {"_inputs", "masks", "layouts"}
MAY_IMPORT = {  # what each module may import of ours
    "_inputs": set(),
    "masks": {"_inputs"},
    "layouts": {"_inputs"},
    "attention": BASE,
    "tiled": BASE | {"attention"},
    **dict.fromkeys(STYLES, BASE | {"attention"}),
    "fused": BASE | {"attention", "tiled"},
    "dropin": {"attention", "layouts", "masks", "tiled"},
    "checkpoints": set(),
    "_kinds": {"checkpoints"},
    "convert": {"checkpoints", "_kinds"},
    "plots": set(),
    "widgets": {"widgets", "plots", "layouts"},  # they take arrays, not modules
    "check": {"check"},  # judges by a reference of its own
    "grade": {"grade", "check"},
    "__init__": BASE | {"attention", "convert", "dropin"} | STYLES,
}
LOADED_WHEN_USED = ["matplotlib", "ipywidgets", "anywidget", "keras", "tensorflow"]
LOADED_WHEN_USED += ["jax", "flax", "transformers"]


def own_imports(path: Path) -> set[str]:
    """The names of our modules that a module imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add("." * node.level + (node.module or ""))
    assert not any(name.startswith("tests") for name in modules)
    alone = path.parent.name in ("inside", "beside")  # with a submission, in a child
    assert alone or not any(name.startswith(".") for name in modules)
    assert "mha_lib" not in modules, "import from the module, not from the package"
    return {name.split(".")[1] for name in modules if name.startswith("mha_lib.")}


def room(path: Path) -> str:
    """A module's own name, or that of the package it lies in."""
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", LIBRARY.rglob("*.py"), ids=lambda path: str(path.relative_to(LIBRARY))
)
def test_imports_run_one_way(path):
    assert room(path) in MAY_IMPORT, "say there what the new module may import"
    assert own_imports(path) <= MAY_IMPORT[room(path)]


def test_import_loads_nothing_that_is_not_needed():
    loaded = f"[name for name in {LOADED_WHEN_USED} if name in sys.modules]"
    script = f"import sys, mha_lib; print({loaded})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
