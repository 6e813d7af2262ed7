"""Widgets in pages of their own, opened in a browser."""

import json
import os
import re
from functools import cache, wraps

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Keyboard, Locator, Mouse, Page, Touchscreen

from mha_lib import BatchedMHA
from mha_lib.model import kept, quantised
from mha_lib.widgets import (
    AttentionExplorer,
    BreakIt,
    EinsumSteps,
    HeadLayout,
    MaskPainter,
    ModelLab,
    ScaleLab,
    VersionsSideBySide,
    model_lab,
    page,
    to_html,
)
from mha_lib.widgets.base import HERE, Widget
from tools.browser import Visit, open_folder

WITHOUT_BROWSER = "WIDGETS_WITHOUT_BROWSER"  # set: only what tests Python

ACTS = {  # what a reader or a script does; a widget answers in the frame after it
    Locator: "blur check clear click dispatch_event evaluate fill focus hover press "
    "scroll_into_view_if_needed select_option set_checked tap uncheck",
    Keyboard: "press type",
    Mouse: "click down move up wheel",
    Touchscreen: "tap",
    Page: "add_style_tag emulate_media evaluate set_viewport_size",
}
READER = {  # who opens a page, if a test says nothing else
    "viewport": {"width": 1280, "height": 720},
    "color_scheme": "light",
    "reduced_motion": "no-preference",
}
# Two frames in which nothing is asked for anew, as by another width; or a busy second.
DRAWN = """() => new Promise(done => {
    let [frames, calm] = [0, 0];
    const look = () => {
        calm = document.querySelector('.mha[aria-busy=true]') ? 0 : calm + 1;
        if (calm > 2 || frames++ > 60) done();
        else requestAnimationFrame(look);
    };
    look();
})"""
# What a click does to a button that a reader sees and can hit, and the frames after it;
# false if there is none, or more than one is meant.
PRESS = f"""async ([selector, name, at]) => {{
    const named = x => RegExp(name).test(
        (x.ariaLabel ?? x.innerText).replace(/\\s+/g, ' ').trim());
    const all = [...document.querySelectorAll('.mha ' + selector)];
    const meant = all.filter(x => x.checkVisibility() && named(x));
    const one = at === null ? meant[0] : all[at];
    if (at === null && meant.length > 1) return false;
    if (!one || one.matches(':disabled, [aria-disabled=true]')) return false;
    one.scrollIntoViewIfNeeded();
    const {{ left, top, width, height }} = one.getBoundingClientRect();
    const met = document.elementFromPoint(left + width / 2, top + height / 2);
    if (!one.contains(met)) return false;
    one.focus();
    one.click();
    await ({DRAWN})();
    return true;
}}"""
# The same of a list or a field: [its label, what it shall hold].
FILL = f"""async ([label, value]) => {{
    const named = x => (x.ariaLabel ?? x.labels[0]?.innerText ?? '').trim() === label;
    const [one, ...more] = [...document.querySelectorAll('.mha :is(input, select)')]
        .filter(named);
    if (!one || more.length || one.disabled || !one.checkVisibility()) return false;
    const option = [...one.options ?? []].find(x => [x.value, x.label].includes(value));
    if (one.options && !option) return false;
    one.focus();
    one.value = option ? option.value : value;
    if (option === undefined && one.value !== value) return false;
    for (const kind of ['input', 'change'])
        one.dispatchEvent(new Event(kind, {{ bubbles: true }}));
    await ({DRAWN})();
    return true;
}}"""
UNFOLD = """() => {
    for (const one of document.querySelectorAll('.mha-more')) one.open = true;
}"""
PRESSED = """label => {
    const [one, ...more] = [...document.querySelectorAll('.mha button')]
        .filter(x => (x.ariaLabel ?? x.innerText).trim() === label);
    return more.length ? null : one?.ariaPressed;
}"""
ROWS = """summary => {
    const all = [...document.querySelector('.mha').querySelectorAll('.mha-numbers')]
        .filter(x => x.textContent.includes(summary));
    const table = all.length === 1 && all[0].open && all[0].querySelector('tr');
    return table && [...table.closest('table').rows].map(
        row => [...row.cells].map(x => x.textContent));
}"""
BOX = """all => {
    if (all.length !== 1) throw Error(`one was meant; found ${all.length}`);
    const { x, y, width, height } = all[0].getBoundingClientRect();
    return { x, y, width, height };
}"""
VIOLATIONS = """(_, options) => axe.run({ resultTypes: ["violations"], ...options })
    .then(found => found.violations)"""
