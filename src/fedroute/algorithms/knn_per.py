"""FedAvg, and each client lets the nearest of its own training rows, as the model sees them, have a say."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from fedroute.core import Algorithm, Batch, Context
from fedroute.errors import InputError
from fedroute.features import head_of
from fedroute.heads import Head, TellingHead, replace_head
from fedroute.task import Task
from fedroute.tree import Tree, Weights

STORE = ("store", "answers")  # the head's buffers: features (n, D) and labels (n,) of a client's rows
TOGETHER = 1 << 22  # distances that are held at once


class RememberingHead(Head):
    """z (B, D) -> log of the mixture (B, K) of the softmax and of the vote of the k nearest stored rows; the logits as
    they are where nothing is stored or lam is 0."""

    store: Tensor
    answers: Tensor
    k: int
    lam: float

    @classmethod
    def make(cls, head: nn.Linear, k: int, lam: float) -> Self:
        made = cls.of(head)
        made.k, made.lam = k, lam
        made.register_buffer("store", head.weight.detach().new_zeros(0, head.in_features))
        made.register_buffer("answers", torch.zeros(0, dtype=torch.int64))
        return made

    def forward(self, z: Tensor) -> Tensor:
        logits = super().forward(z)
        if not len(self.store) or not self.lam:
            return logits
        p = torch.cat([self.vote(part) for part in z.split(max(1, TOGETHER // len(self.store)))])
        mixed = (1 - self.lam) * logits.softmax(1) + self.lam * p
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()

    def vote(self, z: Tensor) -> Tensor:
        """(B, K): of the k nearest rows each counts exp(-distance), and all of them one."""
        distance = torch.cdist(z, self.store, compute_mode="donot_use_mm_for_euclid_dist")
        near, place = distance.topk(min(self.k, len(self.store)), largest=False)
        votes = z.new_zeros(len(z), self.out_features)
        return votes.scatter_add(1, self.answers[place], (-near).softmax(1))


@dataclass(frozen=True, kw_only=True)
class KnnPer(Algorithm):
    """Marfoq et al. 2022, "Personalized Federated Learning through Local Memorization".
    phi(x): features of a row by the global model; N_k(x): the k rows of client i's training data whose features are
    nearest to phi(x), at distances d.

        p(y | x) = lam p_kNN(y | x) + (1 - lam) p_global(y | x),   p_kNN(y | x) ~ sum over N_k(x) of [y_j = y] exp(-d_j)

    The rounds are FedAvg's. At the end each client stores the features and labels of its training rows (`adapt`), which
    are its private state and never leave it; before that it predicts with the global model. lam = 0 is FedAvg, lam = 1
    the vote alone.

    Deviations: lam is one number for all and is not fitted on each client's validation rows. Features are what enters
    the head, which is one linear layer, with batch norm in the mode of evaluation. Of a client of one row nothing is
    stored where there is batch norm, since no pass over it is made. Private weights, if there are any, make one more
    pass before the rows are stored. Predictions are logarithms of the mixture, which a softmax turns into it."""

    only_classes: ClassVar[bool] = True  # targets that are no classes are refused before the first round
    lam: Annotated[float, Field(ge=0, le=1, description="weight of the neighbours' vote")] = 0.5
    k: Annotated[int, Field(ge=1, description="how many neighbours vote")] = 10
    adapt_epochs: ClassVar[int] = 1  # each row is stored once

    def bind(self, task: Task) -> Self:
        head_of(task)
        return super().bind(task)

    @cached_property
    def _reader(self) -> nn.Module:
        """x -> (logits, features), in the mode of evaluation."""
        module = replace_head(self.task, TellingHead.of(head_of(self.task)[1])).module
        return copy.deepcopy(module).eval()

    @cached_property
    def _remembering(self) -> Task:
        return replace_head(self.task, RememberingHead.make(head_of(self.task)[1], self.k, self.lam))

    def predictor(self) -> Task:
        return self._remembering

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        rows = list(batches)
        if any(b["y"].dtype != torch.int64 or b["y"].ndim != 1 for b in rows):
            raise InputError("algorithm: knn_per lets rows vote for their labels: give targets that are classes")
        private = super().adapt(ctx._replace(private={"w": ctx.private["w"]}), rows)
        if not rows:
            return private
        w = ctx.server["w"] | private["w"]
        with torch.no_grad():
            found = [functional_call(self._reader, w, (b["x"],), tie_weights=self.task.tied)[1] for b in rows]
        return private | {"store": torch.cat(found), "answers": torch.cat([b["y"] for b in rows])}

    def personal(self, server: Tree, private: Tree) -> Weights:
        name, head = head_of(self.task)
        nothing = {"store": head.weight.detach().new_zeros(0, head.in_features)}
        nothing["answers"] = torch.zeros(0, dtype=torch.int64)
        return super().personal(server, private) | {f"{name}.{k}": private.get(k, nothing[k]) for k in STORE}
