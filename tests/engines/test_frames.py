"""Trees between two processes: what arrives is what was sent, in every bit, stride and alignment."""

import socket
import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute.engines.frames import LINE, pack, receive, send, unpack

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    bits = [t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8) for t in (a, b)]
    return (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and torch.equal(*bits)


@st.composite
def tensors(draw: Any) -> Tensor:
    """A tensor of any dtype, shape (also empty and scalar) and layout: permuted, sliced, expanded, off the line."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    t = torch.randint(0, 255, (*shape, 3), dtype=torch.uint8).to(draw(st.sampled_from(DTYPES)))[
        ..., draw(st.integers(0, 2))
    ]
    t = t.permute(draw(st.permutations(range(t.ndim))))
    if t.ndim and draw(st.booleans()):
        t = t[draw(st.integers(0, 2)) :]
    if draw(st.booleans()):
        t = t.unsqueeze(0).expand(draw(st.integers(1, 3)), *t.shape)
    return t


TREES = st.recursive(
    st.dictionaries(st.text(max_size=5), tensors(), max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(tree=TREES)
def test_what_is_unpacked_is_what_was_packed(tree: dict[str, Any]) -> None:
    packed = pack(tree)
    got = unpack(packed)
    assert same(got, tree)
    assert len(packed.data) == 0 or packed.data.data_ptr() % LINE == 0

    def places(a: Any, b: Any) -> None:
        if isinstance(a, dict):
            for k in a:
                places(a[k], b[k])
        elif a.numel():
            assert a.data_ptr() % LINE == b.data_ptr() % LINE

    places(tree, got)


def test_what_is_received_is_what_was_sent() -> None:
    """More than a socket holds at once, several trees, then the next message."""
    tree = {"w": {"a.b": torch.randn(700, 900).t(), "n": torch.tensor(3)}, "none": {}}
    here, there = socket.socketpair()
    with here, there:

        def send_twice() -> None:
            for i in (1, 2):
                send(here, ("x", i), pack(tree), pack({}), pack({"w": {}}))

        thread = threading.Thread(target=send_twice)
        thread.start()
        for i in (1, 2):
            message, (first, *others) = receive(there)
            assert message == ("x", i)
            assert same(first, tree)
            assert others == [{}, {"w": {}}]
        thread.join()
        here.close()
        with pytest.raises(EOFError):
            receive(there)


@pytest.mark.parametrize("leaf", [1.5, [torch.zeros(1)], torch.eye(2).to_sparse(), torch.empty(1, device="meta")])
def test_other_leaves_are_refused(leaf: Any) -> None:
    with pytest.raises(TypeError, match="a tree holds dense tensors in main memory"):
        pack({"w": {"x": leaf}})


def test_gradients_and_aliases_stay_behind() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    got = unpack(pack({"a": p, "b": p}))
    assert not got["a"].requires_grad
    got["a"] += 1
    assert got["b"].tolist() == p.tolist() == [1, 1, 1]
