"""What every engine is: it runs one round of the chosen clients and yields their answers in order."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedroute.core import Algorithm, Context
from fedroute.data.federation import Federation
from fedroute.tree import Tree, tree_map

QUALITY_BYTES = 8  # what an answer's quality adds to what goes up


class Work(NamedTuple):
    """One round's work, as plain data."""

    round: int
    seed: int
    lr: float
    clients: tuple[int, ...]  # ascending
    batches: Mapping[int, list[Tensor]]  # client -> row indices of each of its steps
    judged: bool = False  # whether each answer comes with its quality


class Answer(NamedTuple):
    """What came back from one client: an update and its next private state, or why not."""

    client: int
    steps: int
    update: Tree
    private: Tree
    loss: float
    error: str = ""  # the traceback of a client that raised; update and private are then {}
    quality: float | None = None  # of the weights that its training ended with, where the work asks for it
    staleness: int = 0  # rounds since the one whose weights it started from: of an answer that came late


class Engine(Protocol):
    """`run` yields one answer for each of work.clients, in that order; nothing it is given is changed."""

    @property
    def name(self) -> str: ...

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]: ...

    def close(self) -> None: ...


def context(
    alg: Algorithm, server: Tree, private: Tree, client: int, work: Work, federation: Federation | None = None
) -> Context:
    """What client `client` may read in this round; without a federation it knows no label counts."""
    seen = {k: server[k] for k in alg.broadcast} | {k: tree_map(lambda v: v[client], server[k]) for k in alg.own}
    steps = len(work.batches[client])
    ctx = Context(seen, private, torch.tensor(client), torch.tensor(steps), torch.tensor(0), work.lr)
    return ctx._replace(counts=federation.label_counts[client]) if federation else ctx
