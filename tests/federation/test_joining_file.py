"""The file with which a site joins: what cannot say where the data lie is refused, and no table is to be written to."""

from pathlib import Path
from typing import Any

import pytest

from fedroute.errors import InputError
from fedroute.federation.site_spec import joining_spec
from fedroute.words import then

CSV = "age,ill\n31,1\n44,0\n"
LINE = "write in it where the data lie: `path: visits.csv`"


def refused(path: Path, content: bytes, federation: dict[str, Any] | None = None) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as e:
        joining_spec(path, federation or {"source": "csv"})
    assert str(e.value).startswith(f"{path}: ")
    return str(e.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("alpha.csv", CSV.encode()),
        ("alpha.csv", b'"age","ill"\n31,1\n'),
        ("alpha.csv", b"@age\tname: ill\n"),
        ("alpha.parquet", b"PAR1\x15\x04\xff\xfe\x00PAR1"),
        ("alpha", "größe;ja\n".encode("latin-1")),
        ("alpha.csv", b"- 1\n- 2\n"),
    ],
)
def test_the_table_itself(name: str, content: bytes, tmp_path: Path) -> None:
    words = refused(tmp_path / name, content)
    assert words == f"this is the table itself, or no YAML; write a YAML file that names it: `path: {name}`"


def test_a_folder_of_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"is a folder; write a YAML file that names it: `path: {tmp_path.name}`"):
        joining_spec(tmp_path, {"source": "images"})
    with pytest.raises(InputError, match="not there: write a file"):
        joining_spec(tmp_path / "none.yaml", {"source": "images"})


@pytest.mark.parametrize("content", ["", "\n", "# path: visits.csv\n", "{}"])
def test_a_file_that_says_nothing(content: str, tmp_path: Path) -> None:
    words = refused(tmp_path / "alpha.yaml", content.encode())
    assert words.endswith(LINE)


def test_what_a_yaml_file_says_wrongly(tmp_path: Path) -> None:
    path = tmp_path / "alpha.yaml"
    assert refused(path, b"visits.csv\n") == f"says nothing that is a key and its value; {LINE}"
    assert refused(path, b"path: [a\n").startswith("is not YAML: ")
    assert refused(path, "path: größe.csv\n".encode("latin-1")) == "is not UTF-8 text: save it as UTF-8"
    assert refused(path, b"pathh: a.csv").startswith("pathh: no such key; did you mean 'path'? There is source, path,")
    assert refused(path, b"wrong: a.csv").startswith("wrong: no such key; there is source, path,")
    assert refused(path, b"drop: [a]") == f"does not say where the data lie; {LINE}"


def test_what_a_site_can_join_with(tmp_path: Path) -> None:
    path = tmp_path / "alpha.yaml"
    path.write_text("path: not-there-yet.csv\n")
    assert joining_spec(path, {"source": "csv"}).path == "not-there-yet.csv"
    path.write_text("name: digits\n")
    assert joining_spec(path, {"source": "bundled"}).name == "digits"


def test_two_parts_of_a_message() -> None:
    assert then("no column 'a'; did you mean 'b'?", "or rename it") == "no column 'a'; did you mean 'b'? Or rename it"
    assert then("no column 'a'", "or rename it") == "no column 'a'; or rename it"
