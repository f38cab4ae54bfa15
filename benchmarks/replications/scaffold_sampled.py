"""100 clients of whom a tenth takes part in a round: where a public benchmark's SCAFFOLD ends at chance.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", in the settings of Li et
al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study" (NIID-Bench) with 100 parties."""

from functools import partial

from benchmarks.replications.digits4 import mnist
from benchmarks.replications.setting import Arm, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Classes, Dirichlet, Iid, Partition, Split

BOARD = "NIID-Bench README, CIFAR-10, 100 parties, 10 % sampled"


def dealt(seed: int, partition: Partition) -> Federation:
    return mnist(partition, seed, Split(validation=0.0, test=0.25))


def part(name: str, partition: Partition, fedavg: float) -> Setting:
    return Setting(
        name=name,
        about="100 clients, 10 sampled a round, 10 local epochs, momentum 0.9 as published, a perceptron 784-64-32-10",
        federation=partial(dealt, partition=partition),
        model={"name": "mlp"},
        training={
            "rounds": 60, "local_epochs": 10, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "clients_per_round": 10,
        },
        quick={"rounds": 10},
        arms=(
            Arm(
                name="fedavg",
                algorithm={"name": "fedavg"},
                reports={"global": (Published(fedavg, BOARD, "verified"),)},
            ),
            Arm(
                name="scaffold",
                algorithm={"name": "scaffold"},
                reports={"global": (Published(10.0, BOARD, "verified"),)},
            ),
            Arm(name="scaffold, no momentum", algorithm={"name": "scaffold"}, training={"momentum": 0.0, "lr": 0.1},
                reports={"global": ()}),
        ),
        pairs=(("scaffold/global", "fedavg/global"),),
        differs=(
            "10,000 MNIST images and a perceptron, published CIFAR-10 and a convolutional net: chance is 10 % in both, "
            "the distance to it and not the number can be compared",
            "60 rounds, published 500",
        ),
    )  # fmt: skip


PARTS = (
    part("IID", Iid(clients=100), 65.6),
    part("Dirichlet(0.5)", Dirichlet(clients=100, alpha=0.5), 59.4),
    part("2 labels each", Classes(clients=100, classes=2), 45.3),
)
