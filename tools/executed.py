"""The executed pages: run what changed, a page a core, and keep what came out.

The build reads the outputs from the cache that is filled here. A page is run anew if
its cells of code changed, which jupyter-cache sees, or a package, or a file in a room
that its code names, which it does not.
"""

import hashlib
import os
import re
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_client import AsyncKernelManager
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbformat import NotebookNode
from tqdm import tqdm

from tools import book, notebook
from tools.kernels import Forks

ROOMS = ("mha_lib", "evidence", "tests", "mutants", "tools", "benchmarks")
PASSING = ("__pycache__", ".ipynb_checkpoints", ".ruff_cache")


def folder() -> Path:
    """Where jupyter-book looks for a cache."""
    return book.HTML.parent / ".jupyter_cache"


def pages() -> dict[Path, NotebookNode]:
    """Every page with code that the build runs; a page of text may have some, too."""
    extensions = book.read_yaml("_config.yml")["parse"]["myst_enable_extensions"]
    config = MdParserConfig(enable_extensions=set(extensions))
    found = {path: notebook.read(path) for path in book.lessons()}
    for path in (book.ROOT / f"{page}.md" for page in book.pages()):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if is_myst_markdown_notebook(text):
            found[path] = read_myst_markdown_notebook(text, config, path=path)
    return found


def rooms(page: NotebookNode) -> list[str]:
    """The rooms that its code names, and so perhaps imports, runs or reads."""
    code = "\n".join(cell.source for cell in page.cells if cell.cell_type == "code")
    named = r"\b(?:from|import) {0}\b|\b{0}/"
    return [room for room in ROOMS if re.search(named.format(room), code)]


def digest_of_files(name: str) -> str:
    """Changes with a file, or with every file in a room."""
    state, start = hashlib.sha256(), book.ROOT / name
    for path in [start] if start.is_file() else sorted(start.rglob("*")):
        within = path.relative_to(book.ROOT)
        if path.is_file() and not set(PASSING) & set(within.parts):
            state.update(f"{within}\0".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def digest_of_packages() -> str:
    # Not along sys.path: it grows, by our own folder or by what setuptools hides.
    places = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    found = distributions(path=places)
    installed = sorted({f"{x.name} {x.version}" for x in found})
    return hashlib.sha256("\n".join([sys.version, *installed]).encode()).hexdigest()


def digests(found: dict[Path, NotebookNode]) -> dict[Path, str]:
    """What the outputs of each page depend on, but for the page itself."""
    known = {room: digest_of_files(room) for room in ROOMS}
    packages = digest_of_packages()

    def digest(page: NotebookNode) -> str:
        parts = [packages, *(known[room] for room in rooms(page))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    return {path: digest(page) for path, page in found.items()}


def kept(cache: JupyterCacheAbstract, page: NotebookNode, digest: str) -> bool:
    """Whether what the cache holds for this page was made from all that is here now."""
    try:
        record = cache.match_cache_notebook(page)
    except KeyError:
        return False
    return record.data.get("digest") == digest


class NotRun(LookupError):
    """No outputs of a page as it is now: the build has to run it first."""


def remembered(path: Path, page: NotebookNode, digest: str) -> NotebookNode:
    """The page with the outputs that the last build got of it."""
    cache = get_cache(str(folder()))
    if not kept(cache, page, digest):
        raise NotRun(f"{path.name} has changed since it was run; run: make book")
    _, filled = cache.merge_match_into_notebook(page)
    return filled


def seconds(cache: JupyterCacheAbstract) -> dict[str, float]:
    """How long each page took at the last time."""
    records = cache.list_cache_records()
    return {record.uri: record.data.get("seconds", 0.0) for record in records}


def longest_first(paths: list[Path], seconds: dict[str, float]) -> list[Path]:
    """A long page that comes last runs alone; one that nobody has timed may be longer.

    Of these a later chapter comes first: it does more.
    """

    def length(path: Path) -> tuple[float, str]:
        return seconds.get(str(path), float("inf")), path.name

    return sorted(paths, key=length, reverse=True)


def fill(pages: dict[Path, NotebookNode], digests: dict[Path, str]) -> list[str]:
    """Run every page whose outputs are not kept; return what failed, a line each."""
    cache = get_cache(str(folder()))
    left = [
        path for path, page in pages.items() if not kept(cache, page, digests[path])
    ]
    left = longest_first(left, seconds(cache))
    # Two kernels on two cores: a thread each, or they fight.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    problems = []
    with closing(Forks()) as forks, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(timed, path, pages[path], forks.manager()) for path in left]
        done = as_completed(work)
        for one in tqdm(done, "run", len(left), unit="page", disable=not left):
            try:
                path, page, took = one.result()
            except notebook.NotebookError as error:
                problems.append(str(error))
                continue
            data = {"digest": digests[path], "seconds": took}
            bundle = CacheBundleIn(page, str(path), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return problems


def timed(
    path: Path, page: NotebookNode, manager: AsyncKernelManager
) -> tuple[Path, NotebookNode, float]:
    start = time.perf_counter()
    notebook.run(page, path, manager)
    return path, page, time.perf_counter() - start
