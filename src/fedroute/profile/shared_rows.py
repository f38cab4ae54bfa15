"""Rows that two clients have, found by keyed hashes: no row leaves, and the server does not have the key.

A client sends 8 bytes for each different row (is it equal to another's?), four times 8 bytes for its cells in four
grids (is it nearly so?), a byte that says in which of its parts the row is, and how many of its rows come near another
of its own in the same grids: rows of few columns often do, and, if they are no copies, rows of two clients do no more
often than the geometric mean of how often those of each do (Cauchy and Schwarz). The server learns which rows of which
clients are equal, not what they are. Who has the key, each client, could test whether a row that it guesses is there:
the key is for one profile only, and clients who do not want that leave this part out (`shared=False`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from fedroute.profile.near import Block
from fedroute.profile.own_rows import Ints, OwnRows
from fedroute.profile.repeats import Repeats
from fedroute.profile.row_hashes import Keys, cells, mixed, sealed

GRIDS = 4
AGREE = 3  # grids in which near rows share a cell
CLOSE = {False: 0.01, True: 0.03}  # tolerance of the grids for numbers, for images
CROWDED = 50  # rows in one cell, above which being there says nothing
UNLIKELY = 1e-3  # how rarely chance brings so many to any two clients
TIMES = 3  # what is expected, which chance is allowed
LENT = 3  # pairs of rows
FEW = 2  # rows, and
LITTLE = 0.005  # of the smaller client's, that are nearly so elsewhere and are left at that


@dataclass(frozen=True, kw_only=True)
class RowHashes:
    """What one client sends of its m different rows. exact: (m,); near: (m, 4), of which none where a row has no
    numbers; parts: (m,) 1 for training, 2 for validation, 4 for test, added up; chance: see Repeats; close: how
    many are nearly equal to one before them, whatever their labels and times, as rows of other clients are compared.
    rows: (m,) where they are in the federation, which does not leave."""

    client: str
    exact: Keys
    near: Keys
    parts: NDArray[np.uint8]
    chance: float
    close: int
    rows: Ints
    size: int

    @property
    def sent(self) -> int:
        return self.exact.nbytes + self.near.nbytes + self.parts.nbytes + 16


def hashed(own: OwnRows, exact: Keys, z: Block, found: Repeats, seed: int, key: bytes) -> RowHashes:
    """What leaves one client; copies of a row are sent once."""
    _, first, at = np.unique(found.group, return_index=True, return_inverse=True)
    parts = np.zeros(len(first), dtype=np.uint8)
    for part in range(3):
        parts[np.unique(at.reshape(-1)[own.part == part])] += np.uint8(1 << part)
    near = np.empty((len(first), 0), dtype=np.uint64)
    if z.shape[1]:
        gaps = np.concatenate([own.codes[first], np.isnan(own.values[first])], 1)
        named = mixed(gaps) if own.table else np.zeros(len(first), dtype=np.uint64)
        grids = [
            sealed(mixed(cells(z[first], CLOSE[own.images], seed, g, own.images)) + named, key, g) for g in range(GRIDS)
        ]
        near = np.stack(grids, 1)
    alike = _alike([near], exact[first], np.arange(len(first)))
    return RowHashes(
        client=own.client, exact=exact[first], near=near, parts=parts, chance=found.chance, close=len(set(alike[:, 1])),
        rows=own.rows[first], size=len(own),
    )  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """Rows that two clients have, more than chance brings. a, b: their numbers, a < b; exact, near: how many;
    pairs: (p, 2) the rows, as places in what each of the two sent."""

    a: int
    b: int
    exact: int
    near: int
    pairs: Ints


def shared(sent: Sequence[RowHashes]) -> list[Shared]:
    """All that the server can tell, pair by pair of clients that have a row in common. Equal rows and nearly equal ones
    are each held against what chance brings, so that many near ones do not hide a few equal ones, nor these excuse
    the others."""
    owner = np.repeat(np.arange(len(sent)), [len(s.exact) for s in sent])
    start = np.cumsum([0, *(len(s.exact) for s in sent)])
    keys = np.concatenate([s.exact for s in sent])
    exact = _together(keys, owner)
    met = _alike([s.near for s in sent], keys, owner)
    near = _near_by_chance(sent)
    unlikely = UNLIKELY / max(1, len(sent) * (len(sent) - 1) / 2)
    found = list[Shared]()
    both = np.concatenate([exact, met])
    kind = np.repeat([0, 1], [len(exact), len(met)])
    whose = owner[both[:, 0]] * len(sent) + owner[both[:, 1]]
    order = np.argsort(whose, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(whose[order])) + 1) if len(order) else []:
        a, b = divmod(int(whose[at[0]]), len(sent))
        pairs = both[at] - [start[a], start[b]]
        equal = len(np.unique(pairs[kind[at] == 0, 1]))
        alike = len(np.unique(pairs[:, 1])) - equal
        chance = sent[a].size * sent[b].size * np.sqrt(sent[a].chance * sent[b].chance)
        close = len(sent[a].exact) * len(sent[b].exact) * np.sqrt(near[a] * near[b])
        few = max(FEW, LITTLE * min(len(sent[a].exact), len(sent[b].exact)))
        told = [_beyond(equal, chance, unlikely), alike > few and _beyond(alike, close, unlikely)]
        if any(told):
            kept = np.array(told)[kind[at]]
            found.append(Shared(a, b, told[0] * equal, told[1] * alike, pairs[kept]))
    return found


def _beyond(n: int, expected: float, unlikely: float) -> bool:
    return bool(n > 0 and poisson.sf(n - 1, TIMES * expected + 1e-9) < unlikely)


def _near_by_chance(sent: Sequence[RowHashes]) -> list[float]:
    """For each client the probability that two of its rows are nearly equal. What all have seen counts as LENT more
    such pairs of its own, so that no client's is 0 because it saw none by luck; if none has, as a part of one."""
    pairs = np.array([len(s.exact) * (len(s.exact) - 1) / 2 for s in sent])
    close = np.array([s.close for s in sent])
    everywhere = (close.sum() + 1 / TIMES) / max(1.0, pairs.sum())
    rates: list[float] = ((close + LENT) / (pairs + LENT / everywhere)).tolist()
    return rates


