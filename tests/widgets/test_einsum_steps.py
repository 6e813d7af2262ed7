"""Each equation gives what torch.einsum gives, by every hand, cell by cell."""

import json
import re
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from mha_lib.widgets import EinsumSteps
from tests.widgets.conftest import MOST, PHONE, assert_says, number

SIZES = {"b": 2, "t": 3, "s": 4, "h": 2, "d": 5, "e": 3, "f": 2, "v": 3}
SCORES = "tbhd,sbhd->bhts"
EQUATIONS = [
    "d,d->",
    "td,sd->ts",
    "td,sd->st",
    "td,sd->t",  # s is forgotten: it is summed, in one operand alone
    "td,td->t",
    "ts,sv->tv",
    "tbe,fe->tbf",
    "tbe,sbe->tsb",
    "tbe->bte",
    "tbe->",
    "ts,h->tsh",
    "tbhd,sbd->tsbh",
    "tbhd,sbhd->tsb",
    "tbhd,sbhd->",
    "tbhd,tbhd->tbh",
    SCORES,
    "tbhd,sbhd->tsbh",
    "tsbh,sbhd->tbhd",
    "tsbh,sbd->tbhd",
    "ttb->tb",  # the diagonal
    ",t->t",
]
CHAPTER = Path(__file__).parents[2] / "book/06_einsum_sequence_first.ipynb"
LINE = ".mha-es-sum + output"
EXAMPLE, ALL, SUM = "example", "All cells as a table", "The sum of this cell"


@pytest.fixture
def live(live):
    return partial(live, folded=False)


def random(equation: str, sizes: dict = SIZES) -> tuple:
    """The equation and operands for it that are no whole numbers."""
    generator = torch.Generator().manual_seed(len(equation))
    groups = equation.split("->")[0].split(",")
    shapes = [[sizes[x] for x in group] for group in groups]
    return equation, *(torch.randn(shape, generator=generator) for shape in shapes)


def choose(opened, n: int) -> None:
    opened.control(EXAMPLE).select_option(index=n)


def write(opened, equation: str) -> None:
    opened.fill("equation", equation)


def result(opened) -> torch.Tensor:
    """The numbers of the result, row by row."""
    rows = [row for row in opened.table(ALL) if row[0] == "result"]
    return torch.tensor([number(row[3]) for row in rows])


def marked(opened, state: str) -> dict[str, list[int]]:
    """For each tensor the numbers of its cells in one state."""
    return opened.measure(
        """(root, state) => Object.fromEntries([...root.querySelectorAll(
          '.mha-es-operand')].map(x => [x.querySelector('b').textContent,
          [...x.querySelectorAll(`[data-state=${state}]`)].map(y => +y.dataset.n)]))""",
        state,
    )


def cell(opened, tensor: str, n: int):
    operand = opened.root_element.locator(".mha-es-operand", has_text=f"{tensor} (")
    return operand.locator(f"[data-n='{n}']")


def chosen(opened) -> int:
    return marked(opened, "result")["result"][0]


def test_results_are_those_of_torch(live):
    given = [random(equation) for equation in EQUATIONS]
    opened = live(EinsumSteps(given))
    for n, (equation, *operands) in enumerate(given):
        choose(opened, n)
        expected = torch.einsum(equation, *operands).flatten()
        torch.testing.assert_close(result(opened), expected, atol=6e-4, rtol=0)


def test_chapter_is_shown_without_arguments(live):
    widget = EinsumSteps()
    opened = live(widget)
    for n, (equation, given) in enumerate(zip(widget.equations, widget.operands)):
        choose(opened, n)
        expected = torch.einsum(equation, *map(torch.tensor, given)).flatten()
        torch.testing.assert_close(result(opened), expected, atol=6e-4, rtol=0)
    weights = torch.tensor(widget.operands[5][0])  # (T, S, B, H)
    assert torch.equal(weights.sum(1), torch.ones(3, 2, 2))


def test_it_begins_with_a_product_that_counts(live):
    opened = live(EinsumSteps())
    assert "step 1 of 2: 1 · 3 = 3. The sum is 3 after this step, 11 after all 2." in (
        opened.text()
    )


def test_size_one_fits_every_size(live):
    q, k = torch.randn(3, 5), torch.randn(1, 5)
    opened = live(EinsumSteps([("td,td->t", {"q": q, "k": k})]))
    expected = torch.einsum("td,td->t", q, k)
    torch.testing.assert_close(result(opened), expected, atol=6e-4, rtol=0)
    assert "q[t, d] * k[0, d]" in opened.text("pre")


