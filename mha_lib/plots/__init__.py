"""The pictures of the book, drawn from tensors.

Needs matplotlib, which the rest of the package does not import. Text has 10 points, and
a picture of a sentence fits into 480 pixels, so that it can be read on a phone.
"""

from mha_lib.plots.beside import differences, first_difference
from mha_lib.plots.lanes import head_lanes
from mha_lib.plots.maps import (
    COLOURS,
    HEADS,
    INK,
    ROLES,
    attention_map,
    cells,
    flow_diagram,
    head_maps,
    mask_map,
)
from mha_lib.plots.matrices import matrix_steps
from mha_lib.plots.products import einsum_cells
from mha_lib.plots.sentences import arcs, shaded_words
from mha_lib.plots.steps import look_up, strips, vectors

__all__ = [
    "COLOURS",
    "HEADS",
    "INK",
    "ROLES",
    "arcs",
    "attention_map",
    "cells",
    "einsum_cells",
    "differences",
    "first_difference",
    "flow_diagram",
    "head_lanes",
    "head_maps",
    "look_up",
    "mask_map",
    "matrix_steps",
    "shaded_words",
    "strips",
    "vectors",
]
