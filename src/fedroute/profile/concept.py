"""Concept skew: whether the same features mean the same label at every client."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from fedroute.profile import feature
from fedroute.profile.basis import Basis
from fedroute.profile.sample import FOLDS
from fedroute.profile.strata import gather, one_hot
from fedroute.profile.wrong_labels import Doubt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RIDGE = 0.1
SHRINK = 10.0  # rows of the others that stand beside a client's own, for each label
MORE = 0.8  # rows of a label elsewhere for each here, at least: else the others' means are the ones that are guessed
LEAST = 8  # rows of a label at a group for it to be judged there


@dataclass(frozen=True)
class Meaning:
    """strength: of what a group's features tell of its labels by its own means, the share that the others' means miss
    (or tell wrongly); own, others: accuracy above chance, 0..1, each label counting the same. by_group: (G,) strength,
    NaN where a group has not two labels with enough rows; p_by_group likewise. doubt: how many labels may be wrong
    instead; noisy: the groups that were left out for that. taken: for each group what the others' means take its labels
    for, None where a group is not judged."""

    strength: float
    interval: tuple[float, float]
    p: float | None
    own: float
    others: float
    by_group: Floats
    p_by_group: Floats
    doubt: Doubt = field(default_factory=lambda: Doubt.nothing(0))
    noisy: tuple[int, ...] = ()
    taken: "tuple[Taken | None, ...]" = ()


@dataclass(frozen=True)
class Taken:
    """labels: (H,) those that are judged at a group; rows: (H, H) of each label (down), how many the others' means take
    for each (across); own, others: the shares of rows that are right, each label counting the same."""

    labels: Ints
    rows: Ints
    own: float
    others: float


def at_matched(
    z: Sequence[Floats], basis: Basis, group: Sequence[Ints], y: Sequence[Ints], fold: Sequence[Ints],
    told: feature.Telling, labels: int, phi: Sequence[Floats] | None = None, doubted: bool = False,
) -> Meaning:  # fmt: skip
    """`measure` on the features as they are (phi, if there), and on those without each group's own shift and spread
    (`told`): the lesser of the two, for a difference in meaning shows in both, and one that goes away with a shift of
    the features is feature skew. doubted: whether groups whose labels may be wrong are left out: they mean nothing
    else, and would blur what the others know."""
    groups = len(told.shift)
    plain = phi if phi is not None else [basis.curves(v) for v in z]
    moved = [feature.align(v, told.off[g], told.ratio[g]) for v, g in zip(z, group, strict=True)]
    matched = [basis.curves(v) for v in moved]
    found = _lesser(plain, matched, group, y, fold, groups, labels, doubted)
    noisy = found.doubt.noisy().tolist() if doubted else []
    if noisy:
        kept = [~np.isin(g, noisy) for g in group]
        few, few_moved = ([v[k] for v, k in zip(p, kept, strict=True)] for p in (plain, matched))
        whose, code, turn = ([v[k] for v, k in zip(c, kept, strict=True)] for c in (group, y, fold))
        rest = _lesser(few, few_moved, whose, code, turn, groups, labels)
        found = replace(rest, doubt=found.doubt, noisy=tuple(noisy))
    return found


def _lesser(
    phi: Sequence[Floats], moved: Sequence[Floats], group: Sequence[Ints], y: Sequence[Ints], fold: Sequence[Ints],
    groups: int, labels: int, doubted: bool = False,
) -> Meaning:  # fmt: skip
    plain, matched = (measure(v, group, y, fold, groups, labels, doubted) for v in (phi, moved))
    less = plain if plain.strength <= matched.strength else matched
    less = less if plain.p is None or matched.p is None else replace(less, p=max(plain.p, matched.p))
    return replace(less, doubt=plain.doubt.least(matched.doubt))


def measure(
    phi: Sequence[Floats], group: Sequence[Ints], y: Sequence[Ints], fold: Sequence[Ints], groups: int, labels: int,
    doubted: bool = False,
) -> Meaning:  # fmt: skip
    """One entry per client: phi: (n, D) curves of its rows, their group, label and fold. doubted: whether it is asked
    how many labels may be wrong.

    Two discriminants answer for each group's held-out rows, among the labels the group has, all as likely before the
    features are seen, so that neither the group's mix of labels nor what it lacks matters: one with the means that the
    labels have at all other groups, one with these means drawn towards the group's own rows. Both have the covariance
    within labels of all. A gain in Brier's score by one's own means is a difference in what features mean; were there
    none, one's own few rows would only add noise."""
    d = phi[0].shape[1]
    if not d:
        nothing = np.zeros(groups)
        return _merged(nothing, nothing, nothing, np.full((2, groups), np.nan), nothing, nothing, Doubt.nothing(groups))
    n = np.zeros((FOLDS, groups, labels))
    first = np.zeros((FOLDS, groups, labels, d))
    second = np.zeros((d, d))
    for p, mine, c, part in zip(phi, group, y, fold, strict=True):
        np.add.at(n, (part, mine, c), 1)
        gather(first.reshape(-1, d), p, (part * groups + mine) * labels + c)
        second += p.T @ p
    together, whole = n.sum(0), first.sum(0)
    mean = whole.sum(0) / np.maximum(together.sum(0), 1)[:, None]
    cov = (second - (mean * together.sum(0)[:, None]).T @ mean) / max(float(together.sum()) - labels, 1.0)
    inverse = np.linalg.inv(cov + RIDGE * np.eye(d))
    everyone, whose, code, turn = (np.concatenate(v) for v in (phi, group, y, fold))
    order = [np.flatnonzero(whose == g) for g in range(groups)]
    gain, spread, room, chance, rows_worth = np.zeros((5, groups))
    right, doubt = np.full((2, groups), np.nan), Doubt.nothing(groups)
    taken = list[Taken | None]([None] * groups)
    for g in range(groups):
        elsewhere = together.sum(0) - together[g]
        here = np.flatnonzero((together[g] >= LEAST) & (elsewhere >= np.maximum(LEAST, MORE * together[g])))
        if len(here) < 2:
            continue
        foreign = (whole.sum(0) - whole[g])[here] / elsewhere[here, None]
        kept, scores = list[Ints](), list[list[Floats]]([[], []])
        for k in range(FOLDS):
            rows = order[g][turn[order[g]] == k]
            rows = rows[np.isin(code[rows], here)]
            total, count = whole[g, here] - first[k, g, here], together[g, here] - n[k, g, here]
            own = (total + SHRINK * foreign) / (count + SHRINK)[:, None]
            kept.append(rows)
            for which, means in enumerate((foreign, own)):
                scores[which].append(_posterior(everyone[rows], means, inverse))
        rows = np.concatenate(kept)
        truth = one_hot(np.searchsorted(here, code[rows]), len(here))
        weight = truth @ (1 / truth.sum(0)) / len(here)
        posterior = [np.concatenate(s) for s in scores]
        if doubted:
            doubt.ask(g, posterior[0], posterior[1], truth, weight)
        losses = [((p - truth) ** 2).sum(1) for p in posterior]
        rows_worth[g] = 1 / (weight**2).sum()
        gain[g] = weight @ (losses[0] - losses[1])
        spread[g] = np.sqrt((weight**2) @ (losses[0] - losses[1] - gain[g]) ** 2)
        room[g] = (1 - 1 / len(here)) - weight @ losses[1]
        chance[g] = 1 / len(here)
        right[:, g] = [weight @ (p.argmax(1) == truth.argmax(1)) for p in posterior]
        for_what = (truth.T @ one_hot(posterior[0].argmax(1), len(here))).astype(np.int64)
        taken[g] = Taken(here, for_what, float(right[1, g]), float(right[0, g]))
    return replace(_merged(gain, spread, room, right, chance, rows_worth, doubt), taken=tuple(taken))


