"""The painter's masks, weights and code are those of torch, Keras, Flax and others."""

import os

os.environ["KERAS_BACKEND"] = "torch"  # read once, when Keras is imported
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may be downloaded

import contextlib
from functools import cache, partial

import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from traitlets import TraitError

from mha_lib import (
    BatchedMHA,
    EinsumMHA,
    attention,
    causal_mask,
    convert,
    masked_softmax,
    padding_mask,
)
from mha_lib.widgets import MaskPainter
from tests.widgets.conftest import DESK, MOST, PHONE, number

T, S, E = 4, 6, 10
CELL = 34  # pixels: none is wider
QUERIES = ["the", "cat", "sat", "down"]
KEYS = ["le", "chat", "s'est", "assis", "par", "terre"]
TABLE = "Mask and weights as a table"
CODE = "[aria-label=code]"
GIVEN = "[aria-label='what the framework is given']"
FORM = "the same mask for"


@pytest.fixture
def live(live):
    return partial(live, folded=False)


def scores(queries: int = T, keys: int = S) -> Tensor:
    return torch.randn(queries, keys, generator=torch.Generator().manual_seed(0))


def painter(**traits) -> MaskPainter:
    widget = MaskPainter(QUERIES, KEYS, scores=scores())
    for name, value in traits.items():
        setattr(widget, name, value)
    return widget


def shown(opened) -> tuple[Tensor, Tensor]:
    """The mask and the weights in the open table."""
    rows = [row[1:] for row in opened.table(TABLE)[1:]]
    mask = torch.tensor([[cell != "hidden" for cell in row] for row in rows])
    weights = [[0.0 if x == "hidden" else number(x) for x in row] for row in rows]
    return mask, torch.tensor(weights)


def check(opened, mask: Tensor) -> None:
    """The page shows this mask, and torch's weights under it."""
    seen, weights = shown(opened)
    assert torch.equal(seen, mask)
    expected = masked_softmax(scores(*mask.shape), mask)
    assert_close(weights, expected, atol=6e-4, rtol=0)


def cell(opened, t: int, s: int, at: int = 0) -> tuple[float, float]:
    """Where a cell of a map is; what lies around the cells is measured from the end."""
    box = opened.root_element.locator(".mha-map canvas").nth(at).bounding_box()
    return (
        box["x"] + box["width"] - 2 - (S - s - 0.5) * CELL,
        box["y"] + box["height"] - 2 - (T - t - 0.5) * CELL,
    )


# --- rules and paint ----------------------------------------------------------------


