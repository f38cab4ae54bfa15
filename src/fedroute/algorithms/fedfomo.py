"""Each client is sent the models of some others, and moves towards those that do better on its own rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedroute.change import change, moved
from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.forward import loss_of
from fedroute.phase import certain, first_steps
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class FedFomo(Algorithm):
    """Zhang et al. 2021, "Personalized Federated Learning with First Order Model Optimization", equations 3 to 5 and
    algorithm 1. theta_i: client i's model; theta_n: those of the m others that it is sent; L_i: its loss.

        weights    a_n = (L_i(theta_i) - L_i(theta_n)) / |theta_n - theta_i|
        mixing     theta_i <- theta_i + sum_n a_n+ / (sum a_n+) (theta_n - theta_i),  a+ = max(a, 0)
        training   local steps from there; theta_i is sent, with a
        server     P_i <- P_i + a; the next others are those of highest P_i, and `explore` of them others

    There is no global model. A round costs a client m models down, one up; the server holds N (m + 1) of them. A client
    predicts with its theta_i. A newcomer is sent models like any other, and makes a round of its own.

    Deviations. L_i is measured on the first steps of a round, a share `s` of them, by m + 1 forward passes each, and
    the local training has the others; the paper keeps a validation set for it. Where the paper explores by chance, the
    `explore` of the m places go to those that the client has not been sent for longest, so that nothing depends on a
    draw. Norms are over the trainable shared weights; every shared weight that is no count is mixed. The server's
    optimiser and the say of clients have no part in it."""

    m: Annotated[int, Field(ge=1, description="how many others' models a client is sent")] = 5
    explore: Annotated[int, Field(ge=0, description="how many of them are those not sent for longest")] = 1
    s: Annotated[float, Field(gt=0, lt=1, description="share of a round's steps that measure")] = 0.2
    broadcast: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[tuple[str, ...]] = ("peers",)
    reduce: ClassVar[str] = "stack"
    sends: ClassVar[dict[str, str]] = {
        "dw": "change of the client's own model",
        "a": "for each model it was sent, how much better it does on the client's rows, a number",
    }
    weighting: ClassVar[str] = ""

    def _shared(self, w: Weights) -> Weights:
        return {k: v for k, v in w.items() if k not in self.kept}

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        n, shared = len(sizes), self._shared(w)
        return {
            "w": {},
            "models": {k: v.expand(n, *v.shape).clone() for k, v in shared.items()},
            "peers": {k: v.expand(n, self.m, *v.shape).clone() for k, v in shared.items()},
            "place": torch.full((n, n), -1),  # of client j among the others that i is sent
            "sent": torch.full((n, n), -1),  # the round in which i was last sent j
            "p": torch.zeros(n, n, dtype=next(v for v in w.values() if v.is_floating_point()).dtype),
            "heard": torch.zeros(n, dtype=torch.bool),
            "round": torch.tensor(0),
        }

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"local": self._shared(w)}

    def begin(self, ctx: Context) -> Tree:
        some = next(iter(ctx.private["local"].values()))
        carry = super().begin(ctx._replace(server={"w": ctx.private["local"]}))
        return carry | {"losses": some.new_zeros(self.m + 1), "rows": some.new_zeros(()), "a": some.new_zeros(self.m)}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        measuring = certain(ctx.step < first_steps(self.s, ctx.steps))
        found = carry, torch.zeros(())
        if measuring is not False:
            rows = carry["rows"] + len(batch["x"])
            losses = torch.lerp(carry["losses"], self._losses(batch, ctx), len(batch["x"]) / rows)
            a = self.weights(losses, ctx)
            w = carry["w"] | self._mixture(a, ctx)
            found = carry | {"losses": losses, "rows": rows, "a": a, "w": w}, loss_of(self, w, batch, ctx)
        if measuring is True:
            return found
        after, loss = super().step(carry, batch, ctx)
        return select(measuring, found[0], after), loss if measuring is False else loss.where(~measuring, found[1])

    def _losses(self, batch: Batch, ctx: Context) -> Tensor:
        """(m + 1,), of the models that were sent and of the client's own, last."""
        peers = [{k: v[n] for k, v in ctx.server["peers"].items()} for n in range(self.m)]
        return torch.stack([loss_of(self, w | ctx.private["w"], batch, ctx) for w in (*peers, ctx.private["local"])])

    def weights(self, losses: Tensor, ctx: Context) -> Tensor:
        """(m,): a. 0 for a model that differs from the client's own by rounding alone."""
        local = pick(ctx.private["local"], self.task.trainable)
        if not local:
            return torch.zeros_like(losses[:-1])
        square = [(ctx.server["peers"][k] - v).flatten(1).square().sum(1) for k, v in local.items()]
        apart, length = torch.stack(square).sum(0).sqrt(), torch.stack([v.square().sum() for v in local.values()]).sum()
        differs = apart > 1e-6 * (1 + length.sqrt())
        return torch.where(differs, (losses[-1] - losses[:-1]) / apart.where(differs, torch.ones_like(apart)), 0)

    def _mixture(self, a: Tensor, ctx: Context) -> Weights:
        share = a.clamp(min=0)
        share = share / share.sum().where(share.sum() > 0, torch.ones_like(share.sum()))
        return {
            k: v + torch.tensordot(share.to(v.dtype), ctx.server["peers"][k] - v, 1)
            for k, v in ctx.private["local"].items()
            if v.is_floating_point() and k in self.task.travels
        }

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        w, local = carry["w"], ctx.private["local"]
        dw = {k: change(w[k], v) for k, v in local.items() if k in self.task.travels}
        return {"dw": dw, "a": carry["a"]}, {"w": pick(w, self.kept), "local": pick(w, local)}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        at, models, p = mean["client"], dict(server["models"]), server["p"].clone()
        heard, now = server["heard"].clone(), server["round"] + 1
        heard[at] = True
        for k, d in mean["dw"].items():
            models[k] = models[k].clone()
            models[k][at] = moved(models[k][at], d)
        for n, i in enumerate(at.tolist()):
            known = server["place"][i] >= 0
            p[i, known] += mean["a"][n][server["place"][i][known]]
        place, sent, rows = torch.full_like(server["place"], -1), server["sent"].clone(), list[Tensor]()
        for i in range(len(heard)):
            others = self.choose(i, p[i], sent[i], heard)
            place[i, others] = torch.arange(len(others))
            sent[i, others] = now
            rows.append(torch.cat([others, torch.full((self.m - len(others),), i)]))  # itself where there are too few
        peers = {k: v[torch.stack(rows)] for k, v in models.items()}
        return server | {
            "models": models, "peers": peers, "place": place, "sent": sent, "p": p, "heard": heard, "round": now,
        }  # fmt: skip

    def choose(self, i: int, p: Tensor, sent: Tensor, heard: Tensor) -> Tensor:
        """The clients, at most m, whose models client i is sent next; p, sent, heard: (N,)."""
        others = [j for j in heard.nonzero().flatten().tolist() if j != i]
        longest = sorted(others, key=lambda j: (int(sent[j]), -float(p[j]), (j - i) % len(heard)))[: self.explore]
        best = sorted((j for j in others if j not in longest), key=lambda j: (-float(p[j]), (j - i) % len(heard)))
        return torch.tensor([*longest, *best][: self.m], dtype=torch.int64)

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**private["local"], **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]
