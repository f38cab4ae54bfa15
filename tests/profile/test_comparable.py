"""Federations of which nothing can be told: what is so is said, and no headline calls them alike."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedroute.data.load import load_federation
from fedroute.profile.profile import Profile, profile

ALIKE = "The clients are alike"


def profiled(folder: Path, rows: list[dict[str, Any]], **spec: Any) -> Profile:
    columns = list(rows[0])
    lines = [",".join(columns), *(",".join(str(r[c]) for c in columns) for r in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    given = {"source": "csv", "path": "rows.csv", "client": "site", "label": "y"} | spec
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # numpy's are no words for a user
        return profile(load_federation(given, base=folder))


def table(sites: str = "abc", n: int = 60, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of sites that do not differ; what x1 says of y is a little."""
    g = np.random.default_rng(seed)
    rows = list[dict[str, Any]]()
    for site in sites:
        for _ in range(n):
            x = g.normal(size=3).round(6)
            rows.append({"site": site, "x0": x[0], "x1": x[1], "x2": x[2], "y": "pn"[int(x[1] + g.normal() > 0)]})
    return rows


def kinds(p: Profile) -> dict[str, Any]:
    return {f.kind: f for f in p.sick.findings}


def test_a_label_for_each_row(tmp_path: Path) -> None:
    found = profiled(tmp_path, [r | {"y": i} for i, r in enumerate(table())])
    f = kinds(found)["nearly as many labels as rows"]
    assert f.severity == "severe"
    assert "180 rows have 180 different labels" in f.sentence
    assert "`label_as: number`" in f.mend
    assert "`bands: [...]`" in f.mend
    assert found.sentences == {"en": str(f.sentence), "zh": f.sentence.zh}
    assert found.skew["label"].verdict == "unknown"
    named = profiled(tmp_path, [r | {"y": f"case {i}"} for i, r in enumerate(table())])
    assert "label_as" not in kinds(named)["nearly as many labels as rows"].mend


def test_one_label_in_the_whole_federation(tmp_path: Path) -> None:
    found = profiled(tmp_path, [r | {"y": "p"} for r in table()])
    f = kinds(found)["one label"]
    assert f.sentence == "All 180 rows have the one label 'p': there is nothing to learn."
    assert "one class" not in kinds(found)  # there is no rare class to judge by
    assert found.sentences["en"] == f.sentence
    number = profiled(tmp_path, [r | {"y": 3.5} for r in table()], label_as="number")
    assert "label 3.5:" in kinds(number)["one label"].sentence


def test_one_client(tmp_path: Path) -> None:
    found = profiled(tmp_path, table("a"))
    assert found.sentences["en"].startswith("Only one client, a, has rows")
    assert [f.kind for f in found.sick.findings] == ["one client"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_rows_to_compare(tmp_path: Path, n: int) -> None:
    found = profiled(tmp_path, table("abcdefgh", n))
    assert found.sentences["en"].startswith("No two clients have 10 rows")
    assert "one class" not in kinds(found)  # of so few rows no wonder
    assert found.skew["label"].verdict == "unknown"


def test_columns_that_say_nothing_are_named(tmp_path: Path) -> None:
    found = profiled(tmp_path, [r | {"x1": "", "x2": 7} for r in table()])
    empty, constant = kinds(found)["an empty column"], kinds(found)["a constant column"]
    assert (empty.column, empty.severity) == ("x1", "warning")
    assert (constant.column, constant.severity) == ("x2", "note")
    assert "`drop: [x1]`" in empty.mend
    still = profiled(tmp_path, [r | {"x0": 1, "x1": "", "x2": "word"} for r in table()])
    assert still.sentences["en"].startswith("No column varies")


def test_what_is_whole_is_not_accused(tmp_path: Path) -> None:
    """Neither sites that are alike, nor a column that one client alone varies in, nor one that is filled in or not."""
    rows = table()
    found = profiled(tmp_path, rows)
    assert found.sentences["en"].startswith(ALIKE)
    assert not found.sick.findings
    for i, r in enumerate(rows):
        r |= {"x0": 1.0 if r["site"] != "a" else r["x0"], "x2": "yes" if i % 3 else ""}
    assert not {"an empty column", "a constant column", "no column varies"} & set(kinds(profiled(tmp_path, rows)))


def test_what_cannot_be_told_is_not_called_alike(tmp_path: Path) -> None:
    """One site of hardly any rows: no difference is found, and none could be."""
    found = profiled(tmp_path, table("a", 300) + table("b", 3))
    assert ALIKE not in found.sentences["en"]


def test_gaps_at_one_site(tmp_path: Path) -> None:
    """Half of a column at one site and hardly any elsewhere; not what all sites lack alike, nor what is there or not by
    chance."""
    rows = table()
    for i, r in enumerate(rows):
        r |= {"x0": "" if i % 20 < 11 and r["site"] == "b" else r["x0"], "x2": "" if i % 7 < 3 else r["x2"]}
    found = profiled(tmp_path, rows)
    (f,) = [f for f in found.sick.findings if f.kind == "a column with gaps at some clients"]
    assert (f.client, f.column, f.severity, f.number) == ("b", "x0", "warning", 0.55)
    assert "b (55 %)" in f.sentence
    assert "`drop: [x0]`" in f.mend


def test_dates_that_nobody_named_as_time(tmp_path: Path) -> None:
    rows = [r | {"seen": f"2020-{1 + i % 12:02}-{1 + i % 28:02}"} for i, r in enumerate(table())]
    found = profiled(tmp_path, rows)
    f = kinds(found)["dates read as names"]
    assert f.column == "seen"
    assert "`time: seen`" in f.mend
    for said in found.skew["time"].sentences.values():
        assert "`time: seen`" in said
    named = profiled(tmp_path, rows, time="seen")
    assert "dates read as names" not in kinds(named)
    assert named.skew["time"].verdict == "none"
    number = profiled(tmp_path, [r | {"time": (i * 7) % 60} for i, r in enumerate(table())])
    assert "dates read as names" not in kinds(number)
    assert "`time: time`" in number.skew["time"].sentences["en"]
    words = profiled(tmp_path, [r | {"seen": ("2020-13", "1990-2000", "red")[i % 3]} for i, r in enumerate(table())])
    assert "dates read as names" not in kinds(words)
    assert "name the time column" in words.skew["time"].sentences["en"]
