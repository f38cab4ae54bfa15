"""MNIST with two labels at each client: the first setting of T Dinh et al. 2020 (pFedMe), section 5.1."""

from benchmarks.replications.digits4 import mnist
from benchmarks.replications.setting import Arm, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Classes, Split

PAPER, THIRD = "T Dinh et al. 2020, table 1 (MLR, tuned)", "arXiv 2407.14251v1, table 1 (MCLR, 40 devices)"


def numbers(paper: float, third: float) -> tuple[Published, ...]:
    return Published(paper, PAPER, "recalled"), Published(third, THIRD, "verified")


def two_labels(seed: int) -> Federation:
    return mnist(Classes(clients=20, classes=2), seed, Split(validation=0.0, test=0.25))


PARTS = (
    Setting(
        name="MNIST, 2 labels each",
        about="20 clients with 2 labels each, 5 sampled a round, 20 local steps, batch 20, logistic regression",
        federation=two_labels,
        model={"name": "linear"},
        training={"rounds": 100, "local_steps": 20, "batch_size": 20, "lr": 0.02, "clients_per_round": 5},
        quick={"rounds": 10},
        arms=(
            Arm(name="fedavg", algorithm={"name": "fedavg"}, reports={"global": numbers(93.96, 84.87), "alone": ()}),
            Arm(
                name="perfedavg",
                algorithm={"name": "perfedavg", "alpha": 0.02},
                reports={"personal": numbers(94.37, 94.81)},
            ),
            Arm(
                name="pfedme",
                algorithm={"name": "pfedme", "lam": 15.0, "inner_lr": 0.1, "inner_steps": 5, "beta": 2.0},
                training={"lr": 0.01},
                reports={"personal": numbers(95.62, 88.89), "global": numbers(94.18, 75.50)},
            ),
        ),
        pairs=(("pfedme/personal", "fedavg/global"), ("pfedme/personal", "fedavg/alone")),
        differs=(
            "10,000 images (the MNIST test set), published 70,000 at sizes of 1,165 to 3,834; equal shares of a label",
            "100 rounds, published 800",
            "learning rates are not tuned for each method but pFedMe's, which are those of its authors",
        ),
    ),
)
