"""Execute the chapters in place, and turn them into text and back.

    python -m tools.notebook run book/01_attention.ipynb
    python -m tools.notebook from-md draft.md book/01_attention.ipynb
    python -m tools.notebook from-py draft.py book/01_attention.ipynb
    python -m tools.notebook to-md book/01_attention.ipynb draft.md

Every notebook passes through `normalise` before it is written, so that two people
who run the same chapter commit the same file.
"""

import argparse
import asyncio
import hashlib
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools import book

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_METADATA = ("tags", "mystnb", "reason")
ASSIGNMENT = "mha_assignment"  # of a notebook that asks questions
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # Jupyter, Colab
WIDGET = "application/vnd.jupyter.widget-view+json"
TIMEOUT = 300  # seconds for one cell
COLOUR = re.compile(r"\x1b\[[\d;]*m")
FAILED_LINE = re.compile(r"^-+> \d+ +(.*)$", re.MULTILINE)  # of IPython's traceback


class NotebookError(Exception):
    """A notebook that did not run; the message is one plain line."""


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def write(notebook: NotebookNode, path: Path) -> None:
    nbformat.write(normalise(notebook), path)


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Keep what readers and tests need; drop what differs from run to run."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    if ASSIGNMENT in notebook.metadata:
        metadata[ASSIGNMENT] = notebook.metadata[ASSIGNMENT]
    notebook.metadata = nbformat.from_dict(metadata)
    seen: set[str] = set()
    for cell in notebook.cells:
        kept = {k: cell.metadata[k] for k in KEPT_METADATA if k in cell.metadata}
        if cell.cell_type == "code" and "solution" in tags(cell):
            kept |= FOLDED
        cell.metadata = nbformat.from_dict(kept)
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                # The frames hold paths of this machine; the last entry is the error.
                output.traceback = output.traceback[-1:]
            output.get("data", {}).pop(WIDGET, None)  # its model lives in a kernel
        if "id" not in cell or cell.id in seen:
            cell.id = fresh_id(cell.source, seen)
        seen.add(cell.id)
    return notebook


def fresh_id(source: str, seen: set[str]) -> str:
    """An id that follows from the text, so that it stays when the cell moves."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    candidates = (digest[start : start + 8] for start in range(len(digest) - 7))
    return next(id for id in candidates if id not in seen)


def execute(path: Path) -> NotebookNode:
    """Run a notebook from its file."""
    return run(read(path), path)


def run(
    notebook: NotebookNode, path: Path, manager: AsyncKernelManager | None = None
) -> NotebookNode:
    """Run every cell in a fresh kernel that starts in the folder of ``path``."""
    started: list[int] = []
    client = NotebookClient(
        notebook,
        manager,
        kernel_name="python3",
        timeout=TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_execute=lambda cell, cell_index: started.append(cell_index),
    )
    try:
        # It closes its loop in any thread, and the kernel, whoever manages it.
        return asyncio.run(client.async_execute(cleanup_kc=True))
    except CellExecutionError as error:
        line = FAILED_LINE.findall(COLOUR.sub("", error.traceback))[-1:]
        reason = ": ".join(filter(None, [error.ename, *error.evalue.splitlines()[:1]]))
        reason += "".join(f": {x.strip()}" for x in line)
    except CellTimeoutError:
        reason = f"it ran longer than {TIMEOUT} seconds"
    except DeadKernelError:
        reason = "the kernel died"
    if path.is_relative_to(book.ROOT):
        path = path.relative_to(book.ROOT)
    raise NotebookError(f"{path}, {name_of_cell(notebook, started[-1])}: {reason}")


def name_of_cell(notebook: NotebookNode, index: int) -> str:
    first_line = notebook.cells[index].source.strip().splitlines()[0]
    return f"cell {index + 1} of {len(notebook.cells)} (`{first_line}`)"


def from_text(source: Path, target: Path, fmt: str) -> None:
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt=fmt)
    for cell in notebook.cells:
        cell.pop("id", None)  # jupytext's are random
    write(notebook, target)


def to_text(source: Path, target: Path, fmt: str) -> None:
    notebook = normalise(read(source))
    if ASSIGNMENT in notebook.metadata:  # or jupytext would drop it
        notebook.metadata["jupytext"] = {"notebook_metadata_filter": ASSIGNMENT}
    text = jupytext.writes(notebook, fmt=fmt)
    target.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.notebook")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute notebooks in place")
    run.add_argument("files", nargs="+", type=Path)
    for name in ("from-md", "from-py", "to-md"):
        convert = commands.add_parser(name, help="convert SOURCE into TARGET")
        convert.add_argument("source", type=Path)
        convert.add_argument("target", type=Path)
    options = parser.parse_args(arguments)

    try:
        if options.command == "from-md":
            from_text(options.source, options.target, "md:myst")
        elif options.command == "from-py":
            from_text(options.source, options.target, "py:percent")
        elif options.command == "to-md":
            to_text(options.source, options.target, "md:myst")
        else:
            for path in options.files:
                write(execute(path), path)
                print(f"{path}: done")
    except (NotebookError, OSError, ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
