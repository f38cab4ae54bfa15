"""A federation: named clients and their rows, each row in the training, validation or test part of one client."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedroute.core import Batch
from fedroute.data.split import Split, split_rows
from fedroute.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Federation:
    """All rows once, in contiguous tensors; a client's part is an index into them.

    x: (R, ...) float, or uint8 images (read as 0..1 after `scale`); y: (R,) int64 class codes into `labels`,
    or any tensor of R rows that the task's loss takes (then `labels` is empty).
    clients: names, sorted; a client's number is its place here, so that the order of listing never matters.
    train, validation, test: one (n,) int64 index per client. notes: what loading found and did, for the user.
    columns: names of the columns of x where x is a table."""

    name: str
    x: Tensor
    y: Tensor
    clients: tuple[str, ...]
    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)

    def take(self, index: Tensor) -> Batch:
        """The rows of an index as a batch: "x" float, "y"."""
        x = self.x.index_select(0, index)
        return {"x": x.float() / 255 if x.dtype == torch.uint8 else x, "y": self.y.index_select(0, index)}

    def sizes(self, part: str = "train") -> Tensor:
        """(N,) int64, the rows of each client in a part."""
        return torch.tensor([len(i) for i in getattr(self, part)])

    @classmethod
    def from_arrays(
        cls,
        x: Tensor,
        y: Tensor,
        client: Sequence[str],
        *,
        name: str = "arrays",
        labels: Sequence[str] = (),
        split: Split | None = None,
        seed: int = 0,
        time: Tensor | None = None,
        columns: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> "Federation":
        """A federation of R rows; `client`: R names. Rows are split inside each client, by `seed` and the client's
        name (or by `time`, where split.by is "time"), so that one client's data never change another's parts.

        Raises InputError where x, y and client differ in length or a class code has no label."""
        if not len(x) == len(y) == len(client):
            raise InputError(f"{name}: x has {len(x)} rows, y {len(y)}, client {len(client)}: they must agree")
        if labels and len(y) and int(y.max()) >= len(labels):
            raise InputError(f"{name}: label code {int(y.max())} has no name: {len(labels)} labels are given")
        split = split or Split()
        rows: dict[str, list[int]] = {}
        for r, c in enumerate(client):
            rows.setdefault(str(c), []).append(r)
        names = tuple(sorted(rows))
        parts = [split_rows(torch.tensor(rows[c]), y, split, seed, c, time) for c in names]
        train, validation, test = (tuple(p[k] for p in parts) for k in range(3))
        return cls(
            name=name, x=x, y=y, clients=names, labels=tuple(labels), columns=tuple(columns), notes=tuple(notes),
            train=train, validation=validation, test=test,
        )  # fmt: skip
