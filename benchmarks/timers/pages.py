"""What a page weighs, when it draws, and how fast a widget answers.

    python -m benchmarks.timers.pages                 # after: make book
    python -m benchmarks.timers.pages --pages book/01_attention --runs 3

Five tables. Bytes are those that cross a network, compressed. A cold load has
4 Mbit/s and 40 ms latency; "without" is the same page with its widgets taken out. The
first screen is complete when its largest part is painted; "without" has no picture, and
the shift is what moves then, of a screen. An answer is the work of the browser's main
thread from a key to the picture, for 12 heads of 64 × 64, at full speed and slowed down
four times. A token is one that the language model of *Take a model apart* reads behind
64 others; it is held to torch by tests/widgets/test_model_run.py.
"""

import argparse
import functools
import gzip
import http.server
import json
import re
import statistics
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

from mha_lib.model.kept import load_kept
from mha_lib.model.quantised import read_packed
from mha_lib.widgets import AttentionExplorer, to_html
from mha_lib.widgets.base import HERE
from tools import book
from tools.browser import launch, open_folder

COMPRESSED = (".html", ".js", ".css", ".svg", ".json")
WIDGET_PARTS = re.compile(
    r'<script type="application/vnd\.jupyter\.widget[^>]*>.*?</script>|'
    r"<script[^>]*/_static/widgets/[^>]*></script>",
    re.DOTALL,
)
FIRST_LOOK = re.compile(r"<!-- made by [^>]*first_look.*?</div>\s*</div>", re.DOTALL)
STATE = re.compile(r'<script type="[^"]*widget-state\+json">(.*?)</script>', re.DOTALL)
LINE = {"latency": 40, "downloadThroughput": 5e5, "uploadThroughput": 5e5}  # bytes/s
FIRST_DRAWING = """
addEventListener("DOMContentLoaded", () => {
  const look = () => {
    if (document.querySelector("[data-live]")) window.drawn ??= performance.now();
    else requestAnimationFrame(look);
  };
  look();
});
"""
PAINTED = """() => new Promise(done => {
    const seen = {painted: 0, shift: 0};
    const watch = (type, add) => new PerformanceObserver(list =>
        list.getEntries().forEach(add)).observe({type, buffered: true});
    watch("largest-contentful-paint", x => { seen.painted = x.startTime / 1000; });
    watch("layout-shift", x => { seen.shift += x.value; });
    setTimeout(() => done(seen), 500);
})"""
SCREENS = {"desk": (1280, 800), "phone": (390, 844)}
KEYS = ["ArrowDown", "ArrowRight"] * 10


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve the book compressed; under /plain/ without widgets and first picture."""

    def do_GET(self):
        path = self.path.split("?")[0].removeprefix("/plain")
        file = Path(self.directory) / path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        data = file.read_bytes()
        if self.path.startswith("/plain") and file.suffix == ".html":
            data = FIRST_LOOK.sub("", WIDGET_PARTS.sub("", data.decode())).encode()
        self.send_response(200)
        if file.suffix in COMPRESSED:
            data = gzip.compress(data, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", self.guess_type(str(file)))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        """Say nothing."""


@contextmanager
def served():
    handler = functools.partial(Handler, directory=str(book.HTML))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()


def load(browser: Browser, url: str, throttled: bool) -> dict[str, float]:
    """Bytes, the load event and the first drawing of a widget, in seconds."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(FIRST_DRAWING)
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    if throttled:
        session.send("Network.emulateNetworkConditions", {"offline": False, **LINE})
    bytes_of: list[float] = []
    session.on(
        "Network.loadingFinished", lambda x: bytes_of.append(x["encodedDataLength"])
    )
    page.goto(url, wait_until="load")
    page.wait_for_load_state("networkidle")
    if page.locator("script[type*=widget-view]").count():
        page.wait_for_function("window.drawn")
    found = page.evaluate(
        "() => ({complete: performance.timing.loadEventEnd"
        " - performance.timing.navigationStart, drawn: window.drawn ?? NaN})"
    )
    context.close()
    return {name: x / 1000 for name, x in found.items()} | {"bytes": sum(bytes_of)}


def data_bytes(page: str) -> int:
    """How much of a page is the widgets' data, compressed."""
    html = (book.HTML / f"{page}.html").read_text(encoding="utf-8")
    return sum(len(gzip.compress(x.encode(), 6)) for x in STATE.findall(html))


def weights(browser: Browser, root: str, pages: list[str]) -> None:
    print("kB, compressed        page  without  widgets' code  widgets' data")
    for page in pages:
        whole = load(browser, f"{root}/{page}.html", False)["bytes"]
        plain = load(browser, f"{root}/plain/{page}.html", False)["bytes"]
        data = data_bytes(page)
        print(
            f"{page[5:]:20} {whole / 1e3:6.0f} {plain / 1e3:8.0f} "
            f"{(whole - plain - data) / 1e3:14.1f} {data / 1e3:14.1f}"
        )


