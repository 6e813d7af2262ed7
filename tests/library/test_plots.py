import re

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from mha_lib import causal_mask, plots

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_attention_map_draws_the_weights_with_queries_in_rows():
    weights = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.0, 0.5]], requires_grad=True)
    ax = plots.attention_map(weights, ["a", "b"], ["one", "three", "x"], title="t")
    drawn = ax.images[0].get_array()
    np.testing.assert_allclose(drawn, weights.detach())
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["one", "three", "x"]
    assert [t.get_text() for t in ax.texts][:2] == ["0.25", "0.75"]
    assert ax.get_title() == "t"


def test_attention_map_crosses_out_what_is_hidden_and_keeps_a_small_weight():
    weights, mask = torch.tensor([[1.0, 0, 0]]), torch.tensor([[True, True, False]])
    ax = plots.attention_map(weights, mask=mask)
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.00", "×"]
    with pytest.raises(ValueError, match=r"mask must be \(1, 3\) .* \(3, 1\)"):
        plots.attention_map(weights, mask=mask.mT)


def test_attention_map_leaves_numbers_out_of_large_maps_unless_asked():
    large = torch.full((9, 8), 1 / 8)
    assert not plots.attention_map(large).texts
    assert len(plots.attention_map(large, numbers=True).texts) == 72


def test_maps_name_what_does_not_fit():
    with pytest.raises(ValueError, match=r"weights must be \(T, S\); got \(2, 3, 4\)"):
        plots.attention_map(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="queries need 2 labels; got 1"):
        plots.attention_map(torch.zeros(2, 3), ["a"])
    with pytest.raises(ValueError, match=r"\(H, T, S\); got \(2, 3\)"):
        plots.head_maps(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="2 heads need 2 titles; got 1"):
        plots.head_maps(torch.zeros(2, 3, 3), titles=["a"])
    with pytest.raises(TypeError, match="boolean; got torch.float32"):
        plots.mask_map(torch.zeros(2, 3))


def test_head_maps_draws_one_map_a_head_and_removes_empty_places():
    figure = plots.head_maps(torch.rand(5, 2, 3))
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [f"head {h}" for h in range(5)]


def test_mask_map_marks_allowed_and_hidden_by_a_sign():
    ax = plots.mask_map(causal_mask(2, 3))
    signs = [text.get_text() for text in ax.texts]
    assert signs == ["●", "×", "×", "●", "●", "×"]


def test_maps_share_the_query_labels_if_square_and_draw_where_they_are_told():
    figure, (left, right) = plt.subplots(1, 2)
    plots.attention_map(torch.eye(2), ["the", "animal"], ax=left)
    plots.mask_map(causal_mask(2), ["the", "animal"], ax=right)
    for ax in (left, right):
        assert ax.figure is figure
        assert [t.get_text() for t in ax.get_xticklabels()] == ["the", "animal"]
        assert ax.get_xticklabels()[0].get_rotation() == 45


def test_cells_draws_where_it_is_told():
    ax = plt.subplots()[1]
    assert plots.cells([[1]], [[0]], ax=ax) is ax


def test_cells_colours_by_group_and_refuses_ragged_tables():
    ax = plots.cells([["a", "b"], ["c", "d"]], [[0, 1], [1, 9]], rows=["r0", "r1"])
    colours = [matplotlib.colors.to_hex(p.get_facecolor()) for p in ax.patches]
    palette = [plots.COLOURS[i].lower() for i in (0, 1, 1, 1)]
    assert colours == palette
    assert [t.get_text() for t in ax.get_yticklabels()] == ["r0", "r1"]
    with pytest.raises(ValueError, match=r"one shape; got \(1, 2\) and \(2, 1\)"):
        plots.cells([[1, 2]], [[1], [2]])


def test_flow_diagram_writes_shapes_on_arrows():
    nodes = {"a": (0, 0), "b": (1, 1)}
    edges = [("a", "b", torch.zeros(2, 3))]
    figure = plots.flow_diagram(nodes, edges, names={"a→b": "T E"}, title="flow")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["a", "b", "", "T E\n(2, 3)"]
    with pytest.raises(KeyError):
        plots.flow_diagram(nodes, [("a", "c", "")])


