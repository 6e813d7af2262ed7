"""What runs beside a submission: call it, load weights into it, note what it did.

Plain data in (probes, see `mha_lib.check.tasks`), plain data out (outcomes). This
package needs torch alone and imports nothing else of mha_lib, so that a grader can
load it by its path into a process that holds no answers.

An outcome is a dictionary::

    {"outputs": {"output": tensor, "weights": tensor}}   or {"error": message}
                                                         or {"skipped": sentence}
    "line": "7: return q @ k"                            of theirs, where it failed
    "raised_by": "torch"                                 not by a `raise` of theirs
    "code": "square-mask"                                of an error that we raised
    "alternatives": {"transposed": {"outputs": ...}}     other ways to load the weights
    "changed_inputs": ["mask"]                           differ after the call
    "draws": True                                        random numbers, in training
    "repeat_differs": True                               a second call, another answer
    "without_gradient": ["key"]                          the output does not move them
    "gradients": {"query": tensor}                       of the sum of its squares
    "weights_detached": True                             no gradient flows through them
    "notes": [{"code": "remembers"}]                     or "ran-with", with what had
                                                         to be adapted: see `Way`; or
                                                         "reordered", with the order;
                                                         "chosen-dropout", or
                                                         "makes-layers"; or
                                                         "unfinished", with a line; or
                                                         "returned", with what came;
                                                         or "reshaped", an input's name
                                                         and its shapes
    "missing": ["b_k"]                                   a layer that has no bias
    "unnamed": ["out_proj"]                              no such layer has these weights
    "beside": ["tau"]                                    learned in no projection
    "fused": "qkv"                                       parts that one matrix holds

Its modules import in one direction::

    words ← observe ← ways ← find ← load ← making ← run
    words ← driven, unfinished ← run
"""

from .load import ORDERS
from .making import makes_layers, sizes, unwrapped
from .run import run, with_gradients
from .ways import LAYERS, Way
from .words import (
    CHOSEN_DROPOUT,
    MAKES_LAYERS,
    NO_MASK,
    OTHER_SHAPE,
    RAN_WITH,
    REMEMBERS,
    REORDERED,
    RESHAPED,
    RETURNED,
    SQUARE_MASK,
    UNFINISHED,
    Advice,
    located,
)

__all__ = [
    "LAYERS",
    "MAKES_LAYERS",
    "NO_MASK",
    "ORDERS",
    "OTHER_SHAPE",
    "RAN_WITH",
    "REMEMBERS",
    "REORDERED",
    "RESHAPED",
    "RETURNED",
    "CHOSEN_DROPOUT",
    "SQUARE_MASK",
    "UNFINISHED",
    "Advice",
    "Way",
    "located",
    "makes_layers",
    "run",
    "sizes",
    "unwrapped",
    "with_gradients",
]
