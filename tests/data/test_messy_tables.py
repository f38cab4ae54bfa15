"""A gallery of tables as they come: what is understood, what is refused, and with which words."""

import datetime
import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.table import TableSchema
from fedroute.errors import InputError
from fedroute.profile.dates import date_columns

pa = pytest.importorskip("pyarrow")

Load = Callable[..., Federation]
A = "age,weight,sex,ill\n30,60.5,F,no\n40,70.5,M,yes\n50,80.0,M,yes\n60,90.0,F,no\n"
B = "ill,sex,weight,age\nyes,M,75,33\nno,F,65,44\nno,F,55,55\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load({file: text or bytes}, **keys): the federation of these files, one client each, label `ill`."""

    def make(files: dict[str, str | bytes], **keys: Any) -> Federation:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (tmp_path / name).write_bytes(data)
        paths = {name.partition(".")[0]: name for name in files}
        spec = {"source": "csv", "paths": paths, "label": "ill", "split": {"validation": 0, "test": 0.25}} | keys
        if "path" in keys:
            del spec["paths"]
        return load_federation(spec, seed=1, base=tmp_path)

    return make


def rows(fed: Federation, client: str) -> list[dict[str, float]]:
    """The rows of a client, by column name, numbers as in the file."""
    at = (fed.owner() == fed.clients.index(client)).nonzero().flatten()
    assert fed.table is not None
    s = fed.table.federated
    x = fed.x[at].double()
    n = len(fed.table.numeric)
    x[:, :n] = x[:, :n] * torch.tensor(s.scale).double() + torch.tensor(s.mean).double()
    return [dict(zip(fed.columns, [round(v, 3) for v in r], strict=True)) for r in x.tolist()]


def test_columns_are_aligned_by_name_and_labels_have_one_map(load: Load) -> None:
    fed = load({"a.csv": A, "b.csv": B})
    assert fed.clients == ("a", "b")
    assert fed.labels == ("no", "yes")
    assert fed.columns == ("age", "weight", "sex")
    assert rows(fed, "b")[0] == {"age": 33, "weight": 75, "sex": 1}
    assert rows(fed, "a")[3] == {"age": 60, "weight": 90, "sex": 0}
    assert fed.y.tolist() == [0, 1, 1, 0, 1, 0, 0]


def test_the_order_of_listing_files_changes_nothing(load: Load, tmp_path: Path) -> None:
    one = load({"a.csv": A, "b.csv": B})
    other = load({"b.csv": B, "a.csv": A})
    assert torch.equal(one.x, other.x)
    assert one.columns == other.columns
    assert all(torch.equal(p, q) for p, q in zip(one.test, other.test, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        "﻿age,weight,sex,ill\n30,60.5,F,no\n40,70.5,M,yes\n".encode(),
        b"age;weight;sex;ill\n30;60,5;F;no\n40;70,5;M;yes\n",
        b"age\tweight\tsex\till\r\n30\t60.5\tF\tno\r\n40\t70.5\tM\tyes\r\n",
        b"age|weight|sex|ill\n30|60.5|F|no\n40|70.5|M|yes\n",
        b'age,weight,sex,ill\n" 30 ","60.5",F ,no\n40,70.5, M,yes\n\n',
        "age,weight,sex,ill\n30,60.5,F,no\n40,70.5,M,yes\n".encode("utf-16"),
        gzip.compress(b"age,weight,sex,ill\n30,60.5,F,no\n40,70.5,M,yes\n"),
    ],
    ids=["byte order mark", "semicolon, decimal comma", "tab, CRLF", "bar", "quotes, blanks", "utf-16", "gzip"],
)
def test_every_dialect_reads_the_same(load: Load, content: bytes) -> None:
    fed = load({"a.csv": content, "b.csv": B})
    assert fed.clients == ("a", "b")
    assert rows(fed, "a") == [{"age": 30, "weight": 60.5, "sex": 0}, {"age": 40, "weight": 70.5, "sex": 1}]


def test_chinese_names_and_gb18030(load: Load) -> None:
    text = "年龄,性别,编号,ill\n" + "".join(f"{30 + i},{'男女'[i % 2]},{i + 1},{'是否'[i % 2]}\n" for i in range(30))
    fed = load({"北京.csv": text})
    assert fed.columns == ("年龄", "性别")
    assert fed.labels == ("否", "是")
    assert any("编号 looks like an identifier" in n for n in fed.notes)
    with pytest.raises(InputError, match=r"a\.csv \(client a\): is not utf-8 text; say `encoding: gb18030`"):
        load({"a.csv": text.encode("gb18030")})
    assert load({"a.csv": text.encode("gb18030")}, encoding="gb18030").columns == fed.columns
    both = load({"a.csv": text.encode("gb18030"), "b.csv": text}, encoding="gb18030")
    assert (both.columns, both.labels) == (fed.columns, fed.labels)  # what is UTF-8 is read as UTF-8