def test_each_rule_by_its_control(live):
    opened = live(painter())
    everything = torch.ones(T, S, dtype=torch.bool)
    check(opened, everything)
    picture = opened.pixels()

    opened.control("causal").check()
    assert opened.pixels() != picture
    check(opened, causal_mask(T, S))
    stands = opened.control("query 0 stands at")
    stands.select_option("key 2 (bottom-right)")
    causal = causal_mask(T, S, align="bottom-right")
    check(opened, causal)

    opened.fill("real keys", "4")
    right = padding_mask(torch.tensor([4]), S)[0]
    check(opened, causal & right)
    opened.select("padding on the", "left")
    check(opened, causal & right.flip(1))
    opened.control("real keys").press("End")  # the largest value: no padding
    check(opened, causal)

    opened.control("window").press("ArrowRight")
    opened.control("window").press("ArrowRight")
    check(opened, causal & ~causal.tril(S - T - 2))
    opened.control("window").press("Home")
    opened.control("causal").press("Space")
    check(opened, everything)
    opened.fill("block", "3")
    t, s = torch.arange(T)[:, None] + S - T, torch.arange(S)
    check(opened, t // 3 == s // 3)
    stands.select_option("key 0 (top-left)")
    check(opened, (t - S + T) // 3 == s // 3)


def test_a_window_without_causal_reaches_both_ways(live):
    t, s = torch.arange(T)[:, None], torch.arange(S)
    opened = live(painter())
    opened.fill("window", "2")
    check(opened, (t - s).abs() < 2)


def test_a_drag_paints_what_the_first_cell_became(live):
    opened = live(painter(causal=True))
    before = opened.pixels(at=1)
    opened.page.mouse.move(*cell(opened, 0, 2))
    opened.page.mouse.down()
    opened.page.mouse.move(*cell(opened, 0, 5))  # jumps over two cells
    opened.page.mouse.up()
    opened.page.mouse.move(*cell(opened, 2, 5))  # with no button
    mask = causal_mask(T, S)
    mask[0, 2:] = True
    check(opened, mask)
    assert opened.pixels(at=1) != before

    opened.page.mouse.click(*cell(opened, 3, 1))
    mask[3, 1] = False
    check(opened, mask)
    opened.page.mouse.click(*cell(opened, 3, 2), button="right")
    opened.page.mouse.click(*cell(opened, 3, 2, at=1))  # the weights are not painted
    check(opened, mask)


def test_a_finger_paints_only_when_told_to(live):
    opened = live(painter(), has_touch=True, viewport={"width": 1000, "height": 900})
    drawn = opened.root_element.locator(".mha-paint")
    scrolls = "map => getComputedStyle(map).touchAction"
    drawn.scroll_into_view_if_needed()
    opened.page.touchscreen.tap(*cell(opened, 1, 4))
    mask = torch.ones(T, S, dtype=torch.bool)
    check(opened, mask)
    assert f"“{QUERIES[1]}” → key “{KEYS[4]}”" in opened.text(".mha-painting ~ output")
    assert drawn.evaluate(scrolls) == "pan-y"
    opened.press("Paint with a finger")
    assert drawn.evaluate(scrolls) == "pinch-zoom"
    drawn.scroll_into_view_if_needed()
    opened.page.touchscreen.tap(*cell(opened, 1, 4))
    mask[1, 4] = False
    check(opened, mask)


def test_who_has_a_mouse_needs_no_leave_to_paint(live):
    assert live(painter()).button("Paint with a finger").count() == 0


def test_padding_is_tinted_and_who_sees_it_is_warned_of(live):
    opened = live(MaskPainter(7))
    opened.page.evaluate(FILLS)
    opened.press("add padding")
    fills = opened.page.evaluate("window.fills.slice(0, 49)")
    columns = [{fills[7 * t + s] for t in range(s)} for s in range(7)]  # above, hidden
    assert columns[1] == columns[2] != columns[3] == columns[6]
    assert all(len(found) == 1 for found in columns[1:])
    warnings = opened.root_element.locator(".mha-checks .mha-warning:visible")
    assert warnings.count() == 0
    opened.press("Swap True and False")
    assert "Every query sees padding." in warnings.all_inner_texts()
    opened.press("add padding")
    grid = opened.root_element.locator(".mha-paint")
    grid.press("PageDown")
    for key, said in [
        ("End", "Query “6” sees padding."),
        ("ArrowUp", "Queries “5”, “6” see padding."),
        ("ArrowUp", "Queries “4”, “5”, “6” see padding."),
        ("ArrowUp", "4 of 7 queries see padding."),
    ]:
        grid.press(key)
        grid.press("Space")
        assert said in warnings.all_inner_texts()
    opened.press("padding on the left")
    (empty,) = (x for x in warnings.all_inner_texts() if x.startswith("Empty row"))
    assert "torch's softmax gives NaN" in empty


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_tint_of_the_padding_has_a_word(live, viewport, scheme):
    opened = live(MaskPainter(7), viewport=viewport, color_scheme=scheme)
    opened.light(scheme)
    legend = opened.root_element.locator(".mha-turned > span").first
    assert legend.is_hidden()
    opened.page.evaluate(FILLS)
    opened.press("add padding")
    assert legend.inner_text().strip() == "padding"
    tint = opened.page.evaluate(
        "window.fills[6]"
    )  # above the diagonal, of the last key
    swatch = legend.locator("i").evaluate(
        """x => {
        const pen = document.createElement('canvas').getContext('2d');
        pen.fillStyle = getComputedStyle(x).backgroundColor;
        pen.fillRect(0, 0, 1, 1);
        return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    }"""
    )
    drawn = [int(tint[i : i + 2], 16) for i in (1, 3, 5)]
    assert swatch == pytest.approx(drawn, abs=2)
    place, map_ = (
        legend.bounding_box(),
        opened.box(".mha-paint canvas"),
    )
    assert 0 <= place["y"] - map_["y"] - map_["height"] < 12
    below = opened.box(".mha-checks")
    opened.press("Swap True and False")
    assert legend.is_hidden()  # the padding is seen now: no cell has its colour
    assert opened.box(".mha-checks") == below


def test_what_to_try_keeps_the_padding_of_the_lesson(live):
    lesson = MaskPainter(T, S)
    lesson.length = 2
    opened = live(lesson)
    opened.press("padding on the left")
    check(opened, causal_mask(T, S) & (torch.arange(S) >= S - 2))


def test_chapter_5_begins_with_one_rule_and_the_second_is_the_first_to_try(live):
    widget = MaskPainter(7)
    widget.causal = True
    opened = live(widget)
    assert "7 of 7" in opened.text(".mha-rules")
    opened.root_element.locator(".mha-tries button").first.click()
    seen = shown(opened)[0]
    assert torch.equal(seen, causal_mask(7) & padding_mask(torch.tensor([3]), 7)[0])
    assert "Every query still sees a key." in opened.text(".mha-note")
    assert opened.count(".mha-warning") == 0


def test_what_to_try(live):
    tried = {
        "add padding": causal_mask(T, S) & (torch.arange(S) < 3),
        "read the wrong way round": ~causal_mask(T, S),
        "with a cache": causal_mask(T, S, align="bottom-right"),
        "padding on the left": causal_mask(T, S) & (torch.arange(S) >= S - 3),
        "a window": causal_mask(T, S) & ~causal_mask(T, S).tril(-3),
    }
    opened = live(painter(block=2, query=1))
    before = shown(opened)[0]
    for title, mask in tried.items():
        opened.press(title)
        check(opened, mask)
        assert opened.text(".mha-note") and opened.pressed(title)
    for _ in tried:
        opened.press("Undo")
    check(opened, before)


def test_keys_paint(live):
    opened = live(painter())
    opened.table(TABLE)  # opening it takes the focus
    opened.root_element.locator(".mha-paint").focus()
    press = opened.page.keyboard.press
    mask = torch.ones(T, S, dtype=torch.bool)
    for key, place in [("ArrowDown", (1, 0)), ("End", (1, 5)), ("PageUp", (0, 5))]:
        press(key)
        press("Enter" if key == "End" else "Space")
        mask[place] = False
        said = f"“{QUERIES[place[0]]}” → key “{KEYS[place[1]]}”"
        assert said in opened.text(".mha-painting ~ output")
        assert "hidden, weight 0" in opened.text(".mha-painting ~ output")
        check(opened, mask)
    press("Shift+PageDown")  # paints on
    mask[:, 5] = False
    press("ArrowLeft")
    press("Space")
    press("Space")  # and back
    check(opened, mask)


@pytest.mark.parametrize("between", ["nothing", "Undo", "reset", "causal"])
def test_after_a_key_the_mouse_paints_only_where_it_presses(live, between):
    """Who had painted by Space painted on by moving the mouse."""
    opened = live(painter())
    opened.root_element.locator(".mha-paint").focus()
    for key in ("ArrowDown", "Space"):
        opened.page.keyboard.press(key)
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1, 0] = False
    if between != "nothing":
        opened.root_element.get_by_text(between, exact=True).click()
        mask = causal_mask(T, S) if between == "causal" else torch.ones_like(mask)
        mask[1, 0] = between != "causal"
    for t, s in ((0, 1), (2, 1), (3, 4)):
        opened.page.mouse.move(*cell(opened, t, s))
    check(opened, mask)
    opened.page.mouse.click(*cell(opened, 3, 4))
    mask[3, 4] ^= True
    check(opened, mask)


def test_painted_cells_stay_when_rules_change(live):
    opened = live(painter())
    remove = opened.button("Remove the paint")
    assert remove.is_disabled()
    opened.page.mouse.click(*cell(opened, 3, 0))
    opened.control("causal").check()
    mask = causal_mask(T, S)
    mask[3, 0] = False
    check(opened, mask)
    remove.click()
    check(opened, causal_mask(T, S))


def test_swapped_polarity_turns_rules_and_paint(live):
    opened = live(painter(causal=True))
    opened.page.mouse.click(*cell(opened, 0, 5))
    mask = causal_mask(T, S)
    mask[0, 5] = True
    swap = opened.button("Swap True and False")
    swap.click()
    check(opened, ~mask)
    assert swap.get_attribute("aria-pressed") == "true"
    assert "what rules allow is hidden" in opened.text()
    opened.press("Remove the paint")
    check(opened, ~causal_mask(T, S))
    swap.click()
    check(opened, causal_mask(T, S))
    assert "what rules allow is hidden" not in opened.text()


def test_rules_go_on_working_when_swapped(live):
    opened = live(painter())
    opened.press("Swap True and False")
    check(opened, torch.zeros(T, S, dtype=torch.bool))
    opened.control("causal").check()
    check(opened, ~causal_mask(T, S))
    opened.fill("real keys", "3")
    real = padding_mask(torch.tensor([3]), S)[0]
    check(opened, ~(causal_mask(T, S) & real))
    assert opened.button("Remove the paint").is_disabled()
    opened.control("causal").uncheck()
    check(opened, ~real.expand(T, S))


DRAGGED = """(slider, values) => {
    for (const x of values) {
        slider.value = x;
        slider.dispatchEvent(new Event("input", {bubbles: true}));
    }
    slider.dispatchEvent(new Event("change", {bubbles: true}));
}"""


def test_undo_takes_back_one_act_after_another(live):
    opened = live(painter(causal=True))
    undo = opened.button("Undo")
    assert undo.is_disabled()
    seen = [shown(opened)[0]]

    def drag(*values):
        opened.control("window").evaluate(DRAGGED, values)

    def stroke():  # over many cells
        opened.root_element.locator(".mha-paint").scroll_into_view_if_needed()
        opened.page.mouse.move(*cell(opened, 0, 2))
        opened.page.mouse.down()
        opened.page.mouse.move(*cell(opened, 0, 3))
        opened.page.mouse.move(*cell(opened, 0, 5))
        opened.page.mouse.up()

    def keys():
        opened.root_element.locator(".mha-paint").press("PageDown")
        for key in ("Home", "Space", "Shift+ArrowRight", "Shift+ArrowRight"):
            opened.page.keyboard.press(key)

    acts = [
        stroke,
        keys,
        lambda: drag(1, 2, 3),
        lambda: drag(2, 1),
        opened.button("Swap True and False").click,
        opened.button("Remove the paint").click,
        opened.button("reset").click,
    ]
    for act in acts:
        act()
        seen.append(shown(opened)[0])
        assert not torch.equal(seen[-1], seen[-2])
    for mask in reversed(seen[:-1]):
        undo.click()
        check(opened, mask)
    assert undo.is_disabled()
    assert opened.control("window").input_value() == "0"


def test_reset_returns_to_how_it_came_and_can_be_undone(live):
    opened = live(painter(causal=True, length=4))
    came = causal_mask(T, S) & padding_mask(torch.tensor([4]), S)[0]
    opened.page.mouse.click(*cell(opened, 0, 3))
    opened.fill("block", "2")
    opened.press("Swap True and False")
    changed = shown(opened)[0]
    assert not torch.equal(changed, came)
    opened.press("reset")
    check(opened, came)
    assert opened.control("block").input_value() == "0"
    opened.press("Undo")
    check(opened, changed)


def test_with_a_cache_later_is_counted_from_the_last_key(live):
    opened = live(painter(causal=True, align="bottom-right"))
    assert "No query sees a later key." in opened.text(".mha-checks")
    assert opened.count(".mha-warning") == 0


def test_warnings(live):
    opened = live(painter())
    assert opened.count(".mha-warning") == 0
    assert "Every query sees at least one key." in opened.text(".mha-checks")
    assert "(14 such pairs). Right in an encoder" in opened.text(".mha-checks")
    opened.control("causal").check()
    assert "No query sees a later key." in opened.text(".mha-checks")

    opened.page.mouse.click(*cell(opened, 1, 4))
    leak = "Future leak: “cat” sees “par”, a later key (1 such pair)."
    assert leak in opened.text(".mha-warning")
    opened.press("Remove the paint")
    opened.select("padding on the", "left")
    opened.fill("real keys", "4")
    opened.select(FORM, "nn.MultiheadAttention, attn_mask")
    empty = "Empty row: “the”, “cat” see no key. The weights are 0 here"
    assert empty in opened.text(".mha-warning")
    assert "nn.MultiheadAttention, attn_mask they are NaN" in opened.text(
        ".mha-warning"
    )


# --- the same mask elsewhere --------------------------------------------------------

SCENES = {  # queries, keys, traits, painted cells
    "everything": (6, 6, {}, []),
    "causal": (6, 6, {"causal": True}, []),
    "padding": (6, 6, {"length": 4}, []),
    "causal, padding on the left": (
        6,
        6,
        {"causal": True, "length": 4, "side": "left"},
        [],
    ),
    "a square, painted": (6, 6, {"causal": True, "length": 5}, [(0, 0), (1, 4)]),
    "all rules": (
        4,
        7,
        {"causal": True, "align": "bottom-right", "length": 5, "window": 3, "block": 2},
        [],
    ),
    "fewer keys": (6, 4, {"causal": True, "align": "bottom-right"}, []),
    "swapped": (6, 6, {"causal": True, "length": 4, "swapped": True}, []),
    "swapped, no rule": (4, 6, {"swapped": True}, []),
    "a column painted": (4, 6, {}, [(t, 2) for t in range(4)]),
}


converted = cache(convert)  # to make a layer takes longer than to call it


@cache
class Layers:
    """One layer with one head in every framework, and the widget of its scores."""

    def __init__(self, T: int, S: int) -> None:
        torch.manual_seed(0)
        self.mha = BatchedMHA(E, 1).eval()
        self.query, self.key, self.value = (torch.randn(1, n, E) for n in (T, S, S))
        self.q, self.k, self.v = (
            getattr(self.mha, f"{name}_proj")(getattr(self, full))[:, None].detach()
            for name, full in (("q", "query"), ("k", "key"), ("v", "value"))
        )
        self.scores = (self.q @ self.k.mT / E**0.5)[0, 0]

    def inputs(self, form: str) -> dict:
        """What the code of a form finds, under the names that it uses."""
        inputs = {"query": self.query, "key": self.key, "value": self.value}
        if form in ("mha_lib", "sdpa"):
            return {"q": self.q, "k": self.k, "v": self.v}
        if form == "added":
            return {"scores": self.scores}
        if form == "einsum":
            inputs = {name: x.transpose(0, 1) for name, x in inputs.items()}
            return inputs | {"layer": converted(self.mha, EinsumMHA)}
        if form == "flax":
            from flax import nnx

            inputs = {name: jax.numpy.asarray(x.numpy()) for name, x in inputs.items()}
            return inputs | {"layer": converted(self.mha, nnx.MultiHeadAttention)}
        if form == "keras":
            import keras

            return inputs | {
                "layer": converted(self.mha, keras.layers.MultiHeadAttention)
            }
        return inputs | {"layer": converted(self.mha, nn.MultiheadAttention)}

    def compare(self, form: str, found: dict, weights: Tensor) -> None:
        """What the code made against what these weights make."""
        context = weights @ self.v[0, 0]
        if "weights" in found:
            theirs = found["weights"].detach().reshape(weights.shape)
            assert_close(theirs, weights, equal_nan=True)
        if "context" in found:
            assert_close(found["context"][0, 0], context, equal_nan=True)
        if "output" in found:
            output = found["output"]
            output = torch.from_numpy(np.array(output)) if form == "flax" else output
            expected = self.mha.out_proj(context)
            assert_close(output.reshape(expected.shape), expected, equal_nan=True)


@cache
def hugging_face(length: int, decoder: bool) -> tuple[nn.Module, Tensor, Tensor]:
    """A tiny model, its input, and its scores: up to a constant, log of the weights."""
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    torch.manual_seed(0)
    if decoder:
        model = GPT2Model(GPT2Config(n_embd=E, n_head=1, n_layer=1, vocab_size=3))
    else:
        config = {"num_attention_heads": 1, "num_hidden_layers": 1, "vocab_size": 3}
        model = BertModel(BertConfig(hidden_size=E, intermediate_size=7, **config))
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    for parameter in model.parameters():  # as initialised, attention is nearly even
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(1, length, E)
    free = torch.zeros(1, 1, length, length)
    with torch.no_grad():
        weights = model.eval()(inputs_embeds=x, attention_mask=free).attentions[0]
    return model, x, weights[0, 0].log()


def stated(weights: Tensor, mask: Tensor, text: str) -> Tensor:
    """The weights with empty rows as the page says they are."""
    row = {
        "the weights 0.": 0.0,
        "the weights NaN.": torch.nan,
        "the weights 1/S for each key.": 1 / mask.shape[1],
    }
    (value,) = (value for words, value in row.items() if words in text)
    return weights.masked_fill(~mask.any(-1, keepdim=True), value)


@pytest.mark.parametrize("scene", SCENES)
def test_the_code_shown_gives_the_weights_shown(live, scene):
    import keras

    queries, keys, traits, painted = SCENES[scene]
    layers = Layers(queries, keys)
    widget = MaskPainter(queries, keys, scores=layers.scores)
    for name, value in traits.items():
        setattr(widget, name, value)
    mask = widget.tensor
    for place in painted:
        mask[place] = ~mask[place]
    widget.tensor = mask
    opened = live(widget)
    assert opened.button("Remove the paint").is_disabled() is not bool(painted)
    weights = masked_softmax(layers.scores, mask)
    seen, page = shown(opened)
    assert torch.equal(seen, mask)
    assert_close(page, weights, atol=6e-4, rtol=0)

    select, compared = opened.control(FORM), []
    for form in MaskPainter.framework.values:
        select.select_option(index=MaskPainter.framework.values.index(form))
        text = opened.text(".mha-form")
        code = opened.root_element.locator(CODE).text_content()
        if not code:
            assert form.startswith("hugging_face"), form
            assert "needs T = S" in text or "(B, H, T, S)" in text
            continue
        compared.append(form)
        if form.startswith("hugging_face"):
            decoder = "such as GPT-2" in code
            model, x, scores = hugging_face(queries, decoder)
            found = {"model": model, "x": x}
            exec(code, found)
            theirs = found["output"].attentions[0][0, 0].detach()
            expected = stated(masked_softmax(scores, mask), mask, text)
            assert_close(theirs, expected, rtol=1e-4, atol=1e-5)
            continue
        found = layers.inputs(form)
        with keras.device("cpu") if form == "keras" else contextlib.nullcontext():
            exec(code, found)  # the code of the page
        layers.compare(form, found, stated(weights, mask, text))
    fits = {"hugging_face", "hugging_face_4d"} if queries == keys else set()
    if scene in ("a square, painted", "swapped"):
        fits.remove("hugging_face")
    assert set(MaskPainter.framework.values) - set(compared) == (
        {"hugging_face", "hugging_face_4d"} - fits
    )


def test_what_each_framework_is_given(live):
    opened = live(painter(causal=True, length=3))
    rows = {
        "sdpa": "1 0 0 0 0 0",
        "torch": "0 1 1 1 1 1",
        "torch_padding": "0 0 0 1 1 1",
        "added": " 0 −∞ −∞ −∞ −∞ −∞",
    }
    for form, row in rows.items():
        index = MaskPainter.framework.values.index(form)
        opened.control(FORM).select_option(index=index)
        given = opened.root_element.locator(GIVEN).text_content().split("\n")
        assert given[0] == row
        assert len(given) == (1 if form == "torch_padding" else T)
        turned = "the other way round" in opened.text(".mha-form")
        assert turned is form.startswith("torch")


def test_flags_that_make_the_same_mask(live):
    q = torch.eye(T)[None, None]
    k = torch.randn(1, 1, S, T)
    v = torch.randn(1, 1, S, 3)
    flag = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(flag, attention(q, k, v, mask=causal_mask(T, S))[0])
    opened = live(painter(causal=True))
    assert "is_causal=True makes this same mask" in opened.text(".mha-form")
    stands = opened.control("query 0 stands at")
    stands.select_option("key 2 (bottom-right)")
    assert "is_causal=True would make another mask" in opened.text(".mha-form")
    opened.page.mouse.click(*cell(opened, 0, 0))
    assert "is_causal" not in opened.text(".mha-form")

    layer, x = nn.MultiheadAttention(E, 1, batch_first=True), torch.randn(1, T, E)
    with pytest.raises(RuntimeError, match="attn_mask"):
        layer(x, x, x, is_causal=True)
    opened.select(FORM, "nn.MultiheadAttention, attn_mask")
    assert "is_causal=True alone is an error" in opened.text(".mha-form")


def test_flag_of_keras():
    import keras

    with keras.device("cpu"):
        layer = keras.layers.MultiHeadAttention(1, E)
        query, key = torch.randn(1, T, E), torch.randn(1, S, E)
        options = {"return_attention_scores": True}
        flag = layer(query, key, use_causal_mask=True, **options)[1]
        mask = causal_mask(T, S)[None]
        ours = layer(query, key, attention_mask=mask, **options)[1]
    assert_close(flag, ours)


def test_all_forms_side_by_side(live):
    opened = live(painter(causal=True, length=3))
    table = opened.table("All forms side by side")
    assert len(table) == 1 + len(MaskPainter.framework.values)
    assert table[3] == [
        "nn.MultiheadAttention, attn_mask",
        "attn_mask",
        "True",
        f"(T, S) = ({T}, {S})",
        "bool",
        "NaN",
    ]
    shapes = {row[3] for row in table[1:]}
    assert {"not this mask", f"(T, S, B) = ({T}, {S}, 1)"} <= shapes


@pytest.mark.parametrize(
    ("clipboard", "said"),
    [
        ("{writeText: async (text) => { window.taken = text; }}", "Copied."),
        ("{writeText: () => Promise.reject()}", "is selected"),  # it is not allowed
        ("undefined", "is selected"),  # an old browser, or a page without https
    ],
)
def test_the_code_is_copied_or_selected(live, clipboard, said):
    opened = live(painter())
    page = opened.page
    page.evaluate(
        f'Object.defineProperty(navigator, "clipboard", {{value: {clipboard}}})'
    )
    opened.press("Copy the code")
    assert said in opened.text(".mha-forms output")
    taken = page.evaluate("window.taken ?? getSelection().toString()")
    code = opened.root_element.locator(CODE).text_content()
    assert taken.strip() == code.strip()


# --- everyone -----------------------------------------------------------------------


def test_on_a_phone_both_maps_have_the_same_rows(live):
    """The weights stand beside the mask, in cells as large as the mask's."""
    for tokens in ("the cat chased the dog then slept".split(), 7):  # noqa: SIM905
        opened = live(MaskPainter(tokens), viewport={"width": 374, "height": 844})
        opened.control("causal").check()
        maps = opened.root_element.locator(".mha-map canvas")
        boxes = [canvas.bounding_box() for canvas in maps.all()]
        for side in ("y", "height"):
            assert boxes[0][side] == boxes[1][side]
        assert boxes[1]["width"] > 7 * 16
    before = opened.pixels(at=1)
    opened.root_element.locator(".mha-map").nth(1).focus()
    for key in ("PageDown", "End"):
        opened.page.keyboard.press(key)
    assert "Query “6” → key “6”" in opened.text()
    assert opened.pixels(at=1) != before


def test_equal_scores_are_said_and_painting_goes_on_until_a_reset(live):
    opened = live(MaskPainter(7), has_touch=True, viewport=PHONE)
    assert opened.text(".mha-weights p") == "weights (all scores equal)"
    opened.button("Paint with a finger").tap()
    paint = opened.button("Painting is on: press to stop")
    opened.button("add padding").tap()
    assert paint.get_attribute("aria-pressed") == "true"
    opened.button("reset").tap()
    paint = opened.button("Paint with a finger")
    assert paint.get_attribute("aria-pressed") == "false"
    scores = torch.randn(7, 7, generator=torch.Generator().manual_seed(0))
    other = live(MaskPainter(7, scores=scores))
    assert other.text(".mha-weights p") == "weights of each row"
    assert "left grid" in other.text(".mha-lead")


@pytest.mark.sweep(2)  # each looks at the contrast in the other colours, too
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_nothing_for_axe_to_find(live, colours):
    widget = painter(causal=True, length=4, side="left", framework="torch")
    opened = live(widget, color_scheme=colours)
    opened.table(TABLE)
    opened.table("All forms side by side")
    assert opened.count(".mha-warning") == 1
    assert opened.faults() == []


def test_the_last_query_is_outlined_where_it_is_asked_about(live):
    opened = live(painter())
    opened.press("read the wrong way round")
    assert opened.text(".mha-note").endswith("what does the last query see?")
    said = opened.root_element.get_by_text(f"Query “{QUERIES[-1]}” → key")
    assert said.count() == 1
    opened.root_element.locator(".mha-map").first.focus()
    opened.page.keyboard.press("ArrowUp")  # to look elsewhere is no other example
    assert said.count() == 0
    pressed = opened.button("read the wrong way round").get_attribute("aria-pressed")
    assert pressed == "true"


def test_two_on_one_page_are_told_apart(live):
    opened = live(painter(), painter())
    for summary in opened.page.locator(".mha-numbers summary").all():
        summary.click()
    assert opened.count("details[open]") == 2 + 4  # More, and its tables
    assert opened.faults() == []


def test_fits_a_small_phone(live):
    widget = MaskPainter(16)
    widget.framework = "hugging_face_4d"
    opened = live(widget, viewport={"width": 320, "height": 640})
    opened.table("All forms side by side")
    assert opened.width() == 320


class Broken(MaskPainter):
    """A widget whose state was damaged on the way to the page."""

    damage: dict = {}

    def get_state(self, *arguments, **options):
        return super().get_state(*arguments, **options) | self.damage


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"query_tokens": []}, "no tokens"),
        ({"scores": []}, "2 axes of even length"),
        ({"scores": [[0.0, None]]}, "not a finite number"),
        ({"scores": [[0.0, 1.0]]}, "for each query"),
        ({"mask": []}, "for each query"),
        ({"mask": [[True, True], [True]]}, "for each key"),
        ({"mask": [[True, True], [True, None]]}, "true and false alone"),
        ({"window": -1}, "window must be a whole number"),
        ({"framework": "theano"}, "no framework “theano”"),
    ],
)
def test_bad_state_is_a_sentence(live, damage, sentence):
    widget = Broken(2)
    widget.damage = damage
    assert sentence in live(widget).text(".mha-problem")


