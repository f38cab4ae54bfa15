"""Rules that bound what a few broken or hostile answers can do to a round, in the place of the mean."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:  # a config is read without torch
    from collections.abc import Container

    from torch import Tensor

    from fedroute.tree import Tree
    from fedroute.weighting import Weighting


class Robust(BaseModel):
    """rule: "median", of each coordinate, of an even number the mean of the middle two; "trimmed", the mean of each
    coordinate without its f largest and f smallest values (both Yin et al. 2018, "Byzantine-Robust Distributed
    Learning: Towards Optimal Statistical Rates", definitions 1 and 2); "krum", of n updates the one with the smallest
    sum of squared distances to its n - f - 2 nearest, and "multikrum", the mean of the n - f - 2 updates of the
    smallest such sums (Blanchard et al. 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
    Descent", sections 4 and 5); "clip", the weighted mean of updates of which none is longer than `bound`.

    f: how many of a round's answers may be broken; 1 by default. bound: the largest length of a change, by default the
    median of the lengths of this round's changes. All but "clip" count every client once, whatever its rows: with a
    say by rows, one client could own the median."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    rule: Literal["median", "trimmed", "krum", "multikrum", "clip"]
    f: int | None = Field(None, ge=0)
    bound: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Options that would be ignored are refused."""
        if self.f is not None and self.rule in ("median", "clip"):
            raise ValueError(f"f belongs to trimmed, krum and multikrum; {self.rule} has none")
        if self.bound is not None and self.rule != "clip":
            raise ValueError(f"bound belongs to clip; {self.rule} has none")
        return self

    @property
    def broken(self) -> int:
        """f, with its default filled in."""
        return 1 if self.f is None else self.f

    @property
    def needs(self) -> int:
        """The answers without which the rule says nothing: n > 2 f for trimmed, n > 2 f + 2 for Krum (its
        proposition 1)."""
        return {"trimmed": 2 * self.broken + 1, "krum": 2 * self.broken + 3, "multikrum": 2 * self.broken + 3}.get(
            self.rule, 1
        )


class RobustMean:
    """What a rule makes of the updates of a round, in any order of coming: a tree like an update. All are held.

    trainable: the weights by which a change is measured for "clip"; statistics are scaled with them."""

    def __init__(self, robust: Robust, weighting: "Weighting", trainable: "Container[str]") -> None:
        self.robust, self.weighting, self.trainable = robust, weighting, trainable
        self.updates, self.sizes = list["Tree"](), list[float]()

    def add(self, update: "Tree", client: int, size: float, discount: float = 1.0) -> None:
        """discount: of the size of a late answer, which only "clip" looks at."""
        self.updates.append(update)
        self.sizes.append(size * discount)

    def value(self) -> "Tree":
        import torch

        from fedroute.tree import tree_map

        stacked = tree_map(lambda *leaves: torch.stack(leaves), *self.updates)
        match self.robust.rule:
            case "median":
                return tree_map(_median, stacked)
            case "trimmed":
                return tree_map(lambda v: _trimmed(v, self.robust.broken), stacked)
            case "krum" | "multikrum":
                chosen = krum(stacked, self.robust.broken, one=self.robust.rule == "krum")
                return tree_map(lambda v: v[chosen].mean(0), stacked)
            case "clip":
                return self._clipped(stacked)

    def _clipped(self, stacked: "Tree") -> "Tree":
        import torch

        from fedroute.tree import tree_map

        lengths = torch.stack([v.flatten(1).double().square().sum(1) for k, v in stacked["dw"].items()
                               if k in self.trainable]).sum(0).sqrt()  # fmt: skip
        bound = self.robust.bound or float(_median(lengths))
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        say = self.weighting.say(sizes) * (bound / lengths.clamp(min=1e-300)).clamp(max=1)
        return tree_map(lambda v: torch.tensordot(say.to(v.dtype), v, 1), stacked)


def krum(stacked: "Tree", f: int, *, one: bool) -> "Tensor":
    """The places, ascending, of the updates that Krum (one) or Multi-Krum (n - f - 2) chooses; leaves: (n, ...)."""
    import torch

    from fedroute.tree import flatten

    leaves = [v.flatten(1).double() for v in flatten(stacked).values()]
    n = len(leaves[0])
    apart = torch.stack([sum(((v - v[i]).square().sum(1) for v in leaves), torch.zeros(n)) for i in range(n)])
    apart.fill_diagonal_(torch.inf)
    near = n - f - 2
    scores = apart.sort(1).values[:, :near].sum(1)
    return scores.argsort(stable=True)[: 1 if one else near].sort().values


def _median(v: "Tensor") -> "Tensor":
    return _trimmed(v, (len(v) - 1) // 2)


def _trimmed(v: "Tensor", f: int) -> "Tensor":
    """The mean over the first dimension of all but the f largest and the f smallest values of each coordinate."""
    inner: Any = v.sort(0).values[f : len(v) - f]
    mean: Tensor = inner.mean(0)
    return mean
