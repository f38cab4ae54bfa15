"""Why a query of a table looks like one client's rows and not like another's: which of its columns say so."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedroute.data.table import TableSchema

Logits = Callable[[Tensor], Tensor]
MOST = 200_000  # queries times columns, beyond which nothing is looked for
LEAST = 0.3  # nat, what a column must say to be named
NAMED = 3  # columns


class _Column(NamedTuple):
    """A column of the table as it was read: where its value and its flag stand in x (-1: no flag), and what its value
    is in a row that says nothing, where that is not the mean: a name that no row had."""

    name: str
    at: int
    flag: int
    nothing: float | None


def because(schema: TableSchema | None, mean: Tensor | None, x: Tensor, logits: Logits) -> list[str]:
    """Of each query, (B, F), the columns that speak most for its likeliest client against the next one: those whose
    value, made to say nothing, would narrow the gap between the two logits (B, N) by the most. mean: (F,), of the
    training rows of all clients. [] where x is no table, there is a single client, or too much to look through."""
    if schema is None or mean is None or not len(x):
        return []
    columns = list(_columns(schema))
    if len(x) * len(columns) > MOST:
        return []
    found = logits(x)
    if found.shape[1] < 2 or int((found[0] > -torch.inf).sum()) < 2:
        return []
    pair = found.topk(2, 1).indices
    gap = _gap(found, pair)
    says = torch.stack([gap - _gap(logits(_silent(x, c, mean)), pair) for c in columns], 1)
    best = says.topk(min(NAMED, len(columns)), 1)
    return [
        ", ".join(_told(schema, columns[k], x[i]) for v, k in zip(*row, strict=True) if v > LEAST)
        for i, row in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    ]


def _columns(schema: TableSchema) -> Iterator[_Column]:
    flags = {c: len(schema.numeric) + k for k, c in enumerate(schema.flags)}
    for k, c in enumerate(schema.numeric):
        yield _Column(c, k, flags.get(c, -1), None)
    first = len(schema.numeric) + len(schema.flags)
    for k, (c, names) in enumerate(schema.categorical.items()):
        yield _Column(c, first + k, flags.get(c, -1), float(len(names)))


def _silent(x: Tensor, c: _Column, mean: Tensor) -> Tensor:
    x = x.clone()
    x[:, c.at] = mean[c.at] if c.nothing is None else c.nothing
    if c.flag >= 0:
        x[:, c.flag] = mean[c.flag]
    return x


def _gap(logits: Tensor, pair: Tensor) -> Tensor:
    both = logits.gather(1, pair)
    return both[:, 0] - both[:, 1]


def _told(schema: TableSchema, c: _Column, row: Tensor) -> str:
    if c.flag >= 0 and row[c.flag] > 0:
        return f"{c.name} missing"
    if c.at < len(schema.numeric):
        value = float(row[c.at]) * schema.federated.scale[c.at] + schema.federated.mean[c.at]
        return f"{c.name} {round(value, 4) + 0.0:.4g}"
    names, code = schema.categorical[c.name], int(row[c.at])
    return f"{c.name} {names[code]}" if code < len(names) else f"{c.name} not seen before"