def test_who_takes_part_has_a_gradient(live):
    """The cells of a sum are those on which it depends: torch knows them."""
    given = [random(x) for x in (SCORES, "td,sd->t", "tsbh,sbhd->tbhd", "ttb->b")]
    widget = EinsumSteps(given)
    at = {"t": 2, "b": 1, "h": 0, "s": 2, "d": 2}
    for n, (equation, *operands) in enumerate(given):
        widget.example, widget.at = n, at
        opened = live(widget)
        inputs, output = equation.split("->")
        for operand in operands:
            operand.requires_grad_()
        place = tuple(at[x] for x in output)
        torch.einsum(equation, *operands)[place].backward()
        states = [marked(opened, state) for state in ("done", "now", "later")]
        for name, operand, letters in zip(
            ["first", "second"], operands, inputs.split(",")
        ):
            takes_part = operand.grad.flatten().nonzero().flatten().tolist()
            assert sorted(sum((state[name] for state in states), [])) == takes_part
            here = np.ravel_multi_index([at[x] for x in letters], operand.shape)
            assert states[1][name] == [here]


def test_steps_add_up(live):
    given = random(SCORES)
    opened = live(EinsumSteps([given]))
    for letter, value in {"t": "2", "b": "1", "s": "3"}.items():
        opened.fill(letter, value)
    q, k = given[1:]
    expected = q[2, 1, 0] * k[3, 1, 0]
    rows = opened.table(SUM)[1:]
    shown = torch.tensor([[number(x) for x in row[1:]] for row in rows])
    columns = [q[2, 1, 0], k[3, 1, 0], expected, expected.cumsum(0)]
    torch.testing.assert_close(shown, torch.stack(columns, 1), atol=6e-4, rtol=0)
    for step in range(SIZES["d"]):
        said = opened.text(LINE)
        assert f"step {step + 1} of 5" in said
        sums = re.search(
            r"The sum is (.*) after this step, (.*) after all 5\.", said
        ).groups()
        so_far = [float(expected[: step + 1].sum()), float(expected.sum())]
        assert list(map(number, sums)) == pytest.approx(so_far, abs=6e-4)
        assert len(marked(opened, "later")["first"]) == SIZES["d"] - 1 - step
        if step < SIZES["d"] - 1:
            opened.press("next")
    assert opened.button("next").is_disabled()
    opened.press("previous")
    assert "step 4 of 5" in opened.text(LINE)
    opened.control("step").focus()
    opened.page.keyboard.press("Home")
    assert "step 1 of 5" in opened.text(LINE)
    assert opened.control("step").get_attribute("aria-valuetext") == "d = 0"


def test_the_framed_cell_holds_the_sum_so_far_and_the_others_their_results(live):
    given = random("td,sd->ts")
    opened = live(EinsumSteps([given]))
    cell(opened, "result", 6).click()  # t = 1, s = 2
    expected = torch.einsum(*given).flatten()
    sums = (given[1][1] * given[2][2]).cumsum(0)
    for so_far in sums:
        shown = [number(cell(opened, "result", n).inner_text()) for n in range(12)]
        wanted = expected.clone()
        wanted[6] = so_far
        assert shown == pytest.approx(wanted.tolist(), abs=6e-3)
        if so_far != sums[-1]:
            opened.press("next")
    opened.fill("step", "0")
    cell(opened, "result", 0).click()  # what is left has its result again
    assert number(cell(opened, "result", 6).inner_text()) == pytest.approx(
        float(expected[6]), abs=6e-3
    )


def test_a_sum_on_its_way_fits_its_cell(live):
    large = torch.tensor([[-1234.5, 1234.5, 1.0]])
    opened = live(EinsumSteps([("td,td->t", large, torch.ones(1, 3))]))
    one = cell(opened, "result", 0)
    assert one.inner_text() == "−1234.50"
    inside = """x => { const text = document.createRange();
        text.selectNodeContents(x);
        return text.getBoundingClientRect().width <= x.clientWidth; }"""
    assert one.evaluate(inside)
    opened.fill("step", "2")
    assert one.inner_text() == "1"


def test_long_sums_show_a_window_that_follows(live):
    opened = live(EinsumSteps([random("tbhd,sbhd->")]))
    steps = prod(SIZES[x] for x in "tbhds")
    opened.fill("step", "100")
    items = opened.root_element.locator(".mha-es-terms li")
    assert items.count() == 12
    assert opened.text("[aria-current=step] b") == "t = 1, b = 0, h = 1, d = 0, s = 0"
    assert f"step 101 of {steps}" in opened.text(LINE)


class Timers:
    """The page's timers, which go off when the test says so and not before."""

    def __init__(self, page):
        self.page = page
        page.evaluate(
            """() => {
                window.timers = new Map();
                let last = 0;
                window.setTimeout = (action, delay) => {
                    window.timers.set(++last, { action, delay });
                    return last;
                };
                window.clearTimeout = (timer) => window.timers.delete(timer);
            }"""
        )

    def delays(self) -> list[int]:
        return self.page.evaluate("[...window.timers.values()].map(x => x.delay)")

    def go_off(self):
        self.page.evaluate(
            """() => {
                const due = [...window.timers.values()];
                window.timers.clear();
                due.forEach(({ action }) => action());
            }"""
        )


