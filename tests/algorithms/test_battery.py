"""Every algorithm through the battery."""

from collections.abc import Iterator

import pytest

from fedroute.algorithms import ALGORITHMS
from fedroute.algorithms.alone import Alone
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedavg_ft import FedAvgFT
from fedroute.algorithms.fednova import FedNova
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.scaffold import Scaffold
from fedroute.testing import Check, check_algorithm


def checks() -> Iterator[tuple[str, Check]]:
    batteries = {
        "alone": check_algorithm(
            Alone(), skip={"a broken client leaves no trace": "an update is empty and so cannot be broken"}
        ),
        "fedavg": check_algorithm(FedAvg(), neutral=FedAvg()),
        "fedavg_ft": check_algorithm(FedAvgFT(adapt_epochs=2), neutral=FedAvgFT()),
        "fednova": check_algorithm(FedNova()),
        "fednova-mu": check_algorithm(FedNova(mu=0.3)),
        "fedprox": check_algorithm(FedProx(mu=0.3), neutral=FedProx(mu=0.0)),
        "scaffold-I": check_algorithm(Scaffold(option="I")),
        "scaffold-II": check_algorithm(Scaffold(option="II")),
    }
    assert {name.partition("-")[0] for name in batteries} == ALGORITHMS.keys()
    for name, battery in batteries.items():
        for check in battery:
            yield name, check


@pytest.mark.parametrize("check", [pytest.param(c, id=f"{name}: {c}") for name, c in checks()])
def test_battery(check: Check) -> None:
    check()
