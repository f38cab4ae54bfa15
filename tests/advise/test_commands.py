"""`fedroute advise` and `fedroute tune`, as people and scripts call them."""

import json
from pathlib import Path

import pytest
import yaml

from fedroute.advise.job import read
from fedroute.config import load
from tests.cli.conftest import Fedroute

DIGITS = "{source: bundled, name: digits, partition: {method: dirichlet, alpha: 0.1, clients: 5}}"
CONFIG = f"""\
federation: {DIGITS}
model: {{name: mlp_bn, hidden: [8]}}
algorithm: {{name: ditto}}
training: {{rounds: 3, local_steps: 2, lr: 0.2}}
seed: 3
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_json_is_one_object_with_what_is_promised(fedroute: Fedroute) -> None:
    said = fedroute("advise", "bundled:digits", "--json")
    found = json.loads(said.out)
    assert said.code == 0
    assert found.keys() >= {"algorithm", "private", "router", "why", "runner_up", "would_change_mind", "cost"}
    assert found["private"] == ["head", "norm"]  # six scanners, and a mix of digits at each
    assert found["model"] == {"name": "lenet_bn"}


def test_words_end_in_a_config_that_run_takes(fedroute: Fedroute, config: Path, tmp_path: Path) -> None:
    said = fedroute("advise", config)
    assert said.code == 0
    for title in ("Advice:", "Why:", "Cost:", "Runner-up:", "Would change its mind:", "Router:", "Config:"):
        assert title in said.out
    parts = yaml.safe_load(said.out.split("Config:\n")[1])
    (tmp_path / "advised.yaml").write_text(yaml.safe_dump(parts | {"federation": yaml.safe_load(DIGITS)}))
    assert load(tmp_path / "advised.yaml").model["name"] == "mlp_bn"


def test_a_proof_says_whether_it_is_so(fedroute: Fedroute, config: Path) -> None:
    said = fedroute("advise", config, "--prove", "--seeds", 2, "--rounds", 2, "--json")
    found = json.loads(said.out)
    assert said.code == 0
    proof = found["proof"]
    assert proof["verdict"] in ("confirmed", "overturned", "open")
    assert {"fedavg", "alone"} < {c["label"] for c in proof["contests"]}
    assert (proof["seeds"], proof["rounds"], proof["part"]) == (2, 2, "validation")
    assert found["label"] == proof["algorithm"]
    assert proof["words"] in found["why"]


def test_a_page_and_words_in_chinese(fedroute: Fedroute, config: Path, tmp_path: Path) -> None:
    said = fedroute("advise", config, "--lang", "zh", "--out", tmp_path / "a.html")
    assert said.code == 0
    assert said.out.startswith("建议：")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert 'lang="zh-CN"' in page
    assert "<h2>建议: " in page
    assert fedroute("advise", config, "--lang", "de").code == 2


def test_a_file_with_a_federation_alone_will_do(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text(f"federation: {DIGITS}\nseed: 7\n")
    asked = read(str(path))
    assert (asked.model, asked.training, asked.seed, asked.base) == (None, None, 7, tmp_path)
    path.write_text(CONFIG)
    asked = read(str(path), 1)
    assert asked.model is not None
    assert asked.training is not None
    assert (asked.model["name"], asked.model["hidden"]) == ("mlp_bn", [8])
    assert (asked.training.rounds, asked.seed) == (3, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("advise", "bundled:digit"), "should be 'digits'"),
        (("advise", "nowhere.yaml"), "nowhere.yaml"),
        (("advise", "none.yaml", "--prove"), "federation.split.validation"),
        (("tune", "config.yaml", "--out", "t", "--over", "lambda"), "--over lambda"),
        (("tune", "none.yaml", "--out", "t"), "federation.split.validation"),
    ],
)
def test_wrong_input_is_told_in_words(
    fedroute: Fedroute, config: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(config.parent)
    none = CONFIG.replace("clients: 5}}", "clients: 5}, split: {validation: 0.0, test: 0.25}}")
    (config.parent / "none.yaml").write_text(none)
    found = fedroute(*words)
    assert found.code == 2
    assert said in found.err


def test_tune_writes_a_better_config_and_goes_on(fedroute: Fedroute, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    first = fedroute("tune", config, "--out", out, "--trials", 2, "--over", "lr,lam", "--json")
    assert first.code == 0
    more = fedroute("tune", config, "--out", out, "--trials", 3, "--over", "lr,lam")
    assert more.code == 0
    assert "training.lr" in more.out
    assert load(out / "best.yaml").algorithm["name"] == "ditto"
    assert len(json.loads((out / "tune.json").read_text())["trials"]) == 3
    assert more.err.splitlines()[-1] == f"best config: {out / 'best.yaml'}"


def test_tune_says_what_was_set_for_the_study_alone(fedroute: Fedroute, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    words = ("--trials", 1, "--over", "lr", "--set", "training.rounds=1", "--set", "training.lr=0.2")
    said = fedroute("tune", config, "--out", out, *words)
    assert said.code == 0, said.err
    assert said.err.splitlines()[-1].endswith("best.yaml; what was set is in it: training.rounds=1")
    assert load(out / "best.yaml").training.rounds == 1


def test_an_advice_for_one_label_begins_with_that(fedroute: Fedroute, tmp_path: Path) -> None:
    lines = [f"{'abc'[i % 3]},{i % 7}.5,{(i * 31) % 11},yes" for i in range(120)]
    (tmp_path / "rows.csv").write_text("site,age,dose,ill\n" + "\n".join(lines))
    (tmp_path / "f.yaml").write_text("federation: {source: csv, path: rows.csv, client: site, label: ill}\n")
    said = fedroute("advise", tmp_path / "f.yaml", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["why"][0].startswith("All 120 rows have the one label 'yes': there is nothing to learn")
    assert "请先处理" in fedroute("advise", tmp_path / "f.yaml", "--lang", "zh").out
