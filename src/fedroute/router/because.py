"""Why a query of a table looks like one client's rows and not like another's: which of its columns say so."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedroute.data.table import TableSchema

Logits = Callable[[Tensor], Tensor]
MOST = 200_000  # queries times columns, beyond which nothing is looked for
AT_ONCE = 4096  # rows that are looked through in one pass
LEAST = 0.3  # nat, what a column must say to be named
NAMED = 3  # columns


def because(schema: TableSchema | None, mean: Tensor | None, x: Tensor, logits: Logits) -> list[str]:
    """Of each query, (B, F), the columns that speak most for its likeliest client against the next one: those whose
    value, made to say nothing, would narrow the gap between the two logits (B, N) by the most. mean: (F,), of the
    training rows of all clients. [] where x is no table, there is a single client, or too much to look through."""
    if schema is None or mean is None or not len(x):
        return []
    columns = _columns(schema.numeric, schema.flags, tuple(schema.categorical.items()))
    if len(x) * len(columns.at) > MOST:
        return []
    found = _logits(columns, mean, x, logits)  # (1 + C, B, N)
    if found.shape[2] < 2 or int((found[0, 0] > -torch.inf).sum()) < 2:
        return []
    pair = found[0].topk(2, 1).indices
    both = found.gather(2, pair.expand(len(found), -1, -1))
    gap = both[..., 0] - both[..., 1]
    best = (gap[0] - gap[1:]).T.topk(min(NAMED, len(columns.at)), 1)
    return [
        ", ".join(_told(schema, columns, k, x[i]) for v, k in zip(*row, strict=True) if v > LEAST)
        for i, row in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    ]


def unseen(schema: TableSchema | None, x: Tensor) -> list[str]:
    """Of each query, (B, F), the columns of names in which it has a word that no client has. [] where there are
    none."""
    if schema is None or not schema.categorical:
        return []
    names, first = [*schema.categorical], len(schema.numeric) + len(schema.flags)
    new = x[:, first:] >= torch.tensor([float(len(known)) for known in schema.categorical.values()])
    found = [""] * len(x)
    for i in new.any(1).nonzero()[:, 0].tolist():
        found[i] = ", ".join(names[k] for k in new[i].nonzero()[:, 0].tolist())
    return found


class _Columns(NamedTuple):
    """C columns of the table as it was read: name; (C,) where its value and its flag stand in x (-1: no flag); (C,)
    what its value is in a row that says nothing, NaN where that is the mean."""

    name: tuple[str, ...]
    at: Tensor
    flag: Tensor
    nothing: Tensor


@lru_cache(64)
def _columns(
    numeric: tuple[str, ...], flags: tuple[str, ...], categorical: tuple[tuple[str, tuple[str, ...]], ...]
) -> _Columns:
    place = {c: len(numeric) + k for k, c in enumerate(flags)}
    first = len(numeric) + len(flags)
    names = (*numeric, *(c for c, _ in categorical))
    at = [*range(len(numeric)), *range(first, first + len(categorical))]
    unseen = [float("nan")] * len(numeric) + [float(len(known)) for _, known in categorical]
    return _Columns(names, torch.tensor(at), torch.tensor([place.get(c, -1) for c in names]), torch.tensor(unseen))


def _logits(columns: _Columns, mean: Tensor, x: Tensor, logits: Logits) -> Tensor:
    """(1 + C, B, N), of x, and of x where each of the columns says nothing; as many in one pass as AT_ONCE allows."""
    some, found = max(1, AT_ONCE // len(x)), list[Tensor]()
    for i in range(0, len(columns.at), some):
        many = _silent(columns, slice(i, i + some), x, mean)
        many = many if i else torch.cat([x[None], many])
        found.append(logits(many.flatten(0, 1)).reshape(len(many), len(x), -1))
    return torch.cat(found)


def _silent(columns: _Columns, which: slice, x: Tensor, mean: Tensor) -> Tensor:
    """(C', B, F): x with the first of these columns saying nothing, then x with the second, ..."""
    at, flag, nothing = columns.at[which], columns.flag[which], columns.nothing[which]
    many, place = x.repeat(len(at), 1, 1), torch.arange(len(at))
    many[place, :, at] = nothing.where(~nothing.isnan(), mean[at])[:, None]
    flagged = flag >= 0
    many[place[flagged], :, flag[flagged]] = mean[flag[flagged]][:, None]
    return many


def _told(schema: TableSchema, columns: _Columns, column: int, row: Tensor) -> str:
    name, at, flag = columns.name[column], int(columns.at[column]), int(columns.flag[column])
    if flag >= 0 and row[flag] > 0:
        return f"{name} missing"
    if at < len(schema.numeric):
        value = float(row[at]) * schema.federated.scale[at] + schema.federated.mean[at]
        return f"{name} {round(value, 4) + 0.0:.4g}"
    names, code = schema.categorical[name], int(row[at])
    return f"{name} {names[code]}" if code < len(names) else f"{name} not seen before"
