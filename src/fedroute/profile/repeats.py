"""Rows that one client has more than once: how many, whether a fault or chance, and how many rows it really has."""

from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import poisson

from fedroute.data.distinct import row_bytes
from fedroute.profile.chance import coded, equal_pairs, pairs_by_chance
from fedroute.profile.near import IMAGES, TABLES, near_copies
from fedroute.profile.own_rows import Floats, Ints, OwnRows
from fedroute.profile.row_hashes import Keys, mixed, scrambled
from fedroute.profile.waves import waves

UNLIKELY = 1e-4  # how rarely all counts share a divisor by chance
SELDOM = 1e-3  # how rarely chance makes so many pairs of rows equal


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Of one client's rows. exact: rows that equal another one before them, label (and time) included; near: rows that
    are others but for a jitter, besides; effective: the rows it really has: copies that a fault made are taken off,
    and those that chance brings in a table of few possible rows are not. fault: whether more are equal than chance
    brings. frozen: rows that equal another in all but their time, more than chance brings.
    group: (n,) which rows are one, by a fault or not; it stays with the client.
    chance: the probability that two rows of it are equal by chance."""

    rows: int
    exact: int
    near: int
    effective: int
    fault: bool
    frozen: int
    group: Ints
    chance: float

    @property
    def written(self) -> float:
        """How many times each row was written, on average."""
        return self.rows / max(1, self.effective)


def repeats(own: OwnRows, exact: Keys, z: Floats, seed: int) -> Repeats:
    """exact: (n,) keyed hashes of x; z: (n, F) the numbers of x, standardised as all clients do, 0 where missing."""
    n = len(own)
    pairs = max(1.0, n * (n - 1) / 2)
    label = scrambled(_numbered(own.y).astype(np.uint64), 101)
    same = label if own.time is None else label + scrambled(_numbered(own.time).astype(np.uint64), 102)
    whole = exact + same
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    # images that are equal are not so by chance; what they share is a background
    cells = np.zeros((n, 0), dtype=np.int64) if own.images else coded(own.values, own.codes)
    named = mixed(np.concatenate([own.codes, np.isnan(own.values)], 1)) + same
    written = np.bincount(group.reshape(-1)).astype(np.int64)
    if own.images:
        near = near_copies(waves(z[first], own.raw.shape[1:]), named[first], written, IMAGES, seed)
    else:
        near = near_copies(z[first].astype(np.float32), named[first], written, TABLES, seed)
    merged = near.group[group.reshape(-1)]
    fault, effective = _judged(merged, cells, same, seed)
    frozen = 0
    if own.time is not None:
        repeated = n - len(np.unique(exact + label)) - (n - len(first))
        if repeated and pairs_by_chance(cells, seed, label) <= equal_pairs(exact + label) / 2:
            frozen = repeated
    return Repeats(
        rows=n, exact=n - len(first), near=near.copies, effective=effective, fault=fault, frozen=frozen, group=merged,
        chance=pairs_by_chance(cells, seed) / pairs,
    )  # fmt: skip


def _judged(group: Ints, cells: Ints, same: Keys, seed: int) -> tuple[bool, int]:
    """(whether a fault wrote rows again, the rows there really are). group: (n,) which rows are one; cells: (n, k)."""
    n = len(group)
    counts = np.unique(group, return_counts=True)[1]
    if n == len(counts):
        return False, n
    if not cells.shape[1]:  # images
        return True, len(counts)
    divisor = reduce(gcd, counts.tolist())
    if divisor > 1 and float(divisor) ** -len(counts) < UNLIKELY:
        return True, n // divisor  # each row so many times: also where chance made some of the rows equal
    first = np.unique(group, return_index=True)[1][np.unique(group, return_inverse=True)[1].reshape(-1)]
    expected = pairs_by_chance(cells[first], seed, same)
    pairs = float(equal_pairs(group.astype(np.uint64)))
    if expected > pairs / 2 or poisson.sf(pairs - 1, expected) > SELDOM:
        return False, n
    return True, len(counts) + min(n - len(counts), round(expected * (len(counts) / n) ** 2))


def _numbered(y: NDArray[np.generic]) -> Ints:
    """(n,) equal numbers where targets are equal."""
    keys = y if y.ndim == 1 else np.array(row_bytes(torch.from_numpy(y)))
    found: Ints = np.unique(keys, return_inverse=True)[1].reshape(-1)
    return found
