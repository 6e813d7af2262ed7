"""How fast each widget answers: every control that a reader sees, once.

    python -m benchmarks.timers.widgets
    python -m benchmarks.timers.widgets --only HeadLayout BreakIt

An answer is the work of the browser's main thread from an act to the frame that shows
it: script, style, layout and paint. Frames that follow, as of numbers that travel, and
that of the pointer which arrives count each for itself, and so does a task in idle
time; the longest is told. It should fit one frame of 16 ms, and two where the processor
is slowed down four times. What brings the act about is no part of it: the page that
scrolls there, what Playwright asks the page. Each page is opened several times and the
median taken: the brake on the processor does not draw evenly while other programs run.
The lessons are about as large as those of the book.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from benchmarks.timers.pages import union
from mha_lib import BatchedMHA
from mha_lib.widgets import (
    AttentionExplorer,
    BreakIt,
    EinsumSteps,
    HeadLayout,
    MaskPainter,
    ModelLab,
    ScaleLab,
    VersionsSideBySide,
    to_html,
)
from tools.browser import launch

WORDS = "the cat chased the dog then slept".split()  # noqa: SIM905
FRAME = {1: 16, 4: 32}  # milliseconds, by how much the processor is slowed down
WORK = {"EventDispatch", "FireAnimationFrame", "UpdateLayoutTree", "Layout"}
WORK |= {"PrePaint", "Paint", "Layerize", "FunctionCall", "TimerFire"}
WORK |= {IDLE := "FireIdleCallback"}
END = "Commit"  # of a frame, which then leaves the main thread
CATEGORIES = ["devtools.timeline", "blink.user_timing"]
CATEGORIES += ["disabled-by-default-devtools.timeline"]  # of END
CONTROLS = "button, select, textarea, input, .mha-map[tabindex]"
LEFT_OUT = ["copy link"]  # writes to the clipboard
CALM = 60  # milliseconds, in which a page that scrolled or was pointed at is drawn
QUIET = 150  # milliseconds after an act, in which all that it asked for is drawn


def lessons() -> dict[str, Callable]:
    """A widget of each kind, by its name."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 12, generator=draws)
    parameters = BatchedMHA(12, 3).state_dict()
    maps = torch.randn(12, 7, 7, generator=draws).softmax(dim=-1)
    q, k = torch.randn(2, 16, 256, generator=draws)
    return {
        "AttentionExplorer": lambda: AttentionExplorer(maps, WORDS),
        "HeadLayout": lambda: HeadLayout(T=2, embed_dim=6, num_heads=3),
        "MaskPainter": lambda: MaskPainter(7),
        "EinsumSteps": EinsumSteps,
        "ScaleLab": lambda: ScaleLab(q, k),
        "VersionsSideBySide": lambda: VersionsSideBySide(x, parameters, 3),
        "BreakIt": lambda: BreakIt(sealed=True),
        "ModelLab": ModelLab,
    }


def acts(root: Locator) -> Iterator[tuple[str, Callable]]:
    """(what it is called, how it is done) for each control that can be seen."""
    controls = root.locator(CONTROLS)
    for i in range(controls.count()):
        one = controls.nth(i)
        if not one.is_visible() or not one.is_enabled():
            continue
        if one.evaluate("x => x.closest('[inert]') !== null"):
            continue
        one.scroll_into_view_if_needed()
        name = one.evaluate(
            "x => x.getAttribute('aria-label') ?? x.labels?.[0]?.textContent"
            " ?? x.textContent"
        )
        kind = one.evaluate("x => x.type ?? 'map'")
        if name in LEFT_OUT:
            continue
        if kind == "select-one":
            yield name, lambda one=one: one.select_option(index=1)
        elif kind == "textarea" or kind == "text":
            yield name, lambda one=one: one.press("End") or one.press("1")
        elif kind in ("map", "range"):
            yield name, lambda one=one: one.press("ArrowRight")
        else:
            yield name, lambda one=one: point_and_click(one)


