"""Imports run one way in the whole tree, and importing the library costs little."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parents[1]
BASE = "._inputs .masks.* .layouts"
STYLES = ("per_head", "batched", "fused", "einsum", "builtin", "split_concat")
ROOMS = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir()]
CODE = "mha_lib.* evidence.* mutants.* tools.* benchmarks.*"  # what there is to test

# What may be imported where, of ours. A dot at the start stands for mha_lib. A row
# holds for all that lies in a module, unless a longer one does. ".check" is the front
# door alone, ".check.*" what lies behind it, too. Nothing but a test imports tests.
MAY_IMPORT = {
    "._inputs": "",
    ".masks": "._inputs .masks.*",
    ".layouts": "._inputs",
    ".attention": BASE,
    "._tiles": "",
    ".tiled": f"{BASE} .attention ._tiles",
    ".styles": ".styles.*",
    **{f".styles.{style}": f"{BASE} .attention" for style in STYLES},
    ".styles.fused": f"{BASE} .attention .tiled",
    ".dropin": "._inputs .attention .layouts .masks.* .tiled",
    ".convert": ".convert.*",
    ".checkpoints": ".convert.*",
    ".model": ".model.* .convert.* .dropin .masks.* .styles.*",
    ".model.__main__": ".model.* .widgets",  # for the page of its heads
    ".plots": ".plots.*",
    ".__init__": f"{BASE} .attention .convert.* .dropin .styles.* .grade.start",
    ".widgets": ".widgets.* .plots.* .layouts",  # they take arrays, not modules
    ".widgets.model_lab": ".widgets.* .plots.* .model.*",  # the kept model
    ".widgets.break_it": ".widgets.* .check.catalogue",  # its mistakes and sentences
    ".widgets.break_it_catalogue": ".check.catalogue .check.reference",
    ".check": ".check.*",  # judges by a reference of its own
    ".check.beside": ".check.beside.*",  # runs beside submissions, loaded alone
    ".check.catalogue": ".check.catalogue.* .check.reference",
    ".grade": ".grade.* .check .check.beside.*",  # by the door alone
    ".grade.inside": ".grade.inside.*",  # runs beside submissions, loaded alone
    "evidence": "evidence.* mha_lib.*",
    "mutants": "mutants.* tools.book",  # takes the library as text
    "tools": "tools.* .check.* .grade.*",
    "tools.first_look": "tools.* .model.*",
    "tools.warm": "mha_lib",  # what every page imports
    "benchmarks": "benchmarks.* tools.* mha_lib.*",
    "book": "mha_lib.*",
    "book._ext": ".widgets.*",
    "book.how_we_know": "mha_lib.* evidence.* mutants.result",
    "tests": f"{CODE} tests.nursery",
    **{f"tests.{room}": f"{CODE} tests.{room}.*" for room in ROOMS},
    "tests.grade": f"{CODE} tests.grade.* tests.check.submissions_right "
    "tests.check.submissions_broken",
}
ALONE = ("mha_lib.grade.inside", "mha_lib.check.beside")  # in a package of any name
NEVER = [  # (who, whom), a line for each thing that the table is there to keep apart
    ("mha_lib.attention", "mha_lib.convert"),
    ("mha_lib.masks", "mha_lib.attention"),
    ("mha_lib.styles.batched", "mha_lib"),  # from the module, not from the package
    ("mha_lib.styles.batched", "mha_lib.styles.fused"),
    ("mha_lib.dropin", "mha_lib.styles.builtin"),
    ("mha_lib.convert", "mha_lib.styles.batched"),
    ("mha_lib.widgets.base", "mha_lib.attention"),
    ("mha_lib.check.reference", "mha_lib.styles.batched"),
    ("mha_lib.check.reference", "mha_lib.model"),
    ("mha_lib.convert", "mha_lib.model.transformer"),
    ("mha_lib.check.reference", "mha_lib.grade.judge"),
    ("mha_lib.check.beside.find", "mha_lib.check.tasks"),
    ("mha_lib.grade.inside.wire", "mha_lib.grade.sandbox"),
    ("mha_lib.grade.inside.wire", "mha_lib.check"),
    ("mha_lib.grade.judge", "mha_lib.check.diagnosis"),  # there is a front door
    ("mha_lib.grade.judge", "evidence.reference"),
    ("evidence.laws", "tests.library.test_properties"),
    ("evidence.laws", "tools.book"),
    ("mutants.trial", "mha_lib.attention"),
    ("tools.build", "benchmarks.chapter"),
    ("tools.build", "evidence.laws"),
    ("benchmarks.timers.pages", "tests.conftest"),
    ("benchmarks.timers.pages", "evidence.helpers"),
    ("book.04_masks", "evidence.reference"),
    ("book.how_we_know", "tests.oracles.common"),
    ("book.how_we_know", "mutants.__main__"),
    ("book._ext.live", "mha_lib.attention"),
    ("tests.oracles.common", "tests.library.torch_pair"),
    ("tests.conftest", "tests.oracles.common"),
]
MOST_LINES = {".py": 450, ".js": 450, ".css": 550}  # docstrings and all
MOST_LINES_OF_TESTS = 1100  # many short ones, and lists of cases
HEAVY = ["matplotlib", "ipywidgets", "anywidget", "keras", "tensorflow"]
HEAVY += ["jax", "flax", "transformers"]
LOADED_WHEN_USED = {  # what a module does not import before it is needed
    "mha_lib": HEAVY,
    "mha_lib.model": ["tokenizers", "safetensors", "tensorboard", "matplotlib"],
}


# --- who imports whom -----------------------------------------------------------


def sources() -> list[Path]:
    """Every module, and every notebook: those that are text, too."""
    rooms = {name.split(".")[0] or "mha_lib" for name in MAY_IMPORT}
    found = []
    for room in sorted(rooms):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".ipynb") or (
                path.suffix == ".md" and "{code-cell}" in path.read_text("utf-8")
            ):
                found.append(path)
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def name(path: Path) -> str:
    """mha_lib/check/seen.py → mha_lib.check.seen, of a package its own name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 2:
        parts = parts[:-1]
    return ".".join(parts)


