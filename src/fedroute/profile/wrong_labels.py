"""How many of a client's labels may be wrong: what the others' labels teach fits there less than elsewhere, and its own
rows teach nothing better.

Labels of which a share e is drawn anew, whatever the features, follow the mixture (1 - e) p + e / K of what a model
without such labels says, p, and of all K labels alike: e is its likeliest share, (1 - 1/K) e that of wrong labels. A
client where features mean something else is unlike the others too, but there its own rows teach a rule that is better
than that mixture. Where classes merely overlap more, errors lie near the boundary and not everywhere: p to a power
below 1, summing to 1, is then likelier than the mixture. Cases that are as hard far from the boundary, and features
that say nothing at one client, cannot be told from wrong labels, and the words say so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fedroute.profile.finding import Finding, percent
from fedroute.said import say

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MORE = 0.05  # share of wrong labels beyond the usual that nobody wonders at
UNLIKELY = 1e-3  # over all clients that are asked
ROWS = 50.0  # effective rows below which a client is not judged
BETTER = 2.0  # deviations by which one's own rule is better, from which on it is a meaning of its own
ROOM = 0.1  # of Brier's score that it may be better for all one knows, at most
HARDER = 0.5  # deviations by which harder cases are likelier: then labels are not doubted
NOTHING = 0.7  # share drawn anew, from which on the features say next to nothing of the labels
STEPS = 40


@dataclass(frozen=True)
class Doubt:
    """Each (G,), NaN where a group is not judged. share, error: of wrong labels by what the others teach, and its
    standard error; better, spread: gain in Brier's score by one's own rows over that mixture, and its deviation;
    harder: how much likelier the labels are if cases are harder near the boundary than if some labels are wrong
    anywhere, in deviations; rows: effective ones."""

    share: Floats
    error: Floats
    better: Floats
    spread: Floats
    harder: Floats
    rows: Floats

    @classmethod
    def nothing(cls, groups: int) -> "Doubt":
        return cls(*np.full((6, groups), np.nan))

    def ask(self, g: int, others: Floats, own: Floats, truth: Floats, weight: Floats) -> None:
        """Of group g's held-out rows. others, own: (n, K) probabilities; truth: (n, K) 0/1; weight: (n,), sum 1."""
        k = truth.shape[1]
        self.share[g], self.error[g] = (v * (1 - 1 / k) for v in redrawn((others * truth).sum(1), weight, k))
        losses = list[Floats]()
        for p in (others, own):
            e, _ = redrawn((p * truth).sum(1), weight, k)
            losses.append((((1 - e) * p + e / k - truth) ** 2).sum(1))
        gain = losses[0] - losses[1]
        self.better[g] = weight @ gain
        self.spread[g] = np.sqrt((weight**2) @ (gain - self.better[g]) ** 2)
        self.harder[g] = 0.0  # where labels are all by lot, both say the same
        if MORE < self.share[g] < NOTHING * (1 - 1 / k):
            e, there = self.share[g] / (1 - 1 / k), (others * truth).sum(1)
            ratio = np.log(np.maximum((tempered(others, truth, weight) * truth).sum(1), 1e-12))
            ratio -= np.log(np.maximum((1 - e) * there + e / k, 1e-12))
            mean = float(weight @ ratio)
            self.harder[g] = mean / max(float(np.sqrt((weight**2) @ (ratio - mean) ** 2)), 1e-9)
        self.rows[g] = 1 / (weight**2).sum()

    def least(self, other: "Doubt") -> "Doubt":
        """Group by group the lesser share of two, and the greater gain by its own rows."""
        mine = self.share <= other.share
        surer = self.better / np.maximum(self.spread, 1e-12) >= other.better / np.maximum(other.spread, 1e-12)
        return Doubt(
            np.where(mine, self.share, other.share), np.where(mine, self.error, other.error),
            np.where(surer, self.better, other.better), np.where(surer, self.spread, other.spread),
            np.maximum(self.harder, other.harder), self.rows,
        )  # fmt: skip

    def usual(self) -> Floats:
        """(G,) the share in the middle of the other groups."""
        return np.array([_middle(np.delete(self.share, g)) for g in range(len(self.share))])

    def noisy(self) -> Ints:
        """The groups whose labels may be wrong more often than elsewhere."""
        judged = ~np.isnan(self.share) & (self.rows >= ROWS)
        if not judged.any():
            return np.zeros(0, dtype=np.int64)
        z = (self.share - self.usual() - MORE) / np.maximum(self.error, 1e-12)
        own = (self.better <= BETTER * self.spread + 1e-9) & (self.better + BETTER * self.spread < ROOM)
        return np.flatnonzero(judged & own & (self.harder < HARDER) & (z > norm.isf(UNLIKELY / judged.sum())))


