"""What to train: rules over a profile, the head-to-head that proves them, and the tuner.

`fedroute.advise(federation)` is `fedroute.advise.job.advise_federation(federation)`: the package can be called, because
it has the name of what it does."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedroute.advise.advice import Advice
    from fedroute.data.federation import Federation


class _Callable(ModuleType):
    def __call__(self, federation: "Federation", model: Mapping[str, Any] | None = None, *, seed: int = 0) -> "Advice":
        found: Advice = import_module("fedroute.advise.job").advise_federation(federation, model, seed=seed)
        return found


sys.modules[__name__].__class__ = _Callable
