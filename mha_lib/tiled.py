"""The same attention in tiles: no map larger than the processor's cache is in use."""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from mha_lib._inputs import check_dropout, check_operands
from mha_lib._tiles import Tiles, Weights, accumulator, fits_in
from mha_lib.attention import attend, with_causal
from mha_lib.masks import check_bias, check_mask

__all__ = ["tiled_attention"]

KEPT_TILES = 2  # a map that fills no more is kept for the backward pass
KEYS_AT_ONCE = 512  # that torch's kernel takes


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
    the plain formula.

    Without weights the work is that of ``F.scaled_dot_product_attention``, except
    where tiles were measured to be faster (chapter 10): in bfloat16, if the processor
    has such products, and under ``is_causal`` alone with 512 keys or more, if no
    gradient is wanted.

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
        need_weights: False returns None for the weights; a large map never exists.

    Returns:
        The context (B, H, T, V) and the weights before dropout: (B, H, T, S), or
        (B, T, S) if averaged; or None.

    Raises:
        TypeError: as ``attention``.
        ValueError: as ``attention``.

    Note:
        Both results have first and second derivatives. Weights per head are kept for
        the backward pass, and a small map; else it computes the pieces again.
        The softmax is 2^x / Σ 2^x with x = score · log₂ e. A maximum is subtracted
        only where a sum would leave 2^−100 to 2^100, as with a score above 69.
        Scores in bfloat16 are rounded, as in ``attention``; torch's kernel keeps them
        in float32, and its context comes closer, the more so the larger the scores.
        Its root mean square error, against float64 with 512 to 2048 normal queries
        and D = 32 to 128, was half of ours; a fifth, with q doubled.

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
    check_dropout(dropout_p)
    shape = (*q.shape[:-1], k.shape[-2])  # (B, H, T, S)
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_bias(bias, q.dtype, shape)
    options = {"bias": bias, "dropout_p": dropout_p, "is_causal": is_causal}
    wanted = {"average": average, "need_weights": need_weights}
    return attend_in_tiles(q, k, v, mask, **options, **wanted)


