"""Federations of real processes for tests: a hub and sites with certificates of their own, on this machine."""

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedroute.config import from_dict
from fedroute.federation import kit, onboarding, supervise
from fedroute.federation.folders import HubFolder, SiteFolder
from tests.federation.remote_control import ask, packed

START = (
    "import sys; from pathlib import Path; from fedroute.federation import supervise as s; s.start(Path(sys.argv[1]))"
)
ROOT = Path(__file__).parents[2]
ECHO = {"opens": "tests.federation.remote_control:echo"}
CONFIG = {
    "federation": {"source": "bundled", "name": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"},
}  # fmt: skip


_given, _draw = set[int](), random.SystemRandom()
_from = 10_000 + 1000 * (
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 20
)  # each process of the tests has its own


def free_port() -> int:
    """A port that nobody listens at, given once, and from below those that connections get by themselves: until it is
    listened at nobody takes it by chance."""
    while True:
        port = _draw.randrange(_from, _from + 1000)
        with socket.socket() as s, contextlib.suppress(OSError):
            if port not in _given:
                s.bind(("127.0.0.1", port))
                _given.add(port)
                return port


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> Any:
    """The first true answer of `what`; a hub that is starting may not listen yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if found := what():
                return found
        except OSError:
            pass
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


@dataclass
class Real:
    """A hub and sites in folders under root. Calls go by the hub's own process."""

    root: Path
    port: int = field(default_factory=free_port)
    started: list[Path] = field(default_factory=list)
    gateway: int = 0
    prefix: Callable[[str], list[str]] = lambda name: []  # what is put before a command to run it where `name` is

    @property
    def hub(self) -> HubFolder:
        return HubFolder(self.root / "hub")

    def site(self, name: str) -> SiteFolder:
        return SiteFolder(self.root / name)

    def make_hub(self) -> None:
        onboarding.init_hub(from_dict(CONFIG), self.hub.root, "localhost", self.port)
        self.equip_hub()

    def equip_hub(self, component: str = kit.HUB_COMPONENT) -> None:
        kit.equip_hub(self.hub.kit, component, folder=str(self.hub.root), runs="tests.federation.remote_control:serve")

    def make_site(self, name: str) -> None:
        data = self.root / "data.yaml"
        data.write_text("path: somewhere.csv\n", encoding="utf-8")
        asked, _ = onboarding.request(name, "org", self.site(name).root)
        signed = onboarding.approve(asked, self.hub, self.root / f"{name}.zip").signed
        onboarding.join(signed, self.site(name), data)
        self.equip_site(name)

    def equip_site(self, name: str, component: str = kit.SITE_COMPONENT, **args: Any) -> None:
        kit.equip_site(self.site(name).kit, component, folder=str(self.site(name).root), **(ECHO | args))

    def start(self, *names: str) -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "src", ROOT)))  # what runs at the sites is here
        for name in names:
            words = [*self.prefix(name), sys.executable, "-c", START, str(self.root / name)]
            subprocess.run(words, check=True)
            self.started.append(self.root / name)

    def stop(self) -> None:
        for folder in self.started:
            supervise.stop(folder)

    def copied(self, root: Path, names: tuple[str, ...]) -> "Real":
        """The same certificates at another port: making them takes longer than starting."""
        other = Real(root)
        for name in names:
            shutil.copytree(
                self.root / name, root / name, ignore=shutil.ignore_patterns("control", "rogue", "*.log", "log.txt")
            )
            settings = json.loads((root / name / "settings.json").read_text()) | {"port": other.port}
            (root / name / "settings.json").write_text(json.dumps(settings))
            for file in (root / name / "kit" / "startup").glob("fed_*.json"):
                file.write_text(file.read_text().replace(str(self.port), str(other.port)))
        return other

    # what the tests ask

    def nodes(self) -> list[str]:
        found: list[str] = ask(self.hub.root / "control", do="nodes")["nodes"]
        return found

    def here(self, *names: str) -> None:
        wait_for(lambda: set(names) <= set(self.nodes()))

    def call(self, node: str, method: str, timeout: float = 120.0, **payload: Any) -> dict[str, Any]:
        return ask(
            self.hub.root / "control", do="call", node=node, method=method, payload=packed(payload), timeout=timeout
        )

    def rogue(self, name: str, **what: Any) -> Mapping[str, Any]:
        """What came of a message that the rogue site was told to send."""
        return ask(self.site(name).root / "rogue", **({"timeout": 1.5} | what))

    def process(self, name: str) -> int:
        return int(wait_for(lambda: supervise.Running(self.root / name).process))

    def log(self, name: str) -> str:
        file = self.root / name / "log.txt"
        return file.read_text(encoding="utf-8") if file.exists() else ""
