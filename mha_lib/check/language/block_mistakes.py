"""Wrong blocks, by the names that `check` gives them."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from mha_lib.check.language.block import Block

__all__ = ["MISTAKES"]


def _forward(wrong):
    """A block whose forward is ``wrong(self, x, mask)``."""
    return type("Block", (Block,), {"forward": wrong})


def _with(**parts):
    """A block made of other parts."""
    return type("Block", (Block,), parts)


class _Norm(nn.Module):
    def __init__(self, E: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(E))
        self.bias = nn.Parameter(torch.ones(E))

    def forward(self, x):
        mean, variance = x.mean(-1, True), x.var(-1, correction=0, keepdim=True)
        return self.weight * self.divided(x - mean, variance, x) + self.bias


def _norm(divided):
    """A norm that divides ``x − mean`` otherwise."""
    made = {"divided": lambda self, *x: divided(*x)}
    return _with(Norm=type("Norm", (_Norm,), made))


def _plain_norm(self, x):
    return F.layer_norm(x, x.shape[-1:])


def _rms(self, x):
    return self.weight * x / (x.square().mean(-1, True) + 1e-5).sqrt() + self.bias


def _places(self, x):
    mean, var = x.mean(1, True), x.var(1, correction=0, keepdim=True)
    return self.weight * (x - mean) / (var + 1e-5).sqrt() + self.bias


def _post(self, x, mask):
    x = self.norm1(x + self.attend(x, mask))
    return self.norm2(x + self.mlp(x))


def _res_post(self, x, mask):
    x = x + self.norm1(self.attend(x, mask))
    return x + self.norm2(self.mlp(x))


def _both_sides(self, x, mask):
    x = self.norm1(x + self.attend(self.norm1(x), mask))
    return self.norm2(x + self.mlp(x))


def _no_residual(self, x, mask):
    return self.mlp(self.norm2(self.attend(self.norm1(x), mask)))


def _normed_first(self, x, mask):
    h = self.norm1(x)
    return h + self.attend(h, mask)


def _normed_second(self, x):
    h = self.norm2(x)
    return h + self.mlp(h)


def _raw(*roles):
    """Some of query, key and value are x as it came."""

    def first(self, x, mask):
        raw = dict.fromkeys(roles, x)
        return x + self.attend(self.norm1(x), mask, **raw)

    return _with(first=first)


def _first_norm(norm):
    return _with(first=lambda self, x, mask: x + self.attend(norm(self, x), mask))


def _second_norm(norm):
    return _with(second=lambda self, x: x + self.mlp(norm(self, x)))


def _from_the_start(self, x, mask):
    return x + self.mlp(self.norm2(x + self.attend(self.norm1(x), mask)))


def _norms(first, second):
    """Other norms at the two places: a name, or None for no norm."""

    def forward(self, x, mask):
        norms = [getattr(self, n) if n else lambda x: x for n in (first, second)]
        x = x + self.attend(norms[0](x), mask)
        return x + self.mlp(norms[1](x))

    return _forward(forward)


def _of_first_copy(self, x, mask):
    h = self.norm1(x)
    return x + self.attend(h, mask) + self.mlp(self.norm2(h))


def _parallel(self, x, mask):
    return x + self.attend(self.norm1(x), mask) + self.mlp(self.norm2(x))


def _once(self, x, mask):
    h = self.norm1(x)
    return x + self.attend(h, mask) + self.mlp(h)


def _once_in_turn(self, x, mask):
    h = self.norm1(x)
    h = h + self.attend(h, mask)
    return h + self.mlp(h)


def _mlp_of_attention(self, x, mask):
    added = self.attend(self.norm1(x), mask)
    return x + added + self.mlp(self.norm2(added))


def _chained(self, x, mask):
    return x + self.mlp(self.norm2(self.attend(self.norm1(x), mask)))


def _mlp_first(self, x, mask):
    x = x + self.mlp(self.norm2(x))
    return x + self.attend(self.norm1(x), mask)


def _masked(change):
    def attend(self, x, mask, **raw):
        return Block.attend(self, x, change(mask), **raw)

    return _with(attend=attend)


MISTAKES = {  # norms by hand come last: they are tried alone, in no pair
    "post-norm": (
        _forward(_post),
        "The norms stand behind the sums, norm(x + part(x)); a pre-norm block has "
        "them in front of its parts: x + part(norm(x)).",
    ),
    "norm-of-what-is-added": (
        _forward(_res_post),
        "The norms are taken of what the parts return; they belong in front of the "
        "parts: x + part(norm(x)).",
    ),
    "pre-and-post-norm": (
        _forward(_both_sides),
        "norm1 stands in front of the attention and behind its sum, norm2 behind the "
        "sum of the mlp: each belongs in front of its part alone, x + part(norm(x)).",
    ),
    "norm-behind-mlp": (
        _with(second=lambda self, x: x + self.norm2(self.mlp(x))),
        "norm2 is taken of what the mlp returns; it belongs in front: x + "
        "mlp(norm2(x)).",
    ),
    "no-residual-attention": (
        _with(first=lambda self, x, mask: self.attend(self.norm1(x), mask)),
        "The attention replaces x: the first residual is missing, x + attention(…).",
    ),
    "no-residual-mlp": (
        _with(second=lambda self, x: self.mlp(self.norm2(x))),
        "The mlp replaces x: the second residual is missing, x + mlp(…).",
    ),
    "no-residuals": (
        _forward(_no_residual),
        "Both residuals are missing: each part has to be added to x.",
    ),
    "residual-normed-attention": (
        _with(first=_normed_first),
        "The attention is added to norm1(x); it has to be added to x itself.",
    ),
    "residual-normed-mlp": (
        _with(second=_normed_second),
        "The mlp is added to norm2(x); it has to be added to x itself.",
    ),
    "residuals-normed": (
        _with(first=_normed_first, second=_normed_second),
        "Both parts are added to the normalised copy; each has to be added to x "
        "itself.",
    ),
    "residual-from-the-start": (
        _forward(_from_the_start),
        "The mlp is added to the x that came into the block, so what the attention "
        "added is lost: add it to the x after the attention.",
    ),
    "no-norm-attention": (
        _first_norm(lambda self, x: x),
        "The attention reads x without a norm: it has to read norm1(x).",
    ),
    "no-norm-mlp": (
        _second_norm(lambda self, x: x),
        "The mlp reads x without a norm: it has to read norm2(x).",
    ),
    "no-norms": (
        _norms(None, None),
        "No part reads a norm: they have to read norm1(x) and norm2(x).",
    ),
    "norms-exchanged": (
        _norms("norm2", "norm1"),
        "The two norms are exchanged: norm1 belongs in front of the attention, norm2 "
        "in front of the mlp.",
    ),
    "norm1-twice": (
        _second_norm(lambda self, x: self.norm1(x)),
        "norm1 is used for both parts: the mlp has norm2.",
    ),
    "norm2-twice": (
        _first_norm(lambda self, x: self.norm2(x)),
        "norm2 is used for both parts: the attention has norm1.",
    ),
    "norm2-of-norm1": (
        _second_norm(lambda self, x: self.norm2(self.norm1(x))),
        "The mlp reads norm2(norm1(x)); it has to read norm2(x).",
    ),
    "norm2-of-first-copy": (
        _forward(_of_first_copy),
        "norm2 is taken of norm1(x), the copy that the attention reads; it has to be "
        "taken of the x to which the attention was added.",
    ),
    "one-norm-for-both": (
        _with(norms=lambda self, E: [self.Norm(E)] * 2),
        "norm1 and norm2 are one and the same norm, with the same numbers; each is a "
        "LayerNorm of its own.",
    ),
    "query-alone-normed": (
        _raw("key", "value"),
        "The query is normalised, key and value are not: all three are norm1(x).",
    ),
    "query-not-normed": (
        _raw("query"),
        "The query is not normalised: query, key and value are all norm1(x).",
    ),
    "key-not-normed": (
        _raw("key"),
        "The keys are not normalised: query, key and value are all norm1(x).",
    ),
    "value-not-normed": (
        _raw("value"),
        "The values are not normalised: query, key and value are all norm1(x).",
    ),
    "parallel": (
        _forward(_parallel),
        "Attention and mlp run beside each other, of the same x. The mlp has to read "
        "the x to which the attention was added.",
    ),
    "norm-once": (
        _forward(_once),
        "The norm is computed once, and both parts read it. The mlp has to read "
        "norm2 of the x to which the attention was added.",
    ),
    "norm-at-the-start": (
        _forward(_once_in_turn),
        "x is normalised once at the start and never again; each part reads a norm "
        "of its own, and is added to x itself.",
    ),
    "mlp-of-attention": (
        _forward(_mlp_of_attention),
        "The mlp reads a norm of what the attention returned; it has to read norm2(x) "
        "after that was added to x.",
    ),
    "parts-chained": (
        _forward(_chained),
        "There is one residual around both parts; each part has one of its own.",
    ),
    "no-mlp": (_with(second=lambda self, x: x), "The mlp is missing."),
    "no-attention": (_with(first=lambda self, x, mask: x), "The attention is missing."),
    "mlp-first": (
        _forward(_mlp_first),
        "The mlp comes first; the attention has to.",
    ),
    "block-without-mask": (
        _masked(lambda mask: None),
        "The mask does not reach the attention: every token sees all tokens.",
    ),
    "block-mask-inverted": (
        _masked(lambda mask: ~mask),
        "The mask reaches the attention inverted. True means: may attend.",
    ),
    "block-mask-turned": (
        _masked(lambda mask: mask.mT),
        "The mask is transposed: rows are queries, columns are keys.",
    ),
    "norm-rms": (
        _with(Norm=nn.RMSNorm),
        "The norms are RMSNorms, which neither subtract the mean nor have a bias; the "
        "task asks for LayerNorms.",
    ),
    "norm-without-bias": (
        _with(Norm=partial(nn.LayerNorm, bias=False)),
        "The norms have no bias: after the division each feature is multiplied by one "
        "number, and another is added.",
    ),
    "mlp-of-e": (
        _with(times=1),
        "The mlp is E wide between its two layers; the task asks for 4E.",
    ),
    "mlp-of-2e": (
        _with(times=2),
        "The mlp is 2E wide between its two layers; the task asks for 4E.",
    ),
    "relu": (_with(Act=nn.ReLU), "The mlp has a ReLU; the task asks for GELU."),
    "silu": (_with(Act=nn.SiLU), "The mlp has a SiLU; the task asks for GELU."),
    "gelu-tanh": (
        _with(Act=partial(nn.GELU, approximate="tanh")),
        "The GELU is the approximation by tanh; the task asks for nn.GELU() as it is.",
    ),
    "no-activation": (
        _with(Act=nn.Identity),
        "There is nothing between the two linear layers of the mlp: GELU is missing.",
    ),
    "norm-without-eps": (
        _norm(lambda x, variance, _: x / variance.sqrt()),
        "The norm has no eps: its variance is divided by as it is, so that a token "
        "of nearly equal features becomes loud. nn.LayerNorm adds 1e-5 to it.",
    ),
    "norm-eps-outside": (
        _norm(lambda x, variance, _: x / (variance.sqrt() + 1e-5)),
        "eps is added to the deviation; nn.LayerNorm adds it to the variance, under "
        "the root.",
    ),
    "norm-unbiased": (
        _norm(lambda x, v, x_: x / (x_.var(-1, keepdim=True) + 1e-5).sqrt()),
        "The norm divides by the deviation with E - 1 (torch's `std` and `var` do, "
        "unless told unbiased=False); LayerNorm takes E.",
    ),
    "norm-unbiased-without-eps": (
        _norm(lambda x, v, x_: x / x_.std(-1, keepdim=True)),
        "The norm divides by `x.std(-1)`: that takes E - 1 where LayerNorm takes E, "
        "and there is no eps. Take x.var(-1, unbiased=False) + 1e-5 under a root.",
    ),
    "norm-by-variance": (
        _norm(lambda x, variance, _: x / (variance + 1e-5)),
        "The norm divides by the variance; it has to divide by its root.",
    ),
    "norm-not-centred": (
        _with(Norm=type("Norm", (_Norm,), {"forward": _rms})),
        "The norm does not subtract the mean (it is an RMSNorm); LayerNorm does.",
    ),
    "norm-centred-alone": (
        _norm(lambda x, variance, _: x),
        "The norm subtracts the mean and divides by nothing: the deviation is missing.",
    ),
    "norm-of-places": (
        _with(Norm=type("Norm", (_Norm,), {"forward": _places})),
        "The norm runs over the places of a sequence; it has to run over the E "
        "features of one token.",
    ),
    "norm-without-gain": (
        _with(Norm=type("Norm", (_Norm,), {"forward": _plain_norm})),
        "The norm does not use its weight and bias: after the division each feature "
        "is multiplied by one number and another is added.",
    ),
}
