"""The battery: what every algorithm must do on every engine, for your own algorithm in three lines of pytest.

    @pytest.mark.parametrize("check", list(check_algorithm(MyAlgorithm(mu=0.1), neutral=MyAlgorithm(mu=0.0))), ids=str)
    def test_battery(check: Check) -> None:
        check()

It runs small federations in which clients differ in everything: one has no row, one a single row, one a single class,
all make a different number of steps.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import SkipTest

import torch

from fedroute.battery import Battery, EngineMaker, Reversed, ThroughBytes
from fedroute.core import Algorithm
from fedroute.engines.stacked import Stacked
from fedroute.engines.workers import Workers

ENGINES: dict[str, tuple[EngineMaker, float]] = {
    "stacked": (Stacked, 1e-10),
    "workers": (lambda algorithm, federation: Workers(algorithm, federation, workers=2), 0.0),
}
"""Name -> (maker, the largest difference from `sequential` that is allowed in float64)."""


class Check(NamedTuple):
    """One check, to be called: it raises AssertionError with what is wrong. With a reason in `skip` it does not apply
    and raises unittest.SkipTest, which pytest shows as a skip."""

    name: str
    run: Callable[[], None]
    skip: str = ""

    def __call__(self) -> None:
        if self.skip:
            raise SkipTest(self.skip)
        self.run()

    def __str__(self) -> str:
        return self.name


def check_algorithm(
    make: Callable[[], Algorithm] | Algorithm,
    *,
    engines: Mapping[str, tuple[EngineMaker, float]] = ENGINES,
    neutral: Algorithm | None = None,
    neutral_tolerance: float = 0.0,
    skip: Mapping[str, str] | None = None,
) -> Iterator[Check]:
    """The checks of one algorithm, not yet run.

    make: an algorithm with the options to be tested, not bound to a task, or what makes it. engines: those that must
    agree with `sequential`, by default all. neutral: the algorithm at the value of its options at which it is FedAvg,
    if there is one, up to `neutral_tolerance` in any weight. skip: name of a check -> why it does not apply."""
    alg = make if isinstance(make, Algorithm) else make()
    reasons = dict(skip or {})
    battery = Battery(alg)
    checks: dict[str, Callable[[], None]] = {}
    for variant, private in battery.variants.items():
        before = set(checks)
        for name, (maker, tolerance) in engines.items():
            checks[f"engines agree: {name}, {variant}"] = _with(battery.engines_agree, variant, maker, tolerance)
            if alg.own and maker is Stacked:
                reasons[f"engines agree: {name}, {variant}"] = "each client is sent something of its own, so none stack"
        checks[f"engines agree: through bytes, {variant}"] = _with(battery.engines_agree, variant, ThroughBytes, 0.0)
        checks[f"engines agree: clients in reverse, {variant}"] = _with(battery.engines_agree, variant, Reversed, 0.0)
        checks[f"private weights stay, {variant}"] = _with(battery.private_stays, variant)
        checks[f"the form of states and updates is stable, {variant}"] = _with(battery.stable, variant)
        checks[f"a newcomer gets its private part and changes nothing, {variant}"] = _with(battery.newcomer, variant)
        checks[f"resumed is as never stopped, {variant}"] = _with(battery.resumes, variant)
        if reason := battery.refused(private):
            reasons |= dict.fromkeys(checks.keys() - before, f"refused: {reason}")
    checks |= {
        "steps can be mapped over clients": battery.maps,
        "integer buffers stay integers": battery.integers,
        "float32 stays float32": _with(battery.keeps_dtype, torch.float32),
        "float64 stays float64": _with(battery.keeps_dtype, torch.float64),
        "frozen weights do not move": battery.frozen,
        "a client without rows changes nothing": battery.empty_client,
        "a client without steps sends no change and keeps its state": battery.no_steps,
        "a broken client leaves no trace": battery.broken_client,
        "another client's data change nothing of mine": battery.others,
        "nothing that is given is changed": battery.pure,
        "randomness comes from keys alone": battery.random,
        "pickles": battery.pickles,
        "sends what it says": battery.declared,
    }
    for name in ("momentum", "adagrad", "adam", "yogi"):
        checks[f"combines with server {name}"] = _with(battery.combines, server_optimizer=name, server_lr=0.1)
    for name, local in LOCAL.items():
        checks[f"combines with local {name}"] = _with(battery.combines, **local)
    checks["is FedAvg at its neutral value"] = _with(battery.neutral, neutral, neutral_tolerance)
    if neutral is None:
        reasons.setdefault("is FedAvg at its neutral value", "no neutral value is given")
    if unknown := reasons.keys() - checks.keys():
        raise ValueError(f"skip: no check {min(unknown)!r}")
    for name, run in checks.items():
        yield Check(name, run, reasons.get(name, ""))


LOCAL: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "nesterov and weight decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"optimizer": "adam", "lr": 0.01},
    "adamw": {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
}


def _with(f: Callable[..., None], *args: Any, **options: Any) -> Callable[[], None]:
    return lambda: f(*args, **options)
