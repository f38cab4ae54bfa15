"""Buffered asynchronous aggregation: against a schedule computed by hand, and in virtual time against rounds."""

import heapq
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.algorithms import make
from fedroute.certificates.rig import classes, network, quadratics
from fedroute.config import Training
from fedroute.engines.base import Answer, Work
from fedroute.engines.sequential import Sequential
from fedroute.errors import InputError
from fedroute.evaluate.predict import predict, row_losses
from fedroute.federation.buffered import Buffer, Buffered, scaled
from fedroute.federation.patience import Patience
from fedroute.federation.simulated import Simulated
from fedroute.federation.site import Site
from fedroute.federation.spec import Asynchronous
from fedroute.federation.transport import Handler, Payload
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import Tree, nbytes
from tests.federation.federations import wait_for
from tests.federation.whole import Whole, config


def test_the_bookkeeping_of_a_schedule_by_hand() -> None:
    b = Buffer(size=2, exponent=0.5)
    for client in (0, 1, 2):
        b.begin(client)
    assert b.add(0) == 1.0
    assert not b.full
    b.begin(0)  # the same version once more
    assert b.add(0) == 1.0
    assert b.full
    assert b.empty() == [(0, 0), (0, 0)]
    assert (b.version, b.full) == (1, False)
    b.begin(0)
    assert b.staleness(1) == 1
    assert b.add(1) == 2**-0.5
    b.begin(1)
    assert b.add(0) == 1.0
    assert b.empty() == [(1, 1), (0, 0)]
    b.empty()
    assert b.staleness(2) == 3
    assert b.add(2) == 4**-0.5
    assert Buffer(1, exponent=0.0).factor(99) == 1.0
    assert Buffer(1, exponent=1.0).factor(3) == 0.25


def test_staleness_scales_changes_and_a_variance_becomes_that_of_the_mixture() -> None:
    """A server of mean 1, variance 2; a client of mean 4, variance 3, whose update counts s times: rows drawn from the
    client with probability s, else from the server, have this mean and variance."""
    alg = prepare(make("fedavg"), network(), Training())
    state, s = start(alg, classes((9,))), 0.25
    name = next(k for k in alg.task.variances if k in state.server["w"])
    mean = alg.task.variances[name]
    w = {k: v.clone() for k, v in state.server["w"].items()}
    w[mean], w[name] = torch.ones_like(w[mean]), torch.full_like(w[name], 2.0)
    dw = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in w.items()}
    dw[mean], dw[name] = torch.full_like(w[mean], 3.0), torch.full_like(w[name], 1.0 + 3.0**2)
    new = alg.aggregate(state.server | {"w": w}, scaled({"dw": dw}, s), 1.0)["w"]
    assert torch.allclose(new[mean], torch.full_like(w[mean], 1 + s * 3.0))
    assert torch.allclose(new[name], torch.full_like(w[name], (1 - s) * 2 + s * 3 + s * (1 - s) * 3.0**2))
    kept = scaled({"dw": dw, "h": torch.tensor(7.0)}, s)
    assert float(kept["h"]) == 7.0  # a value and no change
    assert scaled({"dw": dw}, 1.0)["dw"] is dw


# one step of gradient descent on 1/2 (w - a)^2 with lr 1/2: the change is (a - w) / 2
F, TASK = quadratics([1.0, 1.0], [4.0, 8.0])
T = Training(batch_size=1, lr=0.5, rounds=9, quorum=0.0)
ALG = prepare(make("fedavg"), TASK, T)


