"""A site that sends what it must not: NaN in round 1, another shape in round 2, an undeclared tensor in round 3."""

from collections.abc import Callable
from pathlib import Path

import torch

from fedroute.federation import wire
from fedroute.federation.site_process import open_site
from fedroute.federation.transport import Payload
from fedroute.tree import Tree, tree_map

WHY = (r"dw/.* has NaN or Inf", r"no update: dw/.* has shape", r"no update: sent the undeclared rows")
SPOILED: tuple[Callable[[Tree], Tree], ...] = (
    lambda t: tree_map(lambda v: v * torch.nan if v.is_floating_point() else v, t),
    lambda t: tree_map(lambda v: v.reshape(-1, 1), t),
    lambda t: t | {"rows": torch.zeros(9)},
)


class Spoiling:
    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.site = open_site(folder, say)

    def __call__(self, method: str, payload: Payload) -> Payload:
        reply = self.site(method, payload)
        if method != "train" or not isinstance(data := reply.get("update"), bytes):
            return reply
        spoil = SPOILED[int(str(payload["round"]))]
        return reply | {"update": wire.encode(spoil(wire.decode(data)))}

    def close(self) -> None:
        self.site.close()
