"""The table of kinds: every class that ``convert`` reads and makes.

A style that keeps its weights in a known format is one line of `KINDS`. A class that
does something in its own way overrides that method of `Kind` here.
"""

import math
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lib.convert.format import Format
from mha_lib.convert.formats import FORMATS
from mha_lib.convert.kind import Kind, any_bias
from mha_lib.convert.weights import Weights

__all__ = ["KINDS"]


def _changed(what: str) -> ValueError:
    return ValueError(f"no other class computes the same function: {what}")


class _PerHead(Kind):
    """A list of heads, each with its own rows of W^Q, W^K and W^V."""

    def settings(self, module: Any) -> dict[str, Any]:
        drops = sorted({head.dropout for head in module.heads})
        if len(drops) > 1:
            raise _changed(
                f"the heads of the {self.name} drop {drops} of their weights"
            )
        return super().settings(module)

    def arrays(self, module: Any) -> dict[str, Tensor]:
        rows: dict[str, list[Tensor]] = {}
        for name, x in module.state_dict().items():
            stem = name.split(".", 2)[2] if name.startswith("heads.") else name
            rows.setdefault(stem, []).append(x)
        return {stem: torch.cat(blocks) for stem, blocks in rows.items()}

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        state = {}
        for stem, x in arrays.items():
            if stem.startswith("out_proj."):
                state[stem] = x
                continue
            for head, block in enumerate(x.chunk(module.num_heads)):
                state[f"heads.{head}.{stem}"] = block.clone()
        module.load_state_dict(state, assign=True)


class _SplitConcat(Kind):
    """It may do more than attention, and then no other class computes the same."""

    def settings(self, module: Any) -> dict[str, Any]:
        extras = ("activation", "causal", "residual", "norm")
        used = [name for name in extras if getattr(module, name)]
        if used:
            raise _changed(f"the {self.name} uses {', '.join(used)}")
        return super().settings(module)


class _Einsum(Kind):
    """Its scale is an attribute, which somebody may have set."""

    def settings(self, module: Any) -> dict[str, Any]:
        if not math.isclose(module.scale * math.sqrt(module.head_dim), 1):
            raise _changed(f"the {self.name} has scale = {module.scale}, not 1/√D")
        return super().settings(module)


class _Torch(Kind):
    """torch's layer, and ours with the same interface."""

    def format_of(self, module: Any) -> Format:
        joint, separate = self.formats
        return separate if module.in_proj_weight is None else joint

    def complete(self, weights: Weights) -> Weights:
        return weights  # the format itself completes the biases

    def new(self, weights: Weights, source: Any) -> Any:
        with torch.device("meta"):
            return self.type(
                weights.sizes["E"],
                weights.num_heads,
                dropout=weights.dropout,
                bias=any_bias(weights),
                add_bias_kv=weights.bias_k is not None,
                add_zero_attn=weights.add_zero_attn,
                kdim=weights.sizes["K"],
                vdim=weights.sizes["W"],
                batch_first=getattr(source, "batch_first", True),
            )


class _Keras(Kind):
    """Keras' layer, on whatever Keras computes with."""

    def settings(self, module: Any) -> dict[str, Any]:
        if not module.built:
            raise ValueError(
                "the Keras layer must be built, so that it has weights: call it once, "
                "or its build(query_shape, value_shape); got one that is not"
            )
        if tuple(module.attention_axes) != (1,):
            raise ValueError(
                "the Keras layer must attend along axis 1 of (B, T, E); "
                f"got attention_axes = {tuple(module.attention_axes)}"
            )
        return super().settings(module)

    def arrays(self, module: Any) -> dict[str, Any]:
        return {_keras_name(variable): variable for variable in module.weights}

    def new(self, weights: Weights, source: Any) -> Any:
        sizes = weights.sizes
        layer = self.type(
            num_heads=sizes["H"],
            key_dim=sizes["D"],
            value_dim=sizes["V"],
            dropout=weights.dropout,
            use_bias=any_bias(weights),
            output_shape=None if sizes["O"] == sizes["E"] else sizes["O"],
            dtype=str(weights.q.weight.dtype).removeprefix("torch."),
        )
        query, key, value = ((None, None, sizes[letter]) for letter in "EKW")
        layer.build(query_shape=query, value_shape=value, key_shape=key)
        return layer

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        for variable in module.weights:
            x = arrays[_keras_name(variable)]
            variable.assign(_to_numpy(x))
            _check_dtype(x, variable.value)  # Keras may compute with JAX

    def training(self, module: Any) -> bool | None:
        return None  # the call says whether it drops out

    def set_training(self, module: Any, training: bool) -> None:
        pass