# A script of ours: a locator would bring one of Playwright's into each new page.
READY = """patience => new Promise((done, fail) => {
    const end = Date.now() + patience;
    const look = () => document.documentElement.dataset.widgets === 'ready' ? done()
        : Date.now() > end ? fail('the widgets are not ready') : setTimeout(look, 5);
    look();
})"""
PATIENCE = 5000  # milliseconds
OTHER = {"light": "dark", "dark": "light"}
# The book's column at 1280 and at 390 pixels, beside the two margins of 8 of a page.
DESK, PHONE = {"width": 704, "height": 800}, {"width": 374, "height": 844}
ORDERS = {  # of the rows in chapter 8: both are right
    "head-major": ["x", "split(D, 2)", "cat(0)"],
    "batch-major": ["x", "view(B, T, H, D)", "transpose(1, 2)", "reshape(B*H, T, D)"],
}
MOST = {"desk": (DESK, 600), "phone": (PHONE, 844)}  # pixels, how high a widget may be


def pytest_collection_modifyitems(config, items):
    """Leave out what opens a browser, where somebody asks for that."""
    if os.environ.get(WITHOUT_BROWSER):
        left_out = [x for x in items if "chromium" in getattr(x, "fixturenames", ())]
        items[:] = [x for x in items if x not in left_out]
        config.hook.pytest_deselected(items=left_out)


