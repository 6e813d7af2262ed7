"""The same weights in every style, in other people's layers, and out of checkpoints.

Each class has one reader (its arrays → four plain projections) and one writer (four
plain projections → its arrays); `mha_lib.checkpoints` says where the numbers lie.
Converting is reading, then writing.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch

from mha_lib._kinds import KINDS, Kind
from mha_lib.checkpoints import LAYOUTS, Layout, Projection, Weights

__all__ = ["Projection", "Weights", "convert"]


def convert(
    source: Any,
    target: type | Layout | str,
    *,
    layout: Layout | str | None = None,
    num_heads: int | None = None,
    prefix: str = "",
) -> Any:
    """A new ``target`` that computes the same function as ``source``.

    Args:
        source: an instance of one of the six styles or of ``MultiheadAttention``, of
            torch's, Keras' or flax.nnx' multi-head attention, or of Hugging Face's
            BertAttention or GPT2Attention; or a checkpoint: a dictionary of named
            arrays, described by ``layout``.
        target: one of these classes; or a `Layout`, or its name, for named arrays.
        layout: how a checkpoint is laid out, a `Layout` or the name of one in
            `mha_lib.checkpoints.LAYOUTS`.
        num_heads: H of a checkpoint; Keras' and flax' tell it themselves.
        prefix: what stands before the names of a checkpoint; other names are left.

    Returns:
        A new layer with copies of the parameters, on the same device (Keras and JAX:
        on theirs), with the same dtype, dropout and training mode; all trainable,
        without hooks or loggers (to the same class: a deep copy). A checkpoint holds
        no dropout and no mode: its layer has none, and is new. For a layout, a
        dictionary of new tensors. Converting there and back gives the same numbers
        bit by bit. torch's random numbers are left alone.

    Raises:
        TypeError: a source or target that is none of these. A subclass counts as
            another class: it may compute something else.
        ValueError: a name or shape of a checkpoint that does not fit, or something
            that the target cannot hold: a key or value of another width (kdim,
            vdim), heads that do not fill the width, ``bias_k`` and ``bias_v``,
            ``add_zero_attn``, a dropout on the output, activation, causality,
            residual or norm. The message says what was found and who could.

    Note:
        Where only some projections have a bias, the new layer gets zeros for the
        others: the function is the same, the parameter count is not.

        The *function* is that from query, key, value and mask to output. Axes of the
        input do not belong to it: ``EinsumMHA`` takes (T, B, E), torch's layer what
        its ``batch_first`` says (as the source has it; True if it has none). Nor does
        ``torch_empty_rows`` of ``MultiheadAttention``, which is a switch. Nor do
        masks: where GPT-2 is causal, its model passes the mask, and so must you. Of a
        ``BertAttention`` it is ``output.dropout(output.dense(self(x)))``: the residual
        and the LayerNorm that follow are left behind, and are new in a new one.
        Rotary and other position encodings are no weights and are never converted.

    Example:
        >>> import torch
        >>> from mha_lib import FusedMHA, PerHeadMHA, convert
        >>> per_head = PerHeadMHA(embed_dim=6, num_heads=3)
        >>> fused = convert(per_head, FusedMHA)
        >>> x = torch.randn(2, 5, 6)
        >>> torch.allclose(per_head(x)[0], fused(x)[0], atol=1e-6)
        True

        Out of the state dict of a whole model, here torch's, in one call; then into
        the names and shapes of GPT-2:

        >>> model = torch.nn.TransformerEncoder(
        ...     torch.nn.TransformerEncoderLayer(d_model=6, nhead=3, batch_first=True),
        ...     num_layers=2,
        ...     enable_nested_tensor=False,
        ... )
        >>> state = model.eval().state_dict()
        >>> prefix = "layers.1.self_attn."
        >>> mha = convert(state, FusedMHA, layout="torch", num_heads=3, prefix=prefix)
        >>> theirs, _ = model.layers[1].self_attn(x, x, x)
        >>> torch.allclose(mha(x)[0], theirs, atol=1e-6)
        True
        >>> {name: tuple(array.shape) for name, array in convert(mha, "gpt2").items()}
        {'c_attn.weight': (6, 18), 'c_attn.bias': (18,), \
'c_proj.weight': (6, 6), 'c_proj.bias': (6,)}
    """
    as_layout = _layout(target) if isinstance(target, str | Layout) else None
    to = None if as_layout else _target(target)
    if isinstance(source, Mapping):
        weights = _layout(layout).read(source, num_heads, prefix=prefix)
        kind, training = None, None
    else:
        if layout is not None or num_heads is not None or prefix:
            raise TypeError(
                "layout, num_heads and prefix describe a dictionary of arrays; "
                f"got a {type(source).__name__}, which knows its own"
            )
        kind = _source(source)
        if kind is to:
            return copy.deepcopy(source)
        weights, training = kind.read(source), kind.training(source)
    with torch.no_grad():
        if as_layout:
            return as_layout.write(weights)
        objection = to.objection(weights)
        if objection:
            able = [x.title for x in KINDS if not x.objection(weights)]
            raise ValueError(
                f"{to.title} cannot compute the same function: {objection}; "
                f"{', '.join(able) or 'no class'} could"
            )
        made = to.make(weights, source)
    if training is not None:
        to.set_training(made, training)
    return made


def _layout(layout: object) -> Layout:
    if isinstance(layout, Layout):
        return layout
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ValueError(
            f"layout must be a Layout or one of {', '.join(LAYOUTS)}; got {layout!r}"
        )
    return LAYOUTS[layout]


def _source(source: object) -> Kind:
    for kind in KINDS:
        if type(source) is kind.type:
            return kind
    raise TypeError(
        f"can convert from {_titles()}, or from a dictionary of arrays with its "
        f"layout; got {type(source).__name__}"
    )


def _target(target: object) -> Kind:
    for kind in KINDS:
        if isinstance(target, type) and target is kind.type:
            return kind
    came = target.__name__ if isinstance(target, type) else repr(target)
    raise TypeError(f"can convert to {_titles()}, or to a layout; got {came}")


def _titles() -> str:
    return ", ".join(kind.title for kind in KINDS)
