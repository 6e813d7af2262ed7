"""Each style's steps in the page are those of the real modules, in their own layout."""

import re
from functools import partial
from itertools import permutations

import pytest
import torch
from torch.nn import functional as F

from mha_lib import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    PerHeadMHA,
    convert,
)
from mha_lib.masks import to_sequence_first_mask
from mha_lib.styles import STYLES
from mha_lib.widgets import VersionsSideBySide
from tests.widgets.conftest import MOST, assert_says, number

B, T, H, D = 2, 5, 3, 4
E = H * D
NAMES = [style.__name__ for style in STYLES]
TABLE = "Every element as a table"
STEP_OF_BATCHED = "q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)"
VERDICT, LINE = ".mha-open output", ".mha-programs > output"
SAME = "= Exactly the same numbers here."
STEPS = ["x", "project", "split q", "split k", "split v", "scores", "mask", "weights"]
STEPS += ["context", "merge", "output", "weights out"]


@pytest.fixture
def live(live):
    return partial(live, folded=False)


@pytest.fixture(scope="module")
def layer() -> BatchedMHA:
    torch.manual_seed(0)
    layer = BatchedMHA(E, H).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.requires_grad_(False)


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(B, T, E, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture(scope="module")
def mask() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    mask = torch.rand(B, T, T, generator=generator) < 0.6
    mask[1, 2] = False  # this query sees nothing
    return mask


def versions(x, layer, mask=None, **options) -> VersionsSideBySide:
    parameters = convert(layer, "separate")
    return VersionsSideBySide(x, parameters, H, mask=mask, **options)


# --- what the real modules compute --------------------------------------------------


def named(name: str, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    """Several tensors of one name: {} stands for the head."""
    return {name.format(h): tensor for h, tensor in enumerate(tensors)}


def hidden(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~mask, -torch.inf)


def recorded(layer, inputs, mask, monkeypatch) -> dict:
    """The arguments and results of `attention` and of all projections in one call."""
    module = __import__(type(layer).__module__, fromlist=["attention"])
    name = "tiled_attention" if isinstance(layer, FusedMHA) else "attention"
    original, calls, linears = getattr(module, name), [], {}

    def spy(q, k, v, mask=None, **options):
        results = original(q, k, v, mask, **options)
        calls.append((q, k, v, mask, *results))
        return results

    def keep(path):
        return lambda _, given, result: linears.update({path: (given[0], result)})

    hooks = [
        part.register_forward_hook(keep(path))
        for path, part in layer.named_modules()
        if isinstance(part, torch.nn.Linear)
    ]
    with monkeypatch.context() as patched:
        patched.setattr(module, name, spy)
        output, weights = layer(inputs, mask=mask)
    for hook in hooks:
        hook.remove()
    return {"calls": calls, "linears": linears, "output": output, "weights": weights}


def by_attention(layer, x, mask, monkeypatch) -> dict:
    """The steps of the styles that call `attention`."""
    seen = recorded(layer, x, mask, monkeypatch)
    calls, linears = seen["calls"], seen["linears"]
    q, k, v, masks, context, weights = (list(part) for part in zip(*calls))
    loop = isinstance(layer, PerHeadMHA)
    prefix = "heads[{}]: " if loop else ""
    scores = [(a / D**0.5) @ b.mT for a, b in zip(q, k)]
    if isinstance(layer, FusedMHA):
        projected = {"qkv": linears["in_proj"][1]}
    elif loop:
        projected = {
            f"heads[{h}]: {r}": linears[f"heads.{h}.{r}_proj"][1]
            for h in range(H)
            for r in "qkv"
        }
    else:
        projected = {r: linears[f"{r}_proj"][1] for r in "qkv"}
    steps = {
        "x": {"query": x},
        "project": projected,
        "split q": named(f"{prefix}q", *q),
        "split k": named(f"{prefix}k", *k),
        "split v": named(f"{prefix}v", *v),
        "scores": named(f"{prefix}scores", *scores),
        "weights": named(f"{prefix}weights", *weights),
        "context": named("contexts[{}]" if loop else "context", *context),
        "merge": {"merged": linears["out_proj"][0]},
    }
    if mask is not None:
        steps["mask"] = named(f"{prefix}scores", *map(hidden, scores, masks))
    return finished(steps, seen["output"], seen["weights"])


def by_einsum(layer, x, mask, monkeypatch) -> dict:
    turned = None if mask is None else to_sequence_first_mask(mask, (B, H, T, T))
    query = x.transpose(0, 1)
    asked = []
    scorer = type(layer).get_scores
    with monkeypatch.context() as patched:
        patched.setattr(
            EinsumMHA,
            "get_scores",
            lambda self, q, k: asked.append((q, k)) or scorer(self, q, k),
        )
        merged = []
        hook = layer.out_proj.register_forward_pre_hook(
            lambda _, given: merged.append(given[0])
        )
        output, weights = layer(query, mask=turned)
        hook.remove()
    q, k = asked[0][0] * D**0.5, asked[0][1]
    v = layer.v_proj(query).unflatten(-1, (H, D))
    scores = scorer(layer, *asked[0])
    steps = {
        "x": {"query": query},
        "project": {r: getattr(layer, f"{r}_proj")(query) for r in "qkv"},
        "split q": {"q": q},
        "split k": {"k": k},
        "split v": {"v": v},
        "scores": {"scores": scores},
        "weights": {"weights": weights.permute(2, 3, 0, 1)},
        "context": {"context": merged[0].unflatten(-1, (H, D))},
        "merge": {"merged": merged[0]},
    }
    if mask is not None:
        steps["mask"] = {"scores": hidden(scores, turned[..., None])}
    return finished(steps, output, weights)


def by_torch(layer, x, mask, monkeypatch) -> dict:
    """torch's own layer keeps its steps to itself: the same lines with its matrices."""
    output, weights = layer(x, mask=mask)
    inner = layer.mha
    query = x.transpose(0, 1)
    qkv = F.linear(query, inner.in_proj_weight, inner.in_proj_bias)
    q, k, v = (
        part.reshape(T, B * H, D).transpose(0, 1) for part in qkv.split(E, dim=-1)
    )
    scores = torch.bmm(q / D**0.5, k.mT)
    context = torch.bmm(weights.flatten(0, 1), v)
    merged = context.transpose(0, 1).reshape(T * B, E)
    again = inner.out_proj(merged).view(T, B, E).transpose(0, 1)
    torch.testing.assert_close(again, output)
    steps = {
        "x": {"query": query},
        "project": {"qkv": qkv},
        "split q": {"q": q},
        "split k": {"k": k},
        "split v": {"v": v},
        "scores": {"scores": scores},
        "weights": {"weights": weights.flatten(0, 1)},
        "context": {"context": context},
        "merge": {"merged": merged},
    }
    if mask is not None:
        rows = mask.repeat_interleave(H, dim=0)
        steps["mask"] = {"scores": hidden(scores, rows)}
    return finished(steps, output, weights)


def finished(steps, output, weights) -> dict:
    return steps | {
        "output": {"output": output},
        "weights out": {"weights": weights},
    }


def expected(style, layer, x, mask, monkeypatch) -> dict:
    """{step: {the tensor's name in the page: tensor in the style's layout}}"""
    ways = {EinsumMHA: by_einsum, BuiltinMHA: by_torch}
    way = ways.get(style, by_attention)
    with torch.no_grad():
        return way(convert(layer, style), x, mask, monkeypatch)


# --- what the page shows ------------------------------------------------------------


def choose(opened, left=None, right=None):
    for label, style in (("left", left), ("right", right)):
        if style is not None:
            opened.select(label, style)


def go(opened, step: str):
    opened.press_in(".mha-steps button", f"^{step} [=≠]")


SPACE = """all => all.map(one => {
    const words = [...one.children].map(part => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return range.getBoundingClientRect();
    }).filter(box => box.width);
    return Math.min(...words.slice(1).map((box, i) => box.left - words[i].right));
})"""  # between the words of a row, in pixels


@pytest.mark.parametrize("width", [358, 688])
def test_the_words_of_a_step_stand_apart(live, layer, x, width):
    opened = live(versions(x, layer), viewport={"width": width, "height": 844})
    rows = opened.root_element.locator(".mha-steps button")
    assert min(rows.evaluate_all(SPACE)) >= 5
    left, right = (opened.control(x).bounding_box() for x in ("left", "right"))
    assert left["x"] + left["width"] + 3 <= right["x"]


def marks(opened) -> dict[str, str]:
    return dict(
        opened.measure_all(
            ".mha-steps button",
            "all => all.map(x => [x.children[0].innerText, x.children[2].innerText])",
        )
    )


def sides(opened) -> list[dict[str, float]]:
    """{element, as in q[0, 1, 2]: its number}, on the left and on the right."""
    rows = opened.table(TABLE)[1:]
    return [
        {
            row[i]: -torch.inf if row[i + 1] == "hidden" else number(row[i + 1])
            for row in rows
        }
        for i in (1, 3)
    ]


def agree(shown: dict[str, float], tensors: dict[str, torch.Tensor]):
    """All elements of all tensors are shown, with their numbers."""
    wanted = {}
    for name, tensor in tensors.items():
        places = torch.ones(tensor.shape).nonzero().tolist()
        values = tensor.flatten().tolist()
        wanted |= {f"{name}{at}": value for at, value in zip(places, values)}
    assert shown.keys() == wanted.keys()
    found, right = (
        torch.tensor([numbers[key] for key in wanted]) for numbers in (shown, wanted)
    )
    torch.testing.assert_close(found, right, atol=6e-5, rtol=0)


def test_every_step_is_that_of_the_module(live, layer, x, mask, monkeypatch):
    opened = live(versions(x, layer, mask))
    for left, right in zip(STYLES[::2], STYLES[1::2]):
        choose(opened, left.__name__, right.__name__)
        both = [expected(s, layer, x, mask, monkeypatch) for s in (left, right)]
        for step in STEPS:
            go(opened, step)
            for shown, wanted in zip(sides(opened), both):
                agree(shown, wanted[step])


def test_without_a_mask_there_is_one_step_less(live, layer, x, monkeypatch):
    opened = live(versions(x, layer))
    for left, right in zip(STYLES[::2], STYLES[1::2]):
        choose(opened, left.__name__, right.__name__)
        assert list(marks(opened)) == [step for step in STEPS if step != "mask"]
        both = [expected(s, layer, x, None, monkeypatch) for s in (left, right)]
        for step in ("weights", "output"):
            go(opened, step)
            for shown, wanted in zip(sides(opened), both):
                agree(shown, wanted[step])


def test_all_pairs_agree_in_every_step(live, layer, x, mask):
    opened = live(versions(x, layer, mask))
    for left, right in permutations(NAMES, 2):
        choose(opened, left, right)
        assert marks(opened) == dict.fromkeys(STEPS, "="), (left, right)
        assert opened.text(VERDICT).startswith(SAME)


SHAPES = {  # of the queries, and of the scores
    "PerHeadMHA": (
        "3 tensors (B, T, D) = (2, 5, 4)",
        "3 tensors (B, T, S) = (2, 5, 5)",
    ),
    "BatchedMHA": ("(B, H, T, D) = (2, 3, 5, 4)", "(B, H, T, S) = (2, 3, 5, 5)"),
    "FusedMHA": ("(B, H, T, D) = (2, 3, 5, 4)", "(B, H, T, S) = (2, 3, 5, 5)"),
    "EinsumMHA": ("(T, B, H, D) = (5, 2, 3, 4)", "(T, S, B, H) = (5, 5, 2, 3)"),
    "BuiltinMHA": ("(B·H, T, D) = (6, 5, 4)", "(B·H, T, S) = (6, 5, 5)"),
    "SplitConcatMHA": ("(H·B, T, D) = (6, 5, 4)", "(H·B, T, S) = (6, 5, 5)"),
}


def test_shapes_are_written_in_letters_and_numbers(live, layer, x):
    opened = live(versions(x, layer))
    for style, shapes in SHAPES.items():
        choose(opened, style)
        for step, shape in zip(("split q", "scores"), shapes):
            go(opened, step)
            assert opened.text(".mha-shape >> nth=0").endswith(f"· {shape}")


AXES = [
    ("BatchedMHA", "EinsumMHA", "split q", "bhtd ↔ tbhd."),
    ("BatchedMHA", "SplitConcatMHA", "split k", "bhsd ↔ nsd, where n = h·B + b."),
    ("PerHeadMHA", "BuiltinMHA", "scores", "bts for each h ↔ nts, where n = b·H + h."),
    ("EinsumMHA", "FusedMHA", "weights", "tsbh ↔ bhts."),
    ("BatchedMHA", "BuiltinMHA", "merge", "n = t·B + b"),
    ("BatchedMHA", "FusedMHA", "project", "bte for each of q, k, v ↔ btc"),
    (
        "BatchedMHA",
        "FusedMHA",
        "project",
        "c = r·E + h·D + d; r = 0, 1, 2 for q, k, v.",
    ),
]


def test_a_line_says_how_the_axes_map(live, layer, x):
    opened = live(versions(x, layer))
    for left, right, step, axes in AXES:
        choose(opened, left, right)
        go(opened, step)
        assert axes in opened.text(".mha-axes")


MISTAKES = {
    "W_q and W_k exchanged": "project",
    "scale 1/√E, not 1/√D": "scores",
    "features interleaved": "merge",
}
TITLES = dict(zip(MISTAKES, ("exchange q, k", "wrong scale", "interleave")))


def test_a_mistake_shows_where_it_is_made_and_in_no_shape(live, layer, x):
    opened = live(versions(x, layer))
    for mistake, (step, style) in zip(MISTAKES, zip(MISTAKES.values(), NAMES[::2])):
        choose(opened, right=style)
        go(opened, step)
        shape = opened.text(".mha-shape >> nth=1")
        opened.press(TITLES[mistake])
        assert opened.text(".mha-shape >> nth=1") == shape
        assert f"Mistake on the right: {mistake}." in opened.text(
            ".mha-version >> nth=1"
        )
        assert "Mistake" not in opened.text(".mha-version >> nth=0")
        said = opened.text(VERDICT)
        assert said.startswith("≠ Here the numbers part: ")
        opened.press("no mistake")
    for mistake, first in MISTAKES.items():
        opened.press(TITLES[mistake])
        for style in NAMES:
            choose(opened, right=style)
            found = marks(opened)
            assert next(step for step, mark in found.items() if mark == "≠") == first
            assert found["output"] == "≠"


def test_mistakes_give_the_numbers_of_wrong_modules(live, layer, x):
    opened = live(versions(x, layer))
    opened.press("exchange q, k")
    wrong = convert(layer, BatchedMHA)
    wrong.q_proj, wrong.k_proj = wrong.k_proj, wrong.q_proj
    go(opened, "output")
    agree(sides(opened)[1], {"output": wrong(x)[0].transpose(0, 1)})

    opened.press("wrong scale")
    go(opened, "output")
    wrong = convert(layer, BatchedMHA)
    for parameter in wrong.q_proj.parameters():
        parameter.data *= (D / E) ** 0.5
    agree(sides(opened)[1], {"output": wrong(x)[0].transpose(0, 1)})

    opened.press("interleave")
    go(opened, "output")
    wrong = convert(layer, BatchedMHA)
    weight = wrong.out_proj.weight.data
    weight.copy_(weight.unflatten(1, (D, H)).transpose(1, 2).flatten(1))
    agree(sides(opened)[1], {"output": wrong(x)[0].transpose(0, 1)})


WRONG = {  # {mistake: what stands in the code of BatchedMHA, and of FusedMHA}
    "exchange q, k": ("= self.k_proj(query), self.q_proj(key)", "# rows of W_k first"),
    "wrong scale": ("(q * E**-0.5) @ k", "(q * E**-0.5) @ k"),
    "interleave": (".transpose(-1, -2).flatten(-2)", ".transpose(-1, -2).flatten(-2)"),
}


@pytest.mark.parametrize("title", WRONG)
def test_the_code_on_the_right_has_the_mistake(live, layer, x, title):
    opened = live(versions(x, layer))
    opened.press(title)
    for style, part in zip(("BatchedMHA", "FusedMHA"), WRONG[title]):
        choose(opened, left=style, right=style)
        left, right = opened.texts("pre code")
        assert part in right and part not in left, style


def test_the_interleaving_that_is_shown_is_the_one_that_is_computed(live, layer, x):
    opened = live(versions(x, layer))
    opened.press("interleave")
    code = opened.root_element.locator("pre code").nth(1).inner_text()
    context = torch.arange(48.0).view(4, 2, 2, 3)  # (T, B, H, D) of EinsumMHA
    names = {"context": context, "H": 2, "D": 3}
    exec(code, names)
    assert torch.equal(names["merged"], context.mT.flatten(-2))


def test_other_shapes_and_the_same_numbers_come_first(live, layer, x):
    opened = live(versions(x, layer))
    assert opened.text(VERDICT) == SAME + " Other shapes are fine."
    opened.press("no mistake")
    assert opened.text(VERDICT) == SAME + " Other shapes are fine."
    choose(opened, right="BatchedMHA")
    assert opened.text(VERDICT) == SAME


@pytest.mark.parametrize("screen", MOST)
def test_all_of_a_block_is_in_sight(live, layer, x, screen):
    opened = live(versions(x, layer), viewport=MOST[screen][0])
    for title in TITLES.values():
        opened.press(title)
        for step in marks(opened):
            go(opened, step)
            beyond = opened.measure_all(
                ".mha-map", "all => all.map(x => x.scrollHeight - x.clientHeight)"
            )
            assert beyond == [0, 0], (title, step)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("title", ["no mistake", *TITLES.values()])
@pytest.mark.parametrize("screen", MOST)
def test_every_step_fits_one_screen(live, title, screen):
    parameters = BatchedMHA(12, 3).state_dict()  # as large as chapter 9's
    widget = VersionsSideBySide(torch.randn(2, 5, 12), parameters, 3)
    viewport, most = MOST[screen]
    opened = live(widget, viewport=viewport, folded=True)
    opened.press(title)
    for step in marks(opened):
        go(opened, step)
        assert opened.box()["height"] <= most, step


def test_a_row_names_its_step_and_both_shapes(live, layer, x):
    opened = live(versions(x, layer))
    assert opened.text(".mha-tries").startswith("Mistake:")
    opened.press("interleave")
    rows = opened.root_element.locator(".mha-steps button")
    assert (
        rows.nth(0).get_attribute("aria-label") == "x = left (B, T, E), right (T, B, E)"
    )
    assert rows.nth(8).inner_text().split("\n") == [
        "merge",
        "(B, T, E)",
        "≠",
        "(T, B, E)",
    ]
    sides = [opened.control(name) for name in ("left", "right")]
    middles = [box["x"] + box["width"] / 2 for box in (x.bounding_box() for x in sides)]
    for at, middle in zip((1, 3), middles):  # a style stands above its shapes
        box = rows.nth(0).locator("> *").nth(at).bounding_box()
        assert box["x"] <= middle <= box["x"] + box["width"]


def test_what_to_try(live, layer, x):
    opened = live(versions(x, layer))
    titles = ("exchange q, k", "wrong scale", "interleave")
    for title, step in zip(titles, MISTAKES.values()):
        opened.press(title)
        assert opened.pressed(title)
        assert opened.text(VERDICT).startswith("≠ Here the numbers part: ")
        pressed = opened.root_element.locator(".mha-steps [aria-pressed=true]")
        assert pressed.inner_text().split("\n")[0] == step
        colour = pressed.locator("b").evaluate("x => getComputedStyle(x).color")
        assert colour == "rgb(179, 18, 43)"  # --mha-wrong
    opened.press("reset")
    assert set(marks(opened).values()) == {"="}


def test_a_mistake_stays_in_sight_while_stepping(live, layer, x):
    opened = live(versions(x, layer))
    opened.press("exchange q, k")
    told = "Mistake on the right: W_q and W_k exchanged."
    assert told in opened.text(".mha-version >> nth=1")
    told = "Mistake in “project”: W_q and W_k exchanged."  # not in these rows
    first = opened.root_element.locator(".mha-steps [data-first=true]")
    for step in STEPS[2:5]:
        go(opened, step)
        said = opened.text(".mha-version >> nth=1")
        assert told in said and "in “project”" in opened.text(VERDICT)
        pressed = opened.button("exchange q, k").get_attribute("aria-pressed")
        assert pressed == "true" and first.all_inner_texts()[0].startswith("project")
    go(opened, "scores")
    assert opened.text(VERDICT).startswith("≠ They parted in “project”: ")
    go(opened, "x")
    assert opened.text(VERDICT) == SAME + " They part in “project”."
    opened.press("reset")
    assert first.count() == 0
    assert opened.root_element.locator(".mha-warning:visible").count() == 0


ORANGE = """canvas => {
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d");
    copy.drawImage(canvas, 0, 0);
    const all = copy.getImageData(0, 0, width, height).data;
    const rows = new Set();
    for (let i = 0; i < all.length; i += 4) {
        const [r, g, b] = all.slice(i, i + 3);
        const y = Math.floor(i / 4 / width);
        if (r === 179 && g === 71 && b === 0 && y > 28) rows.add(y);
    }
    return Math.max(...rows) - Math.min(...rows);
}"""


def test_a_mistake_opens_where_the_two_differ_most(live, layer, x):
    """One block of each side, and how many numbers differ."""
    opened = live(versions(x, layer))
    opened.press("wrong scale")
    for step in ("scores", "weights", "output"):
        go(opened, step)
        rows = opened.table("Every element as a table")[1:]
        left, right = (torch.tensor([number(r[i]) for r in rows]) for i in (2, 4))
        apart = (right - left).abs()
        worst = apart.argmax()
        said = opened.text(LINE)
        assert said.startswith("Outlined, where they differ most, by ")
        numbers = re.search(r"= (\S+), right .*= (\S+)\.$", said).groups()
        found = [number(one) for one in numbers]
        assert abs(found[1] - found[0]) == pytest.approx(float(apart[worst]), abs=2e-4)
        assert f"{len(rows)} of {len(rows)} differ." in opened.text(VERDICT)
    go(opened, "x")  # nothing to compare
    assert opened.text(LINE).startswith("Outlined: ")


def test_the_repair_is_seen_where_the_mistake_was(live, layer, x):
    opened = live(versions(x, layer))
    for title in TITLES.values():
        opened.press(title)
        outlined = re.search(r"by \S+: (.+?)\. Left", opened.text(LINE))[1]
        left = opened.pixels(at=0)
        opened.press("no mistake")
        assert f"Outlined: {outlined}. Left" in opened.text(LINE)
        assert opened.pixels(at=0) != left  # its red corners are gone


def test_the_letters_of_the_shapes_are_explained_below_them(live, layer, x):
    opened = live(versions(x, layer), folded=True)
    said = opened.root_element.get_by_text("H heads of D numbers, E = H·D")
    assert said.is_visible()


def test_a_new_mistake_is_outlined_where_it_is_largest(live, layer, x):
    opened = live(versions(x, layer))
    opened.press("wrong scale")
    seen = []
    for key in ("Home", "End"):
        opened.root_element.locator(".mha-map").first.press(key)
        seen.append(opened.text(LINE))
    assert any(text.startswith("Outlined: ") for text in seen)
    opened.press("interleave")
    assert opened.text(LINE).startswith("Outlined, where they differ most, by ")


def test_where_two_differ_both_are_laid_out_as_the_left(live, layer, x):
    """The numbers of each side, not their difference: so visitors read them."""
    opened = live(versions(x, layer))
    opened.page.evaluate(
        """() => { window.written = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                window.written.push(text); write.call(this, text, ...rest); }; }"""
    )
    opened.press("wrong scale")
    written = opened.page.evaluate("window.written")
    heads = [i for i, text in enumerate(written) if "·" in text]
    left, right = (written[i] for i in heads)
    b, h = map(int, re.fullmatch(r"left · b(\d) h(\d)", left).groups())
    assert right == left.replace("left", "right")
    q, k = layer.q_proj(x), layer.k_proj(x)
    q, k = (y.unflatten(-1, (H, D))[b, :, h] for y in (q, k))
    cells = [x for x in written[heads[1] :] if "." in x]
    shown = torch.tensor([number(x) for x in cells])
    torch.testing.assert_close(
        shown, (q @ k.mT / E**0.5).flatten().float(), atol=0.06, rtol=0
    )


def test_page_keys_lead_from_the_block_that_differs_to_the_others(live, layer, x):
    opened = live(versions(x, layer))
    opened.press("wrong scale")
    frame = opened.root_element.locator(".mha-map").nth(1)
    frame.focus()
    for _ in range(9):
        opened.page.keyboard.press("PageUp")
    before = opened.pixels(at=1)
    assert ": b = 0, h = 0, " in opened.text(LINE)
    opened.page.keyboard.press("PageDown")
    assert ": b = 0, h = 1, " in opened.text(LINE) and opened.pixels(at=1) != before


def test_the_outlined_cell_alone_is_orange(live, layer, x):
    """Below the headings: nothing that no word on the page explains."""
    opened = live(versions(x, layer), viewport={"width": 704, "height": 800})
    opened.press("wrong scale")
    canvas = opened.root_element.locator(".mha-map canvas").first
    assert 10 < canvas.evaluate(ORANGE) < 30  # pixels: the height of one cell


def test_numbers_that_differ_are_marked_on_both_sides(live, layer, x):
    opened = live(versions(x, layer, right="BatchedMHA"))
    opened.press("interleave")
    red = """canvas => {
        const { width, height } = canvas;
        const copy = new OffscreenCanvas(width, height)
            .getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const all = copy.getImageData(0, 0, width, height).data;
        let count = 0;
        for (let i = 0; i < all.length; i += 4) {
            count += all[i] === 179 && all[i + 1] === 18 && all[i + 2] === 43;
        }
        return count;
    }"""
    canvases = opened.root_element.locator(".mha-map canvas").all()
    left, right = (canvas.evaluate(red) for canvas in canvases)
    assert left == right > 0
    opened.press("no mistake")
    assert [canvas.evaluate(red) for canvas in canvases] == [0, 0]


# --- hands --------------------------------------------------------------------------


def test_keyboard_moves_the_element_on_both_sides(live, layer, x):
    opened = live(versions(x, layer, tokens=list("abcde")))
    left = opened.root_element.locator(".mha-map").nth(0)
    left.focus()
    for key, (b, h, t, d) in [
        ("Home", (0, 1, 2, 0)),
        ("ArrowDown", (0, 1, 3, 0)),
        ("ArrowRight", (0, 1, 3, 1)),
        ("End", (0, 1, 3, 3)),
        ("ArrowRight", (0, 1, 3, 3)),
        ("PageDown", (0, 2, 3, 3)),
        ("PageDown", (1, 0, 3, 3)),
        ("PageUp", (0, 2, 3, 3)),
        ("ArrowUp", (0, 2, 2, 3)),
        ("ArrowLeft", (0, 2, 2, 2)),
    ]:
        before = [opened.pixels(at=side) for side in (0, 1)]
        opened.page.keyboard.press(key)
        said = opened.text(LINE)
        q = layer.q_proj(x)[b, t, h * D + d]
        value = f"{float(q):.4f}".replace("-", "−")
        assert f"b = {b}, h = {h}, t = {t} “{'abcde'[t]}”, d = {d}." in said
        assert f"Left q[{b}, {h}, {t}, {d}] = {value}" in said
        assert f"right q[{t}, {b}, {h}, {d}] = {value}." in said
        after = [opened.pixels(at=side) for side in (0, 1)]
        moved = [a != b for a, b in zip(before, after)]
        assert moved == [key != "ArrowRight" or d != 3] * 2 or (key, d) == ("End", 3)


def test_mouse_moves_the_element_on_both_sides(live, layer, x):
    widget = versions(x, layer)
    widget.h = widget.t = 0  # in sight, without scrolling
    opened = live(widget)
    right = opened.root_element.locator(".mha-map canvas").nth(1).bounding_box()
    before = opened.pixels(at=0)
    opened.page.mouse.move(right["x"] + 24, right["y"] + 34)  # the first cell
    assert "b = 0, h = 0, t = 0 “0”, d = 0." in opened.text(LINE)
    assert opened.pixels(at=0) != before


def test_an_element_keeps_its_place_from_step_to_step(live, layer, x):
    opened = live(versions(x, layer))
    for step, element in [
        ("x", "query[0, 2, 5]"),
        ("split q", "q[0, 1, 2, 1]"),
        ("context", "context[0, 1, 2, 1]"),
        ("merge", "merged[0, 2, 5]"),
    ]:
        go(opened, step)
        assert f"Left {element} =" in opened.text(LINE)
    opened.root_element.locator(".mha-map").nth(0).focus()
    opened.page.keyboard.press("End")  # the last feature is the last of the last head
    go(opened, "context")
    assert f"Left context[0, {H - 1}, 2, {D - 1}]" in opened.text(LINE)


def test_a_press_on_a_row_opens_its_step(live, layer, x):
    opened = live(versions(x, layer))
    code = ".mha-version >> nth=1 >> code"
    assert opened.text(code) == "q = q.unflatten(-1, (H, D))"
    before = opened.pixels()
    rows = opened.root_element.locator(".mha-steps button")
    rows.nth(10).press("Enter")
    assert opened.text(code) == "weights.permute(2, 3, 0, 1)"
    assert opened.pixels() != before
    assert rows.nth(10).get_attribute("aria-pressed") == "true"
    opened.press("reset")
    assert opened.text(code) == "q = q.unflatten(-1, (H, D))"


def test_styles_by_keyboard(live, layer, x):
    opened = live(versions(x, layer))
    before = opened.pixels()
    opened.control("left").focus()
    opened.page.keyboard.press("End")
    assert "torch.cat(q.split" in opened.text(".mha-version >> nth=0 >> code")
    assert opened.pixels() != before


def test_query_key_and_value_of_the_code_are_coloured(live, layer, x):
    opened = live(versions(x, layer))
    opened.select("left", "BatchedMHA")
    opened.select("right", "FusedMHA")
    opened.root_element.get_by_role("button", name=re.compile("^project")).click()
    parts = opened.root_element.locator(".mha-version >> nth=0 >> code span")
    names = [(x.get_attribute("class")[-1], x.inner_text()) for x in parts.all()]
    of_inputs = [(name[0], name) for name in ("query", "key", "value")]
    assert {*names} == {(x, y) for x in "qkv" for y in (x, f"{x}_proj")} | {*of_inputs}
    whole = opened.text(".mha-version >> nth=0 >> code")
    assert whole == STEP_OF_BATCHED
    fused = opened.root_element.locator(".mha-version >> nth=1 >> code")
    assert "qkv" not in [x.inner_text() for x in fused.locator("span").all()]


def test_nothing_for_axe_to_find(live, layer, x, mask):
    opened = live(versions(x, layer, mask))
    opened.press("wrong scale")
    go(opened, "scores")
    opened.table(TABLE)
    assert opened.faults() == []


def test_fits_a_small_phone_and_stacks(live, layer, x, mask):
    widget = versions(x, layer, mask, left="PerHeadMHA", right="BuiltinMHA")
    opened = live(widget, viewport={"width": 320, "height": 640})
    for step in STEPS:
        go(opened, step)
        assert opened.width() == 320
    first, second = (
        x.bounding_box() for x in opened.root_element.locator(".mha-version").all()
    )
    assert second["y"] >= first["y"] + first["height"]


BAD_STATE = [
    ("x", [], "even length"),
    ("x", [[[1.0, float("nan")]]], "not a finite number"),
    ("x", [[[1.0, 2.0], [1.0]]], "even length"),
    ("x", [[[0.0] * 17]], "6 tokens and 16 features; x has 1, 1 and 17"),
    ("num_heads", 5, "must divide E = 12"),
    ("num_heads", 6, "at most 4 heads"),
    ("num_heads", 0, "must divide E = 12"),
    ("matrices", [[[1.0]]], "matrices must have the shape (4, 12, 12)"),
    ("biases", [[1.0]], "biases must have the shape (4, 12)"),
    ("mask", [[True]], "mask must have the shape (2, 5, 5)"),
    ("tokens", [["a"]], "one label"),
    ("left", "OurMHA", "no style “OurMHA”"),
    ("mistake", "typo", "no mistake “typo”"),
]


def test_bad_state_is_a_sentence(live, layer, x):
    assert_says(live, lambda: versions(x, layer), BAD_STATE)


# --- Python -------------------------------------------------------------------------


def test_too_large_is_reduced_and_says_so(live, layer):
    widget = versions(torch.randn(4, 7, E), layer, torch.ones(4, 7, 7) > 0)
    assert repr(widget) == (
        "VersionsSideBySide(BatchedMHA and EinsumMHA, B = 2, T = 6, E = 12, H = 3)"
    )
    opened = live(widget)
    assert "first 2 sequences and 6 tokens" in opened.text(".mha-warning >> nth=0")
    assert "(2, 3, 6, 4)" in opened.text(".mha-version >> nth=0")


def test_a_bias_that_is_missing_is_zero(x):
    without = BatchedMHA(E, H, bias=False)
    widget = VersionsSideBySide(x, without.state_dict(), H)
    assert widget.biases == [[0.0] * E] * 4


def test_masks_of_both_ranks(x, layer, mask):
    assert versions(x, layer, mask[0]).mask == [mask[0].tolist()] * B
    padding = mask[:, :1]
    assert versions(x, layer, padding).mask == padding.expand(B, T, T).tolist()


def test_still_holds_the_queries_of_both_styles(x, layer):
    figure = versions(x, layer, left="EinsumMHA", right="PerHeadMHA").still()
    left, right = figure.axes
    q = layer.q_proj(x).unflatten(-1, (H, D))  # (B, T, H, D)
    for ax, blocks in (
        (left, q.permute(1, 0, 2, 3)),  # t, b: h × d
        (right, q.permute(2, 0, 1, 3)),  # h, b: t × d
    ):
        shown = [torch.tensor(image.get_array()) for image in ax.images]
        wanted = blocks.flatten(0, 1).float()
        torch.testing.assert_close(torch.stack(shown), wanted, atol=1e-4, rtol=0)


def test_each_sequence_may_have_words_of_its_own(x, layer):
    words = [[f"{b}{t}" for t in range(T)] for b in range(B)]
    widget = VersionsSideBySide(x, convert(layer, "separate"), H, tokens=words)
    assert widget.tokens == words
    with pytest.raises(ValueError, match="each row of tokens must be 5 labels"):
        VersionsSideBySide(
            x, convert(layer, "separate"), H, tokens=[words[0], words[1][1:]]
        )


def test_bad_arguments_name_the_requirement(x, layer):
    good = convert(layer, "separate")
    for change, message in [
        ({"x": x[0]}, r"x must be \(B, T, E\)"),
        ({"x": torch.full((B, T, E), torch.nan)}, "finite"),
        ({"x": torch.zeros(1, 2, 18)}, "E must be at most 16"),
        ({"num_heads": 6}, "num_heads at most 4"),
        ({"num_heads": -5}, "num_heads must divide E = 12"),
        ({"num_heads": 0}, "num_heads must divide"),
        ({"parameters": {}}, "missing"),
        ({"parameters": good | {"w": 0}}, r"unknown \['w'\]"),
        ({"parameters": good | {"k_proj.bias": x[0, 0, :3]}}, "k_proj must hold"),
        ({"x": torch.zeros(1, 2, 6)}, "q_proj must hold a weight"),
        ({"tokens": ["a"]}, "tokens must be 5 labels"),
        ({"tokens": [["a"] * T]}, "2 lists"),
        ({"mask": torch.ones(3, T, T) > 0}, "mask must be"),
        ({"mask": torch.ones(B, H, T, T) > 0}, "mask must be"),
        ({"left": "MHA"}, "a style is PerHeadMHA"),
    ]:
        arguments = {"x": x, "parameters": good, "num_heads": H} | change
        with pytest.raises(ValueError, match=message):
            VersionsSideBySide(**arguments)
    with pytest.raises(TypeError, match="must be boolean"):
        VersionsSideBySide(x, good, H, mask=torch.ones(T, T))


def test_the_lead_says_what_to_press_next(live, layer, x):
    opened = live(versions(x, layer))
    assert opened.text(".mha-lead") == "Other code, other shapes, the same numbers."
    opened.press("wrong scale")
    assert opened.text(".mha-lead") == "Equal above the red row. Press “no mistake”."
    opened.press("no mistake")
    assert opened.text(".mha-lead") == "Press a row, or another mistake."
    opened.press("interleave")
    assert opened.text(".mha-lead") == "Equal above the red row. Press another row."
    opened.press("reset")
    choose(opened, right="BatchedMHA")
    assert opened.text(".mha-lead") == "One program twice: choose another one."


# Of each number how wide it is drawn, how wide its cell is and how high it begins;
# of each corner how far down it reaches.
DIGITS = """() => {
    const pen = CanvasRenderingContext2D.prototype;
    const { fillText, fillRect, lineTo } = pen;
    Object.assign(window, { digits: [], corners: [] });
    let cell = null;
    pen.fillRect = function (x, y, width, height) {
        cell = { x, y, width };
        return fillRect.call(this, x, y, width, height);
    };
    pen.fillText = function (text, x, y, most) {
        const size = this.measureText(text);
        if (text.includes('.')) window.digits.push([
            Math.min(size.width, most ?? Infinity), cell.width,
            y - size.actualBoundingBoxAscent - cell.y]);
        return fillText.call(this, text, x, y, most);
    };
    pen.lineTo = function (x, y) {
        if (cell && x === cell.x + cell.width) window.corners.push(y - cell.y);
        return lineTo.call(this, x, y);
    };
}"""


@pytest.mark.parametrize("screen", MOST)
def test_neither_a_corner_nor_the_outline_cuts_a_digit(live, screen):
    parameters = BatchedMHA(12, 3).state_dict()  # as large as chapter 9's
    x = 3 * torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))
    opened = live(VersionsSideBySide(x, parameters, 3), viewport=MOST[screen][0])
    opened.page.evaluate(DIGITS)
    opened.press("wrong scale")
    digits, corners = opened.page.evaluate("[window.digits, window.corners]")
    assert len(digits) > 40 and max(corners) > 2
    for width, cell, top in digits:
        assert width <= cell - 3  # an outline takes a pixel on each side
        assert top >= max(corners) - 0.5
        assert cell + 1 >= 30 or screen == "phone"


