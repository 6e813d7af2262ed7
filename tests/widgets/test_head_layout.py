"""The layout's engine is held to torch, and its verdicts to the layouts of the book."""

import random

import matplotlib.pyplot as plt
import pytest
import torch

from mha_lib.layouts import batch_to_heads, heads_to_batch, merge_heads, split_heads
from mha_lib.widgets import HeadLayout
from mha_lib.widgets.head_layout import RECIPES, _apply, _run
from tests.widgets.conftest import DESK, MOST, ORDERS, PHONE, assert_says
from tools import book

NAMES = list(RECIPES)
SPLIT, ALONE, INTERLEAVED, MERGE, REFUSED, UNTURNED, CONCAT, BATCH_MAJOR = NAMES
TABLE = "All steps as a table"


# --- the engine against torch ---------------------------------------------------------


@pytest.fixture(scope="module")
def engine(scripts):
    """run(list of (steps, sizes)) in the page, as plain numbers."""

    def run(cases):
        return scripts.evaluate(
            """async cases => {
                const { run } = await import("/head_layout_steps.js");
                const { judge, luck } = await import("/head_layout_verdict.js");
                const { contiguous, elements } = await import("/tensor.js");
                return cases.map(([steps, sizes]) => {
                    const states = run(steps, sizes);
                    return states.map(({ value, error }, i) => ({
                        ...(error ? { error: [error.type, error.message] } : {
                            parts: value.parts.map(x => [x.shape, x.strides, x.offset,
                                contiguous(x), elements(x)]),
                            tuple: Boolean(value.tuple),
                            same: i === 0 || value.parts[0].memory
                                === states[i - 1].value.parts[0].memory,
                        }),
                        verdict: judge(states[i], sizes),
                        luck: i === states.length - 1 && !error
                            ? luck(steps, sizes) : "",
                    }));
                });
            }""",
            cases,
        )

    return run


def sizes(B, T, H, D):
    return {"B": B, "T": T, "E": H * D, "H": H, "D": D}


def plain(value):
    """A tensor or a tuple of them as the page hands back its own."""
    parts = value if isinstance(value, tuple) else [value]
    found = [
        [list(x.shape), list(x.stride()), x.storage_offset(), x.is_contiguous()]
        + [x.flatten().tolist()]
        for x in parts
    ]
    return {"parts": found, "tuple": isinstance(value, tuple)}


def expected(steps, sizes):
    """What torch makes of a start and of every step after it, up to an error."""
    values = [_run(steps[:1], sizes)]
    found = [plain(values[0]) | {"same": True}]
    for step in steps[1:]:
        try:
            values.append(_apply(values[-1], step, sizes))
        except (RuntimeError, IndexError, TypeError, AttributeError) as error:
            return [*found, {"error": [type(error).__name__, str(error)]}]
        before, after = (
            (x[0] if isinstance(x, tuple) else x).untyped_storage().data_ptr()
            for x in values[-2:]
        )
        found.append(plain(values[-1]) | {"same": before == after})
    return found


def random_step(rng, sizes, value):
    """An operation that often fits, sometimes does not."""
    shape = list(value[0].shape if isinstance(value, tuple) else value.shape)
    rank, count = len(shape), value[0].numel() if isinstance(value, tuple) else 0
    axis = rng.randrange(-rank - 1, rank + 1) if rng.random() < 0.1 else None
    axis = rng.randrange(rank) if axis is None else axis
    choice = rng.random()
    if isinstance(value, tuple) and choice < 0.8:
        return f"cat({axis})"
    count = count or value.numel()
    if choice < 0.45:
        operation = rng.choice(["view", "reshape"])
        if rng.random() < 0.4:
            letters = rng.choice(
                [["B", "T", "H", "D"], ["B", "T", "E"], ["B*H", "T", "D"]]
                + [["B*T", "E"], ["T", "-1", "H"], ["-1", "-1"], ["5", "-1"]]
            )
            rng.shuffle(letters)
            return f"{operation}({', '.join(letters)})"
        new = []
        for _ in range(rng.randrange(4)):
            new.append(rng.choice([n for n in range(1, count + 1) if count % n == 0]))
            count //= new[-1]
        new.append(count if rng.random() < 0.9 else count + 1)
        return f"{operation}({', '.join(map(str, new))})"
    if choice < 0.75:
        return f"transpose({axis}, {rng.randrange(-rank, rank)})"
    if choice < 0.85:
        return "contiguous()"
    if choice < 0.98:
        return f"split({rng.randrange(1, 4)}, {axis})"
    return "cat(0)"


def random_case(rng):
    while True:
        now = sizes(*(rng.randrange(1, most) for most in (3, 7, 5, 5)))
        if now["B"] * now["T"] * now["E"] <= 48:
            break
    steps = [rng.choice(["x", "context"])]
    value = _run(steps, now)
    for _ in range(rng.randrange(9)):
        steps.append(random_step(rng, now, value))
        try:
            value = _apply(value, steps[-1], now)
        except (RuntimeError, IndexError, TypeError, AttributeError):
            break
    return steps, now


