"""Every column type of Parquet, and whatever bytes a CSV file may have."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.load import load_federation
from fedroute.errors import InputError

pa = pytest.importorskip("pyarrow")


def test_parquet_with_every_type(tmp_path: Path) -> None:
    from datetime import datetime

    from pyarrow import parquet

    n = 24
    table = pa.table(
        {
            "site": pa.array(["x", "y"] * 12).dictionary_encode(),
            "flag": [True, False, None] * 8,
            "count": pa.array([i * i % 7 for i in range(n)], pa.int16()),
            "part": pa.array([1.5, math.nan, math.inf, 2.5] * 6, pa.float32()),
            "kind": pa.array(["p", "q", ""] * 8).dictionary_encode(),
            "seen": [datetime(2024, 1, 1 + i) for i in range(n)],
            "nothing": pa.nulls(n),
            "ill": pa.array([i % 3 for i in range(n)], pa.uint8()),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    spec = {"source": "parquet", "path": "t.parquet", "client": "site", "label": "ill", "time": "seen"}
    fed = load_federation(spec | {"split": {"by": "time"}}, base=tmp_path)
    assert fed.clients == ("x", "y")
    assert fed.columns == (
        "flag", "count", "part", "nothing", "flag missing", "part missing", "nothing missing", "kind missing", "kind",
    )  # fmt: skip
    assert bool(torch.isfinite(fed.x).all())
    assert "column part: 6 values infinite or beyond 1e30, taken as missing" in fed.notes
    assert fed.time is not None
    for train, test in zip(fed.train, fed.test, strict=True):
        assert float(fed.time[train].max()) < float(fed.time[test].min())
    listed = table.append_column("list", pa.array([[1, 2]] * n))
    parquet.write_table(listed, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column 'list' holds list<.*drop: \[list\]"):
        load_federation(spec, base=tmp_path)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        load_federation(spec, base=tmp_path)


@pytest.mark.parametrize("kind", ["timestamp, zone", "date", "time of day"])
def test_time_types_of_parquet(tmp_path: Path, kind: str) -> None:
    from datetime import UTC, date, datetime, time

    from pyarrow import parquet

    kinds: dict[str, list[Any]] = {
        "timestamp, zone": [datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
        "date": [date(2024, 1, 2), date(2024, 1, 1)],
        "time of day": [time(10), time(9)],
    }
    values = kinds[kind]
    parquet.write_table(
        pa.table({"t": values, "v": [1.0, 2.0], "ill": [0, 1], "c": ["a", "a"]}), tmp_path / "t.parquet"
    )
    spec = {"source": "parquet", "path": "t.parquet", "client": "c", "label": "ill", "time": "t"}
    if kind == "time of day":
        with pytest.raises(InputError, match="no points in time"):
            load_federation(spec, base=tmp_path)
        return
    fed = load_federation(spec, base=tmp_path)
    assert fed.time is not None
    assert fed.time.tolist() == [1704153600.0, 1704067200.0]
    parquet.write_table(pa.table({"c": ["a"], "v": [1.0], "ill": [[1]]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="cannot be names"):
        load_federation(spec | {"time": None}, base=tmp_path)


CELLS = st.sampled_from(
    ["1", "2.5", "-3", "a", "b", "", "?", "NaN", "1,5", "x y", '"q"', "é", "男", "2024-01-01", "1e400"]
)


@settings(max_examples=200, deadline=None)
@given(
    header=st.sampled_from([[], ["v", "ill"], ["ill", "v", "w"], ["v", "v", "ill"], ["ill", "", "日期"]]),
    grid=st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=8),
    ragged=st.booleans(),
    sign=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    keys=st.fixed_dictionaries(
        {},
        optional={
            "header": st.booleans(),
            "columns": st.sampled_from([["v", "ill"], ["v", "w", "ill"], ["a", "b", "c", "ill"]]),
            "positive": st.sampled_from([">0", ["a"], []]),
            "label_as": st.just("number"),
            "bands": st.just([0.0, 2.0]),
            "missing": st.sampled_from([["a"], {"v": [1]}]),
            "time": st.sampled_from(["v", "1"]),
            "categorical": st.just(["v"]),
            "decimal": st.just(","),
            "statistics": st.just("client"),
            "label": st.sampled_from(["1", "a", "v"]),
        },
    ),
)
def test_whatever_is_in_a_file_there_is_a_federation_or_a_message(
    tmp_path_factory: pytest.TempPathFactory,
    header: list[str],
    grid: list[list[str]],
    ragged: bool,
    sign: str,
    end: str,
    keys: dict[str, Any],
) -> None:
    if not ragged:
        width = len(header) or len(grid[0])
        grid = [(row * 4)[:width] for row in grid]
    grid = [header, *grid] if header else grid
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(end.join(sign.join(row) for row in grid).encode())
    spec = {"source": "csv", "paths": {"site": str(path)}, "label": "ill"} | keys
    try:
        fed = load_federation(spec)
    except InputError as e:
        said = str(e)
    else:
        said = ""
        assert bool(torch.isfinite(fed.x).all())
        assert len(fed.x) == len(fed.y) == sum(len(p) for p in (*fed.train, *fed.validation, *fed.test))
    assert not said or "fuzz" in said or "federation" in said
