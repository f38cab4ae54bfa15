"""Know before you train: how the clients differ, and what is sick in their data.

`fedroute.profile(federation)` is `fedroute.profile.profile.profile(federation)`: the package can be called, because
it has the name of what it does."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedroute.data.federation import Federation
    from fedroute.profile.profile import Profile


class _Callable(ModuleType):
    def __call__(self, federation: "Federation", seed: int = 0, health: bool = True) -> "Profile":
        found: Profile = import_module("fedroute.profile.profile").profile(federation, seed, health)
        return found


sys.modules[__name__].__class__ = _Callable