def test_an_encoding_without_bytes_beyond_ascii_is_taken_at_its_word(load: Load) -> None:
    text = "age,sex,ill\n30,男,no\n40,女,yes\n"
    for encoding in ("utf-16-le", "iso2022_jp"):
        fed = load({"a.csv": text.encode(encoding)}, encoding=encoding)
        assert fed.table is not None
        assert fed.table.categorical == {"sex": ("女", "男")}


def test_clients_of_one_row_each_are_asked_about(load: Load) -> None:
    def notes(rows: dict[str, int]) -> list[str]:
        lines = [f"{c},{i % 3},{'yn'[i % 2]}" for i, c in enumerate(c for c, n in rows.items() for _ in range(n))]
        fed = load({"a.csv": "patient,v,ill\n" + "\n".join(lines)}, path="a.csv", client="patient")
        return [n for n in fed.notes if "of a single row" in n]

    (note,) = notes({f"p{i}": 1 + (i < 5) for i in range(25)})
    for word in ("federation.client: 'patient' makes 25 clients, 20 of them", "is it the id of a patient"):
        assert word in note
    assert not notes({f"p{i}": 1 for i in range(20)})
    assert not notes({f"p{i}": 1 + i % 2 for i in range(30)})


def test_missing_values_are_filled_from_training_rows_and_flagged(load: Load) -> None:
    ages, sexes = ["10", "?", "NA", "20", "60", "nan", "-9", "30"] * 3, ["F", "M", "M", "", "M", "M", "F", "M"] * 3
    text = "age,sex,ill\n" + "".join(f"{ages[i]},{sexes[i]},{'yn'[i % 2]}\n" for i in range(24))
    fed = load({"a.csv": text}, missing=[-9])
    assert fed.table is not None
    assert fed.columns == ("age", "age missing", "sex missing", "sex")
    found, given = rows(fed, "a"), text.splitlines()[1:]
    raw = [line.split(",") for line in given]
    train = [r for i, r in enumerate(raw) if i in fed.train[0].tolist()]
    known = [float(r[0]) for r in train if r[0].isdigit()]
    median = float(np.median(known))
    assert fed.table.federated.fill == (median,)
    assert fed.table.federated.mean[0] == pytest.approx(np.mean(known))
    assert fed.table.federated.scale[0] == pytest.approx(np.std(known))
    assert fed.table.federated.common == ("M",)
    for r, f in zip(raw, found, strict=True):
        assert f["age missing"] == (not r[0].isdigit())
        assert f["age"] == pytest.approx(float(r[0]) if r[0].isdigit() else median, abs=1e-3)
        assert f["sex missing"] == (r[1] == "")
        assert f["sex"] == ["F", "M"].index(r[1] or "M")


def test_statistics_see_training_rows_only(load: Load) -> None:
    """A held-out row may hold anything: no statistic and no other row's encoding changes."""
    lines = [f"{i},{'uv'[i % 2]},{'yn'[i % 2]}" for i in (7, 3, 9, 12, 5, 1, 8, 2)]
    fed = load({"a.csv": "age,sex,ill\n" + "\n".join(lines)})
    held = fed.test[0].tolist()
    changed = [f"99999,z,{'yn'[i % 2]}" if k in held else lines[k] for k, i in enumerate((7, 3, 9, 12, 5, 1, 8, 2))]
    other = load({"a.csv": "age,sex,ill\n" + "\n".join(changed)})
    assert other.table == fed.table
    assert torch.equal(other.x[other.train[0]], fed.x[fed.train[0]])
    sex = fed.columns.index("sex")
    assert other.x[held, sex].tolist() == [2.0] * len(held)  # unseen: a code of its own
    assert fed.table is not None
    assert fed.table.cardinalities == (3,)


