"""Whole language models with the same weights: ours of each style, and other people's.

All are trained by the same loop, `mha_lib.model.train`, on the same tokens, without
dropout; a call is a step: forward, loss, backward, clipping, AdamW. The floor is our
own model, so that a peer's ratio says how many times as long as we it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks import timing
from benchmarks.parity import TOLERANCE, Refused, distance
from mha_lib import causal_mask, convert
from mha_lib.model import (
    ATTENTIONS,
    LanguageModel,
    Plan,
    Sizes,
    generate,
    in_style,
    next_token_loss,
    train,
)

FLOOR = "fused"
BFLOAT16 = "fused, products in bfloat16"
BY_US, BY_THEM = "generate", "GPT2LMHeadModel.generate"
PROMPT = 8  # tokens


class ModelSize(NamedTuple):
    """Batch, length, width, heads, layers, vocabulary."""

    B: int
    T: int
    E: int
    H: int
    L: int
    W: int

    def model(self, device: str = "cpu") -> LanguageModel:
        """Random weights, no bias or norm left at its beginning."""
        _, T, E, H, L, W = self
        torch.manual_seed(0)
        with torch.device(device):
            model = LanguageModel(Sizes(W, T, E, H, L), FLOOR)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) / 4)
        return model

    def tokens(self, device: str = "cpu") -> Tensor:
        """(B, T + 1), drawn by chance."""
        generator = torch.Generator().manual_seed(1)
        shape = (self.B, self.T + 1)
        return torch.randint(self.W, shape, generator=generator).to(device)


# --- other people's blocks --------------------------------------------------------


class Shell(nn.Module):
    """Embeddings, final norm and tied output of a model, around other blocks."""

    def __init__(self, model: LanguageModel, middle: nn.Module) -> None:
        super().__init__()
        self.token_embedding = model.token_embedding
        self.place_embedding = model.place_embedding
        self.middle, self.norm, self.output = middle, model.norm, model.output

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.place_embedding(places)
        return self.output(self.norm(self.middle(x)))


class Encoder(nn.Module):
    """torch's encoder under a causal mask that is made beforehand."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        E, H, L = model.sizes.embed_dim, model.sizes.num_heads, model.sizes.num_layers
        options = {"dropout": 0.0, "activation": "gelu"}
        options |= {"batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(E, H, 4 * E, **options)
        self.encoder = nn.TransformerEncoder(layer, L, enable_nested_tensor=False)
        for theirs, block in zip(self.encoder.layers, model.blocks):
            theirs.self_attn = convert(block.attention, nn.MultiheadAttention)
            theirs.norm1, theirs.norm2 = block.attention_norm, block.feed_forward_norm
            theirs.linear1, _, theirs.linear2 = block.feed_forward
        device = model.token_embedding.weight.device
        self.mask = ~causal_mask(model.sizes.context, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, mask=self.mask, is_causal=True)


def gpt2(model: LanguageModel) -> nn.Module:
    """Hugging Face's whole GPT-2, attention by SDPA."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    sizes = model.sizes
    dropouts = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    config = GPT2Config(
        vocab_size=sizes.vocabulary,
        n_positions=sizes.context,
        n_embd=sizes.embed_dim,
        n_head=sizes.num_heads,
        n_layer=sizes.num_layers,
        activation_function="gelu",
        bos_token_id=None,
        eos_token_id=None,
        **dropouts,
    )
    config._attn_implementation = "sdpa"
    theirs = GPT2LMHeadModel(config)
    body = theirs.transformer
    body.wte, body.wpe = model.token_embedding, model.place_embedding
    body.ln_f, theirs.lm_head = model.norm, model.output
    for block, ours in zip(body.h, model.blocks):
        attention = convert(ours.attention, GPT2Attention)
        block.attn.load_state_dict(attention.state_dict())
        block.ln_1, block.ln_2 = ours.attention_norm, ours.feed_forward_norm
        wide, _, narrow = ours.feed_forward
        for conv, linear in ((block.mlp.c_fc, wide), (block.mlp.c_proj, narrow)):
            state = {"weight": linear.weight.T, "bias": linear.bias}
            conv.load_state_dict(state)
    return theirs


class Logits(nn.Module):
    """A model of Hugging Face's that returns the logits alone."""

    def __init__(self, theirs: nn.Module) -> None:
        super().__init__()
        self.theirs = theirs

    def forward(self, tokens: Tensor) -> Tensor:
        return self.theirs(tokens, use_cache=False).logits


class Blocks(nn.Module):
    """The blocks of Hugging Face's GPT-2, without the model around them."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.blocks = gpt2(model).transformer.h

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@dataclass(frozen=True)
class Learner:
    """A model of given weights, by name."""

    name: str
    build: Callable[[LanguageModel], nn.Module]
    bfloat16: bool = False


def ours(style: str) -> Learner:
    return Learner(style, lambda model: in_style(model, style))


OURS = tuple(map(ours, ATTENTIONS))
PEERS = (
    Learner("nn.TransformerEncoder", lambda model: Shell(model, Encoder(model))),
    Learner("GPT-2's blocks", lambda model: Shell(model, Blocks(model))),
    Learner("GPT2LMHeadModel", lambda model: Logits(gpt2(model))),
)
LEARNERS = {
    learner.name: learner
    for learner in (*OURS, Learner(BFLOAT16, lambda model: model, True), *PEERS)
}

# --- the same, or not timed -----------------------------------------------------------


def first_step(model: nn.Module, tokens: Tensor, bfloat16: bool) -> dict[str, Tensor]:
    """Logits and loss, the gradient of the token table, and the length of all.

    The table's gradient has come through every block, and the length does not depend
    on how a layer cuts and turns its matrices.
    """
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bfloat16):
        logits = model(tokens[:, :-1])
    loss = next_token_loss(logits.float(), tokens)
    loss.backward()
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in model.parameters()
    ]
    table = next(x for x in gradients if x.dim() == 2 and len(x) == logits.shape[-1])
    model.zero_grad(set_to_none=True)
    squares = torch.stack([x.square().sum() for x in gradients])
    return {
        "logits": logits,
        "loss": loss,
        "gradient of the token table": table,
        "length of the gradient": squares.sum().sqrt(),
    }


def check(
    size: ModelSize, learner: Learner, model: nn.Module, device: str = "cpu"
) -> None:
    """Raise :class:`Refused` unless a model learns what ours would."""
    tokens = size.tokens(device)
    right = first_step(size.model(device), tokens, False)
    came = first_step(model, tokens, learner.bfloat16)
    tolerance = TOLERANCE[torch.bfloat16 if learner.bfloat16 else torch.float32]
    for what, wanted in right.items():
        if came[what].shape != wanted.shape:
            raise Refused(f"{what}: shape {tuple(came[what].shape)}")
        error = distance(came[what], wanted)
        if not error <= tolerance:
            raise Refused(f"{what}: off by {error:.1e}, more than {tolerance:.0e}")


# --- what is timed ----------------------------------------------------------------


def learning(size: ModelSize, learner: Learner, device: str = "cpu") -> timing.Call:
    """A call that is a step of training, of a model that was found right."""
    model = learner.build(size.model(device)).to(device)
    check(size, learner, model, device)
    tokens = size.tokens(device)
    steps = train(model, lambda step: tokens, Plan(10**9), bfloat16=learner.bfloat16)
    return lambda: next(steps)


def writing(size: ModelSize, device: str = "cpu") -> tuple[timing.Call, timing.Call]:
    """Two calls that write T tokens in all, greedily: ours, and Hugging Face's."""
    model = size.model(device).eval()
    theirs = gpt2(model).to(device).eval()
    prompt = size.tokens(device)[:1, :PROMPT]
    new = size.T - PROMPT

    def by_us() -> Tensor:
        return generate(model, prompt, new, temperature=0)

    def by_them() -> Tensor:
        options = {"do_sample": False, "use_cache": False, "pad_token_id": 0}
        mask = torch.ones_like(prompt)
        return theirs.generate(
            prompt, attention_mask=mask, max_new_tokens=new, **options
        )

    if not torch.equal(by_us(), by_them()):
        raise Refused(f"{BY_THEM} wrote another text")
    return by_us, by_them


def race_learning(
    size: list[int], names: list[str], budget: float, *, threads: int, device: str
) -> dict[str, dict]:
    """Steps of training, everybody against our fused model."""
    shape = ModelSize(*size)
    calls, refused, cannot = {}, {}, {}
    for name in names:
        try:
            calls[name] = learning(shape, LEARNERS[name], device)
        except Refused as error:
            refused[name] = str(error)
        except ImportError as error:
            cannot[name] = str(error)
    floor = learning(shape, LEARNERS[FLOOR], device)
    clock = timing.clock_for(device, threads)
    samples = timing.race(calls, floor, clock, budget)
    rows = {name: own.summary() for name, own in samples.items()}
    return {"rows": rows, "refused": refused, "cannot": cannot}


def race_writing(
    size: list[int], budget: float, *, threads: int, device: str
) -> dict[str, dict]:
    """Texts without a cache, Hugging Face's generate against ours."""
    try:
        by_us, by_them = writing(ModelSize(*size), device)
    except Refused as error:
        return {"rows": {}, "refused": {BY_THEM: str(error)}}
    except ImportError as error:
        return {"rows": {}, "cannot": {BY_THEM: str(error)}}
    calls = {BY_US: by_us, BY_THEM: by_them}
    samples = timing.race(calls, by_us, timing.clock_for(device, threads), budget)
    return {"rows": {name: own.summary() for name, own in samples.items()}}


def tokens_a_second(entry: dict, name: str) -> float:
    """How many were learned from, or written, in a second."""
    size = ModelSize(*entry["size"])
    tokens = size.B * size.T if entry["kind"] == "learning" else size.T - PROMPT
    return tokens / entry["rows"][name]["ms"] * 1e3


def best_against_peers(entry: dict) -> float:
    """The better peer's time in times of our best style's: at least 1 is the goal."""
    ours = {*ATTENTIONS, BY_US}
    times = {True: [], False: []}
    for name, row in entry["rows"].items():
        if name != BFLOAT16:
            times[name in ours].append(row["ratio"])
    return min(times[False]) / min(times[True])
