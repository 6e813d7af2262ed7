"""A language model's forward: right, and the cases that tell it from what is wrong."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lib.check.digits import apart
from mha_lib.check.example import largest
from mha_lib.check.language.block import Block

__all__ = ["LanguageModel", "call", "draw", "words"]


class LanguageModel(nn.Module):
    """logits = norm(blocks(word + place)) · wordsᵀ: the output is tied to the words.

    Args:
        vocabulary: W.
        context: the longest T.
        embed_dim: E.
        num_heads: H.
        num_layers: L, the number of blocks.
        mask_of: from T and T to the mask of the blocks; a causal one, unless given.

    Example:
        >>> model = LanguageModel(11, 8, 6, 2, 3)
        >>> model(torch.tensor([[3, 1, 4, 1, 5]])).shape
        torch.Size([1, 5, 11])
    """

    tied, bias = True, False

    def __init__(
        self,
        vocabulary: int,
        context: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        mask_of: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.mask_of = mask_of
        self.word = nn.Embedding(vocabulary, embed_dim)
        self.place = nn.Embedding(context, embed_dim)
        self.blocks = self.stack(embed_dim, num_heads, num_layers)
        self.norm = nn.LayerNorm(embed_dim)
        self.output = nn.Linear(embed_dim, vocabulary, bias=self.bias)
        if self.tied:
            self.output.weight = self.word.weight

    def stack(self, E: int, H: int, L: int) -> nn.ModuleList:
        """L blocks, each with numbers of its own."""
        return nn.ModuleList(Block(E, H) for _ in range(L))

    def embedded(self, tokens: Tensor) -> Tensor:
        """(B, T) → (B, T, E)."""
        return self.word(tokens) + self.place(torch.arange(tokens.shape[1]))

    def mask(self, T: int) -> Tensor | None:
        """True = may attend: s ≤ t, or as it is given."""
        if self.mask_of is not None:
            return self.mask_of(T, T)
        return torch.ones(T, T, dtype=torch.bool).tril()

    def through(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """All blocks, one after the other."""
        for block in self.blocks:
            x = block(x, mask)
        return x

    def read(self, x: Tensor) -> Tensor:
        """(B, T, E) → logits (B, T, W)."""
        return self.output(self.norm(x))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → logits (B, T, W)."""
        mask = self.mask(tokens.shape[1])
        return self.read(self.through(self.embedded(tokens), mask))


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: a part of the context, all of it, one token; gradients; blocks; masks."""

    def case(
        part: float, asked: str = "", far: int = 0, many: int = 0, alone: bool = False
    ) -> dict:
        B, H, D, L = (torch.randint(2, 5, (4,), generator=generator)).tolist()
        B, L = 1 if alone else B + many, L + many
        more = torch.randint(0, 4, (3,), generator=generator).tolist()
        W, context, E = 23 + 4 * far + more[0], 13 + far + more[1], H * (D + 2)
        T = max(1, int(part * context))
        tokens = torch.randint(W, (B, T), generator=generator)
        tokens[0, 0] = 0  # a word like others
        seed = int(torch.randint(1 << 30, (), generator=generator))
        sizes = [W, context, E, H, L]
        return {"tokens": tokens, "sizes": sizes, "seed": seed, "asked": asked}

    return {
        "its masks": case(0.7, "masks"),  # before a causal one can be kept for good
        "a short text": case(0.6),
        "as long as the context": case(1),
        "one token": case(0),
        "many texts": case(0.7, many=5),
        "a long context": case(1, far=60, many=3),
        "tiny numbers": case(0.7, "tiny"),
        "its gradients": case(0.6, "gradients"),
        "its blocks and heads": case(0.6, "blocks"),
        "a second text, in training": case(1, "again", far=60),
        "one text": case(0.6, alone=True),
        "one text of one token": case(0, alone=True),
        "float64": case(0.6, "double"),
        "twice the same, in training": case(0.6, "twice"),
    }


def call(LanguageModel, tokens, sizes, seed, asked):
    """Numbers of ours in its parts, blocks of ours in place of its blocks.

    Beside the logits, ``asked`` are the gradients of both tables; how many blocks it
    made, how many heads those have, whether its output is tied, whether torch finds
    the numbers of its blocks, and whether the number of heads matters; the logits of
    a second text, in training; those of float64, and whether they are of float64;
    those of tiny numbers in both tables; whether two calls in training are alike; or
    how far the masks that its blocks get are from those that are asked for: causal
    ones, or those of a ``mask_of`` if it takes one.
    """
    import inspect
    import zlib

    import torch

    class Ours(torch.nn.Module):  # no block, but it mixes what the mask lets through
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, x, mask=None):
            seen = torch.ones(x.shape[1], x.shape[1]) if mask is None else mask
            seen = seen.to(x.dtype)
            mixed = (seen @ torch.tanh(self.scale * x)).reshape(x.shape)
            return x + 0.3 * mixed + 0.2 * torch.sin(mixed)

    model = LanguageModel(*sizes)
    parts = ("word", "place", "blocks", "norm", "output")
    if lacking := [name for name in parts if not hasattr(model, name)]:
        made = ", ".join(name for name, _ in model.named_children()) or "none"
        raise AttributeError(
            f"the parts {', '.join(parts)} are required; yours has "
            f"{made}, and no {' and no '.join(lacking)}"
        )
    inside = {id(x) for block in model.blocks for x in block.parameters()}
    for part in (model.word, model.place, model.norm, model.output):
        bare = not isinstance(part, torch.nn.Module)
        inside |= {id(x) for x in ([part] if bare else part.parameters())}
    beside = [n for n, x in model.named_parameters() if id(x) not in inside]
    if beside:
        raise ValueError(
            "all that a model learns has to be in word, place, blocks, norm and "
            f"output; yours learns {', '.join(beside)}, too"
        )

    def answer(model, tokens):
        logits = model(tokens)
        if not isinstance(logits, torch.Tensor):
            kind = type(logits).__name__
            raise TypeError(f"model(tokens) has to return one tensor; got a {kind}")
        return logits

    if asked == "blocks":  # the heads are seen where its attention returns a map
        found, (W, context, _, H, L) = [], sizes

        def look(part, given, returned):
            if isinstance(returned, tuple) and getattr(returned[-1], "ndim", 0) == 4:
                heads.add(float(returned[-1].shape[1]))

        for more in range(2):  # two models, one with a head and twelve blocks more
            heads = {float(H + more)}
            model = LanguageModel(W, context, 6 * (H + more), H + more, L + 12 * more)
            for part in torch.nn.ModuleList(model.blocks).modules():
                part.register_forward_hook(look)
            answer(model.eval(), tokens)
            made = {id(next(block.parameters(), block)) for block in model.blocks}
            tied = getattr(model.output, "weight", None) is model.word.weight
            known = {id(x) for x in model.parameters()}
            theirs = {id(x) for block in model.blocks for x in block.parameters()}
            found += [len(made), len(model.blocks), sum(heads), float(tied)]
            found.append(float(theirs <= known))
        cut = [LanguageModel(W, context, 12, n, 1).eval() for n in (2, 3)]
        generator = torch.Generator().manual_seed(seed)
        for one, other in zip(*(part.parameters() for part in cut)):
            one.data.copy_(torch.randn(one.shape, generator=generator))
            if one.shape == other.shape:  # who keeps a matrix a head has others
                other.data.copy_(one.data)
        one, other = (answer(part, tokens) for part in cut)
        return torch.tensor([*found, float(not torch.equal(one, other))])
    if asked == "masks":
        seen, found = [], []

        class Looks(torch.nn.Module):
            def forward(self, x, mask=None):
                seen.append(mask)
                return x

        def causal(T, S):
            return torch.ones(T, S).tril() > 0

        def tables(n):  # of no two lengths one is a part of the other
            def mask_of(T, S):
                generator = torch.Generator().manual_seed(seed + 100 * n + T)
                return torch.rand(T, S, generator=generator) < 0.6

            return mask_of

        given = "mask_of" in inspect.signature(LanguageModel).parameters
        for mask_of in [tables(0), tables(1), causal] if given else [causal] * 3:
            options = {} if mask_of is causal else {"mask_of": mask_of}
            model = LanguageModel(*sizes, **options)
            model.blocks = torch.nn.ModuleList(Looks() for _ in model.blocks)
            for text in (tokens[:, :-1], tokens):
                T = text.shape[1]
                right, off = mask_of(T, T), torch.zeros(T, T)
                answer(model.eval(), text)
                for mask in seen:  # of the first that is another, how far it is off
                    is_mask = getattr(mask, "dtype", None) == torch.bool
                    is_mask = is_mask and mask.shape[-2:] == right.shape
                    each = mask.reshape(-1, T, T) if is_mask else [2 + right.float()]
                    for one in each:
                        off = off if off.any() else one.float() - right.float()
                found.append(off.flatten())
                seen.clear()
            if options and "mask_of" in vars(model):  # another one is put in its place
                model.mask_of, T = tables(2), tokens.shape[1] - 2
                answer(model, tokens[:, :T])
                masks = [x for x in seen if getattr(x, "shape", ())[-2:] == (T, T)]
                if any(bool((x == mask_of(T, T)).all()) for x in masks):
                    raise ValueError(
                        "the blocks have to get the mask self.mask_of(T, T); after "
                        "another function was put in the place of model.mask_of they "
                        "still get that of the first one"
                    )
                seen.clear()
        first, asked_for, usual = found[0], torch.cat(found[:4]), found[-1]
        # Where causal masks are wrong, too, other cases show how.
        return torch.ones_like(asked_for) if first.any() and usual.any() else asked_for
    if asked == "twice":  # in its own blocks, too
        model.train()
        one, other = (answer(model, tokens.clone()).nan_to_num() for _ in "ab")
        return torch.tensor([float(torch.equal(one, other))])
    ours = (Ours(0.5 + 0.4 * n) for n, _ in enumerate(model.blocks))
    model.blocks = torch.nn.ModuleList(ours)
    generator = torch.Generator()
    named = list(model.named_parameters(remove_duplicate=False))
    for name, numbers in sorted(named, key=lambda pair: pair[0].startswith("word")):
        first, _, last = name.partition(".")
        kind = last if last.endswith("bias") else "weight"
        generator.manual_seed(zlib.crc32(f"{seed} {first} {kind}".encode()))
        drawn = torch.randn(numbers.shape, generator=generator)
        drawn *= 1e-3 if asked == "tiny" and first in ("word", "place") else 1.0
        numbers.data.copy_(drawn + (first == "norm") * (kind == "weight"))
    if asked == "double":
        logits = answer(model.double().eval(), tokens)
        same = torch.tensor([float(logits.dtype == torch.float64)])
        return torch.cat([same, logits.flatten()])
    if asked == "again":
        answer(model.eval(), tokens[:, : len(tokens[0]) // 2].clone())
    model.train(asked == "again")
    same = tokens.clone()  # who changes them is told
    logits = answer(model, tokens)
    if asked == "again" and not torch.equal(logits, answer(model, same)):
        logits = answer(model.eval(), tokens)  # a dropout: nothing forbids it
    if asked != "gradients":
        return logits
    logits.square().sum().backward()
    tables = [x for name, x in sorted(named) if name.startswith(("word", "place"))]
    slopes = [torch.zeros_like(x) if x.grad is None else x.grad for x in tables]
    return torch.cat([x.flatten() for x in slopes])


def words(yours: Tensor, right: Tensor, inputs: dict) -> str:
    """Which logit, gradient or mask is wrong, or what the model is made of."""
    tokens, asked = inputs["tokens"], inputs["asked"]
    W, context, E, H, L = inputs["sizes"]
    if asked == "masks":
        return _of_masks(yours, tokens.shape[1])
    if asked == "double":
        if not yours[0]:
            return "A model of float64 has to return logits in float64; it does not."
        yours, right = (x[1:].view(*tokens.shape, W) for x in (yours, right))
    if asked == "twice":
        return (
            "In training two calls with the same tokens return other logits: is there "
            "a dropout? Nothing is to be dropped."
        )
    if asked == "blocks":
        return _of_blocks(yours, right, H, L)
    if asked == "gradients":
        (place,) = largest(yours - right)
        first = place < context * E  # the names come in the order of the alphabet
        name, row = ("place", place // E) if first else ("word", place // E - context)
        got, due = apart(yours[place], right[place], 3)
        return (
            f"The gradient of {name}.weight is {got} at row {row}, "
            f"feature {place % E}; {due} is right."
        )
    b, t, w = largest(yours - right)
    got, due = apart(yours[b, t, w], right[b, t, w], 3)
    return (
        f"Behind token {t} of text {b} the logit of word {w} is {got}; {due} is right "
        f"(the text has {tokens.shape[1]} tokens, the context holds {context})."
    )


def _of_masks(off: Tensor, T: int) -> str:
    """The first mask that a block gets and that is not the one asked for.

    Args:
        off: of two models, for T - 1 tokens and for T: 1 where a mask is True and has
            to be False, -1 where it is the other way round; 2 where there is none.
        T: tokens of the longer text.
    """
    if (off == 1).all():
        return "The blocks get other masks than the causal ones that are asked for."
    lengths = [T - 1, T] * 2
    tables = off.split([n * n for n in lengths])
    n = next(n for n, table in enumerate(tables) if table.any())
    of = "the second model" if n > 1 else "the model"
    if (tables[n] == 2).all():
        return f"A block of {of} gets no boolean mask (T, T) for T = {lengths[n]}."
    place = int(tables[n].nonzero()[0])
    query, key = divmod(place, lengths[n])
    seen = bool(tables[n][place] > 0)
    return (
        f"The mask that a block of {of} gets for T = {lengths[n]} is {seen} at query "
        f"{query} and key {key}; {not seen} is right."
    )


def _of_blocks(yours: Tensor, right: Tensor, H: int, L: int) -> str:
    """What a model is made of, of which another one is asked for."""
    place = int((yours != right).nonzero()[0])
    if place == len(right) - 1:
        return "The number of heads makes no difference to the logits."
    more, n = divmod(place, 5)
    got, due = int(yours[place]), int(right[place])
    made = f"A model made with {H + more} heads and {L + 12 * more} blocks"
    return (
        f"{made}: number of blocks that have numbers of their own: {got}, not {due}.",
        f"{made}: number of blocks: {got}, not {due}.",
        f"{made}: heads of its blocks: {got}, not {due}.",
        "The weight of the output is not word.weight: they have to be one tensor.",
        "The numbers of the blocks are not among model.parameters().",
    )[n]
