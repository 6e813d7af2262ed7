"""What only a GPU has: torch's backends of SDPA, FlexAttention, torch.compile.

Each contestant is built and checked like all others; one that cannot run is reported
with its reason and harms nobody. What is compiled is timed under a causal mask alone:
each size and pass is compiled anew. `results/cuda.json` was measured on one H100.
"""

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, Floor
from benchmarks.workload import Workload


class Backend(Floor):
    """The floor, one backend of SDPA and no other."""

    def __init__(self, workload: Workload, name: str) -> None:
        super().__init__(workload)
        from torch.nn.attention import SDPBackend

        self.backend = getattr(SDPBackend, name)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.attention import sdpa_kernel

        with sdpa_kernel(self.backend):
            return super().attend(q, k, v)


class Flex(Floor):
    """FlexAttention, compiled; its block mask is made beforehand."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        self.compiled = torch.compile(flex_attention)
        self.blocks = None
        if workload.causal:
            T, device = workload.size.T, str(workload.x.device)
            self.blocks = create_block_mask(
                lambda b, h, t, s: t >= s, None, None, T, T, device=device
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.compiled(q, k, v, block_mask=self.blocks)


def backend(name: str):
    return lambda workload: Backend(workload, name)


def compiled(workload: Workload) -> nn.Module:
    return torch.compile(Floor(workload))


ONLY = {"devices": ("cuda",), "core": True}
COMPILED = {"devices": ("cuda",), "masks": (True,), "dtypes": ("bfloat16",)}
ON_CUDA = (
    Contestant(
        "SDPA, FlashAttention",
        backend("FLASH_ATTENTION"),
        dtypes=("bfloat16",),
        **ONLY,
    ),
    Contestant("SDPA, cuDNN", backend("CUDNN_ATTENTION"), dtypes=("bfloat16",), **ONLY),
    Contestant("SDPA, memory-efficient", backend("EFFICIENT_ATTENTION"), **ONLY),
    Contestant("SDPA, math", backend("MATH"), **ONLY),
    Contestant("FlexAttention, compiled", Flex, **COMPILED),
    Contestant("floor, torch.compile", compiled, **COMPILED),
)
