"""A column with a fault, as its own site is told of it: file, row, value, and in which file what is to be written."""

from pathlib import Path
from typing import Any

import pytest

from fedroute.data.rows import MISSING
from fedroute.errors import InputError
from fedroute.federation.check import check_data
from fedroute.federation.own_columns import seen_here
from fedroute.federation.site_standing import SiteStanding, words_on
from tests.federation.whole import Whole, config, rows_of, write_table

SPEC: dict[str, Any] = {"source": "csv", "label": "illness"}


def with_word(path: Path, word: str, client: str = "east") -> Path:
    rows = rows_of(client, 60)
    rows[7][0] = word
    write_table(path, rows)
    return path


def refused(data: Path, spec: dict[str, Any] = SPEC) -> list[str]:
    return [f.text for f in check_data(data, spec, "east") if f.level == "refused"]


def test_the_dry_run_names_file_row_value_and_where_the_mend_goes(tmp_path: Path) -> None:
    table, data = with_word(tmp_path / "east.csv", "lots"), tmp_path / "east.yaml"
    data.write_text("path: east.csv\n")
    (words,) = refused(data)
    assert words.startswith(f"{table}, row 8: column 'age' holds numbers and 1 other value such as 'lots': mend it")
    assert f"`missing: {{age: [lots]}}` in {data};" in words
    assert "let the hub's config say `categorical: [age]` below `federation:`" in words
    assert "..." not in words
    data.write_text("path: east.csv\nmissing: {age: [lots]}\n")  # as was said
    assert refused(data) == []
    data.write_text("path: east.csv\n")
    assert refused(data, SPEC | {"categorical": ["age"]}) == []


def test_numbers_with_something_beside_them(tmp_path: Path) -> None:
    rows = [[f"{i}.5 mg", *r[1:]] for i, r in enumerate(rows_of("east", 60))]
    write_table(tmp_path / "east.csv", rows)
    (tmp_path / "east.yaml").write_text("path: east.csv\n")
    (words,) = refused(tmp_path / "east.yaml")
    assert words.startswith(f"{tmp_path / 'east.csv'}, row 1: column 'age' holds numbers with something beside them, ")
    assert "'0.5 mg': write the number alone" in words
    assert "let the hub's config say `drop: [age]` below `federation:`" in words


def test_every_fault_is_told() -> None:
    own = {"age": "east.csv, row 8: column 'age' holds ... such as 'lots'"}
    others = "east: no column 'ward'\neast: column 'pulse' holds float, which is no feature"
    assert seen_here(f"east: column 'age' holds numbers and 1 other value\n{others}", own) == f"{own['age']}\n{others}"


def test_the_site_logs_what_the_hub_is_not_told(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    table = with_word(tmp_path / "east.csv", "lots")
    with pytest.raises(
        InputError, match="east: column 'age' holds numbers and 1 other value; `fedroute site check`"
    ) as e:
        whole.hub(config()).run()
    told = "\n".join([str(e.value), *whole.said])
    assert "lots" not in told
    assert str(table) not in told
    (line,) = [text for text in whole.heard["east"] if "lots" in text]
    assert f"{table}, row 8: column 'age'" in line
    assert whole.sites["east"].odd in line
    assert not whole.sites["north"].odd
    with_word(table, MISSING[2])
    whole.restart("east")
    assert whole.hub(config(rounds=1)).run()
    assert not whole.sites["east"].odd


def test_status_says_it_once_the_run_cannot_go_on() -> None:
    kept: dict[str, Any] = {}
    standing = SiteStanding(lambda **now: kept.update(now))
    standing.called("", "east.csv, row 8: 'lots'")
    assert "lots" not in "\n".join(words_on(kept | {"asked": False}))  # others may make it a column of names
    standing._called = -9.0
    standing.heard({"phase": "failed", "words": "the data do not fit"}, 0.0)
    assert "east.csv, row 8: 'lots'" in words_on(kept | {"asked": False})[-1]