def _keras_name(variable: Any) -> str:
    """'…/multi_head_attention/query/kernel' → 'query/kernel'."""
    return "/".join(variable.path.split("/")[-2:])


def _to_numpy(x: Tensor) -> Any:
    """NumPy has no bfloat16; each of its values is a float32 too."""
    x = x.cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _check_dtype(x: Tensor, held: Any) -> None:
    """JAX makes float32 of float64 and, at most, warns."""
    dtype = str(x.dtype).removeprefix("torch.")
    if dtype not in str(held.dtype):
        raise ValueError(
            f"JAX must be able to hold {dtype}: set jax_enable_x64, or convert the "
            f"source to float32; got {held.dtype} back"
        )


class _Flax(Kind):
    """The layer of flax.nnx."""

    def settings(self, module: Any) -> dict[str, Any]:
        attends = sys.modules["flax.nnx"].dot_product_attention
        if module.attention_fn is not attends or module.decode:
            raise ValueError(
                "the flax layer must have the usual attention_fn and not decode; got "
                f"attention_fn = {module.attention_fn}, decode = {module.decode}"
            )
        if module.dropout_rate and module.broadcast_dropout:
            raise ValueError(
                "the flax layer must drop out each weight by itself; got "
                f"dropout_rate = {module.dropout_rate} with broadcast_dropout = True: "
                "set one of them to 0 or False, if that is what you want"
            )
        return {"num_heads": module.num_heads, "dropout": module.dropout_rate}

    def arrays(self, module: Any) -> dict[str, Any]:
        nnx = sys.modules["flax.nnx"]
        tree = nnx.to_pure_dict(nnx.state(module, nnx.Param))
        return {f"{a}.{b}": x for a, leaves in tree.items() for b, x in leaves.items()}

    def new(self, weights: Weights, source: Any) -> Any:
        sizes, nnx = weights.sizes, sys.modules["flax.nnx"]
        return self.type(
            num_heads=sizes["H"],
            in_features=sizes["E"],
            qkv_features=sizes["H"] * sizes["D"],
            out_features=sizes["O"],
            in_kv_features=sizes["K"],
            dropout_rate=weights.dropout,
            broadcast_dropout=False,
            use_bias=any_bias(weights),
            decode=False,
            rngs=nnx.Rngs(0),
        )

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        nnx, jnp = sys.modules["flax.nnx"], sys.modules["jax.numpy"]
        for name, x in arrays.items():
            part, leaf = name.split(".")
            array = jnp.asarray(_to_numpy(x))
            if x.dtype == torch.bfloat16:
                array = array.astype(jnp.bfloat16)
            _check_dtype(x, array)
            setattr(getattr(module, part), leaf, nnx.Param(array))

    def training(self, module: Any) -> bool | None:
        return None if module.deterministic is None else not module.deterministic

    def set_training(self, module: Any, training: bool) -> None:
        module.deterministic = not training


class _HuggingFace(Kind):
    """A class that is made from a configuration and may hold more than attention."""

    options: tuple[str, ...]  # what its configuration calls E, H and the two dropouts

    def new(self, weights: Weights, source: Any) -> Any:
        name = self.name.replace("Attention", "Config")
        configure = getattr(sys.modules[self.module], name)
        values = (weights.sizes["E"], weights.num_heads)
        values += (weights.dropout, weights.output_dropout)
        config = configure(
            attn_implementation="eager",  # gives the attention weights back
            **dict(zip(self.options, values)),
        )
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            module = self.type(config)
        return module.to(weights.q.weight.device, weights.q.weight.dtype)

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        module.load_state_dict(module.state_dict() | arrays, assign=True)


