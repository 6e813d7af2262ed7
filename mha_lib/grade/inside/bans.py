"""Built-ins that a question asks students to write: in a child they say so instead.

Names are replaced by stubs, and under them the kernels in torch's dispatcher, which
every other way to the same function goes through. It is a deterrent: what torch
computes in Python can be copied from its source, and nothing here prevents that.
"""

import importlib
import sys
from collections.abc import Iterable

import torch
import torch.library
from torch import nn

SHORT = {"F": "torch.nn.functional", "nn": "torch.nn"}
ALIASES = {
    "torch.nn.functional.scaled_dot_product_attention": (
        "torch._C._nn.scaled_dot_product_attention",
    ),
    "torch.nn.MultiheadAttention": (
        "torch.nn.functional.multi_head_attention_forward",
        "torch._native_multi_head_attention",
        "torch.nn.TransformerEncoderLayer",
        "torch.nn.TransformerDecoderLayer",
    ),
}
KERNELS = {
    "torch.nn.functional.scaled_dot_product_attention": (
        *("scaled_dot_product_attention", "_scaled_dot_product_attention_math"),
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    "torch.nn.MultiheadAttention": (
        *("_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
    ),
}
MODULES = {  # which do the same: their import fails
    "torch.nn.functional.scaled_dot_product_attention": (
        *(
            "torch.nn.attention.flex_attention",
            "torch._higher_order_ops.flex_attention",
        ),
        *("torch.onnx.ops", "x_transformers", "transformers", "keras", "flax", "jax"),
    ),
}
LIBRARIES = []  # a ban ends with its library
# As it is called, with gradients; as decompose() and nested tensors call it; by vmap.
KEYS = ("CPU", "AutogradCPU", "CompositeImplicitAutograd")
KEYS += ("FuncTorchDynamicLayerFrontMode",)


class NotAvailable(RuntimeError):
    """A submission called what it was asked to write."""


def full(name: str) -> str:
    """'F.softmax' → 'torch.nn.functional.softmax'."""
    head, _, rest = name.partition(".")
    return f"{SHORT.get(head, head)}.{rest}"


def apply(names: Iterable[str]) -> None:
    """Replace built-ins in this process."""
    for name in map(full, names):
        refuse = _refusal(name)
        for alias in (name, *ALIASES.get(name, ())):
            _replace(alias, refuse)
        for module in MODULES.get(name, ()):
            sys.modules[module] = None
        for kernel in KERNELS.get(name, ()):
            if hasattr(torch.ops.aten, kernel):
                library = torch.library.Library("aten", "IMPL")
                for key in KEYS:
                    library.impl(kernel, refuse, key)
                LIBRARIES.append(library)


def _refusal(name: str):
    def refuse(*args: object, **kwargs: object) -> None:
        raise NotAvailable(
            f"{name} is not available in this exercise: write what it does yourself"
        )

    # A message about an error shows the last line that is not torch's.
    refuse.__code__ = refuse.__code__.replace(co_filename=torch.__file__)
    return refuse


def _replace(path: str, refuse) -> None:
    owner, _, name = path.rpartition(".")
    try:
        owner = importlib.import_module(owner)
    except ImportError:  # torch._C._nn is an attribute, not always a module
        owner = torch._C._nn if owner == "torch._C._nn" else None
    target = getattr(owner, name, None)
    if isinstance(target, type) and issubclass(target, nn.Module):
        target.__init__ = target.forward = refuse
    elif callable(target):
        setattr(owner, name, refuse)
    elif target is not None:
        setattr(owner, name, _Closed(refuse))


class _Closed:
    """Stands for a namespace such as torch.ops: whatever is asked of it is refused."""

    def __init__(self, refuse):
        self.__dict__["refuse"] = refuse

    def __getattr__(self, name: str):
        self.refuse()
