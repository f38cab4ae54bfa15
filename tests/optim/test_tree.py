"""Arithmetic on trees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedroute.tree import Tree, axpy, flatten, nbytes, pick, sha256, tree_map, unflatten, zeros

names = st.text("abc.", min_size=1, max_size=4)
leaves = st.integers(-5, 5).map(lambda v: torch.full((2,), float(v)))
trees = st.recursive(
    st.dictionaries(names, leaves, max_size=3), lambda t: st.dictionaries(names, t, max_size=3), max_leaves=8
)


@given(trees)
def test_flatten_and_back(tree: Tree) -> None:
    again = unflatten(flatten(tree, whole=True))
    assert sha256(again) == sha256(tree)
    assert str(again) == str(tree)
    assert nbytes(again) == nbytes(tree) == 8 * len(flatten(tree))


def test_empty_dicts_leave_a_trace_only_where_asked() -> None:
    tree: Tree = {"w": {"a.b": torch.ones(1)}, "opt": {}}
    assert list(flatten(tree)) == ["w/a.b"]
    assert list(flatten(tree, whole=True)) == ["w/a.b", "opt/"]
    assert flatten({}, whole=True) == {}


def test_axpy_leaves_the_rest_and_the_given() -> None:
    y = {"a": torch.ones(2), "b": torch.ones(2)}
    for a in (2.0, torch.tensor(2.0)):
        new = axpy(a, {"a": torch.full((2,), 3.0)}, y)
        assert new["a"].tolist() == [7, 7]
        assert new["b"] is y["b"]
    assert y["a"].tolist() == [1, 1]


def test_tree_map_needs_the_same_form() -> None:
    with pytest.raises(KeyError):
        tree_map(torch.add, {"a": torch.ones(1)}, {"b": torch.ones(1)})


def test_pick_keeps_the_order() -> None:
    w = {k: torch.ones(1) for k in "cab"}
    assert list(pick(w, {"a", "b", "c"})) == ["c", "a", "b"]
    assert list(zeros(w)) == ["c", "a", "b"]


def test_sha256_sees_names_shapes_dtypes_and_bits() -> None:
    trees = [
        {"a": torch.zeros(2)},
        {"b": torch.zeros(2)},
        {"a": torch.zeros(1, 2)},
        {"a": torch.zeros(2, dtype=torch.float64)},
        {"a": torch.tensor([0.0, -0.0])},
    ]
    assert len({sha256(t) for t in trees}) == len(trees)
