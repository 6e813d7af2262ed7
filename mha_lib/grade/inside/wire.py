"""Plain data with tensors in it over a socket: JSON ahead, raw bytes behind.

A message is four bytes with the length of the JSON text, the text, and the bytes of the
tensors one after another. In the text a tensor is ``{"tensor!": [dtype, shape]}``.
Nothing is executed on the way, and every size is checked before anything is read.
"""

import json
import math
import struct
from socket import socket

import torch
from torch import Tensor

KIND = "tensor!"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
TEXT = 1 << 20  # the longest JSON text that is read, in bytes
MOST = 1 << 26  # bytes of tensors in one answer
LENGTH = struct.Struct("!I")

# What reads a tensor is looked up before a submission could replace it.
_detach, _contiguous, _reshape = Tensor.detach, Tensor.contiguous, Tensor.reshape
_view, _numpy, _clamp = Tensor.view, Tensor.numpy, Tensor.clamp_
_plain, _type, _bytes = torch._C.DisableTorchFunction, type, torch.uint8


class WireError(ValueError):
    """What came is no message of this protocol, or too large."""


def send(connection: socket, tree: object) -> None:
    """Write one message; raises TypeError for what is neither plain nor a tensor."""
    connection.sendall(pack(tree))


def pack(tree: object) -> bytes:
    """The bytes of one message."""
    tensors = []

    def encode(x: object) -> dict:
        if _type(x) is not Tensor:
            name = f"{_type(x).__module__}.{_type(x).__qualname__}"
            raise TypeError(f"a plain torch.Tensor is required; got {name}")
        with _plain():
            if x.dtype not in NAMES:
                known = ", ".join(DTYPES)
                raise TypeError(f"the dtype must be one of {known}; got {x.dtype}")
            tensors.append(_raw(x))
            return {KIND: [NAMES[x.dtype], list(x.shape)]}

    text = json.dumps(tree, default=encode).encode()
    return b"".join([LENGTH.pack(len(text)), text, *tensors])


def _raw(x: Tensor) -> bytes:
    """The numbers of a tensor as they lie in memory, the last axis fastest."""
    return _numpy(_view(_reshape(_contiguous(_detach(x)), -1), _bytes)).tobytes()


def receive(connection: socket, limit: int) -> object:
    """Read one message with at most ``limit`` bytes of tensors.

    Raises:
        WireError: the message is malformed or too large.
        EOFError: the other side has closed the connection.
        TimeoutError: the connection's timeout has passed.
    """
    header = bytearray(LENGTH.size)
    _fill(connection, header)
    (length,) = LENGTH.unpack(header)
    if length > TEXT:
        raise WireError(f"a message's text may have {TEXT} bytes; got {length}")
    text = bytearray(length)
    _fill(connection, text)

    tensors, left = [], limit

    def decode(node: dict) -> object:
        nonlocal left
        if KIND not in node:
            return node
        dtype, shape = _described(node[KIND])
        left -= math.prod(max(size, 1) for size in shape) * dtype.itemsize
        if left < 0:
            raise WireError(f"a message's tensors may have {limit} bytes; got more")
        tensors.append(torch.empty(shape, dtype=dtype))
        return tensors[-1]

    try:
        tree = json.loads(text, object_hook=decode)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message must be JSON; got {error}") from None
    flat = [_view(_reshape(tensor, -1), torch.uint8) for tensor in tensors]
    content = bytearray(sum(map(len, flat)))
    _fill(connection, content)  # at once: a message may have hundreds of tensors
    place = 0
    for tensor, numbers in zip(tensors, flat):
        if count := len(numbers):
            part = torch.frombuffer(content, dtype=_bytes, count=count, offset=place)
            numbers.copy_(part)
            place += count
        if tensor.dtype == torch.bool:
            _clamp(numbers, max=1)  # any other byte would be neither True nor False
    return tree


def _described(description: object) -> tuple[torch.dtype, list[int]]:
    """A dtype and a shape out of what may be anything."""
    match description:
        case [str(name), list(shape)] if name in DTYPES and len(shape) <= 16:
            if all(type(size) is int and 0 <= size < 1 << 32 for size in shape):
                return DTYPES[name], shape
    raise WireError("a tensor must be described by [dtype, shape]")


def _fill(connection: socket, buffer: object) -> None:
    view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the connection was closed")
        view = view[count:]


def as_tensor(content: bytes) -> Tensor:
    """Bytes as a tensor, the one thing that travels beside JSON."""
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else (torch.empty(0, dtype=torch.uint8))
    )
