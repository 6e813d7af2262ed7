"""A run that is stopped goes on as if it had not been; what does not fit is refused."""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import distributed

from mha_lib.model import ATTENTIONS, LanguageModel, Plan, __main__, generate, train
from mha_lib.model.__main__ import main
from mha_lib.model.files import read_tensors, write_tensors
from mha_lib.model.kept import KEPT, load_kept, load_model
from mha_lib.model.run import Run, Team, evaluate
from mha_lib.model.text import (
    UNKNOWN,
    BytePairs,
    Characters,
    load_tokenizer,
    read_text,
    split_text,
    windows,
)
from tests.model.small import DEVICES, SETTINGS, SIZES, TEXT, run

FILES = ["log.jsonl", "model.safetensors", "sizes.json", "tokenizer.json"]


def same_parameters(one, other) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.fixture(scope="module", params=DEVICES)
def whole(request, tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run", device=request.param)


def test_one_seed_gives_the_same_numbers_twice(whole, tmp_path):
    device = whole.team.device
    again = run(tmp_path / "again", device=device)
    assert same_parameters(whole, again)
    for name in FILES:
        assert (whole.folder / name).read_bytes() == (again.folder / name).read_bytes()
    seed = replace(SETTINGS, plan=replace(SETTINGS.plan, seed=1))
    assert not same_parameters(whole, run(tmp_path / "other", seed, device=device))


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_run_that_goes_on_is_one_that_never_stopped(whole, tmp_path, stop_after):
    device = whole.team.device
    run(tmp_path / "run", stop_after=stop_after, device=device)
    resumed = run(tmp_path / "run", device=device)
    assert same_parameters(whole, resumed)  # bit by bit, dropout included
    assert resumed.log == whole.log
    for name in FILES:
        after = (tmp_path / "run" / name).read_bytes()
        assert after == (whole.folder / name).read_bytes()


def test_a_run_that_is_over_does_nothing(whole):
    log = (whole.folder / "log.jsonl").read_bytes()
    run(whole.folder)
    assert (whole.folder / "log.jsonl").read_bytes() == log


def test_the_log_has_every_heads_entropy(whole):
    text = (whole.folder / "log.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 4, 6]
    most = sum(math.log(t + 1) for t in range(13)) / 13  # all keys alike
    for line in lines:
        entropies = torch.tensor(line["entropies"])
        assert entropies.shape == (2, 3)
        assert ((entropies > 0) & (entropies <= most + 1e-4)).all()


def test_another_setting_is_refused_and_named(whole):
    other = replace(SETTINGS, plan=replace(SETTINGS.plan, batch=7), style="einsum")
    with pytest.raises(ValueError, match="batch was 5 and is now 7; style was 'fused'"):
        Run(other, TEXT, whole.folder)
    with pytest.raises(ValueError, match="the text's digest was '' and is now '12ab'"):
        Run(replace(SETTINGS, text="12ab"), TEXT, whole.folder)


def test_a_run_goes_on_with_as_many_processes(tmp_path):
    even = replace(SETTINGS, plan=replace(SETTINGS.plan, batch=4))
    run(tmp_path / "run", even, stop_after=2)
    with pytest.raises(ValueError, match="processes was 1 and is now 2"):
        Run(even, TEXT, tmp_path / "run", Team(0, 2))


def spoiled(whole, folder, spoil):
    folder.mkdir()
    for path in filter(Path.is_file, whole.folder.iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / "checkpoint.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    return folder


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\x80\x04cos\nsystem\n(S'true'\ntR.",  # a pickle with a plan
        lambda content: content.replace(
            b"exp_avg_sq.norm.bias", b"exp_avg_sq.norm.boss"
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_words(whole, tmp_path, spoil):
    folder = spoiled(whole, tmp_path / "spoiled", spoil)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors"):
        Run(SETTINGS, TEXT, folder)


def rewritten(whole, folder, words=None, tensors=lambda held: held):
    """A copy of a run whose checkpoint says something else."""
    path = spoiled(whole, folder, lambda content: content) / "checkpoint.safetensors"
    held, told = read_tensors(path)
    write_tensors(path, tensors(held), told | (words or {}))
    return folder


SAID = {"step": 0, "loss": None, "validation": 2.5, "a_character": 1.25}
SAID["entropies"] = [[0.5]]


def changed(kind, number):
    """Tensors of one kind are full of a number."""

    def change(held):
        return {
            name: torch.full_like(x, number) if name.startswith(kind) else x
            for name, x in held.items()
        }

    return change


@pytest.mark.parametrize(
    "words, tensors, said",
    [
        ({"log": [{}]}, dict, "not written by this program"),
        ({"log": [SAID | {"loss": "y"}]}, dict, "not written by this program"),
        ({"log": [SAID | {"entropies": 5}]}, dict, "not written by this program"),
        ({"log": [SAID | {"entropies": [5]}]}, dict, "not written by this program"),
        ({"tokenizer": "another"}, dict, "is not that of the run"),
        ({"log": [None]}, dict, "not written by this program"),
        ({}, lambda held: held | {"stowaway": torch.ones(1)}, "has stowaway"),
        ({}, changed("exp_avg.", math.nan), "moments of .* cannot be AdamW's"),
        ({}, changed("exp_avg_sq.", -1.0), "moments of .* cannot be AdamW's"),
        ({}, changed("parameter.", math.inf), "numbers that are not finite"),
    ],
)
def test_a_checkpoint_that_lies_is_refused_in_words(
    whole, tmp_path, words, tensors, said
):
    folder = rewritten(whole, tmp_path / "lies", words, tensors)
    with pytest.raises(ValueError, match=said):
        Run(SETTINGS, TEXT, folder)


def test_moments_of_another_precision_become_float32(whole, tmp_path):
    def wide(held):
        return {name: tensor.double() for name, tensor in held.items()}

    device = whole.team.device
    half = run(tmp_path / "half", stop_after=2, device=device)
    folder = rewritten(half, tmp_path / "wide", None, wide)
    assert same_parameters(whole, run(folder, device=device))


@pytest.mark.parametrize("name", ["sizes.json", "model.safetensors"])
def test_nested_without_end_is_refused_in_words(whole, tmp_path, name):
    deep = b"[" * 10**5
    folder = spoiled(whole, tmp_path / "deep", lambda content: content)
    path = folder / name
    if name == "sizes.json":
        path.write_bytes(deep)
    else:
        path.write_bytes(save({}, {"words": deep.decode()}))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_model(folder)


@pytest.mark.parametrize("characters", ["abc", [1, 2], ["a", "bc"]])
def test_characters_that_are_none_are_refused(tmp_path, characters):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"characters": characters}), "utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load_tokenizer(path)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_damaged_model_is_refused_in_words(whole, tmp_path, name):
    folder = spoiled(whole, tmp_path / "spoiled", lambda content: content)
    path = folder / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_model(folder)
    path.unlink()
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_model(folder)


def test_tokens_are_numbered_from_0_on(tmp_path):
    BytePairs.of(TEXT, 60).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].get)
    content["model"]["vocab"][last] = 100_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(ValueError, match=r"must have the numbers 0 to \d+"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "change",
    [
        {"continuing_subword_prefix": "a b"},  # the library panics
        {"unk_token": "elsewhere"},  # it fails at the first strange character
        {"type": "WordLevel", "unk_token": "elsewhere"},
    ],
    ids=["prefix", "unknown", "another model"],
)
def test_a_tokenizer_that_cannot_cut_a_text_is_refused_in_words(tmp_path, change):
    path = tmp_path / "tokenizer.json"
    content = json.loads((KEPT / "tokenizer.json").read_text("utf-8"))
    content["model"] |= change
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ValueError, match=r"that save\(\) wrote; .*tokenizer\.json"):
        load_tokenizer(path)


