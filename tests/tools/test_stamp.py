"""Everything that names the repository says what `_config.yml` says."""

import re

import pytest
import yaml

from tools import book, stamp

OTHER = ("https://github.com/someone/else", "course")


def test_everything_is_stamped():
    assert list(stamp.outdated()) == [], "run: make stamp"


@pytest.mark.parametrize(
    "path", stamp.rules(), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_new_repository_reaches_every_file(path):
    rule = stamp.rules()[path]
    stamped = rule(path.read_text(encoding="utf-8"), *OTHER)
    assert "someone/else" in stamped
    assert stamp.slug(book.repository()[0]) not in stamped
    assert rule(stamped, *OTHER) == stamped


@pytest.mark.parametrize(
    "path",
    [*book.notebooks(), *book.sources()],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_every_set_up_cell_installs_from_the_repository(path):
    text = path.read_text(encoding="utf-8")
    files = {"model": "load_kept", "published": "load_published"}
    extras = {"widgets"} | {extra for extra, name in files.items() if name in text}
    needed = f"mha_lib[{','.join(sorted(extras))}] @ "
    assert needed + stamp.install(*book.repository()) in text


def config(url: str) -> str:
    """Our `_config.yml` with another address."""
    text = (book.ROOT / "_config.yml").read_text(encoding="utf-8")
    return re.sub(r"(?m)^  url: .*$", f"  url: {url}", text)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Make a project of one file: the address in it, the one in its settings."""

    def make(named: str, set_up: str) -> None:
        cff = f"repository-code: {named}\n"
        (tmp_path / "CITATION.cff").write_text(cff, encoding="utf-8")
        (tmp_path / "_config.yml").write_text(config(set_up), encoding="utf-8")
        only = {tmp_path / "CITATION.cff": stamp.stamp_citation}
        monkeypatch.setattr(stamp, "rules", lambda: only)
        monkeypatch.setattr(book, "ROOT", tmp_path)

    return make


NOBODYS = f"https://github.com/{stamp.UNSTAMPED}/mha-book"


def test_an_address_of_nobody_is_not_published(project):
    project(NOBODYS, NOBODYS)
    assert stamp.main([]) == 0
    assert stamp.main(["--check"]) == 0
    with pytest.raises(SystemExit, match="still names YOUR_NAME.* run make stamp"):
        stamp.main(["--publish"])


def test_what_is_out_of_date_is_not_published(project, capsys):
    project(NOBODYS, OTHER[0])
    assert stamp.main(["--publish"]) == 1
    assert capsys.readouterr().out == "CITATION.cff: out of date\n"
    assert stamp.main([]) == 0
    assert capsys.readouterr().out == "CITATION.cff: stamped\n"
    assert stamp.main(["--publish"]) == 0


@pytest.mark.parametrize(
    ("address", "arguments", "sentence"),
    [
        (
            "https://github.com/someone/else.git",
            [],
            "must read https://github.com/NAME",
        ),
        (OTHER[0], ["--chekc"], "nothing, --check or --publish; got --chekc"),
    ],
)
def test_what_it_cannot_read_is_named(project, address, arguments, sentence):
    project(address, address)
    with pytest.raises(SystemExit, match=sentence):
        stamp.main(arguments)


def test_the_workflow_asks_before_it_publishes():
    path = book.ROOT / ".github" / "workflows" / "book.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    steps = jobs["test"]["steps"]
    (asks,) = (k for k, x in enumerate(steps) if "stamp --publish" in x.get("run", ""))
    (hands_over,) = (k for k, x in enumerate(steps) if "upload" in x.get("uses", ""))
    assert asks < hands_over
    assert jobs["publish"]["needs"] == "test"
    assert jobs["publish"]["if"] in steps[asks]["if"]


def test_the_readme_has_a_row_for_every_chapter_and_assignment():
    table = stamp.links_table(*OTHER)
    rows = [book.ROOT / path for _, path, _ in stamp.ROW.findall(table)]
    assert rows == [*book.chapters(), *book.assignments()]


def test_a_page_without_its_table_is_refused(project):
    project(NOBODYS, NOBODYS)
    for page, *_ in stamp.TABLES:
        path = book.ROOT / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# No table\n", encoding="utf-8")
    with pytest.raises(ValueError, match="intro.md must hold a table of notebooks"):
        stamp.links_table(*OTHER)
