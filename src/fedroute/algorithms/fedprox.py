"""FedAvg with a spring to the server's weights in every local step."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedroute.core import Algorithm, Context
from fedroute.tree import Weights


@dataclass(frozen=True, kw_only=True)
class FedProx(Algorithm):
    """Li et al. 2020, "Federated Optimization in Heterogeneous Networks", algorithm 2: client i minimises
    h_i(w; w_server) = F_i(w) + mu/2 |w - w_server|^2, whose gradient is that of F_i plus mu (w - w_server).

    Deviations: clients do a fixed amount of local work and not until a gamma-inexact solution; the mean is weighted as
    the config says (the paper samples by size and averages uniformly). Private weights have no server value and so no
    pull."""

    mu: Annotated[float, Field(ge=0, description="strength of the spring to the server's weights")] = 0.01

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        anchor = ctx.server["w"]
        return {k: v + self.mu * (w[k] - anchor[k]) if k in anchor else v for k, v in g.items()}
