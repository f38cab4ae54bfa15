"""Stacked: equal to sequential up to rounding, for every algorithm, on clients that differ in everything."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedroute.algorithms import ALGORITHMS
from fedroute.core import Algorithm, Batch, Context
from fedroute.data.federation import Federation
from fedroute.engines import stacked
from fedroute.engines.base import Answer, Work
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.optim import Adam, Optimizer, Sgd
from fedroute.task import Task
from fedroute.tree import Tree, Weights, axpy, flatten, sha256

SIZES = (3, 37, 20, 59, 21, 80)
CLASSES = 4
SGD = Sgd()
OPTIMIZERS: dict[str, Optimizer] = {
    "decay": Sgd(weight_decay=0.01),
    "momentum": Sgd(momentum=0.9),
    "momentum-decay": Sgd(momentum=0.9, weight_decay=0.01),
    "nesterov": Sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01, decoupled=True),
}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def smooth() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, CLASSES))


def normed() -> nn.Module:
    layers = [nn.Linear(12, 7), nn.BatchNorm1d(7), nn.ReLU(inplace=True), nn.Linear(7, CLASSES)]
    return nn.Sequential(nn.Flatten(), *layers)


def convolved() -> nn.Module:
    layers = [nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(24, CLASSES)]
    return nn.Sequential(nn.Unflatten(1, (1, 3)), *layers)


MODELS = {"mlp": mlp, "smooth": smooth, "normed": normed, "convolved": convolved}


def federation(sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float64) -> Federation:
    """Clients of these sizes, whose rows (3, 4) and labels are random."""
    g = torch.Generator().manual_seed(1)
    rows = torch.arange(sum(sizes)).split(list(sizes))
    x = torch.randn(sum(sizes), 3, 4, generator=g, dtype=torch.float64)
    x = ((x * 40).clamp(-127, 127) + 128).to(dtype) if dtype == torch.uint8 else x.to(dtype)
    return Federation(
        name="test",
        x=x,
        y=torch.randint(0, CLASSES, (sum(sizes),), generator=g),
        clients=tuple(f"c{i:03}" for i in range(len(sizes))),
        train=rows,
        validation=tuple(r[:0] for r in rows),
        test=tuple(r[:0] for r in rows),
    )


def work(fed: Federation, batch: int = 10, epochs: int = 1, round: int = 0, idle: Sequence[int] = ()) -> Work:
    """So many passes over every client's rows, none over those of the idle; a batch of one row is left out."""
    g = torch.Generator().manual_seed(round)
    plan: dict[int, list[Tensor]] = {}
    for i, rows in enumerate(fed.train):
        steps = [b for _ in range(epochs) for b in rows[torch.randperm(len(rows), generator=g)].split(batch)]
        plan[i] = [] if i in idle else [b for b in steps if len(b) > 1]
    return Work(round, 7, 0.1, tuple(range(len(fed.train))), plan)


# the battery puts every algorithm on every engine; here are those whose hooks differ most and need no roles
NAMES = ["alone", "ditto", "fedavg", "fedavg_ft", "feddyn", "fednova", "fedprox", "pfedme", "qffl", "scaffold"]


