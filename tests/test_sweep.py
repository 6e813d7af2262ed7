"""A sweep is tried in part at each change and whole every night: no case is lost."""

import pytest

pytest_plugins = ["pytester"]

SWEPT = """
import pytest

@pytest.mark.sweep(3)
@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize("a", range(5))
def test_swept(a, b): ...

@pytest.mark.parametrize("a", range(2))
def test_all_of_it(a): ...
"""


@pytest.mark.parametrize(
    ("asked", "passed"), [("not exhaustive", 4 + 2), ("exhaustive", 6), ("", 10 + 2)]
)
def test_every_third_is_the_sample(pytester, asked, passed):
    hook = "from tests.conftest import pytest_collection_modifyitems  # noqa: F401"
    pytester.makeconftest(hook)
    pytester.makeini("[pytest]\nmarkers =\n    exhaustive\n    sweep(n)\n")
    pytester.makepyfile(SWEPT)
    result = pytester.runpytest("-p", "no:xdist", "-p", "no:nbval", "-m", asked)
    result.assert_outcomes(passed=passed, deselected=12 - passed)