# --- Python -------------------------------------------------------------------------


def test_rules_and_mask_are_traits():
    widget, seen = painter(), []
    widget.observe(lambda change: seen.append(change.new), "mask")
    widget.causal = True
    assert torch.equal(widget.tensor, causal_mask(T, S))
    assert widget.mask == seen[-1] == causal_mask(T, S).tolist()
    assert repr(widget) == "MaskPainter(4 queries, 6 keys, 10 of 24 pairs may attend)"


def test_paint_from_python_stays_when_rules_change():
    widget = painter()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[3, 0] = False
    widget.tensor = mask
    widget.causal = True
    assert torch.equal(widget.tensor, mask & causal_mask(T, S))
    widget.causal = False
    assert torch.equal(widget.tensor, mask)


def test_a_swap_from_python_is_of_all_cells():
    widget = painter(causal=True)
    mask = causal_mask(T, S)
    mask[0, 5] = True
    widget.tensor = mask
    widget.swapped = True
    assert torch.equal(widget.tensor, ~mask)
    widget.causal = False
    mask[1:], mask[0, :5] = True, True
    assert torch.equal(widget.tensor, ~mask)
    widget.set_state({"swapped": False, "mask": mask.tolist()})  # as the page sends it
    assert torch.equal(widget.tensor, mask)


