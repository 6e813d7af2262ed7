"""The same attention in tiles: no map larger than the processor's cache is in use."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mha_lib._inputs import check_operands
from mha_lib.attention import attention
from mha_lib.masks import causal_mask, check_bias, check_mask

__all__ = ["tiled_attention"]

TILE = 2**19  # numbers in one tile: 2 MiB in float32, about a core's own cache
MASKED_ROWS = 128
Index = tuple[slice, slice, slice, slice]  # sequences, heads, queries, keys


def tiled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    average: bool = False,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √D) v with its weights, computed piece by piece.

    The results are those of :func:`mha_lib.attention.attention`. On a processor a
    large map of scores costs more in memory traffic than in arithmetic, so here each
    piece goes through product, softmax and product while it is in the cache. A small
    map, another device, dropout, a bias that learns and torch's program
    transformations (``torch.compile``, ``torch.func``, autocast, forward mode) take
    the plain formula. Without weights the work is that of
    ``F.scaled_dot_product_attention``, except in bfloat16 where no gradient is
    wanted: there tiles were measured to be twice as fast (chapter 10).

    Args:
        q: queries (B, H, T, D).
        k: keys (B, H, S, D).
        v: values (B, H, S, V).
        mask: boolean, True = may attend, broadcastable to (B, H, T, S); or None.
        bias: added to the scaled scores, broadcastable to (B, H, T, S); or None.
        dropout_p: as in ``attention``.
        is_causal: as in ``attention``.
        average: return the mean of the weights over the heads; the map of all
            heads then never exists at once.
        need_weights: False returns None for the weights; no map exists then.

    Returns:
        The context (B, H, T, V) and the weights before dropout: (B, H, T, S), or
        (B, T, S) if averaged; or None.

    Raises:
        TypeError: as ``attention``.
        ValueError: as ``attention``.

    Note:
        Both results have first and second derivatives. The averaged weights keep no
        map for the backward pass: it computes the pieces again.
        Scores in bfloat16 are rounded, as in ``attention``; torch's kernel keeps them
        in float32, and its context comes about six times as close.

    Example:
        >>> import torch
        >>> from mha_lib.tiled import tiled_attention
        >>> q, k, v = (torch.randn(1, 2, 1024, 4) for _ in range(3))
        >>> context, weights = tiled_attention(q, k, v, average=True)
        >>> context.shape, weights.shape
        (torch.Size([1, 2, 1024, 4]), torch.Size([1, 1024, 1024]))

    Source:
        Rabe and Staats (2021), Self-attention Does Not Need O(n²) Memory; Dao et
        al. (2022), FlashAttention: tiles, and recomputation in the backward pass.
    """
    check_operands(q, k, v)
    shape = (*q.shape[:-1], k.shape[-2])  # (B, H, T, S)
    if dropout_p or not _worth_tiling(q, k, v, bias, need_weights):
        options = {"bias": bias, "dropout_p": dropout_p, "is_causal": is_causal}
        context, weights = attention(
            q, k, v, mask, **options, need_weights=need_weights
        )
        return context, weights.mean(1) if need_weights and average else weights
    if mask is not None:
        check_mask(mask, shape)
        if is_causal:
            mask, is_causal = mask & causal_mask(*shape[-2:]), False
    if bias is not None:
        check_bias(bias, q.dtype, shape)
    kept = "none" if not need_weights else "mean" if average else "each"
    return _Tiled.apply(q, k, v, mask, bias, is_causal, kept)


