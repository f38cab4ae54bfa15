"""How much each client counts in the mean of the updates: its say."""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class Weighting(BaseModel):
    """by: "examples" (training rows), "uniform", or "power" (rows to the power `power`; 0 is uniform, 1 examples).
    cap: the largest say one client may have among those who answered; what is over goes to the others in
    proportion. A cap below 1/n for n answers means uniform."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    by: Literal["examples", "uniform", "power"] = "examples"
    power: float = Field(0.5, ge=0, le=1)
    cap: float = Field(1.0, gt=0, le=1)

    def raw(self, sizes: Tensor) -> Tensor:
        """(n,) float64, not normalised and not capped: a function of each client alone."""
        n = sizes.double()
        exponent = {"examples": 1.0, "uniform": 0.0, "power": self.power}[self.by]
        return torch.where(n > 0, n**exponent, torch.zeros_like(n))

    def say(self, sizes: Tensor) -> Tensor:
        """(n,) float64, >= 0, sum 1: the say of clients with these training rows; 0 for a client without rows."""
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
