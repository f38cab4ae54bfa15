"""Sites with a file each agree on one schema, and each then has the very rows of a simulation with all files."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedroute.data.load import load_federation
from fedroute.errors import InputError
from fedroute.federation.agreement import hub_federation, own_federation
from fedroute.federation.form import differs
from fedroute.federation.own_rows import SiteData
from fedroute.federation.statistics import answer, settle
from tests.federation.agreeing import Sites, lines, same_as_simulated

DATA = os.environ.get("FEDROUTE_DATA")


@pytest.mark.parametrize("statistics", ["federated", "client"])
@pytest.mark.skipif(DATA is None, reason="FEDROUTE_DATA is not set")
def test_four_hospitals(tmp_path: Path, statistics: str) -> None:
    from fedroute.data.registry import description

    known = description("heart4")
    spec = {k: v for k, v in known.items() if k != "paths"} | {"statistics": statistics}
    sites = Sites(tmp_path, {c: {"path": p} for c, p in known["paths"].items()})
    agreement = sites.agree(spec, seed=3)
    same_as_simulated(sites, agreement, load_federation(known | {"statistics": statistics}, seed=3))


@pytest.mark.skipif(DATA is None, reason="FEDROUTE_DATA is not set")
def test_one_file_that_has_all(tmp_path: Path) -> None:
    """Months of a sensor, whose client is also its time: each site takes its rows of the file."""
    from fedroute.data.registry import description

    known = description("gas_drift") | {"newcomers": 0.2}
    simulated = load_federation(known, seed=1)
    source = {"path": known["path"], "client": {"column": known["client"]}}
    sites = Sites(tmp_path, dict.fromkeys(simulated.clients, source))
    agreement = sites.agree({k: v for k, v in known.items() if k != "path"}, seed=1)
    same_as_simulated(sites, agreement, simulated)


def test_offices() -> None:
    spec: dict[str, Any] = {"source": "bundled", "name": "digits"}
    simulated = load_federation(spec, seed=1)
    sites = Sites(Path(), {c: {} for c in simulated.clients})
    same_as_simulated(sites, sites.agree(spec, seed=1), simulated)


# made tables: whatever a simulation makes of the files of all, the sites agree on


def written(base: Path, tables: dict[str, dict[str, list[Any]]], kind: str = "csv") -> dict[str, dict[str, Any]]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    for c, columns in tables.items():
        table = pa.table(columns)
        (parquet.write_table if kind == "parquet" else csv.write_csv)(table, base / f"{c}.{kind}")
    return {c: {"path": f"{c}.{kind}"} for c in tables}


def both(
    base: Path, tables: dict[str, dict[str, list[Any]]], spec: dict[str, Any], kind: str = "csv", seed: int = 0
) -> str:
    """Checks that the sites agree on what a simulation makes, or that both refuse; what the hub alone refuses with, or
    ""."""
    sites = Sites(base, written(base, tables, kind))
    spec = {"source": kind} | spec
    try:
        simulated = load_federation(spec | {"paths": {c: f"{c}.{kind}" for c in tables}}, seed=seed, base=base)
    except InputError:
        with pytest.raises(InputError):
            sites.agree(spec, seed)
        return "both"
    try:
        agreement = sites.agree(spec, seed)
    except InputError as e:
        return str(e)
    same_as_simulated(sites, agreement, simulated)
    return ""


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "reals": st.one_of(st.none(), st.floats(-1e12, 1e12, allow_nan=False).map(lambda v: round(v, 3))),
    "few": st.integers(0, 3),
    "names": st.sampled_from(["a", "b", "c d", "é", "?", ""]),
    "one": st.just(7.25),
    "codes": st.sampled_from(["01", "2", "30"]),
    "empty": st.none(),
    "patient_id": st.integers(0, 10**6),
    "text": st.text("abcdefgh", min_size=1, max_size=6),
    "yes": st.booleans(),
}


@st.composite
def made_tables(draw: st.DrawFn) -> dict[str, dict[str, list[Any]]]:
    columns = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4, unique=True))
    found = {}
    for c in draw(st.lists(st.sampled_from(["east", "north", "south", "west"]), min_size=1, max_size=4, unique=True)):
        n = draw(st.integers(1, 40))
        found[c] = {k: draw(st.lists(CELLS[k], min_size=n, max_size=n)) for k in columns}
        found[c]["ill"] = draw(st.lists(st.sampled_from(["no", "yes", "perhaps"]), min_size=n, max_size=n))
    return found


@given(tables=made_tables(), kind=st.sampled_from(["csv", "parquet"]), seed=st.integers(0, 3), own=st.booleans())
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_whatever_a_simulation_makes(
    tmp_path: Path, tables: dict[str, dict[str, list[Any]]], kind: str, seed: int, own: bool
) -> None:
    said = both(tmp_path, tables, {"label": "ill", "statistics": "client" if own else "federated"}, kind, seed)
    assert said in ("", "both") or "may be an identifier" in said or "mend it where it is wrong" in said


def test_what_newcomers_have_is_not_learnt(tmp_path: Path) -> None:
    """Their names, gaps and values are in no schema and no statistics."""
    tables = {c: rows(40, ward=lambda i: f"w{i % 3}") for c in ("north", "south", "west")}
    tables["west"] = rows(30, ward=lambda i: f"other {i % 2}", age=lambda i: None if i % 2 else 900.0)
    assert both(tmp_path, tables, {"label": "ill", "newcomers": ["west"]}) == ""


def rows(n: int, **columns: Any) -> dict[str, list[Any]]:
    made = {"ill": lambda i: i % 2, "age": lambda i: 20.5 + i % 37} | columns
    return {k: [f(i) for i in range(n)] for k, f in made.items()}


@pytest.mark.parametrize(
    ("spec", "columns"),
    [
        ({"label_as": "number"}, {"ill": lambda i: i / 8}),
        ({"bands": [1, 5.5]}, {"ill": lambda i: i % 9}),
        ({"positive": ">0", "label_names": ["well", "ill"]}, {"ill": lambda i: i % 3}),
        ({"positive": ["dead", "ill"]}, {"ill": lambda i: ["dead", "well", "ill"][i % 3]}),
        ({"label_names": {"Ill": "ill"}}, {"ill": lambda i: ["Ill", "well", "ill", ""][i % 4]}),
        ({"missing": [9]}, {"ill": lambda i: [0, 1, 9][i % 3]}),
        ({"missing": {"age": [20.5]}}, {}),
        ({"missing": {"age": ["unknown"]}}, {"age": lambda i: "unknown" if i % 7 == 0 else str(i + 0.5)}),
        ({}, {"ill": lambda i: [2, 10, 1][i % 3]}),
        ({"categorical": ["ward"]}, {"ward": lambda i: i % 4}),
        ({"time": "seen", "split": {"by": "time"}}, {"seen": lambda i: f"2024-0{1 + i % 9}-11"}),
        ({"time": "seen"}, {"seen": lambda i: None if i % 5 == 0 else i}),
        ({"features": ["ward", "age"]}, {"ward": lambda i: f"w{i % 3}", "more": lambda i: i}),
        ({"drop": ["more"], "newcomers": ["south"]}, {"more": lambda i: f"text {i}"}),
        ({"newcomers": 0.3, "split": {"validation": 0, "test": 0.5}}, {}),
        ({"missing_columns": "fill"}, {}),
        ({}, {"when": lambda i: f"2024-01-{1 + i % 9:02}"}),
    ],
)  # fmt: skip
def test_what_a_config_may_say(tmp_path: Path, spec: dict[str, Any], columns: dict[str, Any]) -> None:
    tables = {c: rows(n, **columns) for c, n in (("south", 30), ("north", 47), ("west", 25))}
    assert both(tmp_path, tables, {"label": "ill"} | spec, seed=5) == ""


def test_columns_of_several_types(tmp_path: Path) -> None:
    """One site has whole numbers, another fractions, a third names: the sites read them as a simulation does."""
    import pyarrow as pa
    from pyarrow import parquet

    n = 40
    whole, half = [i % 5 for i in range(n)], [i % 5 / 2 for i in range(n)]
    kinds = {
        "a": {"v": pa.array(whole), "k": pa.array(whole, pa.int8()), "w": pa.array([str(i) for i in whole])},
        "b": {"v": pa.array(half), "k": pa.array(half), "w": pa.array(half)},
        "c": {"v": pa.nulls(n), "k": pa.array([f"k{i}" for i in whole]), "w": pa.array(whole)},
    }
    for c, columns in kinds.items():
        parquet.write_table(pa.table({**columns, "ill": [i % 2 for i in range(n)]}), tmp_path / f"{c}.parquet")
    spec = {"source": "parquet", "label": "ill", "categorical": ["k"]}
    sites = Sites(tmp_path, {c: {"path": f"{c}.parquet"} for c in kinds})
    agreement = sites.agree(spec)
    assert sites.calls["survey"] == 6
    simulated = load_federation(spec | {"paths": {c: f"{c}.parquet" for c in kinds}}, base=tmp_path)
    same_as_simulated(sites, agreement, simulated)
    assert agreement.table is not None
    assert agreement.table.numeric == ("v", "w")
    mixed = Sites(tmp_path, {c: {"path": f"{c}.parquet"} for c in kinds})
    with pytest.raises(InputError, match=r"c: column 'k' holds names, and at a, b numbers; .*categorical: \[k\]"):
        mixed.agree({"source": "parquet", "label": "ill"})


def test_files_written_otherwise(tmp_path: Path) -> None:
    """Each site's own delimiter, decimal sign, encoding, names, marks and file are its own affair."""
    from pyarrow import parquet

    tables = {
        c: rows(n, ward=lambda i: ["é", "b", "c"][i % 3]) for c, n in (("a", 40), ("b", 37), ("c", 33), ("d", 29))
    }
    tables["b"]["age"][3] = tables["d"]["age"][0] = None
    plain = tmp_path / "plain"
    plain.mkdir()
    written(plain, tables)
    simulated = load_federation(
        {"source": "csv", "label": "ill", "paths": {c: f"{c}.csv" for c in tables}}, seed=1, base=plain
    )
    lines = ["Alter;Station;krank", *(
        f"{'k.A.' if a is None else str(a).replace('.', ',')};{w};{i}"
        for i, a, w in zip(*(tables["b"][k] for k in ("ill", "age", "ward")), strict=True)
    )]  # fmt: skip
    (tmp_path / "b.csv").write_text("\n".join(lines), encoding="latin-1")
    own = {k: tables["c"][k] + tables["d"][k] for k in tables["c"]}
    own["house"] = ["c"] * 33 + ["the other"] * 29
    pa = pytest.importorskip("pyarrow")
    parquet.write_table(pa.table(own), tmp_path / "both.parquet")
    bare = [f"{i},{'' if a is None else a},{w}" for i, a, w in zip(*tables["a"].values(), strict=True)]
    (tmp_path / "a1.csv").write_text("\n".join(bare[:10]) + "\n")
    (tmp_path / "a2.csv").write_text("\n".join(bare[10:]) + "\n")
    sites = Sites(
        tmp_path,
        {
            "a": {"path": ["a1.csv", "a2.csv"], "columns": ["ill", "age", "ward"]},
            "b": {"path": "b.csv", "delimiter": ";", "decimal": ",", "encoding": "latin-1",
                  "missing": {"age": ["k.A."]}, "rename": {"Alter": "age", "Station": "ward", "krank": "ill"}},
            "c": {"path": "both.parquet", "source": "parquet", "client": {"column": "house"}},
            "d": {"path": "both.parquet", "source": "parquet", "client": {"column": "house", "value": "the other"}},
        },
    )  # fmt: skip
    agreement = sites.agree({"source": "csv", "label": "ill"}, seed=1)
    # the columns of the first site come first, and of b another order is kept by name
    same_as_simulated(sites, agreement, simulated)


