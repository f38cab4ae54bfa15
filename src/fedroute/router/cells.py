"""Clients and labels jointly: a Gaussian for each (client, label) cell, all of one covariance, from sums."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import Lda, fit_lda
from fedroute.router.sums import Sums, rows_of
from fedroute.tree import Tree


@dataclass(frozen=True, eq=False)
class Cells:
    """Under a shift of labels a client's rows are a mixture over labels, whose logarithm no linear function is; those
    of one label may well be Gaussian. q(i | z) is the sum over labels of q(i, k | z), and the sum over clients says
    which label the router itself believes in.

    lda: of N K cells, client by client; those without rows are never likely. labels: (), K.
    join, leave: as of `Lda`, K rows at once; what is uploaded counts a client's rows by label."""

    lda: Lda
    labels: Tensor

    @property
    def prior(self) -> Tensor:
        """(N,), shares of the rows."""
        n: Tensor = self.lda.n.reshape(-1, int(self.labels)).sum(1)
        return n / n.sum()

    def cells(self, z: Tensor) -> Tensor:
        """z (B, D) -> (B, N, K), log q(client, label | z) up to a number of each row."""
        return self.lda.logits(z).reshape(len(z), -1, int(self.labels))

    def logits(self, z: Tensor) -> Tensor:
        """z (B, D) -> (B, N) float64."""
        return self.cells(z).logsumexp(2)

    def of_labels(self, z: Tensor) -> Tensor:
        """z (B, D) -> (B, K), log-probabilities of the labels."""
        return self.cells(z).logsumexp(1).log_softmax(1)

    def join(self, sums: Sums) -> Self:
        """With the clients whose cells these are, K rows for each."""
        if len(sums.n) % int(self.labels):
            raise InputError(f"router: sums of {len(sums.n)} cells are not of whole clients of {int(self.labels)} "
                             "labels; send sums by label")  # fmt: skip
        return replace(self, lda=self.lda.join(sums))

    def leave(self, client: int) -> Self:
        """Without that client's cells."""
        lda = self.lda
        for _ in range(int(self.labels)):
            lda = lda.leave(client * int(self.labels))
        return replace(self, lda=lda)

    def state(self) -> Tree:
        return {"lda": self.lda.state(), "labels": self.labels}

    @classmethod
    def of(cls, state: Tree) -> Self:
        return cls(Lda.of(state["lda"]), state["labels"])


def sums_by_label(z: Tensor, y: Tensor, labels: int) -> Sums:
    """Of one client, a row of sums for each label: z (B, D), y (B,) codes."""
    whole = Sums.of(z)
    n = torch.bincount(y, minlength=labels).double()
    return Sums(n, torch.zeros(labels, z.shape[1], dtype=torch.float64).index_add(0, y, z.double()), whole.second)


def gather_cells(reader: RouterInput, federation: Federation, part: str = "train") -> Sums:
    """What the clients of a federation add up by label, N K rows; of newcomers nothing. Raises InputError where targets
    are no classes."""
    labels = len(federation.labels)
    if not labels:
        raise InputError(f"router.kind: cells are of labels, and targets of {federation.name} are no classes; take lda")
    new = {*federation.newcomers}
    none = torch.zeros(0, reader.width, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    indices: Sequence[Tensor] = getattr(federation, part)
    return Sums.together(
        sums_by_label(*(none if i in new else (rows_of(reader, federation, i, part), federation.y[rows])), labels)
        for i, rows in enumerate(indices)
    )


def fit_cells(sums: Sums, labels: int, shrink: float = 3e-4) -> Cells:
    """From the sums of all clients by label, N K rows. shrink: as of `fit_lda`."""
    return Cells(fit_lda(sums, shrink), torch.tensor(labels))
