"""The battery as a user meets it."""

from unittest import SkipTest

import pytest

from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedprox import FedProx
from fedroute.testing import ENGINES, Check, check_algorithm


def named(name: str, *args: object, **options: object) -> Check:
    (check,) = [c for c in check_algorithm(*args, **options) if c.name == name]  # type: ignore[arg-type]
    return check


def test_skips_are_visible_and_have_a_reason() -> None:
    check = named("pickles", FedAvg(), skip={"pickles": "it holds an open file"})
    with pytest.raises(SkipTest, match="it holds an open file"):
        check()
    with pytest.raises(SkipTest, match="no neutral value is given"):
        named("is FedAvg at its neutral value", FedAvg())()


def test_a_skip_that_names_no_check_is_an_error() -> None:
    with pytest.raises(ValueError, match="no check 'pickle'"):
        list(check_algorithm(FedAvg(), skip={"pickle": "a slip of the pen"}))


def test_a_wrong_neutral_value_is_seen() -> None:
    with pytest.raises(AssertionError, match=r"the shared weights: .* differs by up to"):
        named("is FedAvg at its neutral value", FedProx, neutral=FedProx(mu=0.1))()
    named("is FedAvg at its neutral value", FedProx, neutral=FedProx(mu=1e-9), neutral_tolerance=1e-6)()


def test_what_is_configured_private_stays_so() -> None:
    names = [c.name for c in check_algorithm(FedAvg(private=("norm",)))]
    assert "private weights stay, as configured" in names
    assert not any("all shared" in n for n in names)
    named("private weights stay, as configured", FedAvg(private=("norm",)))()


def test_every_engine_is_in_it() -> None:
    names = [str(c) for c in check_algorithm(FedAvg())]
    assert len(set(names)) == len(names)
    for engine in [*ENGINES, "through bytes", "clients in reverse"]:
        assert sum(n.startswith(f"engines agree: {engine},") for n in names) == 3
