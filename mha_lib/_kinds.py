"""The classes that ``convert`` knows: how to read each, and how to make one.

A class of another framework is looked up in ``sys.modules``: whoever has such an object
or class has imported its framework, and nobody else has to.
"""

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lib.checkpoints import LAYOUTS, Layout, Projection, Weights

__all__ = ["KINDS", "Kind"]


class Kind:
    """A class that keeps its weights in a layout. As it stands: one of our styles.

    Args:
        path: "module:class".
        layouts: those that it may have, the preferred one first.
        prefix: what stands before the names of the layout.
        holds: the fields of `Weights` beside the arrays that the class has too.
    """

    def __init__(
        self,
        path: str,
        *layouts: Layout,
        prefix: str = "",
        holds: tuple[str, ...] = ("dropout",),
    ) -> None:
        self.module, self.name = path.split(":")
        self.layouts, self.prefix, self.holds = layouts, prefix, holds

    @property
    def type(self) -> type | None:
        """The class, if its module has been imported."""
        return getattr(sys.modules.get(self.module), self.name, None)

    @property
    def title(self) -> str:
        """What messages call it: its name, with the module where two share one."""
        unique = self.module.startswith(("mha_lib.", "transformers."))
        return self.name if unique else f"{self.module}.{self.name}"

    def read(self, module: Any) -> Weights:
        """The weights of a module of this class, or ValueError."""
        settings = self.settings(module)
        heads = settings.pop("num_heads")
        layout, arrays = self.layout_of(module), self.arrays(module)
        return replace(layout.read(arrays, heads, prefix=self.prefix), **settings)

    def objection(self, weights: Weights) -> str | None:
        """Why no module of this class can hold the weights; None if one can."""
        reasons = [layout.objection(weights) for layout in self.layouts]
        if None not in reasons:
            return reasons[-1]  # the last layout is the roomiest
        if weights.output_dropout and "output_dropout" not in self.holds:
            p = weights.output_dropout
            return f"it has no dropout on its output, which is {p} (make it 0 first)"
        return None

    def make(self, weights: Weights, source: Any) -> Any:
        """A new module with these weights, which it can hold."""
        layout = next(x for x in self.layouts if x.objection(weights) is None)
        module = self.new(weights, source)
        self.load(module, layout.write(self.complete(weights), prefix=self.prefix))
        return module

    # What the other kinds do in their own way:

    def layout_of(self, module: Any) -> Layout:
        """The layout that this module has."""
        return self.layouts[0]

    def settings(self, module: Any) -> dict[str, Any]:
        """What `Weights` holds beside the arrays."""
        return {name: getattr(module, name) for name in ("num_heads", *self.holds)}

    def arrays(self, module: Any) -> dict[str, Any]:
        """All arrays of the module by name."""
        return module.state_dict()

    def complete(self, weights: Weights) -> Weights:
        """With a bias everywhere, if there is one anywhere."""
        if all(bias is None for bias in weights.biases):
            return weights

        def fill(x: Projection) -> Projection:
            missing = x.bias is None
            bias = x.weight.new_zeros(len(x.weight)) if missing else x.bias
            return Projection(x.weight, bias)

        filled = {name: fill(getattr(weights, name)) for name in ("q", "k", "v", "out")}
        return replace(weights, **filled)

    def new(self, weights: Weights, source: Any) -> Any:
        """A module of the right sizes whose numbers are still to come."""
        E, H = weights.sizes["E"], weights.num_heads
        with torch.device("meta"):  # draws no random number
            module = self.type(E, H, weights.dropout, _any_bias(weights))
        if "output_dropout" in self.holds:
            module.output_dropout = weights.output_dropout
        return module

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        """Put the arrays into the new module."""
        module.load_state_dict(arrays, assign=True)

    def training(self, module: Any) -> bool | None:
        """Whether the module drops out; None if it does not know by itself."""
        return module.training

    def set_training(self, module: Any, training: bool) -> None:
        """Switch dropout on or off."""
        module.train(training)


def _any_bias(weights: Weights) -> bool:
    return any(bias is not None for bias in weights.biases)


class _PerHead(Kind):
    """A list of heads, each with its own rows of W^Q, W^K and W^V."""

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
            raise ValueError(
                "no other class computes the same function: "
                f"the {self.name} uses {', '.join(used)}"
            )
        return super().settings(module)


class _Torch(Kind):
    """torch's layer, and ours with the same interface."""

    def layout_of(self, module: Any) -> Layout:
        joint, separate = self.layouts
        return separate if module.in_proj_weight is None else joint

    def complete(self, weights: Weights) -> Weights:
        return weights  # the layout itself completes the biases

    def new(self, weights: Weights, source: Any) -> Any:
        with torch.device("meta"):
            return self.type(
                weights.sizes["E"],
                weights.num_heads,
                dropout=weights.dropout,
                bias=_any_bias(weights),
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
            use_bias=_any_bias(weights),
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
            use_bias=_any_bias(weights),
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

    def layout_of(self, module: Any) -> Layout:
        return self.layouts[bool(module.is_cross_attention)]

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


# --- the registry -----------------------------------------------------------------

_SEPARATE, _FUSED, _TORCH = (LAYOUTS[x] for x in ("separate", "fused_3hd", "torch"))
_IN_PROJ = _FUSED.renamed({"qkv": "in_proj", "proj": "out_proj"})
_PLAIN_TORCH = replace(  # as BuiltinMHA makes it: no further key and value
    _TORCH,
    arrays={name: x for name, x in _TORCH.arrays.items() if "bias_" not in name},
    optional=_TORCH.optional[:1],
)
_BOTH_TORCH = (_TORCH, LAYOUTS["torch_separate"])
_BOTH_GPT2 = (LAYOUTS["gpt2"], LAYOUTS["gpt2_cross"])
_TWO_DROPOUTS, _ZERO = ("dropout", "output_dropout"), ("dropout", "add_zero_attn")
_MODELS = "transformers.models"

KINDS: tuple[Kind, ...] = (
    _PerHead("mha_lib.styles.per_head:PerHeadMHA", _SEPARATE),
    Kind("mha_lib.styles.batched:BatchedMHA", _SEPARATE),
    Kind("mha_lib.styles.fused:FusedMHA", _IN_PROJ, holds=_TWO_DROPOUTS),
    Kind("mha_lib.styles.einsum:EinsumMHA", _SEPARATE),
    Kind("mha_lib.styles.builtin:BuiltinMHA", _PLAIN_TORCH, prefix="mha."),
    _SplitConcat("mha_lib.styles.split_concat:SplitConcatMHA", _SEPARATE),
    _Torch("mha_lib.dropin:MultiheadAttention", *_BOTH_TORCH, holds=_ZERO),
    _Torch("torch.nn:MultiheadAttention", *_BOTH_TORCH, holds=_ZERO),
    _Keras("keras.layers:MultiHeadAttention", LAYOUTS["keras"]),
    _Flax("flax.nnx:MultiHeadAttention", LAYOUTS["flax"]),
    _Bert(
        f"{_MODELS}.bert.modeling_bert:BertAttention",
        LAYOUTS["bert"],
        holds=_TWO_DROPOUTS,
    ),
    _Gpt2(
        f"{_MODELS}.gpt2.modeling_gpt2:GPT2Attention", *_BOTH_GPT2, holds=_TWO_DROPOUTS
    ),
)
