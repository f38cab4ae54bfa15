"""Broken answers: named with client and reason, and the round goes on without them bit for bit."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedroute.algorithms import make
from fedroute.config import Training
from fedroute.core import Algorithm, Batch, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Work
from fedroute.engines.sequential import Sequential
from fedroute.errors import RunFailed
from fedroute.quarantine import fault
from fedroute.rounds import prepare, run_round, start, update_pattern, work_of_round
from fedroute.tree import Tree, sha256

Change = Callable[[Answer], Answer]


def on(path: str, change: Callable[[Tensor], Any]) -> Change:
    """The answer with one tensor of its update replaced."""

    def changed(a: Answer) -> Answer:
        return a._replace(update=a.update | {"dw": a.update["dw"] | {path: change(a.update["dw"][path].clone())}})

    return changed


def put(value: float) -> Callable[[Tensor], Tensor]:
    def change(t: Tensor) -> Tensor:
        t.view(-1)[-1] = value
        return t

    return change


def renamed(a: Answer) -> Answer:
    return a._replace(
        update=a.update | {"dw": {k.replace("0.weight", "0.wieght"): v for k, v in a.update["dw"].items()}}
    )


def lacking(a: Answer) -> Answer:
    return a._replace(update=a.update | {"dw": {k: v for k, v in a.update["dw"].items() if k != "2.bias"}})


def adding(a: Answer) -> Answer:
    return a._replace(update=a.update | {"more": torch.zeros(1)})


BROKEN: dict[str, tuple[Change, str]] = {
    "nan": (on("0.weight", put(math.nan)), "dw/0.weight has NaN or Inf"),
    "inf": (on("2.bias", put(math.inf)), "dw/2.bias has NaN or Inf"),
    "minus inf": (on("2.bias", put(-math.inf)), "dw/2.bias has NaN or Inf"),
    "absurd": (on("2.bias", put(-1e30)), "dw/2.bias has a value of 1e+30, beyond 1e+06"),
    "shape": (on("0.weight", lambda t: t.T), "dw/0.weight has shape"),
    "broadcastable": (on("2.bias", lambda t: t[:1]), "dw/2.bias has shape"),
    "dtype": (on("0.weight", lambda t: t.double()), "dw/0.weight is torch.float64, declared torch.float32"),
    "not a tensor": (on("0.weight", lambda t: t.tolist()), "dw/0.weight is a list, declared a tensor"),
    "renamed": (renamed, "lacks dw/0.weight"),
    "lacking": (lacking, "lacks dw/2.bias"),
    "undeclared": (adding, "sent the undeclared more"),
    "nothing": (lambda a: a._replace(update={}), "lacks d"),
    "no update": (lambda a: a._replace(update=None), "sent a NoneType and no update"),  # type: ignore[arg-type]
    "negative count": (lambda a: a._replace(steps=-1), "claims -1 steps"),
    "absurd count": (lambda a: a._replace(steps=10**12), "claims 1000000000000 steps, asked for"),
    "no step but a change": (lambda a: a._replace(steps=0), "claims no step of the 3 it was asked for"),
    "raised": (lambda a: a._replace(update={}, private={}, error="Traceback:\nOSError: disk"), "raised OSError: disk"),
}  # fmt: skip


@dataclass(frozen=True)
class Meddling:
    """The sequential engine, with what some clients answer changed on its way; `without`: clients left out."""

    engine: Sequential
    change: Mapping[int, Change]
    without: frozenset[int] = frozenset()
    name: str = "meddling"

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        work = work._replace(clients=tuple(i for i in work.clients if i not in self.without))
        for a in self.engine.run(server, privates, work):
            yield self.change[a.client](a) if a.client in self.change else a

    def close(self) -> None:
        self.engine.close()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))


def setting(federation: Federation, name: str = "fedavg", **options: Any) -> tuple[Algorithm, Sequential, Training]:
    t = Training(**({"rounds": 3, "lr": 0.1, "batch_size": 8} | options))
    alg = prepare(make(name), Task(net()), t)
    return alg, Sequential(alg, federation), t


def silent(text: str) -> None:
    pass


@pytest.mark.parametrize("weighting", [{"by": "examples"}, {"by": "uniform"}, {"by": "examples", "cap": 0.4}])
@pytest.mark.parametrize("what", BROKEN)
def test_the_round_goes_on_without_it_bit_for_bit(federation: Federation, what: str, weighting: dict[str, Any]) -> None:
    change, words = BROKEN[what]
    alg, engine, t = setting(federation, "scaffold" if "cap" not in weighting else "fedavg", weighting=weighting)
    before = start(alg, federation)
    work = work_of_round(alg, federation, t, 0, 0)
    log: list[str] = []
    with_it = run_round(alg, Meddling(engine, {1: change}), federation, t, before, work, log.append)
    without = run_round(alg, Meddling(engine, {}, frozenset({1})), federation, t, before, work, silent)
    assert sha256(with_it.server) == sha256(without.server) != sha256(before.server)
    assert {i: sha256(p) for i, p in with_it.privates.items()} == {i: sha256(p) for i, p in without.privates.items()}
    assert sha256(with_it.privates[1]) == sha256(before.privates[1])
    [q] = with_it.quarantined
    assert (q.round, q.client) == (1, "b")
    assert words in q.reason
    assert "b" in log[0]
    assert q.reason in log[0]


def test_all_broken_makes_the_round_void_and_changes_nothing(federation: Federation) -> None:
    alg, engine, t = setting(federation)
    before = start(alg, federation)
    broken = dict.fromkeys(range(3), BROKEN["nan"][0])
    log: list[str] = []
    work = work_of_round(alg, federation, t, 0, 0)
    after = run_round(alg, Meddling(engine, broken), federation, t, before, work, log.append)
    assert sha256(after.server) == sha256(before.server)
    assert after.void_rounds == [1]
    assert after.round == 1
    assert [q.client for q in after.quarantined] == ["a", "b", "c"]
    assert "void, 0 of 3 clients answered well" in log[-1]


@pytest.mark.parametrize(("quorum", "void"), [(0.0, []), (0.6, []), (0.7, [1])])
def test_below_quorum_the_round_is_void(federation: Federation, quorum: float, void: list[int]) -> None:
    alg, engine, t = setting(federation, quorum=quorum)
    before = start(alg, federation)
    work = work_of_round(alg, federation, t, 0, 0)
    after = run_round(alg, Meddling(engine, {2: BROKEN["inf"][0]}), federation, t, before, work, silent)
    assert after.void_rounds == void
    assert (sha256(after.server) == sha256(before.server)) == bool(void)


def test_the_bound_is_the_config_s_and_variances_may_have_its_square() -> None:
    pattern: Tree = {"dw": {"bn.running_var": torch.zeros(2), "w": torch.zeros(2)}}

    def reason(value: float, name: str, bound: float) -> str:
        update = {"dw": pattern["dw"] | {name: torch.tensor([0.0, -value])}}
        return fault(Answer(0, 1, update, {}, 0.0), pattern, bound)

    assert not reason(9e5, "w", 1e6)
    assert "beyond 1e+06 (training.update_bound" in reason(2e6, "w", 1e6)
    assert not reason(2e6, "w", 1e7)
    assert not reason(2e6, "bn.running_var", 1e6)
    assert reason(2e12, "bn.running_var", 1e6)


def test_whole_number_and_empty_tensors_are_looked_at_too() -> None:
    pattern: Tree = {"n": torch.zeros(3, dtype=torch.int64), "none": torch.zeros(0)}
    assert not fault(Answer(0, 1, pattern, {}, 0.0), pattern)
    assert fault(Answer(0, 1, pattern | {"n": torch.tensor([0, 0, -(10**7)])}, {}, 0.0), pattern)


def test_an_honest_answer_of_every_algorithm_is_let_in(federation: Federation) -> None:
    for name in ("fedavg", "fedprox", "scaffold", "fednova", "fedavg_ft", "alone"):
        alg, engine, t = setting(federation, name)
        state = start(alg, federation)
        work = work_of_round(alg, federation, t, 0, 0)
        pattern = update_pattern(alg, state)
        for a in engine.run(state.server, state.privates, work):
            assert fault(a, pattern, planned=len(work.batches[a.client])) == ""


class Raises(nn.Module):
    """Raises on rows of the client whose first column is 99, says NaN where it is 98."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        if bool((x[:, 0] == 99).any()):
            raise RuntimeError("sensor offline")
        out: Tensor = self.inner(x)
        return out * math.nan if bool((x[:, 0] == 98).any()) else out


