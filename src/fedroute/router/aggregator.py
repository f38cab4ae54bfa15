"""What router and heads say, weighed anew by how right they were on rows that no model was trained on."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.scores import Scores
from fedroute.tree import Tree

LEAST = -69.0  # log-probabilities below which nothing is told apart: 1e-30


@dataclass(frozen=True, eq=False)
class Aggregator:
    """Scores to better ones, of which any rule makes what it makes of scores:

        router'_i = sharp router_i + lean_i ,    heads'_i = log softmax( heat_i heads_i + bias_i )

    with router the log posterior of clients. Fitted to the likelihood of the labels under the mixture
    M(y | x) = sum_i q'(i | x) p'_i(y | x), which is what consensus and mixture live on. As an aggregator of clients'
    answers trained by federated learning it follows FENS (Allouah et al. 2024), which takes a small network of all
    heads; this one has 2 N + N K + 1 numbers and starts from the plain mixture.

    sharp: (); lean: (N,); heat: (N,); bias: (N, K)."""

    sharp: Tensor
    lean: Tensor
    heat: Tensor
    bias: Tensor

    def __call__(self, scores: Scores) -> Scores:
        """The same queries, the same clients; the common answers and a router's own labels as they are."""
        known = scores.router.log_softmax(1)
        router = (self.sharp * known.clamp(min=LEAST) + self.lean).masked_fill(known == -torch.inf, -torch.inf)
        heads = (self.heat[:, None] * _finite(scores.heads) + self.bias).log_softmax(2)
        broken = scores.heads.isnan().any(2, keepdim=True)
        return scores._replace(router=router, heads=heads.masked_fill(broken, torch.nan))

    def join(self, count: int = 1) -> Self:
        """With clients of whom nothing is known: taken as they come."""
        one, none = self.heat.new_ones(count), self.lean.new_zeros(count)
        bias = torch.cat([self.bias, self.bias.new_zeros(count, self.bias.shape[1])])
        return type(self)(self.sharp, torch.cat([self.lean, none]), torch.cat([self.heat, one]), bias)

    def leave(self, client: int) -> Self:
        """Without that client."""
        kept = [i for i in range(len(self.lean)) if i != client]
        return type(self)(self.sharp, self.lean[kept], self.heat[kept], self.bias[kept])

    def state(self) -> Tree:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, state: Tree) -> Self:
        return cls(**state)

    @classmethod
    def plain(cls, clients: int, labels: int) -> Self:
        """That changes nothing."""
        one = torch.ones(clients, dtype=torch.float64)
        return cls(one.new_ones(()), one * 0, one, one.new_zeros(clients, labels))


class Fit(NamedTuple):
    """An aggregator, and what it took."""

    aggregator: Aggregator
    rounds: int  # sums of gradients that clients were asked for
    upload: int  # numbers of each client in a round
    before: float  # mean cross entropy of the plain mixture, in nat
    after: float


def fit_aggregator(scores: Scores, y: Tensor, owner: Tensor, decay: float = 1e-3, rounds: int = 60) -> Fit:
    """From held-out rows of the clients: B queries with labels y (B,) and owners (B,). Heads are surer of the rows that
    they were trained on than of others, so that training rows would teach it the wrong weights.

    Every round each client adds up the gradient over its own rows, and the server makes a step of L-BFGS with the sum.
    decay: of lam/2 (distance from the plain mixture)^2, beside the mean loss. Clients whose prior is 0 keep their plain
    numbers. Raises InputError where there are no rows."""
    from scipy.optimize import minimize

    if not len(y):
        raise InputError("router.kind: an aggregator is fitted to validation rows, and there are none; give the split "
                         "a validation part, or take another kind")  # fmt: skip
    n, k = scores.heads.shape[1:]
    plain = Aggregator.plain(n, k)
    sizes = [v.numel() for v in plain.state().values()]
    parts = [(_of(scores, owner == i), y[owner == i]) for i in owner.unique().tolist()]
    asked = 0

    def made(flat: Tensor) -> Aggregator:
        found = zip(plain.state().items(), flat.split(sizes), strict=True)
        return Aggregator(**{name: v + change.reshape(v.shape) for (name, v), change in found})

    def objective(values: Any) -> tuple[float, Any]:
        nonlocal asked
        asked += 1
        sums = [loss_and_gradient(torch.from_numpy(values), made, *part) for part in parts]
        loss, gradient = (torch.stack(v).sum(0) / len(y) for v in zip(*sums, strict=True))
        flat = torch.from_numpy(values)
        return float(loss + decay / 2 * flat.square().sum()), (gradient + decay * flat).numpy()

    start = torch.zeros(sum(sizes), dtype=torch.float64).numpy()
    options = {"maxfun": rounds, "maxiter": rounds, "gtol": 1e-7, "maxcor": 30}
    found = torch.from_numpy(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)
    before, after = (float(-_likelihood(a(scores), y).mean()) for a in (plain, made(found)))
    return Fit(made(found), asked, sum(sizes) + 1, before, after)


def out_of_fold(scores: Scores, y: Tensor, owner: Tensor, folds: int = 5, rounds: int = 60, seed: int = 0) -> Scores:
    """The scores of each row by an aggregator fitted to the rows of the other folds: what one is worth on rows that it
    has not seen, to choose by. Rows are dealt by the seed; rounds: of each fit.

    Raises InputError where there are fewer rows than folds."""
    if len(y) < folds:
        raise InputError(f"router.kind: {len(y)} validation rows are too few to tell whether an aggregator is of use; "
                         "give the split a larger validation part, or take another kind")  # fmt: skip
    fold = torch.randperm(len(y), generator=generator(seed, "folds")) % folds
    router, heads = scores.router.clone(), scores.heads.clone()
    for k in range(folds):
        fit = fit_aggregator(_of(scores, fold != k), y[fold != k], owner[fold != k], rounds=rounds)
        better = fit.aggregator(_of(scores, fold == k))
        router[fold == k], heads[fold == k] = better.router, better.heads
    return scores._replace(router=router, heads=heads)


def loss_and_gradient(flat: Tensor, made: Any, scores: Scores, y: Tensor) -> tuple[Tensor, Tensor]:
    """What one client sends in a round: the sum over its rows of the mixture's cross entropy, (), and its gradient."""
    with torch.enable_grad():
        leaf = flat.detach().clone().requires_grad_()
        loss = -_likelihood(made(leaf)(scores), y).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def _likelihood(scores: Scores, y: Tensor) -> Tensor:
    """(B,), log M(y | x)."""
    heads = scores.heads[torch.arange(len(y)), :, y]
    usable = (scores.prior > 0) & ~heads.isnan()
    router = scores.router.masked_fill(~usable, -torch.inf).log_softmax(1)
    return torch.where(usable, router + _finite(heads), -torch.inf).logsumexp(1)


def _finite(logs: Tensor) -> Tensor:
    """Log-probabilities with 0 for NaN, and LEAST for what is less likely."""
    return logs.nan_to_num(nan=0.0, neginf=LEAST).clamp(min=LEAST)


def _of(scores: Scores, rows: Tensor) -> Scores:
    common, labels = (None if v is None else v[rows] for v in (scores.common, scores.labels))
    return Scores(scores.router[rows], scores.prior, scores.heads[rows], common, labels)
