"""Our drop-in and torch's layer with the same parameters, called alike."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from evidence.helpers import B, E, H, S, T
from mha_lib import MultiheadAttention

F64 = torch.float64
STOCK = nn.MultiheadAttention
NAMES = ("query", "key", "value")

# Outputs and gradients are of order 1 to 10, and each comes through three products of
# up to E = 22 terms, rounded to 11 and to 8 binary digits: a few of the last digits.
SHORT = {torch.float16: 8 * 2**-10, torch.bfloat16: 8 * 2**-7}


@pytest.fixture(autouse=True)
def random_numbers():
    torch.manual_seed(1)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small tensors: to share them out among threads costs more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(layer: type[nn.Module], dtype: torch.dtype = F64, **options) -> nn.Module:
    """As initialised from one seed, but with biases that are not zero."""
    torch.manual_seed(0)
    module = layer(E, H, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
    return module.eval()


def pair(dtype: torch.dtype = F64, **options) -> tuple[nn.Module, nn.Module]:
    """Ours, with the parameters of torch's, and torch's."""
    theirs = make(STOCK, dtype, **options)
    ours = MultiheadAttention(E, H, dtype=dtype, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def tensor(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, dtype=F64).to(dtype).requires_grad_()


def hiding(*shape: int) -> Tensor:
    """Boolean, True = hidden, as torch has it; the first key is always seen."""
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    return mask


def additive(*shape: int) -> Tensor:
    """To be added to the scores; −∞ hides."""
    return torch.randn(shape, dtype=F64).masked_fill(hiding(*shape), float("-inf"))


def causal(queries: int, keys: int, kind: str) -> Tensor:
    mask = torch.ones(queries, keys, dtype=torch.bool).triu(1)
    return mask if kind == "boolean" else mask.to(F64).masked_fill(mask, float("-inf"))


MASKS = {"boolean": hiding, "float": additive}


def sources(layer: nn.Module, kind: str, batched: bool = True) -> list[Tensor]:
    """Query, key and value: all one tensor, key and value one, or three."""

    def make_source(length: int, width: int) -> Tensor:
        if not batched:
            return tensor(length, width)
        if layer.batch_first:
            return tensor(B, length, width)
        return tensor(length, B, width)

    query = make_source(T, E)
    if kind == "self":
        return [query] * 3
    key = make_source(S, layer.kdim)
    return [query, key, key if kind == "memory" else make_source(S, layer.vdim)]


def results(layer: nn.Module, inputs: list[Tensor], **options) -> dict[str, Tensor]:
    """Output, weights, and the gradients of a sum of both, weighted at random."""
    output, weights = layer(*inputs, **options)
    found = {"output": output} | ({} if weights is None else {"weights": weights})
    generator = torch.Generator().manual_seed(2)
    total = sum(
        (x * torch.randn(x.shape, dtype=F64, generator=generator)).sum()
        for x in found.values()
    )
    names = [*NAMES, *(name for name, _ in layer.named_parameters())]
    given = [*inputs, *layer.parameters()]
    for name, mask in options.items():
        if isinstance(mask, Tensor) and mask.requires_grad:
            names.append(name)
            given.append(mask)
    gradients = torch.autograd.grad(total, given)
    return found | {f"gradient of {n}": x for n, x in zip(names, gradients)}


def assert_same(ours: nn.Module, theirs: nn.Module, inputs, note="", **options) -> None:
    """In float64 and to its rounding, as the default tolerance of assert_close is."""
    assert_close(
        results(ours, inputs, **options),
        results(theirs, inputs, **options),
        msg=lambda message: f"{note} {message}",
    )
