"""What every client's own model answers to the same queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from fedroute.errors import InputError
from fedroute.evaluate.predict import predict
from fedroute.features import head_of
from fedroute.heads import Head, replace_head
from fedroute.task import Task
from fedroute.tree import Weights

PROBE = 4  # rows by which it is seen whether a model ends with its head


@dataclass(frozen=True, eq=False)
class Answering:
    """N clients' models, ready for queries. Where they differ in a linear last layer alone, the rest is computed once
    and all heads in one product; where they do not differ at all, one model answers for all; else each in turn.

    task: of a model that puts out logits (B, K), or (B, 1), the log-odds of the second of two labels. personal: the
    weights of each client, N of them. weight (N, K, D), bias (N, K): of the heads; without them nothing is stacked.
    open: the task whose model ends before its head."""

    task: Task
    personal: tuple[Weights, ...]
    open: Task | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None

    @classmethod
    def of(cls, task: Task, personal: Sequence[Weights], probe: Tensor) -> Self:
        """probe: (B, ...), any rows x, of which a few are looked at. Raises InputError where there is no client."""
        if not personal:
            raise InputError("router: no client has a model: train first")
        first, others = personal[0], personal[1:]
        differ = {k for k, v in first.items() if not all(w[k] is v or torch.equal(w[k], v) for w in others)}
        if not differ:
            return cls(task, (first,) * len(personal))
        try:
            name, head = head_of(task)
        except InputError:  # several layers, or none: nothing to stack
            return cls(task, tuple(personal))
        own = f"{name}.weight", f"{name}.bias"
        if not differ <= {*own}:
            return cls(task, tuple(personal))
        weight = torch.stack([w[own[0]] for w in personal])
        bias = None if head.bias is None else torch.stack([w[own[1]] for w in personal])
        made = cls(task, tuple(personal), replace_head(task, _Open.of(head)), weight, bias)
        return made if made._ends_with_head(probe[:PROBE]) else cls(task, tuple(personal))

    @property
    def bodies(self) -> int:
        """How many models run for all answers to a query."""
        return 1 if self.weight is not None or self._same else len(self.personal)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, N, K) float64, log-probabilities of the labels by each client's model, for x (B, ...)."""
        if self.open is not None:
            return log_probabilities(self._stacked(x))
        if self._same:
            return log_probabilities(predict(self.task, self.personal[0], x))[:, None].expand(
                -1, len(self.personal), -1
            )
        return torch.stack([log_probabilities(predict(self.task, w, x)) for w in self.personal], 1)

    @property
    def _same(self) -> bool:
        return all(w is self.personal[0] for w in self.personal)

    def _stacked(self, x: Tensor) -> Tensor:
        """(B, N, K), the logits of all heads on what comes before them, computed once."""
        assert self.open is not None
        assert self.weight is not None
        z = predict(self.open, self.personal[0], x)
        out: Tensor = linear(z, self.weight.flatten(0, 1), None if self.bias is None else self.bias.flatten())
        return out.reshape(-1, *self.weight.shape[:2])

    def _ends_with_head(self, x: Tensor) -> bool:
        """Whether the model puts out what its head does, as it is: nothing comes after it."""
        assert self.open is not None
        plain, z = predict(self.task, self.personal[0], x), predict(self.open, self.personal[0], x)
        if z.ndim != 2 or plain.ndim != 2:
            return False
        return bool(torch.allclose(self._stacked(x)[:, 0], plain, rtol=1e-4, atol=1e-5, equal_nan=True))


class _Open(Head):
    """What the head is given, (B, D), as it is."""

    def forward(self, z: Tensor) -> Tensor:
        return z


def answers(task: Task, personal: Sequence[Weights], x: Tensor) -> Tensor:
    """(B, N, K) float64, the log-probabilities of the labels by each client's model, for x (B, ...): see `Answering`,
    which serves many batches. Raises InputError where there is no client."""
    return Answering.of(task, personal, x)(x)


def log_probabilities(logits: Tensor) -> Tensor:
    """(..., K) float64 from logits (..., K), or from the log-odds of the second of two labels, (..., 1)."""
    z = logits.double()
    z = torch.cat([torch.zeros_like(z), z], -1) if z.shape[-1] == 1 else z
    return z.log_softmax(-1)
