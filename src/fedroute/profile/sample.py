"""The rows of each client that the profile's tests look at: training and validation rows, at most so many, as
numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.profile.own_rows import SIDE, OwnRows, own_rows
from fedroute.randomness import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROWS = 3000  # of a client, at most
ALL_ROWS = 40_000  # of all clients, about
LEAST = 40  # rows that a client may show however many clients there are
FOLDS = 5
KINDS = 5  # classes that a number to predict is cut into
NAMES_SHOWN = 8  # of a categorical column, the most frequent; the others are one


@dataclass(frozen=True, kw_only=True)
class Sample:
    """N clients, F features, K labels. x: per client (n_i, F) float64, gaps NaN; y: per client (n_i,) codes;
    time: per client (n_i,), or None; fold: per client (n_i,), 0 to FOLDS - 1, by lot within a label.
    rows: (N,) rows of all parts; used: (N,) those of training and validation, before the cap.
    counts: (N, K) labels over all parts; known: (N, K) over different training and validation rows, before the cap.
    missing: (N, C) share of gaps in each column, over training and validation rows. cap: most rows of a client.
    classes: whether labels are classes (else a number to predict was cut into fifths, or there is one label)."""

    clients: tuple[str, ...]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    x: tuple[Floats, ...]
    y: tuple[Ints, ...]
    time: tuple[Floats, ...] | None
    fold: tuple[Ints, ...]
    rows: Ints
    used: Ints
    counts: Ints
    known: Ints
    missing: Floats
    cap: int
    classes: bool

    @property
    def capped(self) -> bool:
        return bool((self.used > self.cap).any())


def draw(federation: Federation, seed: int = 0, copies: Sequence[int] = ()) -> Sample:
    """The sample, without the rows `copies`, which a fault wrote again; which rows and folds by `seed` and the
    client's name alone, so that one client's draw never depends on another's data."""
    n_clients = len(federation.clients)
    cap = int(np.clip(ALL_ROWS // max(n_clients, 1), LEAST, ROWS))
    edges, labels, classes = _labels(federation)
    k = len(labels)
    parts: list[tuple[Floats, Ints, Floats | None, Ints]] = []
    rows, used = np.zeros((2, n_clients), dtype=np.int64)
    counts, known = np.zeros((2, n_clients, k), dtype=np.int64)
    missing = np.zeros((n_clients, 0))
    again = np.array(sorted(copies), dtype=np.int64)
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    for i, own in enumerate(own_rows(federation)):
        y = _codes(own.y, edges, classes)
        mine = np.flatnonzero(own.part < 2)
        rows[i], used[i] = len(own), len(mine)
        mine = mine[~np.isin(own.rows[mine], again)] if len(again) else mine
        counts[i], known[i] = np.bincount(y, minlength=k), np.bincount(y[mine], minlength=k)
        if i == 0:
            columns, missing = own.columns, np.zeros((n_clients, len(own.columns)))
        if len(mine) and own.table and len(own.columns):
            gaps = np.concatenate([np.isnan(own.values[mine]), own.codes[mine] < 0], 1)
            missing[i] = gaps.mean(0)
        g = generator(seed, "profile", own.client)
        kept = np.sort(mine[torch.randperm(len(mine), generator=g).numpy()[:cap]])
        x, names = _numbers(own, kept)
        fold = _folds(y[kept], g)
        parts.append((x, y[kept], None if own.time is None else own.time[kept].astype(np.float64), fold))
    times = tuple(t for _, _, t, _ in parts if t is not None)
    together, names = _common(federation, [p[0] for p in parts], names, columns)
    return Sample(
        clients=federation.clients, features=names, labels=labels, columns=columns, x=together,
        y=tuple(p[1] for p in parts), time=times if len(times) == n_clients else None,
        fold=tuple(p[3] for p in parts), rows=rows, used=used, counts=counts, known=known, missing=missing, cap=cap,
        classes=classes,
    )  # fmt: skip


def _labels(federation: Federation) -> tuple[Floats, tuple[str, ...], bool]:
    """Limits between the kinds of label, their names, and whether they are classes."""
    if federation.labels and federation.y.dtype == torch.int64 and federation.y.ndim == 1:
        return np.zeros(0), federation.labels, True
    if federation.y.ndim > 1 or not len(federation.y):
        return np.zeros(0), ("any",), False
    seen = torch.cat([*federation.train, *federation.validation])
    values = federation.y[seen].double().numpy()
    edges = np.unique(np.quantile(values, np.arange(1, KINDS) / KINDS)) if len(values) else np.zeros(0)
    said = [f"{e:.4g}" for e in edges]
    named = [f"to {said[0]}", *(f"{a} to {b}" for a, b in pairwise(said)), f"over {said[-1]}"]
    return edges, tuple(named), False


def _codes(y: NDArray[np.generic], edges: Floats, classes: bool) -> Ints:
    if classes:
        return y.astype(np.int64)
    return np.searchsorted(edges, y.astype(np.float64), side="left") if y.ndim == 1 else np.zeros(len(y), np.int64)


def _folds(y: Ints, g: torch.Generator) -> Ints:
    """Label by label in turn, from a start by lot, so that each fold has the client's label mix."""
    order = torch.randperm(len(y), generator=g).numpy()
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = (np.arange(len(y)) + int(torch.randint(FOLDS, (1,), generator=g))) % FOLDS
    return fold


def _numbers(own: OwnRows, kept: Ints) -> tuple[Floats, tuple[str, ...]]:
    """(n, F) what the rows say, and what each number is called. Of images the means of blocks come last."""
    values, raw = own.values[kept], own.raw[torch.from_numpy(kept)]
    if own.table:
        gaps = np.isnan(values)
        return np.concatenate([values, own.codes[kept].astype(np.float64), gaps.astype(np.float64)], 1), own.columns
    if not own.images:
        return values, tuple(f"part {j + 1}" for j in range(values.shape[1]))
    v = raw.float().numpy() / (255.0 if raw.dtype == torch.uint8 else 1.0)
    v = v if v.ndim == 4 else v[:, None]
    flat = v.reshape(len(v), v.shape[1], -1).astype(np.float64)
    looks = [flat.mean((1, 2)), flat.std(2).mean(1)]
    sharp = np.abs(np.diff(v, axis=3)).mean((1, 2, 3)) + np.abs(np.diff(v, axis=2)).mean((1, 2, 3))
    looks.append(sharp.astype(np.float64) / 2)
    said = ["brightness", "contrast", "sharpness"]
    if v.shape[1] == 3:
        for name, a, b in (("red against green", 0, 1), ("blue against green", 2, 1)):
            looks.append(flat[:, a].mean(1) - flat[:, b].mean(1))
            said.append(name)
    high, wide = (min(SIDE, k) for k in v.shape[2:])
    colours = ("red ", "green ", "blue ") if v.shape[1] == 3 else [f"channel {c} " for c in range(v.shape[1])]
    place = [f"row {r + 1} column {c + 1}" for r in range(high) for c in range(wide)]
    said += place if v.shape[1] == 1 else [f"{colour}{p}" for colour in colours for p in place]
    return np.concatenate([np.stack(looks, 1), values], 1), tuple(said)


def _common(
    federation: Federation, x: Sequence[Floats], names: tuple[str, ...], columns: tuple[str, ...]
) -> tuple[tuple[Floats, ...], tuple[str, ...]]:
    """Of tables: numbers, then a 0/1 column for each frequent name, then one for each column with gaps."""
    if not columns:
        return tuple(x), names
    table = federation.table
    c = len(table.categorical) if table else 0
    f = len(columns) - c
    numeric = [v[:, :f] for v in x]
    codes = [v[:, f : f + c].astype(np.int64) for v in x]
    gaps = [v[:, f + c :] for v in x]
    said, extra = list(columns[:f]), [list[Floats]() for _ in x]
    for j, (column, kinds) in enumerate((table.categorical if table else {}).items()):
        total = np.sum([np.bincount(v[v[:, j] >= 0, j], minlength=len(kinds) + 1) for v in codes], 0)
        common = [int(k) for k in np.argsort(-total, kind="stable")[:NAMES_SHOWN] if total[k]]
        if len(common) == 2 and total.sum() == total[common].sum():
            common = common[:1]  # the other one says the same
        said += [f"{column} {kinds[k] if k < len(kinds) else 'unseen'}" for k in common]
        for i, code in enumerate(codes):
            extra[i] += [(code[:, j] == k).astype(np.float64) for k in common]
    for j, column in enumerate(columns[:f]):
        if any(v[:, j].any() for v in gaps):
            said.append(f"{column} missing")
            for i, v in enumerate(gaps):
                extra[i].append(v[:, j])
    for j, column in enumerate(columns[f:]):
        if any((code[:, j] < 0).any() for code in codes):
            said.append(f"{column} missing")
            for i, code in enumerate(codes):
                extra[i].append((code[:, j] < 0).astype(np.float64))
    together = [
        np.concatenate([a, np.stack(b, 1) if b else np.empty((len(a), 0))], 1)
        for a, b in zip(numeric, extra, strict=True)
    ]
    return tuple(together), tuple(said)
