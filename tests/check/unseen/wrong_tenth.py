"""The fourteenth round: 207 wrong programs, of which five were called right.

Two are mended and kept here. One, which clips gradients from twice the limit on alone,
is left; and two answer float64 with the digits of float32, which is told and no fault.
"""

import torch

from mha_lib.check.language.generate import generate
from tests.check.unseen.usual import programs

WRONG, wrong = programs()


@wrong("generate")
def cuts_a_text_as_long_as_the_context(model, tokens, new, context, *options):
    """One word too much is cut off just where the context is full."""
    for _ in range(new):
        full = tokens.shape[1] == context > 1
        read = tokens[:, 1:] if full else tokens
        word = generate(model, read, 1, context, *options)[:, -1:]
        tokens = torch.cat([tokens, word], dim=1)
    return tokens


@wrong("generate")
def cools_down(model, tokens, new, context, temperature=1.0, top_k=None):
    """The temperature falls with each word."""
    for n in range(new):
        tokens = generate(model, tokens, 1, context, temperature * 0.8**n, top_k)
    return tokens
