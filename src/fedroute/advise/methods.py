"""The methods that an advice can name: their configs, what they cost, and what each is for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedroute.advise.said import Said

PASSES = 3  # over its own rows that a client makes at the end, where a method fine-tunes


@dataclass(frozen=True, kw_only=True)
class Method:
    """config: as in a config's `algorithm:` part. gradients: for each batch, where FedAvg computes one. passes: over a
    client's rows after the last round. sends: whether anything leaves. norms: whether it keeps normalisation layers at
    home, so that the model must have some. training: what it wants of the `training:` part. good: what it is for."""

    config: Mapping[str, Any]
    gradients: int = 1
    passes: int = 0
    sends: bool = True
    norms: bool = False
    training: Mapping[str, Any]
    good: Said

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def private(self) -> tuple[str, ...]:
        """The roles of weights that never leave a client, those that the method keeps by itself among them."""
        own = {
            "fedbn": ("norm",),
            "pfedme_fedbn": ("norm",),
            "fedper": ("head",),
            "fedrep": ("head",),
            "alone": ("all",),
        }
        return tuple(dict.fromkeys([*own.get(self.name, ()), *self.config.get("private", ())]))


def _method(
    good: str, zh: str, config: Mapping[str, Any], training: Mapping[str, Any] | None = None, **cost: Any
) -> Method:
    return Method(config=config, training=training or {}, good=Said(good, zh), **cost)


SPRING = {"lam": 15.0, "inner_steps": 3, "inner_lr": 0.1}
SLOW = {"lr": 0.05}  # the server's step is lr lam: three quarters of the way
METHODS: dict[str, Method] = {
    "fedavg": _method("one model for all", "所有客户端共用一个模型", {"name": "fedavg"}),
    "alone": _method("each client for itself", "每个客户端各自训练", {"name": "alone"}, sends=False),
    "fedavg_ft": _method(
        "one model, which each client fine-tunes at the end",
        "一个模型，最后由各客户端微调",
        {"name": "fedavg_ft", "adapt_epochs": PASSES},
        passes=PASSES,
    ),
    "interpolation": _method(
        "one model, of which each client mixes in as much as its own rows say",
        "一个模型，各客户端按自己的数据决定掺入多少",
        {"name": "interpolation", "adapt_epochs": PASSES},
        passes=PASSES,
    ),
    "fedper": _method("a shared body under heads that stay", "主体共享，头部留在本地", {"name": "fedper"}),
    "fedrep": _method("a shared body, and heads that learn first", "主体共享，头部先学", {"name": "fedrep"}),
    "ditto": _method(
        "a model each, on a spring to the shared one",
        "各有一个模型，用弹簧与共享模型相连",
        {"name": "ditto", "lam": 1.0},
        gradients=2,
    ),
    "apfl": _method(
        "a model each, mixed with the shared one while both learn",
        "各有一个模型，学习中与共享模型混合",
        {"name": "apfl"},
        gradients=2,
    ),
    "fedbn": _method(
        "one model, whose normalisation layers stay at their clients",
        "一个模型，归一化层留在各客户端",
        {"name": "fedbn"},
        norms=True,
    ),
    "fedper_fedbn": _method(
        "a shared body, with heads and normalisation layers that stay",
        "主体共享，头部和归一化层留在本地",
        {"name": "fedper", "private": ["norm"]},
        norms=True,
    ),
    "fedprox": _method(
        "one model, and clients that do not run far from it",
        "一个模型，各客户端不会偏离太远",
        {"name": "fedprox", "mu": 0.1},
    ),
    "pfedme": _method(
        "a model each, on a spring to a shared one",
        "各有一个模型，用弹簧与一个共享模型相连",
        {"name": "pfedme"} | SPRING,
        SLOW,
        gradients=3,
    ),
    "pfedme_fedbn": _method(
        "a model each on a spring, and normalisation layers that stay",
        "各有一个用弹簧相连的模型，归一化层留在本地",
        {"name": "pfedme_fedbn"} | SPRING,
        SLOW,
        gradients=3,
        norms=True,
    ),
}
"""Label -> method. A label is the algorithm's name, but for `fedper_fedbn`, which is fedper with [norm] private."""


def contender(label: str) -> dict[str, Any]:
    """As `prove` takes it."""
    return {"algorithm": dict(METHODS[label].config), "training": dict(METHODS[label].training)}
