"""What trains at a site: each round once, whoever asks how often; stopped between two batches; remembered."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedroute.certificates.rig import classes, network
from fedroute.config import Training
from fedroute.core import Algorithm, Context
from fedroute.engines.sequential import Sequential
from fedroute.federation import wire
from fedroute.federation.simulated import alone
from fedroute.federation.store import Store
from fedroute.federation.trainer import Trainer
from fedroute.federation.transfer import Spool
from fedroute.federation.transport import Payload, Refused
from fedroute.rounds import client_batches, prepare, start, work_of_round
from fedroute.tree import Tree, sha256

T = Training(batch_size=4, local_epochs=2, lr=0.1)
F = classes((20, 24))


class Watched(Algorithm):
    """FedAvg whose steps can be watched and held up."""

    def step(self, carry: Tree, batch: dict[str, Tensor], ctx: Context) -> tuple[Tree, Tensor]:
        HOOK[0](int(ctx.step))
        return super().step(carry, batch, ctx)


HOOK: list[Callable[[int], Any]] = [lambda t: None]


@pytest.fixture
def steps() -> Any:
    seen: list[int] = []
    HOOK[0] = seen.append
    yield seen
    HOOK[0] = lambda t: None


ALG = prepare(Watched(private=("norm",)), network(), T)
STATE = start(ALG, F)


def trainer(folder: Path, i: int = 1, log: Callable[[str], None] = lambda text: None) -> Trainer:
    who = {"federation": "f", "model": "m", "algorithm": "a", "client": F.clients[i]}
    own = alone(F, i)
    return Trainer(
        ALG, own, lambda r, passes: client_batches(ALG, own, T, 0, r, 0),
        Store(folder / "private", who, lambda: ALG.init_client(ALG.task.init())), Spool(folder / "spool"),
        number=i, clients=2, folder=folder, log=log,
    )  # fmt: skip


def order(round: int = 0, base: int = 0, **more: Any) -> Payload:
    usual: Payload = {"round": round, "base": base, "seed": 0, "lr": 0.1, "judged": False, "chunk": 1 << 20}
    return usual | {"server": wire.encode({"w": STATE.server["w"]})} | more


def want(round: int = 0) -> Any:
    (a,) = Sequential(ALG, F).run(
        STATE.server, STATE.privates, work_of_round(ALG, F, T, 0, round)._replace(clients=(1,))
    )
    return a


def test_a_round_is_what_sequential_computes(tmp_path: Path) -> None:
    made, a = trainer(tmp_path), want()
    reply = made("train", order())
    assert sha256(wire.decode(reply["update"])) == sha256(a.update)  # type: ignore[arg-type]
    assert (reply["steps"], reply["loss"], reply["version"]) == (a.steps, a.loss, 1)
    assert made("hash", {"version": 1})["sha256"] == sha256(a.private)
    assert made("hash", {"version": 0})["sha256"] == sha256(STATE.privates[1])


def test_a_round_is_done_once_whoever_asks_how_often(tmp_path: Path, steps: list[int]) -> None:
    made, replies = trainer(tmp_path), list[Payload]()
    threads = [threading.Thread(target=lambda: replies.append(made("train", order()))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(steps) == 12
    assert len(replies) == 4
    assert all(r == replies[0] for r in replies)
    again = trainer(tmp_path)  # after a restart
    assert again("train", order()) == replies[0]
    assert len(steps) == 12
    assert again("train", order(lr=0.2)) != replies[0]  # another order is another round
    assert len(steps) == 24


def test_what_was_remembered_and_is_torn_is_done_again(tmp_path: Path, steps: list[int]) -> None:
    reply = trainer(tmp_path)("train", order())
    (tmp_path / "trained.json").write_text("{")
    assert trainer(tmp_path)("train", order()) == reply
    for p in (tmp_path / "spool").iterdir():
        p.unlink()
    assert trainer(tmp_path)("train", order()) == reply
    assert len(steps) == 36


def held_up(made: Trainer, work: Payload) -> tuple[threading.Event, threading.Thread, list[Any]]:
    """A training that waits in its second step."""
    go, inside, ended = threading.Event(), threading.Event(), list[Any]()

    def hold(t: int) -> None:
        if t == 1:
            inside.set()
            go.wait(30)

    def train() -> None:
        try:
            ended.append(made("train", work))
        except Refused as e:
            ended.append(e)

    HOOK[0] = hold
    thread = threading.Thread(target=train)
    thread.start()
    assert inside.wait(30)
    return go, thread, ended


def test_a_training_stops_between_two_batches_and_is_done_anew_when_asked_again(tmp_path: Path) -> None:
    made, a = trainer(tmp_path), want()
    go, thread, ended = held_up(made, order())
    assert made.busy == 0
    assert made("cancel", {"round": 5}) == {"stopped": False}  # another round
    assert made("cancel", {"round": 0}) == {"stopped": True}
    seen: list[int] = []
    HOOK[0] = seen.append
    go.set()
    thread.join()
    assert "stopped" in str(ended[0])
    assert len(seen) <= 1
    assert made.store.get(1).version == 0  # nothing was stored
    assert made("cancel", {"round": 0}) == {"stopped": False}
    reply = made("train", order())
    assert sha256(wire.decode(reply["update"])) == sha256(a.update)  # type: ignore[arg-type]


def test_another_order_stops_the_one_before(tmp_path: Path) -> None:
    made, a = trainer(tmp_path), want(1)
    go, thread, ended = held_up(made, order())
    HOOK[0] = lambda t: None
    first = made._job
    assert first
    replies: list[Payload] = []
    second = threading.Thread(target=lambda: replies.append(made("train", order(1))))
    second.start()
    assert first.stop.wait(30)  # the second order has come, before the first goes on
    go.set()
    thread.join()
    second.join()
    assert "stopped" in str(ended[0])
    assert sha256(wire.decode(replies[0]["update"])) == sha256(a.update)  # type: ignore[arg-type]
    assert replies[0]["version"] == 2


def test_private_trees_go_from_round_to_round_and_back_where_the_hub_says(tmp_path: Path) -> None:
    made, state = trainer(tmp_path), STATE
    kept = {0: state.privates[1]}
    for r in range(3):
        reply = made("train", order(r, r, keep="[0, 1]"))
        work = work_of_round(ALG, F, T, 0, r)._replace(clients=(1,))
        (a,) = Sequential(ALG, F).run(state.server, {1: kept[r]}, work)
        assert sha256(wire.decode(reply["update"])) == sha256(a.update)  # type: ignore[arg-type]
        kept[r + 1] = a.private
    assert isinstance(made.store, Store)
    assert made.store.versions() == [1, 2, 3]  # 2 was the base of the last
    reply = made("train", order(1, 1))  # a round that is done once more, from where it began
    assert made("hash", {"version": 2})["sha256"] == sha256(kept[2])


def test_adapting_is_as_in_a_simulation_and_may_add_to_the_private_tree(tmp_path: Path) -> None:
    from fedroute.algorithms import make
    from fedroute.engines.base import Work, context
    from fedroute.engines.sequential import at_client

    alg = prepare(make({"name": "fedbabu", "adapt_epochs": 2}), network(), T)
    state, own = start(alg, F), alone(F, 1)
    plan = client_batches(alg, own, T, 0, 9, 0)
    made = Trainer(
        alg, own, lambda r, passes: plan if (r, passes) == (9, 2) else [],
        Store(tmp_path / "private", {}, lambda: alg.init_client(alg.task.init())), Spool(tmp_path / "spool"),
        number=1, clients=2, folder=tmp_path,
    )  # fmt: skip
    server = wire.encode({k: state.server[k] for k in alg.broadcast})
    made("adapt", order(9, 0, server=server, passes=2, version=10))
    work = Work(9, 0, 0.1, (1,), {1: plan})
    with at_client(work, F.clients[1]):
        want = alg.adapt(context(alg, state.server, state.privates[1], 1, work, F), map(F.take, plan))
    assert made("hash", {"version": 10})["sha256"] == sha256(want)


def test_what_left_is_logged_with_its_bytes(tmp_path: Path) -> None:
    said: list[str] = []
    made = trainer(tmp_path, log=said.append)
    reply = made("train", order())
    assert said == [f"sends the update of round 1: {len(reply['update']):,} bytes"]  # type: ignore[arg-type]
    reply = made("train", order(1, 1, chunk=100))
    id, size = str(reply["update_id"]), int(reply["size"])  # type: ignore[arg-type]
    have = 0
    while have < size:
        piece = made("get", {"id": id, "offset": have, "length": 500})["data"]
        have += len(piece)  # type: ignore[arg-type]
    assert said[1:] == [f"has sent the update of round 2: {size:,} bytes"]
    assert torch.is_tensor(next(iter(wire.decode(made.spool.complete(id))["dw"].values())))


def test_the_trainer_of_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(path: Path, *args: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    made = trainer(tmp_path, log=said.append)
    monkeypatch.setattr("fedroute.federation.store.write_tensors", full)
    with pytest.raises(Refused, match="RunFailed"):
        made("train", order())
    assert any("the disk is full" in text for text in said)
    monkeypatch.undo()
    assert made("train", order())["version"] == 1