def thick(figure) -> int:
    return sum(patch.get_linewidth() > 2 for patch in figure.axes[0].patches)


def test_lanes_grow_from_a_loop_to_one_call_to_one_matrix():
    loop = plots.head_lanes()
    call = plots.head_lanes(one_call=True)
    matrix = plots.head_lanes(one_call=True, one_matrix=True)
    # Thick is what is new: three wide projections and the frame; one projection.
    assert [thick(figure) for figure in (loop, call, matrix)] == [0, 4, 1]
    shown = [[t.get_text() for t in f.axes[0].texts] for f in (loop, call, matrix)]
    assert [texts.count("q_proj") for texts in shown] == [3, 1, 0]
    assert [texts.count("weights\n(B, H, T, S)") for texts in shown] == [0, 1, 1]
    for texts in shown:
        assert [texts.count(f"head {h}") for h in range(3)] == [1, 1, 1]
    for name in ("one_matrix", "masked"):
        with pytest.raises(ValueError, match=f"{name} needs one_call"):
            plots.head_lanes(**{name: True})


def test_a_mask_is_new_in_the_weights_of_every_head():
    figure = plots.head_lanes(one_call=True, masked=True)
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert thick(figure) == 4 and shown.count("×") == 4 * 3
    bold = [t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"]
    assert bold == ["mask,\nweights\n(B, H, T, S)", "mask\n(B, 1, T, S)"]


@pytest.mark.parametrize(
    "what", [(), ("one_call",), ("one_call", "one_matrix"), ("one_call", "masked")]
)
def test_nothing_of_the_lanes_is_cut_off(what):
    figure = plots.head_lanes(**dict.fromkeys(what, True))
    assert smallest_text(figure) >= LEAST
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1, text.get_text()


# --- sentences ------------------------------------------------------------------------

PHONE, LEAST = 328, 9  # pixels: what a page has on a phone of 360, what can be read


def smallest_text(figure) -> float:
    """The height in pixels of the smallest text, as a phone shows the figure."""
    figure.canvas.draw()
    width = figure.get_tightbbox().width  # inches, at 100 pixels each in the book
    texts = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text().strip()]
    points = min(text.get_fontsize() for text in texts)
    return points / 72 * 100 * min(1, PHONE / (100 * width))


WORDS = ["the", "cat", "drank", "milk", "then", "it", "slept"]


def einsum_of(words):
    operands = {"x": torch.rand(len(words), 3), "x again": torch.rand(len(words), 3)}
    at, labels = {"t": 1, "s": 2}, {"t": words, "s": words}
    return plots.einsum_cells("te,se->ts", operands, at, labels=labels)


@pytest.mark.long
@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.arcs(torch.eye(7), WORDS).figure,
        lambda: plots.shaded_words([torch.rand(7)] * 2, [WORDS] * 2).figure,
        lambda: plots.shaded_words([torch.rand(6)], [WORDS[:6]], notes=["they"]).figure,
        lambda: plots.vectors(torch.rand(7, 3), WORDS, features=WORDS[:3]).figure,
        lambda: plots.look_up(*torch.rand(2, 7), torch.rand(7, 3), WORDS),
        lambda: plots.strips([[("weights", torch.rand(7), [5] * 7)]], words=WORDS),
        lambda: plots.attention_map(torch.rand(7, 7), WORDS).figure,
        lambda: einsum_of(WORDS[1:4]),
        lambda: plots.differences(torch.rand(3, 2, 7, 7), torch.rand(2, 7, 7), WORDS),
        lambda: plots.first_difference({"context": 0.0, "merged": 1.5}).figure,
    ],
)
def test_text_can_be_read_on_a_phone(draw):
    assert smallest_text(draw()) >= LEAST