def test_play_runs_to_the_end_and_can_be_stopped(live):
    opened = live(EinsumSteps())
    timers = Timers(opened.page)
    opened.button("play").focus()
    opened.page.keyboard.press("Enter")
    assert len(timers.delays()) == 1 and timers.delays()[0] >= 500  # time to read
    assert "step 1 of 2" in opened.text(LINE)
    timers.go_off()
    assert "step 2 of 2" in opened.text(LINE)
    timers.go_off()
    opened.settle()
    assert timers.delays() == []
    opened.press("play")  # again, from the start
    assert "step 1 of 2" in opened.text(LINE)
    opened.press("pause")
    assert timers.delays() == []
    assert opened.button("play").is_visible()


def test_nothing_plays_under_reduced_motion(live):
    opened = live(EinsumSteps(), reduced_motion="reduce")
    assert opened.root_element.get_by_text("play", exact=True).is_hidden()
    assert opened.button("next").is_visible()


def test_arrow_keys_walk_over_all_blocks(live):
    opened = live(EinsumSteps([random(SCORES)]))
    opened.root_element.get_by_role("application").focus()
    b, h, t, s = 0, 0, 0, 0
    for key, moved in [
        ("ArrowRight", {"s": 1}),
        ("End", {"h": 1, "s": 3}),
        ("ArrowRight", {}),
        ("ArrowDown", {"t": 1}),
        ("PageDown", {"b": 1, "t": 2}),
        ("ArrowUp", {"t": 1}),
        ("ArrowUp", {"t": 0}),
        ("ArrowUp", {"b": 0, "t": 2}),  # over the edge of a block
        ("Home", {"h": 0, "s": 0}),
        ("ArrowLeft", {}),
        ("PageUp", {"t": 0}),
    ]:
        opened.page.keyboard.press(key)
        b, h, t, s = ({"b": b, "h": h, "t": t, "s": s} | moved).values()
        assert chosen(opened) == np.ravel_multi_index((b, h, t, s), (2, 2, 3, 4))
        assert f"result[b={b}, h={h}, t={t}, s={s}]" in opened.text(LINE)


def test_arrow_keys_with_fewer_axes(live):
    equations = ["d,d->", "t,t->t", "tb,hb->th", "tbe->bte"]
    opened = live(EinsumSteps(list(map(random, equations))))
    for n, equation in enumerate(equations):
        choose(opened, n)
        opened.root_element.get_by_role("application").focus()
        opened.page.keyboard.press("End")
        opened.page.keyboard.press("PageDown")
        assert chosen(opened) == prod(SIZES[x] for x in equation.split("->")[1]) - 1


def test_mouse_picks_a_cell_of_any_tensor(live):
    opened = live(EinsumSteps([random(SCORES)]))
    cell(opened, "result", 23).click()
    assert chosen(opened) == 23
    place = np.unravel_index(23, (2, 2, 3, 4))
    assert "result[b={}, h={}, t={}, s={}]".format(*place) in opened.text(LINE)
    n = np.ravel_multi_index((2, 0, 1, 4), (3, 2, 2, 5))  # t, b, h, d
    cell(opened, "first", n).click()
    assert marked(opened, "now")["first"] == [n]
    said = opened.text(LINE)
    assert "result[b=0, h=1, t=2, s=3], step 5 of 5" in said


def test_another_order_moves_the_cell_and_nothing_else(live):
    given = random(SCORES)
    widget = EinsumSteps([given])
    widget.at = {"b": 1, "h": 0, "t": 2, "s": 1, "d": 3}
    opened = live(widget)
    before = marked(opened, "now"), marked(opened, "later"), opened.text(LINE)
    bhts = torch.einsum(*given)
    opened.select("order of the result", "tsbh")
    assert opened.control("equation").input_value() == "tbhd,sbhd->tsbh"
    after = marked(opened, "now"), marked(opened, "later"), opened.text(LINE)
    assert [x | {"result": []} for x in after[:2]] == list(before[:2])
    assert after[2].partition("]")[2] == before[2].partition("]")[2]
    tsbh = bhts.permute(2, 3, 0, 1)
    torch.testing.assert_close(result(opened), tsbh.flatten(), atol=6e-4, rtol=0)
    place = np.ravel_multi_index((2, 1, 1, 0), tsbh.shape)
    assert chosen(opened) == place
    told = opened.root_element.get_by_text("one sum of the same products").inner_text()
    assert "result_tsbh[2, 1, 1, 0] and result_bhts[1, 0, 2, 1]" in told
    theirs = np.ravel_multi_index((1, 0, 2, 1), bhts.shape)
    assert f"number {place} of 48" in told and f"bhts it is number {theirs}" in told
    assert "result_tsbh = result_bhts.permute(2, 3, 0, 1)" in told
    opened.select("order of the result", "htbs")
    htbs = bhts.permute(1, 2, 0, 3)  # not its own inverse
    torch.testing.assert_close(result(opened), htbs.flatten(), atol=6e-4, rtol=0)
    told = opened.root_element.get_by_text("one sum of the same products").inner_text()
    assert "result_htbs = result_bhts.permute(1, 2, 0, 3)" in told


