"""What a reader of the report must know before believing its numbers."""

from collections.abc import Sequence
from typing import Any

from fedroute.evaluate.wilson import wilson
from fedroute.report.words import Unit, count, listed, whole

SMALL = 50  # test rows under which a client's own accuracy is hardly known


def caveats(summary: dict[str, Any], clients: Sequence[dict[str, Any]], unit: Unit) -> list[str]:
    """Sentences, the gravest first; each is there only where it applies."""
    if not clients:
        return []
    part = summary.get("measured", {}).get("part", "test")
    said = [*_of_models(clients, unit), *_of_rows(clients, part, unit)]
    compared = sum(c.get("better_off") in ("yes", "no", "unclear") for c in clients)
    if compared >= 10:
        said.append(
            f"Each verdict is made at 95 % for one client by itself. Of {compared} clients that gain and lose nothing "
            f"up to about {whole(max(1, round(0.05 * compared)))} would get a verdict other than unclear by chance."
        )
    if unit.metric == "pr_auc":
        positive = summary.get("measured", {}).get("positive")
        of = f" of {positive!r}" if positive else ""
        said.append(
            f"Events are rare here (under 5 % of the training rows), so clients are judged by PR-AUC{of}: always "
            "naming the frequent class would have an accuracy over 95 % and find nothing."
        )
    seed = "" if summary.get("seed") is None else f" ({summary['seed']})"
    said.append(
        f"This is one run with one seed{seed}. The intervals are over test rows; how much another seed would change is "
        "not in them."
    )
    return said


def _of_models(clients: Sequence[dict[str, Any]], unit: Unit) -> list[str]:
    said = []
    if unit.metric == "accuracy":
        beaten = [c["name"] for c in clients if _both(c, "majority", "personal") and c["personal"] <= c["majority"]]
        if beaten:
            said.append(
                f"For {listed(beaten)} always naming the most frequent label of the training rows does as well as the "
                "personal model or better: its accuracy there shows no skill."
            )
    undefined = [c["name"] for c in clients if c.get("personal") is None]
    if undefined:
        said.append(f"{listed(undefined)}: n/a, and in no mean. The reason stands in the ledger.")
    return said


def _of_rows(clients: Sequence[dict[str, Any]], part: str, unit: Unit) -> list[str]:
    small = [c for c in clients if 0 < c.get(part, 0) < SMALL]
    if not small:
        return []
    names = listed([c["name"] for c in small])
    n = min(c[part] for c in small)
    text = f"{count(len(small), 'client has', 'clients have')} fewer than {SMALL} {part} rows ({names})."
    low, high = wilson(0.8 * n, n) or (0.0, 1.0)
    if unit.metric == "accuracy":
        text += f" With {count(n, 'row')} a measured 80 % may be anything from {100 * low:.0f} to {100 * high:.0f} %."
    return [text + " Read their intervals, not their numbers."]


def _both(client: dict[str, Any], *keys: str) -> bool:
    return all(client.get(k) is not None for k in keys)