def _alike(near: Sequence[Keys], exact: Keys, owner: Ints) -> Ints:
    """(p, 2) pairs of places of other owners that share enough cells, and are not equal."""
    total, met = len(exact), np.empty((0, 2), dtype=np.int64)
    if not total or not all(n.shape[1] for n in near):
        return met
    votes = [_together(np.concatenate([n[:, g] for n in near]), owner) for g in range(GRIDS)]
    codes, times = np.unique(np.concatenate([v[:, 0] * total + v[:, 1] for v in votes]), return_counts=True)
    codes = codes[times >= AGREE]
    pairs = np.stack([codes // total, codes % total], 1)
    found: Ints = pairs[exact[pairs[:, 0]] != exact[pairs[:, 1]]]
    return found


def _together(keys: Keys, owner: Ints) -> Ints:
    """(p, 2) pairs of places with the same key and other owners, the smaller place first."""
    order = np.lexsort((owner, keys))
    ordered = keys[order]
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    sizes = np.diff(edges)
    found = [np.empty((0, 2), dtype=np.int64)]
    for k in np.unique(sizes[(sizes > 1) & (sizes <= CROWDED)]).tolist():
        groups = order[edges[:-1][sizes == k][:, None] + np.arange(k)]
        i, j = np.triu_indices(k, 1)
        pairs = np.stack([groups[:, i].reshape(-1), groups[:, j].reshape(-1)], 1)
        found.append(np.sort(pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]], 1))
    return np.concatenate(found)