def test_arcs_run_from_query_to_key_and_are_as_thick_as_the_weight():
    weights = torch.tensor([[0.0, 0.9, 0.1], [0.04, 0.96, 0.0], [0.5, 0.0, 0.5]])
    ax = plots.arcs(weights, ["a", "b", "c"], title="t")
    drawn = [(arc.center[0], arc.width, arc.get_linewidth()) for arc in ax.patches]
    assert [(middle, span) for middle, span, _ in drawn] == [
        (0.5, 1),
        (1, 2),
        (1, 0.5),  # a ring: b looks at itself, and 0.04 is not drawn
        (1, 2),
        (2, 0.5),
    ]
    assert drawn[0][2] > drawn[3][2] > drawn[1][2]
    assert [line.get_xdata()[0] for line in ax.lines] == [0, 1, 2]
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]
    assert ax.get_title() == "t"


def test_arcs_of_two_heads_share_the_words():
    ax = plots.arcs(torch.eye(3), ["a", "b", "c"], queries=[0])
    low, high = ax.get_ylim()
    again = plots.arcs(
        1 - torch.eye(3), ["a", "b", "c"], queries=[2], below=True, colour=9, ax=ax
    )
    assert again is ax and len(ax.texts) == 3
    assert ax.get_ylim() == (-high, high) and -high < low
    above, *under = ax.patches
    assert above.center[1] > 0 > under[0].center[1]
    assert (under[0].theta1, under[0].theta2) == (180, 360)
    colours = [matplotlib.colors.to_hex(arc.get_edgecolor()) for arc in ax.patches]
    assert colours == [plots.COLOURS[i].lower() for i in (5, 1, 1)]


def test_shaded_words_are_dark_where_the_weight_is():
    rows = [torch.tensor([0.1, 0.9], requires_grad=True), torch.tensor([1.0])]
    ax = plots.shaded_words(rows, [["a", "b"], ["c"]], notes=["n", ""], title="t")
    assert [text.get_text() for text in ax.texts] == [
        *("a", "0.10", "b", "0.90", "n"),
        *("c", "1.00"),
    ]
    light, dark, _ = (sum(patch.get_facecolor()[:3]) for patch in ax.patches)
    assert light > dark
    assert [ax.texts[i].get_color() for i in (0, 2)] == ["black", "white"]
    assert ax.get_title() == "t"


def test_black_is_read_on_each_colour_of_cells():
    ax = plots.cells([list(range(8))], [list(range(8))])
    for patch in ax.patches:
        *colour, tint = patch.get_facecolor()
        seen = [tint * part + 1 - tint for part in colour]  # on white
        linear = [((part + 0.055) / 1.055) ** 2.4 for part in seen]
        light = sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear))
        assert (light + 0.05) / 0.05 > 7  # WCAG's contrast, its best grade


# --- steps ----------------------------------------------------------------------------


def test_vectors_are_rows_of_coloured_numbers():
    rows = torch.tensor([[2.0, -0.25], [0.0, 1.0]], requires_grad=True)
    ax = plots.vectors(rows, ["a", "b"], title="t")
    np.testing.assert_allclose(ax.images[0].get_array(), rows.detach())
    shown = [text.get_text() for text in ax.texts]
    assert shown == ["2.00", "-0.25", "0.00", "1.00"]  # decimals alike
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    low, high = ax.images[0].get_clim()
    assert low == -high  # zero is white
    assert ax.get_title() == "t"
    other = plt.subplots()[1]
    assert plots.vectors(torch.zeros(1, 1), ["a"], ax=other) is other


