"""`python -m benchmarks.routing train|evaluate SETTING METHOD SEED --cache DIR`; `list` says what there is."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.routing.evaluate import evaluate
from benchmarks.routing.methods import METHODS
from benchmarks.routing.round_time import measure
from benchmarks.routing.settings import SETTINGS
from benchmarks.routing.train import trained

RESULTS = Path(__file__).parents[1] / "results" / "routing"


def save(name: str, found: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(rounded(found)) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Numbers with four digits after the point."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("what", choices=("train", "evaluate", "speed", "list"))
    parser.add_argument("jobs", nargs="*", metavar="SETTING/METHOD/SEED")
    parser.add_argument("--cache", type=Path, default=Path("routing-cache"), help="folder that keeps trainings")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def say(text: str) -> None:
        print(text, flush=True)

    if options.what == "list":
        for name, s in SETTINGS.items():
            print(f"{name:<12} {s.about}")
        print(f"methods: {', '.join(METHODS)}")
        return 0
    if options.what == "speed":
        found = measure(options.cache)
        save("speed", found)
        say(json.dumps(found, indent=1))
    for job in options.jobs:
        setting, method, seed = job.split("/")
        if options.what == "evaluate":
            found = evaluate(setting, method, int(seed), options.cache, say=say)
            save(f"{setting}-{method}-{seed}", found)
            say(f"chosen: {found['chosen']}")
        else:
            trained(setting, method, int(seed), SETTINGS[setting].federation(int(seed), options.cache), options.cache,
                    say=say)  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
