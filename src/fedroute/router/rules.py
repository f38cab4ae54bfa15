"""Which client answers a query: rules as pure functions of what is known of it.

P(i | x), the probability that query x is one of client i's, where clients arrive by a law q, is the softmax over i of

    router_i(x) - log prior_i + log q_i

`prior` being the shares in what the router was fitted to: what is subtracted is exactly what the fit put in (Wang et
al. 2026, FedDRM, theorem 2.2), and q is where queries come from. The paper's rule is q uniform; on queries that come
as the training rows came, q = prior is the Bayes rule, and the two agree bit for bit where all priors are equal.

M(y | x) = sum_i P(i | x) p_i(y | x) is the mixture of the clients' answers. Consensus asks the one client whose answer
the mixture likes best, argmax_i M(yhat_i | x): of all rules that send a query to one client that one is right most
often, where P and p are (a hard choice of the likeliest client is not, since other clients may share an answer)."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.options import nearest
from fedroute.router.asked import Asked
from fedroute.router.scores import Decision, Scores

TIE = 1e-9  # what being the likeliest of equally good clients adds to a utility


class Rule(NamedTuple):
    """says: a line for people. asks: whose models must answer first: "one" client's, those of the "top" few, "all", or
    "none" but the global one. needs: what `decide` must be given. baseline: knows nothing of whose query it is, or,
    the oracle, knows it outright."""

    says: str
    asks: Literal["one", "top", "all", "none"]
    needs: tuple[str, ...] = ()
    baseline: bool = False


RULES: dict[str, Rule] = {
    "density": Rule("the likeliest client, where all send queries equally often (the paper's rule)", "one"),
    "posterior": Rule("the likeliest client, where queries arrive as training rows did", "one"),
    "arrival": Rule("the likeliest client, where queries arrive by a stated law", "one", ("arrival",)),
    "consensus": Rule("the client whose answer the mixture likes best", "all"),
    "joint": Rule("the client whose answer a router of (client, label) cells likes best", "all", ("labels",)),
    "mixture": Rule("all answers, weighted by whose query it may be", "all"),
    "top_mixture": Rule("the answers of the few likeliest clients, weighted", "top"),
    "consensus_global": Rule("consensus, the global model being one more expert", "all", ("common",)),
    "mixture_global": Rule("mixture, the global model being one more expert", "all", ("common",)),
    "top_mixture_global": Rule("top_mixture, the global model being one more expert", "top", ("common",)),
    "vote": Rule("majority of all clients' answers, ties to the first label", "all", (), True),
    "mean": Rule("mean of all clients' probabilities", "all", (), True),
    "confidence": Rule("the client that is surest of its answer", "all", (), True),
    "best_single": Rule("always the client that does best on everybody's validation rows", "one", ("best",), True),
    "random": Rule("any client", "one", (), True),
    "global": Rule("the global model", "none", ("common",), True),
    "oracle": Rule("the client whose query it is", "one", ("owner",), True),
}  # fmt: skip


def decide(
    rule: str,
    scores: Scores,
    *,
    arrival: Tensor | None = None,
    seed: int = 0,
    owner: Tensor | None = None,
    best: int | None = None,
    common_weight: float = 0.5,
    top: int = 2,
) -> Decision:
    """What the rule makes of these queries.

    arrival: (N,), shares by which queries come from clients, of any sum; by default the prior. It moves `arrival`,
    consensus and the mixtures; density and posterior have a law of their own. seed: of `random`, which draws by the
    place of a query. owner: (B,) the true clients, for the oracle. best: the client of best_single. common_weight: of
    the global model in the rules that have it as one more expert. top: how many clients top_mixture asks.

    A client whose prior is 0 (no rows, away, gone) is never chosen nor heard, except by the oracle; nor is one whose
    model answers NaN, on that query. Of equal clients the first is chosen. A query that no client can explain (-inf of
    all) is anybody's. Where the rule asks one client, score is P of it (consensus, joint: M of its answer; confidence:
    p of its answer; best_single and the oracle: 1); else M, or what stands for it, of the answer.

    Raises InputError for a rule that is not known or lacks what it needs, and for scores that do not fit together."""
    asked = Asked(scores, arrival, seed, owner, best, common_weight, top)
    _check(rule, asked)
    if rule in _POOLED:
        answer = _POOLED[rule](asked)
        nobody = torch.full((len(answer),), -1)
        score = answer.amax(1) if answer.shape[1] else answer.new_zeros(len(answer))
        return Decision(nobody, answer, score, nobody.clone())
    worth, order = _PICKING[rule](asked)
    client, second = ranked(worth, order, 2).T
    rows = torch.arange(len(worth))
    answer = scores.heads[rows, client].exp()
    if rule == "consensus_global":
        answer = asked.with_common(answer)
    return Decision(client, answer, worth[rows, client].clamp(0, 1), second)


def ranked(worth: Tensor, order: Tensor, count: int) -> Tensor:
    """(B, count) int64, the clients of most worth (B, N), among equals those first in order (B, N), among those still
    equal the first; -1 where no more may be asked (worth -inf)."""
    by = order.argsort(dim=1, descending=True, stable=True)
    by = by.gather(1, worth.gather(1, by).argsort(dim=1, descending=True, stable=True))[:, :count]
    found = by.masked_fill(worth.gather(1, by) == -torch.inf, -1)
    return found if by.shape[1] == count else torch.nn.functional.pad(found, (0, count - by.shape[1]), value=-1)


def utility(rule: str, scores: Scores, **options: Any) -> Tensor:
    """(B, N) float64, what each client is worth to a rule that asks one client, and a trifle (at most 1e-9) by which
    equals differ; -inf where it may not be asked. Capacity sets prices against it. Options as for `decide`.

    Raises InputError as `decide` does, and for a rule that asks nobody in particular."""
    worth, order = picked(rule, scores, **options)
    return worth + TIE * order.exp()


def in_order(rule: str, scores: Scores, count: int, **options: Any) -> Tensor:
    """(B, count) int64, whom a rule that asks one client would ask first, second, ...: the order of fallbacks; -1 where
    there is nobody left. Options and errors as for `utility`."""
    return ranked(*picked(rule, scores, **options), count)


def picked(rule: str, scores: Scores, **options: Any) -> tuple[Tensor, Tensor]:
    """Worth (B, N) and order (B, N), as `ranked` reads them, of a rule that asks one client; of density, posterior and
    arrival, order is log P(client | x) by the rule's own law. Options and errors as for `utility`."""
    asked = Asked(scores, **options)
    _check(rule, asked)
    if rule not in _PICKING:
        raise InputError(f"router.rule: {rule} asks no client in particular; take one of {', '.join(_PICKING)}")
    return _PICKING[rule](asked)