def bound(alg: Algorithm, model: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> Algorithm:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return alg.bind(Task(model().to(dtype).train()))


def begun(alg: Algorithm, fed: Federation) -> tuple[Tree, dict[int, Tree]]:
    w = alg.task.init()
    return alg.init(w, fed.sizes()), {i: alg.init_client(w) for i in range(len(fed.clients))}


def gap(ours: Sequence[Answer], theirs: Sequence[Answer]) -> float:
    """The largest difference of any two numbers, after checking that everything else is the same."""
    found = 0.0
    for a, b in zip(ours, theirs, strict=True):
        assert (a.client, a.steps, a.error, b.error) == (b.client, b.steps, "", "")
        x, y = flatten({"u": a.update, "p": a.private}), flatten({"u": b.update, "p": b.private})
        assert x.keys() == y.keys()
        for k in x:
            assert (x[k].dtype, x[k].shape) == (y[k].dtype, y[k].shape), k
            found = max([found, *(x[k].double() - y[k].double()).abs().flatten().tolist()])
        found = max(found, abs(a.loss - b.loss))
    return found


def agree(alg: Algorithm, fed: Federation, works: Sequence[Work], within: float = 1e-10) -> Stacked:
    """Both engines go through these rounds, each round from where sequential came to."""
    server, privates = begun(alg, fed)
    engine = Stacked(alg, fed)
    for w in works:
        theirs = list(Sequential(alg, fed).run(server, privates, w))
        assert gap(list(engine.run(server, privates, w)), theirs) < within
        privates |= {a.client: a.private for a in theirs}
    return engine


@pytest.fixture(autouse=True)
def double() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm(name: str, model: str) -> None:
    fed = federation()
    alg = bound(ALGORITHMS[name](), MODELS[model])
    engine = agree(alg, fed, [work(fed, round=r, epochs=1 + r, idle=[4] if r == 2 else []) for r in range(3)])
    assert engine.declined == ""
    assert (engine.chain is not None) == (model == "mlp")


@pytest.mark.parametrize("model", ["mlp", "smooth"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold"])
def test_every_optimizer(name: str, optimizer: str, model: str) -> None:
    fed = federation()
    alg = bound(ALGORITHMS[name](optimizer=OPTIMIZERS[optimizer]), MODELS[model])
    assert agree(alg, fed, [work(fed, epochs=2)]).declined == ""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [2, 21, 1000])
def test_batches_of_all_sizes(model: str, batch: int) -> None:
    """Batch norm over two rows divides by their difference and magnifies rounding."""
    fed, within = federation(), 1e-7 if (model, batch) == ("normed", 2) else 1e-10
    assert agree(bound(Algorithm(), MODELS[model]), fed, [work(fed, batch, epochs=2)], within).declined == ""


@pytest.mark.parametrize("model", ["mlp", "normed"])
def test_one_client_and_none_that_works(model: str) -> None:
    fed = federation([30])
    assert agree(bound(Algorithm(), MODELS[model]), fed, [work(fed), work(fed, idle=[0])]).declined == ""
    assert list(Stacked(bound(Algorithm(), MODELS[model]), fed).run({"w": {}}, {}, Work(0, 0, 0.1, (), {}))) == []


def test_private_norms_keep_whole_counts() -> None:
    fed = federation()
    alg = bound(Algorithm(private=("norm",)), normed)
    w = work(fed, idle=[2])
    agree(alg, fed, [w])
    answers = list(Stacked(alg, fed).run(*begun(alg, fed), w))
    counts = [a.private["w"]["2.num_batches_tracked"] for a in answers]
    assert [c.dtype for c in counts] == [torch.int64] * len(SIZES)
    assert [int(c) for c in counts] == [len(w.batches[i]) for i in w.clients]
    assert not any("2." in k for a in answers for k in a.update["dw"])


@dataclass(frozen=True, kw_only=True)
class Labelled(Algorithm):
    """A loss that looks at who the client is and what it keeps."""

    def init_client(self, w: Weights) -> Tree:
        return super().init_client(w) | {"mine": torch.ones(CLASSES)}

    def loss(self, out: Any, batch: Batch, ctx: Context) -> Tensor:
        anchor = sum((v**2).sum() for v in ctx.server["w"].values())
        shift = (ctx.client + 1) * ctx.private["mine"] + ctx.lr * anchor
        return cross_entropy(out * shift, batch["y"]) / ctx.steps + 0 * ctx.step

    def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
        up, kept = super().end(carry, ctx)
        return up, kept | {"mine": ctx.private["mine"] + ctx.client}


@dataclass(frozen=True, kw_only=True)
class Springs(Labelled):
    """A step of its own with several gradients, one of them at weights that all clients share."""

    def begin(self, ctx: Context) -> Tree:
        return super().begin(ctx) | {"theta": dict(ctx.server["w"])}

    def step(self, carry: Tree, batch: Batch, ctx: Context) -> tuple[Tree, Tensor]:
        w, theta = carry["w"], carry["theta"]
        for _ in range(3):
            g, buffers, loss = self.grad(theta, batch, ctx)
            theta = axpy(-0.1, {k: g[k] + 2 * (theta[k] - w[k]) for k in g}, theta) | buffers
        start, _, _ = self.grad(ctx.server["w"], batch, ctx)
        gap = {k: w[k] - theta[k] + 0.1 * start[k] for k in g}
        return carry | {"w": axpy(-ctx.lr, gap, w), "theta": theta}, loss


@dataclass(frozen=True, kw_only=True)
class Phased(Algorithm):
    """The last layer in the first half of the steps, the others in the second."""

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        head = 2 * ctx.step < ctx.steps
        last = list(g)[-2:]
        return {k: v * (head if k in last else ~head) for k, v in g.items()}


@dataclass(frozen=True, kw_only=True)
class Clipped(Algorithm):
    """A gradient of its own and a direction that looks at all of it."""

    def grad(self, w: Weights, batch: Batch, ctx: Context) -> tuple[Weights, Weights, Tensor]:
        g, buffers, loss = super().grad(w, batch, ctx)
        return {k: 2 * v for k, v in g.items()}, buffers, loss

    def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
        norm = sum((v**2).sum() for v in g.values())
        return {k: v / (1 + norm) for k, v in g.items()}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [Labelled, Springs, Phased, Clipped])
def test_hooks_that_an_algorithm_may_override(kind: type[Algorithm], model: str) -> None:
    fed = federation()
    engine = agree(bound(kind(), MODELS[model]), fed, [work(fed, round=r) for r in range(2)])
    assert engine.declined == ""


@pytest.mark.parametrize("model", ["mlp", "smooth"])
def test_chunks_change_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "CACHE", 1)
    monkeypatch.setattr(stacked, "MEMORY", 1)
    fed = federation()
    assert agree(bound(Algorithm(), MODELS[model]), fed, [work(fed)]).declined == ""