def test_client_statistics_and_a_query_that_belongs_to_nobody(load: Load) -> None:
    low = "age,ill\n" + "".join(f"{v},{'yn'[v % 2]}\n" for v in range(8))
    high = "age,ill\n" + "".join(f"{v + 100},{'yn'[v % 2]}\n" for v in range(8)) + "?,y\n"
    fed = load({"high.csv": high, "low.csv": low}, statistics="client")
    for i in range(2):
        known = fed.x[fed.train[i]][:, 0][fed.x[fed.train[i]][:, 1] == 0]
        assert float(known.mean()) == pytest.approx(0, abs=1e-5)
        assert float(known.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert any("each client alone" in n for n in fed.notes)
    s = fed.table
    assert s is not None
    anybody, at_low = s.encode([{"age": 50.0}]), s.encode([{"age": 50.0}], "low")
    assert float(anybody[0, 0]) == pytest.approx((50 - s.federated.mean[0]) / s.federated.scale[0], rel=1e-5)
    assert float(at_low[0, 0]) > float(anybody[0, 0])
    with pytest.raises(InputError, match="no statistics of its own; did you mean 'low'"):
        s.encode([{"age": 50.0}], "lo")


def test_a_query_is_encoded_as_the_training_rows_were(load: Load) -> None:
    fed = load({"a.csv": A.replace("60.5", "?"), "b.csv": B})
    assert fed.table is not None
    again = TableSchema.model_validate_json(fed.table.model_dump_json())
    assert again == fed.table
    query = [{"age": 30, "weight": None, "sex": "F"}, {"age": "40", "weight": 70.5, "sex": "M", "extra": 1}]
    assert torch.allclose(again.encode(query), fed.x[:2])
    columns = {"sex": ["F", "M"], "weight": [math.nan, 70.5], "age": [30, 40]}
    assert torch.allclose(again.encode(columns), fed.x[:2])
    with pytest.raises(InputError, match="column 'weight' is not there; did you mean 'weigth'"):
        again.encode([{"age": 1, "weigth": 2, "sex": "F"}])
    with pytest.raises(InputError, match="'tall' is not a number"):
        again.encode([{"age": "tall", "weight": 2, "sex": "F"}])
    assert again.encode([{"age": 1, "weight": 2, "sex": "?!"}])[0, -1] == 2  # an unseen name


@pytest.mark.parametrize("missing", [[-9], {"v": [-9]}])
def test_a_query_means_missing_by_the_same_marks(load: Load, missing: Any) -> None:
    text = "v,c,ill\n" + "".join(f"{v},{c},{y}\n" for v, c, y in [(1, "p", 0), (-9, "p", 1), (3, "q", 0), (2, "?", 1)])
    schema = load({"a.csv": text}, missing=missing, split={"validation": 0, "test": 0}).table
    assert schema is not None
    assert schema.columns == ("v", "v missing", "c missing", "c")
    gone = schema.encode([{"v": v, "c": "p"} for v in (-9, "-9.0", None, math.nan, "NA", " ? ")])
    assert torch.equal(gone, gone[:1].expand(6, 4))
    for endless in (math.inf, 1e300):
        with pytest.raises(InputError, match=r"column 'v', row 0: .* is beyond 1e\+30, no finite number"):
            schema.encode([{"v": endless, "c": "p"}])
    assert gone[0, 1] == 1
    assert schema.encode([{"v": 1, "c": c} for c in ("?", None, "", math.nan)])[:, 2].tolist() == [1] * 4
    assert TableSchema.model_validate_json(schema.model_dump_json()) == schema


@settings(max_examples=100, deadline=None)
@example([(0.0, "a"), (1e6, None), (1e-310, "b")])  # a spread so small that 1e6 is beyond float32
@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-1e6, 1e6)), st.one_of(st.none(), st.sampled_from("abcd"))),
        min_size=1,
        max_size=40,
    )
)
def test_encoding_is_finite_in_range_and_survives_json(cells: list[tuple[float | None, str | None]]) -> None:
    numbers, names = zip(*cells, strict=True)
    table = pa.table({"n": pa.array(numbers, pa.float64()), "c": pa.array(names, pa.string())})
    schema = TableSchema.fit(table, torch.arange(0, len(cells), 2))
    x = schema.encode(table)
    assert x.shape == (len(cells), len(schema.columns))
    assert bool(torch.isfinite(x).all())
    assert 0 <= float(x[:, -1].min()) <= float(x[:, -1].max()) < schema.cardinalities[0]
    rows_ = [{"n": n, "c": c} for n, c in cells]
    assert torch.equal(TableSchema.model_validate_json(schema.model_dump_json()).encode(rows_), x)


