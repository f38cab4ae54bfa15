"""Any module: norms by type, wrappers off, roles, and buffers of every kind through the definition of a round."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedroute.algorithms.fedavg import FedAvg
from fedroute.config import Training
from fedroute.core import Algorithm, Context, Task, run_client
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.models import adopt
from fedroute.models.adopt import LocalBatchNorm
from fedroute.rounds import client_batches
from fedroute.tree import Tree

Make = Callable[..., Federation]


class Named(nn.Module):
    """A module with these children, called one after the other."""

    def __init__(self, **children: nn.Module):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        for m in self.children():
            x = m(x)
        return x


class Quiet(nn.GroupNorm):
    """A user's subclass, with a name that says nothing."""

    def __init__(self, channels: int):
        super().__init__(2, channels)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * super().forward(x)


class Residual(nn.Module):
    """A block with its shortcut's norm where libraries have it: downsample.1."""

    def __init__(self, a: int, b: int):
        super().__init__()
        self.conv = nn.Conv2d(a, b, 3, 2, 1)
        self.downsample = nn.Sequential(nn.Conv2d(a, b, 1, 2, bias=False), nn.BatchNorm2d(b))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x) + self.downsample(x)
        return out


def mobile(a: int, b: int) -> nn.Sequential:
    depthwise = nn.Sequential(nn.Conv2d(a, a, 3, 1, 1, groups=a, bias=False), nn.BatchNorm2d(a), nn.ReLU6())
    return nn.Sequential(depthwise, nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b))


def norms_of(module: nn.Module) -> set[str]:
    return {k for k, r in Task(module).roles.items() if r == "norm"}


STATS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
AFFINE = ("weight", "bias")


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), {f"1.{s}" for s in STATS}),
        (Residual(2, 4), {f"downsample.1.{s}" for s in STATS}),
        (mobile(2, 4), {f"{n}.{s}" for n in ("0.1", "2") for s in STATS}),
        (Named(a=nn.BatchNorm3d(2)), {f"a.{s}" for s in STATS}),
        (Named(a=nn.SyncBatchNorm(2)), {f"a.{s}" for s in STATS}),
        (Named(a=nn.BatchNorm2d(2, affine=False)), {f"a.{s}" for s in STATS[2:]}),
        (Named(a=nn.BatchNorm2d(2, track_running_stats=False)), {f"a.{s}" for s in AFFINE}),
        (Named(a=nn.InstanceNorm1d(2, affine=True), b=nn.Linear(1, 1)), {f"a.{s}" for s in AFFINE}),
        (Named(a=nn.InstanceNorm2d(2, track_running_stats=True), b=nn.Linear(1, 1)), {f"a.{s}" for s in STATS[2:]}),
        (Named(a=nn.InstanceNorm3d(2, affine=True, track_running_stats=True)), {f"a.{s}" for s in STATS}),
        (Named(a=nn.InstanceNorm2d(2), b=nn.Linear(1, 1)), set()),
        (Named(a=nn.GroupNorm(1, 2), b=nn.LayerNorm(2)), {"a.weight", "a.bias", "b.weight", "b.bias"}),
        (Named(a=nn.RMSNorm(2)), {"a.weight"}),
        (Named(a=Quiet(2)), {"a.weight", "a.bias", "a.gain"}),
        (nn.BatchNorm1d(2), set(STATS)),
        (Named(bn1=nn.Linear(2, 2), norm=nn.Conv2d(1, 1, 1), batch_norm=Named(bn=nn.Embedding(2, 2))), set()),
    ],
    ids=lambda v: "" if isinstance(v, set) else type(v).__name__,
)  # fmt: skip
def test_norms_are_found_by_type_and_names_never_consulted(module: nn.Module, expected: set[str]) -> None:
    assert norms_of(module) == expected


