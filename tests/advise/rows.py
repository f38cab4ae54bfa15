"""Profiles as JSON says them, made up: what the rules read of one, and nothing else."""

from typing import Any

LEVELS = ((0.5, "strong"), (0.2, "clear"), (0.01, "mild"))


def client(
    name: str, rows: int = 200, *flags: str, copies: int = 0, labels: dict[str, int] | None = None
) -> dict[str, Any]:
    return {
        "name": name, "rows": rows + copies, "effective_rows": rows, "duplicates": {"exact": copies, "near": 0},
        "labels": labels or {"a": rows // 2, "b": rows - rows // 2}, "flags": list(flags), "weight": 0.1,
    }  # fmt: skip


def profile(
    clients: list[dict[str, Any]] | None = None,
    *,
    labels: int = 10,
    mix: float = 1.0,
    own: float = 0.9,
    others: float = 0.9,
    sick: tuple[dict[str, Any], ...] = (),
    **strengths: Any,
) -> dict[str, Any]:
    """strengths: by kind; those not given are none."""
    skew = {
        k: {"strength": s, "verdict": next((v for low, v in LEVELS if s >= low), "none")}
        for k in ("label", "feature", "quantity", "time", "concept")
        for s in (strengths.get(k, 0.0),)
    }
    skew["label"]["effective_classes"] = mix * labels
    skew["concept"] |= {"own": own, "others": others}
    return {
        "clients": clients or [client(f"c{i}") for i in range(6)], "labels": [str(k) for k in range(labels)],
        "skew": skew, "sick": list(sick), "parts": list(strengths),
    }  # fmt: skip
