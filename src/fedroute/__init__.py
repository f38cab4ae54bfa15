"""fedroute: federated learning for clients that differ. The names below are imported when they are first used."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedroute.core import Algorithm, Context
    from fedroute.data.federation import Federation
    from fedroute.task import Task
    from fedroute.training import fit

__version__ = "0.1.0"
_HOME = {
    "Algorithm": "core",
    "Context": "core",
    "Federation": "data.federation",
    "Task": "task",
    "fit": "training",
}
__all__ = ["Algorithm", "Context", "Federation", "Task", "fit"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'fedroute' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedroute.{_HOME[name]}"), name)
