"""Rows that are copies of one another but for a jitter: found by a search tree, judged against crowding.

Distances are root mean squares over the columns, in units of a column's spread. Where rows merely lie close, the pairs
within r tolerances are r^d times the pairs within one, if rows vary in d ways: for r^d - 1 pairs between one and r one
within may be chance. Copies have none between. For tables d is taken to be 1, the most cautious, and r 2 and 4
(readings at even steps may have none between one and two); images vary in three ways at least."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from fedroute.profile.own_rows import Floats, Ints
from fedroute.profile.row_hashes import Keys
from fedroute.randomness import seed_of

NEIGHBOURS = 12  # of a row that are looked at
DIRECTIONS = 8  # of most spread, in which neighbours are looked for: there they are no farther than in all
PROBES = 200  # rows whose distance to all others is looked at
Block = NDArray[np.float32]


@dataclass(frozen=True)
class Likeness:
    """tolerances: distances within which rows may be copies, the smallest first; rings: r above, the largest last;
    ways: in which rows vary, d above."""

    tolerances: tuple[float, ...]
    rings: tuple[float, ...]
    ways: int

    def by_chance(self, between: Sequence[float]) -> float:
        """The pairs within one tolerance that chance brings, for so many between it and each of the rings."""
        return max(n / (r**self.ways - 1) for n, r in zip(between, self.rings, strict=True))


TABLES = Likeness((1e-5, 1e-3, 0.01, 0.05), (2, 4), 1)  # from rounding to a jitter
IMAGES = Likeness((0.005, 0.02, 0.06, 0.1), (2,), 3)  # means of blocks, from a jitter to a coarse re-encoding


@dataclass(frozen=True)
class Near:
    """group: (m,) rows with the same number are copies of one another; copies: m less the groups; close: pairs within
    the tolerance that chance brings at most; tolerance: the one that was used."""

    group: Ints
    copies: int
    close: float
    tolerance: float


def near_copies(z: Block, same: Keys, likeness: Likeness, seed: int) -> Near:
    """z: (m, F) different rows, standardised; same: (m,) numbers that copies must share (their names, gaps, label). Of
    the tolerances the one that finds the most copies beyond chance is used (with the copies that chance may have made
    taken off)."""
    m, tolerances = len(z), likeness.tolerances
    best, most = Near(np.arange(m), 0, 0.0, tolerances[0]), 0.0
    pairs = _neighbours(z, same, likeness.rings[-1] * tolerances[-1])
    if len(pairs) == 0:
        return best
    rms, widest = _distance(z, pairs)
    probed: list[list[float]] | None = None
    for k, tolerance in enumerate(tolerances):
        inside = (rms <= tolerance) & (widest <= 4 * tolerance)
        near = pairs[inside]
        close = likeness.by_chance([float((~inside & (rms <= r * tolerance)).sum()) for r in likeness.rings])
        if len(near):
            probed = _probed(z, same, likeness, seed) if probed is None else probed
            within, *rings = probed[k]
            crowded = likeness.by_chance([n - within for n in rings]) / within if within > 0 else 0.0
            chance = max(close / len(near), crowded)
            links = coo_array((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(m, m))
            groups, group = connected_components(links, directed=False)
            if chance <= 0.5 and (beyond := (m - groups) * (1 - chance)) > most:
                best, most = Near(group.astype(np.int64), m - groups, close, tolerance), beyond
                continue
            close += len(near)
        best = Near(best.group, best.copies, max(best.close, close), best.tolerance)
    return best


def _neighbours(z: Block, same: Keys, within: float) -> Ints:
    """(p, 2) pairs, each once, that share `same` and lie within that distance in the directions looked at."""
    code, rows = np.unique(same, return_inverse=True, return_counts=True)[1:]
    code = code.reshape(-1)
    some = np.flatnonzero(rows[code] > 1)
    if len(some) < 2 or z.shape[1] == 0:
        return np.empty((0, 2), dtype=np.int64)
    radius = within * np.sqrt(z.shape[1])
    seen = _spread_out(z[some].astype(np.float64))
    apart = 4 * radius * np.unique(code[some], return_inverse=True)[1].reshape(-1)
    found, at = KDTree(np.concatenate([seen, apart[:, None]], 1)).query(
        np.concatenate([seen, apart[:, None]], 1), k=min(NEIGHBOURS, len(some)), distance_upper_bound=radius
    )
    a, place = np.nonzero(np.isfinite(found))
    b = at[a, place]
    m = len(z)
    once = np.unique(np.minimum(some[a], some[b])[a != b] * m + np.maximum(some[a], some[b])[a != b])
    return np.stack([once // m, once % m], 1)


def _spread_out(z: Floats) -> Floats:
    """(m, k) the coordinates in the directions of most spread."""
    if z.shape[1] <= DIRECTIONS:
        return z
    _, turned = np.linalg.eigh(np.cov(z, rowvar=False))
    found: Floats = z @ turned[:, -DIRECTIONS:]
    return found


def _distance(z: Block, pairs: Ints, chunk: int = 65536) -> tuple[Block, Block]:
    rms, most = np.empty(len(pairs), np.float32), np.empty(len(pairs), np.float32)
    for i in range(0, len(pairs), chunk):
        part = slice(i, i + chunk)
        d = np.abs(z[pairs[part, 0]] - z[pairs[part, 1]])
        rms[part], most[part] = np.sqrt((d * d).mean(1)), d.max(1)
    return rms, most


def _probed(z: Block, same: Keys, likeness: Likeness, seed: int) -> list[list[float]]:
    """For each tolerance the pairs within it, and within each ring, of some random rows with all others."""
    rng = np.random.default_rng(seed_of(seed, "profile", "probes", len(z)))
    some = rng.permutation(len(z))[:PROBES]
    wide = z.astype(np.float64)
    length = (wide * wide).sum(1)
    radii = np.outer(likeness.tolerances, (1, *likeness.rings))
    found = np.zeros(radii.shape)
    for part in np.array_split(some, -(-len(some) // 50)):
        squared = (length[part, None] + length - 2 * wide[part] @ wide.T) / z.shape[1]
        squared[same[part, None] != same] = np.inf
        squared[np.arange(len(part)), part] = np.inf
        near = np.sort(squared[squared <= radii.max() ** 2])
        found += np.searchsorted(near, radii**2, side="right")
    pairs: list[list[float]] = found.tolist()
    return pairs
