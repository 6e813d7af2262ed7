"""Messages: plain data and tensors, checked before anything is read."""

import socket
import struct

import pytest
import torch
from torch.testing import assert_close

from mha_lib.grade.inside import wire


def sent(data: bytes, limit: int = 1 << 10) -> object:
    """What is read where somebody has written these bytes and has gone."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        return wire.receive(ours, limit)


def raw(text: str, tail: bytes = b"") -> bytes:
    return struct.pack("!I", len(text)) + text.encode() + tail


@pytest.mark.parametrize("dtype", wire.NAMES, ids=wire.NAMES.get)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5, 3)], ids=str)
def test_a_tensor_arrives_as_it_left(dtype, shape):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
    tree = {"a": [1, "é", None, {"x": x}], "turned": x.T if x.dim() == 2 else x}
    got = sent(wire.pack(tree))
    assert got["a"][:3] == [1, "é", None]
    assert_close(got["a"][3]["x"], x, rtol=0, atol=0)


def test_a_transposed_tensor_arrives_in_its_own_order():
    x = torch.randn(4, 7).mT[1:, ::2].requires_grad_()
    assert_close(sent(wire.pack(x)), x.detach(), rtol=0, atol=0)


def test_only_plain_tensors_leave():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2)
    for other, words in (
        (x.as_subclass(Mine), "a plain torch.Tensor is required; got .*Mine"),
        (torch.nn.Parameter(x), "got torch.nn.parameter.Parameter"),
        (
            x.to(torch.complex64),
            "dtype must be one of float64, .*; got torch.complex64",
        ),
        (object(), "got builtins.object"),
    ):
        with pytest.raises(TypeError, match=words):
            wire.pack([other])
    for other in (x.to("meta"), x.to_sparse()):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            wire.pack(other)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"tensor!": 3}',
        '{"tensor!": ["float32"]}',
        '{"tensor!": ["object", [1]]}',
        '{"tensor!": ["float32", [-1]]}',
        '{"tensor!": ["float32", [true]]}',
        '{"tensor!": ["float32", [1.0]]}',
        '{"tensor!": ["float32", [0, 4294967295, 4294967295]]}',
        '{"tensor!": ["uint8", [1025]]}',
        '[{"tensor!": ["uint8", [1024]]}, {"tensor!": ["uint8", [0]]}]',
        '{"tensor!": ["uint8", [' + "1," * 16 + "1]]}",
        "1" * 10_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_message_is_refused_before_it_is_read(text):
    with pytest.raises(wire.WireError):
        sent(raw(text, b"\0" * 99))


def test_a_long_text_is_refused_and_a_short_one_is_awaited():
    with pytest.raises(wire.WireError, match=r"may have 1048576 bytes; got 4294967295"):
        sent(b"\xff" * 99)
    with pytest.raises(EOFError):
        sent(raw('{"tensor!": ["uint8", [9]]}', b"12345678"))


def test_a_boolean_tensor_holds_true_and_false_alone():
    x = sent(raw('{"tensor!": ["bool", [3]]}', b"\0\1\xff"))
    assert x.tolist() == [False, True, True]
    assert torch.equal(x.to(torch.uint8), torch.tensor([0, 1, 1], dtype=torch.uint8))
