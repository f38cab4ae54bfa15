"""Federations and models whose right answers are known by construction."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.tree import Weights


def federation(
    y: Sequence[Sequence[int]],
    *,
    labels: Sequence[str] = ("a", "b", "c"),
    train: Sequence[Sequence[int]] | None = None,
    names: Sequence[str] | None = None,
    values: Tensor | None = None,
) -> Federation:
    """A client per list of test labels; training labels as given, else the test labels. No validation rows. x is one
    column with the number of the row, so that a model can be planted row by row (`Lookup`)."""
    train = y if train is None else train
    codes = [c for a, b in zip(train, y, strict=True) for c in (*a, *b)]
    parts: dict[str, list[Tensor]] = {"train": [], "test": []}
    at = 0
    for a, b in zip(train, y, strict=True):
        parts["train"].append(torch.arange(at, at + len(a)))
        parts["test"].append(torch.arange(at + len(a), at + len(a) + len(b)))
        at += len(a) + len(b)
    return Federation(
        name="planted",
        x=torch.arange(len(codes), dtype=torch.float64).unsqueeze(1),
        y=torch.tensor(codes) if values is None else values,
        clients=tuple(names or [f"client{i}" for i in range(len(y))]),
        train=tuple(parts["train"]),
        validation=tuple(torch.zeros(0, dtype=torch.int64) for _ in y),
        test=tuple(parts["test"]),
        labels=tuple(labels) if values is None else (),
    )


class Lookup(nn.Module):
    """Row number -> the logits planted for that row."""

    logits: Tensor

    def __init__(self, rows: int, classes: int):
        super().__init__()
        self.register_buffer("logits", torch.zeros(rows, classes, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[x[:, 0].long()]


def lookup_task(f: Federation, classes: int = 0) -> Task:
    return Task(Lookup(len(f.x), classes or len(f.labels)))


def says(f: Federation, answers: Sequence[int] | Tensor, sure: float = 4.0) -> Weights:
    """Weights that answer row r with the class answers[r]."""
    codes = torch.as_tensor(answers)
    return {"logits": sure * nn.functional.one_hot(codes, len(f.labels)).double()}


def constant_task(classes: int) -> Task:
    """A model that says the same of every row; its bias is the logits."""
    return Task(nn.Linear(1, classes, dtype=torch.float64))


def always(k: int, classes: int) -> Weights:
    bias = torch.zeros(classes, dtype=torch.float64)
    bias[k] = 5.0
    return {"weight": torch.zeros(classes, 1, dtype=torch.float64), "bias": bias}
