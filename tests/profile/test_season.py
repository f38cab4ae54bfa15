"""Drift, jumps and seasons are told apart."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedroute.profile.season import CALENDAR, Shape, phase, shape

Floats = NDArray[np.float64]
ROWS = 50.0


def found(curve: Floats, at: Floats, seed: int = 0) -> Shape:
    noise = np.random.default_rng(seed).standard_normal((len(at), 2)) / np.sqrt(ROWS)
    return shape(at, np.stack([curve, 0 * curve], 1) + noise, np.full(len(at), ROWS))


AT = np.linspace(0, 100, 48)


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_shape(seed: int) -> None:
    s = found(0 * AT, AT, seed)
    assert (s.period, s.jumps, s.gradual) == (None, (), False)


@pytest.mark.parametrize("place", [12, 24, 40])
def test_a_jump_is_found_where_it_is(place: int) -> None:
    s = found(np.where(np.arange(48) >= place, 0.8, 0.0), AT)
    assert s.period is None
    assert len(s.jumps) == 1
    assert abs(s.jumps[0] - place) <= 1


def test_two_jumps() -> None:
    s = found(np.where((np.arange(48) >= 15) & (np.arange(48) < 34), 0.9, 0.0), AT)
    assert s.period is None
    assert s.jumps == (15, 34)


def test_a_slope_is_gradual() -> None:
    s = found(0.02 * AT, AT)
    assert s.gradual
    assert (s.period, s.jumps) == (None, ())


@pytest.mark.parametrize("period", [20.0, 33.0, 48.0])
def test_a_season_is_no_drift(period: float) -> None:
    s = found(0.8 * np.sin(2 * np.pi * AT / period), AT)
    assert s.period == pytest.approx(period, rel=0.1)
    assert (s.jumps, s.gradual) == ((), False)
    assert s.share > 0.9


def test_a_season_with_a_jump() -> None:
    s = found(0.8 * np.sin(2 * np.pi * AT / 25) + 0.7 * (np.arange(48) >= 30), AT)
    assert s.period == pytest.approx(25, rel=0.1)
    assert len(s.jumps) == 1
    assert abs(s.jumps[0] - 30) <= 1
    assert 0.2 < s.share < 0.9


def test_stamps_have_the_seasons_of_the_calendar() -> None:
    at = 1.4e9 + np.linspace(0, 3 * CALENDAR["year"], 48)
    s = found(np.cos(2 * np.pi * at / CALENDAR["year"]), at)
    assert s.name == "year"
    assert phase(np.array([0, 0.26, 0.6, 0.99]) * CALENDAR["year"], CALENDAR["year"], 4).tolist() == [0, 1, 2, 3]
