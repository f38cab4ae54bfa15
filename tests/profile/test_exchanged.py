"""Labels in each other's place at one client."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedroute.advise.rules import advise
from fedroute.data.federation import Federation
from fedroute.profile.finding import Finding
from fedroute.profile.profile import Profile, profile

KIND = "labels in each other's place"


def world(orders: dict[str, list[int]], rows: int = 200, wrong: float = 0.0, seed: int = 0) -> Federation:
    """Each client writes label k as its order has it; wrong: share of labels drawn anew at the last client."""
    rng = np.random.default_rng(seed)
    k = len(next(iter(orders.values())))
    middle = rng.normal(size=(k, 5)) * 3
    x, y, who = list[NDArray[Any]](), list[NDArray[Any]](), list[str]()
    for name, order in orders.items():
        true = rng.integers(0, k, rows)
        x.append(middle[true] + rng.normal(size=(rows, 5)))
        y.append(np.array(order)[true])
        who += [name] * rows
    again = rng.random(rows) < wrong
    y[-1] = np.where(again, rng.integers(0, k, rows), y[-1])
    return Federation.from_arrays(
        torch.tensor(np.concatenate(x)).float(), torch.tensor(np.concatenate(y)), who,
        labels=[f"label {i}" for i in range(k)], seed=seed,
    )  # fmt: skip


def found(f: Federation) -> tuple[Profile, list[Finding]]:
    p = profile(f)
    return p, [s for s in p.sick.findings if s.kind == KIND]


@pytest.mark.parametrize("order", [[1, 0], [1, 2, 0, 3], [0, 3, 2, 1]])
def test_exchanged_labels_are_named_with_the_way_back(order: list[int]) -> None:
    usual = list(range(len(order)))
    p, (f,) = found(world({**dict.fromkeys("ABCD", usual), "E": order}))
    assert (f.client, f.severity, f.number) == ("E", "severe", sum(i != j for i, j in enumerate(order)))
    for true, written in enumerate(order):
        assert (f"'label {written}' to 'label {true}'" in f.mend) is (true != written)
    a = advise(json.loads(json.dumps(p.row())), {"name": "mlp"}, False)
    assert [(c.client, c.do) for c in a.leave_out] == [("E", "mend")]
    assert not a.personal
    assert "no head need stay for that" in a.would_change_mind[0]
    assert not a.router
    assert not found(world(dict.fromkeys("ABCDE", usual)))[1]


@pytest.mark.parametrize("orders", [
    {"A": [0, 1], "B": [1, 0]}, {"A": [0, 1], "B": [0, 1], "C": [1, 0], "D": [1, 0]},
])  # fmt: skip
def test_where_nobody_could_say_who_has_them_exchanged_nobody_is_accused(orders: dict[str, list[int]]) -> None:
    assert not found(world(orders))[1]


def test_labels_that_are_wrong_by_chance_are_not_exchanged() -> None:
    assert not found(world({c: [0, 1] for c in "ABCDE"}, wrong=0.9))[1]


def test_labels_that_nobody_can_tell_are_not_exchanged() -> None:
    f = world({**{c: [0, 1] for c in "ABCD"}, "E": [1, 0]})
    rng = np.random.default_rng(0)
    noise = Federation(**{**vars(f), "x": torch.tensor(rng.normal(size=tuple(f.x.shape))).float()})
    assert not found(noise)[1]
