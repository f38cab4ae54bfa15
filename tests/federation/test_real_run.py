"""Runs between real processes: the result of a simulation, hash for hash, also where site and hub are killed on the
way, and queries answered by the sites' own models."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

pytest.importorskip("nvflare")

from fedroute.config import Config
from fedroute.federation import kit, onboarding, supervise
from fedroute.federation.lives import hub_status, hub_words, wait_for_run
from fedroute.jobs import start
from fedroute.router.spec import RouterSpec
from tests.federation.federations import Real, free_port, wait_for
from tests.federation.spoiling import WHY
from tests.federation.test_hub import CASES
from tests.federation.whole import ROWS, config, rows_of, write_table

SITES = ("east", "north", "south")


def made(algorithm: dict[str, Any], **training: Any) -> Config:
    return config(algorithm, {"sites": [*SITES]}, **training)


def joined(real: Real, config: Config, names: tuple[str, ...], equip: Callable[[], object] = lambda: None) -> None:
    """Starts a hub with that config and sites with a table each. equip: called before the hub starts."""
    real.gateway = free_port()
    onboarding.init_hub(config, real.hub.root, "localhost", real.port, gateway=f"127.0.0.1:{real.gateway}")
    equip()
    real.start("hub")
    for name in names:
        write_table(real.root / f"{name}.csv", rows_of(name, ROWS[name]))
        data = real.root / f"{name}.yaml"
        data.write_text(f"path: {name}.csv\n")
        asked, _ = onboarding.request(name, "org", real.site(name).root)
        signed = onboarding.approve(asked, real.hub, real.root / f"{name}.zip").signed
        onboarding.join(signed, real.site(name), data)
        real.site(name).keep(**real.site(name).settings() | {"accept": "any"})
        real.start(name)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A hub, whose config each test gives it, and three sites with a table each."""
    real = Real(tmp_path_factory.mktemp("run"))
    write_table(real.root / "all.csv", [[*r, c] for c in SITES for r in rows_of(c, ROWS[c])], "site")
    try:
        joined(real, made(CASES["fedavg"]), SITES)
        yield real
    finally:
        real.stop()


@pytest.fixture
def to_be_left(tmp_path: Path) -> Iterator[Real]:
    """A federation of its own, for who leaves is not there for the tests that come after."""
    real = Real(tmp_path)
    try:
        named = config(CASES["fedavg"], {"sites": ["north", "south"]})
        joined(real, named.model_copy(update={"router": RouterSpec(kind="auto")}), ("north", "south"))
        yield real
    finally:
        real.stop()


def begin(real: Real, config: Config) -> None:
    """The hub anew with another config; the sites stay as they are."""
    supervise.stop(real.hub.root)
    shutil.rmtree(real.hub.run, ignore_errors=True)
    (real.hub.root / "state.json").unlink(missing_ok=True)
    real.hub.config.write_text(yaml.safe_dump(config.resolved()), encoding="utf-8")
    real.start("hub")


def ended(real: Real) -> dict[str, Any]:
    try:
        wait_for_run(real.hub, lambda text: None)
    except Exception as e:
        raise AssertionError("\n".join([str(e), *(real.log(n) for n in ("hub", *SITES))])) from e
    found: dict[str, Any] = json.loads((real.hub.run / "summary.json").read_text())
    return found


def simulated(real: Real, config: Config) -> dict[str, Any]:
    engine = config.engine.model_copy(update={"name": "sequential"})
    federation = config.federation | {"path": str(real.root / "all.csv")}
    placed = config.model_copy(update={"federation": federation, "hub": None, "engine": engine})
    run = start(placed, real.root / "simulated", force=True, progress=lambda *a: None, log=lambda text: None)
    return run.summary()


def same(real: Real, config: Config) -> None:
    """The run that has ended has the result of a simulation of the same config."""
    there, here = ended(real), simulated(real, config)
    assert there["weights_sha256"] == here["weights_sha256"]
    assert there["weights_sha256"]["clients"].keys() == {*SITES}
    assert there["accuracy"] == here["accuracy"]
    assert there["void_rounds"] == there["quarantined"] == []


@pytest.mark.parametrize("name", ["pfedme, norm private", "feddrm"])
def test_the_result_is_that_of_a_simulation(real: Real, name: str) -> None:
    config = made(CASES[name])
    begin(real, config)
    same(real, config)