def test_a_column_that_one_client_lacks(load: Load) -> None:
    b = B.replace("weight", "Weigth")
    with pytest.raises(InputError) as e:
        load({"a.csv": A, "b.csv": b})
    for word in ("b.csv", "client b", "'weight'", "did you mean 'Weigth'", "missing_columns: fill", "drop: [weight]"):
        assert word in str(e.value)
    fed = load({"a.csv": A, "b.csv": b}, missing_columns="fill", drop=["Weigth"])
    assert "column weight is missing at b: filled" in fed.notes
    assert [r["weight missing"] for r in rows(fed, "b")] == [1, 1, 1]
    assert fed.table is not None
    assert {r["weight"] for r in rows(fed, "b")} == {round(fed.table.federated.fill[1], 3)}
    assert load({"a.csv": A, "b.csv": b}, drop=["weight", "Weigth"]).columns == ("age", "sex")


WRONG: list[tuple[dict[str, str | bytes], dict[str, Any], list[str]]] = [
    ({"a.csv": A.replace("ill", "Ill")}, {}, ["a.csv", "'ill'", "federation.label", "did you mean 'Ill'"]),
    ({"a.csv": A, "b.csv": b""}, {}, ["b.csv", "is empty"]),
    ({"a.csv": A, "b.csv": "age,weight,sex,ill\n"}, {}, ["b.csv", "no rows"]),
    ({"a.csv": A, "b.csv": "age,weight,sex,ill"}, {}, ["b.csv", "column names and no rows"]),
    ({"a.csv": '"' + A}, {}, ["a.csv", "a quote is opened and never closed"]),
    ({"a.csv": A + "70,85\n"}, {}, ["a.csv", "line 6", "2 cells"]),
    ({"a.csv": A.replace("70.5", "heavy")}, {}, ["a.csv", "row 2", "'weight'", "'heavy'", "missing: {weight: [heavy]}",
                                                "categorical: [weight]"]),
    ({"a.csv": A.replace("sex", "age")}, {}, ["a.csv", "two columns are called 'age'"]),
    ({"a.csv": "1,2,3\n4,5,6\n"}, {}, ["a.csv", "looks like data", "columns: [a, b, ...]"]),
    ({"a.csv": "1,2,3\n4,5,6\n"}, {"columns": ["p", "ill"]}, ["3 columns", "names 2"]),
    ({"a.csv": A}, {"features": ["agee"]}, ["'agee'", "federation.features", "did you mean 'age'"]),
    ({"a.csv": A}, {"drop": ["Age"]}, ["'Age'", "federation.drop", "did you mean 'age'"]),
    ({"a.csv": A}, {"missing": {"wait": [0]}}, ["'wait'", "federation.missing"]),
    ({"a.csv": A}, {"features": ["ill"]}, ["no feature column is left"]),
    ({"a.csv": A}, {"positive": ">0"}, ["'no'", "is not a number"]),
    ({"a.csv": A}, {"positive": "big"}, ["federation.positive", "is no comparison"]),
    ({"a.csv": A}, {"positive": ["maybe"]}, ["no label 'maybe'", "no, yes"]),
    ({"a.csv": A}, {"label_names": {"yes": "ill"}}, ["a.csv", "row 1", "label 'no'", "label_names"]),
    ({"a.csv": A}, {"split": {"by": "time"}}, ["name the time column"]),
    ({"a.csv": A}, {"time": "sex"}, ["a.csv", "row 1", "'F'", "is no time"]),
    ({"a.csv": A}, {"encoding": "klingon"}, ["federation.encoding"]),
    ({"a.csv": A}, {"label": "weight", "bands": [3, 1]}, ["federation.bands", "ascending"]),
    ({"a.csv": A}, {"partition": {"method": "iid"}}, ["have clients already"]),
    ({"a.csv": A}, {"paths": {"a": "A.csv"}}, ["federation.paths.a", "A.csv", "did you mean 'a.csv'"]),
    ({"a.csv": A}, {"path": "a.csv"}, ["whose row is whose"]),
    ({"a.csv": A}, {"path": "a.csv", "client": "hospital"}, ["a.csv", "no column 'hospital'", "federation.client"]),
    ({"a.csv": A}, {"path": "*.parquet"}, ["no file matches"]),
    ({"a.csv": A}, {"path": "$NOWHERE_AT_ALL/a.csv"}, ["NOWHERE_AT_ALL", "not set"]),
    ({"a.csv": A}, {"shift": {"method": "noise"}}, ["needs images"]),
    ({"a.csv": gzip.compress(A.encode())[:-9]}, {}, ["a.csv", "cannot be read"]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "keys", "words"), WRONG, ids=[" ".join(w[2]) for w in WRONG])
