"""The break-it machine: what a reader sees, does and sends."""

import base64
import itertools
import json
import math
import re
from datetime import date, timedelta

import pytest
import torch
from torch import inf, nn
from torch.nn.functional import normalize

from evidence import curves as trained
from mha_lib.check import check
from mha_lib.check.catalogue import MISTAKES
from mha_lib.widgets import BreakIt
from mha_lib.widgets.break_it import LENGTHS, NAMES, SIZES, WORDS, _run, read_losses
from mha_lib.widgets.break_it_catalogue import HOSTED, LEFT_OUT
from tests.widgets.conftest import DESK, MOST, PHONE, assert_says, number

PUZZLES = {  # each with the line that is wrong
    "low loss": "mask",
    "flat map": "scores",
    "odd map": "split",
    "output": "merge",
    "silent": "project",
}
STEPS = "mask project split scores hide weights context merge output".split()  # noqa: SIM905
PATIENT = "daily"
TABLE = "Every number as a table"
SAID = ".mha-said"


def tile(opened, name: str):
    return opened.root_element.locator(".mha-tile", has_text=re.compile(f"^{name}"))


def values(opened) -> dict[str, str]:
    """{program: the mark of its values}"""
    texts = opened.texts(".mha-tile")
    return dict(x.split() for x in texts)


def line(opened, step: str):
    return opened.root_element.locator(".mha-line").nth(STEPS.index(step))


def press_line(opened, step: str):
    opened.press_in(".mha-line", at=STEPS.index(step))


def marks(opened) -> list[str]:
    return opened.texts(".mha-line > b")


def choose(opened, name: str):
    opened.select("mistake", name)


def code(opened) -> str:
    return "\n".join(opened.texts("code"))


# --- numbers ------------------------------------------------------------------------


def test_what_is_hosted_and_what_is_not():
    with_numbers = {name for name, x in MISTAKES.items() if x.stages}
    assert {*HOSTED} | {*LEFT_OUT} == with_numbers
    assert not {*HOSTED} & {*LEFT_OUT} and len(HOSTED) == 84
    for name in HOSTED:
        here, right = _run(name, True), _run("", True)
        assert here["weights"].shape == right["weights"].shape, name
        assert here["output"].shape == right["output"].shape, name
        assert not torch.equal(here["output"], right["output"]), name


def test_every_mistake_can_be_chosen_and_says_what_check_says(live):
    opened = live(BreakIt("", "BatchedMHA", three_inputs=True))
    options = opened.measure_all("select option", "all => all.map(x => x.value)")
    assert sorted(options) == sorted(["", *HOSTED])
    said = opened.root_element.evaluate(
        """async (root) => {
        const list = root.querySelector("select"), found = {};
        const drawn = async () => {
            do await new Promise(requestAnimationFrame);
            while (root.ariaBusy === "true");
        };
        for (const { value } of [...list.options]) {
            list.value = value;
            list.dispatchEvent(new Event("change"));
            await drawn();
            found[value] = [root.querySelector(".mha-said").textContent,
                [...root.querySelectorAll(".mha-line > b")].map(x => x.textContent),
                [...root.querySelectorAll(".mha-shape")].map(x => x.textContent)];
        }
        return found;
    }"""
    )
    for name in HOSTED:
        text, found, shapes = said[name]
        assert text == f"check says: {MISTAKES[name].message} [{name}]"
        assert found.count("✗") == 1 and found[-1] in "✗≠", name
        assert all(x.endswith(")") for x in shapes), name  # no ✗
    assert said[""][1] == ["✓"] * 9


@pytest.mark.parametrize("three", [False, True])
def test_the_table_holds_the_numbers_of_the_reference(live, three):
    opened = live(
        BreakIt("split-by-view", "EinsumMHA", three_inputs=three), folded=False
    )
    wanted = [_run(name, three)["weights"] for name in ("", "split-by-view")]
    for b in range(2):
        opened.press_in("[aria-label=sequence] button", f"^{b}$")
        for h in range(3):
            opened.press_in("[aria-label=head] button", f"^{h}$")
            rows = opened.table(TABLE)[1:]
            for column, x in zip((2, 3), wanted):
                found = torch.tensor([number(row[column]) for row in rows])
                torch.testing.assert_close(
                    found, x[b, h].flatten().float(), atol=6e-4, rtol=0
                )


def test_a_number_is_read_off_by_mouse_and_keyboard(live):
    opened = live(BreakIt("scale-twice", "PerHeadMHA"))
    frame = opened.root_element.locator(".mha-map")
    frame.focus()
    for key in ("Home", "PageUp", "ArrowDown"):
        opened.page.keyboard.press(key)
    said = opened.text(".mha-below output")
    h, b, word = re.search(r"head (\d), sequence (\d): (\w+)", said).groups()
    h, b = int(h), int(b)
    assert WORDS[b][1] == word
    right, here = (_run(x, False)["weights"][b, h, 1, 0] for x in ("", "scale-twice"))
    words = WORDS[b]
    assert f"{words[1]} → {words[0]} {here:.3f}, right {right:.3f}" in said
    before = opened.pixels(".mha-map canvas")
    box = frame.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] - 90, box["y"] + 30)
    opened.page.mouse.move(box["x"] + 70, box["y"] + 90)
    assert opened.pixels(".mha-map canvas") != before
    assert opened.text(".mha-below output") != said


def test_no_number_is_left_where_infinities_meet(live):
    opened = live(BreakIt("log-softmax", "FusedMHA"))
    assert "✗ training loss not a number" in opened.text(".mha-witnesses")
    assert "map off by ∞" in opened.text(".mha-witnesses")
    assert "not a number" in opened.text(".mha-loss")


