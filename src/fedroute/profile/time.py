"""Drift: whether rows of one time differ from rows of another, the clients and the season taken off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedroute.profile import concept, feature, label
from fedroute.profile.basis import Basis
from fedroute.profile.season import Shape, phase, shape
from fedroute.profile.strata import one_hot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BLOCKS = 8  # stretches of time that are compared
FINE = 48  # stretches of the series, at most
EACH = 25  # rows of a stretch, at least
PHASES = 4  # parts of a season
SPLIT = 0.1  # of the information that a time has about whose row it is, beyond which the two are confounded
AXES = 3


@dataclass(frozen=True)
class Drift:
    """label, feature, concept: how stretches of time differ from one another, as clients do, the season taken off;
    all: the same with the season. at: (M,) middles of the fine stretches; series: (M, D) their means on the axes that
    tell stretches apart, in deviations, then label shares (M, K). share: 0..1, how far the time of a row tells whose
    it is; shift: (F,) of features, last stretch minus first, in deviations. vanished: labels that are missing in a
    stretch between two that have them, or at an end, with the edges of that stretch."""

    label: label.LabelMix
    feature: feature.Telling
    concept: concept.Meaning
    everything: float
    shape: Shape
    at: Floats
    series: Floats
    mix: Floats
    edges: Floats
    share: float
    shift: Floats
    vanished: tuple[tuple[int, float, float], ...]


def confounded(edges: Floats, time: Sequence[Floats]) -> float:
    """The information that the stretch of a row has about its client, over the most it could have: 0 where all clients
    have rows of all times alike, 1 where no two share a time."""
    table = np.stack([np.bincount(stretch(edges, t), minlength=len(edges) + 1) for t in time]).astype(np.float64)
    table = table[table.sum(1) > 0]
    n = table.sum()
    if n == 0 or min((table.sum(0) > 0).sum(), len(table)) < 2:
        return 0.0
    p = table / n
    own, when = p.sum(1, keepdims=True), p.sum(0, keepdims=True)
    known = float((p * np.log(np.where(p > 0, p, 1) / np.maximum(own * when, 1e-300))).sum())
    most = min(-float((v[v > 0] * np.log(v[v > 0])).sum()) for v in (own, when))
    chance = (len(table) - 1) * (int((when > 0).sum()) - 1) / (2 * n)
    return float(np.clip((known - chance) / max(most, 1e-12), 0, 1))


def stretch(edges: Floats, time: Floats) -> Ints:
    """The stretch of each time, 0 to len(edges)."""
    return np.searchsorted(edges, time, side="right")


def cut(time: Sequence[Floats], stretches: int) -> Floats:
    """Edges between at most so many stretches of equally many rows of all clients together (a client sends quantiles of
    its times); fewer where many rows have the same time."""
    every = np.sort(np.concatenate(time))
    if len(every) == 0:
        return np.zeros(0)
    values = np.unique(every)
    if len(values) <= stretches:
        return np.asarray(values[1:], dtype=np.float64)
    edges = np.unique(every[[len(every) * k // stretches for k in range(1, stretches)]])
    return np.asarray(edges[edges > every[0]], dtype=np.float64)


def measure(
    z: Sequence[Floats], basis: Basis, y: Sequence[Ints], time: Sequence[Floats], fold: Sequence[Ints], off: Floats,
    labels: int, rng: np.random.Generator,
) -> Drift | None:  # fmt: skip
    """z: per client (n, F) scores; off: (N, F) of its features from all clients'. None where all rows have one time.

    Stretches of time take the place of clients in the measures of label, feature and concept, and clients that of
    strata: labels are compared within clients, features after each client's own shift is taken off. Where times and
    clients are confounded (each client has a time of its own) nothing is taken off. With a season, stretches are
    compared at the same part of it."""
    rows = sum(map(len, y))
    edges = cut(time, int(np.clip(rows // (2 * EACH), 2, BLOCKS)))
    if len(edges) == 0:
        return None
    share = confounded(edges, time)
    own = share < SPLIT
    z = [v - off[i] if own else v for i, v in enumerate(z)]
    phi = [basis.curves(v) for v in z]
    block = [stretch(edges, t) for t in time]
    found = _compare(phi, y, block, fold, None, len(edges) + 1, labels, own, z, basis, rng)
    at, series, mix = _series(phi, y, time, block, fold, labels, len(edges) + 1)
    curve = shape(at, np.concatenate([series, _deviations(mix)], 1), _rows(time, at))
    everything = max(found[0].strength, found[1].strength, found[2].strength)
    if curve.period is not None:
        parts = [phase(t, curve.period, PHASES) for t in time]
        cycles = int(np.clip((at[-1] - at[0]) / curve.period + 0.5, 2, BLOCKS))
        start = min(float(t.min()) for t in time if len(t))
        period = curve.period
        last = max(float(t.max()) for t in time if len(t))
        width = max((last - start) / cycles, period) if (last - start) / cycles > period else (last - start) / cycles
        rounds = [((t - start) / width).astype(np.int64).clip(0, cycles - 1) for t in time]
        found = _compare(phi, y, rounds, fold, parts, cycles, labels, own, z, basis, rng)
    first, final = (
        np.mean(np.concatenate([v[b == k] for v, b in zip(z, block, strict=True)]), 0) for k in (0, len(edges))
    )
    return Drift(
        found[0], found[1], found[2], everything, curve, at, series, mix, edges, share, final - first,
        _vanished(y, time, edges, labels),
    )  # fmt: skip


def _compare(
    phi: Sequence[Floats], y: Sequence[Ints], block: Sequence[Ints], fold: Sequence[Ints], part: Sequence[Ints] | None,
    blocks: int, labels: int, own: bool, z: Sequence[Floats], basis: Basis, rng: np.random.Generator,
) -> tuple[label.LabelMix, feature.Telling, concept.Meaning]:  # fmt: skip
    parts = PHASES if part is not None else 1
    part = part if part is not None else [np.zeros(len(v), np.int64) for v in y]
    sites = len(y) if own else 1
    counts = np.zeros((blocks, sites * parts, labels), dtype=np.int64)
    for i, (b, p, c) in enumerate(zip(block, part, y, strict=True)):
        np.add.at(counts, (b, (i if own else 0) * parts + p, c), 1)
    stratum = [p * labels + c for p, c in zip(part, y, strict=True)]
    told = feature.measure(phi, block, stratum, fold, blocks, parts * labels, rng, z[0].shape[1])
    return label.measure(counts, rng), told, concept.at_matched(z, basis, block, y, fold, told, labels, phi)


def _series(
    phi: Sequence[Floats], y: Sequence[Ints], time: Sequence[Floats], block: Sequence[Ints], fold: Sequence[Ints],
    labels: int, blocks: int,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """(M,) middles of fine stretches, (M, AXES) mean scores on the axes that tell blocks apart, (M, K) label shares.
    The axes for a row are from the folds it is not in, so that noise does not look like a curve."""
    every, code, when = np.concatenate(phi), np.concatenate(y), np.concatenate(time)
    which, part = np.concatenate(block), np.concatenate(fold)
    fine = cut(time, int(np.clip(len(code) // EACH, 2, FINE)))
    place = stretch(fine, when)
    m = len(fine) + 1
    n = np.maximum(np.bincount(place, minlength=m), 1)
    at = np.bincount(place, when, m) / n
    mix = np.stack([np.bincount(place, code == k, m) / n for k in range(labels)], 1)
    d = every.shape[1]
    if d == 0:
        return at, np.zeros((m, 0)), mix
    centred = every - every.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(every))
    whitened = (centred @ vectors) / np.sqrt(np.maximum(values, 0) + feature.RIDGE)
    hot = one_hot(which, blocks)
    axes = min(AXES, blocks - 1, d)
    score = np.zeros((len(every), axes))
    whole, turn = _axes(whitened, hot, axes), part
    for k in np.unique(turn):
        found = _axes(whitened[turn != k], hot[turn != k], axes)
        u, _, v = np.linalg.svd(found.T @ whole)  # turned onto the axes of all rows (orthogonal Procrustes)
        score[turn == k] = whitened[turn == k] @ (found @ (u @ v))
    score /= np.maximum(score.std(0), 1e-9)
    return at, np.stack([np.bincount(place, score[:, a], m) / n for a in range(axes)], 1), mix


def _axes(x: Floats, hot: Floats, axes: int) -> Floats:
    n = np.maximum(hot.sum(0), 1)
    means = (hot.T @ x) / n[:, None]
    _, _, v = np.linalg.svd((means - x.mean(0)) * np.sqrt(n)[:, None], full_matrices=False)
    found: Floats = v[:axes].T
    return found


def _deviations(mix: Floats) -> Floats:
    """Label shares in deviations of a row, the rare labels aside."""
    p = mix.mean(0)
    kept = (p > 0.02) & (p < 0.98)
    found: Floats = (mix[:, kept] - p[kept]) / np.sqrt(p[kept] * (1 - p[kept]))
    return found[:, :AXES]


def _rows(time: Sequence[Floats], at: Floats) -> Floats:
    return np.full(len(at), sum(map(len, time)) / len(at))


def _vanished(
    y: Sequence[Ints], time: Sequence[Floats], edges: Floats, labels: int
) -> tuple[tuple[int, float, float], ...]:
    """Labels without a row in a stretch where the others' rate would have at least ten."""
    when, code = np.concatenate(time), np.concatenate(y)
    place = stretch(edges, when)
    table = np.zeros((len(edges) + 1, labels))
    np.add.at(table, (place, code), 1)
    n = table.sum(1)
    low = np.concatenate([[when.min()], edges])
    high = np.concatenate([edges, [when.max()]])
    found = list[tuple[int, float, float]]()
    for k in range(labels):
        rate = table[:, k].sum() / max(n[table[:, k] > 0].sum(), 1)
        gone = np.flatnonzero((table[:, k] == 0) & (n * rate >= 10))
        if len(gone):
            found.append((k, float(low[gone[0]]), float(high[gone[-1]])))
    return tuple(found)