def test_loops_run_as_python(live):
    given = [random(x) for x in (SCORES, "td,sd->t", "tbe->bte", "ttb->b", "d,d->")]
    opened = live(EinsumSteps(given))
    for n, (equation, *operands) in enumerate(given):
        choose(opened, n)
        expected = torch.einsum(equation, *operands)
        names = dict(zip(["first", "second"], operands))
        names["result"] = torch.zeros_like(expected)
        exec(opened.text("pre"), names)  # our own text
        torch.testing.assert_close(names["result"], expected)


def test_letter_of_the_same_name_is_no_tensor(live):
    opened = live(EinsumSteps([("ts,sv->tv", {"w": torch.eye(3), "v": torch.eye(3)})]))
    assert "total += w[t, s] * v_[s, v]" in opened.text("pre")


def test_letters_are_explained(live):
    opened = live(EinsumSteps({"scores": ("tbd,sbd->bts", *random("tbd,sbd->")[1:])}))
    items = opened.texts(".mha-es-letters li")
    roles = [item[0] + item.rpartition("\n")[2] for item in items]
    assert roles == [
        "bbatched: in first, second and the result",
        "tkept: in first and the result",
        "skept: in second and the result",
        "dsummed: in first and second, not in the result",
    ]
    assert "For every b, t and s: add 5 products, one for every d." in (opened.text())
    write(opened, "tbd,sbd->bs")
    assert "add 15 products, one for every t and d" in opened.text()


def test_examples_keep_the_letters_that_they_share(live):
    opened = live(EinsumSteps())
    choose(opened, 3)
    opened.fill("b", "0")
    opened.fill("t", "2")
    opened.fill("h", "1")
    choose(opened, 4)
    assert "result[t=2, s=0, b=0, h=1]" in opened.text(LINE)
    assert opened.control("equation").input_value() == "tbhd,sbhd->tsbh"


def test_wrong_equation_is_a_sentence_and_can_be_mended(live):
    opened = live(EinsumSteps([random("td,sd->ts")]))
    box = "x => JSON.stringify(x.getBoundingClientRect())"
    before = opened.measure(box)
    for equation, sentence in {
        "td,sd->tx": "the letter x stands after the arrow, but no operand has it",
        "td,td->t": "the letter t has two sizes, 3 and 4 (in second)",
        "td,sd->tt": "the letter t stands twice after the arrow",
        "td,sd": "a comma between them, then -> and the letters of the result",
        "...d,sd->s": "letters for one operand or for two",
        "": "letters for one operand or for two",
        "td,sd,sd->ts": "letters for one operand or for two",
        "td->t": "it has letters for 1, but there are 2 operands",
        "tbd,sd->ts": "tbd stands for 3 axes, but first has 2: its shape is (3, 5)",
    }.items():
        write(opened, equation)
        assert sentence in opened.text(".mha-problem")
        assert opened.measure(box) == before  # the page does not jump
        assert opened.root_element.locator("pre").evaluate(
            "x => !!x.closest('[inert]')"
        )
        assert opened.control("equation").get_attribute("aria-invalid") == "true"
    write(opened, "td, sd -> st")  # spaces do not count
    assert opened.root_element.locator(".mha-problem").is_hidden()
    assert opened.count(".mha [inert]") == 0
    assert opened.text(".mha-es-operand:last-child > div >> nth=0") == (
        "result (s, t) = (4, 3); framed: so far"
    )


def test_at_the_end_of_a_sum_the_focus_stays_on_the_button(live):
    opened = live(EinsumSteps([random("td,sd->ts")]))
    focus = "() => document.activeElement.textContent"
    for _ in range(6):  # one more than there are steps to go
        opened.button("next").press("Enter")
        assert opened.page.evaluate(focus) == "next"
    assert opened.button("next").get_attribute("aria-disabled") == "true"
    assert "step 5 of 5" in opened.text(LINE)