class Live(Visit):
    """Widgets, alive in a page on file://; the next come into the same page.

    A new page takes the browser four times as long as new widgets in an old one. Its
    file is read anew each time: what is only written into an open document hears the
    pointer leave too late, and keeps what scripts have changed.
    """

    def __init__(self, browser, folder, **context):
        self.file, self.seen_in = folder / "page.html", None
        super().__init__(browser, "about:blank", self.file.as_uri(), **context)
        self.page.set_default_timeout(PATIENCE)

    def open(self, widgets, viewport, color_scheme, reduced_motion, folded=True):
        """As in a fresh page: the pointer in the corner, the settings a reader's.

        If not `folded`, all that lies under *More* is unfolded.
        """
        self.scheme = color_scheme
        self.page.mouse.move(0, 0)
        if (viewport, color_scheme, reduced_motion) != self.seen_in:
            self.page.set_viewport_size(viewport)
            self.page.emulate_media(
                color_scheme=color_scheme, reduced_motion=reduced_motion
            )
            self.seen_in = viewport, color_scheme, reduced_motion
        self.file.write_text(to_html(*widgets, title="Test"), encoding="utf-8")
        self.page.goto(self.file.as_uri())
        self.page.main_frame.evaluate(READY, PATIENCE)
        self.root_element = self.page.locator(".mha").first
        if not folded:
            self.page.main_frame.evaluate(UNFOLD)
        self.settle()

    def follow_link(self) -> str:
        """Leave the page, and come back by the address that *copy link* has made."""
        self.button("copy link").click()
        address = self.page.url
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.main_frame.evaluate(READY, PATIENCE)
        return address

    def settle(self):
        """Wait until what was asked for is drawn: two frames, or a busy second."""
        self.page.main_frame.evaluate(DRAWN)

    def text(self, selector: str = "") -> str:
        """Of the one element that is meant, or of the whole widget."""
        if not selector:
            return self.measure("root => root.innerText")
        if ">>" not in selector and len(found := self.texts(selector)) == 1:
            return found[0]
        return self.root_element.locator(selector).inner_text()  # waits, or complains

    def texts(self, selector: str) -> list[str]:
        return self.measure_all(selector, "all => all.map(x => x.innerText)")

    def count(self, selector: str) -> int:
        return self.measure(f"() => document.querySelectorAll('{selector}').length")

    def box(self, selector: str = "") -> dict[str, float]:
        """Where the one element that is meant lies, or the whole widget."""
        if not selector:
            return self.measure(f"root => ({BOX})([root])")
        return self.measure_all(selector, BOX)

    def measure(self, script: str, given: object = None):
        """What a script reads of the widget: it changes nothing to wait for."""
        root = "document.querySelector('.mha')"
        return self.page.main_frame.evaluate(f"x => ({script})({root}, x)", given)

    def measure_all(self, selector: str, script: str):
        """What a script reads of all parts that a selector means.

        The first locator in a page brings Playwright's own script, which takes as long
        as a third of a widget: what only reads is shorter without.
        """
        find = f"[...root.querySelectorAll({json.dumps(selector)})]"
        return self.measure(f"root => ({script})({find})")

    def control(self, label: str):
        return self.root_element.get_by_label(label, exact=True)

    def button(self, label: str):
        return self.root_element.get_by_role("button", name=label, exact=True)

    def press(self, label: str):
        """Click a button as the page can do it, in half of the time of a pointer.

        Where that has to wait, or has something to report, the pointer is sent; it is
        always sent in test_standard.py, to what each widget offers to try.
        """
        named = f"^{re.escape(label)}$"
        if not self.page.main_frame.evaluate(PRESS, ["button", named, None]):
            self.button(label).click()

    def press_in(self, selector: str, name: str = "", at: int | None = None):
        """The same of the button that a selector and a pattern mean, or the `at`-th."""
        if not self.page.main_frame.evaluate(PRESS, [selector, name, at]):
            named = self.page.get_by_role("button", name=re.compile(name))
            meant = self.root_element.locator(selector)
            (meant.and_(named) if at is None else meant.nth(at)).click()

    def fill(self, label: str, value: str):
        """What is typed into a field, or where a slider is drawn to, as by `press`."""
        if not self.page.main_frame.evaluate(FILL, [label, value]):
            self.control(label).fill(value)

    def select(self, label: str, value: str):
        """One of a list, by its value or its words."""
        if not self.page.main_frame.evaluate(FILL, [label, value]):
            self.control(label).select_option(value)

    def pressed(self, label: str) -> bool:
        found = self.page.main_frame.evaluate(PRESSED, label)
        return (found or self.button(label).get_attribute("aria-pressed")) == "true"

    def pixels(self, selector: str = ".mha-map canvas", at: int = 0) -> str:
        """What a canvas shows, as text to compare."""
        return self.measure_all(selector, f"all => all[{at}].toDataURL()")

    def table(self, summary: str) -> list[list[str]]:
        """The cells of a folded table, heads included; it is left open."""
        if rows := self.page.main_frame.evaluate(ROWS, summary):
            return rows
        details = self.root_element.locator("details.mha-numbers", has_text=summary)
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        details.locator("tr").first.wait_for(state="attached")
        return self.page.main_frame.evaluate(ROWS, summary)

    def light(self, scheme: str):
        """The page in the light or in the dark, as if its theme had been switched."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")

    def faults(self) -> list[str]:
        """What axe-core finds; in the other colours their contrast alone can differ."""
        if not self.measure("() => 'axe' in window"):  # half a megabyte
            self.page.main_frame.evaluate(Axe().axe_script)
        found = self.measure(VIOLATIONS, {})
        self.light(OTHER[self.scheme])
        found += self.measure(VIOLATIONS, {"runOnly": ["color-contrast"]})
        self.light(self.scheme)
        return [
            f"{x['id']}: {node['html'][:200]}" for x in found for node in x["nodes"]
        ]

    def width(self) -> int:
        return self.measure("() => document.documentElement.scrollWidth")


@pytest.fixture
def every_widget() -> list[Widget]:
    """One of each kind."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 8, generator=generator)
    parameters = BatchedMHA(8, 2).state_dict()
    return [
        AttentionExplorer(x.softmax(-1)),
        HeadLayout(),
        MaskPainter(5),
        EinsumSteps(),
        VersionsSideBySide(x, parameters, 2),
        ScaleLab(x[0], x[1]),
        ModelLab(),
        BreakIt(),
    ]


