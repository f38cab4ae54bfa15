"""What clients add up of their rows for a router in closed form: counts, sums, and one second moment of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.router.inputs import RouterInput, part_of


@dataclass(frozen=True, eq=False)
class Sums:
    """Of N clients that read D numbers of each row z. Plain sums: those of all rows are the same whoever adds them, in
    whatever order and groups, to rounding, and secure aggregation can add them unseen.

    n: (N,) float64, rows. total: (N, D), sum of z. second: (D, D), sum of z z' over the rows of all clients."""

    n: Tensor
    total: Tensor
    second: Tensor

    @classmethod
    def of(cls, z: Tensor, chunk: int = 4096) -> Self:
        """Of one client, N = 1, from its rows z (B, D)."""
        z = z.double()
        empty = z.new_zeros(z.shape[1], z.shape[1])
        second = reduce(lambda s, part: s.addmm_(part.T, part), z.split(chunk), empty) if len(z) else empty
        return cls(torch.tensor([len(z)], dtype=torch.float64), z.sum(0, keepdim=True), second)

    @classmethod
    def together(cls, sums: Iterable["Sums"]) -> "Sums":
        """Of the clients of all these, one after the other. Raises InputError where they read different numbers."""
        parts = iter(sums)
        first = next(parts)
        n, total, second = [first.n], [first.total], first.second.clone()
        for s in parts:
            if s.total.shape[1] != second.shape[0]:
                raise InputError(f"router: sums of {s.total.shape[1]} numbers a row and of {second.shape[0]} do not "
                                 "add up; let every client read the same router.input")  # fmt: skip
            n.append(s.n)
            total.append(s.total)
            second += s.second
        return Sums(torch.cat(n), torch.cat(total), second)

    def pooled(self) -> "Sums":
        """The same rows, all of one client."""
        return Sums(self.n.sum(0, keepdim=True), self.total.sum(0, keepdim=True), self.second)

    def grouped(self, group: Sequence[int], groups: int) -> "Sums":
        """Client i's rows counted as those of client group[i] of `groups` clients."""
        to = torch.tensor(group)
        n, total = self.n.new_zeros(groups), self.total.new_zeros(groups, self.total.shape[1])
        return Sums(n.index_add(0, to, self.n), total.index_add(0, to, self.total), self.second)

    @property
    def width(self) -> int:
        """D."""
        return self.total.shape[1]

    @property
    def mean(self) -> Tensor:
        """(N, D), of each client; 0 where it has no rows."""
        return self.total / self.n.clamp(min=1)[:, None]

    def within(self) -> Tensor:
        """(D, D): sum over all rows of (z - m_i)(z - m_i)', m_i the mean of the row's client."""
        return symmetric(self.second - self.mean.T @ self.total)

    def about_mean(self) -> Tensor:
        """(D, D): sum over all rows of (z - m)(z - m)', m the mean of all rows."""
        return self.pooled().within()

    def packed(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """What one client uploads: n, total and the upper triangle of `second`, (1 + D + D (D + 1) / 2,).

        float32 halves it, at some 1e-7 of relative error."""
        if len(self.n) != 1:
            raise ValueError("each client uploads its own sums")
        upper = torch.triu_indices(self.width, self.width)
        return torch.cat([self.n, self.total[0], self.second[upper[0], upper[1]]]).to(dtype)

    @classmethod
    def unpacked(cls, flat: Tensor, width: int) -> "Sums":
        """The inverse of `packed`."""
        flat = flat.double()
        second = flat.new_zeros(width, width)
        upper = torch.triu_indices(width, width)
        second[upper[0], upper[1]] = flat[1 + width :]
        return cls(flat[:1], flat[1 : 1 + width].unsqueeze(0), symmetric(second * 2 - second.diag().diag()))

    def upload_bytes(self, size: int = 8) -> int:
        """Bytes that one client sends, of numbers of `size` bytes."""
        return size * (1 + self.width + self.width * (self.width + 1) // 2)


def symmetric(a: Tensor) -> Tensor:
    """(a + a') / 2: what is symmetric but for rounding, made so."""
    return (a + a.T) / 2


def rows_of(reader: RouterInput, federation: Federation, client: int, part: str = "train") -> Tensor:
    """(n, D) float64, what the router reads of one client's part."""
    none = torch.zeros(0, reader.width, dtype=torch.float64)
    return torch.cat([none, *(reader.read(x) for x in part_of(federation, client, part))])


def gather(reader: RouterInput, federation: Federation, part: str = "train") -> Sums:
    """What the clients of a federation add up of one part of their rows; of newcomers, who join later, nothing."""
    new = {*federation.newcomers}
    none = torch.zeros(0, reader.width, dtype=torch.float64)
    return Sums.together(
        Sums.of(none if i in new else rows_of(reader, federation, i, part)) for i in range(len(federation.clients))
    )
