"""A federation: named clients and their rows, each row in the training, validation or test part of one client."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedroute.core import Batch
from fedroute.data.distinct import distinct
from fedroute.data.newcomers import choose_newcomers
from fedroute.data.partition import assign, client_names
from fedroute.data.spec import Partition, Split, partition_of
from fedroute.data.split import split_rows
from fedroute.data.table import TableSchema
from fedroute.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Federation:
    """All rows once, in contiguous tensors; a client's part is an index into them.

    x: (R, ...) float, or uint8 images (read as 0..1 by `take`); y: (R,) int64 class codes into `labels`,
    or any tensor of R rows that the task's loss takes (then `labels` is empty).
    clients: names, sorted; a client's number is its place here, so that the order of listing never matters.
    train, validation, test: one (n,) int64 index per client. notes: what loading found and did, for the user.
    newcomers: numbers of the clients that never train, ascending; each gets its private part from its own training rows
    when the others have ended.
    columns: names of the columns of x where x is a table; table: what they mean and how a query is encoded.
    time: (R,) float64, seconds or the numbers given, where the source has a time column.
    pooled: x as `as_queries` has it, where clients of a table use statistics of their own.
    hashes: (R,) int64, of a table that was read: of each row as it was, see `row_hashes`."""

    name: str
    x: Tensor
    y: Tensor
    clients: tuple[str, ...]
    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    labels: tuple[str, ...] = ()
    newcomers: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    table: TableSchema | None = None
    time: Tensor | None = field(default=None, repr=False)
    pooled: Tensor | None = field(default=None, repr=False)
    hashes: Tensor | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        names = [", ".join(v[:5]) + (", ..." if len(v) > 5 else "") for v in (self.clients, self.labels)]
        rows = ", ".join(f"{part} {int(self.sizes(part).sum())}" for part in ("train", "validation", "test"))
        kinds = f"{len(self.labels)} labels ({names[1]})" if self.labels else f"y {tuple(self.y.shape)}"
        clients = f"{len(self.clients)} clients ({names[0]})"
        return f"Federation({self.name!r}: {clients}, rows: {rows}, {kinds}, x {tuple(self.x.shape)})"

    def take(self, index: Tensor) -> Batch:
        """The rows of an index as a batch: "x" float, "y"."""
        x = self.x.index_select(0, index)
        return {"x": x.float() / 255 if x.dtype == torch.uint8 else x, "y": self.y.index_select(0, index)}

    def sizes(self, part: str = "train") -> Tensor:
        """(N,) int64, the rows of each client in a part."""
        return torch.tensor([len(i) for i in getattr(self, part)])

    def training_sizes(self) -> Tensor:
        """(N,) int64, the rows that each client trains on together with the others: of a newcomer none."""
        n = self.sizes()
        n[list(self.newcomers)] = 0
        return n

    def as_queries(self) -> "Federation":
        """The same rows as if each came from outside: encoded with the statistics of all clients together, so that
        nothing in a row's encoding depends on whose it is."""
        return self if self.pooled is None else replace(self, x=self.pooled, pooled=None)

    def with_newcomers(self, who: Sequence[str] | float, seed: int = 0) -> "Federation":
        """The same clients, and of them those of these names, or such a share drawn by `seed` (at least one, and one
        stays), as newcomers, which never train. Raises InputError for a name that no client has, or where nobody would
        be left to train."""
        return replace(self, newcomers=choose_newcomers(who, self.clients, self.sizes(), seed, self.name))

    @cached_property
    def effective_sizes(self) -> Tensor:
        """(N,) int64, the different training rows of each client: copies, equal in x and y, count once."""
        return torch.tensor([distinct(self.x, self.y, rows) for rows in self.train], dtype=torch.int64)

    @cached_property
    def label_counts(self) -> Tensor:
        """(N, K) int64, the training rows of each client and label; (N, 0) where targets are not classes."""
        k = len(self.labels) if self.y.dtype == torch.int64 and self.y.ndim == 1 else 0
        counts = [torch.bincount(self.y[rows], minlength=k) for rows in self.train] if k else []
        return torch.stack(counts) if counts else torch.zeros(len(self.clients), k, dtype=torch.int64)

    def owner(self) -> Tensor:
        """(R,) int64, the client of each row."""
        found = torch.full((len(self.x),), -1)
        for part in (self.train, self.validation, self.test):
            for i, rows in enumerate(part):
                found[rows] = i
        return found

    @classmethod
    def from_arrays(
        cls,
        x: Tensor,
        y: Tensor,
        client: Sequence[str] | None = None,
        *,
        partition: Partition | Mapping[str, Any] | None = None,
        name: str = "arrays",
        labels: Sequence[str] = (),
        split: Split | None = None,
        seed: int = 0,
        time: Tensor | None = None,
        columns: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> "Federation":
        """A federation of R rows; `client`: R names, or None and a `partition` that deals the rows to made clients
        (a model of `data.spec`, or a dict such as {"method": "dirichlet", "alpha": 0.3, "clients": 8}).
        Rows are split inside each client, by `seed` and the client's name (or by `time`, where split.by is "time"),
        so that one client's data never change another's parts. y: (R,) integers are class codes, called "0", "1", ...
        up to the largest where no `labels` are given; numbers to predict are floats.

        Raises InputError where x, y and client differ in length, a class code has no label, a table has NaN or Inf,
        or the partition is impossible."""
        split = split or Split()
        if (client is None) == (partition is None):
            raise InputError(f"{name}: give `client`, a name for each row, or `partition`, one of them")
        if len(x) != len(y) or (client is not None and len(client) != len(x)):
            rows = "" if client is None else f", client {len(client)}"
            raise InputError(f"{name}: x has {len(x)} rows, y {len(y)}{rows}: they must agree")
        if y.ndim == 1 and not y.is_floating_point():
            y = y.long()
            labels = labels or _codes_named(y, name)
        if labels and len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(labels):
            raise InputError(
                f"{name}: label codes are {int(y.min())} to {int(y.max())} and {len(labels)} labels are named: "
                f"codes must be 0 to {len(labels) - 1}"
            )
        if split.by == "time" and time is None:
            raise InputError(f"{name}: split.by is time and there are no times; give `time`, or split by label")
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
            raise InputError(f"{name}: x has NaN or Inf in row {row}; fill them, or load the table from Parquet or CSV")
        if partition is not None:
            partition = partition_of(partition)
            codes = assign(partition, y, seed, time, name).numpy()
            names = client_names(partition.clients)
        else:
            found, codes = np.unique(np.asarray(client, dtype=str), return_inverse=True)
            names = tuple(found.tolist())
        order = torch.from_numpy(np.argsort(codes, kind="stable"))
        rows_of = order.split(np.bincount(codes, minlength=len(names)).tolist())
        parts = [split_rows(rows, y, split, seed, c, time) for c, rows in zip(names, rows_of, strict=True)]
        train, validation, test = (tuple(p[k] for p in parts) for k in range(3))
        return cls(
            name=name, x=x, y=y, clients=names, labels=tuple(labels), columns=tuple(columns), notes=tuple(notes),
            train=train, validation=validation, test=test, time=time,
        )  # fmt: skip

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        client: Sequence[str] | Callable[[Any], str] | str | None = None,
        *,
        x: int | str = 0,
        y: int | str = 1,
        bound: int = 4 << 30,
        **options: Any,
    ) -> "Federation":
        """A federation from any map-style dataset: `len()`, and items that are tuples (x, y) or dicts with keys
        `x` and `y`. Read once into tensors; x: tensor, array, PIL image (grey or RGB, to uint8) or number;
        y: a class code, a class name, or a number. client: a name per row, a function of the item, the key of the
        item that holds it, or None with a `partition`. bound: bytes that x may take (default 4 GiB). Other options
        as in `from_arrays`.

        Raises InputError for a dataset without length or rows, items of unequal shape, or more than `bound` bytes."""
        from fedroute.data.sources.dataset import read

        data, target, owners, labels = read(dataset, client, x, y, bound)
        options.setdefault("labels", labels)
        options.setdefault("name", type(dataset).__name__)
        return cls.from_arrays(data, target, owners, **options)


def _codes_named(y: Tensor, name: str) -> tuple[str, ...]:
    low, high = (int(y.min()), int(y.max())) if len(y) else (0, -1)
    if low < 0 or high >= max(1000, len(y)):
        raise InputError(f"{name}: y has the integers {low} to {high}, and class codes are 0, 1, ...; number the "
                         "classes so, or give y.float() where it is a number to predict")  # fmt: skip
    return tuple(map(str, range(high + 1)))