def test_a_number_too_large_for_torch_is_refused_in_one_line(whole, tmp_path):
    folder = spoiled(whole, tmp_path / "huge", lambda content: content)
    sizes = json.loads((folder / "sizes.json").read_text("utf-8"))
    (folder / "sizes.json").write_text(json.dumps(sizes | {"context": 10**30}), "utf-8")
    with pytest.raises(ValueError, match=r"sizes\.json: .") as refused:
        load_model(folder)
    assert len(str(refused.value).splitlines()) == 1


def test_a_run_that_is_killed_while_it_first_measures_goes_on(
    whole, tmp_path, monkeypatch
):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mha_lib.model.run.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert same_parameters(whole, run(tmp_path / "run", device=whole.team.device))


def test_what_dropout_drops_depends_on_the_seed(tmp_path):
    drawn = set()
    for seed in (0, 1, 2):
        plan = replace(SETTINGS.plan, seed=seed)
        made = Run(replace(SETTINGS, plan=plan), TEXT, tmp_path / f"{seed}")
        for step in (0, 1):
            made._batch_at(step)
            drawn.add(torch.rand(1).item())  # the next number that dropout would draw
    assert len(drawn) == 6


def test_validation_goes_to_the_device_of_the_model(monkeypatch):
    model = LanguageModel(replace(SIZES, vocabulary=9)).to("meta")
    came = []

    def maps(tokens):
        came.append(tokens.device.type)
        B, T = tokens.shape
        heads = torch.full((SIZES.num_layers, B, SIZES.num_heads, T, T), 1 / T)
        return torch.zeros(B, T, 9, device="meta"), heads

    monkeypatch.setattr(model, "maps", maps)
    monkeypatch.setattr("mha_lib.model.run.next_token_loss", lambda *_: torch.ones(()))
    evaluate(model, torch.zeros(50, dtype=torch.long))
    assert set(came) == {"meta"}