def test_random_sequences_are_those_of_torch(engine):
    rng = random.Random(0)
    cases = [random_case(rng) for _ in range(600)]
    errors, strided, copied = set(), 0, 0
    for (steps, now), states in zip(cases, engine(cases)):
        wanted = expected(steps, now)
        found = [{key: state[key] for key in w} for state, w in zip(states, wanted)]
        assert found == wanted, (steps, now)
        errors.update(state["error"][0] for state in wanted if "error" in state)
        strided += sum(not part[3] for w in wanted for part in w.get("parts", []))
        copied += sum(not state.get("same", True) for state in wanted)
    assert errors == {"RuntimeError", "IndexError", "TypeError", "AttributeError"}
    assert strided > 300 and copied > 100  # the cases are not all easy


def test_channels_last_parts_are_joined_as_torch_joins_them(engine):
    steps = ["x", *RECIPES[INTERLEAVED][1:], "split(1, 2)", "cat(2)"]
    now = sizes(2, 3, 2, 4)
    (states,) = engine([(steps, now)])
    assert states[-1]["parts"] == expected(steps, now)[-1]["parts"]
    assert not states[-1]["parts"][0][3]  # torch keeps the strides: not contiguous


@pytest.mark.parametrize("name", NAMES)
def test_recipes_do_what_their_names_say(engine, name):
    now = sizes(2, 3, 2, 4)
    (states,) = engine([(RECIPES[name], now)])
    marks = {"wrong": "✗", "refused": "!"}
    mark = next((marks[word] for word in marks if word in name), "✓")
    assert states[-1]["verdict"]["mark"] == mark
    assert all(state["verdict"]["mark"] in "✓…" for state in states[1:-1]) or (
        name == INTERLEAVED
    )


def test_right_recipes_are_the_layouts_of_the_book():
    widget = HeadLayout(3, 8, 2, 2, show=SPLIT)
    x = torch.arange(48).view(2, 3, 8)
    assert torch.equal(widget.result(), split_heads(x, 2))
    widget.steps = RECIPES[MERGE]
    assert torch.equal(widget.result(), x) and torch.equal(
        widget.result(), merge_heads(split_heads(x, 2))
    )
    widget.steps = RECIPES[CONCAT][:3]
    assert torch.equal(widget.result(), heads_to_batch(x, 2))
    widget.steps = RECIPES[CONCAT]
    assert torch.equal(widget.result(), batch_to_heads(heads_to_batch(x, 2), 2))


def verdict(engine, steps, now):
    (states,) = engine([(steps, now)])
    return states[-1]["verdict"] | {"luck": states[-1]["luck"]}


def test_verdicts_name_what_a_head_holds(engine):
    now = sizes(1, 3, 2, 2)
    right = verdict(engine, RECIPES[SPLIT], now)
    assert "cells 0–1, 4–5, 8–9: features 0–1 of tokens a, b and c." in right["text"]
    wrong = verdict(engine, RECIPES[ALONE], now)
    assert wrong["short"] == "tokens are mixed"
    assert (
        "Head 0 reads the cells 0–5: features 0–3 of token a, and "
        "features 0–1 of token b. It should hold features 0–1 of tokens a, b and c."
    ) in wrong["text"]
    half = verdict(engine, RECIPES[SPLIT][:2], now)
    assert half["mark"] == "…" and "heads of one token" in half["text"]
    other = verdict(engine, RECIPES[INTERLEAVED], now)
    assert other["short"] == "heads own other features"
    assert "features 0, 2 of tokens a, b and c" in other["text"]
    merged = verdict(engine, RECIPES[UNTURNED], now)
    assert "features 0–1 of tokens a and b" in merged["text"]
    rows = verdict(engine, RECIPES[BATCH_MAJOR], sizes(2, 3, 2, 2))
    assert rows["short"] == "sequences are mixed"


def test_axes_are_what_the_code_calls_them(engine):
    now = sizes(1, 3, 2, 2)
    assert verdict(engine, ["x", "view(1, 2, 3, 2)"], now)["mark"] == "·"
    rows = verdict(engine, ["x", "view(B*H, -1, D)"], now)  # -1 can only be T
    assert rows["short"] == "tokens are mixed"
    turned = verdict(engine, ["x", "split(H, 2)", "cat(0)"], now)  # parts called D
    assert turned["short"] == "heads own other features"


@pytest.mark.parametrize(
    ("name", "now", "letter"),
    [
        (ALONE, sizes(1, 1, 2, 2), "T"),
        (ALONE, sizes(1, 3, 1, 4), "H"),
        (BATCH_MAJOR, sizes(1, 3, 2, 2), "B"),
        (REFUSED, sizes(1, 1, 2, 2), "T"),
        (REFUSED, sizes(1, 3, 2, 1), "D"),
        (INTERLEAVED, sizes(1, 3, 2, 1), "D"),
    ],
)
def test_right_by_luck_is_said(engine, name, now, letter):
    found = verdict(engine, RECIPES[name], now)
    assert found["mark"] == "✓"
    assert f"only because {letter} = 1: with {letter} = 2," in found["luck"]
    assert verdict(engine, RECIPES[SPLIT], now)["luck"] == ""


def test_places_are_right_exactly_where_torch_agrees(engine):
    """The verdict on every (B, H, T, D) that two steps reach, against split_heads."""
    now = sizes(2, 3, 2, 3)
    x = torch.arange(36).view(2, 3, 6)
    first = ["B, T, H, D", "B, H, T, D", "H, B, T, D", "B, H, D, T", "H, T, B, D"]
    cases = [
        (["x", f"view({shape})", f"transpose({i}, {j})"], now)
        for shape in first
        for i in range(4)
        for j in range(i)
    ]
    agreed = 0
    for (steps, _), states in zip(cases, engine(cases)):
        letters = steps[1][5:-1].split(", ")
        i, j = (int(digit) for digit in steps[2] if digit.isdigit())
        letters[i], letters[j] = letters[j], letters[i]
        named = _run(steps, now).permute([letters.index(x) for x in "BHTD"])
        same = torch.equal(named, split_heads(x, 2))
        assert (states[-1]["verdict"]["mark"] in "✓…") == same
        agreed += same
    assert 0 < agreed < len(cases)