def cold_loads(browser: Browser, root: str, pages: list[str], runs: int) -> None:
    print("\nseconds, 4 Mbit/s     first widget  complete without  ratio")
    for page in pages:
        if not data_bytes(page):
            continue
        drawn = statistics.median(
            load(browser, f"{root}/{page}.html", True)["drawn"] for _ in range(runs)
        )
        complete = statistics.median(
            load(browser, f"{root}/plain/{page}.html", True)["complete"]
            for _ in range(runs)
        )
        print(f"{page[5:]:20} {drawn:13.2f} {complete:17.2f} {drawn / complete:6.2f}")


def first_screen(browser: Browser, root: str, runs: int) -> None:
    print("\nseconds, 4 Mbit/s    first screen  without  ratio  shift")
    page = book.pages()[0]
    for name, size in SCREENS.items():
        seen: dict[str, list[dict]] = {"": [], "/plain": []}
        painted(browser, f"{root}/{page}.html", size)  # the first of all is late
        for run in range(runs):
            for where in sorted(seen, reverse=run % 2):  # the machine is not the same
                seen[where].append(painted(browser, f"{root}{where}/{page}.html", size))
        whole, plain = (
            statistics.median(x["painted"] for x in found) for found in seen.values()
        )
        shift = max(x["shift"] for x in seen[""])
        print(f"{name:20} {whole:12.2f} {plain:8.2f} {whole / plain:6.2f} {shift:6.3f}")


def painted(browser: Browser, url: str, size: tuple[int, int]) -> dict[str, float]:
    """When the largest part of the first screen is painted, and what moves."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {"offline": False, **LINE})
    page.goto(url, wait_until="networkidle")
    found = page.evaluate(PAINTED)
    context.close()
    return found


def answers(browser: Browser) -> None:
    """The main thread's work for each key, from the trace of the browser."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.softmax(2 * torch.randn(12, 64, 64, generator=generator), -1)
    print("\nms of the main thread   median  slowest")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(to_html(AttentionExplorer(maps)), encoding="utf-8")
        for slower in (1, 4):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-widgets=ready]", state="attached")
            session = page.context.new_cdp_session(page)
            session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
            page.locator(".mha-map").focus()
            browser.start_tracing(page=page, categories=["devtools.timeline"])
            for key in KEYS:
                page.keyboard.press(key)
                page.wait_for_timeout(150)
            times = busy(json.loads(browser.stop_tracing())["traceEvents"])
            page.close()
            print(
                f"{slower} × slower {len(times):4} keys "
                f"{statistics.median(times):8.1f} {max(times):8.1f}"
            )


def busy(events: list[dict]) -> list[float]:
    """Milliseconds of work for each key: handler, frame, layout and paint."""
    keys = [
        x["ts"]
        for x in events
        if x["name"] == "EventDispatch" and x["args"]["data"]["type"] == "keydown"
    ]
    thread = next((x["pid"], x["tid"]) for x in events if x["name"] == "EventDispatch")
    work = ("EventDispatch", "FireAnimationFrame", "UpdateLayoutTree", "Layout")
    work += ("PrePaint", "Paint", "Layerize", "Commit")
    tasks = [
        (x["ts"], x["dur"])
        for x in events
        if x["name"] in work and (x["pid"], x["tid"]) == thread and "dur" in x
    ]
    ends = [*keys[1:], keys[-1] + 150_000]
    return [
        union([(a, a + n) for a, n in tasks if start <= a < end]) / 1000
        for start, end in zip(keys, ends)
    ]


def union(spans: list[tuple[float, float]]) -> float:
    """The length of what spans cover; some lie inside others."""
    total, until = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


READ = """async ([packed, tokens, prompt, runs]) => {
    const { unpackModel } = await import("/packed_model.js");
    const { makeRunner } = await import("/model_run.js");
    const model = unpackModel(packed);
    return Array.from({ length: runs }, () => {
        const runner = makeRunner(model);
        const times = [performance.now()];
        for (const length of [prompt, prompt + 1]) {
            runner.read(tokens.slice(0, length));
            times.push(performance.now());
        }
        return [times[1] - times[0], times[2] - times[1]];
    });
}"""
PROMPT = 64  # tokens


def token(browser: Browser, runs: int = 50) -> None:
    print("\nmilliseconds            the prompt   one more token   longest")
    tokens = load_kept()[1].encode("The list is a sequence of items. " * 20)
    page = open_folder(browser, HERE)
    found = page.evaluate(READ, [read_packed()[1], tokens[: PROMPT + 1], PROMPT, runs])
    page.close()
    prompt, one = zip(*found)
    print(
        f"{PROMPT} tokens       {statistics.median(prompt):16.1f} "
        f"{statistics.median(one):16.2f} {max(one):9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", nargs="*", default=book.pages())
    parser.add_argument("--runs", type=int, default=5, help="cold loads of each page")
    options = parser.parse_args()
    with sync_playwright() as playwright, served() as root:
        browser = launch(playwright)
        weights(browser, root, options.pages)
        cold_loads(browser, root, options.pages, options.runs)
        first_screen(browser, root, options.runs)
        answers(browser)
        token(browser)
        browser.close()


if __name__ == "__main__":
    main()
