"""What a federation looks like, for summary.json and the report."""

from typing import Any

import torch

from fedroute.data.federation import Federation


def classifies(federation: Federation) -> bool:
    """Whether the targets are class codes with names; for other targets there is a loss and nothing else."""
    return bool(federation.labels) and federation.y.dtype == torch.int64 and federation.y.ndim == 1


def describe(federation: Federation) -> dict[str, Any]:
    """{name, labels, label_counts: {client: [training rows of each label]}, sizes: {client: {train, validation,
    test}}, newcomers: [client], columns, shape, notes}, of plain numbers and strings."""
    counts = federation.label_counts.tolist()
    sizes = {part: federation.sizes(part).tolist() for part in ("train", "validation", "test")}
    return {
        "name": federation.name,
        "labels": list(federation.labels),
        "label_counts": dict(zip(federation.clients, counts, strict=True)) if classifies(federation) else {},
        "sizes": {c: {part: n[i] for part, n in sizes.items()} for i, c in enumerate(federation.clients)},
        "newcomers": [federation.clients[i] for i in federation.newcomers],
        "columns": list(federation.columns),
        "shape": list(federation.x.shape[1:]),
        "notes": list(federation.notes),
    }