def test_refusal_says_which_cells(engine):
    found = verdict(engine, RECIPES[REFUSED], sizes(1, 2, 3, 2))
    assert found["short"] == "torch raises RuntimeError"
    assert "cells 0, 1, 4, 5, 8, 9" in found["text"]
    assert "steps of 1, 3, 1, 3, 1" in found["text"]


# --- the page -------------------------------------------------------------------------


def way(opened, which=0):
    return opened.root_element.locator(".mha-way").nth(which)


def contents(opened, which=0):
    """The tables of the step that is shown, as lists of labels."""
    return way(opened, which).evaluate(
        """node => [...node.querySelectorAll('tbody')].map(body => [...body.rows].map(
            row => [...row.querySelectorAll('button')].map(
                one => one.firstChild.textContent)))"""
    )


def strip(opened, which=0):
    cells = way(opened, which).locator(".mha-memory button")
    return cells.evaluate_all("nodes => nodes.map(one => one.textContent)")


def labelled(value, widget):
    """A tensor's tables as the widget writes them."""
    rows = value.reshape(-1, *value.shape[-2:]).tolist()
    return [[[widget._name(i) for i in row] for row in table] for table in rows]


def head(opened, which=0):
    return way(opened, which).locator(".mha-head").inner_text()


def now(opened, which=0):
    """The part of the code that the pictures show."""
    return way(opened, which).locator("[aria-current=step]").inner_text()


def unfold(opened):
    """Bring what is under *More* into sight."""
    opened.root_element.locator(".mha-more > summary").click()


def test_shows_right_above_wrong_at_the_end(live):
    widget = HeadLayout()
    opened = live(widget)
    assert contents(opened) == labelled(widget.result(), widget)
    assert "✓ ready for attention" in head(opened)
    assert "✗ tokens are mixed" in head(opened, 1)
    wrong = contents(opened, 1)
    assert wrong == labelled(_run(RECIPES[ALONE], widget.sizes), widget)
    crossed = way(opened, 1).locator("td .mha-cell:has(sup)")
    right, found = widget.result(), _run(RECIPES[ALONE], widget.sizes)
    assert crossed.count() == int((right != found).sum())


def test_both_ways_go_on_step_by_step(live):
    """The longer one goes on where the other has ended, then all begins again."""
    widget = HeadLayout()
    opened = live(widget)
    verdicts = [head(opened, which).split("✓✗"[which])[1] for which in (0, 1)]
    opened.button("from the start").focus()
    for step in (0, 1, 2, 0):
        opened.page.keyboard.press("Enter")  # the button keeps the focus
        assert opened.text(".mha-count") == f"step {step} of 2"
        for which, name in enumerate((SPLIT, ALONE)):
            steps = RECIPES[name][: step + 1]
            wanted = labelled(_run(steps, widget.sizes), widget)
            assert contents(opened, which) == wanted
            assert now(opened, which) == ("." * (len(steps) > 1)) + steps[-1]
            reached = step and len(steps) == len(RECIPES[name])
            assert (verdicts[which] in head(opened, which)) == bool(reached)
    assert opened.button("back").get_attribute("aria-disabled") == "true"
    opened.press("next step")
    opened.press("back")
    assert contents(opened) == labelled(_run(["x"], widget.sizes), widget)


MOVING = """node => node.getAnimations({subtree: true}).map(
    one => one.effect.target.dataset.element)"""


def test_numbers_travel_to_their_new_places(live):
    """Those that change their place in the tables do, and no cell of memory."""
    widget = HeadLayout(2, 6, 3)
    opened = live(widget)
    opened.press("from the start")
    opened.press("next step")
    before = _run(RECIPES[SPLIT][:2], widget.sizes).flatten().tolist()
    opened.page.evaluate("document.getAnimations().forEach(one => one.finish())")
    opened.press("next step")
    moving = {int(element) for element in way(opened).evaluate(MOVING)}
    after = widget.result().flatten().tolist()
    assert moving >= {x for x, y in zip(before, after) if x != y} != set()
    cells = way(opened).locator(".mha-memory")
    assert cells.evaluate("x => x.getAnimations({subtree: true}).length") == 0
    assert way(opened, 1).evaluate(MOVING) == []  # it had ended before


def test_numbers_stand_still_where_motion_is_reduced(live):
    opened = live(HeadLayout(), reduced_motion="reduce")
    for name in ("from the start", "next step", "next step"):
        opened.press(name)
        assert way(opened).evaluate(MOVING) == []


def test_memory_stays_or_is_copied(live):
    widget = HeadLayout(2, 6, 3, show=MERGE, beside="")
    opened = live(widget)
    context = _run(["context"], widget.sizes).flatten().tolist()
    before, after = (
        [widget._name(i) for i in line] for line in (context, range(len(context)))
    )
    opened.press("from the start")
    strips = [strip(opened)]
    for _ in range(3):
        opened.press("next step")
        strips.append(strip(opened))
    assert strips == [before, before, after, after]
    assert way(opened, 1).is_hidden()


