"""What counts of the parts of a column say of the whole: never more than they can."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.look import Look, look_at, reading_of, trimmed
from fedroute.data.spec import Csv

pa = pytest.importorskip("pyarrow")
PLAIN = Csv(source="csv", label="ill")
CELLS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c", None, "a b"]), max_size=30),
    st.lists(st.one_of(st.none(), st.text("abcd", min_size=1, max_size=3)), max_size=30),
    st.lists(st.sampled_from(["1", "2", "03", "4.5", None]), max_size=30),
    st.lists(st.integers(0, 40).map(str), max_size=30),
    st.lists(st.sampled_from(["1 kg", "2 kg", "30 kg", "4"]), max_size=30),
    st.integers(0, 30).map(lambda n: [str(i) for i in range(n)]),
)


def column(cells: list[Any]) -> Any:
    return trimmed(pa.chunked_array([pa.array(cells, pa.string())]), ())


@settings(deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=4), name=st.sampled_from(["ward", "patient_id"]))
def test_parts_and_the_whole(cells: list[list[Any]], name: str) -> None:
    """What is read of the parts' looks is what is read of the whole column, or it is said that they do not say."""
    whole = look_at(column([c for part in cells for c in part]))
    parts = [Look.load(json.loads(json.dumps(look_at(column(part), tell=True).json()))) for part in cells]
    together = Look.together(parts)
    assert together.known == whole.known
    assert together.numbers == whole.numbers
    if whole.numbers < whole.known:
        assert together.texts[0] <= whole.texts[0] <= together.texts[1]
    elif not whole.coded and whole.whole:
        assert together.values[0] <= whole.values[0] <= together.values[1]
    assert reading_of(together, name, PLAIN) in (reading_of(whole, name, PLAIN), "unsure")


@settings(deadline=None)
@given(cells=CELLS, name=st.sampled_from(["ward", "patient_id"]))
def test_one_site_is_never_unsure(cells: list[Any], name: str) -> None:
    told = look_at(column(cells), tell=True)
    assert reading_of(told, name, PLAIN) == reading_of(look_at(column(cells)), name, PLAIN) or told.last is None


def test_names_of_many_sites_are_counted_once() -> None:
    names = [f"w{i}" for i in range(12)]
    parts = [look_at(column(names * 3), tell=True) for _ in range(5)]
    assert Look.together(parts).texts == (12, 12)
    shy = look_at(column(names), tell=True)
    assert shy.hashes is None
    assert Look.together([*parts, shy]).texts == (12, 24)
    assert "w1" not in json.dumps([p.json() for p in [*parts, shy]])


def test_numbers_are_not_told() -> None:
    """Of a text of numbers no hash, and no least or largest value but of what numbers rows."""
    told = look_at(column([str(40 + i % 50) for i in range(90)]), tell=True)
    assert (told.hashes, told.first, told.last) == (None, None, None)
    few = look_at(column(["61", "47", "80"]), tell=True)
    assert (few.hashes, few.first, few.last) == (None, None, None)
    numbering = look_at(column([str(i) for i in range(50)]), tell=True)
    assert (numbering.first, numbering.last) == (0, 49.0)
    assert reading_of(numbering, "row", PLAIN) == "identifier"
    twice = Look.together([numbering, numbering])
    assert reading_of(twice, "row", PLAIN) == "number"  # 0..49 twice is no numbering of 100 rows


def test_zeros_in_front_at_one_site_are_names_at_all() -> None:
    parts = [look_at(column(["01", "02"] * 20), tell=True), look_at(column(["10", "11"] * 20), tell=True)]
    assert [reading_of(p, "ward", PLAIN) for p in parts] == ["name", "number"]
    assert reading_of(Look.together(parts), "ward", PLAIN) == "name"
