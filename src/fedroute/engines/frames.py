"""Trees as bytes on a socket between two processes of one machine: every bit, stride and alignment arrives as it was.

Layout and alignment matter because kernels choose their order of summation by them: the same bits in another layout
may train to other bits.
"""

import pickle
import socket
import struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedroute.tree import Tree

LINE = 64  # bytes: what torch aligns its allocations to, and so a tensor's place relative to it can be kept
_LENGTH = struct.Struct("<Q")


class Packed(NamedTuple):
    """A tree in one block of bytes."""

    shape: Any  # the tree with (dtype, shape, stride, offset, bytes) for each tensor; plain data
    data: Tensor  # (bytes,) uint8


def pack(tree: Tree) -> Packed:
    """Copies the tree, empty dicts and all. Raises TypeError for a leaf that is no dense tensor in main memory."""
    todo: list[tuple[int, Tensor]] = []
    end = 0

    def place(node: Any) -> Any:
        nonlocal end
        if isinstance(node, dict):
            return {k: place(v) for k, v in node.items()}
        if not isinstance(node, Tensor) or node.layout != torch.strided or node.device.type != "cpu":
            what = (
                f"a {node.layout} tensor on {node.device}" if isinstance(node, Tensor) else f"a {type(node).__name__}"
            )
            raise TypeError(f"a tree holds dense tensors in main memory; this one holds {what}")
        t = node.detach()
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
        at = -(-end // LINE) * LINE + t.data_ptr() % LINE
        end = at + span * t.element_size()
        todo.append((at, t.as_strided((span,), (1,))))
        return t.dtype, tuple(t.shape), t.stride(), at, end - at

    shape = place(tree)
    data = torch.empty(end, dtype=torch.uint8)
    for at, t in todo:
        data[at : at + t.numel() * t.element_size()].copy_(t.view(torch.uint8))
    return Packed(shape, data)


def unpack(packed: Packed) -> Tree:
    """The tree, its tensors views into the block."""

    def leaf(dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], at: int, size: int) -> Tensor:
        return packed.data[at : at + size].view(dtype).as_strided(shape, stride)

    def tree(node: Any) -> Any:
        return {k: tree(v) for k, v in node.items()} if isinstance(node, dict) else leaf(*node)

    found: Tree = tree(packed.shape)
    return found


def send(to: socket.socket, message: Any, *trees: Packed) -> None:
    """`message`: plain data. Raises OSError where the other side is gone."""
    head = pickle.dumps((message, [(t.shape, len(t.data)) for t in trees]))
    to.sendall(_LENGTH.pack(len(head)) + head)
    for t in trees:
        if len(t.data):
            to.sendall(t.data.numpy().data)


def receive(source: socket.socket) -> tuple[Any, list[Tree]]:
    """What `send` sent. Raises EOFError or OSError where the other side is gone."""
    prefix = bytearray(_LENGTH.size)
    _fill(memoryview(prefix), source)
    head = bytearray(_LENGTH.unpack(prefix)[0])
    _fill(memoryview(head), source)
    message, packs = pickle.loads(head)
    trees = []
    for shape, size in packs:
        data = torch.empty(size, dtype=torch.uint8)
        _fill(data.numpy().data, source)
        trees.append(unpack(Packed(shape, data)))
    return message, trees


def _fill(room: memoryview, source: socket.socket) -> None:
    while room:
        got = source.recv_into(room)
        if not got:
            raise EOFError("the other process is gone")
        room = room[got:]