def test_brackets_tell_which_head_reads_each_cell(live):
    opened = live(HeadLayout())
    read = "nodes => nodes.map(one => one.textContent).filter(Boolean).join(' ')"
    for which, wanted in enumerate(["h0 h1 h0 h1 h0 h1", "h0 h1"]):
        cells = way(opened, which).locator(".mha-reader")
        assert cells.evaluate_all(read) == wanted


def outlined(opened):
    return opened.measure_all(
        ".mha-cell[aria-pressed=true]", "nodes => nodes.map(one => one.dataset.element)"
    )


def test_click_follows_an_element_everywhere(live):
    widget = HeadLayout()
    opened = live(widget)
    way(opened).locator("td .mha-cell", has_text="b2").click()
    assert outlined(opened) == ["6"] * 4  # memory and table of both ways
    said = opened.text(".mha-ways + output")
    assert said.startswith("b2 belongs to token b, head 1; below it lies in token a")
    path = way(opened).locator(".mha-path").inner_text()
    index = (widget.result() == 6).nonzero()[0].tolist()
    assert path == f"b2 is at {index}: 0·12 + 1·2 + 1·4 + 0·1 = cell 6"
    opened.press("from the start")
    assert outlined(opened) == ["6"] * 4  # and of every step


def test_pointer_follows_while_it_is_there(live):
    opened = live(HeadLayout())
    way(opened).locator(".mha-memory button").nth(9).hover()
    assert set(outlined(opened)) == {"9"}
    opened.page.mouse.move(1, 1)
    assert set(outlined(opened)) == {"0"}


def test_keyboard_follows_in_memory_and_in_tables(live):
    opened = live(HeadLayout())
    memory = way(opened).locator(".mha-memory")
    stops = "node => node.querySelectorAll('[tabindex=\"0\"]').length"
    assert memory.evaluate(stops) == 1
    memory.locator("[tabindex='0']").focus()
    for key, element in [("ArrowRight", 1), ("ArrowDown", 5), ("End", 11)]:
        opened.page.keyboard.press(key)
        assert set(outlined(opened)) == {str(element)}
    assert memory.evaluate(stops) == 1
    table = way(opened).locator(".mha-tables")
    table.locator("[tabindex='0']").focus()
    order = HeadLayout().result().flatten().tolist()
    for key, place in [("Home", 0), ("ArrowDown", 2), ("ArrowRight", 3)]:
        opened.page.keyboard.press(key)
        assert set(outlined(opened)) == {str(order[place])}
    opened.page.keyboard.press("ArrowUp")
    assert set(outlined(opened)) == {str(order[1])}


def test_every_recipe_can_be_chosen_on_both_sides(live):
    widget = HeadLayout(batch=2)
    opened = live(widget)
    unfold(opened)
    for trait, label in enumerate(["show", "compare with"]):
        for name in NAMES:
            opened.select(label, name)
            found = contents(opened, trait)
            if name == REFUSED:
                assert "RuntimeError: view size is not compatible" in (
                    way(opened, trait).inner_text()
                )
                continue
            result = _run(RECIPES[name], widget.sizes)
            assert found == labelled(result, widget), name
    opened.select("compare with", "nothing")
    assert way(opened, 1).is_hidden()


def test_free_play_and_undo_by_keyboard(live):
    widget = HeadLayout()
    opened = live(widget)
    press = opened.page.keyboard.press
    unfold(opened)
    opened.button("clear").focus()
    press("Enter")
    assert contents(opened) == labelled(_run(["x"], widget.sizes), widget)
    assert way(opened, 1).is_hidden()
    for operation, argument, steps in [
        ("view", "(B, H, T, D)", ["x", "view(B, H, T, D)"]),
        ("transpose", "(1, 3)", ["x", "view(B, H, T, D)", "transpose(1, 3)"]),
    ]:
        opened.select("add a step", operation)
        opened.select("arguments", argument)
        opened.button("append").focus()
        press("Enter")
        assert contents(opened) == labelled(_run(steps, widget.sizes), widget)
    assert opened.control("show").locator("option:checked").inner_text() == (
        "your own steps"
    )
    opened.select("add a step", "view")
    opened.select("arguments", "(B, T, E)")
    opened.press("append")
    assert "! torch raises RuntimeError" in head(opened)
    assert opened.button("append").is_disabled()
    opened.button("undo").focus()
    press("Space")
    assert contents(opened) == labelled(_run(steps, widget.sizes), widget)


def test_reset_restores_the_lesson_and_clear_empties(live):
    widget = HeadLayout(2, 6, 3)
    opened = live(widget)
    lesson = opened.text()
    unfold(opened)
    opened.select("T", "1")
    opened.press("clear")
    assert way(opened, 1).is_hidden() and len(strip(opened)) == 6
    opened.press("reset")
    unfold(opened)
    assert opened.text() == lesson


def test_split_offers_cat_alone(live):
    opened = live(HeadLayout(show=CONCAT))
    unfold(opened)
    opened.press("clear")
    opened.select("add a step", "split")
    opened.press("append")
    offered = opened.control("add a step").locator("option").all_inner_texts()
    assert offered == ["cat"]


