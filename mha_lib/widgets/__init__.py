"""Widgets that answer a touch, in Jupyter, in Colab and in a page without a kernel.

Each is an `anywidget`: an ipywidget whose drawing is one ES module. Importing this
package needs anywidget (`pip install "mha_lib[widgets]"`).
"""

from mha_lib.widgets.attention_explorer import AttentionExplorer
from mha_lib.widgets.page import to_html

__all__ = ["AttentionExplorer", "to_html"]
