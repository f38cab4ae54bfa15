"""Client optimisers against torch.optim, server optimisers against the recursion of the paper, schedules in numbers."""

import math
import re
from typing import Any

import pytest
import torch

from fedroute.errors import InputError
from fedroute.optim import Adagrad, Adam, Optimizer, Schedule, Sgd, Yogi, schedule, server_optimizer
from fedroute.tree import Weights

PAIRS: dict[str, tuple[Optimizer, type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (Sgd(), torch.optim.SGD, {}),
    "sgd decay": (Sgd(weight_decay=0.05), torch.optim.SGD, {"weight_decay": 0.05}),
    "momentum": (Sgd(momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
    "momentum decay": (Sgd(momentum=0.8, weight_decay=0.1), torch.optim.SGD, {"momentum": 0.8, "weight_decay": 0.1}),
    "nesterov": (Sgd(momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "nesterov decay": (
        Sgd(momentum=0.9, nesterov=True, weight_decay=0.02),
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02},
    ),
    "adam": (Adam(), torch.optim.Adam, {}),
    "adam decay": (Adam(weight_decay=0.1), torch.optim.Adam, {"weight_decay": 0.1}),
    "adam betas": (Adam(beta1=0.5, beta2=0.9, eps=1e-4), torch.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-4}),
    "adam without a mean": (Adam(beta1=0.0), torch.optim.Adam, {"betas": (0.0, 0.999)}),
    "adamw": (Adam(weight_decay=0.1, decoupled=True), torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (Adagrad(), torch.optim.Adagrad, {}),
    "adagrad decay": (Adagrad(weight_decay=0.1), torch.optim.Adagrad, {"weight_decay": 0.1}),
    "adagrad start": (
        Adagrad(initial=0.1, eps=1e-3),
        torch.optim.Adagrad,
        {"initial_accumulator_value": 0.1, "eps": 1e-3},
    ),
}


def gradient(w: torch.Tensor, t: int) -> torch.Tensor:
    """One that depends on the weights and on the step, with zeros in it."""
    return torch.sin(3 * w + t) * (torch.arange(w.numel(), dtype=w.dtype).view_as(w) % 3)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_equals_torch(name: str, dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs, options = PAIRS[name]
    w: Weights = {"a": torch.linspace(-1, 1, 12, dtype=dtype).view(3, 4), "b": torch.ones(5, dtype=dtype)}
    state, parameters = ours.init(w), [torch.nn.Parameter(v.clone()) for v in w.values()]
    reference = theirs(parameters, lr=0.01, **options)  # type: ignore[call-arg]
    for t in range(200):
        lr = 0.01 / (1 + t % 7)  # as a schedule changes it
        w, state = ours.update({k: gradient(v, t) for k, v in w.items()}, state, w, lr)
        for p in parameters:
            p.grad = gradient(p.detach(), t)
        reference.param_groups[0]["lr"] = lr
        reference.step()
    for v, p in zip(w.values(), parameters, strict=True):
        assert v.dtype == dtype
        torch.testing.assert_close(v, p.detach(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", PAIRS)
def test_is_pure_and_leaves_the_rest(name: str) -> None:
    ours = PAIRS[name][0]
    w = {"a": torch.ones(3), "count": torch.tensor(7)}
    state = ours.init({"a": w["a"]})
    frozen = [v.clone() for v in w.values()]
    new, after = ours.update({"a": torch.ones(3)}, state, w, 0.1)
    assert all(torch.equal(v, f) for v, f in zip(w.values(), frozen, strict=True))
    assert new["count"] is w["count"]
    assert new.keys() == w.keys()
    assert after.keys() == state.keys()
    assert not torch.equal(new["a"], w["a"])


@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam", "yogi"])
def test_server_recursion(name: str) -> None:
    """Reddi et al. 2021, algorithm 2, by hand; v starts at tau^2, the negated gradient is delta."""
    b1, b2, tau, eta = 0.9, 0.99, 1e-3, 0.05
    made = server_optimizer(name)
    x = {"w": torch.tensor([0.3, -0.2], dtype=torch.float64)}
    state, want = made.init(x), [[v, 0.0, tau**2] for v in (0.3, -0.2)]
    for t in range(100):
        delta = torch.tensor([math.sin(t), 0.01 * math.cos(2 * t)], dtype=torch.float64)
        x, state = made.update({"w": -delta}, state, x, eta)
        for row, d in zip(want, delta.tolist(), strict=True):
            w, m, v = row
            if name == "momentum":
                m = b1 * m + d
                row[:] = [w + eta * m, m, v]
                continue
            m = d if name == "adagrad" else b1 * m + (1 - b1) * d
            v = {
                "adagrad": v + d * d,
                "adam": b2 * v + (1 - b2) * d * d,
                "yogi": v - (1 - b2) * d * d * (1 if v > d * d else -1),
            }[name]
            row[:] = [w + eta * m / (math.sqrt(v) + tau), m, v]
    torch.testing.assert_close(x["w"], torch.tensor([r[0] for r in want], dtype=torch.float64), rtol=0, atol=1e-12)


def test_server_options() -> None:
    assert server_optimizer("adam", beta1=0.8) == Adam(
        beta1=0.8, beta2=0.99, eps=1e-3, initial=1e-6, bias_correction=False
    )
    assert server_optimizer("yogi", eps=1e-2) == Yogi(beta2=0.99, eps=1e-2, initial=1e-4)
    assert server_optimizer("adagrad", initial=0.0) == Adagrad(eps=1e-3)
    assert server_optimizer("sgd", momentum=0.5) == Sgd(momentum=0.5)
    assert server_optimizer("momentum") == Sgd(momentum=0.9)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adma", {}, "did you mean adam?"),
        ("adam", {"beta": 0.9}, "server_optimizer.beta: unknown key; did you mean beta"),
        ("adam", {"beta1": 1.0}, "server_optimizer.beta1: Input should be less than 1"),
        ("momentum", {"momentum": -0.1}, "greater than or equal to 0"),
    ],
)
def test_server_options_that_are_wrong(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        server_optimizer(name, **options)


def test_bias_correction_keeps_its_digits_in_float32() -> None:
    """The first step of Adam is lr, whatever the gradient: 1 - beta2 must not lose digits."""
    w = {"a": torch.zeros(1)}
    new, _ = Adam(eps=1e-12).update({"a": torch.full((1,), 1e-3)}, Adam().init(w), w, 1.0)
    assert abs(float(new["a"]) + 1) < 1e-6


def test_an_optimizer_of_no_kind_says_so() -> None:
    with pytest.raises(TypeError, match="Optimizer is no optimiser"):
        Optimizer().update({}, {}, {}, 0.1)


@pytest.mark.parametrize(
    ("spec", "rounds", "want"),
    [
        ("constant", 3, [1, 1, 1]),
        ({"name": "step", "gamma": 0.5, "every": 2}, 5, [1, 1, 0.5, 0.5, 0.25]),
        ({"name": "exponential", "gamma": 0.5}, 4, [1, 0.5, 0.25, 0.125]),
        ("cosine", 4, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        ({"name": "cosine", "floor": 0.2}, 2, [1, 0.6]),
        ({"warmup": 3}, 5, [0.25, 0.5, 0.75, 1, 1]),
        ({"name": "exponential", "gamma": 0.5, "warmup": 1}, 3, [0.5, 0.5, 0.25]),
    ],
)
def test_schedules(spec: str | dict[str, Any], rounds: int, want: list[float]) -> None:
    made = schedule(spec)
    assert [made.factor(r, rounds) for r in range(rounds)] == pytest.approx(want, abs=1e-15)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cosin", "training.schedule.name"),
        ({"name": "step", "evry": 3}, "did you mean every?"),
        ({"name": "step", "every": 0}, "greater than or equal to 1"),
        ({"name": "exponential", "gamma": -1}, "training.schedule.gamma"),
    ],
)
def test_schedules_that_are_wrong(spec: str | dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        schedule(spec)


def test_a_schedule_is_its_default_without_options() -> None:
    assert schedule("constant") == Schedule()
