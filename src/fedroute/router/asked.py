"""What a rule is asked of some queries, and what several rules read of it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.scores import Scores


@dataclass(frozen=True)
class Asked:
    """What a rule is asked, and what several rules read of it."""

    scores: Scores
    arrival: Tensor | None = None
    seed: int = 0
    owner: Tensor | None = None
    best: int | None = None
    common_weight: float = 0.5
    top: int = 2

    @cached_property
    def usable(self) -> Tensor:
        """(B, N) bool, who may be asked."""
        router, prior, heads = self.scores[:3]
        if router.shape != heads.shape[:2] or router.shape[1:] != prior.shape:
            raise InputError(
                f"router: scores do not fit together: router {tuple(router.shape)}, prior {tuple(prior.shape)}, heads "
                f"{tuple(heads.shape)}; they must be (B, N), (N,) and (B, N, K)"
            )
        if not bool((prior >= 0).all()) or not bool(prior.sum() > 0):
            raise InputError("router: the prior must be shares, 0 or more, and one client must have some")
        broken = (router.isnan() | (router == torch.inf)) & (prior > 0)
        if bool(broken.any()):
            row, client = broken.nonzero()[0].tolist()
            raise InputError(
                f"router: query {row} has no finite score for client {client}: look for NaN or Inf in the query"
            )
        usable = (prior > 0) & ~heads.isnan().any(2)
        if not bool(usable.any(1).all()):
            raise InputError(
                f"router: no client's model answers query {int((~usable.any(1)).nonzero()[0])}: all that may be asked "
                "give NaN; look for NaN or Inf in the query, and for clients whose training diverged"
            )
        return usable

    def log_posterior(self, law: Tensor | None) -> Tensor:
        """(B, N), log P where clients arrive by the law. What is added to the router's logits is exactly 0 where law
        and prior are equal, or both uniform, so that equal laws make equal decisions to the last bit."""
        prior, usable = self.scores.prior, self.usable
        shift = torch.zeros_like(prior) if law is None else _law(law, prior).log() - prior.log()
        top = shift.masked_fill(prior == 0, -torch.inf).max()
        shift = shift - top if top > -torch.inf else torch.zeros_like(prior)
        logits = (self.scores.router + shift).masked_fill(~usable, -torch.inf)
        lost = logits.amax(1, keepdim=True) == -torch.inf
        return torch.where(lost & usable, 0.0, logits).log_softmax(1)

    @cached_property
    def log_p(self) -> Tensor:
        return self.log_posterior(self.arrival)

    @cached_property
    def probabilities(self) -> Tensor:
        """(B, N, K), the answers of those who may be asked, 0 of others."""
        return torch.where(self.usable[..., None], self.scores.heads.exp(), 0.0)

    @cached_property
    def mixed(self) -> Tensor:
        return torch.einsum("bn,bnk->bk", self.log_p.exp(), self.probabilities)

    @cached_property
    def mixed_of_top(self) -> Tensor:
        kept, who = self.log_p.topk(min(self.top, self.log_p.shape[1]), 1)
        p = kept.softmax(1)
        return torch.einsum("bn,bnk->bk", p, self.probabilities.gather(1, who[..., None].expand(-1, -1, self._labels)))

    @property
    def _labels(self) -> int:
        return self.scores.heads.shape[2]

    @cached_property
    def common(self) -> Tensor:
        """(B, K), the probabilities of the global model."""
        common = self.scores.common
        assert common is not None
        if bool(common.isnan().any()):
            raise InputError(
                "router: the global model answers NaN: look for NaN or Inf in the query, or in its weights"
            )
        return common.exp()

    @property
    def of_cells(self) -> Tensor:
        """(B, K), the probabilities of the labels by the router itself."""
        assert self.scores.labels is not None
        return self.scores.labels.exp()

    def with_common(self, p: Tensor) -> Tensor:
        return (1 - self.common_weight) * p + self.common_weight * self.common

    @cached_property
    def says(self) -> Tensor:
        """(B, N) int64, the label that each client answers."""
        return self.probabilities.argmax(2)

    def likeliest(self, law: Tensor | None) -> tuple[Tensor, Tensor]:
        log_p = self.log_posterior(law)
        return self.allowed(log_p.exp()), log_p

    def consensus(self, m: Tensor) -> tuple[Tensor, Tensor]:
        return self.allowed(m.gather(1, self.says)), self.log_p

    def allowed(self, worth: Tensor) -> Tensor:
        return worth.masked_fill(~self.usable, -torch.inf)

    def votes(self) -> Tensor:
        cast = one_hot(self.says, self._labels) * self.usable[..., None]
        return cast.sum(1).double() / self.usable.sum(1, keepdim=True)

    def mean(self) -> Tensor:
        return self.probabilities.sum(1) / self.usable.sum(1, keepdim=True)

    def confidence(self) -> tuple[Tensor, Tensor]:
        worth = self.allowed(self.probabilities.amax(2))
        return worth, torch.zeros_like(worth)

    def drawn(self) -> tuple[Tensor, Tensor]:
        draw = torch.rand(self.usable.shape, generator=generator(self.seed, "router", "random"), dtype=torch.float64)
        return self.allowed(self.usable / self.usable.sum(1, keepdim=True).double()), draw.log()

    def only(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """Nobody but these clients, (B,)."""
        worth = torch.full(self.scores.router.shape, -torch.inf, dtype=torch.float64).scatter(1, who[:, None], 1.0)
        return worth, torch.zeros_like(worth)

    def always(self) -> tuple[Tensor, Tensor]:
        assert self.best is not None
        if not 0 <= self.best < len(self.scores.prior) or not self.scores.prior[self.best] > 0:
            raise InputError(f"router.rule: best_single is client {self.best}, which is away, gone or unknown")
        return self.only(torch.full((len(self.scores.router),), self.best))

    def owned(self) -> tuple[Tensor, Tensor]:
        assert self.owner is not None
        if self.owner.shape != self.scores.router.shape[:1]:
            raise InputError(
                f"router: {len(self.scores.router)} queries, and owners {tuple(self.owner.shape)}: give one each"
            )
        return self.only(self.owner)


def _law(law: Tensor, prior: Tensor) -> Tensor:
    """(N,) float64, as shares of those who may be chosen. Raises InputError where it is no law."""
    q = torch.as_tensor(law, dtype=torch.float64)
    if q.shape != prior.shape:
        raise InputError(f"router.arrival: {tuple(q.shape)} shares for {len(prior)} clients: give one for each")
    if not bool((q >= 0).all()) or not bool(q.isfinite().all()) or not bool(q.sum() > 0):
        raise InputError("router.arrival: shares must be 0 or more, finite, and not all 0")
    return q
