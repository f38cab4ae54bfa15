"""Which answers may enter the mean: an update that is broken is left out with its client and the reason."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fedroute.engines.base import Answer
from fedroute.tree import Tree, flatten
from fedroute.words import count, noun

BOUND = 1e6
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
UNRAISED = ("no answer", "no update")  # how an error begins that is not the client's own exception


class Quarantined(NamedTuple):
    round: int
    client: str
    reason: str


def fault(answer: Answer, pattern: Tree, bound: float = BOUND, planned: int | None = None, judged: bool = False) -> str:
    """Why this answer must stay out, or "".

    pattern: an update of the declared form, whose values do not matter. bound: the largest magnitude a value may have;
    a variance, which is a square, may have its square. (A weight that is of use is below 100 or so; 1e6 leaves room
    for statistics of columns that nobody scaled, and stays far from where float32 sums lose the others' digits.)
    planned: the steps this client was asked for. judged: whether it was asked for its quality.

    Refused: a client that raised, or gave no answer; missing, renamed or undeclared tensors; another shape or dtype;
    NaN or Inf, also in the private state that it would go on from; a value beyond the bound; a step count below 0 or
    over what was planned; a quality outside of 0..1."""
    if answer.error:
        said = answer.error.strip().rpartition("\n")[2]
        return said if said.startswith(UNRAISED) else f"raised {said}"
    if answer.steps < 0 or (planned is not None and answer.steps > planned):
        asked = "" if planned is None else f", asked for {planned}"
        return f"claims {answer.steps} {noun(answer.steps, 'step')}{asked}"
    if judged and (answer.quality is None or not 0 < answer.quality <= 1):
        return f"claims a quality of {answer.quality}: it lies above 0 and is at most 1"
    if not isinstance(answer.update, dict):
        return f"sent a {type(answer.update).__name__} and no update"
    if why := misfit(answer.update, pattern, bound):
        return why
    if planned and answer.steps == 0 and any(bool((t != 0).any()) for t in flatten(answer.update).values()):
        return f"claims no step of the {planned} it was asked for, and sent a change all the same"
    for name, t in flatten(answer.private).items():
        if not math.isfinite(magnitude(t)):
            return f"would keep NaN or Inf in its private {name}"
    return ""


def misfit(tree: Tree, pattern: Tree, bound: float | None = math.inf) -> str:
    """Why a tree is not of the declared form, or "": names, shapes, types, finite, nothing beyond `bound` (None: values
    are not looked at)."""
    got, want = flatten(tree), flatten(pattern)
    if missing := want.keys() - got.keys():
        return f"lacks {min(missing)}"
    if extra := got.keys() - want.keys():
        return f"sent the undeclared {min(extra)}"
    for name, t in got.items():
        if not isinstance(t, Tensor):
            return f"{name} is a {type(t).__name__}, declared a tensor"
        if t.shape != want[name].shape:
            return f"{name} has shape {tuple(t.shape)}, declared {tuple(want[name].shape)}"
        if t.dtype != want[name].dtype:
            return f"{name} is {t.dtype}, declared {want[name].dtype}"
        if bound is None:
            continue
        top = magnitude(t)
        if not math.isfinite(top):
            return f"{name} has NaN or Inf"
        limit = bound**2 if name.endswith("running_var") else bound
        if top > limit:
            return f"{name} has a value of {top:.3g}, beyond {limit:g} (training.update_bound says otherwise)"
    return ""


def magnitude(t: Tensor) -> float:
    """The largest absolute value; 0 of nothing, NaN where there is one."""
    if not t.numel():
        return 0.0
    low, high = (float(v) for v in t.detach().aminmax())
    return math.nan if math.isnan(low) or math.isnan(high) else max(-low, high)


def streak(quarantined: Sequence[Quarantined], client: str, round: int) -> tuple[int, str]:
    """(n, reason): this client was left out of n rounds in a row that end with `round`, of that one for this reason;
    (0, "") where it was not."""
    reasons = {q.round: q.reason for q in quarantined if q.client == client}
    n = 0
    while round - n in reasons:
        n += 1
    return n, reasons.get(round, "")


def how_often(quarantined: Sequence[Quarantined], rounds: int) -> dict[str, str]:
    """Words on each client that was left out, most often first."""
    last = {q.client: q.reason for q in quarantined}
    times = Counter(q.client for q in {(q.round, q.client): q for q in quarantined}.values())
    return {
        client: f"left out of {n} of {count(rounds, 'round')}, at last: {last[client]}"
        for client, n in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    }


def alike(a: str, b: str) -> bool:
    """Whether two reasons differ in numbers at most, such as seconds."""
    return NUMBER.sub("#", a) == NUMBER.sub("#", b)
