"""What a config means: complete, the same when read again, paths where the file says, values as people write them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedroute import jobs
from fedroute.config import Config, Training, load
from fedroute.errors import InputError
from fedroute.router.spec import RouterSpec
from fedroute.training import fit
from tests.cli.conftest import CONFIG, Fedroute


def test_a_resolved_config_is_complete_and_loads_as_the_same(tmp_path: Path, config: Path) -> None:
    first = load(config)
    resolved = first.resolved()
    assert resolved["training"].keys() == Training.model_fields.keys()
    assert resolved["training"]["server_optimizer"]["name"] == "sgd"
    assert resolved["training"]["schedule"]["name"] == "constant"
    assert resolved["algorithm"] == {"name": "fedprox", "private": [], "mu": 0.1}
    assert resolved["federation"]["split"] == {"validation": 0.15, "test": 0.25, "by": "label"}
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(resolved))
    assert load(again) == first
    assert load(again).resolved() == resolved


@pytest.mark.parametrize(
    "model", ["mlp", "{name: lenet_gn, neck: null}", "{name: cnn, channels: [2, 3]}", "resnet8_bn"]
)
@pytest.mark.parametrize(
    "options",
    ["server_optimizer: adam", "server_optimizer: {name: yogi, eps: 0.01}", "schedule: {name: step, every: 2}"],
)
def test_every_kind_of_part_loads_as_the_same(tmp_path: Path, model: str, options: str) -> None:
    file, again = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text(f"federation: bundled:digits\nmodel: {model}\nalgorithm: scaffold\ntraining: {{{options}}}\n")
    again.write_text(yaml.safe_dump(load(file).resolved()))
    assert load(again) == load(file)


@pytest.mark.parametrize(
    "router",
    ["auto", "lda", "{kind: ridge, input: [deep, columns], random_features: 200, rule: mixture_global}", "{}",
     "{arrival: {client_0: 0.4, client_1: 0.6}, capacity: {client_2: 0.5}, abstain: null, common: false}",
     "{input: 'layer:features.0', arrival: uniform, random_features: 0}"],
)  # fmt: skip
def test_a_router_is_complete_and_loads_as_the_same(tmp_path: Path, router: str) -> None:
    file, again = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text(f"{CONFIG}router: {router}\n")
    resolved = load(file).resolved()
    assert resolved["router"].keys() == RouterSpec.model_fields.keys()
    again.write_text(yaml.safe_dump(resolved))
    assert load(again) == load(file)
    assert load(again).resolved() == resolved


def test_without_the_part_there_is_no_router(config: Path) -> None:
    assert load(config).router is None
    assert load(config, ["router=auto"]).router == RouterSpec()
    assert load(config, ["router.rule=mixture", "router.abstain=0.1"]).router == RouterSpec(rule="mixture", abstain=0.1)
    assert load(config, ["router=ridge", "router.rule=density"]).router == RouterSpec(kind="ridge", rule="density")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arrival": {"a": 0.5, "b": 0.5}}, "router.arrival: the banks has no client 'b'; did you mean"),
        ({"capacity": {"c": 0.5}}, "router.capacity: the banks has no client 'c'; there is a, bank"),
        ({"capacity": {"a": 0.5, "bank": 0.4}}, "router.capacity: all clients together take 0.9 of the queries"),
    ],
)
def test_clients_that_are_not_there_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as e:
        RouterSpec(**options).check_clients(["a", "bank"], "the banks")
    assert words.replace("; did you mean", "") in str(e.value)
    RouterSpec(arrival={"a": 1.0}, capacity={"a": 0.1}).check_clients(["a", "bank"])


def test_numbers_as_people_write_them(config: Path) -> None:
    overrides = ["training.lr=1e-3", "training.weight_decay=5e-04", "training.rounds=7", "training.alone=false"]
    t = load(config, overrides).training
    assert (t.lr, t.weight_decay, t.rounds, t.alone) == (0.001, 0.0005, 7, False)


def test_overrides_reach_into_parts_that_are_not_there_and_names_that_stand_alone(config: Path) -> None:
    config.write_text("federation: bundled:digits\nmodel: mlp\nalgorithm: fedavg\n")
    overrides = [
        "model.hidden=[5]",
        "algorithm.private=[norm, head]",
        "engine.workers=2",
        "seed=9",
        "training.rounds=1",
    ]
    found = load(config, overrides)
    assert found.model["hidden"] == [5]
    assert found.algorithm["private"] == ["norm", "head"]
    assert (found.engine.name, found.engine.workers, found.seed, found.training.rounds) == ("auto", 2, 9, 1)


TABLE = "site,a,b,sick\n" + "".join(
    f"{'ns'[i % 2]},{i % 7},{i % 5},{'yes' if i % 7 > i % 5 else 'no'}\n" for i in range(80)
)
CSV = CONFIG.replace(
    "{source: bundled, name: digits, partition: {method: iid, clients: 3}}",
    "{source: csv, path: %s, client: site, label: sick}",
)


@pytest.mark.parametrize("path", ["data/t.csv", "'${HERE}/data/t.csv'", "$HERE/data/t.csv"])
def test_paths_start_at_the_config_or_a_variable_and_a_run_remembers_where(
    tmp_path: Path, fedroute: Fedroute, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "project" / "data").mkdir(parents=True)
    (tmp_path / "project" / "data" / "t.csv").write_text(TABLE)
    (tmp_path / "project" / "c.yaml").write_text(CSV % path)
    monkeypatch.setenv("HERE", str(tmp_path / "project"))
    monkeypatch.chdir(tmp_path)
    said = fedroute("run", "project/c.yaml", "--out", "out")
    assert said.code == 0, said.err
    written = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())
    assert written["federation"]["path"] == str(tmp_path / "project" / "data" / "t.csv")
    (tmp_path / "out" / "summary.json").unlink()
    monkeypatch.delenv("HERE")
    monkeypatch.chdir("/")
    assert fedroute("resume", tmp_path / "out").code == 0


def test_changed_data_are_no_longer_the_same_run(tmp_path: Path, fedroute: Fedroute) -> None:
    table, config = tmp_path / "t.csv", tmp_path / "c.yaml"
    table.write_text(TABLE)
    config.write_text(CSV % "t.csv")
    assert fedroute("run", config, "--out", tmp_path / "out").code == 0
    (tmp_path / "out" / "summary.json").unlink()
    table.write_text(TABLE.replace("n,0,0,no", "n,0,0,yes", 1))
    said = fedroute("resume", tmp_path / "out")
    assert said.code == 2
    assert "the checkpoint of another run: federation was" in said.err
    assert "(the rows of n have changed)" in said.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"south": "a row more"}, "the rows of south have changed"),
        ({"south": "a value", "west": "a label"}, "the rows of south, west have changed"),
        ({"north": "a gap"}, "the rows of north have changed"),
        ({"west": "gone"}, "west went"),
        ({"east": "new"}, "east came"),
    ],
)
def test_whose_data_have_changed_is_said(
    change: dict[str, str], words: str, tmp_path: Path, fedroute: Fedroute
) -> None:
    """Though the statistics by which every client's columns are scaled and filled change with them."""

    def rows(client: str, what: str = "") -> str:
        made = [
            [client, str(20 + (7 * i + len(client)) % 50), "uvw"[i % 3], ("yes", "no")[i * i % 3 == 1]]
            for i in range(30)
        ]
        if what == "a row more":
            made.append([client, "99", "u", "yes"])
        if what in ("a value", "a gap"):
            made[3][1] = "1000" if what == "a value" else ""
        if what == "a label":
            made[3][3] = {"yes": "no", "no": "yes"}[made[3][3]]
        made[5][1] = ""  # a gap that all fill by a median
        return "".join(",".join(r) + "\n" for r in made)

    def write(changed: dict[str, str]) -> None:
        there = ["north", "south", "west", *(c for c, what in changed.items() if what == "new")]
        told = "".join(rows(c, changed.get(c, "")) for c in there if changed.get(c) != "gone")
        (tmp_path / "t.csv").write_text("office,age,ward,ill\n" + told)

    config = tmp_path / "c.yaml"
    config.write_text(
        "federation: {source: csv, path: t.csv, client: office, label: ill}\nmodel: linear\nalgorithm: fedavg\n"
        "training: {rounds: 1, alone: false}\nengine: sequential\n"
    )
    write({})
    assert fedroute("run", config, "--out", tmp_path / "out").code == 0
    (tmp_path / "out" / "summary.json").unlink()
    write(change)
    said = fedroute("resume", tmp_path / "out")
    assert said.code == 2
    assert f" ({words}). Resume with the data" in said.err
    write({})
    assert fedroute("resume", tmp_path / "out").code == 0


def test_options_by_name_are_checked_as_those_of_a_file(config: Path) -> None:
    def silent(phase: str, done: int, rounds: int, line: dict[str, Any]) -> None:
        pass

    with pytest.raises(InputError, match=r"training\.roundz: unknown key; did you mean rounds"):
        fit(jobs._load(load(config)), "linear", roundz=3, progress=silent)
    with pytest.raises(InputError, match="training: nesterov needs momentum"):
        fit(jobs._load(load(config)), "linear", nesterov=True, progress=silent)


def test_reading_a_config_model_costs_no_torch() -> None:
    code = (
        "import sys, fedroute.config; print([m for m in ('torch', 'numpy', 'sklearn', 'pyarrow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_model_is_frozen_and_knows_its_keys() -> None:
    parts = ["federation", "model", "algorithm", "training", "router", "engine", "hub", "seed"]
    assert list(Config.model_fields) == parts
    with pytest.raises(ValueError, match="frozen"):
        Training().rounds = 3  # type: ignore[misc]