def test_places_are_read_only_where_numbers_travel(live):
    """To read the places of all cells takes longer than to light one of them."""
    opened = live(HeadLayout(2, 6, 3))
    opened.page.evaluate("""() => {
        window.read = 0;
        const place = Element.prototype.getBoundingClientRect;
        Element.prototype.getBoundingClientRect = function () {
            window.read += this.matches('.mha-cell');
            return place.call(this);
        };
    }""")
    way(opened).locator(".mha-cell").nth(9).click()
    read = opened.page.evaluate("window.read")
    opened.press("from the start")
    assert (read, opened.page.evaluate("window.read") > 0) == (0, True)


def test_what_did_not_change_is_not_drawn_anew(live):
    opened = live(HeadLayout())
    watch = """node => {
        node.touched = 0;
        new MutationObserver(all => { node.touched += all.length; }).observe(node,
            { attributes: true, characterData: true, childList: true, subtree: true });
    }"""
    for which in (0, 1):
        way(opened, which).evaluate(watch)
    unfold(opened)
    opened.press("append")
    first, second = (way(opened, which).evaluate("x => x.touched") for which in (0, 1))
    assert first > 0 and second == 0


def test_the_next_step_is_drawn_with_the_elements_of_the_last(live):
    opened = live(HeadLayout(2, 6, 3))
    opened.press("from the start")
    cells = ".mha-memory [data-element]"
    way(opened).locator(cells).evaluate_all("all => all.forEach(x => (x.kept = true))")
    opened.press("next step")
    kept = way(opened).locator(cells).evaluate_all("all => all.map(x => x.kept)")
    assert kept == [True] * 12


def test_numbers_on_their_way_stop_where_others_are_shown(live):
    """A cell stays and shows another number, which has not been on the way."""
    opened = live(HeadLayout(2, 6, 3))
    for name in ("from the start", "next step", "next step"):
        opened.press(name)
    assert way(opened).evaluate(MOVING)
    opened.press("from the start")  # more than one step: nothing travels
    assert way(opened).evaluate(MOVING) == []


def test_sizes_change_the_answer(live):
    opened = live(HeadLayout())
    unfold(opened)
    assert "only because" not in head(opened, 1)
    opened.select("T", "1")
    assert "✓ ready for attention. But only because T = 1" in head(opened, 1)
    opened.select("T", "4")
    opened.select("H", "3")
    opened.select("D", "4")
    assert opened.control("B").locator("option").all_inner_texts() == ["1"]  # 48 cells
    widget = HeadLayout(4, 12, 3)
    assert contents(opened) == labelled(widget.result(), widget)


def test_colours_by_token(live):
    opened = live(HeadLayout())
    unfold(opened)
    colours = (
        """nodes => nodes.slice(0, 12).map(x => getComputedStyle(x).backgroundColor)"""
    )
    cells = opened.root_element.locator(".mha-memory button")
    by_head = cells.evaluate_all(colours)
    opened.select("colours show", "the token")
    by_token = cells.evaluate_all(colours)
    assert "rgba(0, 0, 0, 0)" not in by_head + by_token
    assert [by_head.index(x) for x in by_head] == [0, 0, 2, 2] * 3
    assert [by_token.index(x) for x in by_token] == [0] * 4 + [4] * 4 + [8] * 4


def test_table_holds_every_step(live):
    widget = HeadLayout()
    widget.element = 6
    opened = live(widget)
    unfold(opened)
    rows = opened.table(TABLE)
    x = widget.result()
    assert rows[3] == [
        "shown 2",
        "transpose(1, 2)",
        str(tuple(x.shape)),
        str(x.stride()),
        "no",
        f"{(x == 6).nonzero()[0].tolist()}, cell 6",
        "✓ ready for attention",
    ]
    assert rows[-1][-1] == "✗ tokens are mixed"
    assert len(rows) == 1 + 3 + 2


def test_nothing_for_axe_to_find(live):
    widget = HeadLayout(2, 4, 2, 1, show=CONCAT, beside=REFUSED)
    widget.colour = "token"
    opened = live(widget)
    unfold(opened)
    opened.table(TABLE)
    assert opened.faults() == []


def test_fits_a_small_phone(live):
    widget = HeadLayout(4, 12, 3, beside=CONCAT)
    opened = live(widget, viewport={"width": 320, "height": 640})
    unfold(opened)
    assert opened.width() == 320
    cut = opened.measure(
        """root => [...root.querySelectorAll('.mha-way *')].filter(one =>
            !one.closest('.mha-tables table') // which scroll in their frame
            && one.getBoundingClientRect().right > 320).length"""
    )
    assert cut == 0


