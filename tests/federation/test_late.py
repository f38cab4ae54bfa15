"""Answers that come after the deadline: used later with their staleness, or thrown away; never in silence."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fedroute.algorithms import make
from fedroute.certificates.rig import quadratics
from fedroute.config import Training
from fedroute.engines.base import Work
from fedroute.engines.transport import Transported
from fedroute.federation.simulated import Simulated
from fedroute.federation.transport import Payload
from fedroute.rounds import State, prepare, run_round, start, work_of_round
from fedroute.weighting import Weighting
from tests.federation.federations import wait_for
from tests.federation.lateness import Only

# one step of gradient descent on h/2 (w - a)^2 with h = 1, lr = 1/2: the change is (a - w) / 2
F, TASK = quadratics([1.0, 1.0], [4.0, 8.0])
T = Training(batch_size=1, lr=0.5, rounds=5, quorum=0.0)
ALG = prepare(make("fedavg"), TASK, T)


class Rounds:
    """Client c01 trains when it is told to, and not before; until then only c01 can be late."""

    def __init__(self, late: Any, monkeypatch: pytest.MonkeyPatch, training: Training = T) -> None:
        self.simulated, self.go, self.t = Simulated(ALG, F), threading.Event(), training
        self.said, self.only = list[str](), Only(monkeypatch, "c01")
        site, form = self.simulated.trainers[1], self.simulated.trainers[0].form.update

        def slow(method: str, payload: Payload) -> Payload:
            if method == "train":
                self.go.wait(600)
            return site(method, payload)

        self.simulated.network.plug("c01", slow)
        self.engine = Transported(
            ALG, F.clients, self.simulated.network, form=form, deadline=0.4, late=late, log=self.said.append
        )
        self.state = start(ALG, F)
        for i in (0, 1):
            self.simulated.stores[i].put(0, self.state.privates[i])

    def round(self) -> State:
        r = self.state.round
        work: Work = work_of_round(ALG, F, self.t, 0, r)
        self.simulated._work = work
        privates = {i: {"round": torch.tensor(0)} for i in (0, 1)}
        state = State(r, self.state.server, privates, quarantined=self.state.quarantined)
        self.state = run_round(ALG, self.engine, F, self.t, state, work, self.said.append)
        return self.state

    def let_go(self) -> None:
        """Ends when what c01 still works on has come."""
        self.go.set()
        wait_for(lambda: all(asked.answer for asked in self.engine.stale.values()))
        self.only.names.clear()

    @property
    def w(self) -> float:
        return float(self.state.server["w"]["weight"])


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rounds]:
    made = Rounds("use", monkeypatch)
    yield made
    made.go.set()
    made.engine.close()
    made.simulated.close()


def test_a_late_answer_counts_in_the_first_round_after_it_came_and_less(using: Rounds) -> None:
    using.round()
    assert using.w == 2.0  # of c00 alone: (4 - 0) / 2
    assert [(q.round, q.client, q.reason) for q in using.state.quarantined] == [(1, "c01", "no answer within 0.4 s")]
    using.round()
    assert using.w == 3.0  # 2 + (4 - 2) / 2
    assert using.state.quarantined[-1].reason == "no answer: still at work on round 1"
    using.let_go()
    using.round()
    # c00 sends (4 - 3) / 2, c01 what it began in round 1, (8 - 0) / 2, two rounds late: it counts 3^-1/2 times
    s = 3**-0.5
    assert using.w == pytest.approx(3 + (0.5 + s * 4.0) / (1 + s), abs=1e-12)
    assert "round 3: c01 came 2 rounds late, and counts 0.58 times" in using.said
    assert len(using.state.quarantined) == 2
    before = using.w
    using.round()  # now it is in time
    assert using.w == pytest.approx(before + ((4 - before) / 2 + (8 - before) / 2) / 2, abs=1e-12)
    assert int(using.state.privates[1]["round"]) == 4


def test_a_late_one_is_not_waited_for_and_not_asked_again(using: Rounds) -> None:
    using.round()
    wait_for(lambda: using.simulated.network.calls["c01", "train"])
    using.round()
    using.round()
    assert using.simulated.network.calls["c01", "train"] == 1
    assert using.simulated.network.calls["c01", "cancel"] == 0


def test_discarded_it_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Rounds("discard", monkeypatch)
    made.round()
    wait_for(lambda: made.simulated.network.calls["c01", "cancel"])
    made.let_go()
    assert made.state.quarantined[0].reason == "no answer within 0.4 s"
    before = made.w
    made.round()
    assert made.w == pytest.approx(before + ((4 - before) / 2 + (8 - before) / 2) / 2, abs=1e-12)
    assert not any("late" in text for text in made.said)
    made.engine.close()


@pytest.mark.parametrize("cap", [1.0, 0.6])
def test_the_discount_multiplies_the_say_also_under_a_cap(cap: float) -> None:
    from fedroute.weighting import RunningMean, Stack

    weighting = Weighting(by="examples", cap=cap)
    sizes, discounts, values = [10.0, 30.0], [1.0, 0.5], [2.0, 6.0]
    say = weighting.say(torch.tensor(sizes)).tolist()
    a = [s * d for s, d in zip(say, discounts, strict=True)]
    mean, stack = RunningMean(weighting), Stack(weighting)
    for i in (0, 1):
        mean.add({"w": torch.tensor(values[i]).double()}, i, sizes[i], discounts[i])
        stack.add({"w": torch.tensor(values[i]).double()}, i, sizes[i], discounts[i])
    assert float(mean.value()["w"]) == pytest.approx((a[0] * 2 + a[1] * 6) / sum(a))
    assert stack.value()["say"].tolist() == pytest.approx([x / sum(a) for x in a])