@pytest.mark.parametrize("screen", MOST)
def test_four_axes_fit_one_screen_with_all_that_takes_part(live, screen):
    viewport, most = MOST[screen]
    q, k = (torch.arange(8 * n).view(n, 2, 2, 2) % 4 for n in (2, 3))
    given = [("tbhd,sbhd->tsbh", {"q": q, "k": k})]  # as chapter 6 has it
    opened = live(EinsumSteps(given), viewport=viewport, folded=True)
    opened.fill("t", "1")
    opened.fill("s", "2")
    assert opened.box()["height"] <= most
    pane = opened.root_element.locator(".mha-es-tensors")
    assert pane.evaluate("x => x.scrollHeight <= x.clientHeight")  # nothing is cut off
    assert [len(x) for x in marked(opened, "now").values()] == [1, 1, 0]
    for state in ("now", "result"):
        found = opened.root_element.locator(f".mha-es-cell[data-state={state}]").all()
        assert all(one.is_visible() for one in found)
    assert opened.root_element.get_by_text("the blocks that take part").is_visible()


def test_too_large_a_result_is_a_sentence(live):
    large, wide = dict.fromkeys("tbsd", 8), dict.fromkeys("tbesd", 2)
    given = [random("tb,sd->t", large), random("tbe,sd->t", wide)]
    opened = live(EinsumSteps(given))
    write(opened, "tb,sd->tbsd")
    assert "would have 4096 cells; at most 256" in opened.text(".mha-problem")
    write(opened, "tb,sd->")
    assert "a sum of 4096 products; at most 1024" in opened.text(".mha-problem")
    choose(opened, 1)
    write(opened, "tbe,sd->tbesd")
    assert "may have at most 4 axes" in opened.text(".mha-problem")


