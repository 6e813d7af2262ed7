"""Serve all that a page needs from the book itself, and no more than that."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fontTools import subset
from PIL import Image
from sphinx.application import Sphinx

# --- icons --------------------------------------------------------------------

ICON = re.compile(r"\bfa-[a-z0-9-]+")
ICON_RULE = re.compile(
    r'(?P<selectors>(?:\.fa-[\w-]+:{1,2}before,?)+)\{content:"\\(?P<code>\w+)"\}'
)
SIGN = re.compile(r"\\(?P<code>[ef][\da-f]{3})\b|(?P<sign>[\ue000-\uf8ff])")
FONT_FILES = re.compile(
    r'url\((?P<path>\.\./webfonts/[\w-]+)\.woff2\) format\("woff2"\),'
    r'url\([^)]*\.ttf\) format\("truetype"\)'
)


def signs(css: str) -> set[int]:
    """The icons that a style sheet names by their code, without a class."""
    return {
        int(found["code"], 16) if found["code"] else ord(found["sign"])
        for found in SIGN.finditer(css)
    }


def drop_unused_icons(
    fontawesome: Path, used: set[str], codes: set[int]
) -> None:
    """Leave the icons that occur, by their class or by their code.

    Fonts and rules come down from 860 kB to 25 kB.
    """
    css = fontawesome / "css" / "all.min.css"
    codes = set(codes)

    def keep(rule: re.Match) -> str:
        names = set(ICON.findall(rule["selectors"]))
        if not names & used:
            return ""
        codes.add(int(rule["code"], 16))
        return rule[0]

    text = ICON_RULE.sub(keep, css.read_text(encoding="utf-8"))
    text = FONT_FILES.sub(r'url(\g<path>.woff) format("woff")', text)
    css.write_text(text, encoding="utf-8")
    for font in (fontawesome / "webfonts").glob("*.ttf"):
        options = subset.Options(flavor="woff", notdef_outline=True)
        loaded = subset.load_font(font, options)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=codes)
        subsetter.subset(loaded)
        subset.save_font(loaded, font.with_suffix(".woff"), options)
        font.unlink()
        font.with_suffix(".woff2").unlink()
    (fontawesome / "js" / "all.min.js").unlink()  # the same icons as drawings


# --- pages and pictures ------------------------------------------------------

# On file:// the browser refuses to preload a font and logs an error for each.
FONT_PRELOAD = re.compile(r'<link rel="preload" as="font"[^>]*>\s*')
ICON_SCRIPT = re.compile(
    r"<script[^>]*/fontawesome/[^>]*></script>\s*|"
    r'<link rel="preload"[^>]*/fontawesome/[^>]*>\s*'
)
PICTURE = re.compile(r"(_images/[\w.-]+)\.png")
WHITE = (255, 255, 255)
COLOURS = 256  # of a plot; nobody sees which are left out


def pack(picture: Path) -> None:
    """Store a PNG with few colours as WebP, about half as large."""
    with Image.open(picture) as image:
        seen = image.convert("RGBA")
    paper = Image.new("RGBA", seen.size, WHITE)
    many = Image.alpha_composite(paper, seen).convert("RGB")
    # Other ways make one of many pale colours, and a weight of 0.06 white.
    covers = Image.Quantize.MAXCOVERAGE
    few = many.quantize(COLOURS, covers, dither=Image.Dither.NONE)
    palette = few.getpalette()
    if many.getpixel((0, 0)) == WHITE:  # now it is nearly so
        place = 3 * few.getpixel((0, 0))
        palette[place : place + 3] = WHITE
        few.putpalette(palette)
    few.convert("RGB").save(picture.with_suffix(".webp"), lossless=True)
    picture.unlink()


def drop_thebe(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    """Take out the scripts for live kernels: unused here, they log an error."""
    context["script_files"][:] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body')}"
    ]


def finish(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    used: set[str] = set()
    for page in out.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        used.update(ICON.findall(html))
        html = ICON_SCRIPT.sub("", FONT_PRELOAD.sub("", html))
        html = PICTURE.sub(r"\1.webp", html)
        page.write_text(html, encoding="utf-8")
    for script in (out / "_static").glob(
        "**/*theme.js"
    ):  # they add icons later
        used.update(ICON.findall(script.read_text(encoding="utf-8")))
    vendor = out / "_static" / "vendor" / "fontawesome"
    codes: set[int] = set()
    for sheet in (out / "_static").rglob("*.css"):
        if not sheet.is_relative_to(vendor):
            codes |= signs(sheet.read_text(encoding="utf-8"))
    for icons in vendor.iterdir():
        drop_unused_icons(icons, used, codes)
    with ThreadPoolExecutor() as pool:  # Pillow lets go of the lock
        list(pool.map(pack, (out / "_images").glob("*.png")))


def setup(app: Sphinx) -> dict:
    app.connect(
        "html-page-context", drop_thebe, priority=900
    )  # after they came
    app.connect("build-finished", finish)
    return {
        "version": "3",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
