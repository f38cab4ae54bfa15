"""What is claimed of an algorithm, and how it is measured."""

from collections.abc import Callable
from typing import NamedTuple

from fedroute.core import Algorithm

Make = Callable[..., Algorithm]


class Claim(NamedTuple):
    """text: the claim in words, with the paper's equation. measure: from the algorithm's class, or another that claims
    the same, to (measured, expected)."""

    text: str
    measure: Callable[[Make], tuple[float, float]]
    tolerance: float
