"""Routed answers as a service: the gateway, and its client."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedroute.service.client import Client, ServiceError
    from fedroute.service.edge import Edge

__all__ = ["Client", "Edge", "ServiceError"]
_HOME = {"Client": "client", "Edge": "edge", "ServiceError": "client"}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'fedroute.service' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedroute.service.{_HOME[name]}"), name)
