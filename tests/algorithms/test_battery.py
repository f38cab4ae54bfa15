"""Every algorithm through the battery."""

from collections.abc import Iterator

import pytest

from fedroute.algorithms import ALGORITHMS
from fedroute.algorithms.afl import AFL
from fedroute.algorithms.alone import Alone
from fedroute.algorithms.apfl import APFL
from fedroute.algorithms.ditto import Ditto
from fedroute.algorithms.fedala import FedALA
from fedroute.algorithms.fedamp import FedAMP
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedavg_ft import FedAvgFT
from fedroute.algorithms.fedbabu import FedBABU
from fedroute.algorithms.fedbn import FedBN
from fedroute.algorithms.feddbe import FedDBE
from fedroute.algorithms.feddrm import FedDRM
from fedroute.algorithms.feddyn import FedDyn
from fedroute.algorithms.fedfomo import FedFomo
from fedroute.algorithms.fednova import FedNova
from fedroute.algorithms.fedpac import FedPAC
from fedroute.algorithms.fedper import FedPer
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.fedprox_adaptive import FedProxAdaptive
from fedroute.algorithms.fedprox_ft import FedProxFT
from fedroute.algorithms.fedrep import FedRep
from fedroute.algorithms.fedrod import FedRoD
from fedroute.algorithms.ifca import IFCA
from fedroute.algorithms.interpolation import Interpolation
from fedroute.algorithms.knn_per import KnnPer
from fedroute.algorithms.lg_fedavg import LgFedAvg
from fedroute.algorithms.moon import Moon
from fedroute.algorithms.perfedavg import PerFedAvg
from fedroute.algorithms.pfedme import PFedMe
from fedroute.algorithms.pfedme_fedbn import PFedMeFedBN
from fedroute.algorithms.qffl import QFFL
from fedroute.algorithms.scaffold import Scaffold
from fedroute.testing import Check, check_algorithm


def checks() -> Iterator[tuple[str, Check]]:
    batteries = {
        "alone": check_algorithm(
            Alone(), skip={"a broken client leaves no trace": "an update is empty and so cannot be broken"}
        ),
        "apfl": check_algorithm(APFL(), neutral=APFL()),
        "ditto": check_algorithm(Ditto(lam=0.3), neutral=Ditto(lam=0.3)),
        "fedbabu": check_algorithm(FedBABU(adapt_epochs=2)),
        "fedbn": check_algorithm(FedBN()),
        "fedper": check_algorithm(FedPer()),
        "fedprox_adaptive": check_algorithm(FedProxAdaptive(mu=0.3), neutral=FedProxAdaptive(step_mu=0.0)),
        "fedprox_ft": check_algorithm(FedProxFT(mu=0.3), neutral=FedProxFT(mu=0.0)),
        "fedrep": check_algorithm(FedRep()),
        "interpolation": check_algorithm(Interpolation(), neutral=Interpolation()),
        "lg_fedavg": check_algorithm(LgFedAvg()),
        "perfedavg-FO": check_algorithm(PerFedAvg()),
        "perfedavg-HF": check_algorithm(PerFedAvg(variant="HF", private=("norm",))),
        "perfedavg-exact": check_algorithm(PerFedAvg(variant="exact", private=("head",))),
        "fedavg": check_algorithm(FedAvg(), neutral=FedAvg()),
        "feddbe": check_algorithm(FedDBE(), neutral=FedDBE(kappa=0.0, bias=False)),
        "feddrm": check_algorithm(FedDRM()),
        "feddrm-detach": check_algorithm(FedDRM(lam=0.8, detach=True)),
        "feddrm-cells": check_algorithm(
            FedDRM(lam=0.5, cells=True),
            skip={
                "a client without rows changes nothing": "zeros more in a sum, which is then added up in another "
                "order: see test_feddrm.py, to rounding"
            },
        ),
        "feddyn": check_algorithm(FedDyn()),
        "fedrod": check_algorithm(FedRoD(), neutral=FedRoD(gamma=0.0)),
        "knn_per": check_algorithm(KnnPer(), neutral=KnnPer()),
        "moon": check_algorithm(Moon(), neutral=Moon(mu=0.0)),
        "pfedme": check_algorithm(PFedMe(inner_steps=2)),
        "pfedme-adaptive": check_algorithm(PFedMe(inner_steps=2, adaptive=True, beta=1.5, private=("head",))),
        "pfedme_fedbn": check_algorithm(PFedMeFedBN(inner_steps=2)),
        "fedavg_ft": check_algorithm(FedAvgFT(adapt_epochs=2), neutral=FedAvgFT()),
        "fednova": check_algorithm(FedNova()),
        "fednova-mu": check_algorithm(FedNova(mu=0.3)),
        "fedprox": check_algorithm(FedProx(mu=0.3), neutral=FedProx(mu=0.0)),
        "scaffold-I": check_algorithm(Scaffold(option="I")),
        "scaffold-II": check_algorithm(Scaffold(option="II")),
        "afl": check_algorithm(AFL(gamma=0.3), neutral=AFL(gamma=0.0), neutral_tolerance=1e-12),
        "fedala": check_algorithm(FedALA(s=0.5), neutral=FedALA(s=0.0)),
        "fedamp": check_algorithm(FedAMP(lam=0.3)),
        "fedfomo": check_algorithm(FedFomo(m=3, s=0.5)),
        "fedpac": check_algorithm(FedPAC()),
        "ifca": check_algorithm(IFCA(k=3)),
        "qffl": check_algorithm(QFFL(q=2.0), neutral=QFFL(q=0.0), neutral_tolerance=1e-12),
    }
    assert {name.partition("-")[0] for name in batteries} == ALGORITHMS.keys()
    for name, battery in batteries.items():
        for check in battery:
            yield name, check


@pytest.mark.parametrize("check", [pytest.param(c, id=f"{name}: {c}") for name, c in checks()])
def test_battery(check: Check) -> None:
    check()
