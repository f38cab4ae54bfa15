"""A model with a second output beside its labels: which client a row comes from."""

import copy
import math
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, relu

from fedroute.errors import InputError
from fedroute.features import head_of
from fedroute.heads import Head, OfOutput, replace_head
from fedroute.models.nets import Net
from fedroute.randomness import generator
from fedroute.task import Task
from fedroute.tree import sha256

Share = Literal["none", "shallow", "mid", "deep"]
BY_CLIENT = ("rows", "offsets")  # a branch's weights that have a row for each client


class Branch(nn.Module):
    """z (B, ...) -> (B, N), logits of N clients, or (B, N, C) where each has C > 1 cells: layers of its own, where it
    has any, a linear layer with a norm over its width and ReLU, and a linear layer.

    The last one is made with one row, for a client, which is zero; with weights of N rows in their place it puts out N.
    The norm is written out and not a layer, since it is the router's and never one of those that clients keep."""

    def __init__(self, layers: nn.Module, inside: int, width: int, cells: int, like: nn.Linear):
        """like: the model's head, whose dtype it has and by whose first weights its own are drawn."""
        super().__init__()
        self.layers = layers
        weight, bias = drawn(like.weight, (width, inside), (width,), fan_in=inside)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.scale, self.shift = nn.Parameter(torch.ones_like(bias)), nn.Parameter(torch.zeros_like(bias))
        self.rows, self.offsets = (nn.Parameter(weight.new_zeros(1, cells, *rest)) for rest in ([width], []))

    def forward(self, z: Tensor) -> Tensor:
        h = linear(self.layers(z), self.weight, self.bias)
        h = relu(layer_norm(h, h.shape[-1:], self.scale, self.shift))
        cells: Tensor = linear(h, self.rows.flatten(0, 1), self.offsets.flatten()).unflatten(1, self.offsets.shape)
        return cells.squeeze(2)

    def by_client(self, z: Tensor) -> Tensor:
        """z (B, ...) -> (B, N), the logits of the clients."""
        cells: Tensor = self(z)
        return cells if cells.dim() == 2 else cells.logsumexp(2)


def drawn(like: Tensor, *shapes: tuple[int, ...], fan_in: int) -> list[Tensor]:
    """Uniform up to 1 / sqrt(fan_in) either way, as torch begins a linear layer, by a key that is the model's head,
    `like`, and the shapes."""
    draw = generator("branch", sha256({"w": like}), *(n for shape in shapes for n in shape))
    return [(torch.rand(shape, generator=draw).to(like) * 2 - 1) / math.sqrt(fan_in) for shape in shapes]


class BranchedHead(Head):
    """z (B, D) -> (label logits, the branch's): a branch on what the head is given."""

    branch: Branch
    detach: bool

    @classmethod
    def make(cls, head: nn.Linear, branch: Branch, detach: bool) -> Self:
        made = cls.of(head)
        made.branch, made.detach = branch, detach
        return made

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(z), self.branch(z.detach() if self.detach else z)


class BranchAlone(BranchedHead):
    """z (B, D) -> (B, N), the clients' logits; without the head's own weights."""

    @classmethod
    def make(cls, head: nn.Linear, branch: Branch, detach: bool) -> Self:
        made = super().make(head, branch, detach)
        made._parameters = {}
        return made

    def forward(self, z: Tensor) -> Tensor:  # type: ignore[override]
        return self.branch.by_client(z)


class BranchedNet(Net):
    """x -> (label logits, the branch's): a branch that leaves a net of the zoo after `cut` of its feature layers."""

    branch: Branch
    cut: int
    detach: bool

    @classmethod
    def make(cls, net: Net, branch: Branch, cut: int, detach: bool) -> Self:
        made = copy.copy(net)
        made.__class__ = cls
        assert isinstance(made, cls)
        made._modules = dict(net._modules)
        made.branch, made.cut, made.detach = branch, cut, detach
        return made

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        shared = self.features[: self.cut](x)
        z = self.features[self.cut :](shared)
        return self.head(self.neck(z)), self.branch(shared.detach() if self.detach else shared)