@pytest.fixture(scope="module", autouse=True)
def one_model():
    """A lab reads its model and writes its first view anew: here, once a file."""
    view = cache(model_lab._view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "load_kept", cache(kept.load_kept))
        patch.setattr(quantised, "unpack", cache(quantised.unpack))
        patch.setattr(
            model_lab,
            "_view",
            lambda m, t, text, off, x: view(m, t, text, tuple(off), x),
        )
        yield


@pytest.fixture(scope="module")
def scripts(chromium):
    """A page that may import our JavaScript by file, as "/tensor.js"."""
    opened = open_folder(chromium, HERE)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def stage(chromium, tmp_path_factory):
    """The page in which the tests of a file open their widgets."""
    page = Live(chromium, tmp_path_factory.mktemp("stage"))
    yield page
    page.context.close()


@pytest.fixture
def live(stage, chromium, tmp_path, monkeypatch):
    """Open a widget: live(widget, color_scheme="dark", viewport={...}, folded=False).

    What was open before is gone then. After each act of a reader the test goes on when
    the widgets have drawn: what a test reads is never of the frame before, however slow
    the machine. The stills, which take longer than all else, are left out.
    """
    opened, now = [stage], []
    stage.complaints.clear()
    monkeypatch.setattr(page, "png", lambda figure: "")

    def open_widget(*widgets, **context):
        for kind in {type(widget) for widget in widgets}:
            monkeypatch.setattr(kind, "still", lambda self: None)
        fold = {"folded": context.pop("folded", True)}
        own = {key: context.pop(key) for key in [*context] if key not in READER}
        if own:  # such as a page for fingers
            opened.append(Live(chromium, tmp_path, **own))
        now[:] = []
        visit = opened[-1] if own else stage
        visit.open(widgets, **READER | context | fold)
        now[:] = [visit]
        return visit

    def and_settle(act):
        @wraps(act)
        def act_and_settle(*args, **options):
            done = act(*args, **options)
            for visit in now:
                visit.settle()
                if act.__name__ in ("emulate_media", "set_viewport_size"):
                    visit.seen_in = None  # the next test has its own
            return done

        return act_and_settle

    for kind, names in ACTS.items():
        for name in names.split():
            monkeypatch.setattr(kind, name, and_settle(getattr(kind, name)))
    yield open_widget
    for visit in opened[1:]:
        visit.context.close()
    assert [x for visit in opened for x in visit.complaints] == []


def assert_says(live, make, cases):
    """Of a widget with each (trait, bad value, sentence): the sentence, nothing else.

    All stand in one page, so that none troubles another.
    """
    widgets = [make() for _ in cases]
    for widget, (trait, value, _) in zip(widgets, cases):
        setattr(widget, trait, value)
    said = live(*widgets).measure(
        "() => [...document.querySelectorAll('.mha')].map(x => x.innerText)"
    )
    for text, (trait, value, sentence) in zip(said, cases, strict=True):
        assert "cannot be drawn" in text and sentence in text, (trait, value)


def number(text: str) -> float:
    """A number as the page writes it, with its own minus sign."""
    return float(text.replace("−", "-"))
