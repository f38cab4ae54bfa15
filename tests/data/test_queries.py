"""Queries from outside: read as training rows were, by nobody's own statistics, or refused in words."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.queries import QueryForm, read_queries
from fedroute.data.table import TableSchema
from fedroute.errors import InputError

NORTH = "id;age;chol;cp;ill\n1;63,5;233;1,0;yes\n2;41;0;2,0;no\n3;57;236;1,0;no\n4;62;;4,0;yes\n5;67;286;2,0;yes\n"
SOUTH = "ill;cp;age;chol;id\nno;1,0;37;250;1\nyes;3,0;;192;2\nno;2,0;49;204;3\nyes;2,0;64,5;0;4\n"
SPEC = {
    "source": "csv", "label": "ill", "drop": ["id"], "categorical": ["cp"], "missing": {"chol": [0]},
    "paths": {"north": "north.csv", "south": "south.csv"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text(NORTH)
    (tmp_path / "south.csv").write_text(SOUTH)
    return tmp_path


def form_of(folder: Path, **changes: Any) -> tuple[Federation, QueryForm, Any]:
    spec = SPEC | changes
    federation = load_federation(spec, base=folder)
    return federation, QueryForm.model_validate_json(QueryForm.of(federation).model_dump_json()), spec


@pytest.mark.parametrize("statistics", ["federated", "client"])
def test_a_training_file_read_as_queries_is_what_training_saw(folder: Path, statistics: str) -> None:
    federation, form, spec = form_of(folder, statistics=statistics)
    read = torch.cat([read_queries(folder / f"{c}.csv", form, spec)[0] for c in ("north", "south")])
    assert torch.equal(read, federation.as_queries().x)
    assert torch.equal(read, federation.x) == (statistics == "federated")


def test_whose_a_query_is_changes_nothing(folder: Path) -> None:
    """The same patient in either hospital's file is the same query, though each hospital scales by its own rows."""
    _, form, spec = form_of(folder, statistics="client")
    (folder / "a.csv").write_text("age,chol,cp,client\n50,240,1,north\n")
    (folder / "b.csv").write_text("client,cp,chol,age\nsouth,1,240,50\n")
    a, b = (read_queries(folder / name, form, spec)[0] for name in ("a.csv", "b.csv"))
    assert torch.equal(a, b)


def test_parquet_and_csv_say_the_same(folder: Path) -> None:
    _, form, spec = form_of(folder)
    (folder / "q.csv").write_text("age,chol,cp\n50,240,1.0\n,0,2\n61.5,?,9\n")
    table = pa.table({"cp": [1, 2, 9], "chol": [240.0, 0.0, None], "age": [50.0, float("nan"), 61.5], "extra": [1] * 3})
    parquet.write_table(table, folder / "q.parquet")
    text, notes = read_queries(folder / "q.csv", form, spec)
    typed, _ = read_queries(folder / "q.parquet", form)
    assert torch.equal(text, typed)
    assert text[:, form.table.columns.index("chol missing")].tolist() == [0, 1, 1]  # type: ignore[union-attr]
    assert len(notes) == 1
    assert "'cp': 1 value that no client had in training, such as '9'" in notes[0]


def test_files_without_a_line_of_names(folder: Path) -> None:
    (folder / "a.data").write_text("63,233,1\n41,0,0\n57,236,1\n62,250,0\n")
    (folder / "b.data").write_text("50,200,1\n45,210,0\n70,290,1\n66,199,0\n")
    spec = {"source": "csv", "label": "num", "columns": ["age", "chol", "num"],
            "paths": {"a": "a.data", "b": "b.data"}}  # fmt: skip
    federation = load_federation(spec, base=folder)
    form = QueryForm.of(federation)
    assert torch.equal(read_queries(folder / "a.data", form, spec)[0], federation.x[:4])
    (folder / "unlabelled.data").write_text("63,233\n41,0\n")  # one row would do as well: see the next
    assert torch.equal(read_queries(folder / "unlabelled.data", form, spec)[0], federation.x[:2])
    (folder / "one.csv").write_text("chol,age\n233,63\n")
    assert torch.equal(read_queries(folder / "one.csv", form, spec)[0], federation.x[:1])
    (folder / "single.data").write_text("63,233\n")
    assert torch.equal(read_queries(folder / "single.data", form, spec)[0], federation.x[:1])


