"""FedAvg whose clients are drawn to the global model's features and away from their own former ones."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedroute.core import Algorithm, Batch, Context
from fedroute.features import head_of
from fedroute.heads import TellingHead, replace_head
from fedroute.parts import copies
from fedroute.task import Task
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class Moon(Algorithm):
    """Li et al. 2021, "Model-Contrastive Federated Learning", algorithm 1 and equations 3 and 4. z, z_glob, z_prev: the
    features of a row by the local model, the server's, and the client's own at the end of its last round; sim: cosine.

        l_con = -log( exp(sim(z, z_glob)/tau) / (exp(sim(z, z_glob)/tau) + exp(sim(z, z_prev)/tau)) )
        l     = l_sup + mu l_con

    Features are what enters the head, a linear layer (role "head"). Kept: the weights below the head as they were after
    the last round. Sent: what FedAvg sends. mu = 0 is FedAvg.

    Deviations: no projection head is added to the model: one that it has, such as the neck of a zoo model, lies before
    the features. A client that has never trained has the initial weights for its former ones. The two other models see
    the batch as the local one does, so batch norm normalises by the batch; what it would note is thrown away."""

    mu: Annotated[float, Field(ge=0, description="weight of the contrastive loss")] = 1.0
    tau: Annotated[float, Field(gt=0, description="temperature of the contrastive loss")] = 0.5

    def bind(self, task: Task) -> Self:
        _, head = head_of(task)
        return super().bind(replace_head(task, TellingHead.of(head)))

    def _below(self, w: Weights) -> Weights:
        """The trained weights that make the features; batch norm takes its statistics from the batch."""
        head, _ = head_of(self.task)
        return {k: v for k, v in pick(w, self.task.trainable).items() if not k.startswith(head + ".")}

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"before": copies(self._below(w))}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        supervised = super().loss(out, batch, ctx)
        if not self.mu:
            return supervised
        others: tuple[Weights, Weights] = ({}, ctx.private["before"])
        z = out[1].flatten(1)
        near, far = (cosine_similarity(z, self._features(other, batch, ctx), dim=1) for other in others)
        return supervised + self.mu * softplus((far - near) / self.tau).mean()

    def _features(self, other: Weights, batch: Batch, ctx: Context) -> Tensor:
        """(B, D) of the server's model, with these weights in the place of its own."""
        w = ctx.server["w"] | ctx.private["w"] | other
        mine = (ctx.client * 0).detach()  # makes a buffer one of this client, where clients are mapped over
        w = w | {k: v + mine.to(v.dtype) for k, v in w.items() if k not in self.task.trainable}
        out: tuple[Any, Tensor] = self.task(w, batch["x"])
        return out[1].flatten(1)

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"before": select(ctx.steps > 0, self._below(carry["w"]), ctx.private["before"])}
