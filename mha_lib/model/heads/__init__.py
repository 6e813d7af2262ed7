"""What the heads of a model do: scores of maps, circuits, what flows, removal.

A head is a pair (layer, head). Weights are those of ``model.maps(tokens)``, (L, B, H,
T, T); the circuits are read out of the projections, whatever style keeps them.
"""

from mha_lib.model.heads.circuits import (
    composition,
    copying,
    ov_matrices,
    qk_matrices,
)
from mha_lib.model.heads.elsewhere import maps_of
from mha_lib.model.heads.flow import contexts, read_from, streams
from mha_lib.model.heads.removal import prices, pruning, removed
from mha_lib.model.heads.scores import (
    confidence,
    distance,
    entropy,
    induction_score,
    previous_token_score,
)

__all__ = [
    "composition",
    "confidence",
    "contexts",
    "copying",
    "distance",
    "entropy",
    "induction_score",
    "maps_of",
    "ov_matrices",
    "previous_token_score",
    "prices",
    "pruning",
    "qk_matrices",
    "read_from",
    "removed",
    "streams",
]
