"""Clients that are elsewhere compute what `sequential` computes: every algorithm, bit for bit, through bytes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedroute.algorithms import ALGORITHMS, make
from fedroute.battery import Battery
from fedroute.certificates.rig import classes
from fedroute.config import Training, from_dict
from fedroute.core import Algorithm, Context, Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.federation.simulated import Simulated
from fedroute.manifest import manifest
from fedroute.models import build
from fedroute.rounds import prepare, start, work_of_round
from fedroute.training import fit

SLOW = {"feddrm", "fedpac", "fedala"}  # of these one choice of private weights, of the others all


def federation() -> Federation:
    made = classes((30, 41, 20, 25), d=8)
    return replace(made, x=made.x.float(), labels=("a", "b", "c"), validation=tuple(rows[:6] for rows in made.train))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_computes_what_sequential_does(name: str) -> None:
    battery = Battery(make(name))
    fitting = [v for v, private in battery.variants.items() if not battery.refused(private)]
    for variant in fitting[:1] if name in SLOW else fitting:
        battery.engines_agree(variant, Simulated, 0.0)


@pytest.mark.parametrize(
    "algorithm",
    [{"name": "fedavg"}, {"name": "scaffold"}, {"name": "pfedme", "private": ["norm"]}, {"name": "feddrm"}],
    ids=lambda a: a["name"],
)
def test_a_run_ends_with_the_same_hashes(algorithm: dict[str, Any]) -> None:
    def run(engine: str) -> dict[str, Any]:
        done = fit(
            federation(), "mlp_bn", algorithm, engine=engine, rounds=4, batch_size=8, momentum=0.5, alone=False,
            clients_per_round=3.0, log=lambda text: None,
        )  # fmt: skip
        return done.summary()

    here, there = run("sequential"), run("transport")
    assert there["weights_sha256"] == here["weights_sha256"]
    assert there["traffic"] == here["traffic"]
    assert there["accuracy"] == here["accuracy"]
    assert there["engine"] == "transport"


def test_quality_comes_with_the_answer() -> None:
    def run(engine: str) -> Any:
        return fit(
            federation(), "mlp", "fedavg", engine=engine, rounds=2, alone=False, log=lambda text: None,
            weighting={"by": "validation"},
        ).summary()  # fmt: skip

    here, there = run("sequential"), run("transport")
    assert there["quality"] == here["quality"] != {}
    assert there["weights_sha256"] == here["weights_sha256"]


@pytest.mark.parametrize("in_memory", [1 << 20, 100])
def test_trees_larger_than_a_piece_go_by_transfer(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedroute.engines.transport.IN_MEMORY", in_memory)  # beyond it a tree is a file
    battery = Battery(make("scaffold"))
    battery.engines_agree("norm private", lambda alg, f: Simulated(alg, f, chunk=100), 0.0)


def test_what_crosses_is_what_the_manifest_says() -> None:
    f, t = federation(), Training(rounds=1)
    alg = prepare(
        make({"name": "scaffold", "private": ["norm"]}), Task(*build({"name": "mlp_bn", "hidden": [256]}, f, 0)), t
    )
    engine, state = Simulated(alg, f), start(alg, f)
    work = work_of_round(alg, f, t, 0, 0)
    assert not [a.error for a in engine.run(state.server, state.privates, work) if a.error]
    entries = manifest(alg, f)
    up, down = sum(e.bytes for e in entries if e.leaves), sum(e.down_bytes for e in entries)
    for name in f.clients:
        assert up < engine.network.up[name] < 1.02 * up + 4096
        assert down < engine.network.down[name] < 1.02 * down + 4096
    engine.close()


def test_a_client_that_raises_says_so_and_nothing_of_its_rows() -> None:
    class Raises(Algorithm):
        def loss(self, out: Any, batch: Any, ctx: Context) -> torch.Tensor:
            if int(ctx.client) == 2:
                raise ValueError(f"secret {batch['x']}")
            return super().loss(out, batch, ctx)

    said: list[str] = []
    done = fit(federation(), "mlp", Raises(), engine="transport", rounds=1, alone=False, log=said.append)
    assert [(q.client, q.reason) for q in done.state.quarantined] == [
        ("c02", "no update: its training raised ValueError; the traceback is in the log of this site")
    ]
    assert "secret" not in "".join(said)


def test_a_config_may_name_it() -> None:
    base = {"federation": "bundled:digits", "model": "mlp", "algorithm": "fedavg"}
    document = {
        k: {"name": v} if k != "federation" else {"source": "bundled", "name": "digits"} for k, v in base.items()
    }
    assert from_dict(document | {"engine": {"name": "transport"}}).engine.name == "transport"
    with pytest.raises(InputError, match="transport"):
        from_dict(document | {"engine": {"name": "transprt"}})