def test_what_is_wrong_is_said_with_file_column_and_mend(
    load: Load, files: dict[str, str | bytes], keys: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InputError) as e:
        load(files, **keys)
    for word in words:
        assert word in str(e.value)


def test_rows_without_a_label_client_or_time_are_left_out_and_counted(load: Load) -> None:
    text = "h,when,v,ill\na,2024-01-01,1,yes\na,2024-01-02,2,\n,2024-01-03,3,no\nb,?,4,no\n"
    fed = load({"all.csv": text + "b,2024-01-05,5,no\nc,2024-02-01,6,?\n"}, path="all.csv", client="h", time="when")
    assert fed.clients == ("a", "b")
    assert fed.y.tolist() == [1, 0]
    said = " ".join(fed.notes)
    for word in ("2 rows without ill", "1 row without h", "1 row without when", "left out: c"):
        assert word in said
    assert fed.time is not None
    assert fed.time.tolist() == [1704067200.0, 1704412800.0]


TIMES = [
    ("2024-03", "2023-12"),
    ("05.02.2024", "04.03.2023"),
    ("2024/02/05", "2023/03/04"),
    ("20240205", "20230304"),
    ("2024-02-05 10:30:00", "2024-02-05 10:29:59"),
    ("2024/02/05 10:30:00", "2024/02/05 10:29:59"),
    ("2024-02-05T10:30:00Z", "2024-02-05T10:29:59Z"),
    ("2024-02-05T10:30:00+01:00", "2024-02-05T10:30:00+02:00"),
]


@pytest.mark.parametrize("times", TIMES)
def test_times_in_usual_forms_are_ordered(load: Load, times: tuple[str, str]) -> None:
    fed = load({"a.csv": f"t,v,ill\n{times[0]},1,y\n{times[1]},2,n\n"}, time="t")
    assert fed.time is not None
    assert float(fed.time[0]) > float(fed.time[1])


def test_identifiers_and_dates_are_not_used_unless_named(load: Load) -> None:
    text = "patient_id,seen,word,v,ill\n" + "".join(
        f"{500 + 7 * i},2024-01-{i + 1:02},w{i},{i % 5},{'yn'[i % 2]}\n" for i in range(30)
    )
    fed = load({"a.csv": text})
    assert fed.columns == ("v",)
    assert sum("looks like an identifier" in n for n in fed.notes) == 2
    assert load({"a.csv": text}, features=["patient_id", "v"]).columns == ("patient_id", "v")


@pytest.mark.parametrize(
    "spelt",
    ["{0:%Y-%m-%d}", "{0:%Y-%m-%d %H:%M:%S}", "{0:%Y-%m-%dT%H:%M:%SZ}", "{0:%Y/%m/%d}", "{0:%d.%m.%Y %H:%M}"],
)
def test_a_column_of_dates_is_called_that_and_the_mend_mends(load: Load, spelt: str) -> None:
    """Each of them another day: as an identifier would be."""
    first = datetime.datetime(2024, 1, 1, 8, 30)

    def written(odd: str = "") -> str:
        days = [spelt.format(first + i * datetime.timedelta(days=3)) for i in range(40)]
        return "seen,v,ill\n" + "".join(
            f"{odd if odd and i > 30 else d},{i % 5},{'yn'[i % 2]}\n" for i, d in enumerate(days)
        )

    fed = load({"a.csv": written()})
    (note,) = [n for n in fed.notes if "seen" in n]
    assert note == "column seen holds dates: not used (`time: seen` if it is the time of a row, else `drop: [seen]`)"
    assert date_columns(fed) == ("seen",)
    assert load({"a.csv": written()}, time="seen").time is not None
    assert not [n for n in load({"a.csv": written()}, drop=["seen"]).notes if "seen" in n]
    names = "seen,v,ill\n" + "".join(f"visit {i},{i % 5},{'yn'[i % 2]}\n" for i in range(40))
    assert any("seen looks like an identifier" in n for n in load({"a.csv": names}).notes)


def test_codes_with_zeros_in_front_are_names_and_declared_numbers_too(load: Load) -> None:
    text = "zip,cp,ill\n" + "".join(f"0{i % 3}85,{['1', '1.0', '2'][i % 3]},{'yn'[i % 2]}\n" for i in range(12))
    fed = load({"a.csv": text}, categorical=["cp"])
    assert fed.table is not None
    assert fed.table.categorical == {"zip": ("0085", "0185", "0285"), "cp": ("1", "2")}


