"""Each known wrong version is caught by the check it names, and the right version passes that check."""

from collections.abc import Callable

import pytest

from fedroute.certificates import CLAIMS, certify
from fedroute.certificates.claim import Claim
from fedroute.certificates.rig import LeftOut
from fedroute.core import Algorithm
from fedroute.testing import check_algorithm

from .collaborating import MUTANTS as COLLABORATING
from .mutants import MUTANTS as FEDERATED
from .mutants import Mutant, Truncated
from .personal import MUTANTS as PERSONAL
from .regularised import MUTANTS as REGULARISED
from .routing import MUTANTS as ROUTING

MUTANTS = [*FEDERATED, *PERSONAL, *COLLABORATING, *REGULARISED, *ROUTING]


def check_named(caught_by: str, make: Callable[..., Algorithm]) -> Callable[[], None]:
    """The check, as something that raises AssertionError where it fails."""
    kind, _, words = caught_by.partition(": ")
    if kind == "battery":
        found = [c.run for c in check_algorithm(make()) if c.name == words]
    else:
        name = kind.removeprefix("certificate ")
        claims = [c for c in CLAIMS[name] if words in c.text]
        found = [lambda claim=c: _passed(name, claim, make) for c in claims]  # type: ignore[misc]
    assert len(found) == 1, f"{len(found)} checks are called {caught_by!r}"
    return found[0]


def _passed(name: str, claim: Claim, make: Callable[..., Algorithm]) -> None:
    certificate = certify(name, claim, make)
    assert certificate.passed, f"measured {certificate.measured}, expected {certificate.expected}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.right.__name__}: {m.what}")
def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_named(mutant.caught_by, mutant.right)()
    mutant.patch(monkeypatch)
    with pytest.raises((AssertionError, LeftOut)):
        check_named(mutant.caught_by, mutant.make)()


def test_an_engine_that_cuts_steps_is_caught() -> None:
    checks = check_algorithm(MUTANTS[0].right(), engines={"truncated": (Truncated, 1e-10)})
    check = next(c for c in checks if c.name.startswith("engines agree: truncated"))
    with pytest.raises(AssertionError, match="differs by up to"):
        check()


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 12
    assert len({(m.what, m.right) for m in MUTANTS}) == len(MUTANTS)
