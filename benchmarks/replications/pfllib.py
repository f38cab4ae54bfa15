"""CIFAR-10 dealt by Dirichlet(0.1) to twenty clients: the setting of PFLlib's leaderboard (Zhang et al. 2023, "PFLlib:
Personalized Federated Learning Algorithm Library"), which has CIFAR-100 and Fashion-MNIST but not CIFAR-10."""

from typing import Any

from benchmarks.replications.cifar10 import cifar10
from benchmarks.replications.setting import Arm, Kind, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split

TITLE = "CIFAR-10 among twenty clients, personal models"
BOARD = "PFLlib leaderboard, {}, Dirichlet(0.1)"
NUMBERS = {"fedavg": (31.89, 85.85), "fedrep": (52.39, 97.56), "ditto": (52.87, 97.47), "pfedme": (47.34, 97.25)}
OPTIONS: dict[str, dict[str, Any]] = {"pfedme": {"lam": 15.0, "inner_lr": 0.02, "inner_steps": 3}}


def dealt(seed: int) -> Federation:
    return cifar10(Dirichlet(clients=20, alpha=0.1, minimum=20), seed, 4000, Split(validation=0.0, test=0.25))


def arm(name: str, numbers: tuple[float, float]) -> Arm:
    kind: Kind = "global" if name == "fedavg" else "personal"
    published = tuple(
        Published(v, BOARD.format(data), "verified")
        for v, data in zip(numbers, ("CIFAR-100", "Fashion-MNIST"), strict=True)
    )
    reports: dict[Kind, tuple[Published, ...]] = {kind: published}
    return Arm(
        name=name,
        algorithm={"name": name, **OPTIONS.get(name, {})},
        reports=reports | ({"alone": ()} if name == "fedavg" else {}),
    )


PARTS = (
    Setting(
        name="CIFAR-10, Dirichlet(0.1)",
        about="20 clients, all in every round, one local epoch, batch 10, two 5x5 convolutions of 6 and 16 channels",
        federation=dealt,
        model={"name": "cnn", "channels": [6, 16], "hidden": 120, "padding": 0},
        training={"rounds": 20, "batch_size": 10, "lr": 0.02},
        quick={"rounds": 2},
        arms=tuple(arm(name, numbers) for name, numbers in NUMBERS.items()),
        pairs=tuple((f"{name}/personal", "fedavg/global") for name in NUMBERS if name != "fedavg"),
        differs=(
            "the leaderboard has no CIFAR-10: its CIFAR-100 and Fashion-MNIST stand beside ours for the order alone",
            "3,000 images to train on and 20 rounds, published the whole set and the best of 2,000 rounds on test rows",
            "a smaller net than the leaderboard's 4-layer CNN; options are not tuned",
        ),
        engine="sequential",
        seeds=2,
    ),
)
