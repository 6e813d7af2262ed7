"""The language model of the page computes what torch computes of the same numbers."""

import pytest
import torch

from mha_lib.model.heads import removed
from mha_lib.model.kept import load_kept
from mha_lib.model.quantised import read_packed, unpack

# Float32 rounds at about 1e-7 of sums of up to 256 products, three layers deep; the
# page computes in float64.
CLOSE = {"atol": 2e-4, "rtol": 1e-4}
TEXTS = {
    "a bracket": "foo[bar, baz",
    "one token": "the",
    "a paragraph": 'The "with" statement is used to wrap the execution of a block '
    "with methods defined by a context manager.\n\n   x = [1, 2, 3]\n",
}
READ = """async ([text, tokens, heads]) => {
    const { unpackModel } = await import("/packed_model.js");
    const run = await import("/model_run.js");
    window.unpackedModel ??= unpackModel(text);
    const runner = run.makeRunner(window.unpackedModel, heads);
    const whole = runner.read(tokens);
    return {
        logits: whole.map(x => [...x.logits]),
        maps: whole.map(x => x.maps.map(row => [...row])),
        loss: run.lossOf(whole),
    };
}"""


@pytest.fixture(scope="module")
def tokenizer():
    return load_kept()[1]


@pytest.fixture(scope="module")
def model():
    return unpack()


@pytest.fixture(scope="module")
def packed():
    return read_packed()[1]


@torch.no_grad()
def expected(model, tokens, heads=()):
    with removed(model, [divmod(head, 4) for head in heads]):
        logits, maps = model.maps(torch.tensor([tokens]))
    return logits[0], maps[:, 0].flatten(0, 1)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("heads", [[], [3], [0, 5, 6, 11]], ids=str)
def test_logits_maps_and_loss_are_those_of_torch(
    scripts, packed, model, tokenizer, text, heads
):
    tokens = tokenizer.encode(TEXTS[text])
    found = scripts.evaluate(READ, [packed, tokens, heads])
    logits, maps = expected(model, tokens, heads)
    torch.testing.assert_close(torch.tensor(found["logits"]), logits, **CLOSE)
    assert len(found["maps"]) == len(tokens)
    for t, rows in enumerate(found["maps"]):
        torch.testing.assert_close(
            torch.tensor(rows).float(), maps[:, t, : t + 1], atol=1e-5, rtol=0
        )
    if len(tokens) == 1:
        assert found["loss"] is None
    else:
        loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:]))
        assert found["loss"] == pytest.approx(loss.item(), abs=1e-4)


def test_the_whole_context(scripts, packed, model, tokenizer):
    tokens = tokenizer.encode("The list is a sequence of items. " * 20)[:128]
    assert len(tokens) == 128
    found = scripts.evaluate(READ, [packed, tokens, []])
    torch.testing.assert_close(
        torch.tensor(found["logits"]), expected(model, tokens)[0], **CLOSE
    )


def test_it_stays_within_the_bound_of_the_float_model(scripts, packed, tokenizer):
    tokens = tokenizer.encode(TEXTS["a paragraph"])
    found = torch.tensor(scripts.evaluate(READ, [packed, tokens, []])["logits"])
    with torch.no_grad():
        whole = load_kept()[0](torch.tensor([tokens]))[0]
    assert (found.log_softmax(-1) - whole.log_softmax(-1)).abs().max() < 1
    assert (found.softmax(-1) - whole.softmax(-1)).abs().max() < 0.11


def test_what_is_kept_of_a_text_changes_nothing(scripts, packed, tokenizer):
    """Read on, back, another ending: the same as if it was read afresh, to the bit."""
    one = tokenizer.encode("foo(bar, baz)")
    two = tokenizer.encode("foo(bar[0], x")
    assert scripts.evaluate(
        """async ([text, walk]) => {
            const { unpackModel } = await import("/packed_model.js");
            const { makeRunner } = await import("/model_run.js");
            const model = (window.unpackedModel ??= unpackModel(text));
            const runner = makeRunner(model, [2]);
            return walk.every(tokens => JSON.stringify(runner.read(tokens)) ===
                JSON.stringify(makeRunner(model, [2]).read(tokens)));
        }""",
        [packed, [one[:3], one, one[:5], two, one, []]],
    )


