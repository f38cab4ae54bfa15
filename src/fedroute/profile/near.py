"""Rows that are copies of one another but for a jitter: found by a search tree, judged against crowding.

Distances are root mean squares over the columns, in units of a column's spread. Where rows merely lie close, the pairs
within r tolerances are r^d times the pairs within one, if rows vary in d ways: for r^d - 1 pairs between one and r one
within may be chance. Copies have none between. For tables d is taken to be 1, the most cautious, and r 2 and 4
(readings at even steps may have none between one and two); images vary in three ways at least.

Tolerances are tried from the smallest up, and copies that one finds are one row, their mean, for the next: a larger one
must find copies beyond chance among what is left. So a row written 30 times does not excuse two others that are alike,
and copies of many qualities, whose means are nearer to each other than they are, come together. A large tolerance must
find more copies than chance brings beside the ring: of a few rows two may well be near each other and no others.
Images, whose copies may be as far apart as the two most alike of a thousand are, need more: copies lie around one of
them, in a chain of alike ones they do not; and once most rows are written equally often only parts of such a row are
joined, unless nearly all have a near one and a gap around."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.stats import binom

from fedroute.profile.own_rows import Floats, Ints
from fedroute.profile.row_hashes import Keys
from fedroute.randomness import seed_of

NEIGHBOURS = 12  # of a row that are looked at
DIRECTIONS = 8  # of most spread, in which neighbours are looked for: there they are no farther than in all
PROBES = 200  # rows whose distance to all others is looked at
UNLIKELY = 1e-3  # how rarely chance brings so many
MANY = 3  # times that rows are written, from which on it counts that they are written equally often
NEARLY = 0.7  # all rows
GAP = 0.4  # pairs between a tolerance and the ring, at most, for each within
ABOUT = 0.1  # of that number, by which it may differ
TRIED = 300  # rows that may be the middle of a star
Block = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """tolerances: distances within which rows may be copies, the smallest first; widest: in one column, in tolerances;
    rings: r above, the largest last; ways: in which rows vary, d above.
    few: up to which tolerance a single pair may be copies.
    stars: whether copies must all lie within the tolerance of one of them, and not only each of the next."""

    tolerances: tuple[float, ...]
    widest: float
    rings: tuple[float, ...]
    ways: int
    few: float
    stars: bool

    def by_chance(self, between: Sequence[float]) -> float:
        """The pairs within one tolerance that chance brings, for so many between it and each of the rings."""
        return max(n / (r**self.ways - 1) for n, r in zip(between, self.rings, strict=True))

    def beyond_chance(self, copies: int, between: Sequence[float]) -> bool:
        """Whether chance hardly ever brings so many copies beside so many pairs in the largest ring."""
        return bool(binom.sf(copies - 1, copies + between[-1], self.rings[-1] ** -self.ways) < UNLIKELY)


# from rounding to a jitter
TABLES = Likeness(
    tolerances=(1e-5, 1e-3, 0.01, 0.05), widest=4, rings=(2, 4), ways=1, few=1e-3, stars=False,
)  # fmt: skip
# waves, from a jitter to a coarse coding of 8x8 pixels in colour
IMAGES = Likeness(
    tolerances=(0.005, 0.02, 0.06, 0.1, 0.13, 0.17, 0.22, 0.3), widest=np.inf, rings=(2,), ways=3, few=0.02,
    stars=True,
)  # fmt: skip


@dataclass(frozen=True)
class Near:
    """group: (m,) rows with the same number are copies of one another; copies: m less the groups."""

    group: Ints
    copies: int


def near_copies(z: Block, same: Keys, written: Ints, likeness: Likeness, seed: int) -> Near:
    """z: (m, F) different rows, standardised; same: (m,) numbers that copies must share (their names, gaps, label);
    written: (m,) how often each is there."""
    group = np.arange(len(z))
    rows, kept, often = z, same, written
    pairs, rms, widest = _neighbours(rows, kept, likeness)
    probed: list[list[float]] | None = None
    for k, tolerance in enumerate(likeness.tolerances):
        if not len(pairs):
            break
        parts = _parts(pairs, often) if likeness.stars else None
        if parts is not None and len(np.unique(pairs[rms <= tolerance])) > NEARLY * len(rows):
            probed = _probed(rows, kept, likeness, seed) if probed is None else probed
            parts = None if probed[k][-1] < (1 + GAP) * probed[k][0] else parts  # copies themselves, with a gap around
        asked = True if parts is None else parts
        inside = asked & (rms <= tolerance) & (widest <= likeness.widest * tolerance)
        near = pairs[inside]
        between = [float((asked & ~inside & (rms <= r * tolerance)).sum()) for r in likeness.rings]
        if len(near):
            links = coo_array((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(len(rows), len(rows)))
            groups, linked = connected_components(links, directed=False)
            share, sure = likeness.by_chance(between) / len(near), True
            if parts is None:
                probed = _probed(rows, kept, likeness, seed) if probed is None else probed
                within, *rings = probed[k]
                share = max(share, likeness.by_chance([n - within for n in rings]) / within if within > 0 else 0.0)
                known = len(rows) if likeness.stars else len(z)  # a jitter goes on beyond the tolerance before
                sure = tolerance <= likeness.few or likeness.beyond_chance(known - groups, between)
            if sure and share <= 0.5:
                if likeness.stars:
                    linked = starred(rows, often, linked, tolerance, seed)
                group, probed = linked[group], None
                rows, kept = _means(z, group), same[np.unique(group, return_index=True)[1]]
                often = np.bincount(group, written).astype(np.int64)
                pairs, rms, widest = _neighbours(rows, kept, likeness)
    return Near(group.astype(np.int64), len(z) - len(rows))


def _parts(pairs: Ints, often: Ints) -> NDArray[np.bool_] | None:
    """Where most rows are written equally often, the pairs that may be two parts of such a row (so that two whole ones
    stay apart, however alike); else None."""
    most = np.sort(often)[np.searchsorted(np.sort(often).cumsum(), often.sum() / 2)]
    if most < MANY or often[np.abs(often - most) <= ABOUT * most].sum() < 0.8 * often.sum():
        return None
    found: NDArray[np.bool_] = often[pairs].sum(1) <= (1 + ABOUT) * most
    return found


def _means(z: Block, group: Ints) -> Block:
    """(g, F) of the rows of each group, numbered from 0."""
    order = np.argsort(group, kind="stable")
    rows = np.bincount(group)
    found: Block = (np.add.reduceat(z[order], np.cumsum(rows) - rows, 0) / rows[:, None]).astype(np.float32)
    return found


def starred(z: Block, written: Ints, group: Ints, within: float, seed: int) -> Ints:
    """Each group cut into rows that lie within that distance of one of them: first of the row (of up to TRIED) that has
    most, counted as often as they are written. (m,) numbers from 0."""
    rng = np.random.default_rng(seed_of(seed, "profile", "stars", len(z)))
    found, stars = np.empty(len(z), dtype=np.int64), 0
    order, rows = np.argsort(group, kind="stable"), np.bincount(group)
    for end, n in zip(np.cumsum(rows), rows, strict=True):
        left = order[end - n : end]
        while len(left):
            tried = left if len(left) <= TRIED else left[rng.permutation(len(left))[:TRIED]]
            near = cdist(z[tried], z[left], "sqeuclidean") <= within**2 * z.shape[1]
            star = near[np.argmax(near @ written[left])]
            found[left[star]], left, stars = stars, left[~star], stars + 1
    return found


def _neighbours(z: Block, same: Keys, likeness: Likeness) -> tuple[Ints, Block, Block]:
    """(p, 2) pairs, each once, that share `same` and lie within the largest distance looked at; how far they lie."""
    pairs = _pairs(z, same, likeness.rings[-1] * likeness.tolerances[-1])
    return pairs, *_distance(z, pairs)


def _pairs(z: Block, same: Keys, within: float) -> Ints:
    """The same, in the directions looked at."""
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