class Permitted:
    """Sites that each train as often as they are permitted to."""

    def __init__(self, twist: Any = lambda i, reply: reply, **options: Any) -> None:
        self.simulated = Simulated(ALG, F)
        self.permits = [threading.Semaphore(0) for _ in F.clients]
        for i, site in enumerate(self.simulated.trainers):

            def through(method: str, payload: Payload, i: int = i, site: Any = site) -> Payload:
                if method == "train":
                    self.permits[i].acquire()
                reply: Payload = site(method, payload)
                return twist(i, reply) if method == "train" else reply

            self.simulated.network.plug(F.clients[i], through)
        self.said: list[str] = []
        usual: dict[str, Any] = {
            "asynchronous": Asynchronous(buffer=2),
            "bound": 1e6,
            "deadline": 600.0,
            "log": self.said.append,
        }
        self.engine = Buffered(
            ALG, F.clients, self.simulated.network, form=self.simulated.trainers[0].form.update, **(usual | options)
        )
        first = start(ALG, F)
        self.state = replace(first, privates={i: {"round": torch.tensor(0)} for i in (0, 1)})

    def version(self, *permits: int) -> float:
        """The server's next weights, once these clients have finished a training, one after the other."""

        def permit() -> None:
            for n, i in enumerate(permits):
                while n and not (len(held) >= n or self.state.round > round):
                    time.sleep(0.001)
                self.permits[i].release()

        held, round = self.engine.buffer.held, self.state.round
        threading.Thread(target=permit, daemon=True).start()
        work: Work = work_of_round(ALG, F, T, 0, self.state.round)
        self.simulated._work = work
        self.state = run_round(ALG, self.engine, F, T, self.state, work, self.said.append)
        return float(self.state.server["w"]["weight"])

    def close(self) -> None:
        self.engine.close()
        for p in self.permits:
            p.release(99)
        self.simulated.close()


@pytest.fixture
def sites() -> Iterator[Permitted]:
    made = Permitted()
    yield made
    made.close()


def test_weights_follow_a_schedule_computed_by_hand(sites: Permitted) -> None:
    # version 0, w = 0: c00 sends (4 - 0) / 2 twice; c01 has begun and does not finish
    assert sites.version(0, 0) == 2.0
    # version 1, w = 2: c00 sends (4 - 2) / 2, and begins anew at w = 2; then c01 what it began at w = 0, (8 - 0) / 2,
    # one version old
    s = 2**-0.5
    w2 = 2 + (1.0 + s * 4.0) / 2  # divided by K, and not by the sum of the factors: algorithm 1
    assert sites.version(0, 1) == pytest.approx(w2, abs=1e-12)
    assert any("c01: its update is 1 version old" in text for text in sites.said)
    # version 2: c00 what it began at w = 2, one version old; c01 began with this version
    w3 = w2 + (s * 1.0 + (8 - w2) / 2) / 2
    assert sites.version(0, 1) == pytest.approx(w3, abs=1e-12)
    # version 3: c01 alone, twice
    w4 = w3 + (8 - w3) / 2
    assert sites.version(1, 1) == pytest.approx(w4, abs=1e-12)
    # version 4: c00 what it began in version 2, two versions old; then c01
    w5 = w4 + (3**-0.5 * (4 - w2) / 2 + (8 - w4) / 2) / 2
    assert sites.version(0, 1) == pytest.approx(w5, abs=1e-12)
    assert {i: int(p["round"]) for i, p in sites.state.privates.items()} == {0: 5, 1: 5}  # each its own trainings
    assert sites.engine.counted == [
        {"c00": 2},
        {"c00": 1, "c01": 1},
        {"c00": 1, "c01": 1},
        {"c01": 2},
        {"c00": 1, "c01": 1},
    ]
    assert sites.state.quarantined == []
    # the weights were sent to each at every beginning: 3 in version 0 (c00 twice), c00 in each of the next two and c01
    # in both of the last two; who is still at work is sent nothing
    one = nbytes(sites.state.server["w"])
    calls = sites.simulated.network.calls
    wait_for(
        lambda: sites.state.down_bytes == one * sum(n for (_, method), n in calls.copy().items() if method == "train")
    )


def test_what_is_broken_does_not_count_and_its_site_begins_anew() -> None:
    sent = [0, 0]

    def twist(i: int, reply: Payload) -> Payload:
        sent[i] += 1
        return reply | {"update": b"garbage"} if (i, sent[i]) == (1, 1) else reply

    made = Permitted(twist)
    made.permits[1].release()
    assert made.version(1, 1) == 4.0  # the second and third of c01: (8 - 0) / 2 each
    assert [(q.client, q.reason[:26]) for q in made.state.quarantined] == [("c01", "no update: not safetensors")]
    assert int(made.state.privates[1]["round"]) == 2
    made.close()


def test_a_version_lasts_no_longer_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Permitted(deadline=0.5)

    class Begun(Patience):
        """Which does not end before an update has come, however busy the machine is."""

        def left(self) -> float:
            return super().left() if made.engine.buffer.held else 1e9

    with monkeypatch.context() as m:
        m.setattr("fedroute.federation.buffered.Patience", Begun)
        assert made.version(0) == 2.0  # one update came, and is the mean
    assert made.version() == 2.0
    assert made.state.void_rounds == [2]
    made.close()


