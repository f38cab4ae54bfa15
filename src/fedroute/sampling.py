"""Which clients take part in a round."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedroute.errors import InputError
from fedroute.randomness import generator

SAMPLINGS = ("all", "uniform", "weighted", "stratified", "loss")
BY_ROWS = ("weighted", "loss")  # those under which a client with more rows takes part more often
CANDIDATES = 3  # for each place in a round by loss so many clients are drawn that may have it


def choose(
    sizes: Tensor,
    share: float,
    sampling: str,
    seed: int,
    round: int,
    counts: Tensor | None = None,
    losses: Mapping[int, float] | None = None,
) -> tuple[int, ...]:
    """The clients of this round, ascending. `sizes`: (N,) training rows; a client without rows never takes part.

    share: the fraction of those with rows (rounded up; all of them at 1.0), or their number where it is over 1.
    sampling: "all"; "uniform", without replacement; "weighted", without replacement with a chance in proportion to
    the rows (weight the answers uniformly then, or size counts twice); "stratified": the clients take turns, dealt to
    rounds so that the label mix of each round's rows is near to the federation's, by `counts` (N, K), rows by label;
    "loss": power of choice (Cho et al. 2020, "Client Selection in Federated
    Learning", rpow-d): of three times as many clients drawn in proportion to the rows those with the highest training
    loss when they last took part, from `losses`, those who never did first.

    Raises InputError for another name, and for "stratified" where labels are no classes."""
    present = [i for i, n in enumerate(sizes.tolist()) if n]
    if sampling not in SAMPLINGS:
        raise InputError(f"training.sampling: no {sampling!r}; take one of {', '.join(SAMPLINGS)}")
    if sampling == "stratified" and (counts is None or not counts.shape[1]):
        raise InputError("training.sampling: stratified needs labels that are classes; take uniform or weighted")
    k = number(sizes, share)
    if sampling == "all" or k >= len(present):
        return tuple(present)
    if sampling == "stratified":
        assert counts is not None
        cycle = len(present) // k  # rounds in which everybody has a turn, or all but those whom the draw leaves out
        order = torch.randperm(len(present), generator=generator(seed, "sampling", round // cycle)).tolist()
        return tuple(sorted(_dealt([present[j] for j in order[: cycle * k]], cycle, counts)[round % cycle]))
    chance = torch.ones(len(present), dtype=torch.float64) if sampling == "uniform" else sizes[present].double()
    draws = min(len(present), CANDIDATES * k) if sampling == "loss" else k
    picked = torch.multinomial(chance, draws, generator=generator(seed, "sampling", round))
    drawn = [present[j] for j in picked.tolist()]
    if sampling == "loss":
        known = losses or {}
        drawn = sorted(drawn, key=lambda i: -known.get(i, math.inf))[:k]  # stable: equals in the order of drawing
    return tuple(sorted(drawn))


def number(sizes: Tensor, share: float) -> int:
    """How many clients a round asks for, of those with rows, as `choose` understands `share`; it may be over them."""
    return math.ceil(share * int((sizes > 0).sum()) - 1e-9) if share <= 1 else int(share)


def _dealt(clients: Sequence[int], rounds: int, counts: Tensor) -> list[list[int]]:
    """The clients dealt to rounds of equal size: the largest first, each to the round with a place left that has the
    fewest rows of the labels that the client has; of equals the first. That is where the squared distance of the
    rounds' counts from the same share of everything grows least."""
    hands = [list[int]() for _ in range(rounds)]
    pooled = torch.zeros(rounds, counts.shape[1], dtype=torch.float64)
    for i in sorted(clients, key=lambda i: -int(counts[i].sum())):
        room = [r for r in range(rounds) if len(hands[r]) < len(clients) // rounds]
        r = min(room, key=(pooled @ counts[i].double()).tolist().__getitem__)
        hands[r].append(i)
        pooled[r] += counts[i]
    return hands


def variation(clients: Sequence[int], counts: Tensor) -> float:
    """The total variation, 0..1, of the label mix of these clients' rows from that of all. counts: (N, K) rows."""
    some, every = counts[list(clients)].sum(0).double(), counts.sum(0).double()
    return float((some / some.sum() - every / every.sum()).abs().sum() / 2)
