"""FedProx."""

from dataclasses import dataclass

from fedroute.core import Algorithm, Context
from fedroute.tree import Weights


@dataclass(frozen=True, kw_only=True)
class FedProx(Algorithm):
    """Li et al. 2020, "Federated Optimization in Heterogeneous Networks", algorithm 2: client i minimises
    F_i(w) + mu/2 |w - w_server|^2. Private weights have no server value and so no pull."""

    mu: float = 0.01

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        anchor = ctx.server["w"]
        return {k: v + self.mu * (w[k] - anchor[k]) if k in anchor else v for k, v in g.items()}