def redrawn(p: Floats, weight: Floats, k: int) -> tuple[float, float]:
    """The likeliest share e of labels drawn anew, 0..1, and its standard error. p: (n,) probability of the label that
    is there, by a model without such labels; weight: (n,), sum 1."""
    slope = 1 / k - p

    def score(e: float) -> float:  # falls with e
        return float(weight @ (slope / np.maximum(p + e * slope, 1e-12)))

    low, high = 0.0, 1.0
    if score(0.0) <= 0:
        high = 0.0
    elif score(1.0) >= 0:
        low = 1.0
    for _ in range(STEPS if low < high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) > 0 else (low, middle)
    e = (low + high) / 2
    g = slope / np.maximum(p + e * slope, 1e-12)
    return e, float(np.sqrt((weight * g) @ (weight * g)) / max(float(weight @ g**2), 1e-12))


def tempered(p: Floats, truth: Floats, weight: Floats) -> Floats:
    """(n, K) p to the likeliest power from 0 to 1, summing to 1: what a model says where classes overlap more."""
    log = np.log(np.maximum(p, 1e-12))

    def powered(t: float) -> Floats:
        q = np.exp(t * (log - log.max(1, keepdims=True)))
        found: Floats = q / q.sum(1, keepdims=True)
        return found

    low, high = 0.0, 1.0
    for _ in range(STEPS // 2):  # the likelihood is concave in the power
        middle = (low + high) / 2
        uphill = weight @ ((truth - powered(middle)) * log).sum(1) > 0
        low, high = (middle, high) if uphill else (low, middle)
    return powered((low + high) / 2)


def _middle(share: Floats) -> float:
    known = share[~np.isnan(share)]
    return float(np.median(known)) if len(known) else float("nan")


def wrong_labels(doubt: Doubt, noisy: Sequence[int], clients: Sequence[str]) -> list[Finding]:
    """One for each noisy client."""
    found = list[Finding]()
    usual = doubt.usual()
    for g in noisy:
        who, half = clients[g], 1.96 * float(doubt.error[g])
        share, low, high = (
            percent(float(np.clip(doubt.share[g] + d, 0, 1))).removesuffix(" %") for d in (0, -half, half)
        )
        elsewhere = percent(float(usual[g]))
        found.append(Finding(
            kind="doubtful labels", client=who, number=round(float(doubt.share[g]), 4), unit="share of labels",
            severity="warning",
            sentence=say(
                f"Labels at {who} agree with its own features less than elsewhere: about {share} % ({low} to {high} %) "
                f"may be wrong (at the others {elsewhere}), or its cases are harder; its own rows teach no better "
                "rule than the others', so it is not that features mean something else there.",
                f"{who} 的标签与其自身特征的吻合程度低于其他客户端：约 {share} %（{low} 至 {high} %）可能是错的"
                f"（其他客户端为 {elsewhere}），或者它的样本更难；它自己的数据并不能给出比其他客户端更好的规则，"
                "因此并不是特征在那里含义不同。",
            ),
            mend=say(
                f"look at how labels are entered at {who}; until then leave it out or weight it down",
                f"检查 {who} 的标签是如何录入的；在此之前不要使用它的数据，或降低其权重",
            ),
        ))  # fmt: skip
    return found
