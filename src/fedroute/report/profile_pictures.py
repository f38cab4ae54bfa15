"""The three pictures of a profile as SVG: labels, features, time. All colours follow the page's light and dark."""

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

WIDTH, NAMES, LINE, HEAD, RIGHT = 340, 96, 17, 78, 34
LINES = 40  # clients up to which each has a line


def heat(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], show: Callable[[float], str],
    title: str, top: float,
) -> Markup:  # fmt: skip
    """A line per client, a cell per column, the deeper the larger; below zero in the other colour. top: full colour."""
    n, m = len(rows), max(len(columns), 1)
    step = (WIDTH - NAMES - RIGHT) / m
    parts = [f'<svg class="curve" viewBox="0 0 {WIDTH} {HEAD + n * LINE + 4}" role="img" aria-label="{escape(title)}">']
    if m <= 14:
        for j, name in enumerate(columns):
            x = NAMES + (j + 0.5) * step
            parts.append(
                f'<text transform="translate({x + 3:.1f} {HEAD - 5}) rotate(-55)">{escape(_short(name, 14))}'
                f"<title>{escape(name)}</title></text>"
            )
    for i, name in enumerate(rows):
        y = HEAD + i * LINE
        parts.append(
            f'<text class="end" x="{NAMES - 6}" y="{y + 12.5}">{escape(_short(name, 13))}'
            f"<title>{escape(name)}</title></text>"
        )
        for j, column in enumerate(columns):
            v = values[i][j]
            depth = min(1.0, abs(v) / top) ** 0.7
            colour = "var(--heat)" if v < 0 or min(map(min, values)) >= 0 else "var(--global)"
            parts.append(
                f'<rect x="{NAMES + j * step + 0.5:.1f}" y="{y + 0.5}" width="{max(step - 1, 0.5):.1f}" '
                f'height="{LINE - 1}" rx="2" style="fill:{colour};opacity:{depth:.2f}">'
                f"<title>{escape(name)}, {escape(column)}: {escape(show(v))}</title></rect>"
            )
        parts.append(f'<path class="grid" d="M{NAMES} {y + LINE}H{WIDTH - RIGHT}"/>')
    return Markup("".join([*parts, "</svg>"]))  # every text in it is escaped above


def lines(
    at: Sequence[float],
    series: Sequence[Sequence[float]],
    changes: Sequence[float],
    when: Callable[[float], str],
    title: str,
) -> Markup:
    """Means of stretches of time; a dashed line at each change."""
    height, left, bottom = 240, 8, 26
    low, high = min(map(min, series)), max(map(max, series))
    pad = 0.06 * (high - low) or 0.5
    low, high = low - pad, high + pad
    first, last = at[0], at[-1] if at[-1] > at[0] else at[0] + 1

    def x(t: float) -> float:
        return round(left + (t - first) / (last - first) * (WIDTH - 2 * left), 1)

    def y(v: float) -> float:
        return round(8 + (high - v) / (high - low) * (height - 8 - bottom), 1)

    parts = [f'<svg class="curve" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    if low < 0 < high:
        parts.append(f'<path class="grid zero" d="M{left} {y(0)}H{WIDTH - left}"/>')
    for t in changes:
        parts.append(
            f'<path d="M{x(t)} 8V{height - bottom}" style="stroke:var(--no);stroke-width:1.5;stroke-dasharray:4 3">'
            f"<title>{escape(when(t))}</title></path>"
        )
    for s, style in zip(series, ("personal", "global", "train"), strict=False):
        path = "".join(f"{'M' if i == 0 else 'L'}{x(t)} {y(v)}" for i, (t, v) in enumerate(zip(at, s, strict=True)))
        parts.append(f'<path class="line {style}" d="{path}"/>')
        for t, v in zip(at, s, strict=True):
            parts.append(
                f'<circle class="touch" r="5" cx="{x(t)}" cy="{y(v)}">'
                f"<title>{escape(when(t))}: {v:.2f}</title></circle>"
            )
    for t, where in ((at[0], ""), (at[-1], "end")):
        parts.append(f'<text class="{where}" x="{x(t)}" y="{height - 8}">{escape(when(t))}</text>')
    return Markup("".join([*parts, "</svg>"]))  # numbers and escaped text


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