def attend_in_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    average: bool,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`tiled_attention`, of arguments that are known to fit together."""
    if dropout_p or not _worth_tiling(q, k, v, mask, bias, is_causal, need_weights):
        options = {"bias": bias, "dropout_p": dropout_p, "is_causal": is_causal}
        context, weights = attend(q, k, v, mask, **options, need_weights=need_weights)
        return context, weights.mean(1) if need_weights and average else weights
    if is_causal and mask is not None:
        mask, is_causal = with_causal(mask, q, k), False
    returned = "none" if not need_weights else "mean" if average else "each"
    return _Tiled.apply(q, k, v, mask, bias, is_causal, returned)


def _worth_tiling(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    need_weights: bool,
) -> bool:
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    plain = is_causal and mask is None and bias is None and not learns
    return (
        # first of all: an exported program must hold for small and for large maps
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and q.dim() == 4
        and q.device.type == "cpu"
        and not fits_in(1, (*q.shape[:-1], k.shape[-2]))
        and (
            need_weights
            or _faster_than_torch(q.dtype, plain and k.shape[-2] >= KEYS_AT_ONCE)
        )
        and not (bias is not None and bias.requires_grad)
        and not torch.is_autocast_enabled("cpu")
        # another kind of tensor may hold no numbers, or want to see every operation
        and all(type(x) in (Tensor, nn.Parameter) for x in (q, k, v))
        # torch.func and forward mode see through plain operations only
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def _faster_than_torch(dtype: torch.dtype, long_causal: bool) -> bool:
    """Whether tiles were measured to beat ``F.scaled_dot_product_attention``.

    Its kernel leaves out later keys 512 at a time, and none among fewer. With
    bfloat16 it takes as long as with float32, even where the processor's own
    products of bfloat16 are four times as fast.
    """
    if dtype == torch.bfloat16:
        mkldnn = torch.backends.mkldnn.is_available()
        return mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return long_causal and dtype != torch.half


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, bias, is_causal, returned):
        tiles = Tiles(q, k, mask, is_causal)
        computed = Weights(tiles, q, k, mask, bias)
        B, H, T, S = tiles.shape
        context = _heads_last(q, T, v.shape[-1])
        values, each, mean = tiles.in_one_piece(v), None, None
        small = fits_in(KEPT_TILES, tiles.shape) and any(ctx.needs_input_grad)
        if returned == "each" or small:
            each = q.new_empty(B, H, T, S)
        if returned == "mean":
            mean = q.new_empty(B, T, S, dtype=accumulator(q.dtype))
        for index in tiles:
            b, heads, rows, columns = index
            hidden = slice(columns.stop, None)  # from all of these rows
            tile = computed.tile(index)
            if mean is not None:
                sums = mean[b, rows, columns]
                if heads.start == 0:
                    torch.sum(tile, 1, out=sums)
                    mean[b, rows, hidden] = 0.0
                else:
                    sums.add_(tile[:, 0] if tile.shape[1] == 1 else tile.sum(1))
            tile = computed.rounded(tile)
            if each is not None:
                each[index] = tile
                each[b, heads, rows, hidden] = 0.0
            context[b, heads, rows] = tile @ values[b, heads, columns]
        if mean is not None:
            mean = mean.div_(H).to(q.dtype)
        ctx.options = is_causal, returned
        ctx.save_for_backward(q, k, v, mask, bias, context, each)
        ctx.set_materialize_grads(False)
        return context, each if returned == "each" else mean

    @staticmethod
    def backward(ctx, grad_context, grad_weights):
        q, k, v, mask, bias, context, each = ctx.saved_tensors
        is_causal, returned = ctx.options
        if torch.is_grad_enabled():  # a second derivative is wanted
            options = {"mask": mask, "bias": bias, "is_causal": is_causal}
            wanted = (grad_context, grad_weights)
            grads = _backward_by_formula((q, k, v), options, returned, wanted)
            return *grads, None, None, None, None

        tiles = Tiles(q, k, mask, is_causal)
        B, H, T, S = tiles.shape
        if each is None:
            computed = Weights(tiles, q, k, mask, bias)
        if grad_context is None:
            grad_context = torch.zeros_like(context)
        if grad_weights is not None and returned == "mean":
            grad_weights = (grad_weights / H)[:, None].expand(B, H, T, S)
        wide = accumulator(q.dtype)
        # Σ_s weight · gradient of the weight, without a map (Dao et al., appendix B.2)
        shared = (grad_context.to(wide) * context).sum(-1, keepdim=True).to(q.dtype)
        q, k, v, grad_context = map(tiles.in_one_piece, (q, k, v, grad_context))
        grad_q = _heads_last(q, T, q.shape[-1])
        # These two are made transposed: a product with a transposed tile is slower.
        grad_kt = k.new_zeros(B, H, k.shape[-1], S, dtype=wide)
        grad_vt = v.new_zeros(B, H, v.shape[-1], S, dtype=wide)
        for index in tiles:
            b, heads, rows, columns = index
            queries, keys = (b, heads, rows), (b, heads, columns)
            tile_keys = (b, heads, slice(None), columns)
            if each is not None:
                tile = each[index]
            else:
                tile = computed.rounded(computed.tile(index))
            grad_vt[tile_keys].add_(grad_context[queries].mT @ tile)
            grad = grad_context[queries] @ v[keys].mT  # of the weights
            grad -= shared[queries]
            if grad_weights is not None:
                own = grad_weights[index]
                grad += own - (own * tile).sum(-1, keepdim=True)
            grad *= tile  # of the scores
            grad_q[queries] = grad @ k[keys]
            grad_kt[tile_keys].add_(q[queries].mT @ grad)
        scale = q.shape[-1] ** -0.5
        grad_k, grad_v = (grad_kt * scale).mT.to(k.dtype), grad_vt.mT.to(v.dtype)
        return grad_q * scale, grad_k, grad_v, None, None, None, None


def _heads_last(like: Tensor, length: int, size: int) -> Tensor:
    """Empty (B, H, length, size) whose heads lie side by side: merging is free."""
    B, H = like.shape[:2]
    return like.new_empty(B, length, H, size).transpose(1, 2)


def _backward_by_formula(operands, options, returned, grads):
    """The gradients of q, k and v as plain operations, which can be derived again."""
    context, weights = attend(*operands, **options)
    results = (context, weights.mean(1) if returned == "mean" else weights)
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
