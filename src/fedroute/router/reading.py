"""What routers of several kinds read of a federation's rows, each kind read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.router.inputs import RouterInput, part_of
from fedroute.task import Task


@dataclass(frozen=True, eq=False)
class Reading:
    """In a simulation, where a program has all rows, nothing need be read twice to try inputs and fits: statistics of
    images and passes through a model are the dear part. Each client's rows are still read by themselves.

    task, weights: the model and its shared weights. kept: (kind, part) -> of each client the numbers as they come."""

    federation: Federation
    task: Task | None
    weights: Mapping[str, Tensor] = field(repr=False)
    kept: dict[tuple[str, str], list[Tensor]] = field(default_factory=dict, repr=False)

    def of(
        self,
        kinds: str | Sequence[str],
        *,
        random_features: int | Mapping[str, int] = 0,
        width: float = 1.0,
        seed: int = 0,
    ) -> RouterInput:
        """`RouterInput.of`, from what is kept. Raises InputError as that does."""
        f = self.federation
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        plain = RouterInput.unscaled(names, self.task, self.weights, f)
        rows = {k: self._raw(k, "train") for k in names}
        return plain.scaled_by(rows, random_features=random_features, width=width, seed=seed)

    def rows(self, read: RouterInput, part: str = "train") -> list[Tensor]:
        """(n_i, D) of each client, what `read` reads of its part; of newcomers none."""
        raw = [self._raw(k, part) for k in read.kinds]
        return [read.standard(dict(zip(read.kinds, client, strict=True))) for client in zip(*raw, strict=True)]

    def _raw(self, kind: str, part: str) -> list[Tensor]:
        if (kind, part) not in self.kept:
            f, new = self.federation.as_queries(), {*self.federation.newcomers}
            read = RouterInput.unscaled(kind, self.task, self.weights, f)
            empty = read.raw(f.x[:1])[kind][:0] if len(f.x) else torch.zeros(0, 0, dtype=torch.float64)
            self.kept[kind, part] = [
                torch.cat([empty, *(read.raw(x)[kind] for x in part_of(f, i, part) if i not in new)])
                for i in range(len(f.clients))
            ]
        return self.kept[kind, part]