def test_norms_of_a_head_follow_the_head_and_fedbn_both() -> None:
    module = Named(
        body=nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), top=nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2))
    )
    task = Task(*adopt(module, {"top": "head", "body": "body"}))
    head, norms = (
        {f"top.{i}.{p}" for i in (0, 1) for p in AFFINE},
        {f"{n}.{p}" for n in ("body.1", "top.0") for p in AFFINE},
    )
    assert task.named("head") == head  # FedPer keeps the whole head
    assert task.named("norm") == norms  # FedBN every norm, though "body" was named in roles
    assert task.named("head", "norm") == head | norms


# wrappers


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def test_data_parallel_is_taken_off_and_names_lose_their_prefix() -> None:
    inside = plain()
    module, roles = adopt(nn.DataParallel(inside), {"module.4": "head"})
    assert module is inside
    assert roles == {"4.weight": "head", "4.bias": "head"}
    nested, roles = adopt(
        Named(net=nn.DataParallel(plain()), top=nn.Linear(3, 2)), {"net.module.0": "router", "top": "head"}
    )
    assert set(nested.state_dict()) == {f"net.{k}" for k in inside.state_dict()} | {"top.weight", "top.bias"}
    assert roles["net.0.weight"] == "router"


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_distributed_wrapper_is_taken_off() -> None:
    inside = plain()
    module, roles = adopt(nn.parallel.DistributedDataParallel(inside))
    assert module is inside
    assert set(roles) == {"4.weight", "4.bias"}


@pytest.mark.usefixtures("process_group")
def test_sync_batch_norm_runs_on_a_cpu_like_batch_norm_and_asks_no_other_process() -> None:
    reference = plain()
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(reference))
    module, _ = adopt(synced)
    x = torch.randn(5, 2, 6, 6)
    with pytest.raises(ValueError, match=r"GPU|device"):  # as it is it wants the other processes' statistics
        synced(x)
    assert isinstance(module.get_submodule("1"), LocalBatchNorm)
    assert list(module.state_dict()) == list(reference.state_dict())
    for _ in range(3):
        torch.testing.assert_close(module(x), reference(x), rtol=0, atol=0)
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(module.eval()(x), reference.eval()(x), rtol=0, atol=0)
    assert isinstance(synced[1], nn.SyncBatchNorm)  # the user's own module is as it was
    assert norms_of(module) == {f"1.{s}" for s in STATS}


def test_a_shared_wrapped_layer_stays_shared() -> None:
    norm = nn.SyncBatchNorm(3)
    module, _ = adopt(Named(a=nn.Linear(3, 3), b=norm, c=norm, d=nn.Linear(3, 2)))
    assert module.b is module.c
    assert isinstance(module.b, LocalBatchNorm)
    assert module(torch.randn(4, 3)).shape == (4, 2)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        module.b(torch.randn(3))


def test_compiled_module_is_taken_for_the_module_inside() -> None:
    inside = plain()
    compiled: Any = torch.compile(inside, backend="eager")
    assert adopt(compiled)[0] is inside


# roles


def test_without_roles_the_last_linear_or_convolution_is_the_head_and_that_is_said() -> None:
    said: list[str] = []
    module = Named(a=nn.Linear(3, 3), out=nn.Conv1d(1, 1, 1), act=nn.LayerNorm(3), empty=nn.ReLU())
    task = Task(*adopt(module, say=said.append))
    assert {k for k, r in task.roles.items() if r == "head"} == {"out.weight", "out.bias"}
    assert "out" in said[0]
    assert adopt(nn.Linear(2, 2), say=said.append)[1] == {"weight": "head", "bias": "head"}
    assert adopt(nn.Embedding(2, 2), say=said.append)[1] == {}
    assert "all is body" in said[2]