def test_look_up_shows_scores_weights_values_and_their_mean():
    scores, weights = torch.tensor([0.0, -1.5]), torch.tensor([0.75, 0.25])
    values = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 8.0]])
    figure = plots.look_up(scores, weights, values, ["a", "b"], features="xyz")
    titles = [ax.get_title() for ax in figure.axes[:3]]
    assert titles == ["scores", "weights", "values"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.00", "-1.50"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["0.75", "0.25"]
    (context,) = (ax for ax in figure.axes[3:] if len(ax.texts) == 3)
    assert [text.get_text() for text in context.texts] == ["3", "1", "2"]


def test_strips_are_as_deep_as_their_numbers_and_have_their_heads_colour():
    one, two = torch.tensor([4.0, -1.0], requires_grad=True), torch.tensor([0.0])
    figure = plots.strips([[("q", one, [5, 6])], [("v", two, [7])]], words=["a", "b"])
    (ax,) = figure.axes
    shown = [text.get_text() for text in ax.texts]
    assert shown == ["q", "4", "a", "-1", "b", "v", "0"]
    faces = [patch.get_facecolor() for patch in ax.patches]
    colours = [matplotlib.colors.to_hex(face) for face in faces]
    assert colours == [plots.COLOURS[i].lower() for i in (5, 6, 7)]
    assert faces[0][3] > faces[1][3] > faces[2][3] > 0
    places = [patch.get_xy() for patch in ax.patches]
    assert places[0][1] == places[1][1] < places[2][1]  # a row for each step
    numbers = torch.tensor([0.18, 2.2651, -0.0001])
    (ax,) = plots.strips([[("c", numbers, [5, 5, 5])]]).axes
    shown = [text.get_text() for text in ax.texts]
    assert shown == ["c", "0.180", "2.265", "0.000"]  # decimals alike, and no -0
    with pytest.raises(ValueError, match="'q' has 2 numbers; got 1 colours"):
        plots.strips([[("q", one, [5])]])


def test_matrix_steps_frame_one_query_from_q_to_its_context():
    q, k, v = torch.randn(5, 2), torch.randn(4, 2), torch.randn(4, 3)
    figure = plots.matrix_steps(q, k, v, "abcde", query=3)
    (ax,) = figure.axes
    drawn = [image.get_array() for image in ax.images]
    scores = q @ k.T / 2**0.5
    weights = scores.softmax(dim=-1)
    for found, wanted in zip(drawn, (q, k.T, scores, weights, v, weights @ v)):
        assert torch.allclose(torch.tensor(found.data), wanted)
    titles = [text.get_text() for text in ax.texts if "(" in text.get_text()]
    shapes = ["q (5, 2)", "kᵀ (2, 4)", "scores (5, 4)"]
    assert titles == [*shapes, "weights (5, 4)", "v (4, 3)", "context (5, 3)"]
    frames = [x for x in ax.patches if x.get_linewidth() == 2]
    tops = [image.get_extent()[3] for image in ax.images]
    lefts = [image.get_extent()[0] for image in ax.images]
    key = weights[3].argmax().item()
    wanted = [(0, 3, 2, 1), (key, 0, 1, 2), (0, 3, 4, 1), (0, 3, 4, 1)]
    wanted += [(0, key, 3, 1), (0, 3, 3, 1)]  # of the query, but in kᵀ and v
    for frame, left, top, box in zip(frames, lefts, tops, wanted, strict=True):
        found = frame.get_x() - left, frame.get_y() - top
        assert (*found, frame.get_width(), frame.get_height()) == pytest.approx(box)
    told = [*q[3], *k[key], scores[3, key], weights[3, key], *v[key], *(weights @ v)[3]]
    numbers = {f"{x:.3f}".rstrip("0").rstrip(".") for x in torch.stack(told).tolist()}
    found = [x.get_text() for x in ax.texts if re.fullmatch(r"-?[\d.]+", x.get_text())]
    assert len(found) == 6 and {*found} <= numbers
    plt.close(figure)


def test_matrix_steps_name_what_does_not_fit():
    x = torch.eye(3)
    with pytest.raises(ValueError, match=r"must fit .* got \(3, 3\), \(2, 3\)"):
        plots.matrix_steps(x, x[:2], x, "abc", query=0)
    with pytest.raises(ValueError, match="query must be 0 to 2; got 3"):
        plots.matrix_steps(x, x, x, "abc", query=3)


def test_pictures_of_sentences_name_what_does_not_fit():
    with pytest.raises(
        ValueError, match=r"3 words need weights \(3, 3\); got \(2, 3\)"
    ):
        plots.arcs(torch.zeros(2, 3), ["a", "b", "c"])
    with pytest.raises(ValueError, match="as many weights and notes; got 1 and 2"):
        plots.shaded_words([torch.zeros(1)], [["a"]], notes=["x", "y"])
    with pytest.raises(ValueError, match="2 words need weights; got 1"):
        plots.shaded_words([torch.zeros(1)], [["a", "b"]])
    with pytest.raises(ValueError, match=r"1 words need as many rows; got \(2, 2\)"):
        plots.vectors(torch.zeros(2, 2), ["a"])
    with pytest.raises(ValueError, match="2 entries need 2 features; got 1"):
        plots.vectors(torch.zeros(1, 2), ["a"], features=["x"])
    with pytest.raises(ValueError, match="2 words need 2 weights; got 1"):
        plots.look_up(torch.zeros(2), torch.zeros(1), torch.zeros(2, 3), ["a", "b"])


# --- products -------------------------------------------------------------------------


def painted(ax):
    """The places of the cells of a table that are not grey."""
    grey = matplotlib.colors.to_rgba("#EEEEEE")
    return {(p.get_y(), p.get_x()) for p in ax.patches if p.get_facecolor() != grey}


def test_einsum_cells_paints_what_makes_a_cell_and_writes_its_sum():
    q, k = torch.tensor([[1, 2], [0, 1], [5, 7]]), torch.tensor([[3, 4], [1, 6]])
    labels = {"t": ["a", "b", "c"], "s": ["d", "e"]}
    at = {"t": 2, "s": 1}
    figure = plots.einsum_cells("td,sd->ts", {"q": q, "k": k}, at, labels=labels)
    first, second, result = figure.axes
    assert painted(first) == {(2, 0), (2, 1)}
    assert painted(second) == {(1, 0), (1, 1)}
    assert painted(result) == {(2, 1)}
    numbers = [int(text.get_text()) for text in result.texts]
    assert numbers == [11, 13, 4, 6, 43, 47]
    texts = [text.get_text() for text in figure.texts]
    assert texts == ["q", "·", "k", "=", "result", "", "5 · 1 + 7 · 6 = 47"]
    axes = [(ax.get_ylabel(), ax.get_xlabel()) for ax in figure.axes]
    assert axes == [("t", "d"), ("s", "d"), ("t", "s")]
    rows = [[x.get_text() for x in ax.get_yticklabels()] for ax in figure.axes]
    assert rows == [["a", "b", "c"], ["d", "e"], []]  # new words once
    assert [x.get_text() for x in result.get_xticklabels()] == ["d", "e"]


@pytest.mark.parametrize(
    ("pattern", "shapes", "at", "parts", "text"),
    [
        ("ii->", [(2, 2)], {}, [2, 1], "0 + 3 = 3"),
        ("te->e", [(3, 2)], {"e": 1}, [3, 1], "1 + 3 + 5 = 9"),
        ("i,j->ij", [(3,), (2,)], {"i": 2, "j": 1}, [1, 1, 1], "2 · 1 = 2"),
        ("te->et", [(3, 2)], {"t": 2, "e": 0}, [1, 1], "4 = 4"),
    ],
)
def test_einsum_cells_draws_every_kind_of_pattern(pattern, shapes, at, parts, text):
    operands = {str(n): torch.zeros(shape) for n, shape in enumerate(shapes)}
    for x in operands.values():
        x.copy_(torch.arange(x.numel()).view(x.shape))
    figure = plots.einsum_cells(pattern, operands, at)
    assert [len(painted(ax)) for ax in figure.axes] == parts
    assert figure.texts[-1].get_text() == text


def test_einsum_cells_names_what_does_not_fit():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="at most two axes; got the pattern bte->te"):
        plots.einsum_cells("bte->te", {"x": x[None]}, {"t": 0, "e": 0})
    with pytest.raises(ValueError, match="at must name a cell by 'te'; got no 't'"):
        plots.einsum_cells("te->te", {"x": x}, {"e": 0})


