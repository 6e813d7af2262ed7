"""A language model's forward: right, wrong, and the cases that tell them apart."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lib.check.example import largest
from mha_lib.check.language.block import Block

__all__ = ["MISTAKES", "LanguageModel", "call", "draw", "words"]


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

    def case(part: float, asked: str = "", far: int = 0, many: int = 0) -> dict:
        B, H, D, L = (torch.randint(2, 5, (4,), generator=generator)).tolist()
        B, L = B + many, L + many
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
        "its gradients": case(0.6, "gradients"),
        "its blocks and heads": case(0.6, "blocks"),
        "a second text, in training": case(1, "again", far=60),
    }


def call(LanguageModel, tokens, sizes, seed, asked):
    """Numbers of ours in its parts, blocks of ours in place of its blocks.

    Beside the logits, ``asked`` are the gradients of both tables; how many blocks it
    made, how many heads those have, whether its output is tied, whether torch finds
    the numbers of its blocks, and whether the number of heads matters; the logits of
    a second text, in training; or how far the masks that its blocks get are from those
    that are asked for: causal ones, or those of a ``mask_of`` if it takes one.
    """
    import inspect
    import zlib

    import torch

    class Ours(torch.nn.Module):  # no block, but it mixes what the mask lets through
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, x, mask=None):
            seen = torch.ones(x.shape[1], x.shape[1]) if mask is None else mask.float()
            mixed = (seen @ torch.tanh(self.scale * x)).reshape(x.shape)
            return x + 0.3 * mixed + 0.2 * torch.sin(mixed)

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
            model.eval()(tokens)
            made = {id(next(block.parameters(), block)) for block in model.blocks}
            words = model.word.weight  # who has no output multiplies by them
            output = getattr(model, "output", None)
            tied = getattr(output, "weight", words) is words
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
        one, other = (part(tokens) for part in cut)
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
                model.eval()(text)
                for mask in seen:  # of the first that is another, how far it is off
                    is_mask = getattr(mask, "dtype", None) == torch.bool
                    is_mask = is_mask and mask.shape[-2:] == right.shape
                    each = mask.reshape(-1, T, T) if is_mask else [2 + right.float()]
                    for one in each:
                        off = off if off.any() else one.float() - right.float()
                found.append(off.flatten())
                seen.clear()
        first, asked_for, usual = found[0], torch.cat(found[:4]), found[-1]
        # Where causal masks are wrong, too, other cases show how.
        return torch.ones_like(asked_for) if first.any() and usual.any() else asked_for
    model = LanguageModel(*sizes)
    ours = (Ours(0.5 + 0.4 * n) for n, _ in enumerate(model.blocks))
    model.blocks = torch.nn.ModuleList(ours)
    generator = torch.Generator()
    named = list(model.named_parameters(remove_duplicate=False))
    for name, numbers in sorted(named, key=lambda pair: pair[0].startswith("word")):
        first, _, last = name.partition(".")
        kind = last if last.endswith("bias") else "weight"
        generator.manual_seed(zlib.crc32(f"{seed} {first} {kind}".encode()))
        drawn = torch.randn(numbers.shape, generator=generator)
        numbers.data.copy_(drawn + (first == "norm") * (kind == "weight"))
    if asked == "again":
        model.eval()(tokens[:, : len(tokens[0]) // 2])
    model.train(asked == "again")
    logits = model(tokens)
    if asked == "again" and not torch.equal(logits, model(tokens)):
        logits = model.eval()(tokens)  # a dropout: nothing forbids it
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
    if asked == "blocks":
        return _of_blocks(yours, right, H, L)
    if asked == "gradients":
        (place,) = largest(yours - right)
        first = place < context * E  # the names come in the order of the alphabet
        name, row = ("place", place // E) if first else ("word", place // E - context)
        return (
            f"The gradient of {name}.weight is {yours[place]:.3f} at row {row}, "
            f"feature {place % E}; {right[place]:.3f} is right."
        )
    b, t, w = largest(yours - right)
    return (
        f"Behind token {t} of text {b} the logit of word {w} is {yours[b, t, w]:.3f}; "
        f"{right[b, t, w]:.3f} is right (the text has {tokens.shape[1]} tokens, the "
        f"context holds {context})."
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


# --- wrong ----------------------------------------------------------------------------


def _with(**parts):
    return type("LanguageModel", (LanguageModel,), parts)


def _placed(places):
    """Other places: ``places(self, tokens)`` is added to the words."""
    return _with(embedded=lambda self, x: self.word(x) + places(self, x))


def _masked(change):
    """Another mask: ``change`` of the one that is right."""
    return _with(mask=lambda self, T: change(LanguageModel.mask(self, T)))


def _multiplied(self, tokens):
    return self.word(tokens) * self.place(torch.arange(tokens.shape[1]))


def _places_of_rows(self, tokens):
    return self.place(torch.arange(len(tokens)))[:, None]


def _last_places(self, tokens):
    return self.place.weight[-tokens.shape[1] :]


def _normed_first(self, x, mask):
    return LanguageModel.through(self, self.norm(x), mask)


def _normed_in_each(self, x, mask):
    for block in self.blocks:
        x = self.norm(block(x, mask))
    return x


def _from_embedding(self, x, mask):
    return x + sum(block(x, mask) - x for block in self.blocks)


def _backwards(self, x, mask):
    for block in reversed(self.blocks):
        x = block(x, mask)
    return x


def _first_block(self, x, mask):
    for _ in self.blocks:
        x = self.blocks[0](x, mask)
    return x


def _plain(self, x):
    return self.output(x)


def _after(change):
    return _with(read=lambda self, x: change(LanguageModel.read(self, x)))


MISTAKES = {
    "no-places": (
        _placed(lambda self, tokens: 0.0),
        "No places are added: the model cannot tell a word at one place from the same "
        "word at another.",
    ),
    "places-multiplied": (
        _with(embedded=_multiplied),
        "The places are multiplied with the words; they have to be added.",
    ),
    "places-of-rows": (
        _placed(_places_of_rows),
        "The places are those of the rows of the batch: arange has to count along T, "
        "tokens.shape[1], not along B.",
    ),
    "places-reversed": (
        _placed(lambda self, x: self.place(torch.arange(x.shape[1]).flip(0))),
        "The places count backwards: the first token has place 0.",
    ),
    "place-0-for-all": (
        _placed(lambda self, x: self.place(torch.zeros_like(x))),
        "Every token gets place 0: the places of a text are 0, 1, 2, …",
    ),
    "places-of-words": (
        _placed(lambda self, x: self.place(x % self.place.num_embeddings)),
        "The places are looked up by the numbers of the words; they are 0, 1, 2, …",
    ),
    "places-from-the-end": (
        _placed(_last_places),
        "A short text gets the last places of the context; its first token has place "
        "0.",
    ),
    "embedding-scaled": (
        _with(
            embedded=lambda self, x: (
                self.word(x) * self.word.embedding_dim**0.5
                + self.place(torch.arange(x.shape[1]))
            )
        ),
        "The words are multiplied by √E before the places are added; the task asks "
        "for their sum as it is.",
    ),
    "no-final-norm": (
        _with(read=_plain),
        "The last norm is missing: the output reads norm(x), not x.",
    ),
    "norm-at-the-front": (
        _with(through=_normed_first, read=_plain),
        "The norm stands in front of the blocks; it belongs behind the last of them.",
    ),
    "norm-in-the-loop": (
        _with(through=_normed_in_each, read=_plain),
        "The norm is taken after every block; it belongs behind the last one alone.",
    ),
    "norm-in-the-loop-too": (
        _with(through=_normed_in_each),
        "The norm is taken after every block, and then once more; it belongs behind "
        "the last block alone.",
    ),
    "norm-after-the-output": (
        _with(
            read=lambda self, x: torch.nn.functional.layer_norm(
                self.output(x), (self.word.num_embeddings,)
            )
        ),
        "The logits are normalised; the norm belongs in front of the output.",
    ),
    "untied": (
        _with(tied=False),
        "The output has a matrix of its own; the task asks for the one of the words: "
        "output.weight = word.weight.",
    ),
    "output-bias": (
        _with(bias=True),
        "The output has a bias; the task asks for none.",
    ),
    "model-without-mask": (
        _with(mask=lambda self, T: None),
        "The blocks get no mask: every token sees all tokens, the next one too.",
    ),
    "model-mask-inverted": (
        _masked(torch.logical_not),
        "The mask is inverted: each token sees the later ones alone. True means: may "
        "attend, so s ≤ t.",
    ),
    "model-mask-turned": (
        _masked(lambda mask: mask.mT),
        "The mask is transposed: each token sees itself and the later ones.",
    ),
    "model-mask-blocks-itself": (
        _masked(lambda mask: mask.tril(-1)),
        "The mask hides each token from itself: s ≤ t, not s < t.",
    ),
    "model-mask-leaks": (
        _with(mask=lambda self, T: torch.ones(T, T, dtype=torch.bool).tril(1)),
        "The mask leaks: each token sees the next one, too, which is the one to "
        "predict.",
    ),
    "mask-of-ignored": (
        _with(mask=lambda self, T: torch.ones(T, T, dtype=torch.bool).tril()),
        "The mask is causal whatever `mask_of` says: the blocks get the mask "
        "self.mask_of(T, T).",
    ),
    "one-block-repeated": (
        _with(stack=lambda self, E, H, L: nn.ModuleList([Block(E, H)] * L)),
        "All blocks are one and the same, with the same numbers: [Block(…)] * n holds "
        "one block n times; each needs a Block(…) of its own.",
    ),
    "blocks-in-a-list": (
        _with(stack=lambda self, E, H, L: [Block(E, H) for _ in range(L)]),
        "The blocks lie in a plain list, where torch does not find their numbers, and "
        "no optimizer trains them: nn.ModuleList.",
    ),
    "blocks-beside": (
        _with(through=_from_embedding),
        "Every block reads the embedding; each has to read what the one before it "
        "returned.",
    ),
    "first-block-always": (
        _with(through=_first_block),
        "The first block is used again and again; each block has its turn once.",
    ),
    "first-block-alone": (
        _with(through=lambda self, x, mask: self.blocks[0](x, mask)),
        "The first block alone is used: does a `return` stand inside the loop?",
    ),
    "last-block-alone": (
        _with(through=lambda self, x, mask: self.blocks[-1](x, mask)),
        "What the last block returns is all that counts, and it reads the embedding: "
        "the loop has to put each block's result into the x that the next one reads.",
    ),
    "no-blocks": (
        _with(through=lambda self, x, mask: x),
        "The blocks change nothing: is what they return thrown away?",
    ),
    "blocks-backwards": (
        _with(through=_backwards),
        "The blocks run from the last to the first.",
    ),
    "model-softmax": (
        _after(lambda x: x.softmax(-1)),
        "The model returns probabilities; logits are asked for, without a softmax.",
    ),
    "model-log-softmax": (
        _after(lambda x: x.log_softmax(-1)),
        "The model returns ln p; logits are asked for. (cross_entropy cannot tell "
        "them apart, temperature and top-k neither; the task can.)",
    ),
    "last-place-alone": (
        _after(lambda x: x[:, -1]),
        "The logits of the last place alone are returned; all T places predict: "
        "(B, T, W).",
    ),
}
