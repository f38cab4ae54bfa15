"""100 clients of whom a tenth takes part in a round, on CIFAR-10 itself: `scaffold_sampled` has MNIST and more rounds.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", in the settings of Li et
al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study" (NIID-Bench) with 100 parties."""

from functools import partial

from benchmarks.replications.cifar10 import cifar10
from benchmarks.replications.scaffold_sampled import BOARD
from benchmarks.replications.setting import Arm, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Iid, Partition, Split

TITLE = "SCAFFOLD with a tenth of 100 clients, on CIFAR-10"


def dealt(seed: int, partition: Partition) -> Federation:
    return cifar10(partition, seed, 10_000, Split(validation=0.0, test=0.25))


def part(name: str, partition: Partition, fedavg: float) -> Setting:
    numbers = {"fedavg": fedavg, "scaffold": 10.0}
    return Setting(
        name=f"CIFAR-10, {name}",
        about="100 clients, 10 sampled a round, momentum 0.9, batch 64, two 5x5 convolutions of 6 and 16 channels",
        federation=partial(dealt, partition=partition),
        model={"name": "cnn", "channels": [6, 16], "hidden": 120, "padding": 0},
        training={
            "rounds": 60, "local_epochs": 5, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "clients_per_round": 10,
        },
        quick={"rounds": 2, "local_epochs": 1},
        arms=tuple(
            Arm(name=name, algorithm={"name": name}, reports={"global": (Published(value, BOARD, "verified"),)})
            for name, value in numbers.items()
        ),
        pairs=(("scaffold/global", "fedavg/global"),),
        differs=(
            "7,500 images to train on, 75 a client, published 50,000; 60 rounds of 5 epochs, published 500 of 10: a "
            "hundredth of the steps, so that what can be compared is the distance to chance (10 %) and to FedAvg",
            "one hidden layer of 120, published 120 and 84; test rows are each party's own, of its own label mix",
        ),
        engine="sequential",
        seeds=2,
    )  # fmt: skip


PARTS = (
    part("IID", Iid(clients=100), 65.6),
    part("Dirichlet(0.5)", Dirichlet(clients=100, alpha=0.5), 59.4),
)
