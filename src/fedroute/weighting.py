"""How much each client counts in the mean of the updates: its say."""

from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # a config is read without torch
    from torch import Tensor

    from fedroute.data.federation import Federation
    from fedroute.tree import Tree


class Weighting(BaseModel):
    """by: "examples" (training rows), "uniform", "power" (rows to the power `power`; 0 is uniform, 1 examples), or
    "effective" (different training rows: copies count once).
    cap: the largest say one client may have among those who answered; what is over goes to the others in
    proportion. A cap below 1/n for n answers means uniform."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    by: Literal["examples", "uniform", "power", "effective"] = "examples"
    power: float = Field(0.5, ge=0, le=1)
    cap: float = Field(1.0, gt=0, le=1)

    def counted(self, federation: "Federation") -> "Tensor":
        """(N,) int64, the rows that count for each client; of a newcomer none."""
        sizes = federation.training_sizes()
        return sizes.minimum(federation.effective_sizes) if self.by == "effective" else sizes

    def raw(self, sizes: "Tensor") -> "Tensor":
        """(n,) float64, not normalised and not capped: a function of each client alone."""
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


class Say(NamedTuple):
    """What a weighting makes of one client: rows, different rows, its say by rows alone and its say."""

    client: str
    rows: int
    effective: int
    by_rows: float
    say: float


def effect(federation: "Federation", weighting: Weighting) -> list[Say]:
    """The say of each client where all answer, beside that which its rows alone would give it."""
    rows, effective = federation.training_sizes(), Weighting(by="effective").counted(federation)
    plain, say = Weighting().say(rows), weighting.say(weighting.counted(federation))
    columns = zip(rows.tolist(), effective.tolist(), plain.tolist(), say.tolist(), strict=True)
    return [Say(c, *each) for c, each in zip(federation.clients, columns, strict=True)]


def remarks(federation: "Federation", weighting: Weighting) -> list[str]:
    """What a user should know of it before training: a client with over half the say, copies that give it, a cap that
    takes from some. Nothing where there is nothing to say."""
    counted = weighting.counted(federation)
    free = weighting.model_copy(update={"cap": 1.0}).say(counted).tolist()
    say, said = weighting.say(counted).tolist(), list[str]()
    for i, name in enumerate(federation.clients):
        if say[i] > 0.5 and len(say) > 1:
            rest = max(s for j, s in enumerate(say) if j != i)
            text = f"weighting: {name} has {say[i]:.1%} of the say, each of the others at most {rest:.1%}"
            rows, different = int(counted[i]), int(federation.effective_sizes[i])
            if weighting.by in ("examples", "power") and different < rows / 2:
                text += f"; of its {rows} rows only {different} are different: see training.weighting.by: effective"
            said.append(f"{text}; training.weighting.cap bounds it")
        elif say[i] < free[i] - 1e-9:
            said.append(f"weighting: the cap leaves {name} {say[i]:.1%} of the say, of {free[i]:.1%}")
    return said


class Stack:
    """The updates themselves, for an algorithm that looks at each: leaves (n, ...), with "client" and "say", (n,)."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting, self.updates, self.clients, self.sizes = weighting, list["Tree"](), list[int](), list[int]()

    def add(self, update: "Tree", client: int, size: int) -> None:
        self.updates.append(update)
        self.clients.append(client)
        self.sizes.append(size)

    def value(self) -> "Tree":
        import torch

        from fedroute.tree import tree_map

        stacked = tree_map(lambda *leaves: torch.stack(leaves), *self.updates)
        return stacked | {"client": torch.tensor(self.clients), "say": self.weighting.say(torch.tensor(self.sizes))}


class RunningMean:
    """The weighted mean of updates as they come, summed in the order of coming, so that no two need be held at once
    (with a cap, which looks at all sizes, they are held until the end). A client never added leaves no trace."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting = weighting
        self.total: Tree = {}
        self.weight = 0.0
        self.sizes: list[int] = []
        self.held: list[Tree] = []

    def add(self, update: "Tree", client: int, size: int) -> None:
        """`size`: the client's training rows."""
        import torch

        self.sizes.append(size)
        if self.weighting.cap < 1:
            self.held.append(update)
        else:
            self._sum(update, float(self.weighting.raw(torch.tensor(size))))

    def _sum(self, update: "Tree", a: float) -> None:
        from fedroute.tree import tree_map

        if not self.total:
            self.total = tree_map(lambda x: x * a, update)
        else:
            tree_map(lambda t, x: t.add_(x, alpha=a), self.total, update)
        self.weight += a

    def value(self) -> "Tree":
        """The mean. The say of those added sums to one."""
        import torch

        from fedroute.tree import tree_map

        if self.held:
            for update, a in zip(self.held, self.weighting.say(torch.tensor(self.sizes)).tolist(), strict=True):
                self._sum(update, a)
        return tree_map(lambda t: t / self.weight, self.total)
