"""Write the repository named in `_config.yml` everywhere it occurs.

    python -m tools.stamp            # after a change of `repository`
    python -m tools.stamp --check    # only say what is out of date (exit 1)
    python -m tools.stamp --publish  # the same, and refuse an address of nobody

Each rule turns the text of a file into the text it should have; running twice
changes nothing.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from tools import book

UNSTAMPED = "YOUR_NAME"  # the owner until somebody sets one: no link leads anywhere
ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+(?<!\.git)")
# In a notebook, \" ends the address.
INSTALL = re.compile(r"(mha_lib(?:\[[\w,]+\])? @ )git\+[^\s\"\\]+")
LINKS = re.compile(r"(<!-- links\b.*?-->\n).*?(<!-- /links -->)", re.DOTALL)
ROW = re.compile(r"^\| \[(.+?)\]\(([\w/]+\.ipynb)\) \| (.*) \|$", re.MULTILINE)
TABLES = (  # page, header, and which of its columns tells what a notebook is about
    ("book/intro.md", "Chapter | The question it answers", 1),
    ("book/assignments/index.md", "Assignment | You write", 0),
)


def slug(url: str) -> str:
    return url.removeprefix("https://github.com/")


def is_stamped(url: str) -> bool:
    return not slug(url).startswith(f"{UNSTAMPED}/")


def colab_link(url: str, branch: str, path: str) -> str:
    return f"https://colab.research.google.com/github/{slug(url)}/blob/{branch}/{path}"


def binder_link(url: str, branch: str, path: str) -> str:
    return f"https://mybinder.org/v2/gh/{slug(url)}/{branch}?urlpath=lab/tree/{path}"


def install(url: str, branch: str) -> str:
    return f"git+{url}@{branch}"


def links_table(url: str, branch: str) -> str:
    """One row for each notebook that the pages' tables name: what it is about, Colab.

    Raises:
        ValueError: a table names no notebook.
    """
    rows = []
    for page, header, column in TABLES:
        text = (book.ROOT / page).read_text(encoding="utf-8")
        if not (found := ROW.findall(text)):
            raise ValueError(f"{page} must hold a table of notebooks; none was found")
        rows += ["", f"| {header} | Run |", "|:--|:--|:--|"]
        for title, name, rest in found:
            path = (Path(page).parent / name).as_posix()
            link = f"[Colab]({colab_link(url, branch, path)})"
            about = rest.split(" | ")[column]
            rows.append(f"| [{title}]({path}) | {about} | {link} |")
    return "\n".join(rows[1:]) + "\n"


def stamp_install(text: str, url: str, branch: str) -> str:
    return INSTALL.sub(rf"\1{install(url, branch)}", text)


def stamp_readme(text: str, url: str, branch: str) -> str:
    table = links_table(url, branch)
    text = LINKS.sub(lambda found: found[1] + table + found[2], text)
    return stamp_install(text, url, branch)


def stamp_citation(text: str, url: str, branch: str) -> str:
    return re.sub(r"(?m)^(repository-code|url): .*$", rf"\1: {url}", text)


def stamp_pyproject(text: str, url: str, branch: str) -> str:
    return re.sub(r'(?m)^Repository = ".*"$', f'Repository = "{url}"', text)


def rules() -> dict[Path, Callable[[str, str, str], str]]:
    """The rule for every file that names the repository."""
    return {
        book.ROOT / "README.md": stamp_readme,
        book.ROOT / "CITATION.cff": stamp_citation,
        book.ROOT / "pyproject.toml": stamp_pyproject,
    } | dict.fromkeys([*book.notebooks(), *book.sources()], stamp_install)


def outdated() -> dict[Path, str]:
    """The files that do not say what `_config.yml` says, with what they should say."""
    result = {}
    for path, rule in rules().items():
        text = path.read_text(encoding="utf-8")
        stamped = rule(text, *book.repository())
        if stamped != text:
            result[path] = stamped
    return result


def main(arguments: list[str]) -> int:
    url, _ = book.repository()
    if not ADDRESS.fullmatch(url):
        sys.exit(
            "_config.yml: repository.url must read https://github.com/NAME/REPOSITORY "
            f"(without .git or / at the end); it reads {url}"
        )
    if arguments not in ([], ["--check"], ["--publish"]):
        given = " ".join(arguments)
        sys.exit(f"stamp takes nothing, --check or --publish; got {given}")
    check = bool(arguments)
    if arguments == ["--publish"] and not is_stamped(url):
        sys.exit(
            f"Not published: repository.url in _config.yml still names {UNSTAMPED}, so "
            "the links to the repository, Colab and Binder would lead nowhere. Write "
            "the address of your repository there, run make stamp, and commit."
        )
    found = outdated()
    for path, text in found.items():
        print(f"{path.relative_to(book.ROOT)}: {'out of date' if check else 'stamped'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
