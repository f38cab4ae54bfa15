"""What may not happen at the same time in one process."""

import threading

ONE = threading.Lock()
"""Held by what trains or makes a model: torch's random state and thread count, and the weights of a module, belong to
the whole process. What is quick never takes it."""
