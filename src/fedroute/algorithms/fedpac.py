"""Features pulled towards common class centroids, and for each client the mixture of heads that suits it best."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from fedroute.change import change, moved
from fedroute.core import Algorithm, Batch, Context, run_client
from fedroute.features import head_of
from fedroute.forward import output
from fedroute.heads import TellingHead, replace_head
from fedroute.phase import first_steps
from fedroute.task import Task
from fedroute.tree import Tree, Weights, pick, select


@dataclass(frozen=True, kw_only=True)
class FedPAC(Algorithm):
    """Xu et al. 2023, "Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
    algorithm 1. f: the body, (B, D) features, one for all; phi_i: client i's head; c_k: the centroid of class k over
    all clients, mu_ik that of client i; p_ik: the share of its rows that are of class k.

        local      first phi_i with f fixed, then f with phi_i fixed, on F_i + lam mean |f(x) - c_y|^2 (equation 6)
        f          <- the mean of the clients' f;   c_k <- the mean of the features of all rows of class k
        heads      phi_i <- sum_j alpha_ij phi_j, alpha_i = argmin over the simplex of
                   sum_j alpha_j^2 V_j + |h_i - sum_j alpha_j h_j|^2 (equation 11), with h_ik = p_ik mu_ik and
                   V_j = (mean |f|^2 - sum_k |h_jk|^2) / n_j, n_j its training rows

    Down come f, c and the client's own mixture of heads; up go the changes of f and of the head, and sums of features
    by class, which tell the label counts of the client. A client predicts with f and phi_i as it last trained them.

    Deviations. The head has the first steps of a round, a share `head_share` of them (at least one and never the last;
    a round of one step trains both). Sums of features are of the server's f, over the rows of this round's batches, in
    training mode, by a second forward pass; the paper measures h and V so, but the centroids with the f just trained.
    The mean squared distance is over the D features. Centroids of classes that no row of the round had stay, and
    classes never seen pull nowhere. The quadratic programme is solved exactly as a non-negative least-squares
    problem. Clients never heard get the mean of the heads. A private head is mixed with nobody's."""

    only_classes: ClassVar[bool] = True  # targets that are no classes are refused before the first round
    lam: Annotated[float, Field(ge=0, description="strength of the pull to the centroids")] = 1.0
    head_share: Annotated[float, Field(ge=0, lt=1, description="share of a round's steps that train the head")] = 0.2
    broadcast: ClassVar[tuple[str, ...]] = ("w", "c", "known")
    own: ClassVar[tuple[str, ...]] = ("head",)
    reduce: ClassVar[str] = "stack"
    sends: ClassVar[dict[str, str]] = {
        "dw": "change of the shared weights, the client's own head among them",
        "n": "rows of each class",
        "sum": "sum of the features of the rows of each class",
        "square": "sum of the squared lengths of the features: one number",
    }

    def bind(self, task: Task) -> "FedPAC":
        return super().bind(replace_head(task, TellingHead.of(head_of(task)[1])))

    def _heads(self) -> frozenset[str]:
        """The names of the head's weights that are mixed."""
        return frozenset(k for k in self.task.named("head") if k not in self.kept)

    def init(self, w: Weights, sizes: Tensor) -> Tree:
        one = super().init(w, sizes)
        head, n = pick(w, self._heads()), len(sizes)
        linear = head_of(self.task)[1]
        body = {k: v for k, v in one["w"].items() if k not in head}
        return {
            "w": body,
            "opt": self.server_optimizer.init(pick(body, self.task.trainable)),
            "head": {k: v.expand(n, *v.shape).clone() for k, v in head.items()},
            "c": torch.zeros_like(linear.weight.detach()),
            "known": torch.zeros(linear.out_features, dtype=linear.weight.dtype),
            "rows": sizes,
            "heard": torch.zeros(n, dtype=torch.bool),
        }

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"local": {k: v for k, v in w.items() if k not in self.kept}}

    @cached_property
    def phases(self) -> dict[str, frozenset[str]]:
        """The weights that move in each phase of a round."""
        head = self.task.named("head")
        return {"head": head, "body": frozenset(self.task.names) - head}

    def begin(self, ctx: Context) -> Tree:
        w, c = _whole(ctx).server["w"] | ctx.private["w"], ctx.server["c"]
        p = pick(w, self.task.trainable)
        opt = {part: self.optimizer.init(pick(p, names)) for part, names in self.phases.items()}
        return {"w": w, "opt": opt, "n": c.new_zeros(len(c)), "sum": torch.zeros_like(c), "square": c.new_zeros(())}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        y = batch["y"]
        apart = (out[1] - ctx.server["c"][y]).square().mean(1) * ctx.server["known"][y]
        total: Tensor = self.task.loss(out, batch) + self.lam * apart.mean()
        return total

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        g, buffers, loss = self.grad(carry["w"], batch, ctx)
        g, first = self.direction(g, carry["w"], ctx), ctx.step < first_steps(self.head_share, ctx.steps)
        now = {"head": first | (ctx.steps == 1) if self.head_share else True, "body": ~first}
        w, opt = dict(carry["w"]), {}
        for part, names in self.phases.items():  # optimisers apart: momentum and decay move nothing out of its phase
            old = carry["opt"][part]
            new, state = self.optimizer.update(pick(g, names), old, carry["w"], ctx.lr)
            w |= select(now[part], pick(new | buffers, names), pick(carry["w"], names))
            opt[part] = select(now[part], state, old)
        z = output(self, _whole(ctx).server["w"] | ctx.private["w"], batch)[1]
        mine = one_hot(batch["y"], len(ctx.server["c"])).to(z.dtype)
        sums = {"n": mine.sum(0), "sum": mine.T @ z, "square": z.square().sum()}
        return {"w": w, "opt": opt} | {k: carry[k] + v for k, v in sums.items()}, loss

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, _whole(ctx))
        heads = ctx.server["head"]
        dw = up["dw"] | {k: change(carry["w"][k], v) for k, v in heads.items() if k in self.task.travels}
        local = select(ctx.steps > 0, pick(carry["w"], ctx.private["local"]), ctx.private["local"])
        return {"dw": dw} | {k: carry[k] for k in ("n", "sum", "square")}, kept | {"local": local}

    def aggregate(self, server: Tree, mean: Tree, share: float) -> Tree:
        at, say, heads = mean["client"], mean["say"], server["head"]
        body = {k: torch.tensordot(say.to(v.dtype), v, 1) for k, v in mean["dw"].items() if k not in heads}
        after = super().aggregate({"w": server["w"], "opt": server["opt"]}, {"dw": body}, share)
        n, total = mean["n"].sum(0), mean["sum"].sum(0)
        c = torch.where((n > 0).unsqueeze(1), total / n.clamp(min=1).unsqueeze(1), server["c"])
        heard = server["heard"].clone()
        heard[at] = True
        alpha = combination(mean["n"], mean["sum"], mean["square"], server["rows"][at])
        new = {}
        for k, v in heads.items():
            sent = moved(v[at], mean["dw"][k]) if k in mean["dw"] else v[at]
            mixed = v.clone()
            mixed[~heard] = torch.tensordot(say.to(v.dtype), sent, 1)
            mixed[at] = torch.tensordot(alpha.to(v.dtype), sent, 1)
            new[k] = mixed
        known = torch.maximum(server["known"], (n > 0).to(server["known"].dtype))
        return server | after | {"head": new, "c": c, "known": known, "heard": heard}

    def personal(self, server: Tree, private: Tree) -> Weights:
        return {**private["local"], **private["w"]}

    def adapt(self, ctx: Context, batches: Iterable[Batch]) -> Tree:
        return run_client(self, ctx, batches)[1]