BAD_STATE = [
    ("equations", [], "given no equations"),
    ("example", 7, "no example number 7"),
    ("operands", [], "one or two operands"),
    ("operands", [[[]]], "every operand must have a name"),
    ("operands", [[[], [[1]]]], "first is empty"),
    ("operands", [[[[1, float("nan")]], [[1]]]], "not a finite number"),
    ("operands", [[[[1, 2], [3]], [[1]]]], "even length"),
    ("operands", [["a", [[1]]]], "first is not a finite number"),
    ("operands", [[[[0] * 300], [[1]]]], "at most 4 axes and 256 cells"),
    ("operand_names", [["a"]], "every operand must have a name"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, lambda: EinsumSteps(["td,sd->ts"]), BAD_STATE)


def test_what_to_try(live):
    equation, q, k = random("td,sd->ts")
    opened = live(EinsumSteps([(equation, q, k)]))
    for title, tried in [
        ("sum one more", "td,sd->t"),
        ("transpose: ts → st", "td,sd->st"),
    ]:
        opened.press(title)
        assert opened.control("equation").input_value() == tried
        expected = torch.einsum(tried, q, k).flatten()
        torch.testing.assert_close(result(opened), expected, atol=6e-4, rtol=0)
        assert opened.text(".mha-note")
    opened.press("reset")
    assert opened.control("equation").input_value() == equation


def test_a_cell_that_is_clicked_begins_at_its_first_step_and_says_so_far(live):
    opened = live(EinsumSteps([random("td,sd->ts")]))
    cell(opened, "result", 6).click()
    opened.press("next")
    cell(opened, "result", 7).click()
    assert "step 1 of 5" in opened.text(LINE)
    sign = opened.root_element.locator(".mha-es-sofar")
    for _ in range(4):
        assert sign.is_visible() and sign.inner_text() == "; framed: so far"
        opened.press("next")
    assert not sign.is_visible()


def test_products_beyond_the_edge_have_a_sign(live):
    opened = live(EinsumSteps([random("td,sd->ts")]), viewport=PHONE)
    terms = opened.root_element.locator(".mha-es-terms")
    sign = "x => getComputedStyle(x, '::after').content"
    opened.press("sum one more")
    assert terms.evaluate(sign) == '"▸"'
    terms.evaluate("x => x.scrollTo(x.scrollWidth, 0)")
    expect(terms).not_to_have_attribute("data-further", "")
    assert terms.evaluate(sign) == "none"


def test_the_list_names_no_equation_that_is_not_shown(live):
    opened = live(EinsumSteps({"one": random("td,sd->ts"), "two": random("td,sd->st")}))
    before = [*opened.texts(".mha-tries button")]
    opened.press("sum one more")
    texts = opened.control(EXAMPLE).locator("option").all_inner_texts()
    assert texts == ["one", "two"]
    after = opened.texts(".mha-tries button")
    assert after[0] == before[0]


def test_what_is_tried_or_typed_begins_at_its_first_step(live):
    widget = EinsumSteps([random("td,sd->ts")])
    widget.at = {"t": 2, "s": 3, "d": 4}
    opened = live(widget)
    for title in opened.texts(".mha-tries button"):
        opened.press("reset")
        button = opened.button(title)
        button.click()
        said = opened.text(LINE)
        assert "t=2" in said and ", step 1 of " in said
        note = opened.text(".mha-note")
        opened.press("next")
        assert ", step 2 of " in opened.text(LINE)
        assert button.get_attribute("aria-pressed") == "true"
        assert opened.text(".mha-note") == note != ""
    opened.press("reset")
    assert "step 5 of 5" in opened.text(LINE)
    write(opened, "td,sd->t")
    assert "result[t=2], step 1 of 20" in opened.text(LINE)


# Of the strip of products: is the one of this step seen whole, is one cut off on the
# left, and is the strip at its end?
STRIP = """root => {
    const strip = root.querySelector('.mha-es-terms');
    const frame = strip.getBoundingClientRect();
    const all = [...strip.querySelectorAll('li')].map(x => x.getBoundingClientRect());
    const now = [...strip.querySelectorAll('li')].findIndex(
        x => x.ariaCurrent === 'step');
    return [
        all[now].left >= frame.left - 1 && all[now].right <= frame.right + 1,
        [...strip.children].map(x => x.getBoundingClientRect()).some(
            x => x.left < frame.left - 1 && x.right > frame.left + 1),
        strip.scrollLeft + strip.clientWidth >= strip.scrollWidth - 1,
    ];
}"""


@pytest.mark.parametrize("screen", MOST)
def test_the_product_of_this_step_is_seen_whole(live, screen):
    opened = live(EinsumSteps([random("tb,sd->t")]), viewport=MOST[screen][0])
    for _ in range(19):
        whole, edge, last = opened.measure(STRIP)
        assert whole
        assert not edge or last  # cut off on one side at most
        opened.press("next")


def test_the_lead_says_the_word_of_a_button_that_stands_out(live):
    opened = live(EinsumSteps())
    (word,) = re.findall("“(.+)”", opened.text(".mha-lead"))
    frame = "x => getComputedStyle(x).boxShadow"
    framed = [opened.button(x).evaluate(frame) for x in (word, "previous")]
    assert "inset" in framed[0] and framed[1] == "none"


def test_the_lead_tells_what_the_next_press_does(live):
    x, y = torch.tensor([[1, 2, 0, 3], [0, 0, 0, 0]]), torch.tensor([[1, -1, 1, 1]])
    opened = live(EinsumSteps([("td,sd->ts", x, y)]))
    invited = "x => x.classList.contains('mha-invite')"
    for hint, then in [
        ("Press “next” below: the framed sum falls.", "1"),
        ("Press “next” below: that product is 0, the sum stays.", "−1"),
        ("Press “next” below: the framed sum grows.", "−1"),
        ("This sum is whole: press another cell of the result.", "2"),
    ]:
        assert opened.text(".mha-lead") == hint
        assert opened.button("next").evaluate(invited) == ("Press" in hint)
        assert opened.text(".mha-es-operand [data-state=result]") == then
        opened.button("next").press("Enter")
    cell(opened, "result", 1).click()  # its products are 0 · 1, 0 · −1, …
    idle = "Every product here is 0: press another cell of the result."
    assert opened.text(".mha-lead") == idle
    assert not opened.button("next").evaluate(invited)
    write(opened, "td,sd->tx")
    assert opened.text(".mha-lead").startswith("Mend the equation")
    assert opened.count(".mha-invite") == 0
    write(opened, "td,sd->")
    assert "Press “next”" in opened.text(".mha-lead")


def test_an_example_begins_at_the_first_step_of_a_sum_that_is_not_0(live):
    opened = live(EinsumSteps())
    for n in range(1, len(EinsumSteps().equations)):
        choose(opened, 0)
        cell(opened, "result", 5).click()  # t = 1, s = 2
        opened.press("next")
        choose(opened, n)
        assert "step 2" not in opened.text(LINE)
        assert "step 3" not in opened.text(LINE)
        assert "Every product" not in opened.text(".mha-lead")


def test_a_cell_that_stays_0_in_the_next_example_is_left(live):
    x = torch.tensor([[1, 2], [0, 0]])
    opened = live(EinsumSteps([("td,sd->ts", x + 1, x), ("td,sd->ts", x, x + 1)]))
    cell(opened, "result", 2).click()
    choose(opened, 1)
    assert "t=0" in opened.text(LINE) and "grows" in opened.text(".mha-lead")


def test_a_key_or_a_slider_leads_to_the_first_step_of_a_cell(live):
    opened = live(EinsumSteps([random("td,sd->ts")]))
    opened.press("next")
    opened.root_element.get_by_role("application").press("ArrowRight")
    assert "s=1], step 1 of 5" in opened.text(LINE)
    opened.press("next")
    opened.fill("t", "1")
    assert "t=1, s=1], step 1 of 5" in opened.text(LINE)


def test_letters_outside_their_range_are_held_to_it(live):
    widget = EinsumSteps(["td,sd->ts"])
    widget.at = {"t": 99, "s": -1, "d": "x", "other": None}
    assert "result[t=2, s=0], step 1 of 3" in live(widget).text(LINE)


def test_nothing_for_axe_to_find(live):
    opened = live(EinsumSteps())
    opened.table(ALL)
    opened.table(SUM)
    opened.press("next")
    assert opened.faults() == []
    for summary in opened.root_element.locator("summary").all()[::-1]:
        summary.click()
    choose(opened, 3)
    opened.press("next")
    assert opened.faults() == []
    write(opened, "td->x")
    assert opened.faults() == []


def test_fits_a_small_phone(live):
    shape = (4, 4, 4, 4)
    equations = [*EinsumSteps().equations, ("tbhd,sbhd->bhts", *torch.randn(2, *shape))]
    sizes = SIZES | {"h": 3}
    opened = live(
        EinsumSteps(equations, sizes=sizes), viewport={"width": 320, "height": 640}
    )
    for n in range(len(equations)):
        choose(opened, n)
        assert opened.width() == 320


# --- Python ------------------------------------------------------------------------


def test_takes_what_einsum_takes():
    q, k = torch.randn(3, 5).bfloat16(), torch.randn(4, 5, requires_grad=True)
    widget = EinsumSteps({"scores": ("td, sd -> ts", {"q": q, "k": k})})
    assert widget.names == ["scores"] and widget.equations == ["td,sd->ts"]
    assert widget.operand_names == [["q", "k"]]
    assert torch.allclose(torch.tensor(widget.operands[0][0]), q.float())
    assert repr(widget) == "EinsumSteps(1 equation, td,sd->ts)"


def test_numbers_made_from_sizes():
    widget = EinsumSteps(["xy,yz->xz", "x->x"], sizes={"x": 2, "y": 7, "z": 3})
    assert np.shape(widget.operands[0][0]) == (2, 7)
    assert np.shape(widget.operands[0][1]) == (7, 3)
    assert (
        widget.operands
        == EinsumSteps(["xy,yz->xz", "x->x"], sizes={"x": 2, "y": 7, "z": 3}).operands
    )


def test_choice_of_an_example_brings_its_equation():
    widget = EinsumSteps(["td,sd->ts", "tb->bt"])
    widget.equation = "td,sd->st"
    widget.example = 1
    assert widget.equation == "tb->bt"


def test_too_large_is_reduced_and_says_so(live):
    q, k = torch.randn(9, 20), torch.randn(3, 20)
    opened = live(EinsumSteps([("td,sd->ts", q, k)]))
    assert "first 8 values of each letter are kept (t had 9, d had 20)" in (
        opened.text(".mha-warning")
    )
    expected = (q[:8, :8] @ k[:, :8].T).flatten()
    torch.testing.assert_close(result(opened), expected, atol=6e-4, rtol=0)
    widget = EinsumSteps([("tbhd,sbhd->bhts", *torch.randn(2, 5, 5, 5, 5))])
    assert np.shape(widget.operands[0][0]) == (4, 4, 4, 4)
    widget = EinsumSteps([("td,td->t", torch.ones(1, 2), torch.ones(9, 2))])
    assert np.shape(widget.operands[0][1]) == (8, 2) and "t had 9" in widget.notes[0]


@pytest.mark.parametrize("equation", ["d,d->", SCORES, "tbe->ebt", "ttb->b", ",t->t"])
def test_still_shows_what_makes_the_first_cell(equation):
    import matplotlib.pyplot as plt

    _, *operands = random(equation)
    figure = EinsumSteps([(equation, *operands)]).still()
    expected = torch.einsum(equation, *operands)
    texts = [text.get_text() for text in figure.axes[-1].texts]
    assert texts[0] == f"{expected.flatten()[0]:.3g}" and len(texts) == expected.numel()
    assert len(figure.axes) == len(operands) + 1
    inputs, output = equation.split("->")
    for ax, letters in zip(figure.axes, inputs.split(",")):
        framed = sum(not patch.get_fill() for patch in ax.patches)
        summed = [SIZES[x] for x in set(letters) - set(output)]
        assert framed == prod(SIZES[x] for x in letters if x not in output)
        assert framed >= prod(summed)
    plt.close(figure)


def test_still_shows_the_cell_that_was_chosen():
    import matplotlib.pyplot as plt

    widget = EinsumSteps([("td,sd->ts", torch.ones(3, 2), torch.ones(4, 2))])
    widget.at = {"t": 2, "s": 9, "d": 1}  # s beyond its end: the last
    framed = [
        {(patch.get_y(), patch.get_x()) for patch in ax.patches if not patch.get_fill()}
        for ax in widget.still().axes
    ]
    assert framed == [{(2, 0), (2, 1)}, {(3, 0), (3, 1)}, {(2, 3)}]
    plt.close()


@pytest.mark.parametrize(
    ("equations", "options", "message"),
    [
        ([], {}, "at least one"),
        (["td,sd"], {}, "such as td,sd->ts; got 'td,sd'"),
        (["...d->d"], {}, "letters of one or two operands"),
        (["a,b,c->abc"], {}, "letters of one or two operands"),
        (["td,sd->x"], {}, "an operand must have the letter 'x'"),
        (["td->tt"], {}, "'t' must stand once"),
        (["abcde->a"], {}, "at most 4 axes"),
        (["tx->x"], {}, "sizes must have every letter; 'x' is missing"),
        ([("td,sd->ts", torch.ones(2, 3))], {}, r"2 operand\(s\); got 1"),
        ([("td->t", torch.ones(2, 3), torch.ones(2, 3))], {}, r"1 operand\(s\); got 2"),
        ([("td->t", torch.ones(2))], {}, r"first must be \(t, d\)"),
        ([("td->t", {"q": torch.ones(2, 0)})], {}, "q must be .* none of them 0"),
        ([("t->t", torch.tensor([torch.nan]))], {}, "finite"),
        (
            [("td,sd->ts", torch.ones(2, 3), torch.ones(4, 5))],
            {},
            "'d' must have one size in td,sd->ts; got 3 and, in second, 5",
        ),
    ],
)
def test_wrong_arguments_name_the_requirement(equations, options, message):
    with pytest.raises(ValueError, match=message):
        EinsumSteps(equations, **options)


@pytest.mark.parametrize(
    ("equations", "message"),
    [
        ("td,sd->ts", "a dict or a list"),
        (7, "a dict or a list"),
        ([(7, torch.ones(2))], "must be a text"),
        ([("t->t", "abc")], "first must be numbers"),
    ],
)
def test_wrong_types_name_the_requirement(equations, message):
    with pytest.raises(TypeError, match=message):
        EinsumSteps(equations)


def test_a_turned_result_is_seen_to_be_turned(live):
    """A symmetric table would show nothing: the next example is turned instead."""
    x = torch.tensor([[3, 0], [0, 1], [0, 3]])
    equation, a, b = random("ts,se->te")
    b[:, 0] = 0  # where the letter e, which ran before, now stands
    opened = live(
        EinsumSteps({"alike": ("te,se->ts", x, x), "mixed": (equation, a, b)})
    )
    before = result(opened)
    opened.press("transpose: te → et")
    assert opened.control("equation").input_value() == "ts,se->et"
    note = "Now “mixed”. Each sum is that of ts,se->te,"
    assert opened.text(".mha-note").startswith(note)
    framed = opened.root_element.locator("[data-state=result]")
    sums = {framed.inner_text()}  # of a cell whose sum is seen to grow
    for _ in range(3):
        opened.press("next")
        sums.add(framed.inner_text())
        hint = opened.text(".mha-lead")
    assert len(sums) == 4
    assert hint == "This sum is whole: press another cell of the result."
    assert not torch.equal(result(opened), before)


def test_chapter_begins_with_a_sum_that_grows_with_each_step_to_come(live):
    """Of its table this is the one cell whose sum does: 0, 1, 5."""
    cells_ = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(x["source"]) for x in cells_ if x["cell_type"] == "code"]
    names = {"torch": torch, "EinsumSteps": EinsumSteps}
    (given,) = [x for x in sources if "\nx = torch.tensor(" in x]
    exec(given.split("for ")[0], names)  # our own text
    (made,) = [x for x in sources if "EinsumSteps({" in x]
    exec(made, names)
    opened = live(names["steps_of_a_sum"])
    framed = opened.root_element.locator("[data-state=result]")
    seen = [framed.inner_text()]
    while opened.button("next").get_attribute("aria-disabled") == "false":
        opened.press("next")
        seen.append(framed.inner_text())
    assert seen == ["0", "1", "5"]