class BranchedNetAlone(BranchedNet):
    """x -> (B, N), the clients' logits; without what labels alone need."""

    @classmethod
    def make(cls, net: Net, branch: Branch, cut: int, detach: bool) -> Self:
        made = super().make(net, branch, cut, detach)
        del made._modules["neck"], made._modules["head"]
        made._modules["features"] = net.features[:cut]
        return made

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.branch.by_client(self.features(x))


class Branched(Task):
    """A task whose module puts out (label logits (B, K), logits of clients (B, N), or of their cells (B, N, C)), and
    whose loss is that of the labels. The weights of the branch have the role "router"; all others keep their names.

    plain: the task without a branch. clients: the task that puts out the clients' logits, (B, N), with the weights of
    `trunk` and `branch` alone; the others may be given too. trunk: what labels and clients are both told by. branch:
    the branch's own. by_client: those of them with a row for each client."""

    plain: Task
    clients: Task
    trunk: frozenset[str]
    branch: frozenset[str]
    by_client: frozenset[str]


class _Place(NamedTuple):
    """Where a branch leaves a net of the zoo: after `cut` feature layers; of the rest it has its own copy, `layers`."""

    cut: int
    layers: nn.Module
    inside: int


def with_branch(task: Task, width: int, share: Share, detach: bool, cells: int) -> Branched:
    """The task with a branch. Of a net of the zoo it leaves the feature layers where `share` says, of another model
    before its head.

    Raises InputError where the head is not one linear layer inside the model, or `share` is not "deep" and the model is
    not of the zoo."""
    name, head = head_of(task)
    module = task.module
    if isinstance(module, Net):
        place = _place(module, share)
        branch = Branch(place.layers, place.inside, width, cells, head)
        made = BranchedNet.make(module, branch, place.cut, detach)
        alone: nn.Module = BranchedNetAlone.make(module, branch, place.cut, detach)
        own, roles = "branch.", task.roles | {"branch.": "router"}
        both = Branched(made, roles, OfOutput(task.loss))
        clients = Task(alone, roles)
    else:
        if share != "deep":
            raise InputError(
                f"algorithm.share: {share} parts a net of the zoo among its layers, and this model is a "
                f"{type(module).__name__}: take deep, which hangs the branch on what the head is given"
            )
        branch = Branch(nn.Identity(), head.in_features, width, cells, head)
        own, added = f"{name}.branch.", {f"{name}.branch.": "router"}
        swapped = replace_head(task, BranchedHead.make(head, branch, detach), roles=added)
        both = Branched(swapped.module, task.roles | added, OfOutput(task.loss))
        clients = replace_head(task, BranchAlone.make(head, branch, detach), roles=added)
    both.plain, both.clients = task, clients
    both.branch = frozenset(k for k in both.names if k.startswith(own))
    both.trunk = frozenset(clients.names) - both.branch
    both.by_client = frozenset(own + k for k in BY_CLIENT)
    return both


def _place(net: Net, share: Share) -> _Place:
    """shallow: the first layer with weights is shared; mid: the first half of them; what has none, and norms, go with
    the layer before."""
    first = [i for i, m in enumerate(net.features) if any(p.dim() > 1 for p in m.parameters())]
    shared = {"none": 0, "shallow": 1, "mid": math.ceil(len(first) / 2), "deep": len(first)}[share]
    cut = first[shared] if shared < len(first) else len(net.features)
    before = net.neck[0] if isinstance(net.neck, nn.Sequential) else net.head
    assert isinstance(before, nn.Linear)
    rest = list(net.features)[cut:]
    return _Place(cut, copy.deepcopy(nn.Sequential(*rest)) if rest else nn.Identity(), before.in_features)
