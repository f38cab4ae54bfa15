"""What is known of a query before anybody is chosen, and what a rule makes of it."""

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """Of B queries, N clients, K labels. All of it float64, on the CPU."""

    router: Tensor  # (B, N), log q(client | x) up to a number of each row, where clients arrive as `prior` says
    prior: Tensor  # (N,), the share of each client in what the router was fitted to; sums to 1; 0: never chosen
    heads: Tensor  # (B, N, K), log-probabilities of the labels by each client's own model
    common: Tensor | None = None  # (B, K), log-probabilities of the labels by the global model, where there is one
    labels: Tensor | None = None  # (B, K), log-probabilities of the labels by a router of (client, label) cells itself


class Decision(NamedTuple):
    """Of B queries."""

    client: Tensor  # (B,) int64, whose answer it is; -1 where a rule asks nobody in particular
    answer: Tensor  # (B, K) float64, probabilities of the labels
    score: Tensor  # (B,) float64, 0..1, how sure the rule is of its client (of its answer where client is -1)
    second: Tensor  # (B,) int64, the client next in line; -1 where there is none