def test_a_prefix_that_is_a_module_means_that_module_and_the_longest_wins() -> None:
    module = Named(fc=nn.Linear(2, 2), fc2=nn.Linear(2, 2), layer1=nn.Linear(2, 2), layer2=nn.Linear(2, 2))
    _, roles = adopt(module, {"fc": "head", "layer": "router", "layer2.bias": "body"})
    task = Task(module, roles)
    assert task.named("head") == {"fc.weight", "fc.bias"}
    assert task.named("router") == {"layer1.weight", "layer1.bias", "layer2.weight"}
    assert task.named("body") == {"fc2.weight", "fc2.bias", "layer2.bias"}


@pytest.mark.parametrize(
    ("module", "roles", "says"),
    [
        (Named(body=nn.Linear(2, 2), classifier=nn.Linear(2, 2)), {"clasifier": "head"}, "did you mean 'classifier'"),
        (Named(a=nn.Linear(2, 2), b=nn.Linear(2, 2)), {"head": "head"}, "its parts: a, b"),
        (Named(a=nn.Linear(2, 2), flat=nn.Flatten()), {"flat": "head"}, "no weight of the model begins with 'flat'"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), None, "model.1: LazyLinear has no shape yet: run one batch"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), None, "no weights to train"),
        (Named(**{"a/b": nn.Linear(2, 2)}), None, "model.a/b.weight: a name with a slash"),
        (torch.nn.Linear, None, "expected an nn.Module"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_with_the_mend(
    module: nn.Module, roles: dict[str, str] | None, says: str
) -> None:
    with pytest.raises(InputError) as e:
        adopt(module, roles)
    assert says in str(e.value)


def test_the_mend_for_lazy_layers_works() -> None:
    module = nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    with pytest.raises(InputError, match=r"model\.1: LazyBatchNorm1d"):
        adopt(module)
    module(torch.randn(3, 4))
    assert Task(*adopt(module)).roles["2.weight"] == "head"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of scripting as such
def test_a_scripted_module_is_refused() -> None:
    with pytest.raises(InputError, match=r"before torch\.jit\.script"):
        adopt(torch.jit.script(nn.Linear(2, 2)))


def test_extra_state_is_refused() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"calls": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            pass

    with pytest.raises(InputError, match=r"model\.0\._extra_state.*get_extra_state"):
        adopt(nn.Sequential(Extra(2, 2)))


# through the definition of a round


class Odd(nn.Module):
    """Tied weights, a frozen layer, and buffers of every kind."""

    calls: Tensor
    mask: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4, momentum=None)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.head = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int32))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.norm(self.frozen(self.first(x)).relu())
        out: Tensor = self.head(self.tied(x * self.mask) * self.scale)
        return out


def one_round(alg: Algorithm, server: Tree, private: Tree, batches: list[dict[str, Tensor]]) -> tuple[Tree, Tree]:
    ctx = Context({"w": server["w"]}, private, torch.tensor(0), torch.tensor(len(batches)), torch.tensor(0), 0.1)
    return run_client(alg, ctx, batches)[:2]


def some_batches(steps: int, shape: tuple[int, ...], k: int = 3) -> list[dict[str, Tensor]]:
    g = torch.Generator().manual_seed(3)
    return [{"x": torch.randn(5, *shape, generator=g), "y": torch.randint(k, (5,), generator=g)} for _ in range(steps)]


def bare_loop(module: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    module = copy.deepcopy(module)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    for b in batches:
        optimizer.zero_grad()
        cross_entropy(module(b["x"]), b["y"]).backward()
        optimizer.step()
    return module.state_dict()


ALL_KINDS = nn.Sequential(
    mobile(2, 4), Residual(4, 4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), Quiet(4),
    nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 6), nn.BatchNorm1d(6), nn.RMSNorm(6), nn.Linear(6, 3),
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "shape"),
    [(Odd(), (4,)), (ALL_KINDS, (2, 6, 6)), (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (4,))],
    ids=["odd", "all kinds of norms", "linear"],
)
def test_a_round_of_one_client_is_a_bare_training_loop(module: nn.Module, shape: tuple[int, ...]) -> None:
    task = Task(*adopt(module))
    alg, batches = FedAvg().bind(task), some_batches(3, shape)
    before = copy.deepcopy(module.state_dict())
    w = task.init()
    server, private = alg.init(w, torch.ones(1)), alg.init_client(w)
    for r in range(2):  # the update and then the server give what the loop gives, in the second round too
        update, private = one_round(alg, server, private, batches[r : r + 2])
        expected = bare_loop(module, batches[:2] + batches[1:3] * r)
        server = alg.aggregate(server, update, 1.0)
        for k in task.names:
            assert server["w"][k].dtype == expected[k].dtype
            torch.testing.assert_close(server["w"][k], expected[k], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)  # the user's module is never written to


