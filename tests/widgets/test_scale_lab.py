"""The lab shows what torch computes, for every D and divisor, to mouse and keyboard."""

import re
from functools import partial
from math import inf, log, nan

import pytest
import torch

from mha_lib.widgets import ScaleLab
from mha_lib.widgets.scale_lab import head_sizes
from tests.widgets.conftest import MOST as SCREENS
from tests.widgets.conftest import assert_says, number

T, S, MOST = 6, 9, 20
SIZES = [1, 2, 4, 8, 16, 20]
DIVISORS = {  # option, formula, divisor of a head size
    "none": ("1: no division", "q·k", lambda D: 1.0),
    "sqrt": ("√D", "q·k / √D", lambda D: D**0.5),
    "D": ("D", "q·k / D", float),
    "temperature": ("τ: your own number", "q·k / τ", lambda D: 2.0**1.25),
}
AVERAGES = {"mean": torch.mean, "median": torch.median}
LINE = ".mha-sides + output"
CURVES, ROWS = "The curves as a table", "Scores and weights as a table"
DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"


@pytest.fixture
def live(live):
    return partial(live, folded=False)


def vectors(size: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return tuple(size * torch.randn(n, MOST, generator=generator) for n in (T, S))


def lab(size: float = 1.0, **options) -> ScaleLab:
    return ScaleLab(*vectors(size), **{"temperature": 2.0**1.25, **options})


def expected(widget: ScaleLab, D: int, divisor: float) -> dict[str, torch.Tensor]:
    """What torch finds for the numbers that the widget holds."""
    q, k = (torch.tensor(x, dtype=torch.float64)[:, :D] for x in (widget.q, widget.k))
    scores = q @ k.T / divisor
    weights = scores.softmax(-1)
    jacobians = [torch.autograd.functional.jacobian(_softmax, row) for row in scores]
    nats = torch.special.entr(weights).sum(-1)
    norm = torch.stack(jacobians).flatten(1).norm(dim=1)
    return {"scores": scores, "weights": weights, "nats": nats, "norm": norm}


def _softmax(row: torch.Tensor) -> torch.Tensor:
    return row.softmax(-1)


def read(text: str) -> float:
    """A number of three digits, with or without its power of ten."""
    value, _, power = text.split(" ")[0].partition("·10")
    for digit, sign in zip(DIGITS, "0123456789-"):
        power = power.replace(digit, sign)
    return number(value) * 10.0 ** int(power or 0)


def near(value: torch.Tensor | float):
    """Three digits of it."""
    return pytest.approx(float(value), rel=6e-3, abs=0)


def measures(opened) -> dict[str, list[str]]:
    rows = opened.root_element.locator(".mha-measures").evaluate(
        "t => [...t.rows].map(r => [...r.cells].map(c => c.textContent))"
    )
    return {row[0]: row[1:] for row in rows}


def bars(opened, panel: int) -> list[dict[str, float]]:
    """The place of each bar, as drawn."""
    found = opened.root_element.locator(".mha-bars svg").nth(panel).locator(".mha-bar")
    return found.evaluate_all(
        "bars => bars.map(bar => Object.fromEntries("
        "['x', 'y', 'width', 'height'].map(a => [a, Number(bar.getAttribute(a))])))"
    )


def ring(opened, chart: int) -> tuple[float, float]:
    circle = opened.root_element.locator(".mha-ring").nth(chart)
    return tuple(float(circle.get_attribute(name)) for name in ("cx", "cy"))


# --- numbers -----------------------------------------------------------------------


def test_curves_are_those_of_torch(live):
    widget = lab(divisor="temperature")
    opened = live(widget)
    for name, average in AVERAGES.items():
        opened.select("average over the queries", name)
        heads, *rows = opened.table(CURVES)
        assert [int(row[0]) for row in rows] == SIZES
        columns = iter(zip(*[row[1:] for row in (heads, *rows)]))
        for _, formula, divide in DIVISORS.values():
            found = [expected(widget, D, divide(D)) for D in SIZES]
            for what, values in [
                ("variance", [x["scores"].var() for x in found]),
                ("entropy", [average(x["nats"]) for x in found]),
                ("norm", [average(x["norm"]) for x in found]),
            ]:
                head, *cells = next(columns)
                assert head == f"{what}, {formula}"
                assert [read(cell) for cell in cells] == [near(x) for x in values]


def test_measures_of_one_query_and_of_all(live):
    widget = lab(D=8, average="mean")
    opened = live(widget)
    opened.fill("query", "4")
    for kind, (option, _, divide) in DIVISORS.items():
        opened.select("divide by", option)
        found = expected(widget, 8, divide(8))
        largest = found["weights"].amax(-1)
        rows = measures(opened)
        assert rows.pop("measure") == ["query 4", f"{T} queries, mean"]
        variances = rows.pop(next(iter(rows)))
        assert read(variances[0]) == near(found["scores"][4].var())
        assert read(variances[1]) == near(found["scores"].var())
        wanted = [
            largest,
            found["nats"],
            found["nats"] / log(2),
            found["nats"].exp(),
            found["norm"],
            found["norm"] / divide(8),
        ]
        for cells, values in zip(rows.values(), wanted, strict=True):
            assert [read(x) for x in cells] == [near(values[4]), near(values.mean())]
        best = int(found["weights"][4].argmax())
        said = opened.text(LINE)
        assert said.startswith("Undivided: query 4 gives key ")
        who = "Undivided: query 4" if kind == "none" else "Divided: it"
        gives = f"{who} gives key {best} weight"
        assert f"{gives} {float(largest[4]):.3f};" in said


def test_variance_stands_beside_its_theory(live):
    opened = live(lab(D=16))
    for option, theory in [("1: no division", "16.0"), ("√D", "1.00"), ("D", "0.0625")]:
        opened.select("divide by", option)
        assert f"variance of the scores (theory: {theory})" in measures(opened)


def test_norm_towards_products_is_that_of_autograd(live):
    """The last row: the slopes with respect to q·k, the divisor within."""
    widget = lab(D=16, divisor="sqrt", query=1)
    dots = expected(widget, 16, 1.0)["scores"][1]
    jacobian = torch.autograd.functional.jacobian(lambda x: _softmax(x / 4), dots)
    rows = measures(live(widget))
    assert read(rows["norm of ∂w/∂(q·k): that divided by 4"][0]) == near(
        jacobian.norm()
    )


def test_slopes_that_almost_vanish_keep_their_digits(live):
    """From Σw² − 2Σw³ + (Σw²)² would come 0."""
    widget = lab(2.5, D=MOST, query=1, divisor="none")
    norm = expected(widget, MOST, 1.0)["norm"][1]
    assert 0 < norm < 1e-8
    assert read(measures(live(widget))["norm of the Jacobian ∂w/∂x"][0]) == near(norm)


def test_counts_the_queries_that_are_almost_sure(live):
    widget = lab(1.5, D=16)
    sure = int((expected(widget, 16, 1.0)["weights"].amax(-1) >= 0.99).sum())
    assert 0 < sure < T
    said = live(widget).text(LINE)
    assert f"in {sure} of {T} queries one key has 0.99" in said.split("Divided")[0]


def test_scores_and_weights_as_a_table(live):
    widget = lab(D=4, divisor="D", query=2)
    found = expected(widget, 4, 4.0)
    rows = live(widget).table(ROWS)
    assert rows[0] == ["key", "q·k", "x = q·k / 4", "weight w"]
    for s, (head, dot, score, weight) in enumerate(rows[1:]):
        assert head == str(s)
        assert number(dot) == pytest.approx(4 * float(found["scores"][2, s]), abs=6e-4)
        assert number(score) == pytest.approx(float(found["scores"][2, s]), abs=6e-4)
        assert read(weight) == near(found["weights"][2, s])


# --- drawings ----------------------------------------------------------------------


@pytest.mark.parametrize("D", [2, 16])
def test_bars_are_as_long_as_scores_and_weights_on_one_scale(live, D):
    """On both sides and for every D: what shrinks can be seen to shrink."""
    widget = lab(D=D)
    opened = live(widget)
    reach = max(float(expected(widget, n, 1.0)["scores"].abs().max()) for n in SIZES)
    reach = 10 * -(-reach // 10)
    for side, divisor in enumerate((1.0, D**0.5)):
        found = expected(widget, D, divisor)
        heights = torch.tensor([bar["height"] for bar in bars(opened, 2 * side + 1)])
        wanted = (64 * found["weights"][0]).clamp(min=1).float()
        assert torch.allclose(heights, wanted)
        for bar, score in zip(bars(opened, 2 * side), found["scores"][0], strict=True):
            assert bar["height"] == near(max(1, 32 / reach * abs(float(score))))
            assert (bar["y"] < 14 + 32 - 1e-6) == (score > 0)


def largest(widget, D: int, divisor: float) -> float:
    """The largest weight of the middle query."""
    return float(expected(widget, D, divisor)["weights"].amax(-1).median())


def test_meters_show_the_largest_weight_beside_an_even_share(live):
    """Visitors read the gradient, which rises before it falls, against the lesson."""
    opened = live(lab(D=16))
    for D in (16, 20):
        opened.fill("D, the size of a head", str(SIZES.index(D)))
        for side, divisor in (("undivided", 1.0), ("divided", D**0.5)):
            meter = opened.root_element.get_by_role(
                "meter", name=f"largest weight, {side}", exact=True
            )
            weight = largest(lab(), D, divisor)
            assert float(meter.get_attribute("aria-valuenow")) == near(weight)
            width = meter.locator("i").get_attribute("style")
            assert width == f"width: {100 * weight:.1f}%"
            share = meter.locator("s").get_attribute("style")
            assert share == f"left: {100 / len(lab().k):.1f}%"
            assert meter.locator("+ b").inner_text() == f"{weight:.3f}"


@pytest.mark.parametrize(
    "viewport", [SCREENS["phone"][0], {"width": 320, "height": 640}]
)
def test_no_number_moves_a_column(live, viewport):
    opened = live(lab(2.0, D=MOST), viewport=viewport)
    root = opened.root_element
    for part in ("[role=meter]", "[role=meter] + b", ".mha-bars"):
        boxes = [x.bounding_box() for x in root.locator(f".mha-sides {part}").all()]
        assert len({(x["y"], x["height"]) for x in boxes}) == 1, part
    number = root.locator("[role=meter] + b").first
    assert number.evaluate("x => x.scrollWidth <= x.clientWidth")


def test_no_side_is_told_by_its_place(live):
    """On paper and to a screen reader it has none."""
    opened = live(lab(D=16))
    for at in range(opened.count(".mha-tries button")):
        opened.press_in(".mha-tries button", at=at)
        seen = opened.text()
        spoken = opened.measure(
            "x => [...x.querySelectorAll('[aria-label]')].map(y => y.ariaLabel).join()"
        )
        assert not re.search(r"\b(left|right)\b", seen + spoken, re.IGNORECASE)


def test_the_screen_says_how_far_the_scores_spread(live):
    """Why it is √D: visitors had to find it under *More*."""
    opened = live(lab(D=16))
    raw, divided = (expected(lab(), 16, x)["scores"].std() for x in (1.0, 4.0))
    said = re.fullmatch(
        r"Spread of the scores, where √D is 4\.00: undivided (.+), divided (.+)\.",
        opened.text(".mha-spreads"),
    )
    assert number(said[1]) == near(raw) and number(said[2]) == near(divided)


def test_the_bar_says_that_it_is_of_all_queries(live):
    """Of 16 queries, where the picture below is of one."""
    widget = lab(query=3)
    opened = live(widget)
    assert opened.text(".mha-meaning") == (
        f"First bar: the largest weight, median of {len(widget.q)} queries; its mark: "
        "an even share. Below: query 3."
    )


def test_the_screen_says_what_D_is(live):
    opened = live(lab(D=16), viewport=SCREENS["phone"][0])
    name = opened.root_element.get_by_text("D, the size of a head", exact=True)
    value = name.locator("~ .mha-value")
    assert value.inner_text() == "16"
    lines = [x.bounding_box() for x in (name, value)]
    assert lines[0]["y"] == pytest.approx(lines[1]["y"], abs=2)  # one line


def test_nothing_divided_is_one_side_alone(live):
    opened = live(lab(divisor="none"))
    assert opened.control("key, undivided").first.is_visible()
    assert opened.root_element.get_by_role("meter").count() == 1


def test_what_to_try(live):
    opened = live(lab())
    for title, D, divisor in (
        ("a small head", 2, 2**0.5),
        ("a large head", 20, 20**0.5),
    ):
        opened.press(title)
        undivided, divided = (largest(lab(), D, x) for x in (1.0, divisor))
        said = f"Largest weight: undivided {undivided:.3f}, divided {divided:.3f}."
        assert opened.text(".mha-note").startswith(said)
    opened.press("too much")
    most = expected(lab(), 20, 20.0)["weights"].max()
    share = f"No key is chosen: the largest weight is {most:.2f}, an even share 0.11."
    assert opened.text(".mha-note") == share


def test_nothing_is_said_to_learn(live):
    """Measured is ∂w/∂x; towards q·k the order of the two sides may be another."""
    opened = live(lab(), viewport=SCREENS["desk"][0])
    for at in range(opened.count(".mha-tries button")):
        opened.press_in(".mha-tries button", at=at)
        assert "learn" not in opened.text()


def test_numbers_of_bars_do_not_cover_each_other(live):
    torch.manual_seed(1)
    widget = ScaleLab(torch.randn(2, 64), torch.randn(48, 64))
    for width in (900, 320):
        opened = live(widget, viewport={"width": width, "height": 800})
        hits = opened.measure(
            """root => [...root.querySelectorAll("svg")].flatMap(svg => {
              const boxes = [...svg.querySelectorAll("text")].map(t => t.getBBox());
              return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
                Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x) > 1.5 &&
                Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y) > 3));
            }).length"""
        )
        assert hits == 0


def test_rings_lie_on_the_curve_of_the_divisor(live):
    opened = live(lab(D=4))
    for option in ("1: no division", "√D", "D", "τ: your own number"):
        opened.select("divide by", option)
        for chart in range(3):
            place = ring(opened, chart)
            figure = opened.root_element.locator("figure").nth(chart)
            points = figure.locator("polyline.mha-lit").get_attribute("points").split()
            assert place == pytest.approx(
                [float(x) for x in points[2].split(",")], abs=0.1
            )


def test_curves_differ_in_more_than_colour(live):
    opened = live(lab(divisor="temperature"))
    figure = opened.root_element.locator("figure").first
    dashes = figure.locator("polyline").evaluate_all(
        "all => all.map(line => line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 4
    names = figure.locator("text").all_text_contents()[-4:]
    assert names == ["÷ 1", "÷ √D", "÷ D", "÷ τ"]


# --- hands -------------------------------------------------------------------------


def test_keyboard_moves_every_control(live):
    widget = lab(D=8, divisor="none")
    opened = live(widget)
    press = opened.page.keyboard.press

    opened.control("D, the size of a head").focus()
    before = bars(opened, 0), ring(opened, 1)
    press("ArrowRight")
    assert "Undivided: query" in opened.text(LINE)
    assert bars(opened, 0) != before[0] and ring(opened, 1) != before[1]
    assert (
        opened.control("D, the size of a head").get_attribute("aria-valuetext") == "16"
    )
    press("End")
    assert (
        opened.control("D, the size of a head").get_attribute("aria-valuetext") == "20"
    )

    opened.control("divide by").focus()
    before = bars(opened, 1)
    press("ArrowDown")
    assert "Divided: it gives" in opened.text(LINE)
    assert bars(opened, 3) != before == bars(opened, 1)
    press("End")
    assert "q·k / τ" in opened.text(".mha-side >> nth=1")

    opened.control("τ").focus()
    before = bars(opened, 3), ring(opened, 0)
    press("ArrowRight")
    assert bars(opened, 3) != before[0] and ring(opened, 0) != before[1]
    assert opened.control("τ").get_attribute("aria-valuetext") == "2.828"

    opened.control("query").focus()
    press("End")
    assert f"query {T - 1} gives key" in opened.text(LINE)

    opened.control("average over the queries").focus()
    before = ring(opened, 2)
    press("ArrowUp")
    assert measures(opened)["measure"][1] == f"{T} queries, mean"
    assert ring(opened, 2) != before


def test_mouse_moves_every_control(live):
    opened = live(lab(D=8, divisor="temperature"))
    for label, most in [("D, the size of a head", "20"), ("query", f"{T - 1}")]:
        before = bars(opened, 1)
        box = opened.control(label).bounding_box()
        opened.page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 5)
        assert opened.control(label).get_attribute("aria-valuetext") == most
        assert bars(opened, 1) != before
    before = bars(opened, 3)
    box = opened.control("τ").bounding_box()
    opened.page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 5)
    assert bars(opened, 3) != before
    assert opened.control("τ").get_attribute("aria-valuetext") == "32"


def test_key_follows_arrows_and_pointer(live):
    widget = lab(D=16, divisor="sqrt")
    found = expected(widget, 16, 4.0)
    opened = live(widget)
    slider = opened.control("key, divided")
    slider.focus()
    band = opened.root_element.locator(".mha-band").nth(2)
    opened.page.keyboard.press("Home")
    for key, s in [
        ("ArrowRight", 1),
        ("End", S - 1),
        ("ArrowRight", S - 1),
        ("ArrowLeft", S - 2),
        ("Home", 0),
        ("ArrowDown", 0),
    ]:
        opened.page.keyboard.press(key)
        said = opened.text(".mha-detail")
        assert said.startswith(f"key {s}: ")
        assert f"x = {4 * found['scores'][0, s]:.2f} / 4 =".replace("-", "−") in said
        assert read(said.split("w = ")[2]) == near(found["weights"][0, s])
        assert slider.get_attribute("aria-valuenow") == str(s)
        spoken = slider.get_attribute("aria-valuetext")
        assert spoken.startswith(f"key {s}: x = ")
        assert read(spoken.split("w = ")[1]) == near(found["weights"][0, s])
    left = float(band.get_attribute("x"))
    box = bars(opened, 3)[3]
    frame = slider.bounding_box()
    opened.page.mouse.move(frame["x"] + box["x"] + 5, frame["y"] + 50)
    assert opened.text(".mha-detail").startswith("key 3: ")
    assert float(band.get_attribute("x")) > left


def test_the_key_with_the_largest_weight_is_chosen_at_first_and_by_what_to_try(live):
    for query in range(T):
        widget = lab(D=16, query=query)
        best = int(expected(widget, 16, 1.0)["weights"][query].argmax())
        assert widget.key == best
    opened = live(widget)
    assert opened.text(".mha-detail").startswith(f"key {best}: ")
    keys = [best]
    for title, D in (("a small head", 2), ("a large head", 20), ("too much", 20)):
        opened.press(title)
        keys.append(int(expected(widget, D, 1.0)["weights"][-1].argmax()))
        assert opened.text(".mha-detail").startswith(f"key {keys[-1]}: ")
        opened.control("key, undivided").press("ArrowLeft")  # and the note stays
        assert opened.pressed(title)
    assert len(set(keys)) > 1 and 0 not in keys


@pytest.mark.parametrize("pressed", [False, True])
def test_the_key_that_is_lit_has_the_largest_weight_until_one_is_pressed(live, pressed):
    """After D a visitor saw the old key, with the weight 0, and took it for stale."""
    widget = lab(D=16)
    opened = live(widget)
    frame = opened.control("key, undivided").bounding_box()
    at = frame["x"] + bars(opened, 0)[3]["x"] + 5, frame["y"] + 50
    (opened.page.mouse.click if pressed else opened.page.mouse.move)(*at)
    assert opened.text(".mha-detail").startswith("key 3: ")
    seen = set()
    for i, D in enumerate(SIZES):
        opened.fill("D, the size of a head", str(i))
        best = int(expected(widget, D, 1.0)["weights"][0].argmax())
        seen.add(best)
        lit = 3 if pressed else best
        assert opened.text(".mha-detail").startswith(f"key {lit}: ")
    assert len(seen) > 2
    opened.fill("query", "4")
    best = int(expected(widget, D, 1.0)["weights"][4].argmax())
    lit = 3 if pressed else best
    assert opened.text(".mha-detail").startswith(f"key {lit}: ")
    opened.press("reset")
    opened.fill("D, the size of a head", "0")
    best = int(expected(widget, 1, 1.0)["weights"][0].argmax())
    assert opened.text(".mha-detail").startswith(f"key {best}: ")


DETAIL = "root => root.querySelector('.mha-detail').getBoundingClientRect().height"


@pytest.mark.parametrize(("viewport", "_"), SCREENS.values(), ids=SCREENS)
def test_no_head_size_changes_the_height(live, viewport, _):
    q, k = torch.randn(2, 16, 256, generator=torch.Generator().manual_seed(11))
    opened = live(ScaleLab(q, k), viewport=viewport)
    heights = set()
    for i in range(9):
        opened.fill("D, the size of a head", str(i))
        opened.control("key, divided").focus()
        for key in ("Home", "End"):
            opened.page.keyboard.press(key)
            heights.add(opened.measure(DETAIL))
    assert len(heights) == 1


def test_temperature_has_a_slider_only_where_it_counts(live):
    opened = live(lab())
    assert not opened.control("τ").is_visible()
    opened.select("divide by", "τ: your own number")
    assert opened.control("τ").is_visible()


# --- everywhere --------------------------------------------------------------------


def test_nothing_for_axe_to_find(live):
    opened = live(lab(divisor="temperature"))
    opened.table(ROWS)
    opened.table(CURVES)
    assert opened.faults() == []


def test_charts_stay_whole_where_a_theme_pads_figures(live):
    page = live(lab()).page
    rule = "<style>figure { padding: 7px }</style>"
    page.evaluate(f"document.head.insertAdjacentHTML('afterbegin', '{rule}')")
    widths = page.locator(".mha-charts svg").evaluate_all(
        "all => all.map(e => [+e.getAttribute('width'), e.clientWidth])"
    )
    assert len(widths) == 3
    assert all(drawn == shown for drawn, shown in widths)


def test_fits_a_small_phone(live):
    torch.manual_seed(1)
    widget = ScaleLab(torch.randn(5, 128), torch.randn(48, 128), divisor="temperature")
    opened = live(widget, viewport={"width": 320, "height": 640})
    opened.table(ROWS)
    opened.table(CURVES)
    assert opened.width() == 320


BAD_STATE = [
    ("q", [], "2 axes"),
    ("q", [[], []], "is empty"),
    ("q", [[1.0, nan]], "not a finite number"),
    ("k", [[1.0, 2.0]], "at least two keys"),
    ("k", [[1.0], [2.0]], "as many entries"),
    ("D", 3, "D must be one of 1, 2."),
    ("divisor", "half", "divisor must be one of none, sqrt, D, temperature"),
    ("temperature", 0.0, "τ must be a positive number"),
    ("query", 2, "query must be one of 0 to 1"),
    ("key", 3, "key must be one of 0 to 2"),
    ("average", "mode", "average must be one of mean, median"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, lambda: ScaleLab(torch.ones(2, 2), torch.eye(3, 2)), BAD_STATE)


# --- Python ------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 7, 8, 96, 256])
def test_head_sizes_are_powers_of_two_and_all(most):
    sizes = head_sizes(most)
    assert sizes[-1] == most and sizes == sorted(set(sizes))
    assert sizes[:-1] == [2**i for i in range(len(sizes) - 1)]
    assert most <= 2 * sizes[:-1][-1] if len(sizes) > 1 else most == 1


@pytest.mark.parametrize(("most", "first"), [(1, 1), (20, 20), (100, 64), (256, 64)])
def test_begins_with_the_head_size_of_most_models(most, first):
    widget = ScaleLab(torch.ones(2, most), torch.ones(3, most))
    assert first == widget.D


def test_too_large_is_reduced_and_says_so(live):
    widget = ScaleLab(torch.randn(49, 1030), torch.randn(70, 1030))
    assert repr(widget) == "ScaleLab(48 queries, 48 keys, D up to 1024)"
    assert "49 queries and 70 keys with 1030 entries" in live(widget).text(
        ".mha-warning"
    )


def test_still_holds_the_curves_of_torch():
    widget = lab(average="mean")
    axes = widget.still().axes
    found = [expected(widget, D, 1.0) for D in SIZES]
    for ax, values in zip(
        axes,
        [
            [x["scores"].var() for x in found],
            [x["nats"].mean() for x in found],
            [x["norm"].mean() for x in found],
        ],
        strict=True,
    ):
        line = ax.get_lines()[0]
        assert list(line.get_xdata()) == SIZES
        assert line.get_ydata() == pytest.approx([float(x) for x in values], rel=1e-3)


@pytest.mark.parametrize(
    ("q", "k", "options", "message"),
    [
        (torch.zeros(3), torch.zeros(2, 3), {}, r"q must be \(T, D\)"),
        (torch.zeros(2, 0), torch.zeros(2, 3), {}, "none of them 0"),
        (torch.zeros(2, 3), torch.full((2, 3), nan), {}, "k must be finite"),
        (torch.zeros(2, 3), torch.zeros(2, 4), {}, "one D"),
        (torch.zeros(2, 3), torch.zeros(1, 3), {}, "at least 2 keys"),
        (None, None, {"D": 5}, "D must be one of 1, 2, 4, 8, 16, 20; got 5"),
        (None, None, {"divisor": "half"}, "divisor must be one of 'none'"),
        (None, None, {"temperature": 0}, "temperature must be positive"),
        (None, None, {"temperature": inf}, "temperature must be positive"),
        (None, None, {"query": T}, "query must be in 0…5; got 6"),
        (None, None, {"average": "mode"}, "average must be one of 'mean', 'median'"),
    ],
)
def test_wrong_arguments_name_the_requirement(q, k, options, message):
    q, k = (q, k) if q is not None else vectors()
    with pytest.raises(ValueError, match=message):
        ScaleLab(q, k, **options)


def test_words_are_not_vectors():
    with pytest.raises(TypeError, match="q must be numbers of shape"):
        ScaleLab("abc", torch.zeros(2, 3))


# The labels at the bars that touch one another, and those that lie over a bar. A letter
# reaches from its base line 8 pixels up; a box around it is higher, and as wide.
TOUCHING = """root => [...root.querySelectorAll('.mha-bars svg')].flatMap(picture => {
    const lines = e => [+e.getAttribute('y') - 8, +e.getAttribute('y')];
    const labels = [...picture.querySelectorAll('text:not([text-anchor])')].map(e => {
        const { x, width } = e.getBBox();
        return { text: e.textContent, from: x, to: x + width, lines: lines(e) };
    });
    const bars = [...picture.querySelectorAll('.mha-bar')].map(e => {
        const [x, y, w, h] = ['x', 'y', 'width', 'height'].map(a => +e.getAttribute(a));
        return { text: 'a bar', from: x, to: x + w, lines: [y, y + h] };
    });
    const meet = (a, b, gap) => Math.min(a.to, b.to) - Math.max(a.from, b.from) > -gap
        && Math.min(a.lines[1], b.lines[1]) - Math.max(a.lines[0], b.lines[0]) > 0;
    const pairs = [
        ...labels.flatMap((a, i) => labels.slice(i + 1).filter(b => meet(a, b, 1))
            .map(b => [a, b])),
        ...labels.flatMap(a => bars.filter(b => meet(a, b, 0)).map(b => [a, b])),
    ];
    return pairs.map(pair => pair.map(x => x.text).join(' '));
})"""


# The labels of other keys that touch the column of the one that is lit.
CROSSED = """root => [...root.querySelectorAll('.mha-bars svg')].flatMap(picture => {
    const band = picture.querySelector('.mha-band').getBBox();
    const others = picture.querySelectorAll('text:not([text-anchor]):not(.mha-lit)');
    return [...others].filter(one => {
        const { x, width } = one.getBBox();
        return x < band.x + band.width && x + width > band.x;
    }).map(one => one.textContent);
})"""


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "viewport", [x for x, _ in SCREENS.values()] + [{"width": 320, "height": 640}]
)
@pytest.mark.parametrize("seed", [0, 11])
def test_no_number_at_the_bars_touches_another_or_a_bar(live, viewport, seed):
    """In the first state, at each D and wherever the pointer is."""
    q, k = torch.randn(2, 16, 256, generator=torch.Generator().manual_seed(seed))
    opened = live(ScaleLab(q, k), viewport=viewport)
    found = {"first": opened.measure(TOUCHING)}
    for i in range(9):
        opened.fill("D, the size of a head", str(i))
        opened.control("key, divided").focus()
        for key in ("Home", "ArrowRight", "ArrowRight", "End", "ArrowLeft"):
            opened.page.keyboard.press(key)
            found[2**i, key] = [
                *opened.measure(TOUCHING),
                *opened.measure(CROSSED),
            ]
    assert {state: x for state, x in found.items() if x} == {}
    shown = ".mha-bars svg text:not([text-anchor]):not(.mha-lit)"
    assert opened.root_element.locator(shown).count() > 15  # not by showing none


# The size of each letter at the bars, and the labels that lie over one another.
LETTERS = """root => [...root.querySelectorAll('.mha-bars svg')].map(picture => {
    const all = [...picture.querySelectorAll('text')];
    const boxes = all.map(x => x.getBoundingClientRect());
    const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4; // lines have room
    return [
        Math.min(...all.map(x => parseFloat(getComputedStyle(x).fontSize))),
        all.flatMap((x, i) => all.slice(i + 1)
            .filter((y, j) => over(boxes[i], boxes[i + 1 + j]))
            .map(y => `${x.textContent} ${y.textContent}`)),
    ];
})"""


@pytest.mark.parametrize(("viewport", "_"), SCREENS.values(), ids=SCREENS)
def test_numbers_at_the_bars_are_read_and_apart(live, viewport, _):
    q, k = torch.randn(2, 16, 256, generator=torch.Generator().manual_seed(0))
    opened = live(ScaleLab(q, k), viewport=viewport)
    for at in range(opened.count(".mha-tries button")):
        opened.press_in(".mha-tries button", at=at)
        found = opened.measure(LETTERS)
        assert len(found) == 4
        assert [over for _, over in found] == [[]] * 4
        assert min(size for size, _ in found) >= 11


def test_it_says_what_to_try_with_each_divisor(live):
    opened = live(lab())
    said = {}
    for option in ("√D", "1: no division", "D", "τ: your own number"):
        opened.control("divide by").select_option(option)
        said[option[0]] = opened.text(".mha-lead")
    assert "which side" in said["√"] and "Choose a divisor" in said["1"]
    assert "dividing by D" in said["D"] and "one number" in said["τ"]
