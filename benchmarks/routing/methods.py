"""The trainings that routers are compared on."""

from collections.abc import Mapping
from typing import Any

METHODS: dict[str, Mapping[str, Any]] = {
    "detached": {"name": "feddrm", "lam": 0.5, "detach": True},
    "feddrm-0.9": {"name": "feddrm", "lam": 0.9},
    "fedavg": {"name": "fedavg"},
    "fedrep": {"name": "fedrep"},
    "feddrm-0.8": {"name": "feddrm", "lam": 0.8},
    "feddrm-0.5": {"name": "feddrm", "lam": 0.5},
    "feddrm-auto": {"name": "feddrm", "lam": "auto"},
    "detached-own": {"name": "feddrm", "lam": 0.5, "detach": True, "share": "none"},
}
"""Name -> algorithm. FedPer has no training of its own: its weights are those of `detached` without the branch, bit for
bit, as `fedroute check feddrm` shows. detached-own: the router is a net of its own."""