# --- wrong beside right --------------------------------------------------------------


def test_differences_stand_beside_the_maps_head_after_head():
    right = torch.rand(2, 3, 3)
    maps = torch.stack([right, right.flip(0), right + 0.25])
    titles = ["A", "B", "C"]
    figure = plots.differences(maps, right, ["the", "cat", "sat"], titles=titles)
    drawn = [ax.images[0].get_array() for ax in figure.axes]
    assert [x.shape for x in drawn] == [(3, 6)] * 6
    np.testing.assert_allclose(drawn[0][:, :3], right[0])
    np.testing.assert_allclose(drawn[2][:, :3], right[1])
    np.testing.assert_allclose(drawn[1], 0)
    np.testing.assert_allclose(drawn[5], 0.25, atol=1e-6)
    left, beside = figure.axes[2:4]
    assert [left.get_title(), beside.get_title()] == ["B", "minus right"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["the", "cat", "sat"]
    below = [t.get_text() for t in figure.axes[-1].get_xticklabels()]
    assert below == ["the", "cat", "sat"] * 2
    assert len(left.lines) == 1  # between two heads


def test_the_first_difference_stands_out():
    gaps = {"q": 0.0, "k": 1e-7, "scores": 0.5, "weights": 0.25, "context": 0.0}
    ax = plots.first_difference(gaps, title="t")
    said = [text.get_text() for text in ax.texts]
    assert said == ["same", "same", "0.5, the first", "0.25", "same"]
    colours = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in ax.patches]
    assert len(set(colours)) == 3 and colours.count(colours[2]) == 1
    assert [t.get_text() for t in ax.get_yticklabels()] == list(gaps)
    assert plots.first_difference({"q": 0.0}).texts[0].get_text() == "same"
    tight = plots.first_difference({"k": 1e-7}, tolerance=1e-9)
    assert tight.texts[0].get_text() == "1e-07, the first"
    assert plots.first_difference({"v": 2.0}, ax=tight) is tight
    assert [text.get_text() for text in tight.texts[1:]] == ["2, the first"]


