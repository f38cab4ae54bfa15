"""How many pairs of rows a table would have equal by chance alone: what tells a logging fault from few possible rows.

Take some columns away: the pairs that agree in all others but not in these show how crowded the table is there. If the
columns taken away agreed as they do between any two rows, with probability c, then for each pair that differs in them
alone there are c / (1 - c) that agree in everything. In a table of few columns and few values this gives the pairs that
are equal; where rows were written twice it gives next to none, because copies agree in all columns at once. The
largest of these numbers over single columns and random halves of them is taken, so that doubt speaks for chance."""

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.own_rows import Floats, Ints
from fedroute.profile.row_hashes import Keys, scrambled
from fedroute.randomness import seed_of

SINGLE = 48  # columns taken away one at a time, drawn where there are more
HALVES = 12  # random halves
ALWAYS = 0.9  # a column in which two rows agree more often than this says nothing, unless all do


def coded(values: Floats, codes: Ints) -> Ints:
    """(n, F + C): equal numbers where cells are equal; a gap is a value of its own."""
    found = [np.unique(v, return_inverse=True)[1].reshape(-1) for v in values.T]
    return np.stack([*found, *codes.T], 1) if found or codes.shape[1] else np.zeros((len(values), 0), dtype=np.int64)


def equal_pairs(keys: Keys) -> Floats:
    """(...,) the pairs among (..., n) numbers that are equal."""
    ordered = np.sort(keys, axis=-1)
    place = np.broadcast_to(np.arange(keys.shape[-1]), keys.shape)
    new = np.ones(keys.shape, dtype=bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    found: Floats = (place - np.maximum.accumulate(np.where(new, place, 0), -1)).sum(-1).astype(np.float64)
    return found


def pairs_by_chance(cells: Ints, seed: int, kept: Keys | None = None) -> float:
    """The pairs of rows expected to be equal in all columns of `cells` (n, k), and in `kept` (n,) where given."""
    n, k = cells.shape
    if n < 2 or k == 0:
        return 0.0
    hashed = np.stack([scrambled(cells[:, j].astype(np.uint64), j) for j in range(k)])
    whole = hashed.sum(0, dtype=np.uint64) + (np.uint64(0) if kept is None else kept)
    part = np.stack([hashed[away].sum(0, dtype=np.uint64) for away in _taken_away(k, seed)])
    equal = equal_pairs(whole)
    near = equal_pairs(whole - part) - equal
    c = equal_pairs(part) / (n * (n - 1) / 2)
    varied = c < 1
    if not varied.any():  # all rows are one
        return float(equal)
    telling = varied & (c <= ALWAYS) if (c <= ALWAYS).any() else varied
    return float((near * c / np.maximum(1 - c, 1e-300))[telling].max(initial=0.0))


def _taken_away(k: int, seed: int) -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(seed_of(seed, "profile", "columns taken away", k))
    single = np.arange(k) if k <= SINGLE else np.sort(rng.permutation(k)[:SINGLE])
    halves = [np.sort(rng.permutation(k)[: k // 2]) for _ in range(HALVES)] if k >= 4 else []
    return [*(np.array([j]) for j in single), *halves]