def _worth_tiling(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, need_weights: bool
) -> bool:
    return (
        # first of all: an exported program must hold for small and for large maps
        not torch.compiler.is_compiling()
        and q.dim() == 4
        and q.device.type == "cpu"
        and q.shape[:-1].numel() * k.shape[-2] > TILE
        and (need_weights or (q.dtype == torch.bfloat16 and not _learns(q, k, v)))
        and not (bias is not None and bias.requires_grad)
        and not torch.is_autocast_enabled("cpu")
        and not torch.overrides.has_torch_function((q, k, v))
        # torch.func and forward mode see through plain operations only
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def _learns(*operands: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in operands)


class _Weights:
    """softmax(q kᵀ), any tile of it at a time; q comes scaled."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
    ) -> None:
        self.shape = (*q.shape[:-1], k.shape[-2])  # (B, H, T, S)
        self.q, self.keys = _for_products(q), _for_products(k).mT
        self.hidden = self.empty = self.seen = self.later = None
        added = bias
        # Adding −inf is several times cheaper than filling, and does the same
        # unless a hidden score is itself inf or NaN.
        filled = (is_causal or mask is not None) and not _finite_products(q, k)
        if mask is not None:
            added = q.new_zeros(1) if bias is None else bias
            added = added.masked_fill(~mask, -math.inf)
            if filled:
                self.hidden = (~mask).expand(self.shape)
            empty = (added.amax(-1) == -math.inf) & ~mask.all(-1)
            if empty.any():
                self.empty = empty.expand(self.shape[:-1])
            mask = mask.reshape(-1, *mask.shape[-2:])
            self.seen = mask.any(0).expand(self.shape[-2:])  # (T, S): by any head
        self.added = None if added is None else added.expand(self.shape)
        self.filled = filled
        # Under a mask few rows, so that many columns can be left out.
        few = MASKED_ROWS if is_causal or mask is not None else self.shape[-2]
        self.rows = min(self.shape[-2], max(1, TILE // self.shape[-1]), few)
        if is_causal:
            self.later = q.new_full((self.rows, self.rows), -math.inf).triu(1)
        self.scratch = q.new_empty(0)

    def tiles(self) -> Iterator[Index]:
        """Cut the map; what is left out is hidden.

        A tile holds heads of one sequence, or whole sequences: its first two axes
        can be seen as one.
        """
        B, H, T, S = self.shape
        rows = self.rows
        heads = min(H, max(1, TILE // (rows * S)))
        batches = max(1, TILE // (H * rows * S)) if _is_short(self.q) else 1
        for t in range(0, T, rows):
            columns = S
            if self.later is not None:
                columns = min(S, t + rows)
            elif self.seen is not None:
                keys = self.seen[t : t + rows].any(0).nonzero()
                columns = int(keys[-1]) + 1 if len(keys) else 0
            for b in range(0, B, batches):
                for h in range(0, H, heads):
                    yield (
                        slice(b, b + batches),
                        slice(h, h + heads),
                        slice(t, t + rows),
                        slice(columns),
                    )

    def tile(self, index: Index, out: Tensor | None = None) -> Tensor:
        b, heads, rows, columns = index
        q, keys = self.q[b, heads, rows], self.keys[b, heads, :, columns]
        if out is None:  # one piece of memory then serves all tiles
            out = self.scratch.resize_(*q.shape[:-1], keys.shape[-1])
        flat = out.view(q.shape[0] * q.shape[1], *out.shape[-2:])
        torch.bmm(q.flatten(0, 1), keys.flatten(0, 1), out=flat)
        if self.hidden is not None:
            out.masked_fill_(self.hidden[index], 0.0)
        if self.added is not None:
            out += self.added[index]
        if self.later is not None:
            corner = out[..., rows.start :]  # before it every key is seen
            later = self.later[: corner.shape[-2], : corner.shape[-1]]
            if self.filled:
                corner.masked_fill_(later < 0, 0.0)
            corner += later
        torch.softmax(out, -1, out=out)
        if self.empty is not None:
            out[self.empty[index[:-1]]] = 0.0
        return out


def _finite_products(q: Tensor, k: Tensor) -> bool:
    """Whether no product of a query and a key can be inf or NaN."""
    q_max, k_max = (float(x.abs().amax()) for x in (q, k))
    return q.shape[-1] * q_max * k_max < torch.finfo(q.dtype).max


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, bias, is_causal, kept):
        computed = _Weights(q * q.shape[-1] ** -0.5, k, mask, bias, is_causal)
        B, H, T, S = computed.shape
        context = _heads_last(q, T, v.shape[-1], q.dtype)
        values, weights = _for_products(v), None
        if kept == "mean":
            weights = q.new_empty(B, T, S, dtype=_accumulator(q.dtype))
        elif kept == "each":
            weights = q.new_empty(B, H, T, S)
        for index in computed.tiles():
            b, heads, rows, columns = index
            hidden = slice(columns.stop, None)  # from all of these rows
            in_place = kept == "each" and columns.stop == S
            tile = computed.tile(index, out=weights[index] if in_place else None)
            if kept == "mean":
                sums = weights[b, rows, columns]
                if heads.start == 0:
                    torch.sum(tile, 1, out=sums)
                    weights[b, rows, hidden] = 0.0
                else:
                    one = tile.shape[1] == 1
                    sums.add_(tile[:, 0] if one else tile.sum(1, dtype=sums.dtype))
            elif kept == "each" and not in_place:
                weights[index] = tile
                weights[b, heads, rows, hidden] = 0.0
            context[b, heads, rows] = tile @ values[b, heads, columns]
        if kept == "mean":
            weights = weights.div_(H).to(q.dtype)
        ctx.options = is_causal, kept
        saved = weights if kept == "each" else None
        ctx.save_for_backward(q, k, v, mask, bias, saved)
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    def backward(ctx, grad_context, grad_weights):
        q, k, v, mask, bias, weights = ctx.saved_tensors
        is_causal, kept = ctx.options
        if torch.is_grad_enabled():  # a second derivative is wanted
            options = {"mask": mask, "bias": bias, "is_causal": is_causal}
            wanted = (grad_context, grad_weights)
            grads = _backward_by_formula((q, k, v), options, kept, wanted)
            return *grads, None, None, None, None

        scale = q.shape[-1] ** -0.5
        q = q * scale
        computed = _Weights(q, k, mask, bias, is_causal)
        B, H, T, S = computed.shape
        if grad_context is None:
            grad_context = v.new_zeros(1).expand(B, H, T, v.shape[-1])
        if grad_weights is not None and kept == "mean":
            grad_weights = (grad_weights / H)[:, None].expand(B, H, T, S)
        grad_q = _heads_last(q, T, q.shape[-1], q.dtype)
        grad_k = _heads_last(k, S, k.shape[-1], _accumulator(k.dtype)).zero_()
        grad_v = _heads_last(v, S, v.shape[-1], _accumulator(v.dtype)).zero_()
        for index in computed.tiles():
            b, heads, rows, columns = index
            queries, keys = (b, heads, rows), (b, heads, columns)
            tile = weights[index] if kept == "each" else computed.tile(index)
            grad_v[keys].add_(tile.mT @ grad_context[queries])
            grad = grad_context[queries] @ v[keys].mT  # of the weights
            if grad_weights is not None:
                grad += grad_weights[index]
            grad -= (grad * tile).sum(-1, keepdim=True)
            grad *= tile  # of the scores
            grad_q[queries] = grad @ k[keys]
            grad_k[keys].add_(grad.mT @ q[queries])
        grads = (grad_q.mul_(scale), grad_k.to(k.dtype), grad_v.to(v.dtype))
        return *grads, None, None, None, None


def _heads_last(like: Tensor, length: int, size: int, dtype: torch.dtype) -> Tensor:
    """Empty (B, H, length, size) whose heads lie side by side: merging is free."""
    B, H = like.shape[:2]
    return like.new_empty(B, length, H, size, dtype=dtype).transpose(1, 2)


def _is_short(x: Tensor) -> bool:
    return x.itemsize == 2


def _for_products(x: Tensor) -> Tensor:
    """Products of short numbers are faster where many heads lie in one piece."""
    return x.contiguous() if _is_short(x) else x


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums over many tiles are kept in float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def _backward_by_formula(operands, options, kept, grads):
    """The gradients of q, k and v as plain operations, which can be derived again."""
    context, weights = attention(*operands, **options)
    results = (context, weights.mean(1) if kept == "mean" else weights)
    pairs = [pair for pair in zip(results, grads) if pair[1] is not None]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            [x for x in operands if x.requires_grad],
            [grad for _, grad in pairs],
            create_graph=True,
            allow_unused=True,  # the weights do not depend on v
        )
    )
    return [next(found) if x.requires_grad else None for x in operands]