@pytest.mark.parametrize("model", [mlp, convolved])
def test_bytes_of_images_are_read_as_sequential_reads_them(model: Callable[[], nn.Module]) -> None:
    fed = federation(dtype=torch.uint8)
    torch.set_default_dtype(torch.float32)
    assert agree(bound(Algorithm(), model, torch.float32), fed, [work(fed)], within=1e-5).declined == ""


def test_nothing_given_is_changed() -> None:
    fed = federation()
    for model in MODELS.values():
        alg = bound(ALGORITHMS["scaffold"](optimizer=Sgd(momentum=0.9)), model)
        for a in (alg, bound(Algorithm(), model)):
            server, privates = begun(a, fed)
            before = sha256(server), [sha256(p) for p in privates.values()], sha256({"w": a.task.init()})
            state, threads = torch.get_rng_state(), torch.get_num_threads()
            list(Stacked(a, fed).run(server, privates, work(fed)))
            assert (sha256(server), [sha256(p) for p in privates.values()], sha256({"w": a.task.init()})) == before
            assert torch.equal(torch.get_rng_state(), state)
            assert torch.get_num_threads() == threads


def test_answers_own_their_memory() -> None:
    fed = federation()
    alg = bound(Algorithm(private=("norm",)), normed)
    for a in Stacked(alg, fed).run(*begun(alg, fed), work(fed)):
        for v in flatten({"u": a.update, "p": a.private}).values():
            assert v.untyped_storage().nbytes() == v.nbytes
            assert not v.requires_grad


def test_dropout_goes_one_after_the_other() -> None:
    fed = federation()
    alg = bound(Algorithm(), lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, CLASSES)))
    engine = agree(alg, fed, [work(fed)], within=1e-300)
    assert "Dropout" in engine.declined
    alg.task.module.eval()
    assert Stacked(alg, fed).declined == ""


def test_random_numbers_around_the_steps_are_those_of_sequential() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Noisy(Algorithm):
        def begin(self, ctx: Context) -> Tree:
            w = {k: v + torch.randn_like(v) for k, v in super().begin(ctx)["w"].items()}
            return super().begin(ctx) | {"w": w}

        def end(self, carry: Tree, ctx: Context) -> tuple[Tree, Tree]:
            up, kept = super().end(carry, ctx)
            return {"dw": {k: v + torch.randn_like(v) for k, v in up["dw"].items()}}, kept

    fed = federation()
    assert agree(bound(Noisy(), mlp), fed, [work(fed)]).declined == ""


def test_what_vmap_cannot_do_goes_one_after_the_other() -> None:
    calls = count()

    @dataclass(frozen=True, kw_only=True)
    class Deciding(Algorithm):
        def direction(self, g: Weights, w: Weights, ctx: Context) -> Weights:
            next(calls)
            return g if float(next(iter(g.values())).sum()) > 0 else {k: 2 * v for k, v in g.items()}

    fed = federation()
    engine = agree(bound(Deciding(), smooth), fed, [work(fed)], within=1e-300)
    assert engine.declined
    assert next(calls) > 0


@pytest.mark.parametrize("model", [mlp, smooth])
def test_a_client_that_fails_fails_alone(model: Callable[[], nn.Module]) -> None:
    fed = federation()
    w = work(fed)
    w.batches[3][2] = torch.tensor([10**6])  # a row that there is not
    alg = bound(Algorithm(), model)
    server, privates = begun(alg, fed)
    ours = list(Stacked(alg, fed).run(server, privates, w))
    theirs = list(Sequential(alg, fed).run(server, privates, w))
    assert [bool(a.error) for a in ours] == [i == 3 for i in range(len(SIZES))]
    assert ours[3].update == ours[3].private == {}
    assert gap([a for a in ours if not a.error], [a for a in theirs if not a.error]) < 1e-10
