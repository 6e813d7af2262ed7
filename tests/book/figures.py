"""Runs in a page's kernel, before its first cell: notes where each figure has its text.

A tick outside the axes or a hidden label is no text: what was drawn counts.
"""

import json

import matplotlib
from IPython.core import pylabtools
from matplotlib.text import Text
from matplotlib.textpath import TextPath

matplotlib.use("module://matplotlib_inline.backend_inline")
NOTED_FIGURES = []  # of each: its width in pixels, and (text, points, corners)
noted_texts = {}
plain_draw, plain_print = Text.draw, pylabtools.print_figure


def corners_of(text, renderer):
    """Of the box around the letters; it may be turned."""
    around = text.get_window_extent(renderer)
    angle = text.get_rotation()
    text.set_rotation(0)
    flat = text.get_window_extent(renderer)
    text.set_rotation(angle)
    middle = complex((around.x0 + around.x1) / 2, (around.y0 + around.y1) / 2)
    turn = 1j ** (angle / 90)
    # Letters fill their line from side to side; above and below it holds some air.
    wide, high = flat.width, 0.7 * flat.height - 2
    if len(sign := text.get_text()) == 1:  # and most of all around a cross
        ink = TextPath((0, 0), sign, prop=text.get_fontproperties()).get_extents()
        wide, high = map(renderer.points_to_pixels, ink.size)
    wide, high = wide / 2 + 1, high / 2 + 1
    around = [middle + turn * complex(x * wide, y * high) for x, y in UNIT_SQUARE]
    return [(point.real, point.imag) for point in around]


UNIT_SQUARE = [(1, 1), (-1, 1), (-1, -1), (1, -1)]


def noted_draw(self, renderer):
    if self.get_visible() and self.get_text().strip():
        noted_texts[id(self)] = self
    return plain_draw(self, renderer)


def noted_print(figure, *args, **options):
    noted_texts.clear()
    done = plain_print(figure, *args, **options)
    renderer = figure.canvas.get_renderer()
    width = 100 * (figure.get_tightbbox(renderer).width + 0.2)  # its white edge
    texts = [
        (text.get_text(), text.get_fontsize(), corners_of(text, renderer))
        for text in noted_texts.values()
    ]
    NOTED_FIGURES.append((width, texts))
    return done


# Not FigureCanvas.print_figure: widgets use it for their stills without a script.
Text.draw, pylabtools.print_figure = noted_draw, noted_print


def told_of_figures() -> str:
    return json.dumps(NOTED_FIGURES)
