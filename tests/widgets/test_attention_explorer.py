"""The explorer shows what torch computes, to every hand, and speaks where it cannot."""

from functools import partial

import pytest
import torch

from mha_lib import FusedMHA, causal_mask
from mha_lib.widgets import AttentionExplorer
from tests.widgets.conftest import MOST, assert_says, number

H, T, S, D = 3, 4, 6, 5
QUERIES = ["the", "cat", "sat", "down"]
KEYS = ["le", "chat", "s'est", "assis", "par", "terre"]
MAP = "The map as a table"
LINE = ".mha-panels + .mha-readout"


@pytest.fixture
def live(live):
    return partial(live, folded=False)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(H, n, D, generator=generator) for n in (T, S))


def explorer(**options) -> AttentionExplorer:
    """With the cursor at the first query and key."""
    q, k = operands()
    widget = AttentionExplorer(None, QUERIES, KEYS, q=q, k=k, **options)
    widget.query = widget.key = 0
    return widget


def expected(mask=None) -> torch.Tensor:
    q, k = operands()
    scores = q @ k.mT / D**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1)


def shown(opened) -> torch.Tensor:
    """The numbers of the open table, sums left out."""
    rows = [row[1 : 1 + S] for row in opened.table(MAP)[1:]]
    cells = [[cell.replace("hidden (", "").strip(")") for cell in row] for row in rows]
    return torch.tensor([[number(cell) for cell in row] for row in cells])


def test_weights_are_those_of_torch(live):
    opened = live(explorer())
    for head in range(H):
        opened.press(f"head {head}")
        torch.testing.assert_close(shown(opened), expected()[head], atol=6e-4, rtol=0)


def test_mask_hides_and_the_rest_sums_to_one(live):
    mask = causal_mask(T, S)
    opened = live(explorer(mask=mask))
    torch.testing.assert_close(shown(opened), expected(mask)[0], atol=6e-4, rtol=0)
    hidden = [
        ["hidden" in cell for cell in r[1 : 1 + S]] for r in opened.table(MAP)[1:]
    ]
    assert torch.equal(torch.tensor(hidden), ~mask)
    assert [row[-1] for row in opened.table(MAP)[1:]] == ["1.00"] * T


def test_fully_masked_row_is_zero_and_says_so(live):
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    opened = live(explorer(mask=mask))
    assert shown(opened)[2].abs().sum() == 0
    opened.press("sat")
    assert "sums to 0.00" in opened.text(LINE)


def test_scores_on_demand(live):
    opened = live(explorer())
    before = opened.pixels()
    opened.select("show", "scores (before softmax)")
    q, k = operands()
    torch.testing.assert_close(shown(opened), (q @ k.mT / D**0.5)[0], atol=6e-4, rtol=0)
    assert opened.pixels() != before


def test_products_by_dimension_add_up(live):
    opened = live(explorer())
    opened.press("cat")
    rows = opened.table("dimension by dimension")
    q, k = operands()
    q, k = q[0, 1], k[0, int(expected()[0, 1].argmax())]  # where it looks most
    products = torch.tensor([number(x) for x in rows[3][1 : 1 + D]])
    torch.testing.assert_close(products, q * k, atol=6e-3, rtol=0)
    assert number(rows[3][-1]) == pytest.approx(float(q @ k), abs=6e-3)
    letters = opened.root_element.locator("th span[class^=mha-role-]").all()
    seen = [(x.get_attribute("class"), x.inner_text()) for x in letters]
    assert seen == [("mha-role-q", "q"), ("mha-role-k", "k")]
    assert rows[1][0].startswith("q of “") and rows[2][0].startswith("k of “")


def test_keyboard_goes_from_cell_to_cell(live):
    opened = live(explorer())
    opened.root_element.locator(".mha-map").focus()
    for key, (t, s) in [
        ("ArrowDown", (1, 0)),
        ("End", (1, S - 1)),
        ("ArrowRight", (1, S - 1)),
        ("PageDown", (T - 1, S - 1)),
        ("ArrowLeft", (T - 1, S - 2)),
        ("Home", (T - 1, 0)),
    ]:
        opened.page.keyboard.press(key)
        said = opened.text(LINE)
        weight = float(expected()[0, t, s])
        assert f"query “{QUERIES[t]}” → key “{KEYS[s]}”: weight {weight:.3f}." in said


