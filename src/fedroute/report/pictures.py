"""The pictures of the report: small SVG and, for many clients, a PNG of a pixel per number. All colours are classes of
the page's style, so that they follow its light and dark."""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from fedroute.report.words import ticks

WIDTH, HEIGHT = 340, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 30
MOST_POINTS = 300


@dataclass(frozen=True)
class Series:
    """A line: name, style (a class of the page), (round, value) with None where there is none."""

    name: str
    style: str
    points: tuple[tuple[float, float | None], ...]


def curve(
    title: str,
    series: Sequence[Series],
    show: Callable[[float], str],
    bounds: tuple[float, float] | None,
    along: str = "round",
) -> Markup:
    """Lines over rounds, or over what `along` says. bounds: the range that values can have at all, to keep the axis
    inside it."""
    thin = [Series(s.name, s.style, _thinned(s.points)) for s in series]
    xs = [x for s in thin for x, v in s.points if v is not None]
    ys = [v for s in thin for _, v in s.points if v is not None]
    if not ys:
        return Markup("")
    x0, x1 = min(xs), max(xs)
    pad = (max(ys) - min(ys)) * 0.08 or abs(ys[0]) * 0.1 or 0.1
    y0, y1 = min(ys) - pad, max(ys) + pad
    if bounds:
        y0, y1 = max(y0, bounds[0]), min(y1, bounds[1])
    x1, y1 = x1 + (x0 == x1), y1 + (y0 == y1) * pad

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            round(LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM), 1),
        )

    parts = [f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for v in ticks(y0, y1, 5):
        y = at(x0, v)[1]
        parts.append(
            f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 7}" y="{y + 4}" class="end">{escape(show(v))}</text>'
        )
    for v in ticks(x0, x1, 5):
        if v == int(v) and v <= max(xs):
            parts.append(f'<text x="{at(v, y0)[0]}" y="{HEIGHT - 10}" class="mid">{v:.0f}</text>')
    for s in thin:
        parts.append(f'<path class="line {s.style}" d="{_path(s.points, at)}"/>')
        known = [(x, v) for x, v in s.points if v is not None]
        dots = known if len(known) <= 60 else known[-1:]
        for x, v in dots:
            cx, cy = at(x, v)
            last = ' class="dot ' + s.style + '" r="3.5"' if (x, v) == known[-1] else ' class="touch" r="6"'
            parts.append(
                f'<circle cx="{cx}" cy="{cy}"{last}>'
                f"<title>{escape(s.name)}, {escape(along)} {x:.0f}: {escape(show(v))}</title></circle>"
            )
    return Markup("".join([*parts, "</svg>"]))  # every text in it is escaped above


def caterpillar(
    gains: Sequence[tuple[str, float, Sequence[float] | None, str]], show: Callable[[float], str], title: str
) -> Markup:
    """Many clients, (name, gain over alone, its interval, verdict), sorted by gain, each a thin line with a dot."""
    order = sorted(gains, key=lambda g: (g[1], g[0]))
    ends = [v for _, gain, interval, _ in order for v in (gain, *(interval or ()))]
    low, high = min([*ends, 0.0]), max([*ends, 0.0])
    low, high = (low, high) if high > low else (low - 1, high + 1)
    width, height = 900, 280

    def y(v: float) -> float:
        return round(10 + (high - v) / (high - low) * (height - 20), 1)

    parts = [f'<svg class="caterpillar" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for v in ticks(low, high, 5):
        zero = " zero" if abs(v) < 1e-12 else ""
        parts.append(
            f'<path class="grid{zero}" d="M56 {y(v)}H{width}"/>'
            f'<text x="50" y="{y(v) + 4}" class="end">{escape(show(v))}</text>'
        )
    step = (width - 70) / max(len(order), 1)
    lines: dict[str, list[str]] = {}
    dots: dict[str, list[str]] = {}
    for i, (_, gain, interval, verdict) in enumerate(order):
        x = round(63 + (i + 0.5) * step, 1)
        if interval:
            lines.setdefault(verdict, []).append(f"M{x} {y(interval[0])}V{y(interval[1])}")
        dots.setdefault(verdict, []).append(f"M{x} {y(gain)}h0")
    for verdict in ("unclear", "yes", "no"):
        parts.append(f'<path class="whisker {verdict}" d="{"".join(lines.get(verdict, []))}"/>')
        parts.append(f'<path class="points {verdict}" d="{"".join(dots.get(verdict, []))}"/>')
    return Markup("".join([*parts, "</svg>"]))  # numbers and escaped text


def histogram(values: Sequence[int], show: Callable[[float], str], title: str, bins: int = 24) -> Markup:
    """How many clients have how many rows; the axis is logarithmic where sizes differ by more than 20 times."""
    low, high = max(min(values), 1), max(values)
    logarithmic = high > 20 * low
    edges = [
        low * (high / low) ** (k / bins) if logarithmic else low + (high - low) * k / bins for k in range(bins + 1)
    ]
    counts = [0] * bins
    for v in values:
        counts[max(k for k in range(bins) if edges[k] <= max(v, low))] += 1
    width, height, base = 420, 190, 162
    bar = (width - 20) / bins
    parts = [f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for k, n in enumerate(counts):
        h = round(n / max(counts) * 140, 1)
        words = f"{n} clients with {show(edges[k])} to {show(edges[k + 1])} rows"
        parts.append(
            f'<rect class="bar" x="{10 + k * bar + 1:.1f}" y="{base - h}" width="{bar - 2:.1f}" height="{h}">'
            f"<title>{escape(words)}</title></rect>"
        )
    parts.append(f'<path class="grid zero" d="M10 {base}H{width - 10}"/>')
    for k, where in ((0, ""), (bins // 2, "mid"), (bins, "end")):
        parts.append(
            f'<text class="{where}" x="{10 + k * bar:.0f}" y="{base + 18}">{escape(show(round(edges[k])))}</text>'
        )
    return Markup("".join([*parts, "</svg>"]))  # numbers and escaped text


def mix(shares: Sequence[Sequence[float]], colour: tuple[int, int, int]) -> str:
    """A PNG as a data URI: a column per client, a row per label, the darker the larger that label's share (0..1)."""
    rows = [
        b"\0" + b"".join(bytes((*colour, round(255 * min(1.0, s[k]) ** 0.7))) for s in shares)
        for k in range(len(shares[0]))
    ]
    head = struct.pack(">IIBBBBB", len(shares), len(shares[0]), 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b""))
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _thinned(points: tuple[tuple[float, float | None], ...]) -> tuple[tuple[float, float | None], ...]:
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else (*points[:-1:every], points[-1])


def _path(points: Sequence[tuple[float, float | None]], at: Callable[[float, float], tuple[float, float]]) -> str:
    text, pen = "", "M"
    for x, v in points:
        if v is None:
            pen = "M"
            continue
        text, pen = f"{text}{pen}{at(x, v)[0]} {at(x, v)[1]}", "L"
    return text