def _posterior(x: Floats, means: Floats, inverse: Floats) -> Floats:
    w = inverse @ means.T
    score = x @ w - (means * w.T).sum(1) / 2
    e = np.exp(score - score.max(1, keepdims=True))
    found: Floats = e / e.sum(1, keepdims=True)
    return found


def _merged(
    gain: Floats, spread: Floats, room: Floats, right: Floats, chance: Floats, n: Floats, doubt: Doubt
) -> Meaning:
    """The groups' gains together: by the group that gains most beyond its noise, and by all of them."""
    judged = ~np.isnan(right[0])
    nothing = np.full(len(gain), np.nan)
    if not judged.any():
        return Meaning(0.0, (0.0, 0.0), None, 0.0, 0.0, nothing, nothing, doubt)
    z = np.where(judged & (spread > 0), gain / np.maximum(spread, 1e-12), 0.0)
    p = np.where(judged, student.sf(z, np.maximum(n - 1, 1)), np.nan)
    one = float(min(1.0, np.nanmin(p) * judged.sum()))
    w = np.where(judged, np.sqrt(n), 0.0)
    every = float(norm.sf((w @ z) / np.sqrt((w**2).sum())))
    scale = np.maximum(room, 0.05)
    strength = np.where(judged, np.clip(gain / scale, 0, 1), np.nan)
    total = float(scale[judged].sum())
    centre = float(np.clip(gain[judged].sum() / total, 0, 1))
    half = 1.96 * float(np.sqrt((spread[judged] ** 2).sum())) / total
    above = ((right - chance) / np.maximum(1 - chance, 1e-9))[:, judged].mean(1)
    return Meaning(
        centre, (max(centre - half, 0.0), min(centre + half, 1.0)), min(1.0, 2 * min(one, every)), float(above[1]),
        float(above[0]), strength, p, doubt,
    )  # fmt: skip
