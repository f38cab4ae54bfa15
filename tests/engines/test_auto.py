"""engine: auto, by a clock that the test turns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines import auto
from fedroute.engines.base import Answer, Work
from fedroute.engines.make import make_engine
from fedroute.engines.sequential import Sequential
from fedroute.engines.stacked import Stacked
from fedroute.errors import InputError
from fedroute.task import Task
from fedroute.tree import Tree, sha256


def federation() -> Federation:
    g = torch.Generator().manual_seed(0)
    rows = torch.arange(60).split([10, 20, 30])
    none = tuple(r[:0] for r in rows)
    x, y = torch.randn(60, 5, generator=g), torch.randint(0, 3, (60,), generator=g)
    return Federation(name="test", x=x, y=y, clients=("a", "b", "c"), train=rows, validation=none, test=none)


def work(fed: Federation) -> Work:
    return Work(0, 3, 0.1, (0, 1, 2), {i: list(r.split(5)) for i, r in enumerate(fed.train)})


def algorithm(*layers: nn.Module) -> Algorithm:
    return Algorithm().bind(Task(nn.Sequential(nn.Linear(5, 4), *layers, nn.Linear(4, 3)).train()))


def begun(alg: Algorithm) -> tuple[Tree, dict[int, Tree]]:
    w = alg.task.init()
    return alg.init(w, torch.tensor([10, 20, 30])), {i: alg.init_client(w) for i in range(3)}


Costs = Callable[[float, float], None]


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Costs:
    """How long, by the clock, a step takes on sequential and on stacked."""

    def set_costs(sequential: float, stacked: float) -> None:
        now = 0.0
        monkeypatch.setattr("fedroute.engines.auto.time.perf_counter", lambda: now)
        for kind, cost in ((Sequential, sequential), (Stacked, stacked)):

            def run(
                self: Any,
                server: Tree,
                privates: Mapping[int, Tree],
                work: Work,
                plain: Any = kind.run,
                cost: float = cost,
            ) -> Iterator[Answer]:
                nonlocal now
                now += cost * sum(len(work.batches[i]) for i in work.clients)
                yield from plain(self, server, privates, work)

            monkeypatch.setattr(kind, "run", run)
        monkeypatch.setattr(auto, "_workers", lambda *_: None)

    return set_costs


def chosen(alg: Algorithm) -> tuple[str, str]:
    fed, said = federation(), list[str]()
    server, privates = begun(alg)
    before = sha256(server), [sha256(p) for p in privates.values()], torch.get_rng_state().tolist()
    engine = auto.choose(alg, fed, server, privates, work(fed), said.append)
    assert (sha256(server), [sha256(p) for p in privates.values()], torch.get_rng_state().tolist()) == before
    (line,) = said
    assert line.startswith(f"engine: {engine.name} (")
    return engine.name, line


@pytest.mark.parametrize(("stacked", "name"), [(0.005, "stacked"), (0.0095, "sequential"), (0.02, "sequential")])
def test_the_faster_one_is_taken_if_it_is_clearly_faster(takes: Costs, stacked: float, name: str) -> None:
    takes(0.01, stacked)
    found, why = chosen(algorithm(nn.ReLU()))
    assert found == name
    assert f"{0.01 / stacked:.2f} times as fast" in why


def test_long_steps_are_not_stacked(takes: Costs) -> None:
    takes(2.0, 0.0)
    assert chosen(algorithm()) == ("sequential", "engine: sequential (a step takes 2.0 s)")


def test_what_cannot_be_stacked_says_why(takes: Costs) -> None:
    takes(0.01, 0.0)
    name, why = chosen(algorithm(nn.Dropout(0.5)))
    assert name == "sequential"
    assert "Dropout" in why

    class Deciding(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    name, why = chosen(algorithm(Deciding()))
    assert name == "sequential"
    assert "cannot be stacked" in why


def test_without_work_there_is_no_trial() -> None:
    alg, fed = algorithm(), federation()
    engine = auto.choose(alg, fed, *begun(alg), Work(0, 0, 0.1, (1,), {1: []}), lambda _: None)
    assert engine.name == "sequential"


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 50))
def test_a_part_of_a_round_is_a_small_round(lengths: list[int], clients: int, steps: int) -> None:
    whole = Work(0, 0, 0.1, tuple(range(len(lengths))), {i: [torch.tensor(0)] * n for i, n in enumerate(lengths)})
    part = auto.part(whole, clients, steps)
    assert len(part.clients) <= clients
    assert list(part.clients) == sorted(set(part.clients) & set(whole.clients))
    assert all(0 < len(part.batches[i]) <= lengths[i] for i in part.clients)
    assert sum(len(part.batches[i]) for i in part.clients) <= steps + len(part.clients)
    assert bool(part.clients) == any(lengths)


def test_engines_by_name() -> None:
    alg, fed, said = algorithm(), federation(), list[str]()
    server, privates = begun(alg)
    for name in ("sequential", "stacked"):
        assert make_engine(name, alg, fed, server, privates, work(fed), said.append).name == name
    assert said == []
    make_engine("stacked", algorithm(nn.Dropout(0.5)), fed, server, privates, work(fed), said.append)
    assert "Dropout" in said[0]
    for wrong in ("stakked", {"name": "auto", "cores": 2}, {"name": "workers", "workers": "two"}):
        with pytest.raises(InputError, match="engine"):
            make_engine(wrong, alg, fed, server, privates, work(fed), said.append)
