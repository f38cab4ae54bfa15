"""When no client fits: queries unlike anything that any client has seen are turned down.

Distances do it, of what tells how a row was made: `style` and `histogram` of images, `columns` of tables. Features that
were trained to tell labels, posteriors and entropies have forgotten that, and something foreign to all clients often
looks very much like one of them (docs/routing.md has the numbers)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from scipy.special import betainc
from torch import Tensor

from fedroute.errors import InputError
from fedroute.evaluate.wilson import wilson
from fedroute.options import nearest
from fedroute.router.rules import log_posterior, mixture
from fedroute.router.scores import Scores
from fedroute.router.sums import Sums
from fedroute.router.typical import Typical
from fedroute.tree import Tree

CONFIDENCE = 0.999  # that no more known queries are turned down than were allowed


def ratio(z: Tensor, scores: Scores) -> Tensor:
    """Minus the largest log density ratio of a client against all clients together: large where no client's rows are
    likelier than the others' to hold the query. It cannot see that a query is unlike all of them."""
    return -(log_posterior(scores) - scores.prior.log()).masked_fill(scores.prior <= 0, -torch.inf).amax(1)


def entropy(z: Tensor, scores: Scores) -> Tensor:
    """Of the mixture's answer, in nats: how unsure all clients together are of the label."""
    found: Tensor = torch.special.entr(mixture(scores)).sum(1)
    return found


def energy(z: Tensor, scores: Scores) -> Tensor:
    """Minus the log of the sum of exponentials of the router's logits as they come (Liu et al. 2020). It says something
    where the router is a network; of a router in closed form a number of each row is missing in them."""
    return -scores.router.masked_fill(scores.prior <= 0, -torch.inf).logsumexp(1)


PLAIN: dict[str, Callable[[Tensor, Scores], Tensor]] = {"ratio": ratio, "entropy": entropy, "energy": energy}
SCORES = ("distance", *PLAIN)


@dataclass(frozen=True, eq=False)
class Abstain:
    """A score of z (B, D), what a router reads of queries, and their Scores, and the value of it beyond which they are
    turned down. `distance` is that of `Typical`; several scores are each put on the scale of known rows, from their
    middle (0) to their largest twentieth (1), and the largest counts.

    using: names of SCORES. threshold: (). middle, reach: (S,), of each score."""

    using: tuple[str, ...]
    threshold: Tensor
    middle: Tensor
    reach: Tensor
    typical: Typical | None = None

    def foreign(self, z: Tensor, scores: Scores) -> Tensor:
        """(B,) float64, the larger, the less a query is like the rows of any client that may be asked now."""
        raw = torch.stack([self._score(name, z, scores) for name in self.using])
        return ((raw - self.middle[:, None]) / self.reach[:, None]).amax(0)

    def refuses(self, z: Tensor, scores: Scores) -> Tensor:
        """(B,) bool, which queries are turned down; so is one whose score is NaN."""
        return ~(self.foreign(z, scores) <= self.threshold)

    def _score(self, name: str, z: Tensor, scores: Scores) -> Tensor:
        if name != "distance":
            return PLAIN[name](z, scores)
        assert self.typical is not None
        return self.typical.distances(z).masked_fill(scores.prior <= 0, torch.inf).amin(1)

    def join(self, sums: Sums) -> Self:
        """With one more client, from the sums of its rows. The threshold stays."""
        return replace(self, typical=self.typical and self.typical.join(sums))

    def leave(self, client: int) -> Self:
        """Without that client: queries that only it found typical are then turned down."""
        return replace(self, typical=self.typical and self.typical.leave(client))

    def state(self) -> Tree:
        own = {"threshold": self.threshold, "middle": self.middle, "reach": self.reach}
        own["using"] = torch.tensor([SCORES.index(name) for name in self.using])
        return own | ({"typical": self.typical.state()} if self.typical else {})

    @classmethod
    def of(cls, state: Tree) -> Self:
        """What `state` was taken of."""
        using = tuple(SCORES[int(i)] for i in state["using"])
        typical = Typical(**state["typical"]) if "typical" in state else None
        return cls(using, state["threshold"], state["middle"], state["reach"], typical)


