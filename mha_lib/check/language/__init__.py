"""Tasks for a language model: the loss, the block, the model, a step, and writing.

They are tasks like those that an author adds (`mha_lib.check.own`): a right answer,
cases drawn anew for each seed, and wrong programs. A submission is called as the task
says, and its answers are compared with the right ones; only then, and only to name what
is wrong, with those of the wrong programs. So one machinery judges, reports and grades
all tasks; the search of `mha_lib.check.search`, which combines stages of one attention,
does not fit programs whose parts are calls in an order.

Where two wrong programs give the same numbers they are one name, whose sentence says
both: gradients that are clipped after the step and gradients that nobody clips, for
instance. Its modules import in one direction::

    factor ← loss ← step
    block ← block_mistakes
    block ← model ← model_mistakes
    generate ← generate_mistakes
"""

from mha_lib.check.language import (
    block,
    block_mistakes,
    generate,
    generate_mistakes,
    loss,
    model,
    model_mistakes,
    step,
)
from mha_lib.check.own import built_in, made
from mha_lib.check.tasks import Task

__all__ = ["FAIL", "LANGUAGE", "TOLERANCES", "VERSIONS"]

SAID = {
    "next_token_loss": (
        loss,
        loss.next_token_loss,
        "next-token loss",
        "next_token_loss(logits, tokens, padding=0) -> one number in nats, through "
        "which gradients flow; logits is (B, T, W), tokens is (B, T + 1): the mean of "
        "-ln p(tokens[:, t + 1]) from logits[:, t], where that token is not `padding`",
    ),
    "block": (
        block,
        block.Block,
        "block",
        "A class made as Block(embed_dim, num_heads), with the parts norm1, attention, "
        "norm2 and mlp. It is called as block(x, mask), with x (B, T, E) and a boolean "
        "mask (T, T), True = may attend, and returns (B, T, E): x = x + "
        "attention(norm1(x)), then x = x + mlp(norm2(x)). attention is called with "
        "(query, key, value, mask) and returns (output, weights); the norms are "
        "LayerNorms with weight and bias; mlp is Linear from E to 4E, GELU, Linear "
        "back to E",
    ),
    "language_model": (
        model,
        model.LanguageModel,
        "language model",
        "A class made as LanguageModel(vocabulary, context, embed_dim, num_heads, "
        "num_layers), with the parts word and place (embeddings), blocks (a "
        "ModuleList, each called as block(x, mask) with a causal boolean mask (T, T)), "
        "norm and an output without bias whose weight is word.weight. It is called "
        "with tokens (B, T), T at most the context, and returns logits (B, T, W). If "
        "it is made with mask_of, the mask is self.mask_of(T, T)",
    ),
    "training_step": (
        step,
        step.training_step,
        "training step",
        "training_step(model, optimizer, tokens, step, rate_of, clip) -> the loss "
        "before the step, a number. The model is put into training mode; all groups of "
        "the optimizer get lr = rate_of(step) and keep it; gradients of before do not "
        "count; the loss is the mean cross-entropy of tokens[:, 1:] from "
        "model(tokens[:, :-1]); "
        "the norm of all gradients together is clipped to `clip`; one step is taken",
    ),
    "generate": (
        generate,
        generate.generate,
        "writer of texts",
        "generate(model, tokens, new, context, temperature=1.0, top_k=None) -> tokens "
        "(B, T + new), which begin with the prompts (B, T). Each new token is drawn "
        "from softmax(logits / temperature) after the last one, of the top_k largest "
        "if that is given; the model reads the last `context` tokens, in evaluation "
        "mode and without gradients, and is then in the mode it was in before",
    ),
}
MISTAKES = {
    "next_token_loss": loss.MISTAKES,
    "block": block_mistakes.MISTAKES,
    "language_model": model_mistakes.MISTAKES,
    "training_step": step.MISTAKES,
    "generate": generate_mistakes.MISTAKES,
}
TOLERANCES = {"generate": generate.TOLERANCE}
FAIL = {"generate": generate_mistakes.FAIL}
VERSIONS: dict[str, dict[str, object]] = {
    name: {"the reference": right, **{k: x for k, (x, _) in MISTAKES[name].items()}}
    for name, (_, right, _, _) in SAID.items()
}
"""Name of a task → name of a version → the version; tests go through them."""


def _task(name: str) -> Task:
    room, right, title, signature = SAID[name]
    said = {"title": title, "signature": signature, "mistakes": MISTAKES[name]}
    said |= {"words": room.words, "seen": getattr(room, "seen", None)}
    tolerance = TOLERANCES.get(name, 0.0)
    return made(name, right, room.draw, room.call, **said, tolerance=tolerance)


LANGUAGE = {name: _task(name) for name in SAID}
built_in(LANGUAGE)
