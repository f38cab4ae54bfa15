"""Four hospitals through the gateway: what it answers is what `fedroute route` says of the same file."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save
from starlette.testclient import TestClient

from fedroute import Router
from fedroute.data.registry import _HEART as HEART
from fedroute.federation.inprocess import InProcess
from fedroute.federation.transport import Payload
from fedroute.jobs import route
from fedroute.router.guide import Guide
from fedroute.service.answers import Live, Own
from fedroute.service.gateway import make_app
from fedroute.service.query_json import QueryJson
from fedroute.service.serving import Service
from tests.service.conftest import trained

pytestmark = pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="needs the real data sets in FEDROUTE_DATA")
CONFIG = {
    "federation": {"source": "registry", "name": "heart4"},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": "fedrod",
    "training": {"rounds": 8, "local_epochs": 1, "lr": 0.05, "alone": False},
    "router": {"kind": "lda", "random_features": 0, "rule": "consensus"},
    "engine": "sequential",
}


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("heart4") / "run", CONFIG)


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A file of patients, and the same ones as queries."""
    names = HEART
    lines = [
        line
        for file in sorted(Path(os.environ["FEDROUTE_DATA"]).glob("heart4/processed.*.data"))
        for line in file.read_text().splitlines()[::3]
    ]
    out: Path = tmp_path_factory.mktemp("patients") / "patients.csv"
    out.write_text("\n".join([",".join(names), *lines]) + "\n")
    return out, [dict(zip(names, line.split(","), strict=True)) for line in lines]


def test_the_same_patients_by_file_and_by_http(hospitals: Path, patients: tuple[Path, list[dict[str, Any]]]) -> None:
    file, rows = patients
    expected = route(hospitals, file)[0]["queries"]
    columns = Router.load(hospitals).form.table
    assert columns
    wanted = (*columns.numeric, *columns.categorical)
    asked = [{c: row[c] for c in wanted} for row in rows]
    with TestClient(make_app(Service.of_run(hospitals))) as open_:
        told = open_.post("/v1/predict/batch", json={"queries": asked})
        assert told.status_code == 200, told.text
        for found, row in zip(told.json()["answers"], expected, strict=True):
            for k in ("client", "answer", "runner_up", "abstained", "reason"):
                assert found[k] == row[k]
            assert found["probabilities"] == (None if row["abstained"] else row["probabilities"])
    assert {r["client"] for r in expected} >= {"cleveland", "hungarian", "switzerland", "va"}


def test_the_live_form_agrees_with_the_run_directory(
    hospitals: Path, patients: tuple[Path, list[dict[str, Any]]]
) -> None:
    """Where the rule needs nobody's answers, who answers and what is the same; who is away is passed over."""
    router = replace(Router.load(hospitals), rule="posterior")
    columns = router.form.table
    assert columns
    asked = [{c: row[c] for c in (*columns.numeric, *columns.categorical)} for row in patients[1]]

    reader = QueryJson(router.form)
    x = reader.encode(reader.many(asked, len(asked)))

    def site(client: str) -> Any:
        own = Own.of(router, client).apart()

        def handle(method: str, payload: Payload) -> Payload:
            return {"p": save({"p": own.answer(load(payload["x"])["x"])}), "version": 1}  # type: ignore[arg-type]

        return handle

    transport = InProcess({c: site(c) for c in router.clients})
    transport.start()
    with TestClient(make_app(Service(Guide.of(router), Live(transport, router.clients)))) as open_:
        for away in ([], ["cleveland"]):
            for c in away:
                transport.unplug(c)
            told = open_.post("/v1/predict/batch", json={"queries": asked}).json()["answers"]
            for found, row in zip(told, router.route(x, away).rows(), strict=True):
                assert found["answered_by"] == row["client"]
                assert found["abstained"] == row["abstained"]
                assert found["answer"] == row["answer"]
    transport.close()
