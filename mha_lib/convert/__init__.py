"""The same weights in every style, in other people's layers, and out of checkpoints.

Each class has one reader (its arrays → four plain projections) and one writer (four
plain projections → its arrays). Converting is reading, then writing. ::

    weights    what every layer holds: four plain projections
    notation   how a line of text says where each number is stored
    format     a checkpoint format: arrays → weights, weights → arrays
    formats    FORMATS, the table of them
    kind       a class of layers: module → weights, weights → module
    kinds      KINDS, the table of them

Each imports from those above it only. In `mha_lib`, ``convert`` names the function.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mha_lib.convert.format import Format, OtherNamesError
from mha_lib.convert.formats import FORMATS
from mha_lib.convert.kind import Kind
from mha_lib.convert.kinds import KINDS
from mha_lib.convert.weights import Projection, Weights

__all__ = [
    "FORMATS",
    "KINDS",
    "Format",
    "Kind",
    "OtherNamesError",
    "Projection",
    "Weights",
    "convert",
]


def convert(
    source: Any,
    target: type | Format | str,
    *,
    format: Format | str | None = None,
    num_heads: int | None = None,
    prefix: str = "",
) -> Any:
    """A new ``target`` that computes the same function as ``source``.

    Args:
        source: an instance of one of the six styles or of ``MultiheadAttention``, of
            torch's, Keras' or flax.nnx' multi-head attention, or of Hugging Face's
            BertAttention or GPT2Attention; or a checkpoint: a dictionary of named
            arrays, described by ``format``.
        target: one of these classes; or a `Format`, or its name, for named arrays.
        format: how a checkpoint is laid out, a `Format` or the name of one in
            `FORMATS`.
        num_heads: H of a checkpoint; Keras' and flax' tell it themselves.
        prefix: what stands before the names of a checkpoint; other names are left.

    Returns:
        A new layer with copies of the parameters, on the same device (Keras and JAX:
        on theirs), with the same dtype, dropout and training mode; all trainable,
        without hooks or loggers (to the same class: a deep copy). A checkpoint holds
        no dropout and no mode: its layer has none, and is new. For a format, a
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
        >>> mha = convert(state, FusedMHA, format="torch", num_heads=3, prefix=prefix)
        >>> theirs, _ = model.layers[1].self_attn(x, x, x)
        >>> torch.allclose(mha(x)[0], theirs, atol=1e-6)
        True
        >>> {name: tuple(array.shape) for name, array in convert(mha, "gpt2").items()}
        {'c_attn.weight': (6, 18), 'c_attn.bias': (18,), \
'c_proj.weight': (6, 6), 'c_proj.bias': (6,)}
    """
    as_format = _format(target) if isinstance(target, str | Format) else None
    to = None if as_format else _target(target)
    if isinstance(source, Mapping):
        weights = _read(_format(format), source, num_heads, prefix)
        kind, training = None, None
    else:
        if format is not None or num_heads is not None or prefix:
            raise TypeError(
                "format, num_heads and prefix describe a dictionary of arrays; "
                f"got a {type(source).__name__}, which knows its own"
            )
        kind = _source(source)
        if kind is to:
            return copy.deepcopy(source)
        weights, training = kind.read(source), kind.training(source)
    with torch.no_grad():
        if as_format:
            return _write(as_format, weights)
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


def _format(format: object) -> Format:
    if isinstance(format, Format):
        return format
    if not isinstance(format, str) or format not in FORMATS:
        raise ValueError(
            f"format must be a Format or one of {', '.join(FORMATS)}; got {format!r}"
        )
    return FORMATS[format]


def _read(
    format: Format, arrays: Mapping[str, object], num_heads: int | None, prefix: str
) -> Weights:
    """As the format reads them; names of another format are recognised."""
    try:
        return format.read(arrays, num_heads, prefix=prefix)
    except OtherNamesError as error:
        twins = [repr(x.name) for x in FORMATS.values() if x.fits(error.names)]
        if not twins:
            raise
        said = f"{error}; these are the names of format {twins[0]}"
        raise OtherNamesError(said, error.names) from None


def _write(format: Format, weights: Weights) -> dict[str, Tensor]:
    """As the format writes them, or ValueError with those formats that could."""
    objection = format.objection(weights)
    if objection:
        able = [x.name for x in FORMATS.values() if not x.objection(weights)]
        raise ValueError(f"{objection}; {', '.join(able) or 'no format'} could")
    return format.write(weights)


def _source(source: object) -> Kind:
    for kind in KINDS:
        if type(source) is kind.type:
            return kind
    raise TypeError(
        f"can convert from {_titles()}, or from a dictionary of arrays with its "
        f"format; got {type(source).__name__}"
    )


def _target(target: object) -> Kind:
    for kind in KINDS:
        if isinstance(target, type) and target is kind.type:
            return kind
    came = target.__name__ if isinstance(target, type) else repr(target)
    raise TypeError(f"can convert to {_titles()}, or to a format; got {came}")


def _titles() -> str:
    return ", ".join(kind.title for kind in KINDS)
