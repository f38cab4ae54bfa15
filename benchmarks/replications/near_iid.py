"""The case where personalisation hurts: many clients with few rows each, dealt almost evenly (Dirichlet 5).

After the column beta = 5 of the leaderboard of PFLlib (Zhang et al. 2023, "PFLlib: Personalized Federated Learning
Algorithm Library"), where FedAvg is ahead of the personal methods."""

from functools import partial

from benchmarks.replications.digits4 import mnist
from benchmarks.replications.setting import Arm, Kind, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split

BOARD = "PFLlib leaderboard, CIFAR-100, Dirichlet({})"
NUMBERS = {  # method -> Dirichlet 5, Dirichlet 0.1
    "fedavg": (35.51, 31.89),
    "fedper": (16.09, 49.63),
    "fedrep": (14.93, 52.39),
    "pfedme": (14.70, 47.34),
    "apfl": (20.76, 46.74),
    "ditto": (35.72, 52.87),
}
OPTIONS = {"pfedme": {"lam": 15.0, "inner_lr": 0.02, "inner_steps": 5}, "ditto": {"lam": 1.0}}


def dealt(seed: int, alpha: float) -> Federation:
    return mnist(Dirichlet(clients=40, alpha=alpha, minimum=10), seed, Split(validation=0.0, test=0.25), rows=4000)


def arm(name: str, column: int) -> Arm:
    kind: Kind = "global" if name == "fedavg" else "personal"
    published = (Published(NUMBERS[name][column], BOARD.format(("5", "0.1")[column]), "verified"),)
    reports: dict[Kind, tuple[Published, ...]] = {kind: published}
    return Arm(
        name=name,
        algorithm={"name": name, **OPTIONS.get(name, {})},
        reports=reports | ({"alone": ()} if name == "fedavg" else {}),
    )


def part(alpha: float, column: int) -> Setting:
    return Setting(
        name=f"Dirichlet({alpha:g})",
        about="40 clients of about 100 rows, all in every round, one local epoch, batch 10, a perceptron 784-64-32-10",
        federation=partial(dealt, alpha=alpha),
        model={"name": "mlp"},
        training={"rounds": 25, "batch_size": 10, "lr": 0.05},
        quick={"rounds": 3},
        arms=tuple(arm(name, column) for name in NUMBERS),
        pairs=(
            *((f"{name}/personal", "fedavg/global") for name in NUMBERS if name != "fedavg"),
            ("fedavg/alone", "fedavg/global"),
        ),
        differs=(
            "4,000 MNIST images and 40 clients, published CIFAR-100 and 20 clients: the order can be compared, "
            "the numbers cannot",
            "the models after the last of 25 rounds; published the best of 2,000 on test rows",
            "options are not tuned",
        ),
    )


PARTS = (part(5.0, 0), part(0.1, 1))
