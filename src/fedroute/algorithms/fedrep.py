"""Clients with heads of their own over a shared body: first the head learns, then the body."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.parts import sharing, tuned, with_head
from fedroute.phase import first_steps
from fedroute.tree import Tree, pick, select


@dataclass(frozen=True, kw_only=True)
class FedRep(Algorithm):
    """Collins et al. 2021, "Exploiting Shared Representations for Personalized Federated Learning", algorithm 1: in a
    round client i first makes its updates of the head h_i with the body phi still, then those of phi with h_i still;
    phi is averaged, h_i stays.

    Of the round's K steps the first round(head_share K) are the head's, at least one, and the rest, at least one, the
    body's; a client with a single step moves both with it, which is FedPer's step. The paper's experiments make ten
    passes for the head and one or a few for the body: head_share 0.91 with local_epochs 11. Each part has an optimiser
    state of its own, so that momentum, weight decay or Adam move nothing out of its phase; statistics of batch norm
    belong to the part their layer is in.

    A newcomer trains a head of its own from the initial one, over the shared weights, which stay as they are, as the
    paper has it for new clients. Deviations: the head's phase is first-order steps on batches, not an exact minimiser;
    with more `private` than the head, all private weights move in the head's phase."""

    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the head")
    ] = ()
    head_share: Annotated[
        float, Field(gt=0, lt=1, description="the head's part of a round's steps, the first ones")
    ] = 0.5

    def bind(self, task: Task) -> Self:
        with_head(self, task)
        return sharing(super().bind(task))

    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("head", *self.private)

    @cached_property
    def phases(self) -> dict[str, frozenset[str]]:
        """The weights that move in each phase."""
        return {"head": self.kept, "body": frozenset(self.task.names) - self.kept}

    def begin(self, ctx: Context) -> Tree:
        w = ctx.server["w"] | ctx.private["w"]
        p = pick(w, self.task.trainable)
        return {"w": w, "opt": {part: self.optimizer.init(pick(p, names)) for part, names in self.phases.items()}}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        first = ctx.step < first_steps(self.head_share, ctx.steps)
        now = {"head": first | (ctx.steps == 1), "body": ~first}
        w, opt = dict(carry["w"]), {}
        for part, names in self.phases.items():
            old = carry["opt"][part]
            new, state = self.optimizer.update(pick(g, names), old, carry["w"], ctx.lr)
            w |= select(now[part], pick(new | buffers, names), pick(carry["w"], names))
            opt[part] = select(now[part], state, old)
        return {"w": w, "opt": opt}, loss

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return {"w": pick(tuned(self, ctx, batches, self.kept), self.kept)}