def test_a_rule_and_a_mask_in_one_message_are_taken_as_they_come():
    widget = painter(causal=True)
    sent = causal_mask(T, S)
    sent[0, 5] = True  # painted in the page, beside the new rule
    sent[:, 4:] &= torch.eye(T, 2, dtype=torch.bool).flip(1)
    widget.set_state({"length": 4, "mask": sent.tolist()})
    assert torch.equal(widget.tensor, sent)
    widget.length = 6
    assert widget.tensor[0, 5]


def test_starts_from_a_mask():
    mask = causal_mask(T, S, align="bottom-right")
    widget = MaskPainter(QUERIES, KEYS, mask=mask)
    assert torch.equal(widget.tensor, mask)
    assert widget.scores == [[0.0] * S] * T
    assert MaskPainter(3, mask=np.eye(3, dtype=bool)).mask[1] == [False, True, False]


def test_too_large_is_reduced_and_says_so(live):
    widget = MaskPainter(20, 17, mask=causal_mask(20, 17))
    assert widget.tensor.shape == (16, 16)
    opened = live(widget)
    assert "first 16 tokens are shown of 20 queries and 17 keys" in opened.text(
        ".mha-warning >> nth=0"
    )


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([],), {}, "queries must be a list of at least one token"),
        (("abc",), {}, "queries must be a list"),
        ((2, 0), {}, "keys must be a list of at least one token"),
        ((2, 3), {"scores": torch.zeros(3, 2)}, r"scores must be \(T, S\) = \(2, 3\)"),
        ((2,), {"scores": torch.full((2, 2), torch.nan)}, "finite"),
        ((2, 3), {"mask": torch.ones(3, 2) > 0}, r"mask must be \(T, S\) = \(2, 3\)"),
    ],
)
def test_wrong_arguments_name_the_requirement(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        MaskPainter(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": torch.ones(2, 2)}, "mask must be boolean"),
        ({"scores": "abc"}, "must be numbers"),
    ],
)
def test_wrong_types_name_the_requirement(options, message):
    with pytest.raises(TypeError, match=message):
        MaskPainter(2, **options)


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("mask", [[True]], r"mask must be \(T, S\) = \(4, 6\)"),
        ("length", 7, "length must be in 0…6; got 7"),
        ("window", -1, "window"),
        ("align", "middle", "top-left"),
    ],
)
def test_wrong_traits_name_the_requirement(trait, value, message):
    with pytest.raises(TraitError, match=message):
        setattr(painter(), trait, value)