BAD_STATE = [
    ("steps", ["y"], "must start from “x” or “context”"),
    ("steps", ["x", "permute(0, 2, 1)"], "is none of view, reshape"),
    ("steps", ["x", "view(B, T, Q)"], "“Q” in the step"),
    ("steps", ["x", "view()"], "has 0 arguments"),
    ("steps", ["x", "split(0, 1)"], "without elements"),
    ("steps", ["x", *["transpose(0, 1)"] * 9], "at most 8 steps"),
    ("steps", [], "no steps"),
    ("tokens", 0, "at least 1"),
    ("tokens", 7, "at most 2 sequences of 6 tokens"),
    ("head_dim", 20, "at most 48"),
    ("element", 99, "no number 99"),
    ("at", -2, "no step -2"),
    ("colour", "rainbow", "colour must be"),
    ("recipes", [["only a name"]], "a name and its steps"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, HeadLayout, BAD_STATE)


def test_a_verdict_is_of_the_step_that_is_shown(live):
    opened = live(HeadLayout(T=2, embed_dim=6, num_heads=3))
    opened.press("from the start")
    for i in (0, 1):
        assert "… as it lies in memory" in head(opened, i)
    opened.press("next step")
    assert "… right so far" in head(opened)
    assert "✗ tokens are mixed" in head(opened, 1)
    opened.press("next step")
    assert "✓ ready for attention" in head(opened)


def test_two_right_orders_are_to_be_tried(live):
    """Those of chapter 8: u0 stands in another row in each of them, u2 does not."""
    opened = live(IN_THE_BOOK["orders"]())
    rows = {}
    for button in opened.root_element.locator(".mha-tries button").all():
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        paths = opened.texts(".mha-path")
        rows[button.inner_text()] = [path.split(":")[0] for path in paths]
        said = opened.text()
        whose = button.inner_text()[:2]
        assert ("u0: two places, and both are right" in said) == (whose == "u0")
        assert ("u3: one place in both orders" in said) == (whose == "u3")
    opened.press("back")
    assert "u3 belongs to token u of sequence 1" in opened.text()
    assert rows == {
        "u0 in both orders": ["u0 is at [1, 0, 0]", "u0 is at [2, 0, 0]"],
        "u3 in both orders": ["u3 is at [3, 0, 0]", "u3 is at [3, 0, 0]"],
    }


# --- Python ---------------------------------------------------------------------------


def test_traits_change_what_python_runs():
    widget = HeadLayout(show=REFUSED)
    assert widget.code == "context.transpose(1, 2).view(B, T, E)"
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        widget.result()
    widget.steps = RECIPES[CONCAT]
    assert widget.code == (
        "torch.cat(torch.cat(x.split(D, dim=2), dim=0).split(B, dim=0), dim=2)"
    )
    widget.tokens = 5
    assert widget.result().shape == (1, 5, 4)
    assert repr(widget) == "HeadLayout(B=1, T=5, H=2, D=2, 8 recipes)"


def test_own_recipes():
    widget = HeadLayout(recipes={"mine": ["x", "view(B*H, -1, D)"]})
    assert widget.steps == ["x", "view(B*H, -1, D)"] and widget.beside == []
    assert widget.result().shape == (2, 3, 2)


@pytest.mark.parametrize("show", NAMES)
def test_still_has_a_row_of_cells_for_each_table(show):
    widget = HeadLayout(batch=2, show=show, beside="")
    figure = widget.still()
    memory, last = figure.axes
    assert len(memory.texts) == 24
    assert len(last.texts) == (0 if show == REFUSED else 24)
    plt.close(figure)


def test_still_goes_as_far_as_the_step_shown():
    widget = HeadLayout()
    for at, titles in [
        (0, ["memory of x"]),
        (1, ["memory of x", "x.view(B, T, H, D)", "x.view(B, H, T, D)"]),
    ]:
        widget.at = at
        figure = widget.still()
        found = [ax.get_title().partition(": a row")[0] for ax in figure.axes]
        assert found == titles
        plt.close(figure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"T": 0}, "T must be 1 to 6; got 0"),
        ({"T": 7}, "T must be 1 to 6; got 7"),
        ({"batch": 3}, "batch must be 1 to 2"),
        ({"num_heads": 3}, "divisible"),
        ({"embed_dim": 10}, "embed_dim / num_heads must be 1 to 4; got 5"),
        ({"T": 6, "embed_dim": 8, "batch": 2}, "at most 48 cells; got 96"),
        ({"show": "nothing"}, "got 'nothing'"),
        ({"beside": "nothing"}, "got 'nothing'"),
        ({"recipes": {}}, "at least one"),
        ({"recipes": {"a": ["y"]}}, "must start from"),
        ({"recipes": {"a": ["x"] + ["contiguous()"] * 9}}, "at most 8 steps"),
        ({"recipes": {"a": ["x", "flatten(2)"]}}, "must be one of"),
        ({"recipes": {"a": ["x", "cat()"]}}, "cat takes 1 arguments"),
        ({"recipes": {"a": ["x", "view(B, F)"]}}, "letters of B, T, E, H, D"),
        ({"recipes": {"a": ["x", "view(0, 3)"]}}, "at least 1 element"),
        ({"recipes": {"a": ["x", "split(-1, 0)"]}}, "at least 1 element"),
    ],
)
def test_wrong_arguments_name_the_requirement(options, message):
    with pytest.raises(ValueError, match=message):
        HeadLayout(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"T": 2.0}, "T must be an integer"),
        ({"embed_dim": "4"}, "must be integers"),
        ({"recipes": {"a": "x"}}, "list of texts"),
    ],
)
def test_wrong_types_name_the_requirement(options, message):
    with pytest.raises(TypeError, match=message):
        HeadLayout(**options)


