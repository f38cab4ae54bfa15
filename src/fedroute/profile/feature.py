"""Feature skew: whether two clients can be told apart by the features of rows, at the same mix of labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedroute.profile.sample import FOLDS
from fedroute.profile.strata import (
    Sums,
    Test,
    Within,
    added,
    auc,
    gather,
    histogram,
    length,
    spread,
    sums,
    test,
    within,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RIDGE = 0.1
CUTS = np.linspace(-3, 3, 31)
PAIRS = 60  # of clients that are told apart, at most
DOUBT = 20.0  # rows of all groups' spread that stand beside a group's own
ROWS = 20  # of a group for it to be told from another


@dataclass(frozen=True)
class Telling:
    """strength: 2 AUC - 1, the mean over pairs of groups, of a classifier that tells them apart on rows it was not
    fitted to. pairs: (P, 2) groups, aucs: (P,). odd: (G,) each group's distance from all, in deviations of what a
    random group of its size would have. shift: (G, F) difference of each feature's scores from all groups', at the
    same mix of labels, in deviations; off: the same from the mean of all, the group included; ratio: (G, F) of their
    spread at the same label to all groups'."""

    strength: float
    interval: tuple[float, float]
    test: Test | None
    auc: float
    pairs: Ints
    aucs: Floats
    odd: Floats
    shift: Floats
    off: Floats
    ratio: Floats


def measure(
    phi: Sequence[Floats], group: Sequence[Ints], stratum: Sequence[Ints], fold: Sequence[Ints], groups: int,
    strata: int, rng: np.random.Generator, f: int = 0, pairs: int = PAIRS,
) -> Telling:  # fmt: skip
    """One entry per client: phi: (n, D) curves of its rows, their group, stratum and fold. f: how many of the curves
    are the features themselves (the first). pairs: of groups to tell apart at most; with 0 there is the test alone.

    A group's sum of rows, each centred at the mean of its stratum over all groups, is the difference of its mean to
    the others' at the same mix of labels: stratum by stratum, weighted by n m / (n + m) where the group has n rows
    and the others m (overlap weights, Li, Morgan and Zaslavsky 2018, "Balancing covariates via propensity score
    weighting"). Fisher's discriminant with a ridge tells two groups apart; it needs these sums and one covariance,
    nothing else."""
    index = [_cell(s, k) for s, k in zip(stratum, fold, strict=True)]
    sent = [sums(p, i, strata * FOLDS) for p, i in zip(phi, index, strict=True)]
    total = added(sent)
    d = total.first.shape[1]
    folded = Sums(total.n.reshape(strata, FOLDS), total.first.reshape(strata, FOLDS, d), total.second)
    whole = Sums(folded.n.sum(1), folded.first.sum(1), folded.second)
    inside = within(whole)
    mean, cov = inside.mean, inside.cov
    counts = np.zeros((groups, strata))
    c = np.zeros((FOLDS, groups, d))
    rows, squares = np.zeros((FOLDS, groups)), np.zeros((groups, f))
    for p, g, s, k in zip(phi, group, stratum, fold, strict=True):  # a client sends these: a sum per fold and group
        np.add.at(counts, (g, s), 1)
        np.add.at(rows, (k, g), 1)
        centred = p - mean[s]
        gather(c.reshape(FOLDS * groups, d), centred, k * groups + g)
        gather(squares, centred[:, :f] ** 2, g)
    lengths = [length(p - mean[s], inside, RIDGE) for p, s in zip(phi, stratum, strict=True)]
    usual = np.zeros((strata, 1))
    for v, s in zip(lengths, stratum, strict=True):  # one sum per stratum
        gather(usual, v[:, None], s)
    usual /= np.maximum(whole.n, 1)[:, None]
    own = np.zeros((groups, 1))
    for v, g, s in zip(lengths, group, stratum, strict=True):  # and one per group
        gather(own, v[:, None] - usual[s], g)
    n = counts.sum(1)
    shift = c.sum(0)[:, :f] / np.maximum(np.diag(spread(counts)), 1e-9)[:, None]
    off = c.sum(0)[:, :f] / np.maximum(n, 1)[:, None]
    left = squares / np.maximum(n, 1)[:, None] - off**2
    within_var = np.diag(cov)[:f].clip(0)  # rounding may leave less than nothing of a stratum of one row
    ratio = np.sqrt((n[:, None] * left.clip(0) + DOUBT * within_var) / (n[:, None] + DOUBT))
    ratio /= np.sqrt(np.maximum(within_var, 1e-9))
    ratio = np.where(ratio > 0.05, ratio, 1.0)
    comparable = (np.diag(spread(counts)) > 1) & (n >= min(ROWS, np.sort(n)[-2:][0]))
    if d == 0 or comparable.sum() < 2:
        return Telling(
            0.0, (0.0, 0.0), None, 0.5, np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(groups), shift, off, ratio
        )
    tested = test(c.sum(0), own[:, 0], counts, inside, RIDGE, comparable)
    odd = _odd(c.sum(0), counts, inside)
    between = _pairs(np.flatnonzero(comparable), counts, rng, pairs)
    by_fold = _told_apart(phi, group, stratum, fold, _whatever(whole), c, rows, counts, between)
    known = ~np.isnan(by_fold).all(0) if len(between) else np.zeros(0, bool)
    if not known.any():
        return Telling(0.0, (0.0, 0.0), tested, 0.5, between[:0], np.zeros(0), odd, shift, off, ratio)
    aucs = np.nanmean(by_fold[:, known], 0)
    centre = float(aucs.mean())
    half = 2.78 * float(np.nanstd(np.nanmean(by_fold[:, known], 1), ddof=1)) / np.sqrt(FOLDS)
    strength = float(np.clip(2 * centre - 1, 0, 1))
    interval = (float(np.clip(strength - 2 * half, 0, 1)), float(np.clip(strength + 2 * half, 0, 1)))
    return Telling(strength, interval, tested, centre, between[known], aucs, odd, shift, off, ratio)