class _Bert(_HuggingFace):
    """Self-attention and the dense layer behind it, without residual and norm."""

    options = (
        "hidden_size",
        "num_attention_heads",
        "attention_probs_dropout_prob",
        "hidden_dropout_prob",
    )

    def settings(self, module: Any) -> dict[str, Any]:
        return {
            "num_heads": module.self.num_attention_heads,
            "dropout": module.self.dropout.p,
            "output_dropout": module.output.dropout.p,
        }


class _Gpt2(_HuggingFace):
    """GPT-2's attention; the causal mask is its caller's."""

    options = ("n_embd", "n_head", "attn_pdrop", "resid_pdrop")

    def format_of(self, module: Any) -> Format:
        return self.formats[bool(module.is_cross_attention)]

    def settings(self, module: Any) -> dict[str, Any]:
        layer = module.layer_idx if module.scale_attn_by_inverse_layer_idx else 0
        if not module.scale_attn_weights or layer:
            raise ValueError(
                "the scores of GPT2Attention must be divided by √D; got "
                f"scale_attn_weights = {module.scale_attn_weights} and "
                f"scale_attn_by_inverse_layer_idx in layer {layer}"
            )
        return {
            "num_heads": module.num_heads,
            "dropout": module.attn_dropout.p,
            "output_dropout": module.resid_dropout.p,
        }


# --- the table --------------------------------------------------------------------

_SEPARATE, _FUSED, _TORCH = (FORMATS[x] for x in ("separate", "fused_3hd", "torch"))
_IN_PROJ = _FUSED.renamed({"qkv": "in_proj", "proj": "out_proj"})
_PLAIN_TORCH = replace(  # as BuiltinMHA makes it: no further key and value
    _TORCH,
    arrays={name: x for name, x in _TORCH.arrays.items() if "bias_" not in name},
    optional=_TORCH.optional[:1],
)
_BOTH_TORCH = (_TORCH, FORMATS["torch_separate"])
_BOTH_GPT2 = (FORMATS["gpt2"], FORMATS["gpt2_cross"])
_TWO_DROPOUTS, _ZERO = ("dropout", "output_dropout"), ("dropout", "add_zero_attn")
_MODELS = "transformers.models"

KINDS: tuple[Kind, ...] = (
    _PerHead("mha_lib.styles.per_head:PerHeadMHA", _SEPARATE),
    Kind("mha_lib.styles.batched:BatchedMHA", _SEPARATE),
    Kind("mha_lib.styles.fused:FusedMHA", _IN_PROJ, holds=_TWO_DROPOUTS),
    _Einsum("mha_lib.styles.einsum:EinsumMHA", _SEPARATE),
    Kind("mha_lib.styles.builtin:BuiltinMHA", _PLAIN_TORCH, prefix="mha."),
    _SplitConcat("mha_lib.styles.split_concat:SplitConcatMHA", _SEPARATE),
    _Torch("mha_lib.dropin:MultiheadAttention", *_BOTH_TORCH, holds=_ZERO),
    _Torch("torch.nn:MultiheadAttention", *_BOTH_TORCH, holds=_ZERO),
    _Keras("keras.layers:MultiHeadAttention", FORMATS["keras"]),
    _Flax("flax.nnx:MultiHeadAttention", FORMATS["flax"]),
    _Bert(
        f"{_MODELS}.bert.modeling_bert:BertAttention",
        FORMATS["bert"],
        holds=_TWO_DROPOUTS,
    ),
    _Gpt2(
        f"{_MODELS}.gpt2.modeling_gpt2:GPT2Attention", *_BOTH_GPT2, holds=_TWO_DROPOUTS
    ),
)
