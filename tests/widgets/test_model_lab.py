"""ModelLab shows what torch computes, answers every hand, and asks no network."""

import json
import re

import pytest
import torch

from mha_lib.model import generate, next_token_probabilities
from mha_lib.model.heads import removed
from mha_lib.model.kept import load_kept
from mha_lib.model.quantised import FILE, unpack
from mha_lib.widgets import ModelLab, to_html
from mha_lib.widgets import page as page_module
from tests.widgets.conftest import MOST, PHONE, Live, assert_says

TEXT = "print(items[0"
MAP = "The map as a table"
NOTE = ".mha-room .mha-note"


@pytest.fixture(scope="module")
def model():
    return unpack()


@pytest.fixture(scope="module")
def tokenizer():
    return load_kept()[1]


def readable(token: str) -> str:
    return token.replace(" ", "·").replace("\n", "↵")


def percent(p: float) -> str:
    return "< 1 %" if 0 < p < 0.005 else f"{int(100 * p + 0.5)} %"


@torch.no_grad()
def expected(model, tokenizer, text, off=(), temperature=1.0) -> dict:
    """What the page shall say of a text, by torch with the same numbers."""
    tokens = torch.tensor([tokenizer.encode(text)[-128:]])
    found = {"chances": [], "loss": [], "goes": []}
    for heads in ((), off):
        with removed(model, heads):
            logits, maps = model.maps(tokens)
            room = min(10, 128 - tokens.shape[1])
            goes = generate(model, tokens, room, temperature=0)[0, tokens.shape[1] :]
        found["chances"].append(next_token_probabilities(logits[0, -1], temperature))
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:])
        found["loss"].append(f"{loss:.2f}")
        goes = readable(tokenizer.decode(goes.tolist()))
        found["goes"].append(goes or "No room: the context is full.")
    found["maps"] = maps[:, 0]
    return found


def next_tokens(opened) -> list[list[str]]:
    """[token, what is said of it] of each row."""
    return opened.measure_all(
        ".mha-next li",
        "all => all.map(x => [x.children[0].innerText, x.children[2].innerText])",
    )


def beside(opened) -> list[list[str]]:
    """The rows in sight of the table that holds both models, under the fold."""
    unfold(opened)
    return opened.measure_all(
        ".mha-beside tbody tr",
        "all => all.filter(x => !x.hidden)"
        ".map(x => [...x.cells].map(c => c.textContent))",
    )


def unfold(opened):
    opened.measure_all(".mha-more", "all => all.forEach(x => (x.open = true))")
    opened.settle()


def write(opened):
    """The button that lets the model write, whatever it says of heads."""
    unfold(opened)
    return opened.root_element.get_by_role("button", name=re.compile("^write on"))


def ready(opened):
    """Go on when the model has come and what was asked for is in sight."""
    opened.page.wait_for_function(
        "!document.querySelector('.mha-readout:not(:empty)')?.innerText"
        ".includes('Loading')"
        " && ![...document.querySelectorAll('button')]"
        ".some(x => x.textContent === 'stop')"
    )
    opened.settle()


def append(opened, token):
    """Press a bar, perhaps before the model has come."""
    before = opened.control("text").input_value()
    opened.press(f"append “{token}”")
    opened.page.wait_for_function(
        "before => document.querySelector('textarea').value !== before", arg=before
    )
    ready(opened)


def type_text(opened, text):
    opened.fill("text", text)
    ready(opened)


def said(opened) -> str:
    return opened.root_element.locator("output").last.inner_text()


def assert_shows(opened, model, tokenizer, text, off=(), temperature=1.0):
    wanted = expected(model, tokenizer, text, off, temperature)
    before, now = wanted["chances"]
    rows = next_tokens(opened)
    assert rows
    for token, shown in rows:
        i = next(i for i, x in enumerate(tokenizer.tokens) if readable(x) == token)
        parts = [percent(before[i]), percent(now[i])] if off else [percent(now[i])]
        assert shown == " → ".join(parts), token
    likeliest = int(torch.maximum(before, now).argmax())
    assert rows[0][0] == readable(tokenizer.tokens[likeliest])
    both = list(zip(wanted["loss"], wanted["goes"]))[: 2 if off else 1]
    assert [tuple(row[1:]) for row in beside(opened)] == both


# --- what it computes ---------------------------------------------------------------


@pytest.mark.parametrize("off", [[], [(0, 3)], [(0, 1), (1, 2), (2, 3)]], ids=str)
def test_the_first_view_and_the_page_agree_with_torch(live, model, tokenizer, off):
    """The first view is Python's; back from another text, it is the page's own."""
    opened = live(ModelLab(TEXT, off=off, temperature=0.7))
    assert_shows(opened, model, tokenizer, TEXT, off, 0.7)
    type_text(opened, TEXT + "]")
    assert_shows(opened, model, tokenizer, TEXT + "]", off, 0.7)


def test_what_the_page_computes_is_what_python_stored(live):
    widget = ModelLab(TEXT, off=[(1, 1)])
    found = live(widget).page.evaluate(
        """async packed => {
            const read = name => [...document.scripts].find(x => x.type.includes(name));
            const { state } = JSON.parse(read("widget-state").textContent);
            const own = Object.values(state).map(x => x.state).find(x => x._esm);
            const url = URL.createObjectURL(new Blob(
                [own._esm + "\\nexport { makeLab };"], { type: "text/javascript" }));
            const { makeLab } = await import(url);
            return makeLab(own.packed).view(own.first.asked);
        }""",
        None,
    )
    first = widget.first
    for name in ("words", "read", "of", "goes"):
        assert found[name] == first[name], name
    assert found["most"][0] == first["most"][0]
    assert found["most"][1:] == pytest.approx(first["most"][1:], abs=1e-4)
    assert [row[0] for row in found["next"]] == [row[0] for row in first["next"]]
    for ours, theirs in zip(found["next"], first["next"]):
        assert ours[1:] == pytest.approx(theirs[1:], abs=1e-4)
    assert found["losses"] == pytest.approx(first["losses"], abs=1e-4)
    for ours, theirs in zip(found["maps"], first["maps"], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, abs=2e-5)


