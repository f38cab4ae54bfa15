"""Hub and sites on hosts of their own, with what networks do in between: the result is that of a simulation, hash for
hash, wherever nobody is left out, and whoever is left out is named with the reason."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("nvflare")

from fedroute.config import Config
from fedroute.federation import onboarding, supervise
from fedroute.federation.folders import HubFolder, SiteFolder
from fedroute.federation.lives import hub_status, wait_for_run
from fedroute.jobs import preview, start
from tests.federation.federations import ROOT, wait_for
from tests.federation.network import HUB, Link, Network, lacking
from tests.federation.whole import ROWS, config, rows_of, write_table

pytestmark = pytest.mark.skipif(bool(why := lacking()), reason=why)
SITES = ("east", "north", "south")
LARGE = {"name": "mlp", "hidden": [256, 256]}  # 275 kB of weights


class Far:
    """A hub and three sites with a table each, every one in a network namespace of its own."""

    def __init__(self, root: Path, network: Network) -> None:
        self.root, self.network = root, network
        self.hub = HubFolder(root / "hub")
        write_table(root / "all.csv", [[*r, c] for c in SITES for r in rows_of(c, ROWS[c])], "site")
        onboarding.init_hub(made(), self.hub.root, network.host, 8702)
        for name in SITES:
            write_table(root / f"{name}.csv", rows_of(name, ROWS[name]))
            (root / f"{name}.yaml").write_text(f"path: {name}.csv\n")
            asked, _ = onboarding.request(name, "org", root / name)
            signed = onboarding.approve(asked, self.hub, root / f"{name}.zip").signed
            site = SiteFolder(root / name)
            onboarding.join(signed, site, root / f"{name}.yaml")
            site.keep(**site.settings() | {"accept": "any"})
            self.start(name)

    def start(self, name: str) -> None:
        code = "import sys; from pathlib import Path; from fedroute.federation.supervise import start as s; "
        command = [sys.executable, "-c", code + "s(Path(sys.argv[1]))", str(self.root / name)]
        paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
        subprocess.run([*self.network.prefix(name), *command], check=True, env=os.environ | {"PYTHONPATH": paths})

    def begin(self, config: Config) -> None:
        """The hub anew with another config; the sites stay as they are."""
        supervise.stop(self.hub.root)
        shutil.rmtree(self.hub.run, ignore_errors=True)
        (self.hub.root / "state.json").unlink(missing_ok=True)
        self.hub.config.write_text(yaml.safe_dump(config.resolved()), encoding="utf-8")
        self.start(HUB)

    def stop(self) -> None:
        for name in (HUB, *SITES):
            supervise.stop(self.root / name)

    def round(self) -> int:
        return int(hub_status(self.hub).get("round") or 0)

    def ended(self) -> dict[str, Any]:
        try:
            wait_for_run(self.hub, lambda text: None)
        except Exception as e:
            raise AssertionError("\n".join([str(e), *map(self.log, (HUB, *SITES))])) from e
        found: dict[str, Any] = json.loads((self.hub.run / "summary.json").read_text())
        return found

    def log(self, name: str) -> str:
        return (self.root / name / "log.txt").read_text(encoding="utf-8")

    def kill(self, name: str) -> None:
        os.kill(int(wait_for(lambda: supervise.Running(self.root / name).process)), signal.SIGKILL)
        wait_for(lambda: "ended by itself (signal 9)" in self.log(name))

    def same(self, config: Config) -> None:
        """The run that has ended has the result of a simulation of the same config."""
        there = self.ended()
        engine = config.engine.model_copy(update={"name": "sequential"})
        federation = config.federation | {"path": str(self.root / "all.csv")}
        placed = config.model_copy(update={"federation": federation, "hub": None, "engine": engine})
        run = start(placed, self.root / "simulated", force=True, progress=lambda *a: None, log=lambda text: None)
        assert there["quarantined"] == there["void_rounds"] == []
        assert there["weights_sha256"] == run.summary()["weights_sha256"]
        assert there["weights_sha256"]["clients"].keys() == {*SITES}


def made(algorithm: str = "scaffold", hub: dict[str, Any] | None = None, **more: Any) -> Config:
    training = {"rounds": 4, "evaluate_every": 100, "alone": False} | more
    model = training.pop("model", None)
    found = config(algorithm, {"sites": [*SITES], "deadline": 120.0} | (hub or {}), **training)
    return found.model_copy(update={"model": model}) if model else found


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with Network([*SITES]) as network:
        far = Far(tmp_path_factory.mktemp("far"), network)
        try:
            yield far
        finally:
            far.stop()


@pytest.fixture
def links(far: Far) -> Iterator[dict[str, Link]]:
    """As good as new afterwards."""
    yield far.network.links
    for link in far.network.links.values():
        link.delay, link.loss, link.rate = 0.0, 0.0, None
        link.mend()


def until(what: Callable[[], bool], seconds: float = 300.0) -> None:
    wait_for(what, seconds)


def test_what_is_uploaded_is_what_the_manifest_says(far: Far, links: dict[str, Link]) -> None:
    """Within 2 %, and what frames it: agreement, TLS and WebSocket records, a word every five seconds."""
    rounds = 5
    config = made("fedavg", model=LARGE | {"hidden": [512, 512]}, rounds=rounds)
    here = config.federation | {"path": str(far.root / "all.csv")}
    told = sum(row["bytes"] for row in preview(config.model_copy(update={"federation": here}))[0] if row["leaves"])
    before = {name: link.up for name, link in links.items()}
    far.begin(config)
    far.same(config)
    for name, link in links.items():
        assert rounds * told <= link.up - before[name] <= 1.02 * rounds * told + 60_000


def test_a_delay_and_losses_change_nothing(far: Far, links: dict[str, Link]) -> None:
    for link in links.values():
        link.delay, link.loss = 0.2, 0.05
    config = made()
    far.begin(config)
    far.same(config)


def test_a_site_and_the_hub_killed_in_the_middle_of_rounds_change_nothing(far: Far, links: dict[str, Link]) -> None:
    for link in links.values():
        link.delay = 0.05
    config = made(rounds=25)
    far.begin(config)
    for victim in ("north", HUB):
        at = wait_for(far.round)
        until(lambda at=at: far.round() >= at + 2)  # type: ignore[misc]
        far.kill(victim)
    far.same(config)
    assert "going on after round" in far.log(HUB)


def test_a_cut_of_twenty_seconds_in_the_middle_of_a_transfer_changes_nothing(far: Far, links: dict[str, Link]) -> None:
    link = links["south"]
    config = made("fedavg", {"chunk": 1 << 15}, model=LARGE)
    far.begin(config)
    link.rate = 60_000.0
    at = wait_for(far.round)
    until(lambda: far.round() > at)
    before = link.down
    until(lambda: link.down > before + 60_000)  # of the 275 kB that go down in each round
    link.cut()
    time.sleep(20)
    assert far.round() == at + 1
    link.mend()
    link.rate = None
    far.same(config)


def test_a_site_ten_times_slower_than_the_deadline_is_left_out_and_named(far: Far, links: dict[str, Link]) -> None:
    deadline, rounds = 10.0, 3
    config = made("fedavg", {"deadline": deadline, "chunk": 1 << 15}, model=LARGE, rounds=rounds, quorum=0.5)
    far.begin(config)
    links["east"].rate = 2 * 275_000 / (10 * deadline)
    until(lambda: far.round() >= 1)
    took = list[float]()
    for r in range(2, rounds):
        before = time.monotonic()
        until(lambda r=r: far.round() >= r)  # type: ignore[misc]
        took.append(time.monotonic() - before)
    assert max(took) < 5 * deadline
    links["east"].rate = None
    summary = far.ended()
    late = [q for q in summary["quarantined"] if q["client"] == "east"]
    assert len(late) >= 2
    assert {q["client"] for q in summary["quarantined"]} == {"east"}
    assert all(q["reason"] == f"no answer within {deadline:g} s" for q in late)
    assert summary["void_rounds"] == []