JOINS = {  # of deeper/03_memory_and_strides and deeper/08_two_orders
    "transpose, view": ["context", "transpose(1, 2)", "view(B, T, E)"],
    "transpose, contiguous, view": [
        "context",
        "transpose(1, 2)",
        "contiguous()",
        "view(B, T, E)",
    ],
    "view alone": ["context", "view(B, T, E)"],
}
STACK = ORDERS["head-major"]
BACK = {
    "the stack": STACK,
    "wrong: view(B, T, E)": [*STACK, "view(B, T, E)"],
    "wrong: view(B, H, T, D)": [*STACK, "view(B, H, T, D)"],
    "right: split, concat": [*STACK, "split(B, 0)", "cat(2)"],
}
IN_THE_BOOK = {
    "chapter 3": lambda: HeadLayout(T=2, embed_dim=6, num_heads=3),
    "orders": lambda: HeadLayout(2, embed_dim=6, num_heads=2, batch=2, recipes=ORDERS),
    "joins": lambda: HeadLayout(
        T=2, embed_dim=6, num_heads=3, recipes=JOINS, strides=True
    ),
    "stack": lambda: HeadLayout(
        2, embed_dim=4, num_heads=2, batch=2, recipes=BACK, beside=""
    ),
}


@pytest.mark.parametrize("name", IN_THE_BOOK)
def test_two_right_orders_ask_where_one_number_is(live, name):
    """Chapters 3 and 8 showed one title; only in chapter 3 is a way wrong."""
    opened = live(IN_THE_BOOK[name]())
    asks = "Two orders, both right: where is {}?".format
    assert (opened.text(".mha-question") == asks("a0")) == (name == "orders")
    assert ("✗" in opened.text(".mha-lead")) == (name != "orders")
    if name == "orders":
        opened.press("u3 in both orders")
        assert opened.text(".mha-question") == asks("u3")


def test_who_follows_a_number_is_told_to_go_on(live):
    """Visitors pressed *follow b3*, and waited for b3 to move."""
    opened = live(IN_THE_BOOK["chapter 3"]())
    framed = opened.root_element.locator(".mha-invite")
    assert framed.count() == 0
    opened.press("follow b3 step by step")
    for _ in range(2):
        lead = opened.text(".mha-lead")
        assert "One colour = one head. Top: correct, bottom: wrong." in lead
        assert "Press “next step” and watch b3." in lead
        assert framed.all_inner_texts() == ["next step"]
        opened.press("next step")
    assert "One colour = one head" in opened.text(".mha-lead") and framed.count() == 0


def test_where_the_followed_number_lies_is_said_at_every_step(live):
    """In tables of a head each: their rows are tokens."""
    widget = HeadLayout()
    opened = live(widget)
    said = opened.root_element.locator(".mha-ways + output").inner_text
    wrong = contents(opened, 1)
    lies = {
        number: f"token {'abcdef'[row]}, head {head}"
        for head, table in enumerate(wrong)
        for row, line in enumerate(table)
        for number in line
    }
    kinds = set()
    for head, table in enumerate(contents(opened)):
        for row, line in enumerate(table):
            for column, number in enumerate(line):
                way(opened).locator("td .mha-cell", has_text=number).click()
                home = f"token {'abcdef'[row]}, head {head}"
                right = wrong[head][row][column] == number
                told = "right by chance" if right else f"in {lies[number]}"
                start = f"{number} belongs to {home}; below it lies {told}"
                assert said().startswith(start)
                kinds.add(right)
    assert kinds == {True, False}
    opened.button("from the start").click()  # the pointer leaves the cells
    assert said() == "c3: feature 3 of token c, number 1 of head 1."
    opened.press("next step")
    opened.select("compare with", "nothing")
    assert said() == "c3 belongs to token c, head 1, and lies there ✓."


def test_a_number_in_its_head_can_still_be_the_wrong_one_of_it(live):
    """Of feature e the view has made number e // 2 of head e % 2."""
    opened = live(HeadLayout(T=2, embed_dim=8, num_heads=2, beside=INTERLEAVED))
    way(opened).locator("td .mha-cell", has_text="a2").click()
    said = opened.text(".mha-ways + output")
    wrong = "below it lies in token a, head 0, but as number 1 instead of 2 ✗."
    assert said == f"a2 belongs to token a, head 0; {wrong}"


def test_how_an_address_is_computed_is_shown_where_it_is_asked_for(live):
    """Visitors met strides and a sum before they knew what the colours say."""
    opened = live(IN_THE_BOOK["chapter 3"]())
    strided = opened.root_element.locator(".mha-strided")
    assert strided.count() > 4 and not any(x.is_visible() for x in strided.all())
    assert "(B, H, T, D) = (1, 3, 2, 2)" in opened.text(".mha-ways")
    unfold(opened)
    opened.control("strides and addresses").check()
    shown = opened.text(".mha-ways")
    assert "(12, 2, 6, 1)" in shown and "= cell 0" in shown
    opened = live(IN_THE_BOOK["joins"]())
    assert "strides" in opened.text(".mha-ways")


def test_a_name_that_is_compared_moves_no_button(live):
    opened = live(IN_THE_BOOK["chapter 3"](), viewport=DESK)
    beside, back = opened.control("compare with"), opened.button("back")
    places = {str(back.bounding_box())}
    for name in beside.locator("option").all_inner_texts():
        beside.select_option(name)
        places.add(str(back.bounding_box()))
    assert len(places) == 1