def fit_abstain(
    z: Tensor,
    scores: Scores,
    owner: Tensor,
    sums: Sequence[Sums] = (),
    *,
    alpha: float = 0.05,
    using: Sequence[str] = ("distance",),
    confidence: float = CONFIDENCE,
) -> Abstain:
    """From validation rows of all clients: z (B, D), scores, owner (B,); and for `distance` the sums of each client's
    training rows by itself, N of them.

    alpha: the share of known queries that may be turned down. The threshold is the smallest validation score of which
    it can be said, with this confidence and whatever the law of scores, that at most alpha of known queries lie beyond
    it (a one-sided tolerance limit, Wilks 1941); where rows are too few for that (134 or fewer at 5 and 99.9 %) their
    largest. Nothing unknown is looked at.

    Raises InputError for a score that is not known or lacks its sums, and where there are no validation rows."""
    if not using:
        raise InputError(f"router.abstain: no score is named; take some of {', '.join(SCORES)}")
    for name in using:
        if name not in SCORES:
            raise InputError(f"router.abstain: unknown score {name!r}; {nearest(name, SCORES)}")
    if not len(z):
        raise InputError("router.abstain: no validation rows to set the threshold by; set federation.split.validation")
    typical = None
    if "distance" in using:
        if len(sums) != len(scores.prior):
            raise InputError(
                f"router.abstain: {len(sums)} sums for {len(scores.prior)} clients: give each client's own"
            )
        typical = Typical.of(sums).scaled(z, owner, 1 - alpha)
    blank = torch.ones(len(using), dtype=torch.float64)
    raw = Abstain(tuple(using), blank[0], 0 * blank, blank, typical)
    each = torch.stack([raw._score(name, z, scores) for name in using])
    return set_by(each, using, typical, alpha=alpha, confidence=confidence)


def set_by(
    each: Tensor,
    using: Sequence[str],
    typical: Typical | None,
    *,
    alpha: float = 0.05,
    confidence: float = CONFIDENCE,
) -> Abstain:
    """From the scores of B validation rows, each (S, B) as they come, B > 0. Options as of `fit_abstain`."""
    middle = each.quantile(0.5, 1)
    reach = (each.quantile(0.95, 1) - middle).clamp(min=1e-12)
    known = ((each - middle[:, None]) / reach[:, None]).amax(0).sort().values
    threshold = known[tolerance(each.shape[1], alpha, confidence) - 1]
    return Abstain(tuple(using), threshold, middle, reach, typical)


def tolerance(n: int, alpha: float, confidence: float = CONFIDENCE) -> int:
    """The least k such that the k-th smallest of n draws has, with this confidence, at most alpha of the law beyond it;
    n where n draws are too few for that. The share beyond the k-th smallest is beta-distributed, (n - k + 1, k)."""
    if not 0 < alpha < 1:
        raise InputError(f"router.abstain: {alpha} is no share of queries: take a number above 0 and below 1, or null")
    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        low, high = (low, k) if betainc(n - k + 1, k, alpha) >= confidence else (k + 1, high)
    return high


def abstention(refused: Tensor, owner: Tensor, clients: Sequence[str]) -> dict[str, Any]:
    """How many known queries are turned down: {false_abstention, interval (Wilson, 95 %), by_client: {name: share or
    None}}. refused (B,) bool, owner (B,)."""
    by: Mapping[str, Tensor] = {c: refused[owner == i] for i, c in enumerate(clients)}
    interval = wilson(int(refused.sum()), len(refused))
    return {
        "false_abstention": float(refused.double().mean()) if len(refused) else None,
        "interval": list(interval) if interval else None,
        "by_client": {c: float(v.double().mean()) if len(v) else None for c, v in by.items()},
    }