def test_tied_frozen_and_whole_numbered_weights_travel_as_they_should() -> None:
    task = Task(*adopt(Odd(), {"head": "head"}))
    alg = FedAvg().bind(task)
    w = task.init()
    assert "scale" not in w
    assert "tied.weight" not in w  # its first name stands for it
    server = alg.init(w, torch.ones(2))
    update, _ = one_round(alg, server, alg.init_client(w), some_batches(2, (4,)))
    dw = update["dw"]
    assert set(w) - set(dw) == {"frozen.weight", "frozen.bias", "mask"}
    half = {"dw": {k: v / 2 for k, v in dw.items()}}  # a mean over two clients, one of which stood still
    after = alg.aggregate(server, half, 1.0)["w"]
    assert after["calls"].dtype == torch.int32
    assert int(after["calls"]) == 1
    assert torch.equal(after["mask"], w["mask"])
    assert torch.equal(after["frozen.weight"], w["frozen.weight"])
    assert not torch.equal(after["first.weight"], w["first.weight"])


@pytest.mark.parametrize(
    ("norm", "rows"),
    [(nn.BatchNorm1d(4), [5]), (nn.BatchNorm1d(4, track_running_stats=False), [5]), (nn.LayerNorm(4), [4, 1])],
    ids=["statistics", "none kept", "layer norm"],
)
def test_batch_norm_never_sees_a_batch_of_one_row(norm: nn.Module, rows: list[int], federation: Make) -> None:
    data = federation((4,), 3)
    data = replace(data, train=tuple(t[:5] for t in data.train))
    alg = FedAvg().bind(Task(*adopt(nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 3)))))
    steps = client_batches(alg, data, Training(batch_size=4), 0, 0, 0)
    assert [len(s) for s in steps] == rows
    server = alg.init(alg.task.init(), data.sizes())
    update, _ = one_round(alg, server, alg.init_client(alg.task.init()), [data.take(s) for s in steps])
    assert update["dw"]["2.weight"].abs().max() > 0


def test_the_head_of_a_tied_model_is_named_by_its_first_name() -> None:
    module = Named(embed=nn.Embedding(7, 4), mid=nn.Linear(4, 4), head=nn.Linear(4, 7, bias=False))
    module.get_submodule("head").weight = module.get_parameter("embed.weight")
    for roles in (None, {"head": "head"}):
        task = Task(*adopt(module, roles))
        assert task.named("head") == {"embed.weight"}


def test_a_task_calls_its_module_as_torch_does() -> None:
    """Tied weights, buffers, a recurrent layer: the same output as functional_call, and the module as it was."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: Tensor = self.norm(self.b(self.a(x)))
            return out

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 5, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: Tensor = self.rnn(x.unflatten(-1, (1, -1)))[0]
            return out

    x = torch.randn(6, 4)
    for module in (Tied(), Recurrent()):
        task, before = Task(module), {k: v.clone() for k, v in module.state_dict().items()}
        w = {k: v + 1 for k, v in task.init().items()}
        want = torch.func.functional_call(module, {k: v.clone() for k, v in w.items()}, (x,))
        assert torch.equal(task({k: v.clone() for k, v in w.items()}, x), want)
        assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
