"""`fedroute route`: from a run directory and a file, and nothing else, to client, answer, reason and runner-up."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedroute.data.load import load_federation
from tests.cli.conftest import Fedroute, Said

CONFIG = """\
federation: {source: csv, path: wards.csv, client: ward, label: ill, categorical: [kind]}
model: linear
algorithm: fedrod
training: {rounds: 8, local_epochs: 1, lr: 0.3, batch_size: 16, alone: false}
router: {kind: lda, rule: consensus}
engine: sequential
"""


def table(rows: int = 160) -> str:
    """Two wards: in the west the old are ill and kind a is common, in the east the young and kind b."""
    draw = np.random.default_rng(0)
    lines = ["ward,age,dose,kind,ill"]
    for i in range(rows):
        west = i % 2 == 0
        age = draw.normal(60 if west else 40, 12)
        ill = (age > 60) if west else (age < 40)
        kind = "ab"[int(draw.random() < (0.2 if west else 0.8))]
        lines.append(
            f"{'west' if west else 'east'},{age:.1f},{draw.normal(5 if west else 3):.2f},{kind},{'ny'[int(ill)]}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose data are gone."""
    from fedroute import jobs
    from fedroute.config import load

    folder: Path = tmp_path_factory.mktemp("wards")
    (folder / "wards.csv").write_text(table())
    (folder / "c.yaml").write_text(CONFIG)
    jobs.start(load(folder / "c.yaml"), folder / "run", progress=lambda *_: None, log=lambda text: None)
    (folder / "wards.csv").rename(folder / "aside.csv")
    return folder / "run"


@pytest.fixture
def route(fedroute: Fedroute, trained: Path, tmp_path: Path) -> object:
    def call(name: str, content: str | bytes, *words: str) -> Said:
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return fedroute("route", trained, "--input", file, *words)

    return call


def test_a_route_names_client_answer_reason_and_runner_up(route: Fedroute) -> None:
    said = route("q.csv", "age,dose,kind\n80,5.5,a\n25,2.5,b\n", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["rule"] == "consensus"
    west, east = found["queries"]
    assert (west["client"], west["answer"], west["runner_up"]) == ("west", "y", "east")
    assert (east["client"], east["answer"], east["runner_up"]) == ("east", "y", "west")
    for row in (west, east):
        assert 0.5 < row["score"] <= 1
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-3)
        assert "looks like" in row["reason"]
    assert "dose" in west["reason"] or "age" in west["reason"]
    human = route("q.csv", "age,dose,kind\n80,5.5,a\n25,2.5,b\n")
    for word in ("west", "east", "runner-up", "2 queries, by consensus", "looks like"):
        assert word in human.out


def test_sure_is_the_probability_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """And not how likely the client is, which the reason has."""
    from rich.console import Console

    from fedroute.report.terminal import routes_table

    row = {"client": "west", "answer": "y", "score": 0.97, "reason": "looks like west's, 97%", "runner_up": None,
           "abstained": False, "probabilities": {"n": 0.39, "y": 0.61}}  # fmt: skip
    Console(width=120).print(routes_table({"queries": [row, row | {"abstained": True}], "rule": "density"}))
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.split()[:4] == ["1", "west", "y", "61%"]
    assert "%" not in second.removesuffix("97%").rstrip()[: -len("looks like west's,")]


def test_route_needs_nothing_but_the_folder(fedroute: Fedroute, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("age,dose,kind\n80,5.5,a\n")
    shutil.copytree(trained, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere" / "checkpoint")
    here, there = (
        fedroute("route", d, "--input", tmp_path / "q.csv", "--json") for d in (trained, tmp_path / "elsewhere")
    )
    assert here.code == there.code == 0
    assert json.loads(here.out)["queries"] == json.loads(there.out)["queries"]


def test_the_training_file_itself_may_be_asked(fedroute: Fedroute, trained: Path) -> None:
    said = fedroute("route", trained, "--input", trained.parent / "aside.csv", "--json")
    rows = json.loads(said.out)["queries"]
    assert len(rows) == 160
    federation = load_federation(
        {"source": "csv", "path": "aside.csv", "client": "ward", "label": "ill"}, base=trained.parent
    )
    truth = [federation.labels[k] for k in federation.y.tolist()]
    assert np.mean([r["answer"] == t for r, t in zip(rows, truth, strict=True) if not r["abstained"]]) > 0.75
    many = fedroute("route", trained, "--input", trained.parent / "aside.csv")
    assert "120 more: --json has all" in many.out


def test_whose_column_and_order_change_nothing(route: Fedroute) -> None:
    plain = route("a.csv", "age,dose,kind\n80,5.5,a\n25,2.5,b\n", "--json")
    tagged = route("b.csv", "ward,kind,ill,dose,age\neast,a,n,5.5,80\nwest,b,n,2.5,25\n", "--json")
    assert json.loads(plain.out)["queries"] == json.loads(tagged.out)["queries"]


def test_a_name_never_seen_is_routed_and_said(route: Fedroute) -> None:
    said = route("q.csv", "age,dose,kind\n80,5.5,zz\n,,\n")
    assert said.code == 0
    assert "column 'kind': 1 value that no client had in training, such as 'zz'" in said.err


def test_a_row_without_values_is_not_told_two_things(route: Fedroute) -> None:
    """The note holds where nobody fits, as the reason then says, and where somebody does."""
    said = route("q.csv", "age,dose,kind\n,,\n80,5.5,a\n", "--json")
    assert said.code == 0
    assert (
        "row 1: no value is given; where a client is found for it all the same, it answers as to an average" in said.err
    )
    assert "what is answered" not in said.err
    assert "row 2" not in said.err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.csv", "age,kind\n80,a\n", ["q.csv: no column 'dose'", "a query has the columns age, dose, kind"]),
        ("q.csv", "age,doze,kind\n80,1,a\n", ["did you mean 'doze'"]),
        ("q.csv", "age,dose,kind\n80,much,a\n", ["column 'dose', row 1: 'much' is not a number", "the cell empty"]),
        ("q.csv", "age,dose,kind\n", ["q.csv: has column names and no rows; give a line of column names and a row "]),
        ("q.csv", "", ["q.csv: is empty; give a line of column names and a row for each query"]),
        ("q.csv.gz", gzip.compress(b"\n \n", mtime=0), ["q.csv.gz: is empty; give a line of column names and a row "]),
        ("q.csv", "age,dose,dose\n1,2,3\n", ["q.csv: two columns are called 'dose'; rename one\n"]),
        ("q.csv", b"\xff\xfe\xfa", ["q.csv"]),
        ("q.parquet", "nonsense", ["q.parquet: cannot be read as Parquet"]),
        ("q.npz", "nonsense", ["q.npz: the models were trained on a table; give CSV or Parquet"]),
    ],
)  # fmt: skip
def test_a_wrong_file_is_exit_2_with_file_column_and_mend(
    route: Fedroute, name: str, content: str | bytes, words: list[str]
) -> None:
    said = route(name, content)
    assert said.code == 2, said
    assert said.out == ""
    for word in words:
        assert word in said.err
    for of_a_config in ("leave the client out", "`columns:", "`encoding:"):
        assert of_a_config not in said.err
    assert "Traceback" not in said.err
    assert all(line.startswith("fedroute: ") for line in said.err.splitlines())


