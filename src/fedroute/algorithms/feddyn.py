"""FedAvg with a loss at each client that is bent until all clients agree on where the minimum of the mean is."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Context
from fedroute.tree import Tree, Weights, axpy, pick, zeros


@dataclass(frozen=True, kw_only=True)
class FedDyn(Algorithm):
    """Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", algorithm 1. theta: the server's weights;
    theta_k: client k's; g_k: its gradient state, the paper's estimate of grad L_k(theta_k), 0 at first; h: the mean of
    g_k over all m clients; P: those who answered.

        client    minimises L_k(theta_k) - <g_k, theta_k> + alpha/2 |theta_k - theta|^2
                  g_k <- g_k - alpha (theta_k - theta)
        server    h <- h - alpha/m sum_P (theta_k - theta);  theta <- mean_P theta_k - h / alpha

    At rest theta_k = theta and h = 0, so the gradients of the L_k at theta add up to zero: the optimum of the mean,
    also with local steps in any number, where FedAvg is biased.

    Sent: the change of the weights alone. Kept: g_k. h / alpha does not depend on alpha, but what holds it in
    check, the client's own terms, does: with K local steps an alpha far below 1 / (K lr) leaves the clients as in
    FedAvg while h goes on adding up. So the default is larger than what suits clients that work until the minimum.

    Deviations: the client makes a fixed amount of local work, and not until the minimum. States exist for the
    trainable shared weights only: statistics of batch norm are averaged as in FedAvg, private weights have no
    common optimum. Clients without rows are not among the m. Under a weighting that is not uniform every mean, and
    so h, is weighted likewise. With another server optimiser than sgd at rate 1 it takes mean_P theta_k - h / alpha
    - theta for the mean change."""

    alpha: Annotated[float, Field(gt=0, description="strength of the dynamic regulariser")] = 0.1
    weighting: ClassVar[str] = "uniform"
    uncapped: ClassVar[str] = (
        "FedDyn's h is the mean of g_k over all clients, and a say that depends on who else answered breaks that"
    )

    def _regularised(self, w: Weights) -> Weights:
        return {k: v for k, v in pick(w, self.task.trainable).items() if k not in self.kept}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        return super().init(w, sizes) | {"h": zeros(self._regularised(w))}

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"g": zeros(self._regularised(w))}

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        own, theta = ctx.private["g"], ctx.server["w"]
        return {k: v - own[k] + self.alpha * (w[k] - theta[k]) if k in own else v for k, v in g.items()}

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"g": axpy(-self.alpha, pick(up["dw"], ctx.private["g"]), ctx.private["g"])}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        h = axpy(-self.alpha * share, pick(mean["dw"], server["h"]), server["h"])
        corrected = axpy(-1 / self.alpha, h, mean["dw"])
        return super().aggregate(server, mean | {"dw": corrected}, share) | {"h": h}
