"""fedroute: federated learning for clients that differ. The names below are imported when they are first used."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedroute.advise.job import advise_federation as advise
    from fedroute.core import Algorithm, Context
    from fedroute.data.federation import Federation
    from fedroute.profile.profile import profile
    from fedroute.router.router import Router
    from fedroute.task import Task
    from fedroute.training import fit

__version__ = "0.1.0"
_HOME = {
    "Algorithm": "core",
    "Context": "core",
    "Federation": "data.federation",
    "Router": "router.router",
    "Task": "task",
    "advise": "advise",
    "fit": "training",
    "profile": "profile",
}
__all__ = ["Algorithm", "Context", "Federation", "Router", "Task", "advise", "fit", "profile"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'fedroute' has no attribute {name!r}")
    home = importlib.import_module(f"fedroute.{_HOME[name]}")
    return home if _HOME[name] == name else getattr(home, name)  # a package that can be called
