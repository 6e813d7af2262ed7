"""torch's layer, to the letter of its interface, in arithmetic that can be read."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib._inputs import check_inputs, check_sizes, project
from mha_lib.attention import weigh
from mha_lib.layouts import head_size, merge_heads, split_heads
from mha_lib.masks import split_torch_masks
from mha_lib.tiled import attend_in_tiles

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.Module):
    """Concat(head_1 … head_H) W^O, head_i = attention(Q W_i^Q, K W_i^K, V W_i^V).

    Takes the place of ``torch.nn.MultiheadAttention``: same arguments, same
    parameters under the same names, same initial numbers from the same seed.

    Args:
        embed_dim: E, the width of the queries and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give the projections a bias.
        add_bias_kv: append one learned key and value to every sequence.
        add_zero_attn: append one key and value of zeros to every sequence.
        kdim: width of the keys; None means E.
        vdim: width of the values; None means E.
        batch_first: inputs are (B, length, width) instead of (length, B, width).
        device, dtype: of the parameters.

    Attributes:
        torch_empty_rows: what a query gets that may attend to nothing. False: zero
            weights, a zero context and zero gradients. True: torch's values, which
            are NaN where weights are returned. Set it on the class or on a layer.

    Raises:
        TypeError: a size that is not an integer.
        ValueError: a size below 1, or H does not divide E.

    Note:
        Two differences are deliberate: the empty rows above, and a mask beside
        ``is_causal``. As in torch the hint says that ``attn_mask`` is causal; here
        the mask is left out only where the hint says it all. In training torch
        returns the weights after dropout; so does this layer.

    Example:
        >>> import torch
        >>> from mha_lib import MultiheadAttention
        >>> theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        >>> ours = MultiheadAttention(6, 2, batch_first=True)
        >>> ours.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> x = torch.randn(3, 5, 6)
        >>> torch.allclose(ours(x, x, x)[0], theirs(x, x, x)[0], atol=1e-6)
        True

    Source:
        Vaswani et al. (2017), section 3.2.2; the reference of
        ``torch.nn.MultiheadAttention``.
    """

    torch_empty_rows = False
    # torch's encoder layer asks this before it takes our parameters past our forward.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_size(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        check_sizes(kdim=self.kdim, vdim=self.vdim)
        self.dropout, self.batch_first = dropout, batch_first
        self.add_zero_attn = add_zero_attn

        def parameter(wanted: bool, *shape: int) -> nn.Parameter | None:
            empty = torch.empty(shape if wanted else 0, device=device, dtype=dtype)
            return nn.Parameter(empty) if wanted else None

        E, joint = embed_dim, self.kdim == self.vdim == embed_dim
        self.q_proj_weight = parameter(not joint, E, E)
        self.k_proj_weight = parameter(not joint, E, self.kdim)
        self.v_proj_weight = parameter(not joint, E, self.vdim)
        self.in_proj_weight = parameter(joint, 3 * E, E)
        self.in_proj_bias = parameter(bias, 3 * E)
        self.out_proj = nn.Linear(E, E, bias=bias, device=device, dtype=dtype)
        self.bias_k = parameter(add_bias_kv, 1, 1, E)
        self.bias_v = parameter(add_bias_kv, 1, 1, E)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj", "q_proj", "k_proj", "v_proj"):
            weight = getattr(self, f"{name}_weight")
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            nn.init.xavier_normal_(self.bias_k)
            nn.init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; a boolean mask is True where a key is *hidden*, as torch has it.

        Args:
            query: (T, B, E), with ``batch_first`` (B, T, E), unbatched (T, E).
            key: (S, B, kdim), (B, S, kdim) or (S, kdim).
            value: (S, B, vdim), (B, S, vdim) or (S, vdim).
            key_padding_mask: (B, S), unbatched (S,): boolean, True = hidden, or
                floating, added to the scores; or None.
            need_weights: False returns None for the weights and is faster.
            attn_mask: (T, S) or (B·H, T, S), boolean or floating; or None.
            average_attn_weights: return the mean of the weights over the heads.
            is_causal: a hint that ``attn_mask`` is the causal mask.

        Returns:
            The output, shaped like the query, and the weights: (B, T, S), or
            (B, H, T, S) if not averaged, unbatched without B; or None.

        Raises:
            TypeError: inputs of another dtype than the layer, masks of an unfit one.
            ValueError: sizes that do not fit together, or ``is_causal`` alone.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal says what attn_mask is: pass attn_mask as well")
        inputs = query, key, value
        # So torch's encoder leaves padding out; one sequence at a time.
        if any(getattr(x, "is_nested", False) for x in inputs):
            if need_weights or attn_mask is not None or key_padding_mask is not None:
                raise ValueError("nested input takes no mask and returns no weights")
            sizes = [x.size(0) if x.is_nested else None for x in inputs]
            if len(set(sizes)) > 1:
                raise ValueError(f"all inputs must be nested, with one B; got {sizes}")
            triples = zip(query.unbind(), key.unbind(), value.unbind())
            outputs = [self.forward(*x, need_weights=False)[0] for x in triples]
            return torch.nested.as_nested_tensor(outputs, layout=query.layout), None
        q, k, v = self._project(inputs)
        batched = query.dim() == 3
        if not batched:
            q, k, v = q[None], k[None], v[None]
            if isinstance(key_padding_mask, Tensor):
                came, required = tuple(key_padding_mask.shape), tuple(key.shape[:1])
                if came != required:
                    raise ValueError(f"key_padding_mask must be {required}; got {came}")
                key_padding_mask = key_padding_mask[None]
        elif not self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))

        appended = (self.bias_k is not None) + self.add_zero_attn
        hint = is_causal and key_padding_mask is None and not (need_weights or appended)
        mask, bias = split_torch_masks(
            None if hint else attn_mask,  # where the hint says it all
            key_padding_mask,
            (q.shape[0], self.num_heads, q.shape[1], k.shape[1]),
            q.dtype,
        )
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], dim=1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], dim=1)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        if appended:  # what was appended is never hidden
            mask = None if mask is None else F.pad(mask, (0, appended), value=True)
            bias = None if bias is None else F.pad(bias, (0, appended))
        if self.torch_empty_rows and mask is not None:
            bias = q.new_zeros(()) if bias is None else bias
            mask, bias = None, torch.where(mask, bias, -math.inf)

        q, k, v = (split_heads(x, self.num_heads) for x in (q, k, v))
        dropout_p = self.dropout if self.training else 0.0
        if need_weights and dropout_p:
            weights = F.dropout(weigh(q, k, mask, bias=bias), dropout_p)
            context = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            options = {"bias": bias, "dropout_p": dropout_p, "is_causal": hint}
            wanted = {"average": average_attn_weights, "need_weights": need_weights}
            context, weights = attend_in_tiles(q, k, v, mask, **options, **wanted)

        output = self.out_proj(merge_heads(context))  # (B, T, E)
        if not batched:
            return output[0], weights[0] if need_weights else None
        output = output if self.batch_first else output.transpose(0, 1).contiguous()
        return output, weights

    def _project(self, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        joint = self.in_proj_weight
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        dtype = (separate[0] if joint is None else joint).dtype
        axis = 0 if self.batch_first else 1
        widths = [(name, getattr(self, name)) for name in ("embed_dim", "kdim", "vdim")]
        check_inputs(inputs, widths, dtype, batch_axis=axis, unbatched=True)
        bias = None if self.in_proj_bias is None else self.in_proj_bias.to(dtype)
        query, key, value = inputs
        if joint is not None and query is key and key is value:
            return F.linear(query, joint, bias).chunk(3, dim=-1)  # one product
        weights = separate if joint is None else joint.chunk(3)
        return project(inputs, weights, bias)

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        """Accept three square projections where torch has one, as older files do."""
        joint, square = f"{prefix}in_proj_weight", (self.embed_dim,) * 2
        names = [f"{prefix}{name}_proj_weight" for name in "qkv"]
        shapes = [state_dict[name].shape for name in names if name in state_dict]
        wanted = self.in_proj_weight is not None and joint not in state_dict
        if wanted and shapes == [square] * 3:
            state_dict[joint] = torch.cat([state_dict.pop(name) for name in names])
        super()._load_from_state_dict(state_dict, prefix, *args)