@pytest.fixture
def sick(federation: Federation) -> Federation:
    federation.x[federation.train[0], 0] = 99
    federation.x[federation.train[2], 0] = 98
    return federation


def test_a_client_that_raises_and_one_of_nan_are_counted_and_the_others_go_on(sick: Federation) -> None:
    from fedroute.training import fit

    log: list[str] = []
    run = fit(sick, Raises(), "fedavg", rounds=2, alone=False, quorum=0.3, engine="sequential", log=log.append)
    summary = run.summary()
    assert [(q["round"], q["client"]) for q in summary["quarantined"]] == [(1, "a"), (1, "c"), (2, "a"), (2, "c")]
    assert summary["quarantined"][0]["reason"] == "raised RuntimeError: sensor offline"
    assert "NaN or Inf" in summary["quarantined"][1]["reason"]
    assert not run.failed
    shown = next(text for text in log if "a left out" in text)
    assert "Traceback" in shown
    assert "sensor offline" in shown
    assert all(bool(torch.isfinite(t).all()) for t in run.state.server["w"].values())


def test_where_every_client_raises_the_job_is_at_fault(federation: Federation) -> None:
    from fedroute.training import fit

    def no_number(out: Tensor, batch: Batch) -> Tensor:
        return out

    log: list[str] = []
    with pytest.raises(RunFailed, match=r"all 3 clients failed in the first round.*must return one number"):
        fit(federation, net(), "fedavg", rounds=2, alone=False, loss=no_number, engine="sequential", log=log.append)
    assert sum("Traceback" in text for text in log) == 1


@pytest.mark.parametrize("a", [-3.0, 1e5])
def test_fednova_is_not_told_how_far_a_client_went(federation: Federation, a: float) -> None:
    alg, engine, t = setting(federation, "fednova")
    before = start(alg, federation)
    work = work_of_round(alg, federation, t, 0, 0)
    lies = {1: lambda answer: answer._replace(update=answer.update | {"a": torch.tensor(a)})}
    after = run_round(alg, Meddling(engine, lies), federation, t, before, work, silent)
    assert [q.reason for q in after.quarantined] == [f"claims a = {a:g} of {len(work.batches[1])} steps"]


def test_a_count_does_not_go_back(federation: Federation) -> None:
    t = Training(rounds=3, lr=0.1, batch_size=8)
    alg = prepare(make("fedavg"), Task(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))), t)
    engine, before = Sequential(alg, federation), start(alg, federation)
    work = work_of_round(alg, federation, t, 0, 0)
    back = {1: on("1.num_batches_tracked", lambda v: v - 900)}
    after = run_round(alg, Meddling(engine, back), federation, t, before, work, silent)
    assert [q.reason for q in after.quarantined] == ["1.num_batches_tracked would count backwards"]
    assert int(after.server["w"]["1.num_batches_tracked"]) > 0
