"""Everything that names the repository says what `_config.yml` says."""

import pytest

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
    needed = f"mha_lib[widgets] @ {stamp.install(*book.repository())}"
    assert needed in path.read_text(encoding="utf-8")