def test_images_and_arrays(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    for site, mode, kinds in (("a", "L", ("cat", "dog")), ("b", "RGB", ("dog", "fox"))):
        for kind in kinds:
            folder = tmp_path / "all" / site / kind
            folder.mkdir(parents=True)
            for k in range(9):
                shape = (6, 5, 3) if mode == "RGB" else (6, 5)
                pixels = generator.integers(0, 256, shape, dtype=np.uint8)
                image.fromarray(pixels, mode).save(folder / f"{k}.png")
    spec: dict[str, Any] = {"source": "images", "label_names": {"fox": "dog"}}
    sites = Sites(tmp_path, {c: {"path": f"all/{c}"} for c in "ab"})
    simulated = load_federation(spec | {"path": "all"}, base=tmp_path)
    same_as_simulated(sites, sites.agree(spec), simulated)
    assert simulated.labels == ("cat", "dog")
    whole = Sites(tmp_path, {c: {"path": "all", "client": {"value": c}} for c in "ab"})
    same_as_simulated(whole, whole.agree(spec), simulated)

    x, y = generator.normal(size=(50, 3)).astype(np.float32), generator.integers(0, 3, 50)
    who = np.where(np.arange(50) < 30, "a", "b")
    np.savez(tmp_path / "all.npz", x=x, y=y, who=who)
    np.savez(tmp_path / "a.npz", data=x[:30], y=y[:30])
    spec = {"source": "npz"}
    arrays = Sites(
        tmp_path, {"a": {"path": "a.npz", "x": "data"}, "b": {"path": "all.npz", "client": {"column": "who"}}}
    )
    simulated = load_federation(spec | {"path": "all.npz", "client": "who"}, base=tmp_path)
    same_as_simulated(arrays, arrays.agree(spec), simulated)


def test_what_does_not_fit_is_said_at_once(tmp_path: Path) -> None:
    tables = {
        "north": rows(40, ward=lambda i: f"w{i % 3}", dose=lambda i: i % 7, pain=lambda i: i % 3),
        "south": rows(40, ward=lambda i: i % 3, dose=lambda i: ["1", "2", "5", "none"][i % 4]),
    }
    tables["south"]["ill"] = [["Yes", "yes", "no"][i % 3] for i in range(40)]
    sites = Sites(tmp_path, written(tmp_path, tables))
    with pytest.raises(InputError) as found:
        sites.agree({"source": "csv", "label": "ill"})
    said = "\n".join(lines(found.value))
    assert re.search(
        r"south: no column 'pain', which north has; rename it .*drop: \[pain\]` in DATA.yaml.*missing_columns: fill",
        said,
    )
    assert re.search(r"north: column 'ward' holds names, and at south numbers; .*categorical: \[ward\]", said)
    assert re.search(
        r"south: column 'dose' holds numbers and 10 other values; `fedroute site check` shows there in which row.* in "
        r"that site's DATA.yaml; if its values are names, say `categorical: \[dose\]` below `federation:` in the hub's",
        said,
    )
    assert re.search(
        r"south: label 'yes' \(13 rows\) differs from 'Yes' only in case .* south's DATA.yaml `label_", said
    )
    assert "none" not in said  # no value of a site, but for labels
    assert len(lines(found.value)) == 4


@pytest.mark.parametrize(
    ("spec", "tables", "says"),
    [
        ({"label": "ill", "time": "seen"}, {"a": {"seen": lambda i: i}, "b": {"seen": lambda i: "2024-01-01"}},
         "b: column 'seen' .* holds dates, and at a numbers"),
        ({"label": "ill", "positive": ["dead"]}, {"a": {}, "b": {}}, "no label 'dead'"),
        ({"label": "ill", "features": ["age", "height"]}, {"a": {}, "b": {}}, "no column 'height'"),
        ({"label": "ill", "newcomers": ["c"]}, {"a": {}, "b": {}}, "no client 'c'"),
        ({"label": "ill", "shift": {"method": "hue"}}, {"a": {}, "b": {}}, "federation.shift: is for simulations"),
        ({"label": "ill"}, {"a": {"visit_id": lambda i: i}, "b": {"visit_id": lambda i: i}},
         r"column 'visit_id' may be an identifier: .* at a, b, .*drop: \[visit_id\]"),
        ({"label": "ill"},
         {"a": {"seen": lambda i: f"2024-01-{i + 1:02}"}, "b": {"seen": lambda i: f"2024-01-{i + 9:02}"}},
         r"column 'seen' holds dates: .* at a, b, .*`time: seen` if it is the time of a row, `drop: \[seen\]`"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, spec: dict[str, Any], tables: dict[str, Any], says: str) -> None:
    sites = Sites(tmp_path, written(tmp_path, {c: rows(15, **columns) for c, columns in tables.items()}))
    with pytest.raises(InputError, match=says):
        sites.agree({"source": "csv"} | spec)


def test_a_site_learns_nothing_of_another(tmp_path: Path) -> None:
    sites = Sites(tmp_path, written(tmp_path, {c: rows(40) for c in ("north", "south")}))
    agreement = sites.agree({"source": "csv", "label": "ill"})
    own = agreement.for_site("north")
    assert {*own.sizes, *own.counts, *own.different} == {"north"}
    assert own.sha256 != agreement.sha256 == agreement.model_copy().sha256


def test_no_more_is_told_than_statistics_need(tmp_path: Path) -> None:
    sites = Sites(tmp_path, written(tmp_path, {c: rows(40) for c in ("north", "south")}))
    agreement = sites.agree({"source": "csv", "label": "ill"})
    assert sites.calls["statistics"] == 2 * 18
    assert sites.settle(agreement) == agreement  # the same questions again are answered again

    def told(question: dict[str, Any]) -> dict[str, Any]:
        return answer(sites.data["north"], sites.agreed["north"], question)

    with pytest.raises(InputError, match="more than 30 thresholds"):
        told({"what": "counts", "up_to": {"age": list(range(31))}})
    with pytest.raises(InputError, match="no numeric column"):
        told({"what": "counts", "up_to": {"ill": [1]}})
    with pytest.raises(InputError, match="asks more than the statistics"):
        told({"what": "counts", "up_to": {"age": [30.0]}})
    assert "sums" in told({"what": "sums"})


def test_answers_that_are_none(tmp_path: Path) -> None:
    sites = Sites(tmp_path, written(tmp_path, {c: rows(40) for c in ("north", "south")}))
    agreement = sites.reach({"source": "csv", "label": "ill"})
    for what, broken, says in (
        ("sums", {"sums": {"age": [1, "1/0", "2"]}}, "south: its sums of column 'age' are none"),
        ("sums", {}, "south: its sums of column 'age' are none"),
        ("counts", {"counts": {"age": [1]}}, "south: its counts of column 'age'"),
        ("counts", {"counts": {"age": [-1] * 15}}, "south: -1 is no count"),
        ("different", {"different": "many"}, "south: 'many' is no count"),
    ):

        def ask(method: str, asked: Any, what: str = what, broken: Any = broken) -> dict[str, Any]:
            found = sites.ask(method, asked)
            return found | {"south": broken} if asked["south"]["what"] == what else found

        with pytest.raises(InputError, match=says):
            settle(agreement, ask)


def test_data_that_change_after_the_agreement(tmp_path: Path) -> None:
    tables = {c: rows(40) for c in ("north", "south")}
    sites = Sites(tmp_path, written(tmp_path, tables))
    agreement = sites.agree({"source": "csv", "label": "ill"})
    sites.own("north")
    written(tmp_path, {"north": rows(50)})
    sites.data["north"] = SiteData.read({"path": "north.csv"}, tmp_path, {"source": "csv", "label": "ill"}, "north")
    with pytest.raises(InputError, match=r"north: \(30, 8, 12\) rows .* and \(24, 6, 10\) when it was agreed"):
        own_federation(sites.data["north"], agreement)


def test_the_hub_has_no_rows(tmp_path: Path) -> None:
    sites = Sites(tmp_path, written(tmp_path, {c: rows(40) for c in ("north", "south")}))
    hub = hub_federation(sites.agree({"source": "csv", "label": "ill"}))
    with pytest.raises(RuntimeError, match="the hub has no rows"):
        hub.take(hub.train[0])


def test_another_config_than_at_joining() -> None:
    given = {"source": "csv", "label": "ill", "path": "mine.csv"}
    assert differs(given, {"source": "csv", "label": "ill", "paths": {"a": "b"}}) == ""
    assert differs(given, {"source": "csv", "label": "age"}) == "label"
    assert differs(given, {"source": "csv", "label": "ill", "drop": ["x"]}) == "drop"