def test_dates_are_days_as_in_training(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, d) for d in (1, 5, 9, 20)]
    table = pa.table({"seen": days * 2, "site": ["a"] * 4 + ["b"] * 4, "ill": ["no", "yes"] * 4, "age": range(8)})
    parquet.write_table(table, tmp_path / "rows.parquet")
    spec = {"source": "parquet", "path": "rows.parquet", "client": "site", "label": "ill", "features": ["seen", "age"]}
    federation = load_federation(spec, base=tmp_path)
    assert torch.equal(read_queries(tmp_path / "rows.parquet", QueryForm.of(federation), spec)[0], federation.x)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("no.csv", None, ["no.csv: no such file"]),
        ("q.csv", "age,cp\n1,2\n", ["q.csv: no column 'chol'", "age, chol, cp", "leave the cell empty"]),
        ("q.csv", "agee,cp,chol\n1,2,3\n", ["no column 'age'", "did you mean 'agee'"]),
        ("q.csv", "age,cp,chol\n1,2,3\nold,2,3\n", ["column 'age', row 2: 'old' is not a number", "q.csv"]),
        ("q.csv", "", ["q.csv"]),
        ("q.csv", "age,cp,chol\n", ["q.csv", "no rows"]),
        ("q.parquet", "no parquet", ["q.parquet: cannot be read as Parquet"]),
        ("q.npz", "x", ["q.npz: the models were trained on a table; give CSV or Parquet"]),
    ],
)
def test_a_wrong_table_is_refused_in_words(folder: Path, name: str, content: str | None, words: Sequence[str]) -> None:
    _, form, spec = form_of(folder)
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(InputError) as e:
        read_queries(folder / name, form, spec)
    for word in words:
        assert word in str(e.value)


def test_a_column_that_is_filled_in_training_is_filled_in_a_query(folder: Path) -> None:
    _, form, spec = form_of(folder, missing_columns="fill")
    (folder / "q.csv").write_text("age,cp\n50,1\n")
    (folder / "gap.csv").write_text("age,cp,chol\n50,1,\n")
    x, notes = read_queries(folder / "q.csv", form, spec)
    assert torch.equal(x, read_queries(folder / "gap.csv", form, spec)[0])
    assert "no column chol: taken as missing" in notes[0]
    assert form.table
    assert form.table.optional  # so that a gateway, which has no config, does so too
    plain = form_of(folder)[1].table
    assert plain
    assert not plain.optional


IMAGES = QueryForm(shape=(1, 4, 4), whole=True)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 5, 4), np.uint8), "has shape (2, 1, 5, 4), and the models were trained on rows of (1, 4, 4)"),
        (np.full((2, 4, 4), 7.0), "pixels from 7 to 7; give them as uint8, or in 0..1"),
        (np.full((2, 4, 4), -7), "pixels from -7 to -7"),
        (np.full((2, 4, 4), np.nan), "row 1 has NaN or Inf"),
        (np.zeros((0, 4, 4)), "holds no query"),
        (np.array([["a"]]), "which is no number"),
        (np.array(3), "is one number"),
    ],
)
def test_wrong_arrays_are_refused_in_words(tmp_path: Path, array: Any, words: str) -> None:
    np.savez(tmp_path / "q.npz", x=array)
    with pytest.raises(InputError, match=r"q\.npz") as e:
        read_queries(tmp_path / "q.npz", IMAGES)
    assert words in str(e.value)


def test_damaged_and_misnamed_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "q.npz", images=np.zeros((2, 4, 4), np.uint8))
    with pytest.raises(InputError, match="no array 'x'; there is images"):
        read_queries(tmp_path / "q.npz", IMAGES)
    np.savez(tmp_path / "p.npz", x=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="cannot be read as arrays"):
        read_queries(tmp_path / "p.npz", IMAGES)
    whole = (tmp_path / "q.npz").read_bytes()
    (tmp_path / "q.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read as arrays"):
        read_queries(tmp_path / "q.npz", IMAGES)
    (tmp_path / "q.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="give arrays"):
        read_queries(tmp_path / "q.csv", IMAGES)


def test_images_in_every_order_of_axes_are_one_query(tmp_path: Path) -> None:
    form = QueryForm(shape=(3, 4, 5), whole=True)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x)
    np.savez(tmp_path / "b.npz", x=x.transpose(0, 2, 3, 1))
    np.save(tmp_path / "c.npy", x.astype(np.int32))
    for name in ("a.npz", "b.npz", "c.npy"):
        assert torch.equal(read_queries(tmp_path / name, form)[0], torch.from_numpy(x))


