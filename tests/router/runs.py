"""Small runs with a router: clients whose rows lie apart and whose labels mean opposite things."""

from dataclasses import replace
from typing import Any

import torch

from fedroute.data.federation import Federation
from fedroute.randomness import generator
from fedroute.run import Run
from fedroute.training import fit

NAMES = ("ash", "birch", "cedar")


def opposed(rows: int = 120, clients: int = 3, seed: int = 0, apart: float = 2.0) -> Federation:
    """Client i's rows lie about its own corner; a label is the sign of the last column, turned at every second one."""
    g = generator(seed, "opposed")
    corner = apart * torch.eye(clients, clients + 1)
    owner = torch.arange(rows * clients) % clients
    x = corner[owner] + torch.randn(rows * clients, clients + 1, generator=g)
    y = ((x[:, -1] > 0) ^ (owner % 2 == 1)).long()
    names = [(*NAMES, *(f"tree {i}" for i in range(3, clients)))[i] for i in owner.tolist()]
    return Federation.from_arrays(x, y, names, labels=("no", "yes"), name="trees", seed=seed)


def ran(federation: Federation, algorithm: str = "fedrod", **options: Any) -> Run:
    usual: dict[str, Any] = {"rounds": 12, "lr": 0.5, "alone": False, "engine": "sequential"}
    options = usual | {"router": {"random_features": 0}} | options
    return fit(federation, options.pop("model", "linear"), algorithm, log=lambda text: None, **options)


def tagged(federation: Federation, order: list[int]) -> Federation:
    """The same test rows, said to be other clients'."""
    return replace(federation, test=tuple(federation.test[i] for i in order))
