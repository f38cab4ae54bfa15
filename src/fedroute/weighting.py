"""How much each client counts in the mean of the updates: its say."""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # a config is read without torch
    from torch import Tensor

    from fedroute.data.federation import Federation
    from fedroute.tree import Tree


class Weighting(BaseModel):
    """by: "examples" (training rows), "uniform", "power" (rows to the power `power`; 0 is uniform, 1 examples),
    "effective" (different training rows: copies count once), or "validation" (training rows times quality: exp(-L), L
    the mean loss, on the client's own validation rows, of the weights that its training ended with; see
    `engines.quality`. It is computed at the client, and the number alone is sent).
    cap: the largest say one client may have among those who answered; what is over goes to the others in
    proportion. A cap below 1/n for n answers means uniform."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    by: Literal["examples", "uniform", "power", "effective", "validation"] = "examples"
    power: float = Field(0.5, ge=0, le=1)
    cap: float = Field(1.0, gt=0, le=1)

    def counted(self, federation: "Federation") -> "Tensor":
        """(N,) int64, the rows that count for each client, before its quality; of a newcomer none."""
        sizes = federation.training_sizes()
        return sizes.minimum(federation.effective_sizes) if self.by == "effective" else sizes

    def raw(self, sizes: "Tensor") -> "Tensor":
        """(n,) float64, not normalised and not capped: a function of each client alone. sizes: the rows that count,
        times the client's quality where that counts."""
        import torch

        n = sizes.double()
        exponent = {"uniform": 0.0, "power": self.power}.get(self.by, 1.0)
        return torch.where(n > 0, n**exponent, torch.zeros_like(n))

    def say(self, sizes: "Tensor") -> "Tensor":
        """(n,) float64, >= 0, sum 1: the say of clients with these training rows; 0 for a client without rows."""
        import torch

        p = self.raw(sizes)
        p = p / p.sum().clamp(min=torch.finfo(p.dtype).tiny)
        limit = max(self.cap, 1 / max(1, int((p > 0).sum())))
        capped = torch.zeros_like(p, dtype=torch.bool)
        while bool((p > limit * (1 + 1e-12)).any()):
            capped |= p >= limit
            free = p.where(~capped & (p > 0), torch.zeros_like(p))
            room = 1 - limit * int(capped.sum())
            p = torch.where(capped, torch.full_like(p, limit), free * room / free.sum().clamp(min=1e-300))
        return p


class Stack:
    """The updates themselves, for an algorithm that looks at each: leaves (n, ...), with "client" and "say", (n,)."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting, self.updates, self.clients, self.sizes = weighting, list["Tree"](), list[int](), list[float]()
        self.discounts = list[float]()

    def add(self, update: "Tree", client: int, size: float, discount: float = 1.0) -> None:
        self.updates.append(update)
        self.clients.append(client)
        self.sizes.append(size)
        self.discounts.append(discount)

    def value(self) -> "Tree":
        import torch

        from fedroute.tree import tree_map

        stacked = tree_map(lambda *leaves: torch.stack(leaves), *self.updates)
        say = self.weighting.say(_counts(self.sizes))
        if min(self.discounts) < 1:
            say = say * _counts(self.discounts)
            say = say / say.sum()
        return stacked | {"client": torch.tensor(self.clients), "say": say}


class RunningMean:
    """The weighted mean of updates as they come, summed in the order of coming, so that no two need be held at once
    (with a cap, which looks at all sizes, they are held until the end). A client never added leaves no trace."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting = weighting
        self.total: Tree = {}
        self.weight = 0.0
        self.sizes: list[float] = []
        self.held: list[tuple[Tree, float]] = []

    def add(self, update: "Tree", client: int, size: float, discount: float = 1.0) -> None:
        """`size`: the client's training rows, or what else counts (see `Weighting.raw`). discount: what its say is
        multiplied with, of a late answer."""
        self.sizes.append(size)
        if self.weighting.cap < 1:
            self.held.append((update, discount))
        else:
            self._sum(update, discount * float(self.weighting.raw(_counts([size]))))

    def _sum(self, update: "Tree", a: float) -> None:
        from fedroute.tree import tree_map

        if not self.total:
            self.total = tree_map(lambda x: x * a, update)
        else:
            tree_map(lambda t, x: t.add_(x, alpha=a), self.total, update)
        self.weight += a

    def value(self) -> "Tree":
        """The mean. The say of those added sums to one."""
        from fedroute.tree import tree_map

        if self.held:
            for (update, discount), a in zip(self.held, self.weighting.say(_counts(self.sizes)).tolist(), strict=True):
                self._sum(update, discount * a)
        return tree_map(lambda t: t / self.weight, self.total)


def _counts(sizes: list[float]) -> "Tensor":
    import torch

    return torch.tensor(sizes, dtype=torch.float64)