def test_still():
    import matplotlib.pyplot as plt

    figure = painter(causal=True).still()
    assert [axes.get_title() for axes in figure.axes] == ["mask", "weights"]
    assert sum(text.get_text() == "●" for text in figure.axes[0].texts) == 10
    plt.close(figure)


# Beside the signs in dark cells nothing on a light map is wholly white.
WHITE = """canvas => {
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
        if (data.slice(i, i + 4).every(x => x === 255)) count += 1;
    }
    return count;
}"""


def test_a_phone_shows_the_sign_that_the_legend_names(live):
    opened = live(MaskPainter(7), viewport=PHONE)
    assert "●" in opened.text(".mha-mask p")
    signs, numbers = (
        opened.root_element.locator(f"{x} canvas").evaluate(WHITE)
        for x in (".mha-mask", ".mha-weights")
    )
    may_attend = sum(map(sum, MaskPainter(7).mask))
    assert signs > 4 * may_attend > 0 == numbers


# The sizes of the letters in which a canvas writes numbers, while it is drawn anew.
FILLS = """() => {
    const { fillRect } = CanvasRenderingContext2D.prototype;
    window.fills = [];
    CanvasRenderingContext2D.prototype.fillRect = function (...all) {
        window.fills.push(this.fillStyle);
        return fillRect.apply(this, all);
    };
}"""
LETTERS = """() => {
    const pen = CanvasRenderingContext2D.prototype;
    const {fillText} = pen;
    window.letters = [];
    pen.fillText = function (text, ...at) {
        if (/^\\d\\.\\d\\d$/.test(text)) window.letters.push(parseFloat(this.font));
        return fillText.call(this, text, ...at);
    };
}"""


