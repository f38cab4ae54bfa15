"""Numbers made comparable: each feature by its place among all clients' values, then curves of several at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedroute.randomness import generator

Floats = NDArray[np.float64]
SENT = 33  # quantiles of a feature that a client sends, at most
EACH = 4  # rows of a client for each quantile that it sends, at least
GRID = 127
WAVES = 64  # random curves
WIDE = 300  # features beyond which there are random mixtures of them instead
SQUARED = 100  # features beyond which there are no squares


@dataclass(frozen=True)
class Quantiles:
    """What a client sends first: n known values of each feature (F,), and up to SENT of their quantiles (m, F), NaN
    where there are fewer than EACH values for one. A quantile is a value, or lies between two."""

    n: Floats
    at: Floats


def quantiles(x: Floats) -> Quantiles:
    """Of one client's rows, (n, F), gaps NaN."""
    n = (~np.isnan(x)).sum(0)
    m = min(SENT, len(x) // EACH)
    at = np.full((m, x.shape[1]), np.nan)
    full = n // EACH >= m
    if m:
        q = (np.arange(m) + 0.5) / m
        at[:, full] = np.quantile(x[:, full], q, axis=0) if not np.isnan(x[:, full]).any() else np.nan
        for j in np.flatnonzero((n > 0) & np.isnan(at[0])):
            v, k = x[~np.isnan(x[:, j]), j], int(min(m, n[j] // EACH))
            at[:k, j] = np.quantile(v, (np.arange(k) + 0.5) / k) if k else np.nan
    return Quantiles(n.astype(np.float64), at)


@dataclass(frozen=True)
class Basis:
    """grid: (GRID, F) quantiles of all clients' values; fill, mean, scale: (F,) of the scores. mix: (F, F') for very
    many features; waves, phase: (F', WAVES), (WAVES,)."""

    grid: Floats
    mean: Floats
    scale: Floats
    mix: Floats | None
    waves: Floats
    phase: Floats
    squared: NDArray[np.bool_]

    def scores(self, x: Floats) -> Floats:
        """(n, F) each value's normal score among all clients' values (ties in the middle), to mean 0 and deviation 1;
        a gap is 0, the middle. The same for feet and metres, and no value is far out. Of more than WIDE features (n,
        WIDE) random mixtures of these."""
        z = normal_scores(self.grid, x)
        z = np.nan_to_num((z - self.mean) / self.scale)
        return z if self.mix is None else z @ self.mix

    def curves(self, z: Floats) -> Floats:
        """(n, D) scores, their squares, and cosines of random mixtures (Rahimi and Recht 2007, "Random features for
        large-scale kernel machines"), so that differences in spread and shape are seen, not in the middle alone."""
        if not z.shape[1]:
            return z
        cosines = np.sqrt(2) * np.cos(z @ self.waves + self.phase)
        return np.concatenate([z, (z[:, self.squared] ** 2 - 1) / np.sqrt(2), cosines], 1)


def normal_scores(grid: Floats, x: Floats) -> Floats:
    z = np.full(x.shape, np.nan)
    for j in range(x.shape[1]):
        g, v = grid[:, j], x[:, j]
        place = np.searchsorted(g, v, side="left") + np.searchsorted(g, v, side="right")
        z[:, j] = np.where(np.isnan(v), np.nan, ndtri((place + 1) / (2 * len(g) + 2)))
    return z


def merge(sent: Sequence[Quantiles], f: int) -> Floats:
    """(GRID, F) quantiles of all clients' values, from theirs: each stands for as many rows as lie behind it."""
    grid = np.zeros((GRID, f))
    q = (np.arange(GRID) + 0.5) / GRID
    at = np.concatenate([s.at for s in sent]) if sent else np.zeros((0, f))
    weight = np.concatenate(
        [np.broadcast_to(s.n / np.maximum((~np.isnan(s.at)).sum(0), 1), s.at.shape) for s in sent]
    ) if sent else at  # fmt: skip
    for j in range(f):
        known = ~np.isnan(at[:, j])
        if not known.any():
            continue
        order = np.argsort(at[known, j], kind="stable")
        v, w = at[known, j][order], weight[known, j][order]
        grid[:, j] = v[np.searchsorted((np.cumsum(w) - w / 2) / w.sum(), q).clip(0, len(v) - 1)]
    return grid


def fit(x: Sequence[Floats], seed: int) -> tuple[Basis, list[Quantiles]]:
    """The basis of these clients' rows, and what each has sent for it."""
    f = x[0].shape[1] if x else 0
    sent = [quantiles(v) for v in x]
    grid = merge(sent, f)
    first, second, n = np.zeros(f), np.zeros(f), np.zeros(f)
    for v in x:  # sums over clients: only the sums are needed
        z = normal_scores(grid, v)
        known = ~np.isnan(z)
        n += known.sum(0)
        first += np.nansum(z, 0)
        second += np.nansum(z**2, 0)
    mean = first / np.maximum(n, 1)
    scale = np.sqrt(np.maximum(second / np.maximum(n, 1) - mean**2, 0))
    scale = np.where(scale > 1e-9, scale, 1.0)
    binary = np.array([len(np.unique(grid[:, j])) <= 2 for j in range(f)], dtype=bool)
    rng = np.random.default_rng(generator(seed, "profile", "waves").initial_seed())
    mix = rng.standard_normal((f, WIDE)) / np.sqrt(WIDE) if f > WIDE else None
    width = WIDE if f > WIDE else f
    squared = np.zeros(width, dtype=bool) if f > SQUARED else ~binary
    spread = np.repeat([1.0, 0.5], WAVES // 2) / np.sqrt(max(width, 1))
    waves = rng.standard_normal((width, WAVES)) * spread
    phase = rng.uniform(0, 2 * np.pi, WAVES)
    return Basis(grid, mean, scale, mix, waves, phase, squared), sent
