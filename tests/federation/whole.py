"""A whole federation in one process: sites with tables of their own, a hub, and what a simulation makes of the same."""

import csv
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedroute.config import Config, from_dict
from fedroute.federation.hub import Hub
from fedroute.federation.inprocess import InProcess
from fedroute.federation.site import Site
from fedroute.federation.transport import Handler
from fedroute.jobs import start
from fedroute.randomness import generator

ROWS = {"east": 60, "north": 81, "south": 44, "west": 70}
COLUMNS = ("age", "pulse", "sex", "ward")


def rows_of(client: str, n: int) -> list[list[str]]:
    g = generator(7, client)
    shift = sorted(ROWS).index(client)
    made = []
    for v in torch.randn(n, 4, generator=g).tolist():
        ill = v[0] + 0.5 * v[1] * (1 if shift % 2 else -1) + 0.3 * v[2] > 0.2
        pulse = "" if v[3] > 1.4 else f"{70 + 9 * v[1]:.1f}"
        made.append([f"{50 + 12 * v[0] + shift:.0f}", pulse, "f" if v[2] > 0 else "m", "abc"[int(v[3] * 3) % 3],
                     "ill" if ill else "well"])  # fmt: skip
    return made


def write_table(path: Path, rows: list[list[str]], *more: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as f:
        w = csv.writer(f)
        w.writerow([*COLUMNS, "illness", *more])
        w.writerows(rows)


def config(algorithm: dict[str, Any] | str = "fedavg", hub: dict[str, Any] | None = None, **training: Any) -> Config:
    usual = {"rounds": 3, "batch_size": 16, "lr": 0.1, "evaluate_every": 1, "checkpoint_every": 1}
    return from_dict(
        {
            "federation": {
                "source": "csv", "path": "all.csv", "label": "illness", "client": "site",
                "split": {"validation": 0.2, "test": 0.25},
            },
            "model": {"name": "mlp_bn", "hidden": [8]},
            "algorithm": {"name": algorithm} if isinstance(algorithm, str) else algorithm,
            "training": usual | training,
            "hub": {"sites": sorted(ROWS), "wait": 60.0, "deadline": 60.0} | (hub or {}),
        }
    )  # fmt: skip


@dataclass
class Whole:
    """root: a folder for everybody's. said: what the hub says; heard: what each site logs."""

    root: Path
    said: list[str] = field(default_factory=list)
    heard: dict[str, list[str]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for client, n in ROWS.items():
            write_table(self.root / f"{client}.csv", rows_of(client, n))
        together = [[*r, c] for c, n in ROWS.items() for r in rows_of(c, n)]
        write_table(self.root / "all.csv", together, "site")
        self.network = InProcess({c: self.site(c) for c in sorted(ROWS)})

    def site(self, client: str, accept: str = "any") -> Site:
        """A site that starts, or starts again."""
        heard = self.heard.setdefault(client, [])
        source = {"path": f"{client}.csv"}
        made = Site(client, self.root / client, source, base=self.root, accept=accept, log=heard.append)
        self.sites[client] = made
        return made

    def restart(self, client: str, accept: str = "any") -> None:
        """As after kill -9: what was in memory is gone, what it computes is stopped and stored nowhere."""
        self.network.unplug(client)
        self.sites[client].close()
        self.network.plug(client, self.site(client, accept))

    def replace(self, client: str, handler: Handler) -> None:
        self.network.plug(client, handler)

    def hub(self, config: Config, network: InProcess | None = None) -> Hub:
        return Hub(config, self.root / "run", network or self.network, log=self.said.append, stop=self.stop)

    def simulated(self, config: Config) -> dict[str, Any]:
        """summary.json of a simulation with all rows in one file."""
        placed = config.model_copy(
            update={"federation": config.federation | {"path": str(self.root / "all.csv")}, "hub": None}
        )
        placed = placed.model_copy(update={"engine": placed.engine.model_copy(update={"name": "sequential"})})
        return start(
            placed, self.root / "simulated", force=True, progress=lambda *a: None, log=lambda text: None
        ).summary()