def test_a_parquet_column_of_another_type_is_named(fedroute: Fedroute, trained: Path, tmp_path: Path) -> None:
    columns = {"age": pa.array([[1.0]]), "dose": [1.0], "kind": ["a"]}
    parquet.write_table(pa.table(columns), tmp_path / "q.parquet")
    said = fedroute("route", trained, "--input", tmp_path / "q.parquet")
    assert said.code == 2
    assert "column 'age', row 1: [1.0] is not a number" in said.err


def test_folders_that_have_no_router(fedroute: Fedroute, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("age,dose,kind\n80,5.5,a\n")
    said = fedroute("route", tmp_path / "no", "--input", tmp_path / "q.csv")
    assert (said.code, "no run here" in said.err) == (2, True), said
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "router")
    said = fedroute("route", tmp_path / "run", "--input", tmp_path / "q.csv")
    assert (said.code, "this run has no router; run its config with `--set router=auto`" in said.err) == (2, True)
    (tmp_path / "run" / "summary.json").unlink()
    said = fedroute("route", tmp_path / "run", "--input", tmp_path / "q.csv")
    assert (said.code, "fedroute resume" in said.err) == (2, True)
    said = fedroute("route", tmp_path / "q.csv", "--input", tmp_path / "q.csv")
    assert (said.code, "is a file; name the folder of the run" in said.err) == (2, True), said
    said = fedroute("route", trained, "--input", tmp_path / "none.csv")
    assert (said.code, "no such file" in said.err) == (2, True)


def test_a_run_says_what_routing_is_worth(fedroute: Fedroute, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    shutil.copy(trained.parent / "aside.csv", trained.parent / "wards.csv")
    (tmp_path / "run" / "summary.json").unlink()
    said = fedroute("resume", tmp_path / "run")
    (trained.parent / "wards.csv").unlink()
    assert said.code == 0, said.err
    for word in ("system accuracy", "consensus", "oracle", "global", "in use", "outside queries"):
        assert word in said.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    routing = summary["routing"]
    assert routing["rule"] == "consensus"
    assert {
        "client_accuracy",
        "system_accuracy",
        "macro",
        "intervals",
        "confusion",
        "coverage",
        "pays",
    } <= routing.keys()
    assert {"consensus", "density", "vote", "global", "best_single", "random", "oracle"} <= routing[
        "system_accuracy"
    ].keys()
    assert routing["system_accuracy"].keys() == routing["macro"].keys()
    before = json.loads((trained / "summary.json").read_text())["routing"]
    assert routing == before


def test_what_no_option_of_route_mends_is_not_told(fedroute: Fedroute, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("federation: {source: csv, paths: {a: a.csv}, label: ill}\nmodel: linear\n")
    said = fedroute("route", trained, "--input", tmp_path / "q.yaml")
    assert (said.code, "is a YAML file and holds no queries; give the file of rows" in said.err) == (2, True), said
    (tmp_path / "q.csv").write_text("age,dose,kind\n80,5.5,a\n80,5.5,a,b,c\n")
    said = fedroute("route", trained, "--input", tmp_path / "q.csv")
    assert (said.code, "put quotes around cells with the delimiter in them" in said.err) == (2, True), said
    assert "delimiter: ..." not in said.err
    (tmp_path / "q.csv").write_text('age,dose,kind\n80,"1,234",a\n')
    said = fedroute("route", trained, "--input", tmp_path / "q.csv")
    assert (said.code, "decimal:" in said.err) == (2, False), said
    (tmp_path / "q.csv").write_bytes(b"age,dose,kind\n3\x009,5.5,a\n")
    said = fedroute("route", trained, "--input", tmp_path / "q.csv")
    assert (said.code, "q.csv, row 1: column 'age' has a zero byte in it" in said.err) == (2, True), said