def test_image_files_and_folders(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4), dtype=np.uint8)
    for name, p in zip("ab", pixels, strict=True):
        Image.fromarray(p).save(tmp_path / f"{name}.png")
    assert torch.equal(read_queries(tmp_path, IMAGES)[0][:, 0], torch.from_numpy(pixels))
    assert torch.equal(read_queries(tmp_path / "b.png", IMAGES)[0][0, 0], torch.from_numpy(pixels[1]))
    x, notes = read_queries(tmp_path, QueryForm(shape=(1, 4, 4)))  # of models that were trained on numbers in 0..1
    assert torch.equal(x[:, 0], torch.from_numpy(pixels).float() / 255)
    assert "pixels are read as 0..1" in notes[0]
    (tmp_path / "c.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"1 image cannot be read.*c\.png"):
        read_queries(tmp_path, IMAGES)


def test_floats_where_pixels_were_bytes_are_read_in_0_to_1() -> None:
    assert IMAGES.checked(torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)).dtype == torch.float32
    assert QueryForm(shape=(3,)).checked(torch.tensor([[1, 2, 3]])).tolist() == [[1.0, 2.0, 3.0]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.sampled_from(["1", "2", "10", "x y"])), min_size=1, max_size=8))
def test_names_survive_the_file(tmp_path_factory: pytest.TempPathFactory, names: list[str | None]) -> None:
    table = pa.table({"n": [1.0, 2.0, 3.0, 4.0], "c": ["1", "2", "10", "x y"]})
    form = QueryForm(shape=(2,), table=TableSchema.fit(table, torch.arange(4)))
    path = tmp_path_factory.mktemp("q") / "q.csv"
    path.write_text("n,c\n" + "".join(f"1,{v or ''}\n" for v in names))
    expected = form.table.encode({"n": [1.0] * len(names), "c": names})  # type: ignore[union-attr]
    assert torch.equal(read_queries(path, form)[0], expected)


def test_what_is_not_known_is_said(folder: Path) -> None:
    """A query of nothing is told from one."""
    _, form, spec = form_of(folder)
    (folder / "q.csv").write_text("age,chol,cp\n50,240,1\n,,\n")
    _, notes = read_queries(folder / "q.csv", form, spec)
    assert any("row 2: no value is given" in n for n in notes)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e31, "inf"])
def test_an_endless_number_is_refused_in_every_form_of_a_query(folder: Path, value: Any) -> None:
    """In a file, as rows, as columns, as an Arrow table and as a tensor: one behaviour."""
    _, form, spec = form_of(folder)
    (folder / "q.csv").write_text(f"age,chol,cp\n51,240,1\n50,{value},1\n")
    with pytest.raises(
        InputError, match=r"column 'chol', row 2: .* is beyond 1e\+30, no finite number; .*leave the cell empty"
    ):
        read_queries(folder / "q.csv", form, spec)
    columns = {"age": [51.0, 50.0], "chol": [240.0, value], "cp": ["1", "1"]}
    rows = [dict(zip(columns, v, strict=True)) for v in zip(*columns.values(), strict=True)]
    given: list[Any] = [columns, rows, rows[1]]
    if not isinstance(value, str):
        given.append(pa.table(columns))
    for queries in given:
        with pytest.raises(
            InputError, match=r"column 'chol', row .* is beyond 1e\+30, no finite number; give a number, or None"
        ):
            form.encode(queries)
    x = form.encode(rows[:1])
    if value in (math.inf, -math.inf):
        x[0, 0] = value
        with pytest.raises(InputError, match="NaN or Inf"):
            form.encode(x)


def test_one_row_is_a_query_and_what_is_no_table_is_refused_in_words(folder: Path) -> None:
    _, form, _ = form_of(folder)
    row: dict[str, Any] = {"age": 50.0, "chol": np.float64(240), "cp": "1"}
    assert torch.equal(form.encode(row), form.encode([row]))
    assert torch.equal(form.encode(row), form.encode({c: [v] for c, v in row.items()}))
    assert torch.equal(form.encode(row | {"chol": torch.tensor(240.0)}), form.encode([row]))
    assert torch.equal(form.encode(row | {"chol": None}), form.encode([row | {"chol": math.nan}]))
    for wrong, said in (
        (row | {"age": [50.0, 51.0]}, "'chol': is one value and others are several; give a value for each row"),
        ({"age": [1.0, 2.0], "chol": [1.0], "cp": ["1", "1"]}, "'chol': has 1 values and 'age' 2"),
        ([[50.0, 240.0, 1.0]], "row 0: a list is no row; give column -> value"),
        ({"age": 50.0}, "column 'chol' is not there"),
        (50.0, "a float is no table"),
    ):
        with pytest.raises(InputError, match=said):
            form.encode(wrong)


def test_another_encoding_has_a_mend_that_a_query_can_follow(folder: Path) -> None:
    _, form, spec = form_of(folder)
    (folder / "q.csv").write_bytes("age,chol,cp\n50,240,é\n".encode("latin-1"))
    with pytest.raises(InputError, match="save the queries as UTF-8"):
        read_queries(folder / "q.csv", form, spec)
