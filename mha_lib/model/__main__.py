"""Train a model, let it write, look at its heads.

    python -m mha_lib.model train --out FOLDER [--style einsum] [--text FILE] …
    python -m mha_lib.model sample FOLDER --prompt TEXT [--temperature 0.8]
    python -m mha_lib.model look FOLDER [--text TEXT]

The same ``train`` again goes on where the last one was stopped. With several GPUs:
``torchrun --nproc-per-node 4 -m mha_lib.model train …``.
"""

import argparse
import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import torch

from mha_lib.model.attentions import ATTENTIONS
from mha_lib.model.kept import load_model
from mha_lib.model.sampling import generate
from mha_lib.model.text import read_text
from mha_lib.model.training import Plan
from mha_lib.model.transformer import Sizes

BROUGHT = {"anywidget", "filelock", "matplotlib", "safetensors", "tokenizers", "tqdm"}
MEMORY = re.compile(r"allocate|out of memory", re.IGNORECASE)
TITLE = "What does each head look at?"
PROMPT = "The statement"
LOOK = "If the name is not found, the name of the module is looked up again."


def arguments() -> argparse.ArgumentParser:
    """What may be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m mha_lib.model", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train a model, or go on training it")
    train.add_argument("--out", type=Path, required=True, help="folder of the run")
    train.add_argument("--text", type=Path, help="UTF-8 file; else Python's manual")
    train.add_argument("--style", choices=ATTENTIONS, default="fused")
    sizes, plan = Sizes(0, 128), Plan(3000)
    train.add_argument("--steps", type=int, default=plan.steps)
    train.add_argument("--batch", type=int, default=16)
    train.add_argument("--peak", type=float, default=4e-3, help="learning rate")
    train.add_argument("--weight-decay", type=float, default=plan.weight_decay)
    train.add_argument("--seed", type=int, default=plan.seed)
    train.add_argument("--context", type=int, default=sizes.context)
    train.add_argument("--embed-dim", type=int, default=sizes.embed_dim)
    train.add_argument("--num-heads", type=int, default=sizes.num_heads)
    train.add_argument("--num-layers", type=int, default=sizes.num_layers)
    train.add_argument("--dropout", type=float, default=0.05)
    train.add_argument("--pairs", type=int, default=512, help="0: characters")
    train.add_argument("--every", type=int, default=100, help="steps to an evaluation")
    train.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32"
    )
    train.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )

    sample = commands.add_parser("sample", help="let a model write")
    sample.add_argument("folder", type=Path)
    sample.add_argument("--prompt", default=PROMPT)
    sample.add_argument("--temperature", type=float, default=0.8, help="0: no chance")
    sample.add_argument("--top-k", type=int)
    sample.add_argument("--new", type=int, default=120, help="how many tokens")
    sample.add_argument("--seed", type=seed, default=0)

    look = commands.add_parser("look", help="write a page with its heads' maps")
    look.add_argument("folder", type=Path)
    look.add_argument("--text", default=LOOK)
    look.add_argument("--out", type=Path, help="page to write; else FOLDER/look.html")
    return parser


def seed(word: str) -> int:
    """A whole number that a generator takes."""
    number = int(word)
    if not 0 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"from 0 to 2147483647; got {word}")
    return number


def do_train(given: argparse.Namespace) -> None:
    """Begin a run or go on with it."""
    from mha_lib.model.files import alone_in
    from mha_lib.model.run import Run, Settings, digest, team

    text = read_text(given.text)
    shapes = {"dropout": given.dropout}
    for name in ("context", "embed_dim", "num_heads", "num_layers"):
        shapes[name] = getattr(given, name)
    steps = {"batch": given.batch, "peak": given.peak, "seed": given.seed}
    settings = Settings(
        Sizes(vocabulary=0, **shapes),
        Plan(given.steps, weight_decay=given.weight_decay, **steps),
        style=given.style,
        pairs=given.pairs,
        every=given.every,
        precision=given.precision,
        text=digest(text),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    with team(given.device) as processes:
        first = processes.rank == 0  # the one of several that writes
        with alone_in(given.out) if first else nullcontext():
            Run(settings, text, given.out, processes).go()


def do_sample(given: argparse.Namespace) -> None:
    """Print the prompt and what the model makes of it."""
    model, tokenizer = load_model(given.folder)
    numbers = tokenizer.encode(given.prompt)
    if not numbers or given.new < 1:
        raise ValueError("a prompt of one token at least, and --new 1 or more")
    generator = torch.Generator().manual_seed(given.seed)
    options = {"temperature": given.temperature, "top_k": given.top_k}
    written = generate(
        model, torch.tensor([numbers]), given.new, generator=generator, **options
    )
    print(tokenizer.decode(written[0].tolist()))


def do_look(given: argparse.Namespace) -> None:
    """Write a page that shows every head's map on a text, without a network."""
    from mha_lib.widgets import AttentionExplorer, to_html

    model, tokenizer = load_model(given.folder)
    numbers, T = tokenizer.encode(given.text), model.sizes.context
    if len(numbers) < 2:
        raise ValueError("--text must be of two tokens at least")
    if len(numbers) > T:
        print(f"Of {len(numbers)} tokens the first {T} are shown, the model's context.")
    numbers = numbers[:T]
    with torch.no_grad():
        weights = model.maps(torch.tensor([numbers]))[1][:, 0]  # (L, H, T, T)
    names = [tokenizer.decode([number]) for number in numbers]
    explorer = AttentionExplorer(list(weights), names, unit="token")
    page = to_html(explorer, title=TITLE)
    path = given.out or given.folder / "look.html"
    path.write_text(page, "utf-8")
    print(f"Open {path}")


def main(words: list[str] | None = None) -> None:
    """Read the command line; what is wrong is said in a sentence."""
    given = arguments().parse_args(words)
    try:
        {"train": do_train, "sample": do_sample, "look": do_look}[given.command](given)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except KeyboardInterrupt:
        goes_on = " The same command goes on from the last evaluation."
        said = goes_on if given.command == "train" else ""
        print(f"\nStopped.{said}", file=sys.stderr)
        raise SystemExit(130) from None
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in BROUGHT:
            raise
        said = f"{given.command}: this needs {name}: pip install {name}"
        print(said, file=sys.stderr)
        raise SystemExit(2) from None
    except (ValueError, OSError) as error:
        print(f"{given.command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or MEMORY.search(str(error))):
            raise
        print(
            f"{given.command}: not enough memory; a smaller --batch, --context or "
            "--embed-dim takes less",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