def _cell(stratum: Ints, fold: Ints) -> Ints:
    return stratum * FOLDS + fold


def _whatever(whole: Sums) -> Within:
    """The covariance of rows whatever their stratum: what tells of the label is taken off by a classifier that has to
    tell clients apart and does not know it."""
    return within(Sums(whole.n.sum(keepdims=True), whole.first.sum(0, keepdims=True), whole.second))


def _odd(c: Floats, counts: Floats, inside: Within) -> Floats:
    """(G,) (T_g - mean) / deviation for T_g = c_g' (cov + ridge I)^-1 c_g over its variance under random dealing."""
    rho = inside.values / (inside.values + RIDGE)
    t = ((c @ inside.vectors) ** 2 / (inside.values + RIDGE)).sum(1) / np.maximum(np.diag(spread(counts)), 1e-9)
    found: Floats = (t - rho.sum()) / np.sqrt(2 * (rho**2).sum())
    return found


def _pairs(big: Ints, counts: Floats, rng: np.random.Generator, most: int) -> Ints:
    """Groups that share strata, (P, 2)."""
    i, j = np.triu_indices(len(big), 1)
    order = rng.permutation(len(i))
    found = [
        (big[i[k]], big[j[k]]) for k in order[: 20 * most] if _shared(counts[big[i[k]]], counts[big[j[k]]]) >= ROWS / 2
    ]
    return np.array(sorted(found[:most]), dtype=np.int64).reshape(-1, 2)


def _shared(a: Floats, b: Floats) -> float:
    return float((a * b / np.maximum(a + b, 1)).sum())


def _told_apart(
    phi: Sequence[Floats], group: Sequence[Ints], stratum: Sequence[Ints], fold: Sequence[Ints], inside: Within,
    c: Floats, rows: Floats, counts: Floats, pairs: Ints,
) -> Floats:  # fmt: skip
    """(FOLDS, P) AUC on each fold's rows of directions from the other folds, at the pair's common label mix."""
    found = np.full((FOLDS, len(pairs)), np.nan)
    if not len(pairs):
        return found
    everyone, whose, place, part = (np.concatenate(v) for v in (phi, group, stratum, fold))
    wanted = np.unique(pairs)
    order = {int(g): np.flatnonzero(whose == g) for g in wanted}
    values, vectors = inside.values, inside.vectors
    n = rows.sum(0)
    for k in range(FOLDS):
        m = (c.sum(0) - c[k]) / np.maximum(n - rows[k], 1)[:, None]
        for q, (a, b) in enumerate(pairs):
            ridge = RIDGE + len(values) / (n[a] + n[b])
            w = vectors @ (((m[a] - m[b]) @ vectors) / (values + ridge))
            ia, ib = (order[int(g)][part[order[int(g)]] == k] for g in (a, b))
            both = np.maximum(counts[a] + counts[b], 1)
            wa, wb = (counts[b] / both)[place[ia]], (counts[a] / both)[place[ib]]
            if len(ia) < 2 or len(ib) < 2 or not wa.any() or not wb.any():
                continue
            scale = np.sqrt(max(float(w @ inside.cov @ w), 1e-12))
            middle = float((m[a] + m[b]) @ w) / 2 + float(inside.mean.mean(0) @ w)
            found[k, q] = auc(*(histogram((everyone[i] @ w - middle) / scale, v) for i, v in ((ia, wa), (ib, wb))))
    return found


def align(z: Floats, off: Floats, ratio: Floats) -> Floats:
    """Scores (n, F) of a group's rows as they would be without its own shift and spread."""
    found: Floats = (z - off) / ratio
    return found


def wasserstein(
    z: Sequence[Floats], group: Sequence[Ints], stratum: Sequence[Ints], groups: int, strata: int
) -> Floats:
    """(G, F) the area between the distribution functions of a feature's scores at a group and at all, at the same mix
    of labels: how far its values would have to move, in deviations. From counts in CUTS cells, which is what clients
    send."""
    f = z[0].shape[1] if z else 0
    cells = len(CUTS) + 1
    found = np.zeros((groups, f))
    for j in range(f):
        table = np.zeros((groups, strata, cells))
        for v, g, s in zip(z, group, stratum, strict=True):
            np.add.at(table, (g, s, np.searchsorted(CUTS, v[:, j])), 1)
        below = table.cumsum(2)
        counts = below[:, :, -1]
        n = counts.sum(0)
        share = below.sum(0) / np.maximum(n, 1)[:, None]
        excess = (below - counts[:, :, None] * share).sum(1)[:, :-1]
        room = (counts * (1 - counts / np.maximum(n, 1))).sum(1)
        found[:, j] = np.abs(excess).sum(1) * (CUTS[1] - CUTS[0]) / np.maximum(room, 1e-9) * (room > 0.5)
    return found