def test_what_cannot_be_compared_is_named():
    right, words = torch.rand(2, 3, 3), ["the", "cat", "sat"]
    with pytest.raises(ValueError, match=r"got \(2, 3, 3\) and \(2, 3, 3\)"):
        plots.differences(right, right, words)
    with pytest.raises(ValueError, match="2 words; got T = 3 and S = 3"):
        plots.differences(right[None], right, words[:2])
    with pytest.raises(ValueError, match="1 maps need 1 titles; got 2"):
        plots.differences(right[None], right, words, titles="AB")
    for gaps in ({}, {"q": -1.0}):
        with pytest.raises(ValueError, match="differences ≥ 0"):
            plots.first_difference(gaps)


@pytest.mark.parametrize("role", ["q", "k", "v"])
def test_vectors_of_a_role_have_its_colour_and_ink(role):
    ax = plots.vectors(torch.tensor([[1.0, 0, -1]]), ["cat"], title="t", role=role)
    most, none, least = ax.images[0].cmap([1.0, 0.5, 0.0])[:, :3]
    colour = np.array(matplotlib.colors.to_rgb(plots.COLOURS[plots.ROLES[role]]))
    hue = matplotlib.colors.rgb_to_hsv(np.stack([colour, most]))[:, 0]
    assert hue[0] == pytest.approx(hue[1], abs=0.02)
    assert none == pytest.approx((1, 1, 1), abs=0.02)
    assert least == pytest.approx((0.8, 0.4, 0.4), abs=0.15)  # red, for all
    assert ax.title.get_color() == plots.INK[role][0]
    assert contrast(turned(most), turned(np.ones(3))) > 2  # on a dark page, too


def turned(colour: np.ndarray) -> np.ndarray:
    """What `book.css` makes of a picture on a dark page."""
    inverted = 0.93 - 0.86 * colour
    rotate = [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]]
    return np.clip(np.array(rotate) @ inverted, 0, 1)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    linear = [
        np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
        for x in (one, other)
    ]
    light = [x @ [0.2126, 0.7152, 0.0722] + 0.05 for x in linear]
    return max(light) / min(light)


def test_matrices_of_a_role_have_its_colour_and_all_others_blue():
    x = torch.eye(3)
    figure = plots.matrix_steps(x, x, x, ["the", "cat", "slept"], query=1)
    maps = [image.cmap.name for image in figure.axes[0].images]
    order = ["q", "k", None, None, "v", None]
    assert maps == [f"signed {role}" for role in order]
