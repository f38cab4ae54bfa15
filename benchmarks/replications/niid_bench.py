"""CIFAR-10 dealt by Dirichlet(0.5) to ten parties: the main setting of Li et al. 2022, "Federated Learning on Non-IID
Data Silos: An Experimental Study" (NIID-Bench), at an eighth of its data and less of its time."""

from benchmarks.replications.cifar10 import cifar10
from benchmarks.replications.setting import Arm, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split

TITLE = "CIFAR-10 among ten parties"
BOARD = "NIID-Bench README, CIFAR-10, Dirichlet(0.5), simple-cnn"
NUMBERS = {"fedavg": 68.2, "fedprox": 67.9, "fednova": 66.8, "scaffold": 69.8}
OPTIONS = {"fedprox": {"mu": 0.01}}


def dealt(seed: int) -> Federation:
    return cifar10(Dirichlet(clients=10, alpha=0.5), seed, 8000, Split(validation=0.0, test=0.25))


PARTS = (
    Setting(
        name="CIFAR-10, Dirichlet(0.5)",
        about="10 parties, all in every round, momentum 0.9, batch 64, two 5x5 convolutions of 6 and 16 channels",
        federation=dealt,
        model={"name": "cnn", "channels": [6, 16], "hidden": 120, "padding": 0},
        training={"rounds": 20, "local_epochs": 3, "batch_size": 64, "lr": 0.01, "momentum": 0.9},
        quick={"rounds": 2, "local_epochs": 1},
        arms=tuple(
            Arm(
                name=name,
                algorithm={"name": name, **OPTIONS.get(name, {})},
                reports={"global": (Published(value, BOARD, "verified"),)},
            )
            for name, value in NUMBERS.items()
        ),
        pairs=tuple((f"{name}/global", "fedavg/global") for name in NUMBERS if name != "fedavg"),
        differs=(
            "6,000 images to train on, published 50,000; 20 rounds of 3 epochs, published 50 of 10: a seventieth of "
            "the steps, so that the order of the methods can be compared and the numbers cannot",
            "one hidden layer of 120, published 120 and 84; test rows are each party's own, of its own label mix",
        ),
        engine="sequential",
    ),
)
