"""Certificates: what an algorithm's paper proves, measured on this machine. `fedroute check` prints them."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from fedroute.algorithms import ALGORITHMS
from fedroute.certificates.afl import CLAIMS as AFL
from fedroute.certificates.alone import CLAIMS as ALONE
from fedroute.certificates.apfl import CLAIMS as APFL
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.ditto import CLAIMS as DITTO
from fedroute.certificates.fedala import CLAIMS as FEDALA
from fedroute.certificates.fedamp import CLAIMS as FEDAMP
from fedroute.certificates.fedavg import CLAIMS as FEDAVG
from fedroute.certificates.fedavg_ft import CLAIMS as FEDAVG_FT
from fedroute.certificates.fedbabu import CLAIMS as FEDBABU
from fedroute.certificates.fedbn import CLAIMS as FEDBN
from fedroute.certificates.feddbe import CLAIMS as FEDDBE
from fedroute.certificates.feddrm import CLAIMS as FEDDRM
from fedroute.certificates.feddyn import CLAIMS as FEDDYN
from fedroute.certificates.fedfomo import CLAIMS as FEDFOMO
from fedroute.certificates.fednova import CLAIMS as FEDNOVA
from fedroute.certificates.fedpac import CLAIMS as FEDPAC
from fedroute.certificates.fedper import CLAIMS as FEDPER
from fedroute.certificates.fedprox import CLAIMS as FEDPROX
from fedroute.certificates.fedprox_adaptive import CLAIMS as FEDPROX_ADAPTIVE
from fedroute.certificates.fedprox_ft import CLAIMS as FEDPROX_FT
from fedroute.certificates.fedrep import CLAIMS as FEDREP
from fedroute.certificates.fedrod import CLAIMS as FEDROD
from fedroute.certificates.ifca import CLAIMS as IFCA
from fedroute.certificates.interpolation import CLAIMS as INTERPOLATION
from fedroute.certificates.knn_per import CLAIMS as KNN_PER
from fedroute.certificates.lg_fedavg import CLAIMS as LG_FEDAVG
from fedroute.certificates.moon import CLAIMS as MOON
from fedroute.certificates.perfedavg import CLAIMS as PERFEDAVG
from fedroute.certificates.pfedme import CLAIMS as PFEDME
from fedroute.certificates.pfedme_fedbn import CLAIMS as PFEDME_FEDBN
from fedroute.certificates.qffl import CLAIMS as QFFL
from fedroute.certificates.scaffold import CLAIMS as SCAFFOLD
from fedroute.errors import InputError
from fedroute.options import nearest

CLAIMS: dict[str, list[Claim]] = {
    "afl": AFL,
    "alone": ALONE,
    "apfl": APFL,
    "ditto": DITTO,
    "fedala": FEDALA,
    "fedamp": FEDAMP,
    "fedavg": FEDAVG,
    "fedavg_ft": FEDAVG_FT,
    "fedbabu": FEDBABU,
    "fedbn": FEDBN,
    "feddbe": FEDDBE,
    "feddrm": FEDDRM,
    "feddyn": FEDDYN,
    "fedfomo": FEDFOMO,
    "fednova": FEDNOVA,
    "fedpac": FEDPAC,
    "fedper": FEDPER,
    "fedprox": FEDPROX,
    "fedprox_adaptive": FEDPROX_ADAPTIVE,
    "fedprox_ft": FEDPROX_FT,
    "fedrep": FEDREP,
    "fedrod": FEDROD,
    "ifca": IFCA,
    "interpolation": INTERPOLATION,
    "knn_per": KNN_PER,
    "lg_fedavg": LG_FEDAVG,
    "moon": MOON,
    "perfedavg": PERFEDAVG,
    "pfedme": PFEDME,
    "pfedme_fedbn": PFEDME_FEDBN,
    "qffl": QFFL,
    "scaffold": SCAFFOLD,
}
"""Name of an algorithm -> what is claimed of it."""


class Certificate(NamedTuple):
    """A claim as measured. passed: |measured - expected| <= tolerance."""

    algorithm: str
    claim: str
    measured: float
    expected: float
    tolerance: float
    passed: bool
    seconds: float


def check(names: Iterable[str] | None = None) -> list[Certificate]:
    """The certificates of these algorithms, or of all. Takes well under a minute on one core.

    Raises InputError for a name that is no algorithm, or one of which nothing is claimed."""
    chosen = list(names or CLAIMS)
    for name in chosen:
        if name not in ALGORITHMS:
            raise InputError(f"check: no algorithm {name!r}; {nearest(name, ALGORITHMS)}")
        if not CLAIMS.get(name):
            raise InputError(
                f"check: {name} has no claims yet: add one in src/fedroute/certificates/{name}.py and its list to "
                "CLAIMS in src/fedroute/certificates/__init__.py, as CONTRIBUTING.md shows"
            )
    return [certify(name, claim) for name in chosen for claim in CLAIMS[name]]


def certify(name: str, claim: Claim, make: Make | None = None) -> Certificate:
    """One claim measured; `make`: another class in the place of the algorithm `name`, such as a version of yours."""
    before = time.perf_counter()
    measured, expected = claim.measure(make or ALGORITHMS[name])
    passed = abs(measured - expected) <= claim.tolerance  # NaN never passes
    return Certificate(name, claim.text, measured, expected, claim.tolerance, passed, time.perf_counter() - before)