def combination(n: Tensor, total: Tensor, square: Tensor, rows: Tensor) -> Tensor:
    """(m, m) float64, in row i the alpha_i of each of m clients, >= 0 and of sum one. n: (m, K) rows of each class;
    total: (m, K, D) sums of their features; square: (m,) sums of squared lengths; rows: (m,) training rows.

    The minimum of |A alpha|^2 over the simplex is where that of |A beta|^2 + (sum beta - 1)^2 over beta >= 0 points."""
    from scipy.optimize import nnls

    seen = n.double().sum(1).clamp(min=1)
    h = (total.double() / seen[:, None, None]).flatten(1)
    v = (square.double() / seen - h.square().sum(1)).clamp(min=0) / rows.double().clamp(min=1)
    found = []
    for i in range(len(h)):
        a = torch.cat([v.sqrt().diag(), (h[i] - h).T, torch.ones(1, len(h), dtype=torch.float64)])
        b = torch.zeros(len(a), dtype=torch.float64)
        b[-1] = 1
        beta = torch.from_numpy(nnls(a.numpy(), b.numpy())[0])
        found.append(beta / beta.sum())
    return torch.stack(found)


def _whole(ctx: Context) -> Context:
    """The context with the client's mixture of heads among the server's weights."""
    return ctx._replace(server=ctx.server | {"w": ctx.server["w"] | ctx.server["head"]})
