"""The interval of a share. Apart from the others because it needs no array: the report writes without numpy."""

Interval = tuple[float, float]
Z = 1.959963984540054  # the 97.5 % point of the normal distribution


def wilson(hits: float, n: int) -> Interval | None:
    """Wilson's score interval (1927) for a share of `hits` in `n`; None where n is 0. Never of width 0."""
    if n <= 0:
        return None
    p, z2 = hits / n, Z * Z
    centre, half = (p + z2 / (2 * n)) / (1 + z2 / n), Z / (1 + z2 / n) * (p * (1 - p) / n + z2 / (4 * n * n)) ** 0.5
    return max(0.0, centre - half) if hits > 0 else 0.0, min(1.0, centre + half) if hits < n else 1.0
