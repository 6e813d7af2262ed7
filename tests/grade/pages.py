"""Readers of the pages that the grader writes."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Notes what is open, and which tags and links there are."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [v for k, v in attributes if k in ("src", "href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_page(text: str, name: str) -> None:
    page = Page()
    page.feed(text)
    assert not page.open and "script" not in page.tags
    assert {"h1", "title", "main"} <= page.tags
    assert "Heads &lt;and&gt; tails" in text
    if "cleo" in name:
        assert "&lt;script&gt;alert(1)" in text


class Tables(HTMLParser):
    """The cells of the tables in figures, row by row, and all links and tags."""

    def __init__(self, text: str):
        super().__init__()
        self.figures, self.tables, self.links, self.tags = 0, [], [], set()
        self.inside = self.cell = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [v for k, v in attributes if k in ("src", "href")]
        self.inside |= tag == "figure"
        self.figures += tag == "figure"
        if self.inside and tag == "table":
            self.tables.append([])
        elif self.inside and tag == "tr":
            self.tables[-1].append([])
        self.cell = self.inside and tag == "td"

    def handle_endtag(self, tag):
        self.inside &= tag != "figure"
        self.cell &= tag != "td"

    def handle_data(self, data):
        if self.cell:
            self.tables[-1][-1].append(data)
