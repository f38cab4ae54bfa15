"""Trees as bytes: exact, and nothing is made of bytes that are not what was declared."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.federation import wire
from fedroute.federation.wire import Garbled, decode, encode
from fedroute.tree import Tree, flatten, sha256

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    made = values.to(draw(st.sampled_from(DTYPES)))
    return made.transpose(0, 1) if len(shape) == 3 and draw(st.booleans()) else made


names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
trees = st.recursive(
    st.dictionaries(names, tensors(), max_size=3), lambda inner: st.dictionaries(names, inner | tensors(), max_size=3)
)


def same(a: Tree, b: Tree) -> bool:
    if list(a) != list(b):  # also the order of keys
        return False
    return all(
        same(v, b[k]) if isinstance(v, dict) else v.dtype == b[k].dtype and v.shape == b[k].shape and v.equal(b[k])
        for k, v in a.items()
    )


@given(trees)
@settings(max_examples=60, deadline=None)
def test_a_tree_comes_back_as_it_was(tree: Tree) -> None:
    assert same(decode(encode(tree)), tree)


def test_bits_of_what_is_no_number_come_back_too(tmp_path: Path) -> None:
    odd = torch.tensor([math.nan, math.inf, -0.0, 5e-324], dtype=torch.float64)
    tree = {"w": {"a.b": odd, "n": torch.tensor(7)}, "opt": {}, "deep": {"e": {}}}
    file = tmp_path / "tree"
    digest = wire.write(file, tree)
    assert digest == wire.sha256(file) == wire.sha256(encode(tree))
    for got in (decode(encode(tree)), decode(file)):
        assert got["w"]["a.b"].view(torch.int64).equal(odd.view(torch.int64))
        assert got["deep"] == {"e": {}}
        assert sha256(got) == sha256(tree)


DECLARED = {"dw": {"a": torch.zeros(2, 3), "n": torch.zeros((), dtype=torch.int64)}, "opt": {}}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"dw": {"a": torch.zeros(2, 3)}, "opt": {}}, "lacks dw/n"),
        (DECLARED | {"secret": torch.zeros(1)}, "undeclared secret"),
        (
            {"dw": {"a": torch.zeros(3, 2), "n": torch.tensor(0)}, "opt": {}},
            r"dw/a has shape \(3, 2\), declared \(2, 3\)",
        ),
        (
            {"dw": {"a": torch.zeros(2, 3).double(), "n": torch.tensor(0)}},
            "dw/a is torch.float64, declared torch.float32",
        ),
        ({"dw": {"a": torch.full((2, 3), math.nan), "n": torch.tensor(0)}}, "dw/a has NaN or Inf"),
        ({"dw": {"a": torch.full((2, 3), 99.0), "n": torch.tensor(0)}}, "dw/a has a value of 99, beyond 10"),
    ],
)
def test_what_was_not_declared_is_refused_in_words(tree: Tree, why: str) -> None:
    with pytest.raises(Garbled, match=why):
        decode(encode(tree), DECLARED, 10.0)


def test_the_nesting_is_the_declared_one_whatever_came() -> None:
    got = decode(encode({"dw": {"n": torch.tensor(3), "a": torch.ones(2, 3)}}), DECLARED)
    assert list(got["dw"]) == ["a", "n"]
    assert got["opt"] == {}


def header(document: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(document).encode()
    return struct.pack("<Q", len(text)) + text + body


FORM = {"__metadata__": {wire.FORM: '{"a": "a"}'}}
TENSOR = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\x80\x04K\x01.", b"x" * 100, struct.pack("<Q", 1 << 62), header({}), header(FORM),
        header(FORM | TENSOR, b"1234"),
        header(FORM | {"a": {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 8]}}, bytes(8)),
        header(FORM | {"a": {"dtype": "PY", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        header(FORM | TENSOR | {"b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}}, bytes(12)),
        header({"__metadata__": {wire.FORM: "[1]"}} | TENSOR, bytes(8)),
        header({"__metadata__": {wire.FORM: '{"a": 1}'}} | TENSOR, bytes(8)),
        header({"__metadata__": {wire.FORM: '{"a": "a", "b": "a"}'}} | TENSOR, bytes(8)),
        header({"__metadata__": {wire.FORM: '{"a":' * 2000 + "1" + "}" * 2000}} | TENSOR, bytes(8)),
    ],
)  # fmt: skip
def test_garbage_is_refused(garbage: bytes, tmp_path: Path) -> None:
    file = tmp_path / "garbage"
    file.write_bytes(garbage)
    for source in (garbage, file):
        with pytest.raises(Garbled):
            decode(source)
    assert decode(header(FORM | TENSOR, bytes(8)))["a"].equal(torch.zeros(2))


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_never_does_more_than_change_values(place: int, flip: int) -> None:
    data = bytearray(encode(DECLARED))
    data[place % len(data)] ^= flip
    try:
        got = decode(bytes(data), DECLARED)
    except Garbled:
        return
    assert {k: (v.shape, v.dtype) for k, v in flatten(got).items()} == {
        k: (v.shape, v.dtype) for k, v in flatten(DECLARED).items()
    }