def test_the_numbers_in_its_cells_are_read_on_a_desk(live):
    opened = live(MaskPainter(7), viewport=DESK)
    opened.page.evaluate(LETTERS)
    opened.control("causal").check()
    assert min(opened.page.evaluate("window.letters")) >= 11
    assert len(opened.page.evaluate("window.letters")) == 28  # of the lower triangle


def test_who_has_a_finger_is_told_how_to_paint(live):
    opened = live(MaskPainter(5), has_touch=True, viewport=PHONE)
    assert "press “Paint with a finger”" in opened.text(".mha-lead")
    opened.button("Paint with a finger").tap()
    assert "over cells" in opened.text(".mha-lead")


def test_the_lead_says_what_to_do_next(live):
    opened = live(painter())
    lead = partial(opened.text, ".mha-lead")
    first = "Click a cell in the left grid: weights follow."
    assert lead() == first
    opened.page.mouse.click(*cell(opened, 2, 0))
    assert lead() == "Now hide a whole row."
    for s in range(1, S):
        opened.page.mouse.click(*cell(opened, 2, s))
    assert lead() == "An empty row: read the warning below."
    assert f"Empty row: “{QUERIES[2]}”" in opened.text(".mha-checks")
    opened.press("Remove the paint")
    assert lead() == first
    opened.press("read the wrong way round")
    assert lead() == "To mend it, press “Swap True and False”."
    opened.press("Swap True and False")
    assert lead() == first