def test_steps_that_are_equal_are_laid_out_alike(live, layer, x):
    opened = live(versions(x, layer))
    opened.page.evaluate(
        """() => { window.written = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (...all) {
                window.written.push(all[0]); write.apply(this, all); }; }"""
    )
    for step in ("x", "project", "split q", "scores"):
        opened.page.evaluate("window.written = []")
        go(opened, step)
        written = opened.page.evaluate("window.written")
        places = {x[:5]: i for i, x in enumerate(written) if "·" in x}  # the last ones
        left, right = written[places["left "] :], written[places["right"] :]
        assert len(right) > 20, step
        assert [x.replace("left", "right") for x in left[: -len(right)]] == right, step
    shapes = opened.texts(".mha-shape")
    assert shapes[0] != shapes[1].replace("right", "left")  # each has its own


@pytest.mark.parametrize("screen", MOST)
def test_few_controls_are_in_sight(live, layer, x, screen):
    """Mistakes, the steps of two styles, and what is seldom needed."""
    opened = live(versions(x, layer), viewport=MOST[screen][0], folded=True)
    groups = opened.root_element.locator(
        ".mha-tries, .mha-programs .mha-list, .mha-more"
    )
    assert groups.count() == 3
    others = opened.measure_all(
        "button, select, input",
        """all => all.filter(x => x.checkVisibility() && !x.closest(
            '.mha-tools, .mha-tries, .mha-list, .mha-more')).length""",
    )
    assert others == 0
    for row in opened.root_element.locator(".mha-steps button").all():
        assert row.bounding_box()["height"] >= 24  # what a finger hits