@pytest.mark.parametrize("device", DEVICES)
def test_every_style_trains_alike(device):
    letters = Characters.of(TEXT)
    numbers = torch.tensor(letters.encode(TEXT))
    batch_at = windows(numbers.to(device), 5, SIZES.context, seed=0)
    losses = {}
    for style in ATTENTIONS:
        torch.manual_seed(0)
        model = LanguageModel(replace(SIZES, vocabulary=letters.size), style)
        model = model.to(device, torch.float64)
        steps = train(model, batch_at, Plan(20, warm_up=5))
        losses[style] = torch.tensor([loss for _, loss in steps])
    for style, found in losses.items():
        # rounding in another order grows from step to step, and AdamW divides by it
        torch.testing.assert_close(found, losses["fused"], rtol=1e-6, atol=0, msg=style)
    assert losses["fused"][-1] < losses["fused"][0] - 0.1


def test_places_depend_on_seed_and_step():
    tokens = torch.arange(10**6)
    seeds = (0, 1, 2, 1 << 31)
    drawn = {
        tuple(windows(tokens, 3, 5, seed)(step)[:, 0].tolist())
        for seed in seeds
        for step in range(50)
    }
    assert len(drawn) == len(seeds) * 50
    again = windows(tokens, 3, 5, seed=2)(7)
    assert torch.equal(again, windows(tokens, 3, 5, seed=2)(7))


def test_a_model_is_soon_better_than_pairs_of_characters(tmp_path):
    plan = Plan(200, batch=16, peak=1e-2, warm_up=20)
    made = run(tmp_path / "run", replace(SETTINGS, sizes=SIZES, plan=plan, every=200))
    learned, kept = split_text(TEXT)
    W = made.tokenizer.size
    counts = torch.ones(W, W)
    numbers = torch.tensor(made.tokenizer.encode(learned))
    counts.index_put_((numbers[:-1], numbers[1:]), torch.ones(()), accumulate=True)
    table = (counts / counts.sum(1, keepdim=True)).log()
    numbers = torch.tensor(made.tokenizer.encode(kept))
    bigram = -table[numbers[:-1], numbers[1:]].mean().item()
    assert made.log[-1]["validation"] < 0.8 * bigram