def test_paint_that_shows_more_is_not_told_to_hide_a_row(live):
    opened = live(painter(causal=True))
    opened.page.mouse.click(*cell(opened, 0, 2))
    assert "see more than the rules" in opened.text(".mha-lead")
    opened.page.mouse.click(*cell(opened, 3, 1))
    assert opened.text(".mha-lead") == "Now hide a whole row."


def test_of_a_mask_of_the_readers_own_its_cells_and_rows_are_counted(live):
    """The finding's line was empty there, and its gap stayed."""
    opened = live(painter())
    said = partial(opened.text, ".mha-note")
    assert "query, the word that looks" in said() and "key, the word looked" in said()
    opened.page.mouse.click(*cell(opened, 2, 0))
    assert said() == "1 of 24 cells is hidden; no row is empty."
    for s in range(1, S):
        opened.page.mouse.click(*cell(opened, 2, s))
    assert said() == "6 of 24 cells are hidden; 1 row is empty."
    opened.fill("real keys", "0")
    assert said() == "24 of 24 cells are hidden; 4 rows are empty."


@pytest.mark.parametrize("screen", MOST)
def test_a_rule_that_is_read_the_wrong_way_round_shows_it(live, screen):
    """The box *causal* was ticked beside a picture that is the contrary."""
    opened = live(painter(causal=True), viewport=MOST[screen][0])
    look = """() => { const x = document.querySelector('.mha-toggle span');
        const after = getComputedStyle(x, '::after');
        return [after.content, getComputedStyle(x).textDecorationLine].join(); }"""
    assert opened.page.evaluate(look) == "none,none"
    rules = opened.box(".mha-rules")
    opened.press("Swap True and False")
    shown = {"desk": '", inverted",none', "phone": "none,line-through"}[screen]
    assert opened.page.evaluate(look) == shown
    assert opened.box(".mha-rules") == rules