def log_posterior(scores: Scores, arrival: Tensor | None = None) -> Tensor:
    """(B, N) float64, log P(client | x) where clients arrive by this law, by default the prior; -inf for those who may
    not be chosen. Raises InputError as `decide` does."""
    return Asked(scores, arrival).log_posterior(arrival)


def mixture(scores: Scores, arrival: Tensor | None = None) -> Tensor:
    """(B, K) float64, M(y | x) where clients arrive by this law, by default the prior."""
    return Asked(scores, arrival).mixed


def without(scores: Scores, clients: Iterable[int]) -> Scores:
    """The same scores while these clients are away: their prior is 0, and that of the others sums to 1 again."""
    prior = scores.prior.clone()
    prior[list(clients)] = 0
    total = prior.sum()
    if not total > 0:
        raise InputError("router: every client is away or has no rows: nobody can be asked")
    return scores._replace(prior=prior / total)


def _check(rule: str, asked: Asked) -> None:
    if rule not in RULES:
        raise InputError(f"router.rule: unknown rule {rule!r}; {nearest(rule, RULES)}")
    given = {"arrival": asked.arrival, "owner": asked.owner, "best": asked.best}
    given |= {"common": asked.scores.common, "labels": asked.scores.labels}
    for need in RULES[rule].needs:
        if given[need] is None:
            raise InputError(f"router.rule: {rule} needs {_NEEDS[need]}")
    if not 0 <= asked.common_weight <= 1:
        raise InputError(f"router.common_weight: {asked.common_weight} is no share: take a number from 0 to 1")
    if asked.top < 1:
        raise InputError(f"router.top: {asked.top} clients cannot be asked: take 1 or more")


_NEEDS = {
    "arrival": "`arrival`, the share of queries that comes from each client: state it, or estimate it from a stream",
    "owner": "`owner`, the client whose query each is, which only an evaluation knows",
    "best": "`best`, the client chosen on validation rows",
    "labels": "a router of (client, label) cells: take kind cells, or another rule",
    "common": "a global model's answers: train with an algorithm that has one, or leave this rule",
}
_PICKING: dict[str, Callable[[Asked], tuple[Tensor, Tensor]]] = {  # -> worth, order; (B, N) each, order a logarithm
    "density": lambda a: a.likeliest(torch.ones_like(a.scores.prior)),
    "posterior": lambda a: a.likeliest(None),
    "arrival": lambda a: a.likeliest(a.arrival),
    "consensus": lambda a: a.consensus(a.mixed),
    "joint": lambda a: a.consensus(a.of_cells),
    "consensus_global": lambda a: a.consensus(a.with_common(a.mixed)),
    "confidence": lambda a: a.confidence(),
    "best_single": lambda a: a.always(),
    "random": lambda a: a.drawn(),
    "oracle": lambda a: a.owned(),
}
_POOLED: dict[str, Callable[[Asked], Tensor]] = {
    "mixture": lambda a: a.mixed,
    "top_mixture": lambda a: a.mixed_of_top,
    "mixture_global": lambda a: a.with_common(a.mixed),
    "top_mixture_global": lambda a: a.with_common(a.mixed_of_top),
    "vote": lambda a: a.votes(),
    "mean": lambda a: a.mean(),
    "global": lambda a: a.common,
}