def test_labels_by_comparison_by_list_by_bands_and_as_numbers(load: Load) -> None:
    text = "v,ill\n" + "".join(f"{i},{y}\n" for i, y in enumerate(["0", "1", "2.0", "4", "?", "3"]))
    more = load({"a.csv": text}, positive=">0")
    assert (more.labels, more.y.tolist()) == (("ill <= 0", "ill > 0"), [0, 1, 1, 1, 1])
    named = load({"a.csv": text}, positive=">=2", label_names=["well", "sick"])
    assert (named.labels, named.y.tolist()) == (("well", "sick"), [0, 0, 1, 1, 1])
    some = load({"a.csv": text}, positive=[2, 3])
    assert (some.labels, some.y.tolist()) == (("other", "2 or 3"), [0, 0, 1, 0, 1])
    bands = load({"a.csv": text}, bands=[0, 2.5])
    assert (bands.labels, bands.y.tolist()) == (("to 0", "0 to 2.5", "over 2.5"), [0, 1, 1, 2, 2])
    number = load({"a.csv": text}, label_as="number")
    assert (number.labels, number.y.tolist()) == ((), [0.0, 1.0, 2.0, 4.0, 3.0])
    assert load({"a.csv": text}).labels == ("0", "1", "2", "3", "4")
    many = "v,ill\n" + "".join(f"{i % 3},{i * 0.37:.3f}\n" for i in range(100))
    with pytest.raises(InputError, match="too many for classes; say `label_as: number`"):
        load({"a.csv": many})


def test_labels_that_no_two_clients_share_are_one_map(load: Load) -> None:
    fed = load({"a.csv": "v,ill\n1,dog\n2,cat\n", "b.csv": "v,ill\n1,fox\n2,eel\n"})
    assert fed.labels == ("cat", "dog", "eel", "fox")
    assert [fed.labels[k] for k in fed.y.tolist()] == ["dog", "cat", "fox", "eel"]


def test_numbers_in_one_file_and_text_in_another(load: Load) -> None:
    fed = load({"a.csv": "v,ill\n1.0,1\n2.5,0\n", "b.csv": "v,ill\n3,1.0\n?,0.0\n"})
    assert fed.labels == ("0", "1")
    assert [r["v"] for r in rows(fed, "a")] == [1, 2.5]
    with pytest.raises(InputError, match=r"b\.csv \(client b\), row 1: column 'v' holds numbers and 1 other"):
        load({"a.csv": "v,ill\n1.0,1\n2.5,0\n", "b.csv": "v,ill\nbig,1.0\n3,0.0\n"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"age,sex,ill\n30,F,no\n3\x009,M,yes\n", r"a\.csv \(client a\), row 2: column 'age' has a zero byte in it"),
        (b"age,sex,ill\n30,F,no\n31,F\x00\x00M,yes\n", "row 2: column 'sex' has a zero byte"),
        (b"a\x00ge,sex,ill\n30,F,no\n31,M,yes\n", "the name of a column has a zero byte in it"),
    ],
)
def test_a_zero_byte_within_a_value_is_no_value(load: Load, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load({"a.csv": content, "b.csv": B})


@pytest.mark.parametrize(
    "content",
    [
        b"age,weight,sex,ill\n30\x00\x00,60.5,F\x00,no\n40,\x0070.5,M,yes\n\x00\x00\x00\x00",
        "age,weight,sex,ill\n30,60.5,F,no\n40,70.5,M,yes\n".encode("utf-16-le"),  # without its mark
    ],
)
def test_zero_bytes_that_only_fill_up_are_nothing(load: Load, content: bytes) -> None:
    fed = load({"a.csv": content, "b.csv": B})
    assert rows(fed, "a") == [{"age": 30, "weight": 60.5, "sex": 0}, {"age": 40, "weight": 70.5, "sex": 1}]


def test_files_of_the_current_folder_have_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {"a": A, "b": B}.items():
        (tmp_path / f"{name}.csv").write_text(content)
    monkeypatch.chdir(tmp_path)
    spec = {"source": "csv", "label": "ill", "paths": {"a": "a.csv", "b": "b.csv"}}
    assert load_federation(spec, base=Path()).name == load_federation(spec, base=tmp_path).name == tmp_path.name