@pytest.mark.parametrize("width", [304, 374, 1000])
def test_the_button_for_a_finger_stands_on_the_grid_and_moves_nothing(live, width):
    opened = live(
        MaskPainter(7), has_touch=True, viewport={"width": width, "height": 844}
    )
    grid = opened.root_element.locator(".mha-paint")
    before, button = grid.bounding_box(), opened.button("Paint with a finger")
    box = button.bounding_box()
    assert 0 <= before["y"] - box["y"] - box["height"] < 12
    assert box["x"] == pytest.approx(before["x"], abs=1)
    opened.button("Paint with a finger").tap()
    assert grid.bounding_box() == before
    weights = opened.box(".mha-weights .mha-map")
    assert weights["y"] == pytest.approx(before["y"], abs=1)


@pytest.mark.parametrize("screen", MOST)
def test_padding_and_swapped_are_two_words_in_one_line(live, screen):
    opened = live(MaskPainter(7), viewport=MOST[screen][0])
    opened.press("add padding")
    opened.press("Swap True and False")
    for key in ("End", "Space"):  # a padding key is hidden again
        opened.root_element.locator(".mha-paint").press(key)
    words = opened.root_element.locator(".mha-turned > span")
    left, right = (x.bounding_box() for x in words.all())
    assert right["x"] - left["x"] - left["width"] >= 8
    assert right["height"] < 25


@pytest.mark.parametrize(("viewport", "_"), MOST.values(), ids=MOST)
def test_what_is_said_now_and_then_has_its_place(live, viewport, _):
    """Notes, warnings, and that the mask is swapped: nothing makes room for them."""
    opened = live(MaskPainter(7), viewport=viewport)
    tops = """x => ['.mha-painting', '.mha-checks', '.mha-more'].map(part =>
        x.querySelector(part).getBoundingClientRect().top -
        x.getBoundingClientRect().top)"""
    places = [opened.measure(tops)]
    for at in range(opened.count(".mha-tries button")):
        opened.press_in(".mha-tries button", at=at)
        places.append(opened.measure(tops))
    opened.press("Swap True and False")
    places.append(opened.measure(tops))
    assert all(x == places[0] for x in places), places
