"""What a component runs, by name: NVFLARE's local files hold text only."""

import importlib
from typing import Any


def load_name(text: str) -> Any:
    """What "module:name" names."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)
