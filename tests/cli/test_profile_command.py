"""fedroute profile."""

import json
from pathlib import Path

import pytest

from fedroute.advise.job import advise_job
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


# what is given in the place of a config

CONFIG_OF_A_HUB = "federation: {source: csv, label: ill}\nmodel: {name: mlp}\nalgorithm: fedavg\nhub: {sites: [a, b]}\n"


@pytest.mark.parametrize("command", [("profile",), ("advise",), ("manifest",), ("tune", "--out", "study")])
def test_the_config_of_a_hub_is_told_from_one_with_rows(
    fedroute: Fedroute, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hub.yaml").write_text(CONFIG_OF_A_HUB)
    said = fedroute(command[0], "hub.yaml", *command[1:])
    assert said.code == 2
    assert said.err.startswith("fedroute: hub.yaml: federation: gives neither `path`")
    assert "each site's DATA.yaml says where its rows lie: for rows that are here write a config with" in said.err
    assert "not both" not in said.err
    Path("hub.yaml").write_text("federation: {source: images, path: each site's own}\nmodel: cnn\nalgorithm: fedavg\n")
    assert "each site's DATA.yaml" in fedroute(command[0], "hub.yaml", *command[1:]).err


@pytest.mark.parametrize("command", ["profile", "advise", "manifest"])
def test_of_a_folder_it_is_said_what_to_give(fedroute: Fedroute, tmp_path: Path, command: str) -> None:
    def told(folder: Path) -> str:
        said = fedroute(command, folder)
        assert said.code == 2
        assert said.err.startswith(f"fedroute: {folder}: is a folder")
        return said.err

    run, hub, data, pictures, empty = (tmp_path / n for n in ("run", "hub", "data", "pictures", "empty"))
    for folder in (run, hub, data, pictures, empty):
        folder.mkdir()
    (run / "config.yaml").write_text(TABLE)
    (run / "broken.yaml").write_text("a: [")
    assert f"such as {run / 'config.yaml'}" in told(run)
    (hub / "federation.yaml").write_text(CONFIG_OF_A_HUB)
    assert "DATA.yaml says where its rows lie" in told(hub)
    (data / "north.csv").write_text("a,b\n")
    assert f"`federation: {{source: csv, paths: {data / '*.csv'}, label: COLUMN}}`" in told(data)
    (pictures / "a" / "cat").mkdir(parents=True)
    (pictures / "a" / "cat" / "1.PNG").touch()
    assert f"`federation: {{source: images, path: {pictures}}}`" in told(pictures)
    assert "give a YAML file or bundled:digits" in told(empty)


@pytest.mark.parametrize("content", [b"site,age,ill\na,1,yes\n", b"\xff\xfe\x00", b"a: [\n"])
def test_of_a_file_of_data_it_is_said_what_to_write(fedroute: Fedroute, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "visits.csv.gz"
    file.write_bytes(content)
    for command in ("profile", "advise"):
        said = fedroute(command, file)
        assert said.code == 2
        assert f"`federation: {{source: csv, path: {file}, client: COLUMN, label: COLUMN}}`" in said.err


# seeds


def test_profile_and_advise_look_by_the_same_seed(fedroute: Fedroute, tmp_path: Path) -> None:
    """That of the file, unless another is asked for; it shows in the splits, and so in the profile."""
    lines = [f"{'abc'[i % 3]},{(i * 37) % 101}.5,{(i * 31) % 11},{('yes', 'no')[i * i % 5 < 2]}" for i in range(240)]
    (tmp_path / "rows.csv").write_text("site,age,dose,ill\n" + "\n".join(lines))
    file = tmp_path / "f.yaml"

    def profiled(*words: str) -> object:
        said = fedroute("profile", file, "--json", *words)
        assert said.code == 0, said.err
        return json.loads(said.out)

    file.write_text(TABLE)
    plain = profiled()
    for model in ("", "model: {name: mlp}\n"):
        file.write_text(TABLE + model + "seed: 7\n")
        assert profiled() == json.loads(json.dumps(advise_job(str(file)).profile))
        assert profiled("--seed", "3") == json.loads(json.dumps(advise_job(str(file), seed=3).profile))
        assert profiled("--seed", "0") == plain != profiled() != profiled("--seed", "3")


@pytest.mark.parametrize("command", ["profile", "advise"])
def test_a_seed_that_is_none_is_said(fedroute: Fedroute, tmp_path: Path, command: str) -> None:
    (tmp_path / "f.yaml").write_text(TABLE + "seed: soon\n")
    said = fedroute(command, tmp_path / "f.yaml")
    assert said.code == 2
    assert "f.yaml: seed: 'soon' is no whole number" in said.err
    assert "seed: -1 is no whole number" in fedroute(command, "bundled:digits", "--seed=-1").err
