"""Label skew: how much the mix of labels differs between clients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import random_table

from fedroute.profile.strata import tail

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DRAWS = 999
PAIRS = 2000
ROWS = 20  # of a client for its label mix to be compared with another's
LEAST = 5  # of the second largest client, for anything to be compared
ALWAYS = 0.9  # total variation between random clients, from which on nothing can be told from chance
CELLS = 40_000_000  # numbers that all random tables together may have


@dataclass(frozen=True)
class LabelMix:
    """strength: (tv - random) / (1 - random); tv: mean over pairs of clients of the total variation distance, random:
    what random clients of the same sizes show; js: the same of the Jensen-Shannon distance's square, in bits.
    effective: (G,) classes that a client would have at the same entropy, were they equally frequent."""

    strength: float
    interval: tuple[float, float]
    p: float | None
    tv: float
    random: float
    largest: float
    js: float
    effective: Floats


def measure(counts: Ints, rng: np.random.Generator) -> LabelMix:
    """counts: (G, S, K) rows of each group, stratum and label, all that a client sends for it. Random groups: labels
    dealt anew to the groups within each stratum (tables with the same margins, by Patefield's algorithm).

    The statistic of the test is the mean total variation distance of a row's group to the whole."""
    whole = counts.sum(1)
    n = whole.sum(1)
    base = _expected(counts)
    draws = int(np.clip(CELLS // max(counts.size, 1), 99, DRAWS))
    effective = np.exp(_entropy(whole / np.maximum(n, 1)[:, None]))
    big = np.flatnonzero(n >= min(ROWS, np.sort(n)[-2] if len(n) > 1 else 1))
    if len(big) < 2 or counts.shape[2] < 2 or not (counts.sum((0, 1)) > 0).sum() > 1:
        return LabelMix(0.0, (0.0, 0.0), 1.0 if len(big) > 1 else None, 0.0, 0.0, 0.0, 0.0, effective)
    pairs = _pairs(big, rng)
    seen, found = _distance(whole, base, n), _pairwise(whole, base, n, pairs)
    chance, pairwise = np.zeros(draws), []
    for d, table in enumerate(_random(counts, draws, rng)):
        chance[d] = _distance(table, base, n)
        if d < 50:
            pairwise.append(_pairwise(table, base, n, pairs).mean())
    random = float(np.mean(pairwise))
    if random > ALWAYS or np.sort(n)[-2] < LEAST:
        return LabelMix(0.0, (0.0, 0.0), None, float(found.mean()), random, float(found.max()), 0.0, effective)
    strength = float(np.clip((found.mean() - random) / max(1 - random, 1e-9), 0, 1))
    again = [_pairwise(_resampled(whole, rng), base, n, pairs).mean() for _ in range(50)]
    half = 1.96 * float(np.std(again)) / max(1 - random, 1e-9)
    p = (1 + int((chance >= seen - 1e-12).sum())) / (1 + draws)
    if p == 1 / (1 + draws):  # beyond all draws: the tail of the gamma law with their cumulants
        off = chance - chance.mean()
        p = min(p, tail(seen, float(chance.mean()), float((off**2).mean()), float((off**3).mean())))
    return LabelMix(
        strength, (max(strength - half, 0.0), min(strength + half, 1.0)), p, float(found.mean()), random,
        float(found.max()), _js(whole, n, big), effective,
    )  # fmt: skip


def _expected(counts: Ints) -> Floats:
    """(G, K) label shares that a group would have if its strata had the labels of all groups."""
    of = counts.sum(0) / np.maximum(counts.sum((0, 2)), 1)[:, None]
    share = counts.sum(2) / np.maximum(counts.sum((1, 2)), 1)[:, None]
    found: Floats = share @ of
    return found


def _distance(table: Ints, base: Floats, n: Ints) -> float:
    return float(n @ np.abs(table / np.maximum(n, 1)[:, None] - base).sum(1)) / 2 / max(int(n.sum()), 1)


def _pairs(big: Ints, rng: np.random.Generator) -> Ints:
    i, j = np.triu_indices(len(big), 1)
    kept = rng.permutation(len(i))[:PAIRS]
    return np.stack([big[i[kept]], big[j[kept]]])


def _pairwise(table: Ints, base: Floats, n: Ints, pairs: Ints) -> Floats:
    """Total variation between groups, what their strata explain taken off."""
    excess = table / np.maximum(n, 1)[:, None] - base
    found: Floats = np.abs(excess[pairs[0]] - excess[pairs[1]]).sum(1) / 2
    return found


def _random(counts: Ints, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(draws, G, K)"""
    total = np.zeros((draws, counts.shape[0], counts.shape[2]), dtype=np.int64)
    for s in range(counts.shape[1]):
        rows, columns = counts[:, s].sum(1), counts[:, s].sum(0)
        if rows.sum():
            total += random_table(rows, columns, seed=rng).rvs(size=draws).reshape(total.shape).astype(np.int64)
    return total


def _resampled(table: Ints, rng: np.random.Generator) -> Ints:
    n = table.sum(1)
    return rng.multinomial(n, table / np.maximum(n, 1)[:, None] + (n == 0)[:, None] / table.shape[1])


def _entropy(p: Floats) -> Floats:
    found: Floats = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    return found


def _js(whole: Ints, n: Ints, big: Ints) -> float:
    """Mean over clients, each as heavy as the others, of the divergence from their mean mix, over log of their number:
    0 (the same mix) to 1 (no label in common)."""
    p = whole[big] / n[big, None]
    spread = float(_entropy(p.mean(0)) - _entropy(p).mean())
    return max(spread, 0.0) / float(np.log(len(big)))
