"""Writes the tables of the docs that say what the code already knows: `python docs/make_tables.py` (make docs)."""

from pathlib import Path
from typing import Any

import yaml

from fedroute.algorithms import describe
from fedroute.models import MODELS

HEAD = """# Algorithms and models

Made from the code by `make docs`; `fedroute algorithms --json` and `fedroute models --json` print the same. Each
algorithm's docstring has its equations and every deviation from its paper; `fedroute check NAME` measures what a paper
proves on your machine. Every algorithm takes `private: [norm]`, `[head]`, `[body]` or names of weights that then never
leave their client, and combines with every optimiser, server optimiser, weighting and engine, or says why not.

"""


def algorithms() -> str:
    lines = ["## Algorithms", "", "| name | what it is | paper | options | what goes up |", "|---|---|---|---|---|"]
    for row in describe():
        options = [f"`{o['name']}` {_default(o['default'])}" for o in row["options"] if o["name"] != "private"]
        sends = "; ".join(f"`{k}`: {v}" for k, v in row["sends"].items()) or "nothing"
        lines.append(f"| `{row['name']}` | {row['summary']} | {row['paper']} | {', '.join(options)} | {sends} |")
    return "\n".join(lines)


EXAMPLES = """## An example of each

Complete configs, with every option of the algorithm at its default. Each runs in seconds: write it into a file and
`fedroute run FILE --out DIR`. `[norm]`, `[head]` or `[body]` in `private` keep these weights at their client.

"""


def examples() -> str:
    """A config of each algorithm that runs on the bundled digits."""
    return EXAMPLES + "\n\n".join(f"### {row['name']}\n\n```yaml\n{example(row)}```" for row in describe())


def example(row: dict[str, Any]) -> str:
    options = {o["name"]: o["default"] for o in row["options"]}
    parts: dict[str, dict[str, Any]] = {
        "federation": {"source": "bundled", "name": "digits"},
        "model": {"name": "mlp_bn", "hidden": [32]},
        "algorithm": {"name": row["name"], **options},
        "training": {"rounds": 5, "local_epochs": 1, "batch_size": 32, "lr": 0.1},
    }
    return "".join(f"{part}: {_flow(value)}\n" for part, value in parts.items())


def _flow(value: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip()


def models() -> str:
    lines = ["## Models", "", "| name | what it is | options |", "|---|---|---|"]
    for name, model in MODELS.items():
        row = model.row(name)
        options = [f"`{o['name']}` {_default(o['default'])}" for o in row["options"]]
        lines.append(f"| `{name}` | {row['summary']} | {', '.join(options)} |")
    return "\n".join(lines)


def _default(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def page() -> str:
    return HEAD + "\n\n".join((algorithms(), models(), examples())) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "algorithms.md").write_text(page(), encoding="utf-8")
