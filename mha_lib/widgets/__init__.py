"""Widgets that answer a touch, in Jupyter, in Colab and in a page without a kernel.

Each is an `anywidget`: an ipywidget whose drawing is one ES module. Importing this
package needs anywidget (`pip install "mha_lib[widgets]"`).
"""

from mha_lib.widgets.attention_explorer import AttentionExplorer
from mha_lib.widgets.break_it import BreakIt
from mha_lib.widgets.einsum_steps import EinsumSteps
from mha_lib.widgets.head_layout import HeadLayout
from mha_lib.widgets.mask_painter import MaskPainter
from mha_lib.widgets.model_lab import ModelLab
from mha_lib.widgets.page import to_html
from mha_lib.widgets.playground import Playground
from mha_lib.widgets.scale_lab import ScaleLab
from mha_lib.widgets.versions_side_by_side import VersionsSideBySide

__all__ = [
    "AttentionExplorer",
    "BreakIt",
    "EinsumSteps",
    "HeadLayout",
    "MaskPainter",
    "ModelLab",
    "Playground",
    "ScaleLab",
    "VersionsSideBySide",
    "to_html",
]