@pytest.mark.parametrize("head", [(0, 0), (1, 2), (2, 3)])
def test_the_map_is_that_of_the_head(live, model, tokenizer, head):
    opened = live(ModelLab(TEXT))
    opened.press("L{0} H{1}: layer {0}, head {1}".format(*head))
    wanted = expected(model, tokenizer, TEXT, [(0, 3)])["maps"][head]
    for t, row in enumerate(opened.table(MAP)[1:]):
        cells = ["hidden" if s > t else f"{w:.3f}" for s, w in enumerate(wanted[t])]
        for cell, other in zip(row[1:], cells, strict=True):
            near = "hidden" in (cell, other) or abs(float(cell) - float(other)) < 2e-3
            assert near and ("hidden" in cell) == ("hidden" in other)


def test_heads_are_switched_off_and_on(live, model, tokenizer):
    opened = live(ModelLab(TEXT, off=[], head=(1, 1)))
    assert len(beside(opened)) == 1
    opened.press("turn L1 H1 off: layer 1, head 1")
    ready(opened)
    assert_shows(opened, model, tokenizer, TEXT, [(1, 1)])
    opened.press("L0 H3: layer 0, head 3")
    opened.press("turn L0 H3 off: layer 0, head 3")
    assert_shows(opened, model, tokenizer, TEXT, [(0, 3), (1, 1)])
    opened.press("L1 H1: layer 1, head 1, switched off")
    opened.press("turn L1 H1 on: layer 1, head 1")
    assert_shows(opened, model, tokenizer, TEXT, [(0, 3)])
    opened.press("all on")
    assert_shows(opened, model, tokenizer, TEXT)
    assert opened.button("all on").is_disabled()


BARS = """root => [...root.querySelectorAll('.mha-next li')].flatMap(row =>
    [...row.querySelectorAll('.mha-bars i')].map(bar =>
        [parseFloat(bar.style.width), getComputedStyle(bar).backgroundColor]))"""
