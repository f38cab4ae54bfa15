"""Points of the learning curve, and how far apart they are."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.curve import curve_point
from fedroute.evaluate.ledger import make_ledger
from fedroute.evaluate.spacing import spacing
from tests.evaluate.planted import always, constant_task, federation


def validated(f: Federation) -> Federation:
    """The test rows as validation rows, and none to test on."""
    return dataclasses.replace(f, validation=f.test, test=f.validation)


def test_means_and_worst_by_hand() -> None:
    f = validated(federation([[0] * 4, [0, 1, 1, 1], [1, 0]], labels=("a", "b")))
    point = curve_point(f, constant_task(2), lambda i: always(i % 2, 2), always(0, 2))
    assert (point["part"], point["measured"], point["rows"]) == ("validation", 3, 10)
    assert point["personal"]["accuracy"] == pytest.approx((1 + 0.75 + 0.5) / 3)
    assert point["personal"]["worst_accuracy"] == 0.5
    assert point["global"]["accuracy"] == pytest.approx((1 + 0.25 + 0.5) / 3)
    assert (point["global"]["worst_accuracy"], point["global"]["worst_client"]) == (0.25, "client1")
    good, bad = torch.tensor([5.0, 0.0]).log_softmax(0).neg().tolist()
    assert point["global"]["loss"] == pytest.approx((good + (good + 3 * bad) / 4 + (good + bad) / 2) / 3)
    assert point["global"]["worst_loss"] == pytest.approx((good + 3 * bad) / 4)


class Counted(nn.Module):
    """Counts the rows it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.rows = nn.Linear(1, 2, dtype=torch.float64), 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        out: Tensor = self.fc(x)
        return out


def test_personal_weights_that_are_the_global_ones_are_not_computed_again() -> None:
    f = validated(federation([[0, 1], [1, 1, 0]], labels=("a", "b")))
    module = Counted()
    w = {f"fc.{k}": v for k, v in always(0, 2).items()}
    point = curve_point(f, Task(module), lambda i: dict(w), w)
    assert module.rows == 5
    assert point["personal"] == point["global"]
    other = {k: v.clone() for k, v in w.items()}
    curve_point(f, Task(module), lambda i: other if i else w, w)
    assert module.rows == 5 + 5 + 3
    make_ledger(
        dataclasses.replace(f, test=f.validation), Task(module), personal=lambda i: w, global_w=w, alone=None, seed=0
    )
    assert module.rows == 5 + 5 + 3 + 5


def test_clients_without_rows_are_left_out_and_nobody_with_rows_is_none() -> None:
    f = validated(federation([[0, 0], []], labels=("a", "b")))
    point = curve_point(f, constant_task(2), lambda i: always(0, 2), None)
    assert (point["measured"], point["personal"]["accuracy"], point["global"]) == (1, 1.0, None)
    nobody = curve_point(federation([[0]]), constant_task(3), lambda i: always(0, 3), None)
    assert (nobody["measured"], nobody["personal"]) == (0, None)


def test_rare_events_and_numbers_have_their_own_metric() -> None:
    rare = validated(federation([[1] + [0] * 40], labels=("fine", "fraud")))
    assert "pr_auc" in curve_point(rare, constant_task(2), lambda i: always(0, 2), None)["personal"]
    numbers = validated(federation([[0, 0]], values=torch.zeros(4, 1, dtype=torch.float64)))
    task = Task(nn.Linear(1, 1, dtype=torch.float64), loss=lambda out, b: ((out - b["y"]) ** 2).mean())
    w = {"weight": torch.zeros(1, 1, dtype=torch.float64), "bias": torch.full((1,), 3.0, dtype=torch.float64)}
    found = curve_point(numbers, task, lambda i: w, w)["personal"]
    assert found == {"loss": 9.0, "worst_loss": 9.0, "worst_client": "client0"}


def test_the_test_part_is_refused() -> None:
    with pytest.raises(InputError, match="test part is for the ledger"):
        curve_point(federation([[0]]), constant_task(3), lambda i: always(0, 3), None, part="test")


@given(train=st.floats(1e-4, 1e3), evaluate=st.floats(0, 1e4))
def test_evaluation_adds_at_most_a_fifth_at_the_least_friendly_number(train: float, evaluate: float) -> None:
    n = spacing(train, evaluate)
    assert str(n).rstrip("0") in ("1", "2", "5")
    assert evaluate / (n * train) <= 0.2 * (1 + 1e-6)
    if n > 1:  # the friendly number below would not do
        below = n // 2 if str(n)[0] != "5" else n * 2 // 5
        assert evaluate / (below * train) > 0.2 * (1 - 1e-6)


def test_spacing_by_hand() -> None:
    assert [spacing(1, e) for e in (0, 0.2, 0.21, 0.5, 1, 1.01, 3)] == [1, 1, 2, 5, 5, 10, 20]
    assert spacing(0, 0) == 1