def point_and_click(one: Locator) -> None:
    """Without Playwright's own look at what is there, which is work of the page."""
    one.hover(force=True)
    one.page.wait_for_timeout(CALM)
    one.click(force=True)


def timed(page: Page, browser: Browser) -> dict[str, float]:
    """Milliseconds of work for each act."""
    root = page.locator(".mha").first
    names = []
    browser.start_tracing(page=page, categories=CATEGORIES)
    for name, act in acts(root):
        page.wait_for_timeout(CALM)
        page.evaluate("() => void performance.mark('act')")
        try:
            act()
        except Exception as gone:  # what an act before it has taken away
            name = f"({name}: {type(gone).__name__})"
        page.wait_for_timeout(QUIET)
        page.evaluate("() => void performance.mark('done')")
        names.append(name.strip()[:40])
    events = json.loads(browser.stop_tracing())["traceEvents"]
    return dict(zip(names, work_of_each(events), strict=True))


def work_of_each(events: list[dict]) -> list[float]:
    """Milliseconds of the main thread in the longest frame of each act.

    By the thread's own clock, which stands while other programs have the processor.

    Raises:
        ValueError: a trace in which no frame ends; all of them would count as one.
    """
    marks = [x for x in events if x["name"] in ("act", "done") and x["ph"] in "RI"]
    thread = marks[0]["pid"], marks[0]["tid"]
    tasks = sorted(
        (
            x
            for x in events
            if x["name"] in WORK | {END}
            and (x["pid"], x["tid"]) == thread
            and "tdur" in x
        ),
        key=lambda x: x["ts"],
    )
    if not any(x["name"] == END for x in tasks):
        raise ValueError(
            f"frames must end with {END!r}; the trace has none: record {CATEGORIES[-1]}"
        )
    moments = sorted(x["ts"] for x in marks)
    return [
        longest_frame([x for x in tasks if start <= x["ts"] < end])
        for start, end in zip(moments[::2], moments[1::2], strict=True)
    ]


def longest_frame(tasks: list[dict]) -> float:
    """Of tasks in their order; a commit ends a frame, an idle task stands alone."""
    frames: list[list[tuple[float, float]]] = [[]]
    idle: list[list[tuple[float, float]]] = []
    for x in tasks:
        span = x["tts"], x["tts"] + x["tdur"]
        if x["name"] == IDLE:
            idle.append([span])
        elif not (idle and span[0] < idle[-1][0][1]):  # no part of an idle task
            frames[-1].append(span)
        if x["name"] == END:
            frames.append([])
    return max(map(union, [*frames, *idle])) / 1000


def opened(browser: Browser, file: Path, slower: int) -> dict[str, float]:
    """Milliseconds of each act in a page of its own."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(3000)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-widgets=ready]", state="attached")
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    found = timed(page, browser)
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(lessons()))
    parser.add_argument(
        "--runs", type=int, default=3, help="of which the median is told"
    )
    options = parser.parse_args()
    print("ms of the main thread   slowed   acts   median   slowest")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright)
        for name in options.only:
            file = Path(folder) / f"{name}.html"
            file.write_text(to_html(lessons()[name]()), encoding="utf-8")
            for slower, frame in FRAME.items():
                runs = [opened(browser, file, slower) for _ in range(options.runs)]
                found = {
                    what: statistics.median(run[what] for run in runs if what in run)
                    for what in runs[0]
                }
                slow = {what: x for what, x in found.items() if x > frame}
                said = ", ".join(f"{what} {x:.0f}" for what, x in slow.items())
                print(
                    f"{name:22} {slower:4} × {len(found):6} "
                    f"{statistics.median(found.values()):8.1f} "
                    f"{max(found.values()):9.1f}  {said}",
                    flush=True,
                )
        browser.close()


if __name__ == "__main__":
    main()
