"""Arithmetic on trees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedroute.core import Algorithm, Context, Task, run_client
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


def test_spent_memory_is_used_only_where_nothing_else_lies() -> None:
    w = {"a": torch.ones(3), "b": torch.ones(3)}
    g = {"a": torch.full((3,), 2.0), "b": torch.full((3,), 4.0)}
    new = axpy(-0.5, g, w, spent=True)
    assert new["a"].data_ptr() == g["a"].data_ptr()
    assert (new["a"].tolist(), new["b"].tolist()) == ([0, 0, 0], [-1, -1, -1])
    assert w["a"].tolist() == [1, 1, 1]
    shared = torch.full((3,), 2.0)
    assert axpy(-0.5, {"a": shared, "b": shared}, w, spent=True)["b"].tolist() == [0, 0, 0]
    expanded = {"a": torch.tensor(2.0).expand(3), "b": torch.full((3,), 4.0)}
    new = axpy(-0.5, expanded, w, spent=True)
    assert (new["a"].tolist(), new["b"].tolist()) == ([0, 0, 0], [-1, -1, -1])
    ones = torch.ones(2, 3)
    mapped = torch.vmap(lambda a, b: axpy(-0.5, {"a": a}, {"a": b}, spent=True)["a"])(ones, ones)
    assert mapped.tolist() == [[0.5] * 3] * 2


def test_two_parameters_with_the_same_gradient_tensor_both_move() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (self.a + self.b)

    task = Task(Sum(), loss=lambda out, batch: out.sum())
    alg = Algorithm().bind(task)
    w = task.init()
    zero = torch.tensor(0)
    ctx = Context(alg.init(w, torch.ones(1)), alg.init_client(w), zero, zero, zero, 0.5)
    update, _, _ = run_client(alg, ctx, [{"x": torch.ones(2, 3), "y": torch.zeros(2)}])
    assert update["dw"]["a"].tolist() == update["dw"]["b"].tolist() == [-1, -1, -1]
