"""Columns that mean something else at one client, values that stand for nothing, labels of one's own."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.profile.finding import Finding
from fedroute.profile.sick import sick
from fedroute.profile.units import UNITS, measured, units_of

Array = NDArray[np.float64]
NAMES = ("weight", "height", "temp", "chol", "age")


def people(rows: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    weight = rng.gamma(25, 3, rows)
    return np.stack([
        weight, 1.1 + 0.12 * np.sqrt(weight) * rng.lognormal(0, 0.03, rows) / 1.6, rng.normal(37, 0.7, rows),
        rng.lognormal(5.3, 0.2, rows), rng.integers(20, 90, rows),
    ], 1)  # fmt: skip


def federation(parts: dict[str, Array], target: dict[str, NDArray[Any]] | None = None, **keys: Any) -> Federation:
    x = np.concatenate(list(parts.values())).astype("f")
    y = np.random.default_rng(0).integers(0, 2, len(x)) if target is None else np.concatenate(list(target.values()))
    names = [name for name, p in parts.items() for _ in range(len(p))]
    keys.setdefault("columns", NAMES[: x.shape[1]])
    return Federation.from_arrays(torch.tensor(x), torch.tensor(y), names, **keys)


def kinds(fed: Federation, kind: str) -> list[Finding]:
    return [f for f in sick(fed).findings if f.kind == kind]


@pytest.mark.parametrize(("column", "factor", "offset", "words"), [
    (0, 2.20462, 0, "pounds where they have kilograms"), (1, 100, 0, "hundredths"),
    (2, 1.8, 32, "degrees Fahrenheit"), (3, 1 / 38.67, 0, "mmol/l (cholesterol) where they have mg/dl"),
    (4, 12, 0, "months where they have years"), (2, 1, 273.15, "kelvins"),
])  # fmt: skip
@pytest.mark.parametrize("clients", [2, 5])
def test_another_unit_at_one_client(column: int, factor: float, offset: float, words: str, clients: int) -> None:
    parts = {f"h{i}": people(300 - 40 * (i == 1), i) for i in range(clients)}
    assert not sick(federation(parts)).findings
    parts["h1"][:, column] = parts["h1"][:, column] * factor + offset
    (f,) = kinds(federation(parts), "another unit")
    assert (f.client, f.column, f.severity) == ("h1", NAMES[column], "severe")
    assert f.number == pytest.approx(factor, rel=1e-3)
    assert words in f.sentence
    assert "h1" in f.mend
    assert f"divide by {factor:.3g}"[:11] in f.mend


def test_every_unit_goes_there_and_back() -> None:
    v = np.array([1.0, 20.0, 300.0])
    for unit in UNITS:
        there = v * unit.factor + unit.offset
        assert np.allclose(there * unit.inverse.factor + unit.inverse.offset, v)


def test_half_of_the_clients_in_another_unit_are_named_and_a_population_of_its_own_is_not() -> None:
    parts = {f"h{i}": people(200, i) for i in range(6)}
    for i in (1, 4):
        parts[f"h{i}"][:, 0] *= 2.20462
    assert [f.client for f in kinds(federation(parts), "another unit")] == ["h1", "h4"]
    rng = np.random.default_rng(1)
    scaled = {f"s{i}": people(200, i) * np.exp(rng.normal(0, 0.7, 5)) for i in range(8)}
    assert not kinds(federation(scaled), "another unit")


def test_two_units_at_two_clients_and_none_where_a_third_is_merely_other() -> None:
    parts = {f"h{i}": people(200, i) for i in range(7)}
    parts["h1"][:, 0] *= 2.20462
    parts["h2"][:, 0] *= 1000
    assert {f.client: f.number for f in kinds(federation(parts), "another unit")} == {"h1": 2.20462, "h2": 1000}
    parts["h3"][:, 0] *= 0.6
    parts["h3"][:, 0] += 200
    assert not kinds(federation(parts), "another unit")


@pytest.mark.parametrize("factor", [1.8, 3.0])
def test_a_small_client_of_heavier_people_has_no_other_unit(factor: float) -> None:
    for seed in range(6):
        parts = {f"h{i}": people(300, 10 * seed + i) for i in range(3)} | {"small": people(45, 99 + seed)}
        parts["small"][:, 0] *= factor
        assert not kinds(federation(parts), "another unit")


@pytest.mark.parametrize(("name", "factor"), [("sales", 7), ("revenue", 1 / 3.6), ("visits", 12), ("income", 2.54)])
def test_an_honest_level_is_noted_and_no_unit_that_the_name_contradicts(name: str, factor: float) -> None:
    rng = np.random.default_rng(0)
    parts = {f"h{i}": np.stack([rng.lognormal(6, 0.5, 300), rng.normal(size=300)], 1) for i in range(4)}
    parts["h2"][:, 0] *= factor
    fed = federation(parts, columns=(name, "x"))
    assert not kinds(fed, "another unit")
    (f,) = kinds(fed, "another level")
    assert (f.client, f.column, f.severity) == ("h2", name, "note")
    assert f.number == pytest.approx(factor, rel=0.15)


def test_children_s_kilograms_are_no_speed_and_an_income_is_no_temperature() -> None:
    rng = np.random.default_rng(7)
    parts = {name: np.stack([np.round(rng.lognormal(10, 0.6, 300) * f), rng.normal(w, 0.15 * w, 300)], 1)
             for name, f, w in (("rich", 3.0, 75), ("poor", 1.0, 70), ("mid", 1.6, 72), ("kids", 1.5, 20))}  # fmt: skip
    found = sick(federation(parts, columns=("income", "kg"))).findings
    assert {f.severity for f in found} == {"note"}
    assert [f.client for f in found if f.kind == "another level"] == ["kids"]


@pytest.mark.parametrize("column", ["revenue", "signal"])
def test_shops_of_honest_sizes_are_never_accused(column: str) -> None:
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        parts = {f"s{i}": np.stack([rng.lognormal(8, 0.5, 150) * np.exp(rng.normal(0, 0.7)), rng.normal(size=150)], 1)
                 for i in range(6)}  # fmt: skip
        found = sick(federation(parts, columns=(column, "x"))).findings
        assert not [f for f in found if f.severity == "severe"]
        assert column != "revenue" or not [f for f in found if f.kind == "another unit"]


@pytest.mark.parametrize(("column", "factor", "severity"), [
    ("signal", 2.54, "warning"), ("signal", 1000, "severe"), ("血糖", 18.016, "severe"), ("revenue", 100, "severe"),
    ("temp_c", 1.8, None), ("body_weight", 2.20462, "severe"),
])  # fmt: skip
def test_how_sure_a_unit_is_by_the_column_s_name(column: str, factor: float, severity: str | None) -> None:
    rng = np.random.default_rng(1)
    parts = {f"h{i}": np.stack([rng.lognormal(1.75, 0.2, 300), rng.normal(size=300)], 1) for i in range(4)}
    parts["h2"][:, 0] *= factor
    assert [f.severity for f in kinds(federation(parts, columns=(column, "x")), "another unit")] == (
        [severity] if severity else []
    )


def test_what_has_another_spread_is_no_unit() -> None:
    rng = np.random.default_rng(1)
    parts = {f"h{i}": np.stack([rng.normal(70, 12, 400), rng.normal(size=400)], 1) for i in range(4)}
    parts["h2"][:, 0] = rng.normal(70, 6, 400) * 2.20462
    assert not kinds(federation(parts, columns=("weight", "x")), "another unit")


def test_what_a_name_measures() -> None:
    assert measured("bodyTemp_F") == {"temperature"}
    assert measured("WeightKg") == {"mass"}
    assert measured("月收入") == {"money"}
    assert measured("x3") == set()
    assert {u.of for u in units_of("income")} == {""}
    assert units_of("x3") == UNITS


def test_columns_in_each_others_place() -> None:
    parts = {f"h{i}": people(300, i) for i in range(4)}
    parts["h2"] = parts["h2"][:, [3, 1, 2, 0, 4]]
    (f,) = kinds(federation(parts), "columns in each other's place")
    assert (f.client, f.number, f.severity) == ("h2", 2, "severe")
    assert "weight holds chol" in f.sentence
    assert "chol holds weight" in f.sentence
    assert "header of h2's file" in f.mend


@pytest.mark.parametrize("mark", [0, -1, 999, -9999])
def test_a_number_that_stands_for_a_missing_value(mark: float) -> None:
    parts = {f"h{i}": people(300, i) for i in range(3)}
    parts["h1"][::10, 3] = mark
    parts["h2"][:, 0] = mark
    found = {f.client: f for f in kinds(federation(parts), "a number for a missing value")}
    assert set(found) == {"h1", "h2"}
    assert (found["h1"].column, found["h1"].number) == ("chol", 30)
    assert (found["h2"].column, found["h2"].number) == ("weight", 300)
    assert f"missing: {{chol: [{mark}]}}" in found["h1"].mend
    assert "all 300 rows" in found["h2"].sentence


def test_zeros_that_are_values_are_no_gaps() -> None:
    rng = np.random.default_rng(0)
    rain = np.where(rng.random((600, 1)) < 0.8, 0, rng.exponential(2, (600, 1)))
    yes = rng.integers(0, 2, (600, 1)).astype(float)
    centred = rng.normal(0, 1, (600, 1))
    x = np.concatenate([rain, yes, centred], 1)
    fed = federation({"a": x[:300], "b": x[300:]}, columns=("rain", "yes", "centred"))
    assert not kinds(fed, "a number for a missing value")


def test_a_client_of_one_class_and_one_of_nearly_one() -> None:
    parts = {f"h{i}": people(200, i) for i in range(4)}
    y = {f"h{i}": np.arange(200) % 2 for i in range(4)}
    y["h1"], y["h2"] = np.zeros(200, dtype=int), (np.arange(200) % 20 == 0).astype(int)
    found = {f.client: f for f in kinds(federation(parts, y, labels=("well", "ill")), "one class")}
    assert set(found) == {"h1", "h2"}
    assert found["h1"].number == 1
    assert "only 'well' (200 of 200 rows, 100 %)" in found["h1"].sentence
    assert found["h2"].number == 0.95
    assert "nearly only" in found["h2"].sentence


def test_a_class_that_is_rare_everywhere_makes_no_client_sick() -> None:
    parts = {f"h{i}": people(200, i) for i in range(4)}
    y = {f"h{i}": (np.arange(200) % 40 == 0).astype(int) for i in range(4)}
    assert not kinds(federation(parts, y), "one class")


def test_label_names_of_ones_own() -> None:
    parts = {f"h{i}": people(100, i) for i in range(3)}
    y = {"h0": np.arange(100) % 2, "h1": np.arange(100) % 2 + 2, "h2": np.arange(100) % 2}
    (f,) = kinds(federation(parts, y, labels=("no", "yes", "0", "1")), "label names of its own")
    assert (f.client, f.severity) == ("h1", "severe")
    assert "calls its classes 0 and 1 and the others no and yes" in f.sentence
    assert "label_names: {0: no, 1: yes}" in f.mend
    shards = {f"h{i}": np.arange(100) % 2 + 2 * i for i in range(3)}
    assert not kinds(federation(parts, shards, labels=tuple("abcdef")), "label names of its own")


def test_clients_with_few_rows_or_none() -> None:
    fed = federation({"big": people(300, 0), "small": people(12, 1)})
    (f,) = kinds(fed, "few rows")
    assert f.others == ("small",)
    assert "small (" in f.sentence
    empty = Federation(**{**vars(fed), "clients": (*fed.clients, "void"), **{
        p: (*getattr(fed, p), torch.empty(0, dtype=torch.int64)) for p in ("train", "validation", "test")
    }})  # fmt: skip
    assert [f.others for f in kinds(empty, "no rows")] == [("void",)]
    assert sick(empty).clients["void"].rows == 0