def test_keys_faster_than_frames_are_not_lost(live):
    opened = live(explorer())
    opened.root_element.locator(".mha-map").evaluate(
        "map => ['ArrowDown', 'ArrowRight', 'ArrowDown'].forEach(key =>"
        " map.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})))"
    )
    assert f"query “{QUERIES[2]}” → key “{KEYS[1]}”" in opened.text(LINE)


def test_drawing_follows_the_theme_of_the_page(live):
    opened = live(explorer(), color_scheme="light")
    light = opened.pixels()
    opened.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert opened.pixels() != light


def test_mouse_goes_from_cell_to_cell(live):
    opened = live(explorer())
    box = opened.box(".mha-map canvas")
    opened.page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    assert f"query “{QUERIES[-1]}” → key “{KEYS[-1]}”" in opened.text(LINE)


def test_logarithmic_colours_change_the_picture_alone(live):
    opened = live(explorer())
    picture, cells = opened.pixels(), shown(opened)
    opened.control("logarithmic colours").check()
    assert opened.pixels() != picture
    assert torch.equal(shown(opened), cells)


def test_layers(live):
    weights = [torch.softmax(torch.randn(2, T, S), -1) for _ in range(3)]
    opened = live(AttentionExplorer(weights, QUERIES, KEYS))
    opened.fill("layer", "2")
    torch.testing.assert_close(shown(opened), weights[2][0], atol=6e-4, rtol=0)