class Shown(nn.Module):
    """The program that the page shows, batch first, as a layer to be checked."""

    steps: dict[str, list[str]] = {}

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, mask=None):
        (B, T, E), S, H = query.shape, key.shape[1], self.num_heads
        names = {"B": B, "T": T, "S": S, "H": H, "E": E, "D": E // H, "inf": inf}
        names |= {"query": query, "key": key, "value": value, "normalize": normalize}
        names |= {"mask": query.new_ones(B, T, S).bool() if mask is None else mask}
        left_out = {"mask"} | ({"hide"} if mask is None else set())
        layers = (self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        for role, x in zip("qkvo", layers):
            names |= {f"W_{role}": x.weight, f"b_{role}": x.bias}
        for step in [x for x in self.steps if x not in left_out]:
            exec("\n".join(self.steps[step]), names)
        return names["output"], names["weights"]


UNNAMED = ("fill-tiny", "fill-zero", "mask-transposed")
CHECKED = ("merge-no-transpose", "wq-wk-swapped", "softmax-over-heads", "mask-inverted")


@pytest.mark.parametrize(
    "names",
    [
        CHECKED,
        pytest.param(
            [x for x in HOSTED if "mha" in MISTAKES[x].tasks and x not in UNNAMED],
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["some", "all"],
)
def test_check_names_the_mistake_of_the_shown_code(scripts, names):
    """Two of `fill` are one function for it (`SAME_FUNCTION`).

    A transposed mask fails where T ≠ S, and then it is the failure that is named.
    """
    programs = scripts.evaluate(
        """async names => {
        const { programOf } = await import("/break_it_code.js");
        const { WRONG } = await import("/break_it_mistakes.js");
        return Object.fromEntries(names.map(x =>
            [x, programOf("BatchedMHA", WRONG[x], true)]));
    }""",
        ["", *names],
    )
    unnamed = []
    for name, steps in programs.items():
        said = f"{check(type('Shown', (Shown,), {'steps': steps}), task='mha')}"
        if name and f"{MISTAKES[name].message} [{name}]" not in said:
            unnamed.append(name)
        assert name or not re.search(r"\[[a-z-]+\]", said), said
    assert unnamed == []


# --- losses -------------------------------------------------------------------------


def test_losses_are_measured_for_each_mistake():
    losses = read_losses()
    run = losses["log"]["run"]
    points = run["steps"] // run["every"]
    assert losses["curves"].keys() == {*HOSTED}
    for name, curve in losses["curves"].items():
        broken = None in curve
        assert len(curve) == points or (broken and curve[-1] is None), name
    assert all(len(x) == points for x in losses["right"])
    ends = [sum(x[-5:]) / 5 for x in losses["right"]]
    assert max(ends) - min(ends) < 0.1  # SEEN in break_it.js


def test_a_loss_is_what_the_script_computes():
    stored = read_losses()
    run = trained.Run(steps=10)
    assert vars(run) | {"steps": 400} == stored["log"]["run"]
    for name in ("", "causal-sees-next", "log-softmax"):
        wanted = stored["curves"].get(name, stored["right"][0])[0]
        (found,) = trained.curve(run, name)
        if wanted is None:
            assert found is None
        else:
            assert math.isclose(found, wanted, abs_tol=0.01), name


VERDICTS = {
    "causal-sees-next": ("!", "too good"),
    "scale-embed-dim": ("✓", "as good"),
    "causal-only-diagonal": ("✗", "worse"),
}


def test_the_loss_is_judged_by_its_end(live):
    curves = read_losses()["curves"]
    opened = live(BreakIt())
    for name, (mark, word) in VERDICTS.items():
        choose(opened, name)
        end = sum(curves[name][-5:]) / 5
        said = opened.text(".mha-witnesses")
        assert f"{mark} training loss {end:.2f}, {word}" in said
        assert "— here" in opened.root_element.locator(".mha-loss").text_content()


# --- what is seen and done ------------------------------------------------------------


def test_one_tile_is_wrong_and_the_first_step_is_marked(live):
    opened = live(BreakIt())
    assert values(opened) == {
        x.replace("MHA", ""): "✗" if x == "FusedMHA" else "✓" for x in NAMES
    }
    first = opened.root_element.locator(".mha-line[data-first=true]")
    assert first.count() == 1 and "tril(1)" in first.inner_text()
    assert "right: mask = ones(T, S).tril().bool()" in first.inner_text()
    colour = "x => getComputedStyle(x).color"
    wrong = tile(opened, "Fused").locator("[data-mark='✗']").evaluate(colour)
    right = tile(opened, "Batched").locator("[data-mark='✓']").evaluate(colour)
    assert wrong != right


FIRST = {  # the step whose line is marked
    "causal-sees-next": 0,
    "wq-wk-swapped": 1,
    "split-by-view": 2,
    "scale-embed-dim": 3,
    "fill-zero": 4,
    "softmax-twice": 5,
    "weights-transposed": 6,
    "merge-no-transpose": 7,
    "no-bias-out": 8,
}


def test_the_first_wrong_step_in_each_style(live):
    opened = live(BreakIt(""))
    for name, step in FIRST.items():
        for style in ("PerHead", "Einsum"):
            opened.press_in(".mha-tile", f"^{style}")
            choose(opened, name)
            assert marks(opened).index("✗") == step, (name, style)
            choose(opened, "")


def test_a_step_shows_its_numbers(live):
    opened = live(BreakIt("merge-no-transpose", "BatchedMHA"))
    assert opened.text(".mha-below output").startswith("output")
    before = opened.pixels(".mha-map canvas")
    opened.root_element.locator(".mha-line").nth(5).press("Enter")
    assert opened.text(".mha-below output").startswith("map")
    assert opened.pixels(".mha-map canvas") != before


def test_self_attention_hides_a_mistake_and_three_inputs_show_it(live):
    opened = live(BreakIt())
    opened.press("silent")
    assert {*values(opened).values()} == {"✓"}
    assert "Switch on three inputs" in opened.text(SAID)
    opened.press("show me")
    assert "one input cannot show it" in opened.text(SAID)
    opened.control("three inputs").check()
    assert values(opened)["Einsum"] == "✗"
    assert opened.text(SAID).startswith("check says: Key and value have no effect")


def test_two_programs_may_be_wrong_at_once(live):
    opened = live(BreakIt())
    opened.press_in(".mha-tile", "^PerHead")
    choose(opened, "no-scale")
    found = values(opened)
    assert [found["PerHead"], found["Fused"], found["Einsum"]] == ["✗", "✗", "✓"]


def test_undo_and_reset(live):
    opened = live(BreakIt())
    before = code(opened), opened.text(SAID)
    assert opened.button("undo").get_attribute("aria-disabled") == "true"
    choose(opened, "no-scale")
    choose(opened, "scale-twice")
    opened.press("undo")
    assert "[no-scale]" in opened.text(SAID)
    opened.press("undo")
    assert (code(opened), opened.text(SAID)) == before
    opened.press("output")
    opened.press("undo")
    assert (code(opened), opened.text(SAID)) == before
    opened.page.mouse.move(300, 500)  # a cursor is nothing to take back
    assert opened.button("undo").get_attribute("aria-disabled") == "true"
    choose(opened, "no-softmax")
    opened.press_in(".mha-tile", "^Einsum")
    opened.press("reset")
    assert (code(opened), opened.text(SAID)) == before


def test_a_link_holds_the_state(live):
    opened = live(BreakIt())
    opened.press_in(".mha-tile", "^SplitConcat")
    choose(opened, "mask-interleaved")
    wanted = code(opened), values(opened), opened.text(SAID)
    opened.follow_link()
    assert (code(opened), values(opened), opened.text(SAID)) == wanted


# --- puzzles ------------------------------------------------------------------------


LEGEND = "✗ the wrong line, below it the right one; from ≠ on the numbers differ."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_only_inherits_wrong_numbers_is_no_second_mistake(live, scheme):
    opened = live(BreakIt("split-by-view", "BatchedMHA"), color_scheme=scheme)
    opened.light(scheme)
    assert marks(opened) == [*"✓✓✗≠≠≠≠≠≠"]
    assert opened.text(".mha-lead") == LEGEND
    each = opened.root_element.locator(".mha-line > b")
    colours = each.evaluate_all("all => all.map(x => getComputedStyle(x).color)")
    assert len({*colours}) == 3 and len({*colours[3:]}) == 1
    muted = opened.root_element.locator(".mha-lead").evaluate(
        "x => getComputedStyle(x).color"
    )
    assert colours[-1] == muted
    words = each.evaluate_all("all => all.map(x => x.ariaLabel)")
    assert words[1:4] == [
        "right",
        "the wrong line",
        "its numbers differ, because of the wrong line",
    ]
    last = BreakIt("no-bias-out", "BatchedMHA")  # nothing comes after it
    assert "≠" not in live(last).root_element.inner_text()


def test_a_puzzle_hides_its_line_until_it_is_found(live):
    opened = live(BreakIt(sealed=True))
    first = opened.text()
    assert marks(opened) == ["?"] * 9
    assert values(opened)["Fused"] == "✗"
    for secret in ("causal-sees-next", "right:", "check says"):
        assert secret not in first
    assert opened.root_element.locator("select").is_hidden()
    assert opened.text(".mha-lead").endswith("Press the line you suspect.")
    press_line(opened, "weights")
    assert opened.text(SAID).startswith("✗ Not “softmax”: that line is right.")
    press_line(opened, "scores")
    tried = ["–" if x in ("scores", "weights") else "?" for x in STEPS]
    assert marks(opened) == tried
    assert opened.pressed("low loss")
    line(opened, "mask").press("Enter")
    assert opened.text(SAID).startswith("✓ Found! check says: Query t sees key t + 1")
    assert marks(opened) == [*"✗✓✓✓≠≠≠≠≠"]
    assert opened.text(".mha-onward span") == LEGEND
    opened.press("copy link")
    assert "guess" not in opened.page.evaluate("location.hash")
    opened.press("reset")
    assert marks(opened) == ["?"] * 9
    assert repr(BreakIt(sealed=True)) == "BreakIt(a mistake in FusedMHA)"


HINTS = {  # what the maps show, and no name of a line
    "low loss": "Row “the” of the map sees keys that it must not.",
    "flat map": "Row “milk” of the map sees the right keys, in wrong shares.",
    "output": "All maps are right: which line changes the output alone?",
    "silent": "No number differs here. Switch on three inputs, and look again.",
}


def test_a_wrong_guess_earns_a_hint_and_the_question_says_what_is_found(live):
    opened = live(BreakIt(sealed=True))
    for name, hint in HINTS.items():
        opened.press(name)
        assert hint not in opened.text(SAID) or name == "silent"
        press_line(opened, "weights")
        assert opened.text(SAID) == f"✗ Not “softmax”: that line is right. {hint}"
        press_line(opened, "hide")
        half = "lower" if name == "output" else "upper"
        assert opened.text(SAID).endswith(f"stands in the {half} half.")
    opened.press("low loss")
    press_line(opened, "mask")
    assert opened.text(".mha-question") == "Found: making the mask."
    opened.press("flat map")
    opened.press("show me")
    assert opened.text(".mha-question") == "It was: scores and scale."


def test_padding_is_a_word(live):
    assert {word for row in WORDS for word in row[-1:]} == {"pad"}
    opened = live(BreakIt(), folded=False)
    heads = [row[0] for row in opened.table(TABLE)]
    assert "pad (5)" in heads


COLOUR = "x => getComputedStyle(x).color"
WRONG = """root => {
    const one = root.appendChild(document.createElement('i'));
    one.style.color = 'var(--mha-wrong)';
    const { color } = getComputedStyle(one);
    one.remove();
    return color;
}"""


def test_each_puzzle_has_one_line_to_find(live):
    opened = live(BreakIt())
    for name, step in PUZZLES.items():
        opened.press(name)
        for other in [x for x in STEPS if x != step]:
            press_line(opened, other)
            assert opened.text(SAID).startswith("✗ Not "), (name, other)
        press_line(opened, step)
        assert opened.text(SAID).startswith("✓ Found!"), name
        opened.press(name)
        opened.press("show me")
        assert "[" in opened.text(SAID) or "no mistake" in opened.text(SAID)
        assert "✓ Found" not in opened.text(SAID)
        mark = line(opened, step).locator(".mha-mark")
        assert (mark.inner_text(), marks(opened).count("✗")) == ("✗", 1), name
        assert mark.evaluate(COLOUR) == opened.measure(WRONG), name
        instead = line(opened, step).locator(".mha-instead")
        assert instead.is_visible() and instead.inner_text().startswith("right: ")


def test_after_a_puzzle_comes_the_next(live):
    opened = live(BreakIt(sealed=True))
    for after, (name, step) in zip([*PUZZLES, PATIENT][1:], PUZZLES.items()):
        assert opened.pressed(name)
        assert opened.root_element.locator(".mha-onward").is_hidden()
        opened.press("show me")
        pressed = opened.root_element.locator(".mha-line[aria-pressed=true]")
        assert pressed.count() == 1
        assert line(opened, step).get_attribute("aria-pressed") == "true", name
        opened.press(f"next: {after}")
    assert opened.pressed(PATIENT)


def test_the_marker_stays_on_the_line_that_was_found(live):
    opened = live(BreakIt(sealed=True))
    press_line(opened, "mask")
    assert "✓ Found!" in opened.text(SAID)
    assert line(opened, "mask").get_attribute("aria-pressed") == "true"
    assert opened.text(".mha-below output").startswith("mask")
    opened.press("copy link")  # gives the line to nobody
    assert link(opened).get("step", "") == ""


ONE_WRONG = "Program {} is wrong: in which line?"


def test_the_title_claims_no_more_than_the_numbers_show(live):
    opened = live(BreakIt(sealed=True))
    assert opened.text(".mha-question") == ONE_WRONG.format("Fused")
    opened.press("silent")
    title = "No number is wrong here: is each line right?"
    assert opened.text(".mha-question") == title
    assert "Switch on three inputs" in opened.text(".mha-lead")
    opened.control("three inputs").check()
    assert opened.text(".mha-question") == ONE_WRONG.format("Einsum")
    opened.press(PATIENT)
    assert opened.text(".mha-question").endswith("what is its mistake?")


SYMPTOMS = {  # in one line above the code: what loss and map show
    "low loss": r"It predicts too well: loss 0\.31, not 2\.44\. ",
    "flat map": r"Loss right, 2\.45; “milk” gives “drank” 0\.72, not ",
    "odd map": r"Odd map: “drank” gives “it” 0\.03, not 1\.00\. ",
    "output": r"Loss .*; maps right, output off by \d\.\d\d\. ",
    "silent": r"Map, output and loss are right\. ",
}


PLACES = """root => {
    const box = x => root.querySelector(x).getBoundingClientRect();
    const [name, tiles, row, code] = ['.mha-tiles .mha-caption', '.mha-tiles',
        '.mha-controls', '.mha-code'].map(box);
    const all = [...root.querySelectorAll('.mha-tile')];
    const parts = all.map(x => [...x.children].map(y => y.getBoundingClientRect()));
    const edges = all.map(x => x.getBoundingClientRect());
    return {
        before: edges.map(x => x.left - name.right),
        apart: [row.top - tiles.bottom, code.top - row.bottom],
        beside: parts.map(([a, b]) => [b.top - a.top, b.left - a.right]).flat(),
        inside: parts.map(([a, b], i) => [a.left - edges[i].left,
            edges[i].right - b.right]).flat(),
    };
}"""


@pytest.mark.parametrize("screen", MOST)
def test_the_programs_have_a_name_a_mark_beside_each_and_room_below(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    opened.press("output")  # ✗ at the longest name
    assert opened.text(".mha-tiles .mha-caption") == "Programs:"
    for _ in range(2):
        places = opened.measure(PLACES)
        assert min(places["before"]) > 0
        assert min(places["apart"]) >= 3
        assert all(0 <= x < 6 for x in places["beside"]), places
        assert min(places["inside"]) >= 1, places
        if opened.button("show me").is_visible():
            opened.press("show me")


@pytest.mark.parametrize("screen", MOST)
def test_the_symptom_stands_above_the_code(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    for name, symptom in SYMPTOMS.items():
        opened.press(name)
        lead = opened.root_element.locator(".mha-lead")
        assert re.match(symptom, lead.inner_text()), lead.inner_text()
        box, code_ = lead.bounding_box(), line(opened, "mask").bounding_box()
        assert box["y"] + box["height"] < code_["y"] < 844
        assert box["height"] < 40  # two lines


@pytest.mark.parametrize("screen", MOST)
def test_what_to_do_next_takes_the_place_of_the_hint(live, screen):
    """Below the question and above the puzzles, before the line is found and after."""
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])

    def place(part):
        box = opened.root_element.locator(part).bounding_box()
        return box["y"], box["y"] + box["height"]

    above, hint, below = map(place, (".mha-question", ".mha-lead", ".mha-tries"))
    assert above[1] <= hint[0] and hint[1] <= below[0]
    opened.press("show me")
    assert opened.text(".mha-lead") == ""
    onward = place(".mha-onward")
    assert onward[0] == pytest.approx(hint[0], abs=2)
    assert place(".mha-tries") == pytest.approx(below, abs=2)


def test_the_symptom_is_the_largest_difference_of_the_maps(live):
    opened = live(BreakIt("scale-embed-dim", "BatchedMHA", sealed=True))
    right, here = (_run(x, False)["weights"] for x in ("", "scale-embed-dim"))
    shown = r"“(\w+)” gives “(\w+)” (.*), not (.*)\. "
    said = re.search(shown, opened.text(".mha-lead"))
    real = [
        (float((here - right)[b, h, t, s].abs()), b, h, t, s)
        for b, n in enumerate(LENGTHS)
        for h, t, s in itertools.product(range(3), range(n), range(n))
    ]
    _, b, h, t, s = max(real)
    found = [f"{float(x[b, h, t, s]):.2f}" for x in (here, right)]
    assert said.groups() == (WORDS[b][t], WORDS[b][s], *found)


def test_the_map_beside_it_is_as_it_should_be(live):
    opened = live(BreakIt())
    label = opened.root_element.locator(".mha-map").get_attribute("aria-label")
    assert ": as it should be, and here;" in label
    opened.page.evaluate(
        """() => { window.written = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                window.written.push(text); write.call(this, text, ...rest); }; }"""
    )
    opened.press("reset")
    opened.press_in(".mha-tile", "^Einsum")
    written = opened.page.evaluate("window.written")
    assert {"map, as it should be", "map, here: no difference"} <= {*written}
    assert "right" not in written


def test_who_presses_a_line_sees_the_answer(live):
    opened = live(BreakIt(sealed=True), viewport={"width": 390, "height": 844})
    for step in ("output", "mask"):
        press_line(opened, step)
        box = opened.box(SAID)
        assert box["y"] > 0 and box["y"] + box["height"] < 844, step
    assert "✓ Found!" in opened.text(SAID)


def test_no_curve_leaves_its_panel(live):
    opened = live(BreakIt(""))
    outside = """root => [...root.querySelectorAll('.mha-loss path')].filter(x =>
        x.getBBox().y < x.closest('svg').querySelector('rect').getBBox().y).length"""
    for name in ("", *HOSTED[::7], "causal-sees-next", "scale-embed-dim"):
        choose(opened, name)
        assert opened.measure(outside) == 0, name


def test_a_right_program_can_be_read_beside_a_puzzle(live):
    opened = live(BreakIt(sealed=True))
    opened.press_in(".mha-tile", "^Batched")
    title = "This program is right: in which line is the other wrong?"
    assert opened.text(".mha-question") == title
    assert "Open the program with ✗" in opened.text(".mha-lead")
    assert marks(opened) == ["✓"] * 9
    opened.press_in(".mha-tile", "^Fused")
    assert marks(opened) == ["?"] * 9


# --- the patient of a day -----------------------------------------------------------


def patients(scripts, dates: list[str]) -> list[dict]:
    return scripts.evaluate(
        """async dates => {
        const { patientOf } = await import("/break_it_daily.js");
        return dates.map(patientOf);
    }""",
        dates,
    )


def test_patients_of_a_year(scripts):
    dates = [f"{date(2026, 1, 1) + timedelta(days=x)}" for x in range(366)]
    found = patients(scripts, dates)
    assert found == patients(scripts, dates)
    names = [x["name"] for x in found]
    assert len({*names}) == 27 and {x["at"] for x in found} == {*range(6)}
    assert {x["answers"].index(x["name"]) for x in found} == {*range(4)}
    styles = [x["at"] for x in found]
    assert all(a != b for a, b in zip(styles, styles[1:]))
    assert all(len({*styles[i : i + 11]}) > 3 for i in range(355))
    for x in found:
        assert len({*x["answers"]}) == 4 and x["name"] in x["answers"]


def test_no_patient_has_the_map_of_another(scripts):
    names = scripts.evaluate(
        "async () => (await import('/break_it_daily.js')).PATIENTS"
    )
    maps = {name: _run(name, False)["weights"] for name in ["", *names]}
    for a in maps:
        for b in maps:
            if a < b:
                assert (maps[a] - maps[b]).abs().max() > 0.1, (a, b)


def test_the_patient_of_the_readers_clock(live, scripts):
    opened = live(BreakIt())
    opened.page.clock.set_fixed_time("2027-02-03T10:00:00")
    (wanted,) = patients(scripts, ["2027-02-03"])
    opened.page.evaluate("dispatchEvent(new Event('resize'))")
    opened.root_element.evaluate("x => (x.style.width = '700px')")  # drawn anew
    before = state(opened)
    opened.button(PATIENT).click()
    assert "choose what is wrong" in opened.text(".mha-lead")
    assert "Patient of 3 February 2027" in opened.text(".mha-patient")
    style = NAMES[wanted["at"]]
    assert values(opened)[style.replace("MHA", "")] == "✗"
    cause = MISTAKES[wanted["name"]].cause
    everything = opened.text()
    assert f"[{wanted['name']}]" not in everything
    assert not opened.root_element.locator(".mha-code").is_visible()
    answers = opened.texts(".mha-answer")
    assert [MISTAKES[x].cause for x in wanted["answers"]] == answers
    opened.root_element.locator(".mha-answer", has_text=cause).click()
    assert opened.text(SAID).startswith("✓ Found!")
    assert opened.text(SAID).endswith(f"[{wanted['name']}]")
    assert opened.root_element.locator(".mha-code").is_visible()
    opened.press("copy link")
    assert "guess" not in link(opened) and link(opened)["patient"] == "2027-02-03"
    assert "“copy link” sends this patient on" in opened.text(".mha-patient")
    opened.press("free play")
    assert opened.root_element.locator("select").first.input_value() == wanted["name"]
    assert f"[{wanted['name']}]" in opened.text(SAID)
    opened.press("undo")
    opened.press("day before")
    assert "Patient of 2 February 2027" in opened.text(".mha-patient")
    opened.press("leave")
    assert state(opened) == before


def state(opened) -> list:
    """Which tile is open, what the tiles say, and the title."""
    pressed = opened.root_element.locator(".mha-tile[aria-pressed=true]")
    return [pressed.inner_text(), values(opened), opened.text(".mha-question")]


def test_a_wrong_answer_uncovers_nothing(live, scripts):
    date = "2027-02-03"
    (patient,) = patients(scripts, [date])
    widget = BreakIt()
    widget.patient, widget.opened = date, patient["at"]
    opened = live(widget)
    answers = opened.root_element.locator(".mha-answer")
    assert opened.button("show me").is_hidden()
    wrong = [i for i, x in enumerate(patient["answers"]) if x != patient["name"]]
    for tried, i in enumerate(wrong, start=1):
        answers.nth(i).press("Enter")
        cause = MISTAKES[patient["answers"][i]].cause
        assert opened.text(SAID).startswith(f"✗ Not “{cause}”")
        assert f"[{patient['name']}]" not in opened.text()
        assert not opened.root_element.locator(".mha-code").is_visible()
        struck = [x for x in answers.all_inner_texts() if x.startswith("✗ ")]
        assert len(struck) == tried
    opened.press("show me")
    assert opened.text(SAID).startswith("check says: ")
    assert opened.text(SAID).endswith(f"[{patient['name']}]")
    opened.press("reset")
    assert answers.all_inner_texts() == [MISTAKES[x].cause for x in patient["answers"]]


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_a_patient_has_his_loss_beside_his_maps(live, viewport):
    opened = live(BreakIt(), viewport=viewport)
    opened.press(PATIENT)
    parts = opened.root_element.locator(".mha-loss svg, .mha-witnesses")
    assert [x.is_visible() for x in parts.all()] == [True, True]


def test_on_a_desk_nothing_below_the_program_moves(live):
    opened = live(BreakIt(sealed=True))
    places = set()
    for name in (*PUZZLES, PATIENT):
        opened.press(name)
        for act in ("show me", None):
            box = opened.box(".mha-below")
            places.add(round(box["y"]))
            if act and opened.button(act).is_visible():
                opened.press(act)
        opened.press_in(".mha-tile", "^Batched")
    assert max(places) - min(places) <= 1, places


def link(opened) -> dict:
    text = opened.page.evaluate("location.hash").partition("=")[2]
    return json.loads(base64.urlsafe_b64decode(text + "==="))


# --- for everybody -------------------------------------------------------------------


@pytest.mark.parametrize(("viewport", "most"), MOST.values(), ids=MOST)
def test_fits_one_screen_in_every_state_of_the_lesson(live, viewport, most):
    opened = live(BreakIt(), viewport=viewport)
    heights = {"": opened.measure("x => x.offsetHeight")}
    for name in (*PUZZLES, PATIENT):
        opened.press(name)
        assert opened.pressed(name)
        heights[name] = opened.measure("x => x.offsetHeight")
        if name in PUZZLES:
            opened.press("show me")
            heights[name, 1] = opened.measure("x => x.offsetHeight")
    assert max(heights.values()) <= most, heights
    assert opened.width() <= viewport["width"]


@pytest.mark.sweep(5)  # one on each screen
@pytest.mark.parametrize("date", ["2026-11-15", "2026-10-11", "2026-10-30"])
@pytest.mark.parametrize(("viewport", "most"), MOST.values(), ids=MOST)
def test_what_a_guess_uncovers_fits_too(live, scripts, viewport, most, date):
    """Of days with the longest programs and answers."""
    widget = BreakIt()
    (patient,) = patients(scripts, [date])
    widget.patient, widget.opened = date, patient["at"]
    opened = live(widget, viewport=viewport)
    for i in range(4):
        opened.press_in(".mha-answer", at=i)
        assert opened.text(".mha-said").startswith(("✗ Not", "✓ Found"))
        assert opened.measure("x => x.offsetHeight") <= most
        opened.press("undo")


def test_fits_a_small_phone(live):
    opened = live(BreakIt(), viewport={"width": 320, "height": 640})
    for name in (*PUZZLES, PATIENT):
        opened.press(name)
        assert opened.width() == 320


def test_code_is_read_on_a_phone_without_scrolling(live):
    opened = live(BreakIt("", "EinsumMHA"), viewport=PHONE)
    for style in ("PerHead", "Batched", "Fused", "Einsum", "Builtin", "Split"):
        opened.press_in(".mha-tile", f"^{style}")
        choose(opened, "split-by-view")
        sizes = opened.measure_all(
            ".mha-line",
            """all => all.map(x => {
                const right = y => y.getBoundingClientRect().right;
                return [x.scrollWidth - x.clientWidth,
                    parseFloat(getComputedStyle(x.querySelector("code")).fontSize),
                    ...[...x.querySelectorAll("code span")].map(y =>
                        right(x) - right(y))];
            })""",
        )
        assert len(sizes) == 9
        for beyond, font, *room in sizes:
            assert beyond <= 0 and font >= 13 and min(room) >= 0, style


@pytest.mark.parametrize("name", ["no-projection", "causal-only-diagonal"])
def test_a_loss_that_is_worse_is_seen_to_be(live, name):
    """Two lines a tenth of a nat apart are drawn at least six pixels apart."""
    opened = live(BreakIt(name))
    curves = read_losses()
    right, here = (
        sum(x[-5:]) / 5 for x in (curves["right"][0], curves["curves"][name])
    )
    assert 0.1 < here - right < 0.2
    assert f"gap {here - right:.2f}" in opened.text(".mha-loss")
    ends = [
        opened.root_element.locator(f".mha-{which}-loss").evaluate(
            """x => { const n = x.getTotalLength(), all = [];
                for (let i = 0; i < 50; i++) {
                    const { x: at, y } = x.getPointAtLength(n * (1 - i / 400));
                    all.push(y);
                }
                return all.reduce((a, b) => a + b) / all.length; }"""
        )
        for which in ("right", "here")
    ]
    assert ends[0] - ends[1] > 6


def test_nothing_for_axe_to_find(live):
    opened = live(BreakIt(), folded=False)
    opened.table(TABLE)
    assert opened.faults() == []
    opened.press(PATIENT)
    assert opened.faults() == []


def test_every_control_is_reached_by_tab(live):
    opened = live(BreakIt())
    opened.button("reset").focus()
    reached = []
    for _ in range(34):
        reached.append(
            opened.page.evaluate(
                "(x => x.getAttribute('aria-label') ?? x.innerText.split('\\n')[0])"
                "(document.activeElement)"
            )
        )
        opened.page.keyboard.press("Tab")
    for wanted in (*PUZZLES, PATIENT, "Fused ✗", "undo", "✗"):
        assert wanted in reached
    assert any(x.startswith("map of head") for x in reached)


BAD_STATE = [
    ("inputs", [], "even length"),
    ("num_heads", 5, "must divide E = 12"),
    ("matrices", [[[1.0]]], "matrices must have the shape (4, 12, 12)"),
    ("biases", [[1.0]], "biases must have the shape (4, 12)"),
    ("lengths", [1], "lengths must have the shape (2)"),
    ("tokens", [["a"]], "tokens must have the shape (2, 6)"),
    ("mistakes", ["no-scale"], "6 names"),
    ("mistakes", ["typo", "", "", "", "", ""], "no mistake “typo”"),
    ("mistakes", ["constructor", "", "", "", "", ""], "no mistake “constructor”"),
    ("opened", 6, "from 0 to 5"),
    ("step", "typo", "no step “typo”"),
    ("patient", "2026-02-30", "a date such as 2026-03-01"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, BreakIt, BAD_STATE)


# --- Python -----------------------------------------------------------------------


def test_bad_arguments_name_the_requirement():
    for arguments, message in [
        (("typo",), "mistake must be one of HOSTED"),
        (("heads-ignored",), "mistake must be one of HOSTED"),
        (("no-scale", "MHA"), "style must be one of PerHeadMHA"),
    ]:
        with pytest.raises(ValueError, match=message):
            BreakIt(*arguments)


def test_still_shows_the_worst_map_or_the_output():
    for name, what in (("split-by-view", "weights"), ("merge-mean", "output")):
        right, here = BreakIt(name, "BatchedMHA").still().axes
        found = [torch.tensor(ax.images[0].get_array()) for ax in (right, here)]
        wanted = [_run(x, False)[what] for x in ("", name)]
        apart = (wanted[0] - wanted[1]).abs().max()
        assert (found[0] - found[1]).abs().max() == apart
        assert right.images[0].get_clim() == here.images[0].get_clim()
        assert right.get_title() == "as it should be" and name in here.get_title()
    assert repr(BreakIt("")) == "BreakIt(six right programs)"
    assert (SIZES["B"], SIZES["T"]) == (len(LENGTHS), len(WORDS[0]))


def test_a_finger_hits_each_line_and_each_tile(live):
    opened = live(BreakIt(sealed=True), viewport=PHONE)
    sizes = opened.measure_all(
        ".mha-line, .mha-tile", "all => all.map(x => x.offsetHeight)"
    )
    assert min(sizes) >= 24


# The cells and the corners that a canvas fills, by their colour: [colour, x, y, width].
FILLED = """() => {
    const pen = CanvasRenderingContext2D.prototype;
    const { fillRect, fill } = pen;
    Object.assign(window, { cells: [], corners: 0 });
    pen.fillRect = function (x, y, width, height) {
        window.cells.push([this.fillStyle, Math.min(width, height) + 1]);
        return fillRect.call(this, x, y, width, height);
    };
    pen.fill = function (...all) {
        window.corners += 1;
        return fill.apply(this, all);
    };
}"""
LEAST = {"desk": 10, "phone": 8}  # pixels of a cell in which a mistake is seen by eye


@pytest.mark.parametrize("screen", MOST)
def test_a_mistake_is_seen_in_the_map_of_the_open_program_alone(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    assert opened.count("canvas") == 1
    opened.page.evaluate(FILLED)
    opened.press("flat map")
    cells = opened.page.evaluate("window.cells")
    assert len(cells) == 2 * 6 * 6 and min(size for _, size in cells) >= 16
    differ = sum(a != b for a, b in zip(cells[:36], cells[36:]))
    assert opened.page.evaluate("window.corners") / 2 >= differ > 5
    opened.page.evaluate("window.cells = []")
    opened.press("output")  # twelve features
    cells = opened.page.evaluate("window.cells")
    assert len(cells) == 2 * 6 * 12
    assert min(size for _, size in cells) >= LEAST[screen]


def test_equal_colours_are_equal_numbers_on_both_sides(live):
    opened = live(BreakIt("", "BatchedMHA"))
    opened.page.evaluate(FILLED)
    opened.press_in(".mha-tile", "^Fused")
    press_line(opened, "scores")
    cells = [colour for colour, _ in opened.page.evaluate("window.cells")]
    assert cells[-72:-36] == cells[-36:] and len({*cells}) > 5
    assert opened.page.evaluate("window.corners") == 0


def focused(opened) -> str:
    """Where the focus is: in the widget, or nowhere."""
    return opened.page.evaluate(
        "() => document.activeElement.closest('.mha') ? 'here' : 'lost'"
    )


def test_the_ring_of_the_focus_stays_inside_its_line(live):
    """Or it would cover the lines above and below, which are read then."""
    opened = live(BreakIt(sealed=True))
    opened.button("undo").focus()
    opened.page.keyboard.press("Tab")
    style = "x => (({outlineWidth, outlineOffset}) => [outlineWidth, outlineOffset])"
    one = opened.root_element.locator(".mha-line").first
    assert one.evaluate("x => x.matches(':focus-visible')")
    assert one.evaluate(f"{style}(getComputedStyle(x))") == ["2px", "-2px"]


def test_the_focus_stays_while_buttons_come_and_go(live):
    opened = live(BreakIt(sealed=True))
    opened.button("show me").press("Enter")
    assert opened.button("show me").is_hidden() and focused(opened) == "here"
    opened.button(PATIENT).press("Enter")
    answer = opened.root_element.locator(".mha-answer").first
    answer.press("Enter")
    assert focused(opened) == "here"
    if opened.button("show me").is_visible():
        opened.button("show me").press("Enter")
    assert answer.is_hidden() and focused(opened) == "here"
    opened.button("free play").press("Enter")
    assert opened.button("free play").is_hidden() and focused(opened) == "here"


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_each_mark_stands_beside_the_first_line_of_its_step(live, viewport):
    opened = live(BreakIt(sealed=True), viewport=viewport)
    opened.press("show me")
    tops = opened.measure_all(
        ".mha-line",
        "all => all.map(x => ['b', 'code'].map(y =>"
        " x.querySelector(y).getBoundingClientRect().top))",
    )
    assert len(tops) == len(STEPS)
    assert all(abs(mark - code) < 4 for mark, code in tops), tops


def test_the_day_after_ends_today(live):
    opened = live(BreakIt())
    opened.page.clock.set_fixed_time("2027-02-03T10:00:00")
    opened.press(PATIENT)
    assert opened.button("day after").is_disabled()
    opened.press("day before")
    opened.press("day before")
    opened.press("day after")
    assert "Patient of 2 February 2027" in opened.text(".mha-patient")


def test_the_address_keeps_no_patient_after_reset(live):
    opened = live(BreakIt(sealed=True))
    opened.press(PATIENT)
    opened.press("copy link")
    assert link(opened)["patient"]
    opened.press("reset")
    assert "#" not in opened.page.url


def test_on_a_phone_a_puzzle_that_is_solved_makes_no_room_for_itself(live):
    opened = live(BreakIt(sealed=True), viewport=PHONE)
    below = """x => x.querySelector('.mha-below').getBoundingClientRect().top -
        x.getBoundingClientRect().top"""
    places = [opened.measure(below)]
    for step in ("output", "mask"):
        press_line(opened, step)
        places.append(opened.measure(below))
    assert max(places) - min(places) <= 1, places
    foot = opened.measure(
        """x => x.getBoundingClientRect().bottom -
            x.querySelector('.mha-more').getBoundingClientRect().bottom"""
    )
    assert foot < 12


@pytest.mark.sweep(5)  # one on each screen
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["causal-sees-next", "no-projection", "log-softmax"])
def test_no_word_of_the_losses_stands_on_a_curve(live, viewport, name):
    opened = live(BreakIt(name), viewport=viewport)
    box = "x => [x.getBoundingClientRect().top, x.getBoundingClientRect().bottom]"
    curves = [
        x.evaluate(box) for x in opened.root_element.locator(".mha-loss g path").all()
    ]
    words = opened.root_element.locator(".mha-loss svg > text").all()
    words = [x for x in words if re.search("[a-z]", x.text_content())]
    assert len(words) == 4
    for word in words:
        top, bottom = word.evaluate(box)
        assert all(bottom <= a + 1 or top >= b - 1 for a, b in curves), word


def test_the_buttons_of_the_puzzles_are_read_on_a_phone(live):
    opened = live(BreakIt(sealed=True), viewport=PHONE)
    buttons = opened.root_element.locator(".mha-tries button")
    sizes = buttons.evaluate_all("all => all.map(x => getComputedStyle(x).fontSize)")
    assert {*sizes} == {"12px"}
    tops = buttons.evaluate_all("all => all.map(x => x.offsetTop)")
    assert len({*tops}) == 1
