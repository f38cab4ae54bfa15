"""Which answers may enter the mean: an update that is broken is left out with its client and the reason."""

from typing import NamedTuple

import torch

from fedroute.engines.base import Answer
from fedroute.tree import Tree, flatten


class Quarantined(NamedTuple):
    round: int
    client: str
    reason: str


def fault(answer: Answer, pattern: Tree, bound: float = 1e6) -> str:
    """Why this answer must stay out, or "". `pattern`: an update of the declared form, whose values do not matter.

    Refused: a client that raised; missing, renamed or undeclared tensors; another shape or dtype; NaN or Inf;
    a value beyond `bound` in magnitude; a step count below 0."""
    if answer.error:
        return "raised " + answer.error.strip().rpartition("\n")[2]
    if answer.steps < 0:
        return f"claims {answer.steps} steps"
    got, want = flatten(answer.update), flatten(pattern)
    if missing := want.keys() - got.keys():
        return f"lacks {min(missing)}"
    if extra := got.keys() - want.keys():
        return f"sent the undeclared {min(extra)}"
    for name, t in got.items():
        if t.shape != want[name].shape:
            return f"{name} has shape {tuple(t.shape)}, declared {tuple(want[name].shape)}"
        if t.dtype != want[name].dtype:
            return f"{name} is {t.dtype}, declared {want[name].dtype}"
        top = t.abs().max() if t.numel() else torch.zeros(())
        if not bool(torch.isfinite(top)):
            return f"{name} has NaN or Inf"
        if bool(top > bound):
            return f"{name} has a value of {float(top):.3g}, beyond {bound:g}"
    return ""
