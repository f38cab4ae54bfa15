"""CSV files as programs in other countries write them: read right, or refused with file, client, column and mend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.sources.decimals import plain_numbers
from fedroute.errors import InputError

pa = pytest.importorskip("pyarrow")

Load = Callable[..., Federation]
WEIGHTS = [1060.5, 72.25, 3000.0, 81.5, 990.75, 64.0]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def make(files: dict[str, str | bytes], **keys: Any) -> Federation:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        paths = {name.partition(".")[0]: name for name in files}
        spec = {"source": "csv", "paths": paths, "label": "ill", "split": {"validation": 0, "test": 0}} | keys
        return load_federation(spec, seed=1, base=tmp_path)

    return make


def numbers(fed: Federation, column: str) -> list[float]:
    assert fed.table is not None
    j = fed.table.numeric.index(column)
    raw = fed.x[:, j].double() * fed.table.federated.scale[j] + fed.table.federated.mean[j]
    return [round(v, 3) for v in raw.tolist()]


def plain(n: float) -> str:
    return f"{n:.2f}"


def german(n: float) -> str:
    return f"{n:,.2f}".translate(str.maketrans(",.", ".,"))


def english(n: float) -> str:
    return f'"{n:,.2f}"'


def french(n: float) -> str:
    return f"{n:,.2f}".replace(",", "\u202f").replace(".", ",")


def swiss(n: float) -> str:
    return f"{n:,.2f}".replace(",", "’")


def lines(write: Callable[[float], str], sign: str, start: str = "") -> str:
    rows = [sign.join((write(w), "FM"[i % 2], "ny"[i % 2])) for i, w in enumerate(WEIGHTS)]
    return start + sign.join(("weight", "sex", "ill")) + "\n" + "\n".join(rows) + "\n"


DIALECTS = {
    "plain": lines(plain, ","), "german": lines(german, ";"), "english": lines(english, ","),
    "french": lines(french, ";"), "swiss": lines(swiss, ";"), "spreadsheet": lines(german, ";", "sep=;\r\n"),
    "tabs": lines(german, "\t"), "ends in a delimiter": lines(german, ";").replace("\n", ";\n"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
def test_every_country_writes_the_same_numbers(load: Load, dialect: str, mark: str) -> None:
    fed = load({"a.csv": mark + DIALECTS[dialect], "b.csv": DIALECTS["plain"]})
    assert numbers(fed, "weight") == WEIGHTS * 2
    assert fed.columns == ("weight", "sex")


def test_points_between_thousands_are_told_by_the_commas_of_other_columns(load: Load) -> None:
    text = "income;w;ill\n1.200;1,5;y\n33.000;2,5;n\n900;3,25;y\n"
    assert numbers(load({"a.csv": text}), "income") == [1200, 33000, 900]
    assert numbers(load({"a.csv": text.replace(",", ".")}), "income") == [1.2, 33, 900]
    assert numbers(load({"a.csv": text.replace(",", ".")}, decimal=","), "income") == [1200, 33000, 900]


def test_a_comma_that_reads_in_two_ways_is_refused_until_it_is_said(load: Load) -> None:
    text = 'income,ill\n"1,200",y\n"33,000",n\n'
    with pytest.raises(InputError) as e:
        load({"a.csv": text})
    for word in ("a.csv (client a)", "'income'", "'1,200'", 'decimal: "."', 'decimal: ","'):
        assert word in str(e.value)
    assert numbers(load({"a.csv": text}, decimal="."), "income") == [1200, 33000]
    assert numbers(load({"a.csv": text}, decimal=","), "income") == [1.2, 33]


def test_names_with_commas_points_and_blanks_stay_as_they_are(load: Load) -> None:
    text = "word;v;ill\n" + "".join(
        f"{w};{i},5;{'yn'[i % 2]}\n" for i, w in enumerate(["a,b", "1.2.3", "12 345 x"] * 4)
    )
    fed = load({"a.csv": text})
    assert fed.table is not None
    assert fed.table.categorical == {"word": ("1.2.3", "12 345 x", "a,b")}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=20), st.sampled_from([german, english, french, swiss])
)
def test_written_by_any_country_and_read_again(hundredths: list[int], write: Callable[[float], str]) -> None:
    values = [n / 100 for n in [*hundredths, 123456]]
    cells = pa.chunked_array([pa.array([write(v).strip('"') for v in values])])
    sign = "," if write is english else ";"
    found = plain_numbers({"v": cells}, None, sign, "a.csv")["v"]
    assert [float(v) for v in found.to_pylist()] == values


def chinese(order: str) -> str:
    cells = {"年龄": "3{i}", "体重": "6{i}.5", "性别": "男", "患病": "否"}
    names = order.split()
    rows = [[cells[n].format(i=i) for n in names] for i in range(6)]
    for i, row in enumerate(rows):
        row[names.index("患病")] = "否是"[i % 2]
    return "\n".join(",".join(r) for r in [names, *rows]) + "\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_chinese_names_in_any_order_and_encoding(load: Load, encoding: str) -> None:
    one, other = chinese("年龄 体重 性别 患病"), chinese("患病 性别 年龄 体重")
    keys = {"encoding": "gb18030"} if encoding == "gb18030" else {}
    fed = load({"甲医院.csv": one.encode(encoding), "乙医院.csv": other.encode()}, label="患病", **keys)
    assert fed.clients == ("乙医院", "甲医院")
    assert fed.columns == ("年龄", "体重", "性别") or set(fed.columns) == {"年龄", "体重", "性别"}
    assert fed.labels == ("否", "是")
    assert numbers(fed, "年龄") == [30, 31, 32, 33, 34, 35] * 2
    assert torch.equal(fed.x[:6], fed.x[6:])


REFUSED: list[tuple[str, dict[str, str | bytes], dict[str, Any], list[str]]] = [
    ("another encoding", {"甲.csv": chinese("年龄 患病").encode("gbk")}, {"label": "患病"},
     ["甲.csv (client 甲)", "is not utf-8 text", "encoding: gb18030"]),
    ("a label that is not there", {"甲.csv": chinese("年龄 患病")}, {"label": "患病了"},
     ["甲.csv (client 甲)", "no column '患病了' (federation.label)", "did you mean '患病'"]),
    ("a column that one lacks",
     {"甲.csv": chinese("年龄 体重 患病"), "乙.csv": chinese("年龄 患病")}, {"label": "患病"},
     ["乙.csv (client 乙)", "no column '体重'", "甲.csv (client 甲) has", "missing_columns: fill", "drop: [体重]"]),
    ("a word among numbers", {"a.csv": lines(plain, ","), "b.csv": lines(plain, ",").replace("72.25", "schwer")}, {},
     ["b.csv (client b), row 2", "'weight'", "'schwer'", "missing: {weight: [schwer]}", "categorical: [weight]"]),
    ("a mark that YAML would not read", {"a.csv": lines(plain, ",").replace("72.25", "#N/V")}, {},
     ["a.csv (client a), row 2", 'missing: {weight: ["#N/V"]}']),
    ("a unit in the cell", {"a.csv": "v,ill\n" + "".join(f"{60 + i}.5 kg,{'yn'[i % 2]}\n" for i in range(24))}, {},
     ["a.csv (client a), row 1", "'v'", "'60.5 kg'", "write the number alone", "drop: [v]"]),
    ("a time that is two", {"a.csv": "t,v,ill\n01/03/2024,1.5,y\n02/03/2024,2.5,n\n"}, {"time": "t"},
     ["a.csv (client a), row 1", "'01/03/2024'", "'t'", "2024-01-31"]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "keys", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_cannot_be_read_is_refused_with_a_mend(
    load: Load, files: dict[str, str | bytes], keys: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InputError) as e:
        load(files, **keys)
    for word in words:
        assert word in str(e.value)


def test_a_german_date_with_a_time_and_an_identifier_in_chinese(load: Load) -> None:
    rows = "".join(f"{884213 + 77 * i};{i + 1:02}.03.2024 08:30;{i % 5},5;{'yn'[i % 2]}\n" for i in range(24))
    fed = load({"a.csv": "病历号;t;v;ill\n" + rows}, time="t")
    assert fed.columns == ("v",)
    assert any(n.startswith("column 病历号 looks like an identifier") for n in fed.notes)
    assert fed.time is not None
    assert float(fed.time[1] - fed.time[0]) == 86400


def test_a_name_coded_in_two_ways_is_one_name(load: Load) -> None:
    one, other = "\u00e2ge;ill\n1,5;y\n2,5;n\n", "a\u0302ge;ill\n1,5;y\n2,5;n\n"
    assert load({"a.csv": one, "b.csv": other}).columns == ("\u00e2ge",)
