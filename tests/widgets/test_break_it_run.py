"""Six programs and their mistakes: the page's numbers are those of the code it shows.

The code is run in torch, line by line, and its result is what the reference of `check`
gives with the same mistake.
"""

import json
import math
from functools import cache

import pytest
import torch
from torch.nn.functional import normalize

from mha_lib.styles import STYLES
from mha_lib.widgets.break_it_catalogue import HOSTED, layer_with, mask_with

B, T, H, D = 2, 5, 3, 4
E = H * D
SIZES = {"B": B, "T": T, "S": T, "H": H, "D": D, "E": E}
LENGTHS = [5, 3]
NAMES = [style.__name__ for style in STYLES]
INFINITE = ("log-softmax", "no-softmax")  # −∞ meets the values: no number is left
VARIABLES = {
    "mask": ["mask"],
    "project": ["q", "k", "v"],
    "split": ["q", "k", "v"],
    "scores": ["scores"],
    "hide": ["scores"],
    "weights": ["weights"],
    "context": ["context"],
    "merge": ["merged"],
    "output": ["output"],
}
RUN = """async ([names, styles, data, three]) => {
    const { stepsOf, inOrder } = await import("/break_it_run.js");
    const { WRONG } = await import("/break_it_mistakes.js");
    const { programOf } = await import("/break_it_code.js");
    const { elements, tensor } = await import("/tensor.js");
    const { shapeOf } = await import("/arithmetic.js");
    const read = x => tensor(x.flat(Infinity), shapeOf(x));
    const inputs = data.inputs.map(read);
    const p = { ...data, inputs: three ? inputs : inputs.map(() => inputs[0]),
        matrices: data.matrices.map(read), biases: data.biases.map(read) };
    const found = {};
    for (const style of styles) for (const name of names) {
        const wrong = name && WRONG[name];
        const steps = Object.entries(stepsOf(style, wrong, p));
        found[`${style} ${name}`] = [programOf(style, wrong, three),
            Object.fromEntries(steps.map(([step, { parts }]) => [step,
                Object.values(parts).map(x => [x.shape, elements(x).map(String)])]))];
    }
    return JSON.stringify(found); // one text: a million values take minutes
}"""


@pytest.fixture(scope="module")
def data() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.6

    return {"inputs": draw(3, B, T, E), "matrices": draw(4, E, E), "biases": draw(4, E)}


@pytest.fixture(scope="module")
def found(scripts, data):
    """{(three, style and mistake): [code, steps]}, computed in the page."""
    given = {name: x.tolist() for name, x in data.items()}
    given |= SIZES | {"lengths": LENGTHS}
    both = {}
    for three in (True, False):
        asked = [["", *HOSTED], NAMES, given, three]
        both |= {
            (three, x): y for x, y in json.loads(scripts.evaluate(RUN, asked)).items()
        }
    return both


def room(style: str, data: dict, three: bool) -> dict:
    """The names that the lines of a style may use."""
    x = data["inputs"] if three else data["inputs"][:1].expand(3, -1, -1, -1)
    names = {"lengths": torch.tensor(LENGTHS), "inf": math.inf} | SIZES
    names |= {"ones": torch.ones, "arange": torch.arange, "normalize": normalize}
    names |= {"cat": torch.cat, "stack": torch.stack, "einsum": torch.einsum}
    names |= dict(zip(("query", "key", "value"), x))
    for role, W, b in zip("qkvo", data["matrices"], data["biases"]):
        names |= {f"W_{role}": W, f"b_{role}": b}
    names |= {"W_qkv": data["matrices"][:3].flatten(0, 1)}
    names |= {"b_qkv": data["biases"][:3].flatten()}
    if style == "PerHeadMHA":
        for role in "qkv":
            names[f"W_{role}"] = names[f"W_{role}"].unflatten(0, (H, D))
            names[f"b_{role}"] = names[f"b_{role}"].unflatten(0, (H, D))
    return names


def executed(style, code, data, three) -> dict[str, list[torch.Tensor]]:
    """What the variables of each step hold after its lines."""
    names, steps = room(style, data, three), {}
    for step, lines in code.items():
        exec("\n".join(lines), names)
        steps[step] = [
            x if isinstance(x, torch.Tensor) else torch.stack(list(x))
            for x in (names[name] for name in VARIABLES[step])
        ]
    return steps


@pytest.fixture(scope="module")
def ran(found, data):
    """What a program's variables hold; two tests ask for it, and it runs once."""

    @cache
    def run(three: bool, style: str, name: str) -> dict[str, list[torch.Tensor]]:
        return executed(style, found[three, f"{style} {name}"][0], data, three)

    return run


def shown(steps: dict) -> dict[str, list[torch.Tensor]]:
    return {
        step: [
            torch.tensor([float(x) for x in cells], dtype=torch.float64).view(shape)
            for shape, cells in parts
        ]
        for step, parts in steps.items()
    }


def close(found: torch.Tensor, wanted: torch.Tensor, *where: object):
    torch.testing.assert_close(found, wanted, msg=lambda m: f"{where}: {m}")


@pytest.mark.parametrize("style", NAMES)
def test_the_page_computes_what_its_code_does(found, ran, style):
    for name in ("", *HOSTED):
        code, steps = found[True, f"{style} {name}"]
        right = ran(True, style, name)
        numbers = shown(steps)
        for step, wanted in right.items():
            if name in INFINITE and step in ("context", "merge", "output"):
                continue
            for a, b in zip(numbers[step], wanted, strict=True):
                close(a, b.double(), style, name, step, code)


def batch_first(style: str, output: torch.Tensor) -> torch.Tensor:
    return output.transpose(0, 1) if style == "EinsumMHA" else output


@pytest.mark.parametrize("three", [True, False])
def test_the_code_is_the_reference_with_the_mistake(found, data, ran, three):
    W = dict(zip(["W_q", "W_k", "W_v", "W_o"], data["matrices"]))
    W |= dict(zip(["b_q", "b_k", "b_v", "b_o"], data["biases"]))
    x = data["inputs"] if three else data["inputs"][:1].expand(3, -1, -1, -1)
    for name in ("", *HOSTED):
        mask = mask_with(name, SIZES, torch.tensor(LENGTHS))
        wanted = layer_with(name, SIZES, tuple(x), W, mask)
        for style in NAMES:
            code, steps = found[three, f"{style} {name}"]
            got = ran(three, style, name)
            output = batch_first(style, got["output"][0])
            if name not in INFINITE:
                close(output, wanted["output"], style, name, code)