def test_on_paper_every_product_is_seen(live):
    opened = live(EinsumSteps(), viewport=PHONE)
    opened.press("sum one more")
    inside = """x => [...x.children].every(y =>
        y.getBoundingClientRect().right <= x.getBoundingClientRect().right)"""
    terms = opened.root_element.locator(".mha-es-terms")
    assert not terms.evaluate(inside)
    opened.page.emulate_media(media="print")
    seen = terms.evaluate(inside)
    opened.page.emulate_media(media="screen")
    assert seen


def test_an_equation_is_answered_before_its_tensors_are_drawn(live):
    """In each frame: what is said, the result's axes, and the loops."""
    opened = live(EinsumSteps([random("td,sd->ts")]))
    seen = opened.root_element.evaluate(
        """async root => {
        const text = selector => root.querySelector(selector).textContent;
        const found = [];
        [...root.querySelectorAll("button")]
            .find(x => x.textContent === "sum one more").click();
        do {
            await new Promise(requestAnimationFrame);
            found.push([text(".mha-es-words").includes("for every d and s"),
                text(".mha-es-operand:last-child").startsWith("result (t) ="),
                text(".mha-es-code").includes("result[t] = total")]);
        } while (root.ariaBusy === "true");
        return found;
    }"""
    )
    assert seen == [[True, False, False], [True, True, False], [True, True, True]]