LEGEND = """root => [...root.querySelectorAll('.mha-legend i')].map(x =>
    [getComputedStyle(x).backgroundColor, x.nextSibling.textContent])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_whole_model_has_one_colour_always(live, scheme):
    opened = live(ModelLab(), color_scheme=scheme)
    opened.light(scheme)
    root = opened.root_element
    (grey, whole), (blue, without) = root.evaluate(LEGEND)
    assert whole.startswith("whole model") and without == "without L0 H3"
    both = root.evaluate(BARS)
    assert grey != blue and [x for _, x in both] == [grey, blue] * 6
    opened.press("all on")
    ready(opened)
    assert root.evaluate(LEGEND) == [[grey, "whole model"]]
    alone = root.evaluate(BARS)
    assert {x for width, x in alone if width} == {grey}
    assert alone[0] == [pytest.approx(both[0][0], abs=0.15), grey]


def test_the_still_gives_the_whole_model_one_colour():
    def whole(lab):
        (bars,) = (
            x for x in lab.still().axes[1].containers if x.get_label() == "whole model"
        )
        return {bar.get_facecolor() for bar in bars}

    assert whole(ModelLab()) == whole(ModelLab(off=[])) != set()


def test_heads_that_come_back_leave_the_whole_models_list_and_a_sentence(
    live, model, tokenizer
):
    """What was listed only because a head was off goes; what it had changed is told."""
    opened = live(ModelLab())
    missing = sorted(next_tokens(opened))
    opened.press("turn L0 H3 on: layer 0, head 3")
    ready(opened)
    whole = expected(model, tokenizer, "foo[bar, baz")["chances"][0]
    wanted = [readable(tokenizer.tokens[i]) for i in whole.topk(6).indices]
    listed = next_tokens(opened)
    assert [token for token, _ in listed] == wanted and sorted(listed) != missing
    assert opened.text(NOTE) == "With every head on, “]” is back at 79 %."
    assert listed[0] == ["]", "79 %"]
    opened.follow_link()
    ready(opened)
    assert next_tokens(opened) == listed  # a link opens what was seen
    assert opened.text(NOTE).startswith("With every head on")
    type_text(opened, "foo[bar, baz ")  # nothing has come back of a new text
    assert opened.text(NOTE) == ""


def test_it_says_whose_map_is_seen_who_is_silent_and_who_writes(live):
    opened = live(ModelLab())
    whose, legend = ".mha-one > .mha-caption", ".mha-legend > div:first-child"
    assert opened.text(whose) == "map of L0 H3, off"
    opened.press("L1 H1: layer 1, head 1")
    assert opened.text(whose) == "map of L1 H1, on"
    assert opened.text(legend) == "What comes next; still silent: L0 H3"
    assert opened.text(".mha-lead") == "Now press “turn L1 H1 off”."
    assert write(opened).inner_text() == "write on without L0 H3"
    opened.press("turn L1 H1 off: layer 1, head 1")
    ready(opened)
    assert opened.text(whose) == "map of L1 H1, off"
    assert opened.text(legend) == "What comes next; silent: L0 H3, L1 H1"
    assert opened.text(".mha-lead") == "Now try another head."  # his own
    assert write(opened).inner_text() == "write on without 2 heads"
    opened.press("L0 H3: layer 0, head 3, switched off")
    assert opened.text(".mha-lead") == "Head L0 H3 is off: turn it on."
    opened.press("all on")
    assert write(opened).inner_text() == "write on, whole model"
    assert opened.text(legend) == "What comes next"


def test_a_first_look_is_spared_what_an_example_unfolds(live):
    opened = live(ModelLab())
    fold = opened.root_element.locator(".mha-more")
    inside = opened.root_element.locator(".mha-more > :not(summary)")
    assert inside.count() == 2 and not any(x.is_visible() for x in inside.all())
    fold.locator("summary").click()
    opened.press("only the likeliest")
    ready(opened)
    opened.follow_link()
    ready(opened)
    assert all(x.is_visible() for x in inside.all())
    assert "gets stuck" in fold.locator(".mha-note").inner_text()
    fold.locator("summary").click()  # who folds it is not overruled
    opened.press("one word")
    assert opened.control("temperature").is_hidden()


def test_a_quotation_mark_is_a_word_where_it_would_be_a_speck(live):
    opened = live(ModelLab('The "name', off=[], head=(1, 0)))
    assert 'looks at key ‘·" quote’ with weight' in said(opened)
    opened.page.evaluate(WRITTEN)
    opened.press("L0 H3: layer 0, head 3")
    assert '·" quote' in opened.page.evaluate("window.written")
    first = opened.root_element.locator(".mha-next button").first
    assert first.inner_text() == '"'
    assert first.get_attribute("aria-label") == 'append ‘" quote’'


def test_temperature_changes_the_chances_alone(live, model, tokenizer):
    opened = live(ModelLab(TEXT), folded=False)
    for step, temperature in ((0, 0), (5, 0.5), (20, 2)):
        opened.fill("temperature", str(step))
        ready(opened)
        assert_shows(opened, model, tokenizer, TEXT, [(0, 3)], temperature)


def test_a_bar_appends_its_token(live, model, tokenizer):
    opened = live(ModelLab("The list is", off=[]))
    token = next_tokens(opened)[1][0]
    append(opened, token)
    text = opened.control("text").input_value()
    assert text == "The list is" + token.replace("·", " ").replace("↵", "\n")
    assert_shows(opened, model, tokenizer, text)


def test_a_model_in_the_page_is_made_ready_once_the_pointer_comes(live):
    opened = live(ModelLab())
    opened.page.evaluate(
        "() => { window.waiting = []; requestIdleCallback = f => waiting.push(f); }"
    )
    assert opened.page.evaluate("waiting.length") == 0
    opened.root_element.hover()
    opened.page.evaluate(
        "async () => { while (waiting.length) {"
        " waiting.shift()(); await new Promise(done => setTimeout(done)); } }"
    )
    opened.press("append “]”")  # nothing more is done in idle time
    opened.settle()
    assert opened.control("text").input_value().endswith("]")


def test_it_says_what_was_added_and_what_is_likeliest_now(live, model, tokenizer):
    opened = live(ModelLab())
    append(opened, "]")
    text = opened.control("text").input_value()
    for off, who in (([(0, 3)], ", without L0 H3,"), ([], "")):
        wanted = expected(model, tokenizer, text, off)["chances"][1]
        top = readable(tokenizer.tokens[int(wanted.argmax())])
        said_ = f"Added “]”. Likeliest now{who} is “{top}”, {percent(wanted.max())}."
        assert opened.text(NOTE) == said_
        if off:
            opened.press("undo")
            opened.press("all on")
            opened.press("append “]”")
            ready(opened)
    opened.press("turn L0 H3 off: layer 0, head 3")
    ready(opened)
    assert opened.text(NOTE).startswith("With L0 H3 off, ")


def test_of_a_long_text_the_end_is_read(live, model, tokenizer):
    text = "The list is a sequence of items. " * 30
    opened = live(ModelLab("x"))
    type_text(opened, text)
    assert_shows(opened, model, tokenizer, text, [(0, 3)])
    count = len(tokenizer.encode(text))
    assert f"Only the last 128 of {count} tokens are read." in said(opened)
    assert len(opened.table(MAP)) == 1 + 32
    assert write(opened).is_disabled()


def test_of_more_tokens_than_a_map_holds_it_says_so(live, tokenizer):
    text = "The list is a sequence of items. " * 5
    opened = live(ModelLab("x"))
    assert "Room for" not in said(opened)
    type_text(opened, text)
    count = len(tokenizer.encode(text))
    assert 32 < count < 128
    assert f"Room for 8: tokens {count - 7}–{count} of {count}." in said(opened)


def test_an_empty_text_asks_for_one(live, model, tokenizer):
    opened = live(ModelLab(TEXT))
    pale = "x => getComputedStyle(x).opacity < 0.5 && x.inert"
    parts = opened.root_element.locator(".mha-panels, .mha-both")
    type_text(opened, "")
    assert said(opened) == "Type something: the model says what comes next."
    assert opened.text(".mha-lead") == "Type a text."
    assert not opened.count(".mha .mha-invite")
    assert [x.evaluate(pale) for x in parts.all()] == [True, True]  # of what is gone
    type_text(opened, "a")  # a single token: there is no loss yet
    assert beside(opened)[0][1] == "–"
    assert not any(x.evaluate(pale) for x in parts.all())
    assert opened.text(".mha-lead").endswith("turn it on.")


def test_characters_that_the_model_has_never_seen(live, model, tokenizer):
    text = "naïve 日本 👩‍👧"
    opened = live(ModelLab(TEXT))
    type_text(opened, text)
    assert_shows(opened, model, tokenizer, text, [(0, 3)])
    assert "‹?› is a sign that the model does not know." in said(opened)
    assert "\ufffd" not in opened.text()
    assert "‹?›" in [row[0] for row in opened.table(MAP)]
    type_text(opened, "x = 1")
    assert "‹?›" not in said(opened)


# --- the states that the buttons set --------------------------------------------------


def chance_of(model, tokenizer, text, token, off=()):
    """[whole, without] of one token."""
    i = tokenizer.tokens.index(token)
    return [float(p[i]) for p in expected(model, tokenizer, text, off)["chances"]]


def test_the_bracket(live, model, tokenizer):
    opened = live(ModelLab())
    assert opened.pressed("the bracket")
    first = next_tokens(opened)
    unfold(opened)
    opened.press("only the likeliest")
    ready(opened)
    opened.press("the bracket")
    assert next_tokens(opened) == first
    whole, without = chance_of(model, tokenizer, "foo[bar, baz", "]", [(0, 3)])
    assert whole > 0.7 and without < 0.2
    lost = expected(model, tokenizer, "foo[bar, baz", [(0, 3)])["chances"][1]
    assert tokenizer.tokens[int(lost.argmax())] == ")"
    assert "query “z” looks at key “[” with weight 0.49" in said(opened)
    assert "Layer 0, head 3 looks back at “[”" in opened.text(NOTE)


def test_a_head_is_named_by_layer_and_head(live):
    """“Head 0.3” was read as a number."""
    opened = live(ModelLab())
    root = opened.root_element
    assert said(opened).startswith("Layer 0, head 3: query “z” looks at")
    assert opened.text(NOTE).startswith("Layer 0, head 3 looks")
    for name in (
        "L0 H3: layer 0, head 3, switched off",
        "turn L0 H3 on: layer 0, head 3",
    ):
        assert opened.button(name).get_attribute("title") == "layer 0, head 3"
    names = root.evaluate(
        "x => [...x.querySelectorAll('[aria-label]')].map(y => y.ariaLabel).join()"
    )
    assert not re.search(r"head \d\.\d", root.inner_text() + names, re.IGNORECASE)


def test_the_screen_says_what_a_loss_is_and_both_ways_of_the_switch(live):
    opened = live(ModelLab())
    caption = opened.root_element.locator(".mha-beside caption")
    assert caption.text_content() == (
        "loss: average surprise, mean over the text so far; "
        "what comes next is in the bars"
    )
    assert opened.text(".mha-lead") == "Head L0 H3 is off: turn it on."
    opened.press("turn L0 H3 on: layer 0, head 3")
    ready(opened)
    assert opened.text(".mha-lead") == "Now press another head, and turn it off."


@pytest.mark.parametrize("screen", MOST)
def test_paper_speaks_of_nothing_to_press(live, screen):
    opened = live(ModelLab(), viewport=MOST[screen][0])
    parts = [
        opened.root_element.get_by_text("press a token to add it"),
        opened.button("one word"),
    ]
    assert all(x.is_visible() for x in parts)
    unfold(opened)
    opened.page.emulate_media(media="print")
    seen = [x.is_visible() for x in parts]
    map_ = opened.root_element.locator(".mha-one").is_visible()
    opened.page.emulate_media(media="screen")
    assert (seen, map_) == ([False, False], True)


def test_a_head_that_looks_in_vain(live, model, tokenizer):
    opened = live(ModelLab())
    opened.press("looks, no help")
    ready(opened)
    text = 'The "name'
    assert opened.control("text").input_value() == text
    assert_shows(opened, model, tokenizer, text, [(1, 0)])
    whole, without = chance_of(model, tokenizer, text, '"', [(1, 0)])
    assert whole > 0.8 and without > whole + 0.05
    note = opened.text(NOTE)
    assert "more likely than before" in note and "just as" not in note
    change = next_tokens(opened)[0]
    assert change == ['"', f"{percent(whole)} → {percent(without)}"]
    row = expected(model, tokenizer, text)["maps"][1, 0, -1]
    assert int(row.argmax()) == 1 and row[1] > 0.5


def test_a_head_that_looks_away_and_matters(live, model, tokenizer):
    opened = live(ModelLab())
    opened.press("looks away, matters")
    ready(opened)
    text = 'The "name'
    assert_shows(opened, model, tokenizer, text, [(0, 2)])
    whole, without = chance_of(model, tokenizer, text, '"', [(0, 2)])
    assert without < whole / 2
    assert expected(model, tokenizer, text)["maps"][0, 2, -1, 1] < 0.05
    assert "with weight 0.0" in said(opened)


def test_the_likeliest_gets_stuck(live, model, tokenizer):
    opened = live(ModelLab(), reduced_motion="reduce")
    unfold(opened)
    opened.press("only the likeliest")
    ready(opened)
    text = ">>> x = [1, 2, 3"
    assert_shows(opened, model, tokenizer, text, [], 0)
    assert "x·x·x" in beside(opened)[0][2]
    write(opened).click()
    ready(opened)
    tokens = torch.tensor([tokenizer.encode(text)])
    wanted = tokenizer.decode(generate(model, tokens, 40, temperature=0)[0].tolist())
    assert opened.control("text").input_value() == wanted
    assert " x x x x x x x x" in wanted


# --- writing on -----------------------------------------------------------------------


def test_one_seed_writes_one_text(live):
    opened = live(
        ModelLab("The list", off=[], seed=5), reduced_motion="reduce", folded=False
    )

    def written():
        opened.press("reset")
        opened.button(re.search("seed .*", opened.text(".mha-more"))[0]).focus()
        write(opened).click()
        ready(opened)
        return opened.control("text").input_value()

    one = written()
    assert one.startswith("The list") and len(one) > 40
    assert written() == one
    opened.press("reset")
    opened.press("seed 5: take another")
    ready(opened)
    other = opened.control("text").input_value()
    assert other != one and other.startswith("The list") and len(other) > 40
    opened.press("seed 6: take another")
    ready(opened)  # once more from the beginning, and not after what was written
    third = opened.control("text").input_value()
    assert third not in (one, other) and third.startswith("The list")
    assert len(third) < len(other) + 20
    opened.fill("text", "My own")
    opened.press("seed 7: take another")
    ready(opened)
    assert opened.control("text").input_value().startswith("My own")


def test_writing_stops_when_asked_and_where_the_context_ends(live):
    opened = live(ModelLab("The list", off=[]))
    write(opened).click()
    opened.page.wait_for_function(
        "document.querySelector('textarea').value.length > 12"
    )
    opened.press("stop")
    text = opened.control("text").input_value()
    opened.page.wait_for_timeout(400)  # milliseconds; four tokens, if it went on
    assert opened.control("text").input_value() == text
    type_text(opened, "a b " * 59)  # 118 of 128 tokens
    opened.page.emulate_media(reduced_motion="reduce")
    write(opened).click()
    assert write(opened).is_disabled()


def test_writing_leaves_the_page_its_turns_and_gives_way_to_who_types(live):
    opened = live(ModelLab("The list", off=[]), reduced_motion="reduce")
    unfold(opened)
    opened.press("only the likeliest")
    ready(opened)
    text = opened.control("text").input_value()
    # A clock in which every look takes longer than its share of a frame: then each
    # token is a turn of its own, on any machine, and others have theirs between.
    seen = opened.root_element.evaluate(
        """async (root) => {
            const real = performance.now;
            let time = 0;
            performance.now = () => (time += 10);
            const others = () => new Promise((r) => setTimeout(r, 0));
            const write = [...root.querySelectorAll("button")]
                .find(x => x.textContent.startsWith("write on"));
            write.click();
            for (let i = 0; i < 500 && write.textContent !== "stop"; i++)
                await others();
            const found = [];
            do {
                await others();
                found.push(root.querySelector("textarea").value);
            } while (write.textContent === "stop");
            performance.now = real;
            await new Promise(requestAnimationFrame);
            return [...found, root.querySelector("textarea").value];
        }"""
    )
    assert len(seen) > 10  # many turns, in which nothing moves
    assert set(seen[:-2]) <= {text} and len(seen[-1]) > len(text)
    write(opened).click()
    type_text(opened, "foo")
    assert opened.control("text").input_value() == "foo"
    opened.page.emulate_media(reduced_motion="no-preference")
    write(opened).click()
    opened.press("reset")
    ready(opened)  # not before it has written all, if it goes on
    assert opened.control("text").input_value() == "The list"


# --- every hand -------------------------------------------------------------------


def test_keyboard_goes_from_cell_to_cell(live, model, tokenizer):
    opened = live(ModelLab(TEXT, off=[], head=(2, 1)))
    maps = expected(model, tokenizer, TEXT)["maps"][2, 1]
    words = [readable(tokenizer.tokens[x]) for x in tokenizer.encode(TEXT)]
    opened.root_element.locator(".mha-map").first.focus()
    first, last = len(words) - 8, len(words) - 1  # eight have room
    for key, (t, s) in [
        ("Home", (last, first)),
        ("ArrowRight", (last, first + 1)),
        ("ArrowUp", (last - 1, first + 1)),
        ("End", (last - 1, last - 1)),
        ("PageUp", (first, first)),
        ("ArrowRight", (first, first)),  # what comes later is hidden
    ]:
        opened.page.keyboard.press(key)
        where = f"query “{words[t]}” looks at key “{words[s]}” with weight"
        assert f"Layer 2, head 1: {where} {maps[t, s]:.2f}." in said(opened)


def test_every_control_is_reached_by_tab(live):
    opened = live(ModelLab(), folded=False)
    opened.button("reset").focus()
    reached = []
    for _ in range(40):
        reached.append(
            opened.page.evaluate(
                "(x => x.getAttribute('aria-label') ?? x.innerText ?? x.id)"
                "(document.activeElement)"
            )
        )
        opened.page.keyboard.press("Tab")
    for wanted in ("the bracket", "turn L0 H3 on: layer 0, head 3", "append “]”"):
        assert wanted in reached
    assert {"write on without L0 H3", "seed 0: take another", MAP} <= set(reached)
    opened.button("L1 H2: layer 1, head 2").focus()
    opened.page.keyboard.press("Enter")
    assert opened.pressed("L1 H2: layer 1, head 2")


def test_typing_reaches_the_model_and_not_the_notebook(live, model, tokenizer):
    opened = live(ModelLab("foo", off=[]))
    opened.page.evaluate(
        "document.addEventListener('keydown', () => (window.heard = true))"
    )
    opened.control("text").focus()
    opened.page.keyboard.press("End")
    opened.page.keyboard.type("(x")
    ready(opened)
    assert_shows(opened, model, tokenizer, "foo(x")
    assert opened.page.evaluate("window.heard") is None


def test_reset_brings_the_lesson_back(live):
    opened = live(ModelLab())
    before = next_tokens(opened), beside(opened), said(opened)
    unfold(opened)
    opened.press("only the likeliest")
    ready(opened)
    assert (next_tokens(opened), beside(opened), said(opened)) != before
    opened.press("reset")
    assert (next_tokens(opened), beside(opened), said(opened)) == before


def test_a_link_holds_the_state(live, model, tokenizer):
    opened = live(ModelLab())
    type_text(opened, "f(x[0")
    opened.press("turn L0 H3 on: layer 0, head 3")
    address = opened.follow_link()
    assert address.startswith("file://") and "#" in address
    ready(opened)
    assert opened.control("text").input_value() == "f(x[0"
    assert_shows(opened, model, tokenizer, "f(x[0")


@pytest.mark.parametrize(("viewport", "most"), MOST.values(), ids=MOST)
def test_fits_one_screen_in_every_state_of_the_lesson(live, viewport, most):
    opened = live(ModelLab(), viewport=viewport)
    heights = {}
    for name in ("the bracket", "looks, no help", "looks away, matters"):
        opened.press(name)
        ready(opened)
        heights[name] = opened.measure("x => x.offsetHeight")
    assert max(heights.values()) <= most, heights
    assert opened.width() == viewport["width"]


def test_a_phone_leaves_no_hole_below_the_bars(live):
    opened = live(ModelLab(), viewport=PHONE)
    bars, below = (
        opened.root_element.locator(x).bounding_box()
        for x in (".mha-next li:nth-child(5)", ".mha-panels + output")
    )
    gap = below["y"] - bars["y"] - bars["height"]
    assert 0 <= gap < 16


# Where the title of the columns ends on a map, and how wide that map is.
TITLES = """() => {
    window.titles = [];
    const pen = CanvasRenderingContext2D.prototype;
    const {fillText} = pen;
    pen.fillText = function (text, x, ...rest) {
        const wide = this.canvas.width / devicePixelRatio;
        if (text.startsWith('key →')) {
            window.titles.push([text, x + this.measureText(text).width, wide]);
        }
        return fillText.call(this, text, x, ...rest);
    };
}"""


@pytest.mark.sweep(5)  # one on each screen
@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize("words", [12, 40, 100])
def test_the_title_of_the_keys_is_not_cut(live, screen, words):
    opened = live(ModelLab(), viewport=MOST[screen][0])
    ready(opened)
    opened.page.evaluate(TITLES)
    type_text(opened, "the list of " * (words // 3))
    titles = opened.page.evaluate("window.titles")
    assert titles and all(end <= wide for _, end, wide in titles), titles
    assert titles[-1][0] == "key →"  # each of them is named


def test_no_column_is_cut_on_a_phone(live):
    opened = live(ModelLab(), viewport=PHONE)
    beyond = "x => x.scrollWidth - x.clientWidth"
    for i in range(opened.count(".mha-tries button")):
        opened.root_element.locator(".mha-tries button").nth(i).click()
        ready(opened)
        assert opened.root_element.locator(".mha-both").evaluate(beyond) == 0


def test_fits_a_small_phone(live):
    opened = live(ModelLab(), viewport={"width": 320, "height": 640})
    assert opened.width() == 320
    type_text(opened, "The list is a sequence of items. " * 9)
    assert opened.width() == 320


@pytest.mark.sweep(2)  # each looks at the contrast in the other colours, too
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_for_axe_to_find(live, scheme):
    opened = live(ModelLab(), color_scheme=scheme)
    opened.table(MAP)
    assert opened.faults() == []


def test_drawing_follows_the_theme_of_the_page(live):
    opened = live(ModelLab(), color_scheme="light")
    light = [opened.pixels(".mha-grid canvas", 5), opened.pixels()]
    opened.light("dark")
    dark = [opened.pixels(".mha-grid canvas", 5), opened.pixels()]
    assert all(a != b for a, b in zip(light, dark))


# --- the file beside the page ---------------------------------------------------------


def apart(widget, folder) -> None:
    """A page and the model's numbers beside it, as the book's pages have them.

    Names of a state are sorted there: a notebook is stored so.
    """
    page = to_html(widget, title="Test")
    (text,) = re.findall(r'widget-state\+json">(.*?)</script>', page, re.DOTALL)
    whole = json.loads(text)
    (own,) = (x["state"] for x in whole["state"].values() if "packed" in x["state"])
    assert own["packed"] == widget.packed
    own |= {"packed": "", "packed_at": "model.js"}
    whole = json.loads(json.dumps(whole, sort_keys=True))
    page = page.replace(text, page_module.in_script(whole))
    (folder / "page.html").write_text(page, encoding="utf-8")


@pytest.fixture
def beside_page(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "png", lambda figure: "")
    monkeypatch.setattr(ModelLab, "still", lambda self: None)
    apart(ModelLab(), tmp_path)
    opened = Live(chromium, tmp_path)
    opened.root = tmp_path.as_uri()
    opened.asked = []

    def ask(request):
        if not request.url.startswith("blob:"):  # what a page makes of its own text
            opened.asked.append(request.url.split("/")[-1])

    opened.page.on("request", ask)
    opened.page.goto((tmp_path / "page.html").as_uri())
    opened.page.wait_for_selector("html[data-widgets=ready]")
    opened.root_element = opened.page.locator(".mha").first
    yield opened
    opened.context.close()


def test_the_numbers_are_loaded_when_asked_for(beside_page, tmp_path, model, tokenizer):
    (tmp_path / "model.js").write_bytes(FILE.read_bytes())
    opened = beside_page
    opened.press("L1 H1: layer 1, head 1")  # the first view holds all its maps
    opened.settle()
    assert opened.asked == ["page.html"] and len(next_tokens(opened)) == 6
    opened.press("all on")
    unfold(opened)
    opened.page.wait_for_function("document.querySelector('.mha-goes').innerText")
    ready(opened)
    assert opened.asked == ["page.html", "model.js"]
    assert_shows(opened, model, tokenizer, "foo[bar, baz")
    type_text(opened, "f(x[0")
    assert_shows(opened, model, tokenizer, "f(x[0")
    assert opened.asked == ["page.html", "model.js"] and opened.complaints == []


def test_a_missing_file_is_a_sentence_and_another_touch_tries_again(
    beside_page, tmp_path, model, tokenizer
):
    opened = beside_page
    opened.press("all on")
    opened.root_element.get_by_text("could not be loaded").wait_for()
    (tmp_path / "model.js").write_bytes(FILE.read_bytes())
    opened.fill("text", TEXT)
    opened.root_element.get_by_text("could not be loaded").wait_for(state="hidden")
    ready(opened)
    assert_shows(opened, model, tokenizer, TEXT)


BAD_STATE = [
    ("text", "a" * 2001, "at most 2000 characters"),
    ("off", [12], "off must list heads"),
    ("off", [-1], "off must list heads"),
    ("compared", [12], "compared must list heads"),
    ("layer", 3, "layer must be a whole number from 0 to 2"),
    ("head", 4, "head must be a whole number from 0 to 3"),
    ("temperature", 2.5, "from 0 to 2"),
    ("temperature", float("nan"), "from 0 to 2"),
    ("seed", -1, "seed must be"),
    ("query", -2, "query must be"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, ModelLab, BAD_STATE)


# --- Python ---------------------------------------------------------------------------


def test_says_what_it_holds():
    assert repr(ModelLab("a b", off=[])) == "ModelLab('a b')"
    lab = ModelLab("x", off=[(2, 1), (0, 3), (2, 1)])
    assert repr(lab) == "ModelLab('x' without layer 0, head 3; layer 2, head 1)"


@pytest.mark.parametrize("off", [[], [(0, 3)]])
def test_still_shows_the_map_and_the_bars(off):
    figure = ModelLab(off=off).still()
    left, right = figure.axes
    assert left.images[0].get_array().shape == (10, 10)
    assert len(right.patches) == 6 * (1 + len(off))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": ""}, "1 to 2,000 characters; got 0"),
        ({"text": "a" * 2001}, "got 2,001"),
        ({"off": [(3, 0)]}, r"below \(3, 4\); got \(3, 0\)"),
        ({"off": [3]}, "pair"),
        ({"head": (0, 4)}, r"got \(0, 4\)"),
        ({"temperature": -0.1}, "from 0 to 2; got -0.1"),
        ({"temperature": float("nan")}, "from 0 to 2; got nan"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_arguments_name_the_requirement(options, message):
    with pytest.raises(ValueError, match=message):
        ModelLab(**options)


def test_a_text_that_is_none():
    with pytest.raises(TypeError, match="text must be a str; got int"):
        ModelLab(3)


def test_own_text_leaves_the_temperature_of_the_example(live):
    opened = live(ModelLab())
    unfold(opened)
    opened.press("only the likeliest")
    ready(opened)
    assert opened.control("temperature").get_attribute("aria-valuetext").startswith("0")
    assert opened.button("nothing is drawn at 0").is_disabled()
    assert "temperature 0" in opened.text(".mha-legend")
    type_text(opened, "The list")
    assert opened.control("temperature").get_attribute("aria-valuetext") == "1.0"
    assert opened.button("seed 0: take another").is_enabled()
    opened.fill("temperature", "0")  # the reader's own
    type_text(opened, "The lists")
    assert opened.control("temperature").get_attribute("aria-valuetext").startswith("0")


def test_a_full_context_takes_no_token_more(live):
    opened = live(ModelLab("x", off=[]))
    bars = opened.root_element.locator(".mha-next button")
    type_text(opened, "The list is")
    assert all(x.is_enabled() for x in bars.all())
    type_text(opened, "The list is a sequence of items. " * 30)
    assert bars.count() > 0 and all(x.is_disabled() for x in bars.all())
    assert beside(opened)[0][2] == "No room: the context is full."


def test_the_titles_of_one_cell_are_read_whole(live):
    opened = live(ModelLab("x", off=[]))
    type_text(opened, "a")
    sizes = opened.root_element.locator(".mha-one canvas").first.evaluate(
        "x => [x.clientWidth, x.clientHeight]"
    )
    assert min(sizes) > 70  # labels, and 46 pixels of a title beside or below them


def test_a_text_shows_whole_lines(live):
    opened = live(ModelLab())
    height, line = opened.root_element.locator("textarea").evaluate(
        "x => [x.clientHeight, parseFloat(getComputedStyle(x).lineHeight)]"
    )
    assert height == 2 * line


def test_undo_brings_the_readers_own_text_back(live):
    opened = live(ModelLab(), reduced_motion="reduce")
    area = opened.root_element.locator("textarea")
    assert opened.button("undo").is_disabled()
    own = "a list of"
    area.fill(own)
    write(opened).click()
    opened.page.wait_for_function(
        f"document.querySelector('textarea').value.length > {len(own)}"
    )
    opened.press("seed 0: take another")
    ready(opened)
    assert area.input_value() != own
    opened.press("undo")
    opened.press("undo")
    assert area.input_value() == own
    opened.press("undo")
    assert area.input_value() == "foo[bar, baz"
    assert opened.button("undo").is_disabled()


def test_undo_takes_back_heads_and_examples(live):
    opened = live(ModelLab())
    area = opened.root_element.locator("textarea")
    opened.press("all on")
    opened.press("looks, no help")
    opened.press("undo")
    assert area.input_value() == "foo[bar, baz"
    assert opened.button("all on").is_disabled()
    opened.press("undo")
    assert opened.button("all on").is_enabled()


@pytest.mark.parametrize(("viewport", "_"), MOST.values(), ids=MOST)
def test_who_types_keeps_the_field_where_it_is(live, viewport, _):
    opened = live(ModelLab(), viewport=viewport)
    area = opened.root_element.locator("textarea")
    place = "x => x.getBoundingClientRect().top"
    before, high = area.evaluate(place), opened.box()["height"]
    area.fill("The names of all")
    said = r"With L0 H3 off, “.+” goes from (\d+|<1) % to (\d+|<1) %\."
    assert re.fullmatch(said, opened.text(NOTE))
    opened.press("all on")
    back = r"With every head on, “.+” is back at (\d+|<1) %\."
    assert re.fullmatch(back, opened.text(NOTE))
    assert area.evaluate(place) == before
    now = opened.box()["height"]
    assert now == pytest.approx(high, abs=0.5)


# --- the large map: eight tokens of a text, or where one of them looks ---------------

LONG = "The list is a sequence of items. " * 5
WRITTEN = """() => {
    const pen = CanvasRenderingContext2D.prototype;
    const { fillText, fillRect, stroke } = pen;
    Object.assign(window, { written: [], cells: [], wide: [] });
    pen.fillText = function (text, ...at) {
        window.written.push(text);
        return fillText.call(this, text, ...at);
    };
    pen.fillRect = function (x, y, width, height) {
        window.cells.push(Math.min(width, height) + 1);
        return fillRect.call(this, x, y, width, height);
    };
    pen.stroke = function () {
        window.wide.push(this.lineWidth);
        return stroke.call(this);
    };
}"""


@pytest.mark.parametrize("screen", MOST)
def test_each_word_of_the_large_map_is_read(live, tokenizer, screen):
    opened = live(ModelLab(LONG), viewport=MOST[screen][0])
    opened.page.evaluate(WRITTEN)
    words = [readable(tokenizer.tokens[i]) for i in tokenizer.encode(LONG)][-8:]
    opened.press("L1 H1: layer 1, head 1")
    written = opened.page.evaluate("window.written")
    words = [x if len(x) < 6 else f"{x[:4]}…" for x in words]
    for word in words:  # at a row and at a column
        assert written.count(word) >= 2 * words.count(word)
    cells = opened.page.evaluate("window.cells")
    assert len(cells) == 8 * 8 and min(cells) >= 14


def test_a_window_moves_over_a_long_text_and_a_link_keeps_it(live, tokenizer):
    opened = live(ModelLab(LONG))
    count = len(tokenizer.encode(LONG))
    later, sooner = opened.button("later tokens"), opened.button("earlier tokens")
    assert later.get_attribute("aria-disabled") == "true"
    before = opened.pixels(".mha-one canvas")
    sooner.click()
    assert f"Room for 8: tokens {count - 11}–{count - 4} of {count}." in said(opened)
    assert opened.pixels(".mha-one canvas") != before
    opened.root_element.locator(".mha-map").first.focus()
    opened.page.keyboard.press("PageUp")
    opened.page.keyboard.press("Home")
    seen = said(opened)
    opened.follow_link()
    ready(opened)
    assert said(opened) == seen and f"tokens {count - 11}–" in seen
    for _ in range(9):
        sooner.press("Enter")
    assert sooner.get_attribute("aria-disabled") == "true"
    assert f"Room for 8: tokens {count - 31}–{count - 24} of" in said(opened)
    opened.press("looks, no help")
    ready(opened)
    assert sooner.is_hidden() and later.is_hidden()


def test_arcs_are_as_wide_as_the_weights_of_one_word(live, model, tokenizer):
    text = 'The "name'
    opened = live(ModelLab(text))
    opened.press("one word")
    opened.page.evaluate(WRITTEN)
    opened.press("L1 H0: layer 1, head 0")
    row = expected(model, tokenizer, text, [(0, 3)])["maps"][1, 0, -1]
    shown = [x for x in opened.page.evaluate("window.written") if re.match(r"\d\.", x)]
    found = torch.tensor([float(x) for x in shown])
    torch.testing.assert_close(found, row, atol=0.006, rtol=0)
    wanted = [0.5 + 8.5 * float(w) for w in row if w >= 0.01]
    wide = opened.page.evaluate("window.wide")[-len(wanted) :]
    assert wide == pytest.approx(wanted, abs=0.01)
    assert opened.root_element.locator(".mha-map:visible").count() == 1

    frame = opened.root_element.locator(".mha-arcs")
    frame.focus()
    opened.page.keyboard.press("ArrowUp")
    words = [readable(tokenizer.tokens[i]) for i in tokenizer.encode(text)]
    assert words[-2] == '·"' and '‘·" quote’ looks at' in said(opened)
    before = opened.pixels(".mha-arcs canvas")
    box = frame.bounding_box()
    opened.page.mouse.move(box["x"] + 90, box["y"] + 17 * 1.5)  # the first word
    assert opened.pixels(".mha-arcs canvas") != before
    assert f"“{words[0]}” looks at" in said(opened)
    assert opened.faults() == []


def test_what_a_word_gives_to_those_before_the_window_is_told(live, model, tokenizer):
    opened = live(ModelLab(LONG))
    opened.press("one word")
    opened.page.evaluate(WRITTEN)
    opened.press("L1 H0: layer 1, head 0")
    written = opened.page.evaluate("window.written")
    row = expected(model, tokenizer, LONG, [(0, 3)])["maps"][1, 0, -1]
    earlier = float(row[:-8].sum())
    assert "earlier" in written and earlier > 0.01
    numbers = [float(x) for x in written if re.match(r"\d\.", x)]
    assert numbers[0] == pytest.approx(earlier, abs=0.006)
    assert sum(numbers) == pytest.approx(1, abs=0.06)
