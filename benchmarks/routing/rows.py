"""What is read of all rows of a federation once: statistics of images, columns of tables, and what a model says."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.routing.train import Trained
from fedroute.data.federation import Federation
from fedroute.evaluate.predict import predict
from fedroute.features import head_of
from fedroute.heads import TellingHead, replace_head
from fedroute.models.nets import Net
from fedroute.router.inputs import RouterInput
from fedroute.router.style import style
from fedroute.task import Task
from fedroute.tree import sha256


@dataclass
class Rows:
    """A federation, its queries and what is read of its rows x, all (R, D) float64. The queries of a part are the rows
    of all clients, one client after the other; whose they are is known to the measurement alone."""

    f: Federation
    cache: Path
    name: str

    def queries(self, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, owner, y) of a part."""
        rows: tuple[Tensor, ...] = getattr(self.f, part)
        owner = torch.cat([torch.full((len(r),), i) for i, r in enumerate(rows)])
        return torch.cat(rows), owner, self.f.y[torch.cat(rows)]

    @cached_property
    def outside(self) -> Tensor:
        """What can be read of x without a model: style of images, columns of tables. Kept where they are many."""
        kept = self.cache / f"{self.name}-outside-{sha256({'x': self.f.x[::97]})[:12]}.safetensors"
        if kept.exists():
            return load_file(kept)["z"].double()
        if self.f.x.ndim != 4:
            return RouterInput.of("columns", None, {}, self.f).read(self.f.x)
        z = style(self.f.x)
        if len(z) > 20_000:
            save_file({"z": z.float()}, kept)
        return z


@dataclass
class Said:
    """What a trained model says of every row."""

    deep: Tensor  # (R, D), what the head is given
    body: Tensor  # (R, F), what the layers before its neck put out
    heads: Tensor  # (R, N, K) log-probabilities by each client's own model; (R, 1, K) where there is one for all
    branch: Tensor | None  # (R, N)


def said(t: Trained, f: Federation) -> Said:
    """One pass of the body over all rows; heads by one product."""
    task, w = t.algorithm.predictor(), t.personal(0)
    name, head = head_of(task)
    deep = predict(Task(_Second(replace_head(task, TellingHead.of(head)).module), {}), _inside(w), f.x).double()
    net = task.module
    body = deep
    if isinstance(net, Net) and not isinstance(net.neck, nn.Identity):
        body = predict(Task(nn.Sequential(OrderedDict(features=net.features))), w, f.x).double()
    own = [t.personal(i) for i in range(len(f.clients))]
    if all(o[f"{name}.weight"] is own[0][f"{name}.weight"] for o in own):
        own = own[:1]
    weight, bias = (torch.stack([o[f"{name}.{k}"] for o in own]) for k in ("weight", "bias"))
    heads = (torch.einsum("rd,nkd->rnk", deep, weight.double()) + bias.double()).log_softmax(2)
    router = getattr(t.algorithm, "router", None)
    branch = predict(router(), t.server["w"], f.x).double() if router else None
    return Said(deep, body, heads, branch)


def _inside(w: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"inner.{k}": v for k, v in w.items()}


class _Second(nn.Module):
    """The second of what a module puts out."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)[1]
        return out
