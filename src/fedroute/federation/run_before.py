"""The run that is in a hub's folder: whether it is that of the config, and how another one is begun beside it."""

import json
from pathlib import Path

from fedroute.checkpoint import differences
from fedroute.config import Config, load
from fedroute.errors import InputError
from fedroute.federation.folders import HubFolder
from fedroute.federation.form import without_paths
from fedroute.federation.spec import HubSpec

AGREED, JOINED, DEPARTED = "agreement.json", "joined.json", "departed.json"
DECIDING = ("model", "algorithm", "training", "router", "seed")  # besides `federation:` and some of `hub:`


def same_run(config: Config, run: Path) -> None:
    """run: the run directory of a hub. Once its sites have agreed, only the rest of `hub:` (how long is waited, and
    where) may change; names of sites that have left or have come later may come and go.

    Raises InputError where the config is another one in what decides the result, as `resume` does."""
    if not (run / AGREED).exists():
        return
    others = {
        name for file in (JOINED, DEPARTED) if (run / file).exists() for name in json.loads((run / file).read_text())
    }
    if words := differences(*(_deciding(c, others) for c in (load(run / "config.yaml"), config))):
        raise InputError(
            f"{run}: the run of another config is here: {words}. Put federation.yaml back, or begin a new run with "
            f"`fedroute hub start {run.parent} --new-run`, which keeps this one under another name"
        )


def _deciding(config: Config, others: set[str]) -> dict[str, str]:
    """key -> its value, of what decides the result of a run."""
    given, hub = config.resolved(), config.hub or HubSpec()
    parts = {key: given[key] for key in DECIDING} | {"federation": without_paths(config.federation)}
    flat = {f"{part}.{k}": v for part, of in parts.items() if isinstance(of, dict) for k, v in of.items()}
    flat |= {part: of for part, of in parts.items() if not isinstance(of, dict)}
    flat["hub.sites"] = sorted({*hub.sites} - others) if hub.sites else None
    flat["hub.asynchronous"] = hub.asynchronous.model_dump() if hub.asynchronous else None
    return {key: json.dumps(value, sort_keys=True, ensure_ascii=False) for key, value in flat.items()}


def put_aside(hub: HubFolder) -> Path | None:
    """Gives the run that is there another name, so that the next start begins one: the folder, None where there is no
    run. For a hub that does not run."""
    if not hub.run.exists():
        return None
    number = 1
    while (kept := hub.run.with_name(f"{hub.run.name}-{number}")).exists():
        number += 1
    return hub.run.rename(kept)
