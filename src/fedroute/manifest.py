"""What leaves a client, tensor by tensor: computed from what the algorithm does, not from what is said about it."""

from typing import Any, NamedTuple

import torch

from fedroute.core import Algorithm, Context, run_client
from fedroute.data.federation import Federation
from fedroute.engines.base import QUALITY_BYTES, Work, context
from fedroute.tree import flatten

WEIGHTS = ("w", "dw")  # the keys under which trees carry the model's weights and their change


class Entry(NamedTuple):
    """One tensor of the model, or one that an algorithm adds to it.

    tensor: the weight's name; of another tensor its path in the update or broadcast ("dc/fc.weight" of SCAFFOLD), and
    "private/" with its path for one that its client keeps. role: that of the weight, or "state" for what belongs to no
    weight. leaves: whether it, or its change, leaves the client. bytes: what leaves in a round, or else the tensor's
    own. direction: "up", "down", "both" or "stays". down_bytes: what comes from the server in a round."""

    tensor: str
    role: str
    leaves: bool
    bytes: int
    direction: str
    down_bytes: int = 0

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return self._asdict()


def manifest(algorithm: Algorithm, federation: Federation | None = None, judged: bool = False) -> list[Entry]:
    """What one client sends, gets and keeps in one round of a bound algorithm: model weights in their order, then what
    else there is.

    It runs a round without steps and looks at the update, the broadcast and the private state. So the bytes of the
    entries that leave add up to those of a real update, and the down_bytes to those of a real broadcast. federation:
    only its number of clients counts, for algorithms whose broadcast grows with it. judged: whether clients send their
    quality too, as with weighting by validation: one number, beside the update."""
    w = algorithm.task.init()
    sizes = federation.sizes() if federation else torch.ones(1, dtype=torch.int64)
    server, private = algorithm.init(w, sizes), algorithm.init_client(w)
    broadcast = context(algorithm, server, private, 0, Work(0, 0, 1.0, (0,), {0: []})).server
    none = torch.tensor(0)
    update, kept, _ = run_client(algorithm, Context(broadcast, private, none, none, none, 1.0), [])
    up, down, stays = _sizes(update), _sizes(broadcast), _sizes(kept)
    travels = up.keys() | down.keys()
    stays = {k if k in w and k not in travels else f"private/{k}": n for k, n in stays.items()}
    extra = [k for k in [*up, *down, *stays] if k not in w]
    found = [
        _entry(k, algorithm.task.roles, up.get(k), down.get(k), stays.get(k))
        for k in dict.fromkeys([*w, *extra])
        if k in travels or k in stays
    ]
    return found + [Entry("quality", "state", True, QUALITY_BYTES, "up")] * judged


def _sizes(tree: dict[str, Any]) -> dict[str, int]:
    """Path -> bytes, where the path of a weight is its name."""
    found = {}
    for path, t in flatten(tree).items():
        top, _, name = path.partition("/")
        found[name if top in WEIGHTS else path] = t.numel() * t.element_size()
    return found


def _entry(name: str, roles: dict[str, str], up: int | None, down: int | None, stays: int | None) -> Entry:
    role = roles.get(name) or roles.get(name.rpartition("/")[2], "state")
    direction = "stays" if stays is not None else "up" if down is None else "down" if up is None else "both"
    size = next(n for n in (up, stays, down) if n is not None)
    return Entry(name, role, up is not None, size, direction, down or 0)
