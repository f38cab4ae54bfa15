"""Certificates: what an algorithm's paper proves, measured on this machine. `fedroute check` prints them."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from fedroute.algorithms import ALGORITHMS
from fedroute.certificates.alone import CLAIMS as ALONE
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import CLAIMS as FEDAVG
from fedroute.certificates.fedavg_ft import CLAIMS as FEDAVG_FT
from fedroute.certificates.fednova import CLAIMS as FEDNOVA
from fedroute.certificates.fedprox import CLAIMS as FEDPROX
from fedroute.certificates.scaffold import CLAIMS as SCAFFOLD
from fedroute.errors import InputError
from fedroute.options import nearest

CLAIMS: dict[str, list[Claim]] = {
    "alone": ALONE,
    "fedavg": FEDAVG,
    "fedavg_ft": FEDAVG_FT,
    "fednova": FEDNOVA,
    "fedprox": FEDPROX,
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

    Raises InputError for a name that is no algorithm."""
    chosen = list(names or CLAIMS)
    for name in chosen:
        if name not in CLAIMS:
            raise InputError(f"check: no algorithm {name!r}; {nearest(name, CLAIMS)}")
    return [certify(name, claim) for name in chosen for claim in CLAIMS[name]]


def certify(name: str, claim: Claim, make: Make | None = None) -> Certificate:
    """One claim measured; `make`: another class in the place of the algorithm `name`, such as a version of yours."""
    before = time.perf_counter()
    measured, expected = claim.measure(make or ALGORITHMS[name])
    passed = abs(measured - expected) <= claim.tolerance  # NaN never passes
    return Certificate(name, claim.text, measured, expected, claim.tolerance, passed, time.perf_counter() - before)