@pytest.mark.parametrize(
    ("chapter", "made"),
    [
        ("03", "HeadLayout(T=2, embed_dim=6, num_heads=3)"),
        ("08", "HeadLayout(2, embed_dim=6, num_heads=2,"),
    ],
)
def test_the_sizes_are_those_of_the_chapter(chapter, made):
    (source,) = (book.ROOT / "book").glob(f"{chapter}_*.ipynb")
    assert made in source.read_text("utf-8")


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("viewport", "most"), MOST.values(), ids=MOST)
@pytest.mark.parametrize("name", IN_THE_BOOK)
def test_every_step_of_every_pair_fits_one_screen(live, name, viewport, most):
    opened = live(IN_THE_BOOK[name](), viewport=viewport)
    beside = opened.control("compare with")
    high = {}
    for other in beside.locator("option").all_inner_texts():
        beside.select_option(label=other)
        opened.press("from the start")
        while True:
            count = opened.text(".mha-count")
            high[other, count] = opened.measure("x => x.offsetHeight")
            if not opened.button("next step").count():
                break
            opened.press("next step")
    assert len(high) >= 8
    assert {pair: x for pair, x in high.items() if x > most} == {}


def test_of_two_ways_that_have_not_parted_both_can_be_pressed(live):
    """A visitor took the pale one for disabled."""
    opened = live(HeadLayout(), reduced_motion="reduce")
    opened.press("from the start")
    below = opened.root_element.locator(".mha-way").nth(1)
    assert "as above." in below.inner_text()
    assert below.locator(".mha-state").evaluate(PALE) == "1"
    below.locator("td .mha-cell", has_text="b2").click()
    assert outlined(opened) == ["6"] * 4
    opened.press("next step")
    assert "as above" not in below.inner_text()


PALE = "x => getComputedStyle(x.parentElement).opacity"


@pytest.mark.parametrize("ones", ["H", "HT", "TH"])
def test_where_no_way_is_wrong_by_luck_the_lesson_stays_its_own(live, ones):
    """With H = 1 chapter 3 asked the question of chapter 8, and kept it."""
    opened = live(IN_THE_BOOK["chapter 3"](), folded=False)
    tries = opened.root_element.locator(".mha-tries button")
    for letter in ones:
        opened.select(letter, "1")
    assert opened.text(".mha-question") == "Where does each number go?"
    assert opened.text(".mha-lead").endswith("Both are right at these sizes.")
    assert tries.all_inner_texts() == ["wrong: view alone", "wrong: heads interleaved"]
    opened.press("reset")
    assert opened.text(".mha-question") == "Where does each number go?"
    assert tries.count() == 3


def test_the_lead_names_what_the_colours_show(live):
    opened = live(HeadLayout(), folded=False)
    opened.control("colours show").select_option(label="the token")
    assert opened.text(".mha-lead").startswith("One colour = one token.")


@pytest.mark.sweep(3)  # one on each screen
@pytest.mark.parametrize(("viewport", "_"), MOST.values(), ids=MOST)
@pytest.mark.parametrize("name", ["lesson", "orders"])
def test_the_lesson_has_its_room_from_the_start(live, name, viewport, _):
    """Of chapters 3 and 8: no step and nothing to try makes the widget higher."""
    lesson = HeadLayout(T=2, embed_dim=6, num_heads=3)
    lesson.at = 0
    opened = live(
        IN_THE_BOOK[name]() if name == "orders" else lesson, viewport=viewport
    )
    high = {opened.measure("x => x.offsetHeight")}
    for button in [*opened.root_element.locator(".mha-tries button").all(), "reset"]:
        (opened.button(button) if button == "reset" else button).click()
        high.add(opened.measure("x => x.offsetHeight"))
    for button in ("next step", "next step", "back"):
        if opened.button(button).count():
            opened.press(button)
            high.add(opened.measure("x => x.offsetHeight"))
    assert len(high) == 1


def test_numbers_of_both_ways_travel_when_they_part(live):
    opened = live(HeadLayout())
    opened.button("from the start").click()
    opened.button("next step").click()
    travelling = opened.page.evaluate(
        """() => document.getAnimations().map(x => x.effect.target.closest('.mha-way'))
            .map(x => x?.getAttribute('aria-label'))"""
    )
    assert {"steps below them"} <= set(travelling)


# Letters that stand on one another: [label, how far] of each pair.
COLLIDES = """() => [...document.querySelectorAll('.mha-cell:has(sup)')].map(cell => {
    const text = document.createRange();
    text.selectNode(cell.firstChild);
    return text.getBoundingClientRect().right
        - cell.querySelector('sup').getBoundingClientRect().left;
})"""
BRACKETS = """() => [...document.querySelectorAll('.mha-begins.mha-ends .mha-reader')]
    .filter(x => x.checkVisibility()).map(x => {
        const [style, text] = [getComputedStyle(x), document.createRange()];
        text.selectNodeContents(x);
        return x.clientWidth - parseFloat(style.paddingLeft)
            - parseFloat(style.paddingRight) - text.getBoundingClientRect().width;
    })"""


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_no_letter_stands_on_another(live, viewport):
    opened = live(HeadLayout(T=2, embed_dim=6, num_heads=3), viewport=viewport)
    opened.press("wrong: heads interleaved")
    crosses = opened.page.evaluate(COLLIDES)
    assert len(crosses) == 8 and max(crosses) <= 0.5
    brackets = opened.page.evaluate(BRACKETS)
    assert len(brackets) == 12 and min(brackets) >= 2


def test_what_is_followed_keeps_its_name_whatever_is_compared(live):
    opened = live(HeadLayout(T=2, embed_dim=6, num_heads=3))
    for way in ("wrong: heads interleaved", "wrong: view alone"):
        assert opened.button("follow b3 step by step").is_visible()
        opened.press(way)
    assert opened.button("follow b3 step by step").is_visible()
