"""Every page says what it is: to search engines, to chats, in the browser's tab."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from tools import book, stamp

PAGES = [*book.pages(), "search", "genindex"]
STAMPED = stamp.is_stamped(book.repository()[0])
ADDRESS = "https://someone.github.io/else/"


def whole(page: str) -> BeautifulSoup:
    text = (book.HTML / f"{page}.html").read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser")


@cache
def head(path: Path) -> BeautifulSoup:
    """What a page says of itself; to read all of it takes twenty times as long."""
    start, _, _ = path.read_text(encoding="utf-8").partition("</head>")
    return BeautifulSoup(start, "html.parser")


def tags(page: str) -> dict[str, str]:
    """What a page's <meta> say, by name or property."""
    found = head(book.HTML / f"{page}.html").find_all("meta", content=True)
    return {x.get("name") or x.get("property"): x["content"] for x in found}


@pytest.fixture
def extensions(monkeypatch):
    """The folder of our Sphinx extensions, as Sphinx sees it."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")


def settings(owner: str, name: str = "else") -> SimpleNamespace:
    return SimpleNamespace(
        html_theme_options={
            "repository_url": f"https://github.com/{owner}/{name}",
            "repository_branch": "main",
        },
        html_baseurl="",
        html_title="The book",
        root_doc="book/intro",
    )


# --- the built pages ----------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_page_says_what_it_is(page):
    said = tags(page)
    assert 30 <= len(said["description"]) <= 250
    assert said["og:description"] == said["description"]
    assert said["description"].endswith((".", "?"))
    heading = head(book.HTML / f"{page}.html").find("title").get_text()
    assert heading.startswith(said["og:title"])
    assert said["og:type"] == ("website" if page == book.pages()[0] else "article")
    assert ("og:image" in said) == ("og:url" in said) == STAMPED


@pytest.mark.parametrize("page", PAGES)
def test_a_tab_names_page_and_book_once(page):
    parts = head(book.HTML / f"{page}.html").title.get_text().split(" — ")
    assert len(set(parts)) == len(parts)


def test_no_two_pages_say_the_same():
    said = [tags(page)["description"] for page in PAGES]
    assert sorted(set(said)) == sorted(said)


def test_a_chapter_is_described_by_its_promise():
    promise = "You will decide for every query which keys it may see"
    assert tags("book/04_masks")["description"].startswith(promise)


@pytest.mark.parametrize("page", PAGES)
def test_page_has_icons(page):
    path = book.HTML / f"{page}.html"
    for kind in ("icon", "apple-touch-icon"):
        (link,) = head(path).find_all("link", rel=kind)
        assert (path.parent / link["href"]).exists()


def test_front_door_leads_to_the_first_page_and_tells_of_it():
    first = book.pages()[0]
    door = whole("index")
    assert door.find("meta", {"http-equiv": "Refresh"})["content"].endswith(
        f"url={first}.html"
    )
    assert door.a["href"] == f"{first}.html"
    description = door.find("meta", {"name": "description"})["content"]
    assert description == tags(first)["description"]


# --- with an address, and without ---------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name", "address"),
    [
        ("someone", "else", ADDRESS),
        ("Someone", "else", ADDRESS),
        ("someone", "someone.github.io", "https://someone.github.io/"),
        (stamp.UNSTAMPED, "mha-book", ""),
    ],
)
def test_where_the_pages_are(extensions, owner, name, address):
    import sharing

    config = settings(owner, name)
    sharing.know_the_address(None, config)
    assert config.html_baseurl == address


def test_an_address_of_its_own_stays(extensions):
    import sharing

    config = settings("someone")
    config.html_baseurl = "https://attention.example/"
    sharing.know_the_address(None, config)
    assert config.html_baseurl == "https://attention.example/"


def test_chats_get_whole_addresses(extensions):
    import sharing

    builder = SimpleNamespace(get_target_uri=lambda page: f"{page}.html")
    app = SimpleNamespace(config=settings("someone"), builder=builder)
    sharing.know_the_address(None, app.config)
    said = "\n".join(sharing.head(app, "book/04_masks", 'The "mask"', "A & B."))
    assert f'property="og:url" content="{ADDRESS}book/04_masks.html"' in said
    assert f'property="og:image" content="{ADDRESS}_static/card.png"' in said
    assert "The &quot;mask&quot;" in said and "A &amp; B." in said


def test_the_card_is_there_and_as_large_as_is_said(extensions):
    import sharing

    with Image.open(book.HTML / sharing.CARD) as card:
        assert card.size == sharing.CARD_SIZE


@pytest.mark.parametrize("owner", ["someone", stamp.UNSTAMPED])
def test_controls_that_need_python_lead_somewhere(extensions, owner):
    import live

    notebook = "book/10_what_it_costs.ipynb"
    page = notebook.removesuffix(".ipynb")
    note = live.where_to_run(settings(owner), page, "These call Python.")
    assert note.astext().startswith(f"These call Python. To move them, open {notebook}")
    links = [node["refuri"] for node in note.findall() if "refuri" in node]
    colab = stamp.colab_link("https://github.com/someone/else", "main", notebook)
    assert links == ([colab] if owner == "someone" else [])


@pytest.mark.parametrize(
    "page", ["book/deeper/02_reading_heads", "book/10_what_it_costs"]
)
def test_the_note_names_a_notebook_that_exists(page):
    (note,) = whole(page).select(".needs-python")
    said = note.get_text()
    assert said.startswith("This is ")  # what is seen; no page has the controls
    assert "In Jupyter or Colab it has controls" in said
    assert (book.ROOT / note.code.get_text()).exists()
    assert bool(note.find_all("a")) == STAMPED
