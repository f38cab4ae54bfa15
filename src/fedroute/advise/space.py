"""What the tuner may change in a config, and how far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from fedroute.errors import InputError
from fedroute.options import nearest

if TYPE_CHECKING:
    from fedroute.config import Config
    from fedroute.core import Algorithm
    from fedroute.data.federation import Federation

REACH = 10.0  # numbers without an upper bound are tried from a tenth to ten times what the config says
ROLES = ("norm", "head")  # which may stay with their clients
FIXED = ("delta", "explore", "m", "s")  # numbers of an algorithm that are a matter of cost and not of fit


class Dial(NamedTuple):
    """One thing that is tuned. key: in the config, such as "training.lr". kind: "log" or "linear", a number between
    low and high; "whole", a whole one; "choice", one of `choices`. now: what the config says."""

    key: str
    kind: str
    now: Any
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()

    def suggest(self, trial: Any) -> Any:
        """A value, drawn by an optuna trial."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.key, self.choices)
        if self.kind == "whole":
            return trial.suggest_int(self.key, int(self.low), int(self.high))
        return trial.suggest_float(self.key, self.low, self.high, log=self.kind == "log")


def space(config: "Config", federation: "Federation", over: Sequence[str] = ()) -> list[Dial]:
    """The dials of a config: the learning rate, local epochs or steps, the numbers of its algorithm, and the roles of
    the weights that stay with their clients, of those that this model and algorithm can do without. over: only these,
    by key or its last word ("lr", "algorithm.lam"); all by default.

    Raises InputError for one that there is not."""
    dials = [*_training(config), *_numbers(config), *_private(config, federation)]
    for name in over:
        if not any(name in (d.key, d.key.partition(".")[2]) for d in dials):
            known = [d.key.partition(".")[2] for d in dials]
            raise InputError(f"--over {name}: nothing of that name can be tuned here; {nearest(name, known)}")
    return [d for d in dials if not over or d.key in over or d.key.partition(".")[2] in over]


def tuned(config: "Config", values: Mapping[str, Any]) -> "Config":
    """The config with these values at these keys."""
    algorithm = dict(config.algorithm)
    training: dict[str, Any] = {}
    for key, value in values.items():
        part, _, name = key.partition(".")
        if part == "training":
            training[name] = value
        else:
            algorithm[name] = roles_of(value) if name == "private" else value
    return config.model_copy(update={"algorithm": algorithm, "training": config.training.model_copy(update=training)})


def roles_of(choice: str) -> list[str]:
    """ "norm+head" -> [norm, head]."""
    return [r for r in choice.split("+") if r]


def _training(config: "Config") -> Iterator[Dial]:
    t = config.training
    yield Dial("training.lr", "log", t.lr, t.lr / REACH, t.lr * REACH)
    if t.local_steps:
        yield Dial("training.local_steps", "whole", t.local_steps, max(1, t.local_steps // 2), 2 * t.local_steps)
    else:
        now = t.local_epochs or 1
        yield Dial("training.local_epochs", "whole", now, 1, 2 * now + 1)


def _numbers(config: "Config") -> Iterator[Dial]:
    """The numbers of the algorithm, between its own bounds where it has both."""
    from fedroute.algorithms import ALGORITHMS

    cls = ALGORITHMS[config.algorithm["name"]]
    hints = get_type_hints(cls, include_extras=True)
    for f in fields(cls):
        now = config.algorithm.get(f.name, f.default)
        if (
            f.name in FIXED
            or f.name not in config.algorithm
            or isinstance(now, bool)
            or not isinstance(now, int | float)
        ):
            continue
        low, high = _bounds(hints[f.name])
        if isinstance(f.default, int):
            yield Dial(f"algorithm.{f.name}", "whole", now, max(1, low or 1), min(high or 2 * now + 3, 2 * now + 3))
        elif high is not None and low is not None:
            margin = (high - low) / 100  # the ends are often forbidden, and other methods
            yield Dial(f"algorithm.{f.name}", "linear", now, min(now, low + margin), max(now, high - margin))
        elif now > 0:
            yield Dial(f"algorithm.{f.name}", "log", now, now / REACH, now * REACH)


def _bounds(hint: Any) -> tuple[float | None, float | None]:
    """(lowest, highest) that the annotation of a field allows, None where it says nothing."""
    found: dict[str, float] = {}
    for note in getattr(hint, "__metadata__", ()):
        for m in getattr(note, "metadata", (note,)):
            found |= {k: float(v) for k in ("ge", "gt", "le", "lt") if (v := getattr(m, k, None)) is not None}
    return found.get("ge", found.get("gt")), found.get("le", found.get("lt"))


def _private(config: "Config", federation: "Federation") -> Iterator[Dial]:
    """The sets of roles that the algorithm can keep at home on this model; none where there is no choice."""
    from fedroute.core import Task
    from fedroute.models import build
    from fedroute.task import loss_for

    task = Task(*build(config.model, federation, config.seed), loss_for(federation.y))
    there = {*task.roles.values(), *(["norm"] if task.norms else [])}
    wanted = ["", *(r for r in ROLES if r in there), *(["norm+head"] if there.issuperset(ROLES) else [])]
    now = "+".join(config.algorithm.get("private", ()))
    sets: dict[frozenset[str], str] = {}
    for choice in dict.fromkeys([now, *wanted]):
        bound = _fits(config, choice, task)
        if bound is not None and set(task.trainable) - bound.kept:  # what is kept anyhow makes no difference
            sets.setdefault(bound.kept, choice)
    if len(sets) > 1:
        yield Dial("algorithm.private", "choice", now, choices=tuple(sets.values()))


def _fits(config: "Config", choice: str, task: Any) -> "Algorithm | None":
    from fedroute.algorithms import make
    from fedroute.rounds import prepare

    try:
        return prepare(make(config.algorithm | {"private": roles_of(choice)}), task, config.training)
    except InputError:
        return None
