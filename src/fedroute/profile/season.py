"""A series over time: does it stay, drift, jump, or go round with the seasons?"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY = 86_400.0
CALENDAR = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}
STAMPS = 1e8  # times beyond are seconds since 1970
CYCLES = 1.9  # of a season in the data, at least, for it to be told from drift
JUMPS = 4
SEASONS = 4  # periods that are looked at closely, those that fit best


@dataclass(frozen=True)
class Shape:
    """period: of the season, None without one; name: of that period, if it has one; share: of the series' variation
    beyond noise that the season explains, 0..1; jumps: places in the series (first block after the change), without
    the season; gradual: whether what is left of the season is a slope rather than jumps."""

    period: float | None
    name: str
    share: float
    jumps: tuple[int, ...]
    gradual: bool


def shape(at: Floats, series: Floats, weight: Floats) -> Shape:
    """at: (M,) times, ascending; series: (M, D) means of blocks in deviations of a row; weight: (M,) rows of each.

    Five kinds of curve are fitted by weighted least squares - flat, a slope, up to JUMPS jumps, a season (two
    harmonics), a season with a slope or with jumps - and the one with the least BIC holds (Schwarz 1978), the noise
    of a block's mean being that of differences between neighbours or, if larger, what so many rows would have. A jump
    costs three numbers: its place, and its size with a margin."""
    m, d = series.shape
    if m < 8:
        return Shape(None, "", 0.0, (), False)
    noise = max(float((np.diff(series, axis=0) ** 2).mean()) / 2 * float(np.median(weight)), 1.0)
    w = weight / noise
    flat = _fit(np.ones((m, 1)), series, w)
    slope = np.stack([np.ones(m), _unit(at)], 1)
    fits: list[tuple[float, float | None, tuple[int, ...], bool]] = [
        (_bic(flat, 1, m, d), None, (), False), (_bic(_fit(slope, series, w), 2, m, d), None, (), True),
    ]  # fmt: skip
    fits += [(c, None, j, False) for c, j in _jumps(np.ones((m, 1)), series, w)]
    for turns in (1, 2):
        seasons = [(np.concatenate([slope, _harmonics(at, p, turns)], 1), p) for p in _periods(at)]
        for _, turn in sorted((_fit(a, series, w), p) for a, p in seasons)[:SEASONS]:
            waves = np.concatenate([np.ones((m, 1)), _harmonics(at, turn, turns)], 1)
            sloping = np.concatenate([waves, slope[:, 1:]], 1)
            k = waves.shape[1] + 1  # and the period itself
            fits.append((_bic(_fit(waves, series, w), k, m, d), turn, (), False))
            fits.append((_bic(_fit(sloping, series, w), k + 1, m, d), turn, (), True))
            fits += [(c, turn, j, False) for c, j in _jumps(waves, series, w, k)]
    _, period, jumps, gradual = min(fits, key=lambda f: f[0])
    share = 0.0
    if period is not None:
        rest = _steps(m, jumps) if jumps else slope if gradual else np.ones((m, 1))
        both = _fit(np.concatenate([rest, _harmonics(at, period)], 1), series, w)
        share = float(np.clip((_fit(rest, series, w) - both) / max(flat - both, 1e-9), 0, 1))
    return Shape(period, _named(period), share, jumps, gradual)


def phase(time: Floats, period: float, parts: int) -> NDArray[np.int64]:
    """The part of the season, 0 to parts - 1, that each time falls into."""
    return ((time % period) / period * parts).astype(np.int64).clip(0, parts - 1)


def _named(period: float | None) -> str:
    return next((n for n, p in CALENDAR.items() if period is not None and abs(period / p - 1) < 0.02), "")


def _unit(at: Floats) -> Floats:
    found: Floats = (at - at[0]) / max(float(at[-1] - at[0]), 1e-12)
    return found


def _periods(at: Floats) -> list[float]:
    """Those of the calendar where times are stamps, else fractions of the whole span; slow enough for the blocks."""
    span, width = float(at[-1] - at[0]), float(np.median(np.diff(at)))
    told = at[-1] > STAMPS
    tried = list(CALENDAR.values()) if told else [span / float(k) for k in np.arange(CYCLES, len(at) / 5, 0.1)]
    return [p for p in tried if span / p >= CYCLES and p / max(width, 1e-12) >= 5]


def _harmonics(at: Floats, period: float, turns: int = 2) -> Floats:
    angles = [2 * np.pi * k * at / period for k in range(1, turns + 1)]
    return np.stack([f(a) for a in angles for f in (np.cos, np.sin)], 1)


def _steps(m: int, jumps: tuple[int, ...]) -> Floats:
    return np.stack([(np.arange(m) >= a) & (np.arange(m) < b) for a, b in pairwise((0, *jumps, m))], 1).astype(float)


def _fit(design: Floats, series: Floats, w: Floats) -> float:
    """The weighted squares that are left."""
    root = np.sqrt(w)[:, None]
    a, b = design * root, series * root
    q, _ = np.linalg.qr(a)
    return float((b**2).sum() - ((q.T @ b) ** 2).sum())


def _bic(left: float, k: float, m: int, d: int) -> float:
    return left + k * d * float(np.log(m))


def _jumps(base: Floats, series: Floats, w: Floats, used: int = 1) -> list[tuple[float, tuple[int, ...]]]:
    """BIC and places of 1 to JUMPS jumps beside `base`, each put where it helps most (binary segmentation)."""
    m, d = series.shape
    found, jumps, design = list[tuple[float, tuple[int, ...]]](), list[int](), base
    for k in range(JUMPS):
        tried = [
            (_fit(np.concatenate([design, (np.arange(m) >= j)[:, None]], 1), series, w), j)
            for j in range(2, m - 1)
            if all(abs(j - i) > 2 for i in jumps)
        ]
        if not tried:
            break
        left, place = min(tried)
        jumps.append(place)
        design = np.concatenate([design, (np.arange(m) >= place)[:, None]], 1)
        found.append((_bic(left, used + (k + 1) * (1 + 2 / d), m, d), tuple(sorted(jumps))))
    return found
