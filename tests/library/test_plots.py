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
