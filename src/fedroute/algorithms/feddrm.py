"""Clients with heads of their own, and a router trained along that tells which client a row comes from."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from fedroute.branch import Branched, Share, drawn, with_branch
from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.errors import InputError
from fedroute.features import head_of
from fedroute.parts import tuned, with_head
from fedroute.phase import certain
from fedroute.randomness import generator
from fedroute.tree import Tree, Weights, pick

SKETCH = 256  # numbers that a gradient is added up to; its length is kept to about 1 / sqrt(128)
FORGETS = 0.1  # the newest round's part in the drift


@dataclass(frozen=True, kw_only=True)
class FedDRM(Algorithm):
    """Wang et al. 2026, "Beyond Aggregation: Guiding Clients in Heterogeneous Federated Learning" (arXiv 2509.23049).
    g: what the shared body makes of x; f_i: client i's own head; h: the router's branch on g; z = c + xi h(g(x)).

        client i minimises   lam CE(f_i(g(x)), y) + (1 - lam) CE(z, i)

    over body, head and router. Shared and averaged by training rows: body and router; the head stays. At the optimum
    z_k is log q(k | x) up to a number of x, where clients come in proportion to their rows (their theorem 2.2).
    lam = 1 is FedPer; lam = 0.5 maximises the empirical likelihood; the paper takes 0.8 and 0.9.

    lam: auto takes lam = G_client^2 / (G_client^2 + G_label^2), at which the drift that both losses bring is smallest;
    G^2 is the variance between clients of a loss's gradient of the body, at the first batch of a round, averaged over
    rounds with a factor of 0.9; lam is 0.5 in the first one. For that each client sends 256 signed sums of either
    gradient, from which its length and that of the mean follow. detach: the router does not move the body, which learns
    as in FedPer; both losses then count whole and lam nothing. share: how many of the feature layers of a net of the
    zoo serve both; the router has copies of the rest, and with none it shares nothing. cells: the router tells pairs
    (client, label), of which a client's q is the sum.

    A client without training rows is no class of the router, and a newcomer trains a head alone. A client predicts with
    body and head; `router()` is the task whose module puts out z. Deviations: the router's layers that are copies start
    as what they copy, its own as torch begins linear layers. What the router reads is shared, since a query has no
    client: `private` may not name parts of it. With another weighting than by rows (`training.weighting`) q is as if
    clients came in those proportions."""

    sends: ClassVar[dict[str, str]] = Algorithm.sends | {
        "dg": "sketch and squared length of each loss's gradient, with lam auto; else nothing"
    }
    broadcast: ClassVar[tuple[str, ...]] = ("w", "rows", "lam")
    private: Annotated[
        tuple[str, ...], Field(description="roles or names of weights that stay with their client besides the head")
    ] = ()
    lam: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["auto"],
        Field(description="weight of the labels' loss, the router's has the rest; auto by the drift of the two"),
    ] = "auto"
    branch: Annotated[int, Field(ge=1, description="width of the router's own layer")] = 128
    share: Annotated[
        Share, Field(description="feature layers that labels and router share: none, shallow, mid or deep")
    ] = "deep"
    detach: Annotated[bool, Field(description="the router learns from the body and does not move it")] = False
    cells: Annotated[bool, Field(description="the router tells pairs of client and label")] = False

    def bind(self, task: Task) -> Self:
        with_head(self, task)
        cells = head_of(task)[1].out_features if self.cells else 1
        made = with_branch(task, self.branch, self.share, self.detach, cells)
        bound = super().bind(made)
        if kept := sorted(bound.kept & (made.trunk | made.branch)):
            raise InputError(
                f"algorithm.private: {kept[0]} would stay with its client, and the router reads with it: a query from "
                f"outside has no client; leave {', '.join(self.private)} out, or take fedper"
            )
        return bound

    @property
    def only_classes(self) -> bool:
        """Whether targets that are no classes are refused before the first round."""
        return self.cells

    @property
    def model(self) -> Branched:
        """The bound task."""
        assert isinstance(self.task, Branched)
        return self.task

    @cached_property
    def kept(self) -> frozenset[str]:
        return self.task.named("head", *self.private)

    @property
    def measures(self) -> bool:
        """Whether clients tell how their gradients differ."""
        return self.lam == "auto" and not self.detach

    # at the server
    def init(self, w: Weights, sizes: Tensor) -> Tree:
        grown = {k: w[k].new_zeros(len(sizes), *w[k].shape[1:]) for k in self.model.by_client}
        for rows in grown.values():
            if rows.dim() == 3:  # the offsets, which have no width, stay zero
                here, head = sizes > 0, head_of(self.model.plain)[1].weight
                shape = (int(here.sum()), *rows.shape[1:])
                rows[here] = drawn(head, shape, fan_in=rows.shape[2])[0]
        like = next(iter(grown.values()))
        lam = like.new_tensor(0.5 if self.lam == "auto" else self.lam)
        server = super().init({k: grown.get(k, v) for k, v in w.items()}, sizes)
        return server | {"rows": sizes, "lam": lam, "drift": like.new_zeros(2)}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        server = super().aggregate(server, mean, share)
        if not self.measures:
            return server
        sketch, square = mean["dg"][:, :-1], mean["dg"][:, -1]
        now = (square - sketch.square().sum(1)).clamp(min=0)  # of the labels' loss, of the router's
        told = now.min() > 0  # of a single client nothing differs
        drift = torch.where(told, torch.lerp(server["drift"], now, FORGETS), server["drift"])
        lam = torch.where(told, drift[1] / drift.sum(), server["lam"])
        return server | {"drift": drift, "lam": lam}

    # at the client
    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        label, client = self.task.loss(out, batch), self.client_loss(out[1], batch, ctx)
        if self.detach:
            return label + client
        lam: Tensor = ctx.server["lam"]
        return lam * label + (1 - lam) * client

    def client_loss(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        """(), cross entropy of z (B, N) or (B, N, C) where every row is this client's; clients without rows have no
        part."""
        z = z.flatten(1).masked_fill((ctx.server["rows"] == 0).repeat_interleave(self.cell_count), -torch.inf)
        cell = ctx.client * self.cell_count + (batch["y"] if self.cells else 0)
        return cross_entropy(z, cell.expand(z.shape[:1]))

    @property
    def cell_count(self) -> int:
        """C, cells of a client."""
        return head_of(self.model.plain)[1].out_features if self.cells else 1

    def begin(self, ctx: Context) -> Tree:
        carry = super().begin(ctx)
        like = carry["w"][min(self.model.by_client)]
        return carry | {"dg": like.new_zeros(2, SKETCH + 1 if self.measures else 0)}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        first = certain(ctx.step == 0) if self.measures else False
        if first is False:
            return super().step(carry, batch, ctx)
        both = torch.stack([self.sketch(self.side(lam, carry, batch, ctx)) for lam in (1.0, 0.0)])
        dg = both if first is True else torch.where(torch.as_tensor(first), both, carry["dg"])
        after, loss = super().step(carry, batch, ctx)
        return after | {"dg": dg}, loss

    def side(self, lam: float, carry: Tree, batch: Batch, ctx: Context) -> Weights:
        """The gradient of one of the two losses."""
        alone = ctx.server | {"lam": torch.full_like(ctx.server["lam"], lam)}
        return self.grad(carry["w"], batch, ctx._replace(server=alone))[0]

    @cached_property
    def signs(self) -> Weights:
        """Weights of the body -> signs, (P,) int8, that every client has the same."""
        w = pick(self.task.init(), self.model.trunk & {*self.task.trainable})
        drawn = {k: torch.rand(v.numel(), generator=generator("feddrm sketch", k)) for k, v in w.items()}
        return {k: (v < 0.5).to(torch.int8) * 2 - 1 for k, v in drawn.items()}

    def sketch(self, g: Weights) -> Tensor:
        """(SKETCH + 1,): signed sums of the numbers of a gradient, and their squared length, whose mean over signs is
        that of the gradient."""
        total = next(iter(g.values())).new_zeros(SKETCH)
        for k, signs in self.signs.items():
            signed = g[k].flatten() * signs.to(g[k])
            total = total + pad(signed, (0, -len(signs) % SKETCH)).view(-1, SKETCH).sum(0)
        return torch.cat([total, total.square().sum().unsqueeze(0)])

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up | {"dg": carry["dg"]}, kept

    # in use
    def predictor(self) -> Task:
        return self.model.plain

    def router(self) -> Task:
        """The task whose module puts out the clients' logits z, (B, N), up to a number of each row; with the server's
        weights. They are log q(client | x) where clients come in proportion to their training rows (`server["rows"]`);
        of a client without rows they mean nothing."""
        return self.model.clients

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {k: v for k, v in super().personal(server, private).items() if k not in self.model.branch}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return {"w": pick(tuned(self, ctx, batches, self.kept), self.kept)}