def test_an_algorithm_that_looks_at_each_update_is_refused() -> None:
    alg = prepare(make("fedamp"), network(), Training())
    with pytest.raises(InputError, match=r"hub\.asynchronous: fedamp looks at all updates of a round together"):
        Buffered(alg, ("a",), None, asynchronous=Asynchronous(), bound=1e6, form={})


# in virtual time


class Virtual:
    """An engine whose clients take the time that `seconds` says, of a clock that only they move."""

    name = "virtual"

    def __init__(self, alg: Any, federation: Any, seconds: list[float], buffer: Buffer | None):
        self.inner, self.seconds, self.buffer, self.now = Sequential(alg, federation), seconds, buffer, 0.0
        self.due: list[tuple[float, int, Answer]] = []
        self.trained = [0] * len(seconds)

    def run(self, server: Tree, privates: Mapping[int, Tree], work: Work) -> Iterator[Answer]:
        if self.buffer is None:
            self.now += max(self.seconds)  # a round lasts as long as its slowest
            yield from self.inner.run(server, privates, work)
            return
        while not self.buffer.full:
            for i in work.clients:
                if not any(i == j for _, j, _ in self.due):
                    self.buffer.begin(i)
                    own = work._replace(clients=(i,), round=self.trained[i])
                    (a,) = self.inner.run(server, privates, own)
                    self.trained[i] += 1
                    heapq.heappush(self.due, (self.now + self.seconds[i], i, a))
            self.now, i, a = heapq.heappop(self.due)
            yield a._replace(update=scaled(a.update, self.buffer.add(i)))
        self.buffer.empty()

    def close(self) -> None:
        pass


def seconds_to(loss: float, buffer: Buffer | None, slow: float) -> float:
    """Virtual seconds until the mean training loss of the server's weights is `loss`."""
    f = replace(classes((40, 40, 40, 40), k=3), labels=("a", "b", "c"))
    f = replace(f, y=(f.x @ torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).double()).argmax(1))
    t = Training(batch_size=10, lr=0.05, rounds=400, quorum=0.0)
    alg = prepare(make("fedavg"), network(norm=False), t)
    engine, state, rows = Virtual(alg, f, [1.0, 1.0, 1.0, slow], buffer), start(alg, f), torch.cat(list(f.train))
    while state.round < t.rounds:
        state = run_round(alg, engine, f, t, state, work_of_round(alg, f, t, 0, state.round))
        out = predict(alg.task, state.server["w"], f.x[rows])
        if float(row_losses(alg.task, out, f.take(rows)).mean()) <= loss:
            return engine.now
    raise AssertionError(f"the loss {loss} was not reached in {t.rounds} versions")


@pytest.mark.parametrize("loss", [0.6, 0.4])
def test_it_reaches_a_loss_in_less_time_where_one_of_four_sites_is_five_times_slower(loss: float) -> None:
    rounds, versions = seconds_to(loss, None, slow=5.0), seconds_to(loss, Buffer(2), slow=5.0)
    assert versions < 0.5 * rounds, (versions, rounds)


def test_a_whole_run_of_it_in_which_the_slow_site_counts_less_often(tmp_path: Path) -> None:
    """Each training of west takes until the others have done six."""
    whole, trained, ended = Whole(tmp_path), [0], threading.Event()
    made = config("fedavg", {"asynchronous": {"buffer": 2}}, rounds=12, evaluate_every=6)

    def through(client: str, site: Site) -> Handler:
        def answer(method: str, payload: Payload) -> Payload:
            if method == "train" and client != "west":
                trained[0] += 1
            elif method == "train":
                due = trained[0] + 6
                while trained[0] < due and not ended.wait(0.01):
                    pass
            return site(method, payload)

        return answer

    for client, site in whole.sites.items():
        whole.network.plug(client, through(client, site))
    found = whole.hub(made).run()
    ended.set()
    versions = found["hub"]["versions"]
    assert found["rounds"] == len(versions) == 12
    assert all(sum(v.values()) == 2 for v in versions)
    counts = {c: sum(v.get(c, 0) for v in versions) for c in ("east", "north", "south", "west")}
    assert 3 * counts["west"] < counts["east"] + counts["north"] + counts["south"]
    assert found["quarantined"] == found["void_rounds"] == []
    assert len(found["clients"]) == 4
