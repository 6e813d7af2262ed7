"""Right for small numbers of one dtype."""

import torch

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong

LARGE = dict(times=20.0)
DOUBLE = dict(dtype=torch.float64)


def scored(q, k, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


@wrong("attention", "exp overflows: no maximum is subtracted.", LARGE)
def exp_overflows(q, k, v, mask=None):
    e = scored(q, k, mask).exp()
    return e / e.sum(-1, keepdim=True) @ v


@wrong(
    "attention",
    "The maximum of the whole tensor is subtracted: other rows vanish.",
    LARGE,
)
def one_maximum(q, k, v, mask=None):
    scores = scored(q, k, mask)
    e = (scores - scores.max()).exp()
    return e / e.sum(-1, keepdim=True) @ v


@wrong(
    "attention",
    "Hidden keys with large scores take all before they are divided away.",
    dict(times=20.0, mask="random"),
)
def mask_then_divide(q, k, v, mask=None):
    weights = scored(q, k, None).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v


@wrong(
    "attention",
    "Hidden scores become -100, and there are lower ones.",
    dict(times=40.0, mask="random"),
)
def fill_minus_100(q, k, v, mask=None):
    scores = scored(q, k, None)
    if mask is not None:
        scores = scores.masked_fill(~mask, -100.0)
    return scores.softmax(-1) @ v


@wrong(
    "attention",
    "Hidden scores become the lowest visible one less 2.",
    dict(mask="random", S=30, T=1),
)
def fill_least_less_2(q, k, v, mask=None):
    scores = scored(q, k, None)
    if mask is not None:
        scores = scores.masked_fill(~mask, scores.min().item() - 2)
    return scores.softmax(-1) @ v


@wrong("attention", "Scores are clamped to ±20.", LARGE)
def clamped(q, k, v, mask=None):
    return scored(q, k, mask).clamp(max=20).softmax(-1) @ v


@wrong("attention", "Scores pass 50·tanh(s/50), as another model does it.", LARGE)
def capped(q, k, v, mask=None):
    scores = 50 * torch.tanh(scored(q, k, None) / 50)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "The softmax runs in bfloat16.", dict(S=9))
def softmax_in_bfloat16(q, k, v, mask=None):
    return scored(q, k, mask).bfloat16().softmax(-1).to(v.dtype) @ v


@wrong("attention", "float64 is computed in float32.", DOUBLE)
def computes_in_float32(q, k, v, mask=None):
    context = attention(q.float(), k.float(), v.float(), mask)[0]
    return context.to(q.dtype)


@wrong("attention", "float64 comes back as float32.", DOUBLE)
def returns_float32(q, k, v, mask=None):
    return attention(q, k, v, mask)[0].float()


@wrong("attention", "Everything comes back as float64.", dict())
def returns_float64(q, k, v, mask=None):
    return attention(q.double(), k.double(), v.double(), mask)[0]


@wrong("attention", "float64 meets a float32 root.", DOUBLE)
def float32_zeros(q, k, v, mask=None):
    scores = scored(q, k, mask)
    weights = torch.zeros(scores.shape, device=q.device) + scores.softmax(-1)
    return (weights.to(torch.float32) @ v.to(torch.float32)).to(v.dtype)


@wrong("attention", "Weights are rounded to three decimals.", dict(S=9))
def rounded(q, k, v, mask=None):
    return attention(q, k, v, mask)[1].round(decimals=3) @ v


@wrong("attention", "Weights below 0.01 are cut off, which long maps show.", dict(S=70))
def pruned(q, k, v, mask=None):
    weights = attention(q, k, v, mask)[1]
    weights = weights * (weights >= 0.01)
    return weights / weights.sum(-1, keepdim=True) @ v


@wrong(
    "attention",
    "A small number in the divisor wins where all scores are low.",
    dict(times=-20.0, S=1, seed=3),
)
def epsilon(q, k, v, mask=None):
    e = scored(q, k, mask).clamp(max=80).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-6) @ v


@wrong("attention", "A constant 1e-2 is added to every divisor.", dict())
def large_epsilon(q, k, v, mask=None):
    scores = scored(q, k, mask)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-2) @ v


@wrong("attention", "Scores above 10 make zeros.", LARGE)
def zeros_when_loud(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return context * (scored(q, k, None).abs().amax() < 10)


@wrong("attention", "NaN is replaced where the scores overflow.", LARGE)
def hides_nan(q, k, v, mask=None):
    e = scored(q, k, mask).exp()
    return (e / e.sum(-1, keepdim=True)).nan_to_num(0.0) @ v


@wrong("attention", "Noise of 0.001 is in every score.", dict())
def noisy(q, k, v, mask=None):
    q = q + 1e-2 * torch.randn_like(q)
    return attention(q, k, v, mask)[0]


@wrong("attention", "A softmax of powers of 2.", dict())
def powers_of_two(q, k, v, mask=None):
    return (scored(q, k, mask) * 0.6931471805599453).softmax(-1) @ v


@wrong(
    "attention",
    "Normal numbers are expected: features are clipped to ±3.",
    dict(times=5.0),
)
def clipped_inputs(q, k, v, mask=None):
    return attention(q.clamp(-3, 3), k.clamp(-3, 3), v, mask)[0]


@wrong("mha", "float64 weights are cast to float32.", DOUBLE)
class SinglePrecision(Layer):
    def forward(self, query, key, value, mask=None):
        weights = {name: x.float() for name, x in self.weights().items()}
        args = (x.float() for x in (query, key, value))
        return mha(*args, weights, self.num_heads, mask)[0].to(query.dtype)


@wrong("mha", "The softmax has no maximum; large inputs give NaN.", dict(times=60.0))
def large_layer(query, key, value, weights, num_heads, mask=None):
    q, k, v = (
        plain.split_heads(plain.projected(x, weights, n), num_heads)
        for x, n in ((query, "q"), (key, "k"), (value, "v"))
    )
    e = scored(q, k, None if mask is None else mask[:, None]).exp()
    context = e / e.sum(-1, keepdim=True) @ v
    return plain.projected(plain.merge_heads(context), weights, "o")


@wrong("split_heads", "float64 comes back as float32.", DOUBLE)
def split_float(x, num_heads):
    return plain.split_heads(x, num_heads).float()


@wrong("merge_heads", "float64 passes float32 on the way.", DOUBLE)
def merge_float(x):
    return plain.merge_heads(x.float()).to(x.dtype)


@wrong("merge_heads", "Made with torch.empty: of float32.", DOUBLE)
def merge_empty(x):
    B, H, T, D = x.shape
    out = torch.empty(B, T, H * D, device=x.device)
    for h in range(H):
        out[..., h * D : (h + 1) * D] = x[:, h]
    return out


@wrong("split_concat", "Keys with small features count as padding.", dict(tiny=(0, 2)))
def style_small_is_zero(queries, keys, weights, num_heads, causality=False):
    keys = keys * (keys.abs().sum(-1, keepdim=True) > 1e-3)
    return plain.split_concat(queries, keys, weights, num_heads, causality)