def test_a_token_more_costs_one_step(scripts, packed, tokenizer):
    """The rows that were there are the same objects: they were not computed anew."""
    tokens = tokenizer.encode(TEXTS["a paragraph"])[:9]
    kept = scripts.evaluate(
        """async ([text, tokens]) => {
            const { unpackModel } = await import("/packed_model.js");
            const { makeRunner } = await import("/model_run.js");
            const runner = makeRunner((window.unpackedModel ??= unpackModel(text)));
            const before = runner.read(tokens.slice(0, -1));
            const after = runner.read(tokens);
            return before.filter((row, i) => row === after[i]).length;
        }""",
        [packed, tokens],
    )
    assert kept == 8


def test_a_token_reads_each_weight_at_most_once(scripts, packed, model, tokenizer):
    """A frame is 16 ms: that leaves 60 ns and more for a multiplication.

    No clock: `python -m benchmarks.timers.pages` has the time, 0.4 ms.
    """
    tokens = tokenizer.encode("The list is a sequence of items. " * 20)[:65]
    first, last = scripts.evaluate(
        """async ([text, tokens]) => {
            const { unpackModel } = await import("/packed_model.js");
            const { makeRunner } = await import("/model_run.js");
            const { sizes, tensors } = (window.unpackedModel ??= unpackModel(text));
            let count = 0;
            const get = (rows, key) => { count++; return rows[key]; };
            const watched = Object.fromEntries(Object.entries(tensors).map(
                ([name, rows]) => [name, new Proxy(rows, { get })]));
            const runner = makeRunner({ sizes, tensors: watched });
            return [1, 64, 65].map(length => {
                count = 0;
                runner.read(tokens.slice(0, length));
                return count;
            }).filter((_, i) => i !== 1);
        }""",
        [packed, tokens],
    )
    weights = sum(x.numel() for x in model.parameters())
    assert first == last and weights / 2 < last <= weights < 250_000


def test_more_than_the_context_is_refused(scripts, packed):
    with pytest.raises(Exception, match="at most 128 tokens; got 129"):
        scripts.evaluate(READ, [packed, [7] * 129, []])


def test_gelu_is_torchs(scripts):
    x = torch.linspace(-9, 9, 541, dtype=torch.float64)
    found = scripts.evaluate(
        """async x => {
            const { gelu } = await import("/model_run.js");
            return x.map(gelu);
        }""",
        x.tolist(),
    )
    torch.testing.assert_close(
        torch.tensor(found, dtype=torch.float64),
        torch.nn.functional.gelu(x),
        atol=1e-11,
        rtol=0,
    )


@pytest.mark.parametrize("temperature", [0, 0.3, 1, 1.7])
def test_chances_are_torchs(scripts, temperature):
    from mha_lib.model import next_token_probabilities

    logits = 3 * torch.randn(13, generator=torch.Generator().manual_seed(0)).double()
    found = scripts.evaluate(
        """async ([logits, temperature]) => {
            const { chances } = await import("/model_run.js");
            return [...chances(Float64Array.from(logits), temperature)];
        }""",
        [logits.tolist(), temperature],
    )
    wanted = next_token_probabilities(logits, temperature)
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), wanted)


def test_the_likeliest_tokens_are_those_that_torch_writes(
    scripts, packed, model, tokenizer
):
    from mha_lib.model import generate

    tokens = tokenizer.encode('The "for" statement')
    found = scripts.evaluate(
        """async ([text, tokens]) => {
            const { unpackModel } = await import("/packed_model.js");
            const { goOn, makeRunner } = await import("/model_run.js");
            const runner = makeRunner((window.unpackedModel ??= unpackModel(text)));
            return goOn(runner, tokens, 17);
        }""",
        [packed, tokens],
    )
    wanted = generate(model, torch.tensor([tokens]), new=17, temperature=0)
    assert tokens + found == wanted[0].tolist()


def test_drawn_numbers_are_even_and_depend_on_the_seed(scripts):
    found = scripts.evaluate(
        """async () => {
            const { chance, draw } = await import("/model_run.js");
            const all = [];
            for (let seed = 0; seed < 40; seed++) {
                for (let place = 0; place < 100; place++) all.push(chance(seed, place));
            }
            const picks = [0, 0, 0];
            for (const x of all) picks[draw(Float64Array.from([0.2, 0.5, 0.3]), x)]++;
            return { all, picks };
        }"""
    )
    drawn = torch.tensor(found["all"], dtype=torch.float64)
    assert ((drawn >= 0) & (drawn < 1)).all() and len(drawn.unique()) > 3990
    # 4,000 draws: a share strays by 0.008 (one standard deviation at 0.5)
    parts = torch.histc(drawn, 10, 0, 1) / 4000
    assert (parts - 0.1).abs().max() < 0.025
    shares = torch.tensor(found["picks"]) / 4000
    assert (shares - torch.tensor([0.2, 0.5, 0.3])).abs().max() < 0.04