HOSTS = {  # who takes the arrow keys of a cell's output, and when
    "JupyterLab 4, Notebook 6": "document.addEventListener('keydown', take)",
    "Notebook 7": """document.addEventListener('keydown', event => {
        if (!event.target.hasAttribute('data-lm-suppress-shortcuts')) take(event);
    }, true)""",
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_notebook_leaves_the_arrow_keys_to_the_widget(live, host):
    opened = live(explorer(), viewport={"width": 600, "height": 900})
    opened.page.evaluate(
        f"""() => {{
            const take = event => {{
                if (!event.key.startsWith('Arrow')) return;
                event.preventDefault();
                event.stopPropagation();
                document.activeElement.blur();
            }};
            {HOSTS[host]};
        }}"""
    )
    opened.root_element.locator(".mha-map").focus()
    for key in ("ArrowDown", "ArrowRight"):
        opened.page.keyboard.press(key)
    assert f"query “{QUERIES[1]}” → key “{KEYS[1]}”" in opened.text(LINE)
    opened.control("show").focus()
    opened.page.keyboard.press("ArrowDown")
    assert "score" in opened.text(LINE)


# --- where it begins, what to try -----------------------------------------------------


def test_begins_with_the_last_query_at_its_largest_weight(live):
    q, k = operands()
    said = live(AttentionExplorer(None, QUERIES, KEYS, q=q, k=k)).text(LINE)
    top = expected()[0, -1]
    wanted = (
        f"query “{QUERIES[-1]}” → key “{KEYS[top.argmax()]}”: weight {top.max():.3f}."
    )
    assert wanted in said


def thickness(opened) -> list[float]:
    return opened.measure_all(
        ".mha-arcs path", "all => all.map(x => +x.getAttribute('stroke-width'))"
    )


def test_an_arc_is_as_thick_as_its_weight(live):
    opened = live(explorer())
    opened.press("sat")
    wanted = (0.5 + 6 * expected()[0, 2]).tolist()
    assert thickness(opened) == pytest.approx(wanted, abs=0.051)


def test_rows_that_stand_out(live):
    weights = expected()
    opened = live(explorer())
    opened.press("the surest row")
    h, t, s = (int(x) for x in torch.unravel_index(weights.argmax(), weights.shape))
    note = f"Head {h}, “{QUERIES[t]}”: “{KEYS[s]}” gets {weights.max():.2f}"
    assert opened.text(".mha-note").startswith(note)
    assert f"Head {h}, query “{QUERIES[t]}” → key “{KEYS[s]}”" in opened.text(LINE)
    opened.press("the most even row")
    even = weights.amax(-1)
    h, t = (int(x) for x in torch.unravel_index(even.argmin(), even.shape))
    note = f"Head {h}, “{QUERIES[t]}”: {S} words, and none gets more than"
    assert opened.text(".mha-note").startswith(note)
    assert opened.pressed(f"head {h}")


def test_of_any_other_row_it_says_where_it_looks_most(live):
    """The finding's line was empty once a word was chosen, and its gap stayed."""
    weights = expected()
    opened = live(explorer())
    for head in range(H):
        opened.press(f"head {head}")
        for t, word in enumerate(QUERIES):
            opened.press(word)
            most, s = weights[head, t].max(-1)
            tried = opened.root_element.locator(".mha-tries [aria-pressed=true]")
            if not tried.count():
                said = f"Head {head}, “{word}” looks most at “{KEYS[s]}”: {most:.2f}."
                assert opened.text(".mha-note") == said
            assert opened.text(".mha-note") != ""


def test_a_row_without_one_largest_weight_is_told_as_it_is(live):
    weights = torch.tensor([[0.9, 0.1, 0], [0, 0, 0], [0.4, 0.4, 0.2], [0.5, 0.3, 0.2]])
    opened = live(AttentionExplorer(weights[None], list("abcd"), list("xyz")))
    said = partial(opened.text, ".mha-note")
    opened.press("b")
    assert said() == "“b” looks at nothing."
    opened.press("d")
    assert said() == "“d” looks most at “x”: 0.50."
    weights[3] = weights[2]
    opened = live(AttentionExplorer(weights[None], list("abcd"), list("xyz")))
    opened.press("d")
    assert opened.text(".mha-note") in (
        "“d”: 2 words get the most, 0.40 each.",
        "“d”: 3 words, and none gets more than 0.40.",
    )


def test_it_says_what_a_query_and_a_key_are(live):
    said = live(explorer()).text(".mha-looks .mha-caption >> nth=0")
    assert said == "query (looks) → key (is looked at)"


def test_one_head_alone_has_no_number_and_the_row_that_is_shown_is_pressed(live):
    weights = torch.full((1, 4, 4), 0.25)
    weights[0, 3] = torch.tensor([0.9, 0.1, 0.0, 0.0])
    opened = live(AttentionExplorer(weights, ["a", "b", "c", "d"]), folded=False)
    sure = opened.button("the surest row")
    assert sure.get_attribute("aria-pressed") == "true"
    assert opened.text(".mha-note").startswith("“d”: “a” gets 0.90")
    assert opened.text(LINE).startswith("Query “d” → key “a”")
    assert "ead 0" not in opened.text()
    opened.press("the most even row")
    assert sure.get_attribute("aria-pressed") == "false"


def quest() -> AttentionExplorer:
    """Two layers; heads 1 and 2 of layer 0 look back, the second more."""
    back = torch.full((3, T, T), 0.1)
    for head, most in enumerate((0.25, 0.6, 0.8)):
        back[head, range(1, T), range(T - 1)] = most
    return AttentionExplorer([back, torch.full((3, T, T), 1 / T)], QUERIES)


def test_which_head_looks_at_the_word_before(live):
    opened = live(quest())
    said = partial(opened.text, ".mha-note")
    opened.press("Find the head that looks at the one before")
    assert "press the head" in said() and not set("✓✗") & set(said())
    opened.press("head 0")
    assert said().startswith("✗ Head 0 of layer 0 does not: 0.25")
    opened.press("head 1")
    assert said().startswith("✓ Head 1 of layer 0 does, too: 0.60")
    opened.press("head 2")
    assert said().startswith("✓ Head 2 of layer 0 does: 0.80 of its weight, and no")
    opened.fill("layer", "1")  # nobody has pressed a head there
    assert "press the head" in said()
    asked = opened.root_element.get_by_role("button", name="Find the head")
    assert asked.count() == 1  # nothing of what no head does
    opened.press("the surest row")
    assert said().startswith("Head 0, “the”")


def test_says_what_to_do_and_what_a_token_is(live):
    """Letters were called words, and nothing said that there is something to find."""
    lead = partial(live(quest()).text, ".mha-lead")
    assert lead() == "Choose what to find, then press the right head."
    maps = torch.tensor([[[0.8, 0.1, 0.1], [0.3, 0.3, 0.4], [0.5, 0.3, 0.2]]])
    opened = live(AttentionExplorer(maps, [*"abc"], unit="letter"))
    assert opened.text(".mha-question") == "Where does each letter look?"
    assert (
        opened.text(".mha-lead") == "Choose a letter: thicker arcs carry more weight."
    )
    opened.press("the most even row")
    assert "3 letters, and none gets" in opened.text(".mha-note")


def test_a_question_asked_again_awaits_a_new_answer(live):
    opened = live(quest())
    for again in ("Find the head that looks at the one before", "reset"):
        opened.press("Find the head that looks at the one before")
        opened.press("head 2")
        assert opened.text(".mha-note").startswith("✓")
        opened.press(again)
        assert "✓" not in opened.text(".mha-note")


@pytest.mark.parametrize("screen", MOST)
def test_all_questions_fit_one_screen_with_their_answers(live, screen):
    viewport, most = MOST[screen]
    names = ("the one before", "the first", "itself")
    maps = torch.full((4, 12, 12), 0.02)
    for head, key in enumerate((range(11), 0, range(1, 12))):
        maps[head, range(1, 12), key] = 0.7
    maps[3] = maps[0]
    widget = AttentionExplorer([maps, maps / 2], [*"cdvzwj"] * 2)
    opened = live(widget, viewport=viewport, folded=True)
    for head, name in enumerate(names):
        opened.press(f"Find the head that looks at {name}")
        opened.press(f"head {head}")
        assert opened.text(".mha-note").startswith("✓")
        assert opened.box()["height"] <= most


def test_a_key_does_not_look_like_a_button(live):
    opened = live(explorer())
    ground = "x => getComputedStyle(x).backgroundColor"
    key = opened.root_element.locator(".mha-right li").first.evaluate(ground)
    assert key != opened.button("cat").evaluate(ground)
    assert key == "rgba(0, 0, 0, 0)"


# --- more keys than one reads at a glance ------------------------------------------

MANY = 64


def long_text() -> tuple[AttentionExplorer, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.softmax(2 * torch.randn(2, MANY, MANY, generator=generator), -1)
    return AttentionExplorer(weights, [f"t{i}" for i in range(MANY)]), weights


def listed(opened, name: str) -> list[str]:
    items = opened.root_element.get_by_role("list", name=name).get_by_role("listitem")
    return items.evaluate_all(
        "all => all.map(x => x.innerText.split(/\\s+/).join(' '))"
    )


@pytest.mark.parametrize("screen", MOST)
def test_a_long_text_has_the_larger_map(live, screen):
    words = [f"word{i}" for i in range(28)]
    maps = torch.full((4, 28, 28), 1 / 28)
    opened = live(AttentionExplorer([maps] * 3, words), viewport=MOST[screen][0])
    box = opened.box(".mha-map canvas")
    least = {"desk": 9, "phone": 7}[screen]  # pixels a cell
    assert min(box["width"], box["height"]) > 28 * least


@pytest.mark.parametrize("screen", MOST)
def test_the_most_that_is_shown_fits_one_screen(live, screen):
    viewport, most = MOST[screen]
    maps = torch.softmax(torch.randn(12, MANY, MANY), -1)
    opened = live(AttentionExplorer([maps] * 2), viewport=viewport, folded=True)
    assert opened.box()["height"] <= most


def test_few_keys_are_listed_in_their_order(live):
    opened = live(explorer())
    opened.press("cat")
    wanted = [f"{k} {w:.2f}" for k, w in zip(KEYS, expected()[0, 1].tolist())]
    assert listed(opened, "weight of each key") == wanted
    assert opened.root_element.get_by_text("keys in their order").is_hidden()


def test_of_many_keys_the_largest_are_listed(live):
    widget, weights = long_text()
    widget.query = 0
    opened = live(widget)
    opened.root_element.locator(".mha-map").focus()
    for row in (0, 1, 2):
        top = weights[0, row].topk(8)
        wanted = [f"t{i} {w:.2f}" for w, i in zip(*(x.tolist() for x in top))]
        assert listed(opened, "the 8 largest weights") == wanted
        rest = f"the others add up to {1 - float(top.values.sum()):.2f}"
        assert opened.root_element.get_by_text(rest).is_visible()
        opened.page.keyboard.press("ArrowDown")


def test_all_keys_are_listed_when_asked_for(live):
    widget, weights = long_text()
    widget.query = 0
    opened = live(widget)
    opened.root_element.get_by_text(f"All {MANY} keys in their order").click()
    for row in (0, 1):
        wanted = [f"t{i} {w:.2f}" for i, w in enumerate(weights[0, row].tolist())]
        assert listed(opened, "weight of each key") == wanted
        opened.root_element.locator(".mha-map").press("ArrowDown")
    assert opened.faults() == []


def test_a_key_touches_little_of_the_page(live):
    widget = long_text()[0]
    widget.query = 0
    opened = live(widget)
    opened.root_element.locator(".mha-map").focus()
    opened.measure(
        """root => {
            window.touched = 0;
            const what = { childList: true, characterData: true, attributes: true };
            new MutationObserver(all => (window.touched += all.length))
                .observe(root, { subtree: true, ...what });
        }"""
    )
    opened.page.keyboard.press("ArrowDown")
    assert 0 < opened.page.evaluate("window.touched") < MANY


@pytest.mark.parametrize("width", [320, 800])
def test_labels_come_back_when_the_cursor_goes(live, width):
    widget = long_text()[0]
    widget.query = widget.key = 0
    opened = live(widget, viewport={"width": width, "height": 800})
    opened.root_element.locator(".mha-map").focus()
    before = opened.pixels()
    for there, back in (("ArrowDown", "ArrowUp"), ("ArrowRight", "ArrowLeft")):
        for key in [there] * 5 + [back] * 5:
            opened.page.keyboard.press(key)
    assert opened.pixels() == before


def test_nothing_for_axe_to_find(live):
    opened = live(explorer(mask=causal_mask(T, S)))
    opened.table(MAP)
    opened.table("dimension by dimension")
    assert opened.faults() == []


def test_fits_a_small_phone(live):
    weights = torch.softmax(torch.randn(12, 64, 64), -1)
    opened = live(AttentionExplorer(weights), viewport={"width": 320, "height": 640})
    assert opened.width() == 320


BAD_STATE = [
    ("weights", [], "given no weights"),
    ("weights", [[]], "even length"),
    ("weights", [[[[0.5, None]]]], "not a finite number"),
    ("weights", [[[[0.5, float("nan")]]]], "not a finite number"),
    ("weights", [[[[0.5], [0.5, 1]]]], "even length"),
    ("weights", [[[[0.5, 0.5]]]], "for each label"),
    ("mask", [[[True]]], "for each query"),
]


def test_bad_state_is_a_sentence(live):
    assert_says(live, lambda: AttentionExplorer(torch.eye(3)[None]), BAD_STATE)


# --- Python ------------------------------------------------------------------------


def test_takes_what_layers_return():
    layer = FusedMHA(8, 4)
    x = torch.randn(2, 5, 8)
    weights = layer(x)[1]
    ours = AttentionExplorer(weights, sample=1)
    assert torch.allclose(torch.tensor(ours.weights[0]), weights[1])
    theirs = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    weights = theirs(x, x, x, average_attn_weights=False)[1]
    assert repr(AttentionExplorer([weights, weights])) == (
        "AttentionExplorer(2 layers, 4 heads, 5 queries, 5 keys)"
    )


def test_half_precision_and_gradients():
    weights = torch.full((2, 3, 4), 0.25, dtype=torch.bfloat16, requires_grad=True)
    assert AttentionExplorer(weights).weights[0][1][2] == [0.25] * 4


def test_too_large_is_reduced_and_says_so(live):
    weights = torch.softmax(torch.randn(13, 70, 66), -1)
    widget = AttentionExplorer(weights)
    assert repr(widget).endswith("(1 layer, 12 heads, 64 queries, 64 keys)")
    assert "first 12 heads and 64 tokens" in live(widget).text(".mha-warning")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "got neither"),
        ((), {"q": torch.zeros(H, T, D)}, "together"),
        ((torch.zeros(T, S),), {}, r"weights must be \(H, T, S\)"),
        ((torch.full((1, 2, 2), torch.nan),), {}, "finite"),
        ((torch.zeros(1, 0, 2),), {}, "none of them 0"),
        (([torch.zeros(1, 2, 2), torch.zeros(1, 2, 3)],), {}, "one shape"),
        (([],), {}, "at least one layer"),
        ((torch.zeros(1, 2, 3), ["a"]), {}, "queries must be 2 labels"),
        ((torch.zeros(1, 2, 3), None, "abc"), {}, "keys must be 3 labels"),
        ((torch.zeros(1, 2, 3),), {"mask": torch.ones(3, 2) > 0}, "mask must be"),
        (
            (),
            {"q": torch.zeros(H, T, D), "k": torch.zeros(H, S, D + 1)},
            "same layers, heads and D",
        ),
        (
            (torch.zeros(H, T, S),),
            {"q": torch.zeros(H, T, D), "k": torch.zeros(H, S, D)},
            "softmax",
        ),
    ],
)
def test_wrong_arguments_name_the_requirement(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        AttentionExplorer(*arguments, **options)


@pytest.mark.parametrize(
    ("weights", "mask", "message"),
    [
        ("abc", None, "must be numbers"),
        (torch.zeros(1, 2, 3), torch.zeros(2, 3), "must be boolean"),
    ],
)
def test_wrong_types_name_the_requirement(weights, mask, message):
    with pytest.raises(TypeError, match=message):
        AttentionExplorer(weights, mask=mask)


def test_two_equal_words_are_told_apart(live):
    opened = live(AttentionExplorer(torch.eye(3)[None], ["the", "cat", "the"]))
    listed = opened.texts(".mha-looks .mha-right b")
    assert listed == ["the (0)", "cat", "the (2)"]
    assert "“the (2)”" in opened.text(".mha-panels + output")


def test_who_searches_in_the_wrong_layer_is_told_to_change_it(live):
    opened = live(quest())
    opened.press("Find the head that looks at the one before")
    assert "layer" in opened.text(".mha-note")
    opened.fill("layer", "1")
    opened.press("head 0")
    assert opened.text(".mha-note").endswith("Nor do the others here: change layer.")


@pytest.mark.parametrize("screen", MOST)
def test_a_note_has_its_room_from_the_start(live, screen):
    opened = live(quest(), viewport=MOST[screen][0])
    top = """x => x.querySelector('.mha-panels').getBoundingClientRect().top -
        x.getBoundingClientRect().top"""
    places = {opened.measure(top)}
    for at in range(opened.count(".mha-tries button")):
        opened.press_in(".mha-tries button", at=at)
        places.add(opened.measure(top))
        for head in range(3):
            opened.press(f"head {head}")
            places.add(opened.measure(top))
    assert len(places) == 1


def test_of_a_long_text_the_map_says_which_words_it_names(live):
    """The title of the columns; a short text has all its words beside the map."""
    words = [f"w{i}" for i in range(28)]
    maps = torch.full((1, 28, 28), 1 / 28)
    listen = """() => {
        window.written = [];
        const old = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.written.push(text);
            return old.call(this, text, ...rest);
        };
    }"""
    opened = live(AttentionExplorer(maps, words))
    opened.page.evaluate(listen)
    opened.light("dark")  # drawn anew
    assert any("every 2nd named" in x for x in opened.page.evaluate("window.written"))
    opened = live(AttentionExplorer(maps[:, :5, :5] * 5.6, words[:5]))
    opened.page.evaluate(listen)
    opened.light("dark")
    texts = opened.page.evaluate("window.written")
    assert "key →" in texts and not any("named" in x for x in texts)
