"""A real federation computes what was simulated, and leaves the same run directory."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.config import from_dict
from fedroute.engines.sequential import answer
from fedroute.errors import InputError, RunFailed
from fedroute.federation import wire
from fedroute.federation.hub import Hub
from fedroute.federation.transport import Payload, Refused
from tests.federation.federations import wait_for
from tests.federation.whole import ROWS, Whole, config

CASES: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "scaffold": {"name": "scaffold"},
    "pfedme, norm private": {"name": "pfedme", "private": ["norm"]},
    "feddrm": {"name": "feddrm"},
}


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_a_simulation_hash_for_hash(name: str, tmp_path: Path) -> None:
    whole, made = Whole(tmp_path), config(CASES[name], clients_per_round=3.0, momentum=0.5)
    there, here = whole.hub(made).run(), whole.simulated(made)
    assert there["weights_sha256"] == here["weights_sha256"]
    assert there["weights_sha256"]["clients"].keys() == ROWS.keys()
    assert there["traffic"] == here["traffic"]
    assert there["accuracy"] == here["accuracy"]
    assert [c["better_off"] for c in there["clients"]] == [c["better_off"] for c in here["clients"]]
    assert there["quarantined"] == there["void_rounds"] == []


def test_the_run_directory_is_as_fit_writes_it(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    summary = whole.hub(config()).run()
    run, sim = tmp_path / "run", tmp_path / "simulated"
    whole.simulated(config())
    assert {p.name for p in run.iterdir()} == {p.name for p in sim.iterdir()} | {"agreement.json"}
    assert (run / "clients.csv").read_text() == (sim / "clients.csv").read_text()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    assert json.loads((run / "summary.json").read_text()) == summary
    assert summary.keys() >= json.loads((sim / "summary.json").read_text()).keys()
    assert "hub" in summary
    again = Hub(config(), run, whole.network, log=whole.said.append)
    assert again.run() == summary  # it has ended: nothing is done
    state = again.status()
    assert state["phase"] == "done"
    assert [s["client"] for s in state["sites"]] == sorted(ROWS)


def test_everybody_hears_what_left(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.hub(config(rounds=2)).run()
    heard = "\n".join(whole.heard["north"])
    for what in ("answer to survey", "answer to statistics", "the update of round 1:", "the update of round 2:",
                 "answer to judge", "answer to hash"):  # fmt: skip
        assert what in heard, what
    assert json.loads((tmp_path / "north" / "manifest.json").read_text())["sha256"]
    assert not (tmp_path / "run" / "private").exists()


def test_private_trees_never_leave(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    sent: list[bytes] = []
    for c, site in whole.sites.items():

        def through(method: str, payload: Payload, site: Any = site) -> Payload:
            reply: Payload = site(method, payload)
            sent.extend(v for v in reply.values() if isinstance(v, bytes))
            return reply

        whole.replace(c, through)
    whole.hub(config({"name": "pfedme", "private": ["norm"]}, rounds=2)).run()
    for c in ROWS:
        files = list((tmp_path / c).glob("runs/*/private/*.safetensors"))
        assert files
        for file in files:
            tree = wire.decode(file)
            for name, t in {**tree["w"], **tree["theta"]}.items():
                if t.is_floating_point() and t.numel() > 4 and bool(t.count_nonzero()):
                    assert not any(t.numpy().tobytes() in data for data in sent), name
    assert sent


def test_sites_answer_queries_afterwards_and_after_a_restart(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    with pytest.raises(Refused, match="nothing is agreed"):
        whole.sites["east"]("query", {"x": wire.plain_bytes("x", torch.zeros(1, 3))})
    whole.hub(config({"name": "pfedme", "private": ["norm"]})).run()
    columns = len(json.loads((tmp_path / "run" / "summary.json").read_text())["federation"]["columns"])
    x = wire.plain_bytes("x", torch.randn(5, columns))
    reply = whole.network.call("east", "query", {"x": x}, 60)
    p = wire.plain(bytes(reply["p"]), "p")  # type: ignore[arg-type]
    assert p.shape == (5, 2)
    assert p.dtype == torch.float64
    assert torch.allclose(p.exp().sum(1), torch.ones(5, dtype=torch.float64))
    other = wire.plain(bytes(whole.network.call("west", "query", {"x": x}, 60)["p"]), "p")  # type: ignore[arg-type]
    assert not torch.equal(p, other)  # each by its own model
    whole.restart("east")
    assert wire.plain(bytes(whole.network.call("east", "query", {"x": x}, 60)["p"]), "p").equal(p)  # type: ignore[arg-type]
    for wrong, why in {
        b"x": "not safetensors",
        wire.plain_bytes("y", torch.zeros(1, columns)): "one tensor",
        wire.plain_bytes("x", torch.zeros(1, columns + 1)): "are answered",
        wire.plain_bytes("x", torch.zeros(0, columns)): "1 to 4,096 rows",
        wire.plain_bytes("x", torch.full((1, columns), torch.nan)): "NaN",
    }.items():
        with pytest.raises(Refused, match=why):
            whole.network.call("east", "query", {"x": wrong}, 60)


def test_what_is_quick_is_answered_while_a_site_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Whole(tmp_path)
    whole.hub(config(rounds=1, alone=False)).run()
    site, inside, go = whole.sites["east"], threading.Event(), threading.Event()

    def held(*args: Any) -> Any:
        inside.set()
        go.wait(600)
        return answer(*args)

    monkeypatch.setattr("fedroute.federation.trainer.answer", held)
    columns = len(json.loads((tmp_path / "run" / "summary.json").read_text())["federation"]["columns"])
    order: Payload = {"round": 1, "base": 1, "seed": 0, "lr": 0.1, "judged": False, "chunk": 1 << 20}
    order["server"] = wire.encode(wire.decode(next((tmp_path / "east").glob("runs/*/served.safetensors"))))
    ended: list[Any] = []

    def ask() -> None:
        try:
            ended.append(site("train", order))
        except Refused as e:
            ended.append(str(e))

    thread = threading.Thread(target=ask)
    thread.start()
    assert inside.wait(60)
    assert site("hello", {})["state"] == "training"
    x = wire.plain_bytes("x", torch.zeros(2, columns))
    assert wire.plain(bytes(site("query", {"x": x})["p"]), "p").shape == (2, 2)  # type: ignore[arg-type]
    assert site("have", {"id": "a" * 64}) == {"have": 0}
    assert site("cancel", {"round": 1}) == {"stopped": True}
    go.set()
    thread.join()
    assert ended == ["round 2 was stopped"]
    assert site("hello", {})["state"] == "serving"


def test_nothing_is_told_before_the_owner_accepts(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.restart("north", accept="")
    hub = whole.hub(config())
    done: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: done.append(hub.run()), daemon=True)
    running.start()
    wait_for(lambda: any("waiting for its owner" in text for text in whole.said) or not running.is_alive())
    wait_for(lambda: [s["client"] for s in hub.status()["sites"] if "has not accepted yet" in s["words"]] == ["north"])
    sites = hub._standing.sites
    assert sites
    sites.spec, usual = sites.spec.model_copy(update={"wait": 0.1}), sites.spec
    time.sleep(1.0)  # owners read in their own time: hub.wait is for machines
    assert running.is_alive()
    sites.spec = usual
    for method in ("train", "judge", "hash", "statistics", "get", "query"):
        with pytest.raises(Refused, match="owner has not accepted"):
            whole.sites["north"](method, {"asked": "{}"})
    manifest = json.loads((tmp_path / "north" / "manifest.json").read_text())
    assert any("waiting for its owner" in text and manifest["sha256"] in text for text in whole.said)
    (tmp_path / "north" / "accepted").write_text(manifest["sha256"] + "\n")
    running.join(600)
    assert done[0]["rounds"] == 3  # it has gone on by itself
    assert {s["words"] for s in hub.status()["sites"]} == {""}
    again = whole.hub(config())
    again.run()
    assert (again.status()["phase"], again.status()["round"]) == ("done", 3)  # also a hub that finds its run ended


def test_data_that_do_not_fit_are_named_with_their_site(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    text = (tmp_path / "north.csv").read_text()
    (tmp_path / "north.csv").write_text(text.replace("pulse", "puls", 1))
    with pytest.raises(InputError, match=r"north.*pulse|pulse.*north"):
        whole.hub(config()).run()


def test_a_site_that_does_not_come_is_named(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.network.start()
    whole.network.unplug("west")
    whole.network.start = lambda: None  # type: ignore[method-assign]
    with pytest.raises(RunFailed, match=r"waited 0\.5 s for west: .*hub\.sites"):
        whole.hub(config(hub={"wait": 0.5})).run()


def test_who_comes_without_being_named_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedroute.federation.asking.SETTLED", 0.3)
    whole, made = Whole(tmp_path), config(rounds=1)
    assert made.hub
    summary = whole.hub(made.model_copy(update={"hub": made.hub.model_copy(update={"sites": None})})).run()
    assert sorted(summary["weights_sha256"]["clients"]) == sorted(ROWS)


@pytest.mark.parametrize(
    ("hub", "training", "why"),
    [
        ({"asynchronous": {"buffer": 2}, "late": "use"}, {}, "leave late out"),
        ({"sites": ["a", "a"]}, {}, "stands there twice"),
        ({"deadlin": 3}, {}, "did you mean deadline"),
        ({"asynchronous": {"bufer": 3}}, {}, "did you mean buffer"),
        ({"deadline": 0}, {}, "above 0"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(hub: dict[str, Any], training: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        config(hub=hub, **training)


@pytest.mark.parametrize(
    ("algorithm", "hub", "training", "why"),
    [
        ("fedamp", {"asynchronous": {"buffer": 2}}, {}, "fedamp looks at all updates"),
        ("fedavg", {"asynchronous": {"buffer": 2}}, {"clients_per_round": 2.0}, "clients_per_round"),
        ("fedavg", {"late": "use"}, {"robust": "median"}, "counts each answer once"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    algorithm: str, hub: dict[str, Any], training: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=why):
        Whole(tmp_path).hub(config(algorithm, hub, **training)).run()


def test_a_simulation_does_not_mind_the_part(tmp_path: Path) -> None:
    assert from_dict(config().resolved()).hub == config().hub
