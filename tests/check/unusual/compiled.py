"""Programs that torch's compiler has read, and programs written with einops."""

import math
import warnings

import torch
from einops import rearrange
from torch import nn

from tests.check.unusual.layers import FOUR, Four
from tests.check.unusual.registry import linears, unusual

# --- TorchScript --------------------------------------------------------------------


def _attend(
    q, k, v, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(torch.logical_not(mask), float("-inf"))
    w = torch.softmax(s, dim=-1)
    return torch.matmul(w, v), w


def _causal(T: int, S: int) -> torch.Tensor:
    return torch.ones([T, S], dtype=torch.bool).tril()


class _Scripted(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0), x.size(1), self.num_heads, -1).transpose(1, 2)

    def forward(self, query, key, value, mask: torch.Tensor | None = None):
        q = self.heads(self.q_proj(query))
        k = self.heads(self.k_proj(key))
        v = self.heads(self.v_proj(value))
        s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if mask is not None:
            s = s.masked_fill(torch.logical_not(mask.unsqueeze(1)), -1e9)
        w = torch.softmax(s, dim=-1)
        return self.out_proj(torch.matmul(w, v).transpose(1, 2).flatten(2)), w


def _traceable(q, k, v, mask):
    """Nothing of its sizes is a number of Python's, which a trace would keep."""
    scale = torch.ones_like(q).sum(-1, keepdim=True).rsqrt()
    return (q * scale @ k.mT).masked_fill(~mask, -1e9).softmax(-1) @ v


with warnings.catch_warnings():  # torch calls TorchScript deprecated
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(_attend)
    scripted_mask = torch.jit.script(_causal)
    scripted_layer = torch.jit.script(_Scripted(15, 3))
    traced = torch.jit.trace(
        _traceable, (*torch.randn(3, 2, 4, 3), torch.ones(4, 4).bool())
    )

unusual("attention", "A scripted function.", name="scripted")(scripted)
unusual("causal_mask", "A scripted function.", name="scripted")(scripted_mask)
unusual(
    "mha",
    "A scripted module.",
    name="scripted",
    read=linears("q_proj", "k_proj", "v_proj", "out_proj"),
)(scripted_layer)


@unusual("attention", "A traced function behind one that makes the mask.")
def traced_inside(q, k, v, mask=None):
    mask = torch.ones((), dtype=torch.bool) if mask is None else mask
    return traced(q, k, v, mask.expand(*q.shape[:-1], k.shape[-2]))


@unusual("mha", "Its heads attend in a scripted function.", read=FOUR)
class ScriptedInside(Four):
    def attend(self, q, k, v, mask):
        return scripted(q, k, v, mask if mask is None else mask.unsqueeze(1))


# --- einops -------------------------------------------------------------------------


@unusual("split_heads", "einops.")
def by_rearrange(x, num_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


@unusual("merge_heads", "einops.")
def back_by_rearrange(x):
    return rearrange(x, "b h t d -> b t (h d)")


@unusual("mha", "einops for heads, masks and sizes.", read=FOUR)
class Rearranged(Four):
    def forward(self, query, key, value, mask=None):
        pairs = (self.wq, query), (self.wk, key), (self.wv, value)
        q, k, v = (
            rearrange(f(x), "b n (h d) -> (b h) n d", h=self.num_heads)
            for f, x in pairs
        )
        s = torch.einsum("zid,zjd->zij", q, k) * self.head_dim**-0.5
        s = rearrange(s, "(b h) t s -> b h t s", h=self.num_heads)
        if mask is not None:
            s = s.masked_fill(
                ~rearrange(mask, "b t s -> b 1 t s"), -torch.finfo(s.dtype).max
            )
        w = s.softmax(dim=-1)
        v = rearrange(v, "(b h) s d -> b h s d", h=self.num_heads)
        return self.wo(rearrange(w @ v, "b h t d -> b t (h d)")), w
