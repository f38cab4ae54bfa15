"""fedroute profile."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Fedroute

TABLE = """\
federation: {source: csv, path: rows.csv, client: site, label: ill}
"""


def test_profile_of_a_file_as_json(fedroute: Fedroute, tmp_path: Path) -> None:
    lines = [f"{'abc'[i % 3]},{i % 7}.5,{(i * 31) % 11},{('yes', 'no')[i * i % 5 < 2]}" for i in range(120)]
    (tmp_path / "rows.csv").write_text("site,age,dose,ill\n" + "\n".join(lines))
    (tmp_path / "f.yaml").write_text(TABLE)
    said = fedroute("profile", tmp_path / "f.yaml", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert [c["name"] for c in found["clients"]] == ["a", "b", "c"]
    assert {"clients", "skew", "leaks"} <= set(found)


def test_profile_in_words_with_a_page(fedroute: Fedroute, tmp_path: Path) -> None:
    said = fedroute("profile", "bundled:digits", "--out", tmp_path, "--lang", "zh")
    assert said.code == 0
    assert "客户端的差别首先在于特征" in said.out
    assert str(tmp_path / "profile.html") in said.err
    assert (tmp_path / "profile.html").exists()


def test_wrong_input_is_said(fedroute: Fedroute) -> None:
    said = fedroute("profile", "nowhere.yaml")
    assert said.code == 2
    assert "nowhere.yaml: cannot be read" in said.err
    assert fedroute("profile", "bundled:digits", "--lang", "de").code == 2


def test_what_loading_did_is_said_on_stderr(fedroute: Fedroute, tmp_path: Path) -> None:
    """A column left out is no secret of --json."""
    rows = "site,id,x,y\n" + "".join(f"{c},{c}{i},{i % 7},{i % 2}\n" for i in range(60) for c in ("a", "b"))
    (tmp_path / "d.csv").write_text(rows)
    (tmp_path / "c.yaml").write_text("federation: {source: csv, path: d.csv, client: site, label: y}\n")
    said = fedroute("profile", str(tmp_path / "c.yaml"), "--json")
    assert said.code == 0, said.err
    assert "data: " in said.err
    assert json.loads(said.out)["notes"]


@pytest.mark.parametrize("command", ["profile", "advise"])
def test_a_page_that_cannot_be_written_is_said_before_the_work(
    fedroute: Fedroute, tmp_path: Path, command: str
) -> None:
    (tmp_path / "blocker").touch()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "locked").symlink_to(tmp_path / "locked")  # leads nowhere
    for out, why in {
        "blocker/x.html": "blocker is a file", "blocker": "blocker is a file", "folder.html": "it is a folder",
        "locked": "cannot be used",
    }.items():  # fmt: skip
        said = fedroute(command, "bundled:digits", "--out", tmp_path / out)
        assert said.code == 2, (out, said.err)
        assert why in said.err.splitlines()[-1], said.err
        assert "name another" in said.err.splitlines()[-1]
        assert "Traceback" not in said.err
        assert why == "cannot be used" or not said.out