@cache
def modules() -> set[str]:
    found = {name(path).removesuffix(".__init__") for path in sources()}
    return found | {x.rpartition(".")[0] for x in found}


def code(path: Path) -> str:
    """The text of a module, or of all code cells of a notebook."""
    if path.suffix == ".py":
        return path.read_text("utf-8")
    cells = [x.source for x in jupytext.read(path).cells if x.cell_type == "code"]
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", "\n".join(cells))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a tree; no expression holds one, so none is walked through."""
    todo = [tree]
    while todo:
        yield (node := todo.pop())
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, part, [])


def imports(path: Path) -> Iterator[str]:
    """What a file imports of ours; `from a import b` is a.b if that is a module."""
    package = path.relative_to(ROOT).parent.parts
    for node in statements(ast.parse(code(path))):
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules()
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            assert not node.level or name(path).startswith(ALONE), "import absolutely"
            module = ".".join((*above, *filter(None, [node.module])))
            names = {f"{module}.{alias.name}" for alias in node.names}
            yield from names & modules()
            if names - modules() and module in modules():
                yield module


# --- who may ---------------------------------------------------------------------


def full(pattern: str) -> str:
    return f"mha_lib{pattern}" if pattern.startswith(".") else pattern


def row(who: str) -> list[str]:
    """What a module may import: the row of the longest name that fits."""
    rows = {full(name): patterns for name, patterns in MAY_IMPORT.items()}
    fitting = [name for name in rows if f"{who}.".startswith(f"{name}.")]
    assert fitting, f"say in MAY_IMPORT what {who} may import"
    return [full(pattern) for pattern in rows[max(fitting, key=len)].split()]


def allowed(whom: str, patterns: list[str]) -> bool:
    return whom in patterns or any(
        f"{whom}.".startswith(pattern[:-1])
        for pattern in patterns
        if pattern.endswith(".*")
    )


@pytest.mark.parametrize("path", sources(), ids=lambda x: str(x.relative_to(ROOT)))
def test_imports_run_one_way(path):
    patterns = row(name(path))
    wrong = [whom for whom in imports(path) if not allowed(whom, patterns)]
    assert not wrong, f"{name(path)} must not import {', '.join(wrong)}"


@pytest.mark.parametrize(("who", "whom"), NEVER)
def test_some_imports_are_never_allowed(who, whom):
    assert {who, whom} <= modules()
    assert not allowed(whom, row(who))


# --- how large, how quick ---------------------------------------------------------


@pytest.mark.parametrize("room", [*CODE.replace(".*", "").split(), "book/_ext"])
def test_a_file_is_not_too_long(room):
    """One that grows beyond it is parted where its contents part."""
    assert long_files(room, MOST_LINES) == {}


def test_a_file_of_tests_is_not_too_long():
    assert long_files("tests", {".py": MOST_LINES_OF_TESTS}) == {}


def long_files(room: str, most: dict[str, int]) -> dict[str, int]:
    """Those that have more lines than most of their kind may have."""
    files = [path for path in (ROOT / room).rglob("*") if path.suffix in most]
    assert files
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    return {name(x): n for x, n in sizes.items() if n > most[x.suffix]}


def test_import_loads_nothing_that_is_not_needed():
    """One process imports all, one after the other, and tells what is there then."""
    script = "import sys\n" + "".join(
        f"import {module}\nprint([x for x in {unneeded} if x in sys.modules])\n"
        for module, unneeded in LOADED_WHEN_USED.items()
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]"] * len(LOADED_WHEN_USED)
