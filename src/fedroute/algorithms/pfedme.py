"""Each client has a model of its own on a spring to the global one, which follows from where the springs pull."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.errors import InputError
from fedroute.task import Task
from fedroute.tree import Tree, Weights, axpy, pick, select


@dataclass(frozen=True, kw_only=True)
class PFedMe(Algorithm):
    """T Dinh et al. 2020, "Personalized Federated Learning with Moreau Envelopes", algorithm 1.
    Client i's loss f_i, its personal weights theta, its local copy w_i of the global weights w; F_i is the envelope
    F_i(w) = min over theta of f_i(theta) + lam/2 |theta - w|^2, whose gradient is lam (w - theta).

        inner problem   theta <- theta - inner_lr (g(theta) + lam (theta - w_i)), `inner_steps` times (K) on one batch
        local step      w_i <- w_i - eta lam (w_i - theta), eta the learning rate of the round (`training.lr`)
        server          w <- (1 - beta) w + beta mean of w_i

    theta starts a round at w and goes on from step to step. Shared: w. Kept: theta. Sent: w_i - w, never theta. A
    client predicts with theta; the global model is w: they are reported apart. A client that never trained predicts
    with w.

    lam = 0 is no federation: w stays where it was. For lam to infinity theta is w and the local step is that of FedAvg.

    `adaptive`: client i's spring is lam n / n_i, n_i its training rows and n the mean of the clients' rows, and never
    above the larger of lam and 1 / inner_lr, where the inner descent would overshoot. It is how the mean of n_i noisy
    observations is best shrunk towards a common mean (empirical Bayes): who has much data is held less.

    Deviations. In the paper every client makes its local round and the server takes in those of a few: here only the
    chosen clients train, so that the theta of the others is as old as their last round. The inner problem is solved by
    K gradient steps and not to a given accuracy. The local optimiser (momentum, Adam, weight decay) makes the local
    steps of w_i, the inner steps are plain. Private weights have no w: they follow theta without a spring, so that
    private: [norm] is FedBN with pFedMe (`pfedme_fedbn`). Statistics of batch norm are those seen by theta, renewed
    once a batch: a client keeps its own for its theta, and those of w are averaged, without beta. `adaptive` is ours.
    A newcomer makes one local round."""

    lam: Annotated[float, Field(ge=0, description="strength of the spring between theta and w")] = 15.0
    inner_steps: Annotated[int, Field(ge=1, description="K, gradient steps of theta on each batch")] = 5
    inner_lr: Annotated[float, Field(gt=0, description="learning rate of theta")] = 0.05
    beta: Annotated[float, Field(gt=0, description="how far the server goes towards the clients' mean")] = 1.0
    adaptive: Annotated[bool, Field(description="a spring for each client, by its training rows")] = False
    broadcast: ClassVar[tuple[str, ...]] = ("w", "rows")
    weighting: ClassVar[str] = "uniform"

    def bind(self, task: Task) -> Self:
        if self.lam * self.inner_lr >= 2:
            raise InputError(
                f"algorithm.inner_lr: {self.inner_lr:g} with lam {self.lam:g} lets theta run away from w, since "
                f"lam inner_lr is 2 or more: take inner_lr at most {1 / self.lam:.3g}"
            )
        return super().bind(task)

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        some = next(iter(pick(w, self.task.trainable).values()))
        rows = sizes.sum() / (sizes > 0).sum().clamp(min=1)
        return super().init(w, sizes) | {"rows": rows.to(some.dtype)}

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"theta": self._personal_part(w), "met": torch.tensor(False)}

    def _personal_part(self, w: Weights) -> Weights:
        return {k: v for k, v in pick(w, self.task.travels).items() if k not in self.kept}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        further = {k: self.beta * v for k, v in pick(mean["dw"], self.task.trainable).items()}
        return super().aggregate(server, mean | {"dw": mean["dw"] | further}, share)

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        return carry | {"theta": carry["w"]}

    def spring(self, ctx: Context) -> float | Tensor:
        """lam, or this client's."""
        if not self.adaptive:
            return self.lam
        if not ctx.counts.numel():
            raise InputError("algorithm.adaptive: counts a client's rows by their labels: leave it out where targets "
                             "are no classes")  # fmt: skip
        rows = ctx.server["rows"] / ctx.counts.sum().clamp(min=1).to(ctx.server["rows"].dtype)
        own: Tensor = self.lam * rows
        return own.clamp(max=max(self.lam, 1 / self.inner_lr))

    def pull(self, theta: Weights, w: Weights, ctx: Context) -> Weights:
        """lam (theta - w) for the trainable shared weights."""
        lam = self.spring(ctx)
        return {k: lam * (theta[k] - w[k]) for k in self.task.trainable if k not in self.kept}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        w, theta = carry["w"], carry["theta"]
        statistics = {k: v for k, v in theta.items() if k not in self.task.trainable}
        g, buffers, loss = self.grad(theta, batch, ctx)
        for k in range(self.inner_steps):
            if k:
                g, buffers, _ = self.grad(theta | statistics, batch, ctx)
            theta = axpy(-self.inner_lr, axpy(1.0, self.pull(theta, w, ctx), g), theta)
        envelope = {k: -v for k, v in self.pull(theta, w, ctx).items()}
        moved, opt = self.optimizer.update(envelope, carry["opt"], w, ctx.lr)
        return {"w": moved | pick(theta, self.kept) | buffers, "theta": theta | buffers, "opt": opt}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        trained = ctx.steps > 0
        theta = select(trained, self._personal_part(carry["theta"]), ctx.private["theta"])
        return up, kept | {"theta": theta, "met": ctx.private["met"] | trained}

    def personal(self, server: Tree, private: Tree) -> Weights:
        w = super().personal(server, private)
        return w | private["theta"] if bool(private["met"]) else w

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]