def test_the_kept_model_writes_after_the_prompt():
    model, tokenizer = load_kept()
    prompt = torch.tensor([tokenizer.encode("The name of the ")])
    greedy = generate(model, prompt, 12, temperature=0)
    assert torch.equal(greedy[:, : prompt.shape[1]], prompt)
    assert greedy.shape[1] == prompt.shape[1] + 12
    for end in range(prompt.shape[1], greedy.shape[1]):
        assert greedy[0, end] == model(greedy[:, :end])[0, -1].argmax()
    drawn = [
        generate(model, prompt, 12, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    "tokens, options, said",
    [
        ([[0, 512]], {"new": 1}, "numbers from 0 to 511"),
        ([[-1]], {"new": 1}, "numbers from 0 to 511"),
        ([[1]], {"new": -1}, "a count of tokens; got -1"),
        ([[1]], {"new": 1, "top_k": 2.5}, "top_k must be from 1 to 512"),
    ],
)
def test_what_cannot_be_written_on_is_a_sentence(tokens, options, said):
    model, _ = load_kept()
    with pytest.raises(ValueError, match=said):
        generate(model, torch.tensor(tokens), **options)


def test_look_says_what_it_leaves_out(tmp_path, capsys):
    model, tokenizer = load_kept()
    text, page = "the name " * 200, tmp_path / "page.html"
    main(["look", str(KEPT), "--text", text, "--out", str(page)])
    numbers, T = tokenizer.encode(text), model.sizes.context
    assert f"Of {len(numbers)} tokens the first {T} are shown" in capsys.readouterr()[0]


def test_the_kept_model_is_the_best_of_its_run():
    text = (KEPT / "log.jsonl").read_text("utf-8")
    log = [json.loads(line) for line in text.splitlines()]
    best = min(log, key=lambda line: line["validation"])
    assert (best["step"], log[-1]["step"]) == (3300, 4000)
    assert log[-1]["loss"] < best["loss"]  # learned by heart from there on
    model, tokenizer = load_kept()
    assert sum(p.numel() for p in model.parameters()) == 191_040
    validation = torch.tensor(tokenizer.encode(split_text(read_text())[1]))
    found, entropies = evaluate(model, validation)
    # the text differs a little from Python to Python
    assert abs(found - best["validation"]) < 0.05
    assert torch.allclose(entropies, torch.tensor(best["entropies"]), atol=0.1)


# --- as it is started ---------------------------------------------------------------

SMALL = ["--context", "13", "--embed-dim", "12", "--num-heads", "3", "--num-layers"]
SMALL += ["2", "--batch", "6", "--steps", "4", "--every", "2", "--pairs", "0"]


def test_the_command_trains_writes_and_shows(tmp_path, capsys):
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(TEXT, "utf-8")
    main(["train", "--text", str(text), "--style", "einsum", "--out", str(out), *SMALL])
    said, complained = capsys.readouterr()
    assert said.startswith("step 0: validation 2.") and not complained
    main(["sample", str(out), "--prompt", "ada saw", "--new", "9"])
    written = capsys.readouterr().out
    assert written.startswith("ada saw") and len(written) == 7 + 9 + 1
    main(["look", str(out), "--text", "ada saw a coin"])
    assert "</html>" in (out / "look.html").read_text("utf-8")


@pytest.mark.parametrize(
    "words, said",
    [
        (("train", "--text", "{0}/nowhere.txt", "--out", "{0}"), "nowhere.txt"),
        (("sample", "{0}"), "must be a folder with a model; sizes.json: No such file"),
    ],
)
def test_what_is_not_there_is_a_sentence(words, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([word.format(tmp_path) for word in words])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and said in line


@pytest.mark.parametrize("module", ["filelock", "tokenizers", "safetensors", "tqdm"])
def test_a_library_that_is_not_installed_is_a_sentence(
    module, monkeypatch, tmp_path, capsys
):
    text = tmp_path / "text.txt"
    text.write_text(TEXT, "utf-8")
    for name in [x for x in sys.modules if x.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # it cannot be imported
    words = ["train", "--text", str(text), "--out", str(tmp_path / "run"), *SMALL]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--pairs", "60"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"train: this needs {module}: pip install {module}"
    assert ended.value.code == 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run(folder)
    return folder


def test_a_run_that_has_ended_says_so(trained):
    lines = []
    Run(SETTINGS, TEXT, trained).go(lines.append)
    assert lines == ["all 6 steps are done; for more, give another folder"]


@pytest.mark.parametrize(
    "words, said",
    [
        (("--device", "abacus"), "the device 'abacus' cannot be used: Expected one of"),
        (("--batch", 10**11), "not enough memory; a smaller --batch"),
        (("--device", "meta"), "the device 'meta' cannot be used: "),
        (("--num-layers", 0), "num_layers must be at least 1; got 0"),
        (("--seed", 1 << 31), "seed must be a number from 0 to 2147483647; got 2147"),
        (("--peak", "nan"), "peak must be a number from 0 to 2147483647; got nan"),
        (("--pairs", 3), "size, the number of pairs, must be at least"),
        (("--out", "{trained}/model"), "no checkpoint.safetensors of a run to go on"),
    ],
    ids=["device", "memory", "no data", "layers", "seed", "peak", "pairs", "foreign"],
)
def test_what_cannot_be_trained_is_a_sentence(words, said, trained, tmp_path, capsys):
    text, model = tmp_path / "text.txt", trained / "model"
    text.write_text(TEXT, "utf-8")
    if not model.exists():
        model.mkdir()
        for name in ("model.safetensors", "sizes.json", "tokenizer.json"):
            shutil.copy(trained / name, model)
    before = {path: path.read_bytes() for path in model.iterdir()}
    words = [str(word).format(trained=trained) for word in words]
    with pytest.raises(SystemExit) as ended:
        main(["train", "--text", str(text), "--out", str(tmp_path), *SMALL, *words])
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(lines) == 1 and said in lines[0]
    assert before == {path: path.read_bytes() for path in model.iterdir()}


def test_two_trainings_at_once_do_not_share_a_folder(tmp_path, capsys):
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(TEXT, "utf-8")
    words = ["train", "--text", str(text), "--out", str(out), *SMALL]
    call = [sys.executable, "-m", "mha_lib.model", *words, "--steps", "1000000"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline().startswith("step 0")
        with pytest.raises(SystemExit) as ended:
            main([*words, "--steps", "1000000"])
        first.kill()  # with no chance to tidy up
    assert ended.value.code == 2
    assert "another process trains in" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(words)
    assert "steps was 1000000 and is now 4" in capsys.readouterr().err  # it is free


@pytest.mark.parametrize("pairs", [False, True], ids=["characters", "pairs"])
def test_half_a_character_is_an_unknown_one(pairs):
    made = BytePairs.of(TEXT, 60) if pairs else Characters.of(TEXT)
    broken = "a" + chr(0xDCFF)  # how Python reads a byte of a command that is no UTF-8
    assert made.decode(made.encode(broken)) == "a" + UNKNOWN


def test_a_file_of_zeros_is_no_text(tmp_path):
    (tmp_path / "zeros").write_bytes(b"ab" + bytes(3000))
    with pytest.raises(ValueError, match="zeros has a NUL at character 2"):
        read_text(tmp_path / "zeros")


def test_what_nobody_reads_on_ends_in_peace(trained, monkeypatch, capsys):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as unread:  # closed as at the end of a process: no error
        monkeypatch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as ended:
            main(["sample", str(trained), "--new", "9"])
    assert (ended.value.code, capsys.readouterr().err) == (141, "")


@pytest.mark.parametrize("command, said", [("train", "goes on"), ("sample", "Stopped")])
def test_who_stops_it_gets_a_sentence(command, said, monkeypatch, tmp_path, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "read_text", stop)
    monkeypatch.setattr(__main__, "load_model", stop)
    where = ["--out", str(tmp_path)] if command == "train" else [str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([command, *where])
    assert ended.value.code == 130 and said in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", str(1 << 31), "one"])
def test_a_seed_that_no_generator_takes_is_refused(seed, trained, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sample", str(trained), f"--seed={seed}"])
    assert ended.value.code == 2 and "--seed" in capsys.readouterr().err


def test_the_same_seed_writes_the_same_text(trained, capsys):
    for seed in ("7", "7", "2147483647"):
        main(["sample", str(trained), "--new", "20", "--seed", seed])
    one, again, other = capsys.readouterr().out.splitlines()
    assert one == again != other


def test_a_temperature_that_float32_does_not_know_is_0(trained):
    model, _ = load_model(trained)
    prompt = torch.tensor([[1, 2]])
    greedy, tiny = (generate(model, prompt, 9, temperature=t) for t in (0, 1e-300))
    assert torch.equal(greedy, tiny)


@pytest.mark.parametrize("device", DEVICES)
def test_processes_share_a_batch(device, tmp_path, capsys, monkeypatch):
    """Two as torchrun starts them, but one of them is this process."""
    common = shared_run(tmp_path, device)
    main([*common, "--out", str(tmp_path / "alone")])
    alone = capsys.readouterr().out
    processes = 2 if device == "cpu" else min(2, torch.cuda.device_count())
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    place |= {"WORLD_SIZE": str(processes), "RANK": "0", "LOCAL_RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    patience = partial(distributed.init_process_group, timeout=timedelta(minutes=2))
    monkeypatch.setattr(distributed, "init_process_group", patience)
    words = [*common, "--out", str(tmp_path / "team")]
    call = [sys.executable, "-m", "mha_lib.model", *words]
    others = [
        subprocess.Popen(
            call,
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(1, processes)
    ]
    main(words)
    assert all(other.communicate(timeout=300)[0] == "" for other in others)
    assert all(other.returncode == 0 for other in others)
    assert alone == capsys.readouterr().out  # three digits: sums have another order


@pytest.mark.exhaustive  # what torchrun itself adds; it costs three more processes
@pytest.mark.parametrize("device", DEVICES)
def test_torchrun_starts_what_shares_a_batch(device, tmp_path, capsys):
    common = shared_run(tmp_path, device)
    main([*common, "--out", str(tmp_path / "alone")])
    processes = 2 if device == "cpu" else min(2, torch.cuda.device_count())
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    call = [sys.executable, *launcher, str(processes), "-m", "mha_lib.model", *common]
    call += ["--out", str(tmp_path / "team")]
    team = subprocess.run(call, capture_output=True, text=True, timeout=300)
    assert team.returncode == 0, team.stderr
    assert team.stdout == capsys.readouterr().out


def shared_run(folder, device):
    """The words of a run without chance, but where it lies."""
    text = folder / "text.txt"
    text.write_text(TEXT, "utf-8")
    options = ["--text", str(text), "--dropout", "0", "--device", device]
    return ["train", *options, *SMALL]
