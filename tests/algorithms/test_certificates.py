"""The certificates that `fedroute check` prints are the invariants of the papers: one source of truth."""

import pytest

from fedroute.algorithms import ALGORITHMS
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedprox import FedProx
from fedroute.certificates import CLAIMS, certify, check
from fedroute.certificates.claim import Claim
from fedroute.certificates.fedavg import LR, A, H, K, fixed_point
from fedroute.errors import InputError


@pytest.mark.parametrize(
    ("name", "claim"), [pytest.param(n, c, id=f"{n}: {c.text[:70]}") for n, claims in CLAIMS.items() for c in claims]
)
def test_claim(name: str, claim: Claim) -> None:
    certificate = certify(name, claim)
    assert certificate.passed, f"{claim.text}: measured {certificate.measured}, expected {certificate.expected}"


def test_every_algorithm_has_claims() -> None:
    assert CLAIMS.keys() == ALGORITHMS.keys()
    assert all(CLAIMS.values())


def test_the_biased_point_and_the_optimum() -> None:
    assert fixed_point(H, A, LR, (K, K)) == pytest.approx(0.713442, abs=5e-7)
    assert sum(h * a for h, a in zip(H, A, strict=True)) / sum(H) == pytest.approx(0.909091, abs=5e-7)


def test_check_takes_names() -> None:
    rows = check(["fedprox"])
    assert [r.algorithm for r in rows] == ["fedprox"] * len(CLAIMS["fedprox"])
    assert all(r.passed and r.seconds > 0 for r in rows)
    with pytest.raises(InputError, match="no algorithm 'scafold'; did you mean scaffold"):
        check(["scafold"])


def test_a_wrong_result_is_not_certified() -> None:
    """FedAvg in the place of SCAFFOLD and of FedProx."""
    claim = next(c for c in CLAIMS["fedprox"] if "two quadratics" in c.text)
    assert certify("fedprox", claim, FedProx).passed
    assert not certify("fedprox", claim, lambda mu: FedAvg()).passed
    assert not certify("fedprox", claim._replace(measure=lambda make: (float("nan"), 0.0))).passed
