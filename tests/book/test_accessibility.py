"""axe-core finds nothing to mend on any page, in either colours."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tools import book


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("page", book.pages())
def test_axe_finds_nothing(visit, page, colours):
    opened = visit(page, colours=colours)
    opened.page.wait_for_load_state("networkidle")
    found = Axe().run(opened.page).response["violations"]
    faults = [f"{x['id']}: {n['html'][:200]}" for x in found for n in x["nodes"]]
    assert faults == []