def test_a_site_and_the_hub_are_killed_on_the_way(real: Real) -> None:
    config = made(CASES["scaffold"], rounds=150, evaluate_every=150, alone=False)
    begin(real, config)
    for victim in ("north", "hub"):
        later(real, 3)
        os.kill(real.process(victim), signal.SIGKILL)
        wait_for(partial(says, real, victim, "ended by itself (signal 9)"))
    same(real, config)
    assert "going on after round" in real.log("hub")


def test_what_a_site_must_not_send_is_left_out_with_its_reason(real: Real) -> None:
    """By the connection itself: what the messages are checked for otherwise stands in test_faults."""
    supervise.stop(real.site("south").root)
    real.equip_site("south", opens="tests.federation.spoiling:Spoiling")
    real.start("south")
    try:
        begin(real, made(CASES["fedavg"], rounds=3, alone=False))
        found = ended(real)
    finally:
        supervise.stop(real.site("south").root)
        kit.equip_site(real.site("south").kit, folder=str(real.site("south").root))
        real.start("south")
    assert [(q["round"], q["client"]) for q in found["quarantined"]] == [(r, "south") for r in (1, 2, 3)]
    for q, why in zip(found["quarantined"], WHY, strict=True):
        assert re.search(why, q["reason"]), q["reason"]
    assert found["void_rounds"] == []


def test_queries_are_answered_by_the_sites_own_models(real: Real) -> None:
    config = made(CASES["fedavg"])
    begin(real, config.model_copy(update={"router": RouterSpec(kind="auto")}))
    same(real, config)
    query = {"age": 61, "pulse": 80, "sex": "f", "ward": "a"}
    with httpx.Client(base_url=f"http://127.0.0.1:{real.gateway}", timeout=30) as gateway:
        wait_for(lambda: up(gateway))
        first = gateway.post("/v1/predict", json={"query": query}).json()
        assert first["client"] == first["answered_by"] in SITES
        chosen = first["client"]
        supervise.stop(real.site(chosen).root)  # the first choice goes, and the next in line answers
        wait_for(lambda: not here(gateway, chosen))
        other = gateway.post("/v1/predict", json={"query": query}).json()
        assert other["client"] == chosen != other["answered_by"]
        assert other["fallback"] is True
        real.start(chosen)  # it comes back, and answers as before without being told anything
        wait_for(lambda: here(gateway, chosen))
        again = gateway.post("/v1/predict", json={"query": query}).json()
        assert [again[k] for k in ("client", "answered_by", "answer")] == [
            first[k] for k in ("client", "client", "answer")
        ]


def test_a_site_leaves_and_the_hub_hears_it(to_be_left: Real) -> None:
    real, site = to_be_left, to_be_left.site("south")
    ended(real)
    query = {"age": 61, "pulse": 80, "sex": "f", "ward": "a"}
    with httpx.Client(base_url=f"http://127.0.0.1:{real.gateway}", timeout=30) as gateway:
        wait_for(lambda: up(gateway))
        assert names(gateway) == ["north", "south"]
        done = subprocess.run(
            [sys.executable, "-c", "from fedroute.cli import main; main()", "site", "leave", str(site.root)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the hub has heard it; it is stopped" in done.stdout
        assert not supervise.Running(site.root).alive
        assert names(gateway) == ["north"]
        assert gateway.post("/v1/predict", json={"query": query}).json()["client"] == "north"
    wait_for(lambda: "south: has left the federation for good" in hub_words(hub_status(real.hub)))


def later(real: Real, rounds: int) -> None:
    """Waits until the run is that many rounds on."""

    def round_of() -> int:
        return int(hub_status(real.hub).get("round") or 0)

    begun = wait_for(round_of)
    try:
        wait_for(lambda: round_of() >= begun + rounds)
    except AssertionError as e:
        words = [f"from round {begun}: {e}", hub_words(hub_status(real.hub))]
        raise AssertionError("\n".join([*words, *(real.log(n) for n in ("hub", *SITES))])) from e


def says(real: Real, name: str, words: str) -> bool:
    return words in real.log(name)


def up(gateway: httpx.Client) -> bool:
    try:
        return gateway.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def names(gateway: httpx.Client) -> list[str]:
    return [c["client"] for c in gateway.get("/v1/clients").json()["clients"]]


def here(gateway: httpx.Client, client: str) -> bool:
    return {c["client"]: bool(c["here"]) for c in gateway.get("/v1/clients").json()["clients"]}[client]