def test_wide_blocks_stand_below_each_other_on_a_desk(live, layer, x):
    for screen, stacked in (("desk", True), ("phone", False)):
        opened = live(versions(x, layer), viewport=MOST[screen][0])
        for title, wide in (("interleave", stacked), ("wrong scale", False)):
            opened.press(title)
            maps = opened.root_element.locator(".mha-map").all()
            left, right = (one.bounding_box() for one in maps)
            assert (right["y"] > left["y"]) == wide, (screen, title)


def test_a_block_that_gets_another_width_is_drawn_once(live):
    parameters = BatchedMHA(12, 3).state_dict()
    x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))
    opened = live(VersionsSideBySide(x, parameters, 3))
    opened.page.evaluate(
        """() => { window.heads = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                if (text.includes('·')) window.heads.push(text);
                write.call(this, text, ...rest); }; }"""
    )
    grids = opened.root_element.locator(".mha-grids")
    stacked = grids.get_attribute("data-stacked")
    opened.press("exchange q, k")
    assert grids.get_attribute("data-stacked") != stacked
    assert len(opened.page.evaluate("window.heads")) == 2


def test_an_act_is_answered_before_its_pictures_are_drawn(live, layer, x):
    """In each frame: the verdict's mark, and whether each picture is a new one."""
    seen = live(versions(x, layer)).root_element.evaluate(
        """async root => {
        const all = selector => [...root.querySelectorAll(selector)];
        const pictures = () => all("canvas").map(x => x.toDataURL());
        const [before, found] = [pictures(), []];
        all("button").find(x => x.textContent === "interleave").click();
        do {
            await new Promise(requestAnimationFrame);
            found.push([root.querySelector(".mha-open .mha-readout").textContent[0],
                ...pictures().map((x, i) => x !== before[i])]);
        } while (root.ariaBusy === "true");
        return found;
    }"""
    )
    assert seen == [["≠", False, False], ["≠", True, False], ["≠", True, True]]
