"""Sentences, numbers and pictures."""

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroute.report.ledger_view import dots
from fedroute.report.pictures import Series, caterpillar, curve, histogram, mix
from fedroute.report.words import Unit, duration, headline, listed, size, ticks, whole
from tests.report.html import Page


def clients(**verdicts: str) -> list[dict[str, Any]]:
    return [{"name": n, "better_off": v} for n, v in verdicts.items()]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (clients(a="yes", b="yes"), "All 2 clients are better off than alone."),
        (clients(a="yes", b="no"), "a is better off than alone; b is worse off."),
        (clients(a="no", b="no"), "a and b are worse off than alone."),
        (clients(a="yes", b="unclear"),
         "a is better off than alone; nobody is shown to be worse off; for b the difference is within the noise."),
        (clients(a="n/a"), "No client was compared with training alone, so who gained cannot be said."),
        ([], "This run has no ledger yet, so who gained cannot be said."),
    ],
)  # fmt: skip
def test_headlines(found: list[dict[str, Any]], sentence: str) -> None:
    assert headline(found, 100) == sentence


def test_headline_of_noise_names_the_rows() -> None:
    assert "231 test rows" in headline(clients(a="unclear", b="unclear"), 231)
    assert "Whether a is better off" in headline(clients(a="unclear"), 1)


def test_numbers_in_words() -> None:
    percent, plain = Unit("accuracy"), Unit("pr_auc")
    assert percent(0.8412) == "84.1\N{NO-BREAK SPACE}%"
    assert percent(None) == plain(None) == "n/a"
    assert percent.gain(-0.0214) == "\N{MINUS SIGN}2.1 points"
    assert percent.gain(-0.00001) == "0.0 points"
    assert plain.number(0.12345, True) == "+0.123"
    assert percent.interval([0.5, 0.75]) == "[50.0, 75.0]"
    assert [size(n) for n in (0, 999, 2048, 5_500_000)] == ["0 B", "999 B", "2.05 kB", "5.5 MB"]
    assert [duration(s) for s in (0.0123, 65, 600, 9000)] == ["12 ms", "65.0 s", "10 min", "2 h 30 min"]
    assert whole(1234567) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    assert listed(list("abcdef")) == "a, b, c and 3 more"
    assert listed(["a"]) == "a"


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e6))
def test_ticks_are_a_few_round_numbers_inside(low: float, span: float) -> None:
    high = low + span
    if not high > low:
        return
    found = ticks(low, high)
    tolerance = 1e-6 * max(abs(low), abs(high), span)
    assert len(found) <= 7
    assert all(low - tolerance <= t <= high + tolerance for t in found)
    assert found == sorted(found)


def test_a_curve_breaks_where_there_is_no_value_and_escapes_its_title() -> None:
    points = ((1.0, 0.5), (2.0, None), (3.0, 0.7), (4.0, 0.9))
    svg = curve("<b>", [Series("x<y", "personal", points)], lambda v: f"{v:.1f}", (0, 1))
    page = Page(str(svg))
    line = next(a["d"] for t, a in page.tags if t == "path" and "line" in a["class"])
    assert line.count("M") == 2
    assert line.count("L") == 1
    assert "x<y, round 4: 0.9" in page.text
    assert page.count("b") == 0


@pytest.mark.parametrize(
    "points", [((1.0, 0.5),), ((1.0, 0.5), (2.0, 0.5)), ((1.0, 0.0), (2.0, 0.0)), ((0.0, 1.0), (9.0, 1.0))]
)
def test_flat_and_single_points_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    page = Page(str(curve("t", [Series("s", "train", points)], str, (0, 1))))
    coordinates = [float(a[k]) for t, a in page.tags if t == "circle" for k in ("cx", "cy")]
    assert len(coordinates) == 2 * len(points)
    assert all(0 <= c <= 340 for c in coordinates)
    assert str(curve("t", [Series("s", "train", ((1.0, None),))], str, None)) == ""


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    points = tuple((float(r), r / 9999) for r in range(1, 10_000))
    svg = str(curve("t", [Series("s", "train", points)], lambda v: f"{v:.4f}", None))
    assert len(svg) < 12_000
    assert "round 9999: 1.0000" in svg


def test_higher_values_are_higher_up() -> None:
    page = Page(str(curve("t", [Series("s", "train", ((1.0, 0.2), (2.0, 0.8)))], str, (0, 1))))
    first, second = (float(a["cy"]) for t, a in page.tags if t == "circle")
    assert second < first


def test_dots_stand_where_their_numbers_are() -> None:
    found: list[dict[str, Any]] = [
        {"name": "a", "personal": 0.2, "global": 0.6, "alone": 0.4, "majority": None, "interval": [0.1, 0.3],
         "difference": -0.2, "better_off": "no", "test": 9},
        {"name": "b", "personal": None, "better_off": "n/a"},
    ]  # fmt: skip
    view = dots(found, Unit("accuracy"), "test", "a")
    (row,) = view["rows"]
    at = row["at"]
    assert at["interval"][0] < at["personal"] < at["interval"][1] < at["alone"] < at["global"]
    assert at["alone"] - at["personal"] == pytest.approx(at["global"] - at["alone"], abs=0.02)
    assert (row["worst"], row["verdict_words"], row["rows"]) == (True, "▼ no", 9)
    assert all(0 <= t["at"] <= 100 for t in view["ticks"])
    assert at["majority"] is None
    found[0]["majority"] = 0.01  # far left of all else: it would be drawn over the name
    assert dots(found, Unit("accuracy"), "test", "a")["rows"][0]["at"]["majority"] is None
    found[0]["majority"] = 0.5
    between = dots(found, Unit("accuracy"), "test", "a")["rows"][0]["at"]
    assert between["alone"] < between["majority"] < between["global"]


def test_a_caterpillar_has_a_whisker_and_a_dot_per_client() -> None:
    gains = [(f"c{i}", i / 100 - 0.5, [i / 100 - 0.6, i / 100 - 0.4], "yes" if i > 60 else "no") for i in range(100)]
    page = Page(str(caterpillar(gains, str, "t")))
    paths = {a["class"]: a["d"] for t, a in page.tags if t == "path" and "grid" not in a["class"]}
    assert paths["whisker yes"].count("V") == paths["points yes"].count("h0") == 39
    assert paths["whisker no"].count("V") == 61
    Page(str(caterpillar([("a", 0.0, None, "unclear")], str, "t")))


def test_a_histogram_counts_every_client_once() -> None:
    for values in ([1, 2, 3, 1000], [5] * 10, [10, 11, 12], [0, 0, 7]):
        page = Page(str(histogram(values, whole, "t")))
        assert sum(int(w.split()[0]) for w in page.words if "clients with" in w) == len(values)


def test_the_mix_is_a_png_of_a_pixel_per_client_and_label() -> None:
    shares = [[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]
    data = base64.b64decode(mix(shares, (1, 2, 3)).partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    length = struct.unpack(">I", data[33:37])[0]
    assert zlib.crc32(data[37 : 41 + length]) == struct.unpack(">I", data[41 + length : 45 + length])[0]
    pixels = zlib.decompress(data[41 : 41 + length])
    alphas = [[pixels[row * 13 + 1 + 4 * c + 3] for c in range(3)] for row in range(2)]
    assert alphas[0][0] == 255 == alphas[1][2]
    assert alphas[0][2] == 0 == alphas[1][0]
    assert 0 < alphas[0][1] < alphas[1][1] < 255
