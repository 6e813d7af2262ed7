"""The strided tensor of the widgets is torch's: numbers, shape, strides, memory."""

import pytest
import torch

STORED = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).double()
X = STORED[1].transpose(0, 2)  # (7, 5, 3): an offset, and strides out of order
Y = torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).double()

VIEWS = {
    "x": X,
    "permute(x, [1, 2, 0])": X.permute(1, 2, 0),
    "swap(x, 0, 2)": X.transpose(0, 2),
    "reshape(swap(x, 0, 2), [15, 7])": X.transpose(0, 2).reshape(15, 7),
    "reshape(x, [7, 1, 5, 3, 1])": X.reshape(7, 1, 5, 3, 1),
    "split(x, 2, 1)[1]": X.split(2, 1)[1],
    "split(x, 2, 1)[2]": X.split(2, 1)[2],  # the smaller rest
    "chunk(x, 3, 2)[2]": X.chunk(3, 2)[2],
    "unstack(x)[4]": X.unbind()[4],
}
COPIES = {
    "reshape(x, [35, 3])": X.reshape(35, 3),
    "reshape(x, [21, 5])": X.reshape(21, 5),
    "copied(x)": X.contiguous(),
    "cat([x, split(x, 2, 1)[0], x], 1)": torch.cat([X, X.split(2, 1)[0], X], 1),
    "stack([x, each(x, a => -a)])": torch.stack([X, -X]),
    "each(x, (a, i) => a + i)": X.contiguous() + torch.arange(105).view(7, 5, 3),
    "einsum('btv,tb->bvt', x, y)": torch.einsum("btv,tb->bvt", X, Y).contiguous(),
    "einsum('btv,tb->v', x, y)": torch.einsum("btv,tb->v", X, Y),
    "einsum('btv,ts->sb', x, y)": torch.einsum("btv,ts->sb", X, Y).contiguous(),
}


def evaluate(scripts, code: str) -> dict:
    """What JavaScript makes of x and y."""
    x = {"shape": list(X.shape), "strides": list(X.stride())}
    x |= {"memory": STORED.flatten().tolist(), "offset": X.storage_offset()}
    return scripts.evaluate(
        """async ([code, x, memory, shape]) => {
            const tools = await import("/tensor.js");
            const scope = { ...tools, x, y: tools.tensor(memory, shape) };
            const make = new Function(...Object.keys(scope), `return ${code}`);
            const found = make(...Object.values(scope));
            return { ...found, memory: found.memory === x.memory,
                elements: tools.elements(found), contiguous: tools.contiguous(found) };
        }""",
        [code, x, Y.flatten().tolist(), list(Y.shape)],
    )


@pytest.mark.parametrize("code", [*VIEWS, *COPIES])
def test_every_operation_is_that_of_torch(scripts, code):
    wanted = (VIEWS | COPIES)[code]
    found = evaluate(scripts, code)
    assert found["memory"] == (code in VIEWS)
    assert found["shape"] == list(wanted.shape)
    assert found["strides"] == list(wanted.stride())
    assert found["offset"] == wanted.storage_offset()
    assert found["contiguous"] == wanted.is_contiguous()
    values = torch.tensor(found["elements"], dtype=torch.float64)
    torch.testing.assert_close(values, wanted.flatten())


def test_a_copy_may_order_its_axes_anew(scripts):
    found = evaluate(scripts, "copied(reshape(x, [1, 7, 5, 3]), [1, 3, 2, 0])")
    wanted = X[None].contiguous(memory_format=torch.channels_last)
    assert found["strides"][1:] == list(wanted.stride())[1:]
    assert found["elements"] == wanted.flatten().tolist()


def test_no_view_walks_where_torch_finds_none(scripts):
    walks = "viewStrides(x, [35, 3]) === null && x"
    assert evaluate(scripts, walks)["shape"] == list(X.shape)
    with pytest.raises(RuntimeError, match="not compatible"):
        X.view(35, 3)
