"""What a site's owner is shown is what leaves; and what a dry run of its data finds."""

import os
from pathlib import Path
from typing import Any

import pytest

from fedroute.algorithms import make
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.load import load_federation
from fedroute.engines.sequential import Sequential
from fedroute.federation.agreement import Agreement, hub_federation
from fedroute.federation.check import check_data, clock
from fedroute.federation.consent import site_manifest
from fedroute.models import build
from fedroute.rounds import prepare, start, work_of_round
from fedroute.task import loss_for
from fedroute.tree import nbytes
from tests.federation.agreeing import Sites

DATA = os.environ.get("FEDROUTE_DATA")
OFFICES = ("archive", "bank", "clinic", "library", "post_office", "school")
SPEC: dict[str, Any] = {"source": "bundled", "name": "digits"}


def agreed(base: Path = Path()) -> tuple[Sites, Agreement]:
    sites = Sites(base, {c: {} for c in OFFICES})
    return sites, sites.reach(SPEC)


def prepared(agreement: Agreement, algorithm: Any, t: Training) -> Algorithm:
    hub = hub_federation(agreement)
    return prepare(make(algorithm), Task(*build("mlp_bn", hub, 0), loss_for(hub.y)), t)


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "scaffold", {"name": "pfedme", "private": ["norm"]}, "feddrm", "alone"]
)
def test_the_list_is_what_leaves(algorithm: Any) -> None:
    sites, agreement = agreed()
    t = Training(rounds=2)
    alg = prepared(agreement, algorithm, t)
    shown = site_manifest(agreement.for_site("bank"), alg, t, "bank", router=False)
    federation = load_federation(SPEC)
    state, work = start(alg, federation), work_of_round(alg, federation, t, 0, 0)
    sent = {a.client: a for a in Sequential(alg, federation).run(state.server, state.privates, work)}[1]
    update = [r for r in shown["rows"] if r["what"].startswith("the update")]
    assert sum(r["bytes"] for r in update) == nbytes(sent.update)
    assert sum(r["bytes"] for r in shown["rows"] if r["what"].startswith("in the update")) == nbytes(sent.update)
    stays = {r["what"].split(" (")[0] for r in shown["rows"] if r["when"] == "never"}
    assert {k for k in sent.private["w"] if k in alg.kept} <= {s.removeprefix("private/w/") for s in stays}
    assert not stays & {r["what"].removeprefix("in the update: ").split(" (")[0] for r in shown["rows"] if r["bytes"]}
    sites.settle(agreement)
    told = sum(r["bytes"] for r in shown["rows"] if r["when"].startswith("when the hub"))
    assert (sites.sent["survey"] + sites.sent["form"]) / len(OFFICES) < told + 400


def test_the_hash_is_of_what_leaves_alone() -> None:
    _, agreement = agreed()
    t = Training(rounds=2)
    alg = prepared(agreement, "fedavg", t)
    first = site_manifest(agreement.for_site("bank"), alg, t, "bank", router=True)
    assert site_manifest(agreement, alg, t, "bank", router=True)["sha256"] == first["sha256"]
    longer = Training(rounds=9, lr=0.2)
    assert site_manifest(agreement.for_site("bank"), alg, longer, "bank", router=True)["sha256"] == first["sha256"]
    fewer = agreement.model_copy(update={"clients": OFFICES[:4]})
    assert site_manifest(fewer.for_site("bank"), alg, t, "bank", router=True)["sha256"] == first["sha256"]
    more = prepared(agreement, {"name": "fedavg", "private": ["head"]}, t)
    wider = agreement.model_copy(update={"labels": (*agreement.labels, "x"), "counts": {}})
    others = [
        site_manifest(agreement.for_site("bank"), more, t, "bank", router=True),
        site_manifest(agreement.for_site("bank"), alg, t, "bank", router=False),
        site_manifest(agreement.for_site("clinic"), alg, t, "clinic", router=True),
        site_manifest(wider.for_site("bank"), alg, t, "bank", router=True),
    ]
    assert len({first["sha256"], *(o["sha256"] for o in others)}) == 5
    assert all(set(r) == {"what", "when", "bytes", "private"} and r["private"] for r in first["rows"])


@pytest.mark.skipif(DATA is None, reason="FEDROUTE_DATA is not set")
def test_statistics_in_the_list(tmp_path: Path) -> None:
    from fedroute.data.registry import description

    known = description("heart4")
    spec = {k: v for k, v in known.items() if k != "paths"}
    sites = Sites(tmp_path, {c: {"path": p} for c, p in known["paths"].items()})
    agreement = sites.reach(spec)
    t = Training()
    shown = site_manifest(agreement, prepared(agreement, "fedavg", t), t, "va", router=True)
    listed = {r["what"]: r for r in shown["rows"]}
    (counts,) = (r for w, r in listed.items() if "thresholds" in w)
    (sums,) = (r for w, r in listed.items() if "sum of squares" in w)
    sites.settle(agreement)
    assert sites.calls["statistics"] == 4 * 18
    assert sites.sent["statistics"] / 4 < 16 * counts["bytes"] + sums["bytes"] + 30
    said = sum(r["bytes"] for r in shown["rows"] if r["when"].startswith("when the hub"))
    assert (sites.sent["survey"] + sites.sent["form"]) / 4 < said


def table(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["age,sex,ward,ill", *rows]) + "\n")
    return path


TABLE: dict[str, Any] = {"source": "csv", "label": "ill"}


def texts(found: list[Any], level: str) -> str:
    return "\n".join(f.text for f in found if f.level == level)


def test_a_dry_run_finds(tmp_path: Path) -> None:
    rows = [f"{20 + i % 50}.5,{'mf'[i % 2]},w{i % 3},{i % 5 == 0}" for i in range(60)]
    rows[3] = ",f,w1,True"
    table(tmp_path / "visits.csv", rows)
    (tmp_path / "DATA.yaml").write_text("data: {path: visits.csv}\n")
    found = check_data(tmp_path / "DATA.yaml", TABLE | {"newcomers": ["elsewhere"], "drop": ["of others"]}, "north")
    assert not texts(found, "refused")
    assert "60 rows read" in texts(found, "ok")
    assert "label: False 47, True 13" in texts(found, "ok")
    assert "sex (f, m); ward (w0, w1, w2)" in texts(found, "ok")
    assert "age" in texts(found, "note")


@pytest.mark.parametrize(
    ("data", "spec", "says"),
    [
        ("path: visit.csv", TABLE, r"DATA.yaml path: no file .*; did you mean 'visits.csv'"),
        ("paht: visits.csv", TABLE, "paht: no such key; did you mean 'path'"),
        ("path: visits.csv", TABLE | {"label": "Ill"}, r"no column 'Ill'.*did you mean 'ill'.*rename"),
        ("{path: visits.csv, rename: {ages: years}}", TABLE, r"no column 'ages' \(rename\); did you mean 'age'"),
        ("{path: visits.csv, client: {column: ward, value: w9}}", TABLE, "no row has 'w9'"),
        ("{path: visits.csv, missing: {wards: [x]}}", TABLE, r"no column 'wards' \(missing\)"),
        ("path: visits.csv", TABLE | {"features": ["agee"]}, r"no column 'agee' \(federation.features\)"),
        ("path: visits.csv", TABLE | {"partition": {"method": "iid"}}, "federation.partition: is for simulations"),
        ("path: visits.csv", TABLE | {"bands": [3]}, "is not a number"),
        ("path: visits.csv", {"source": "images"}, "is a file; the source images wants a folder"),
        ("nothing", TABLE, "says nothing"),
    ],
)  # fmt: skip
def test_what_would_be_refused(tmp_path: Path, data: str, spec: dict[str, Any], says: str) -> None:
    import re

    table(tmp_path / "visits.csv", [f"{20 + i},m,w{i % 3},{i % 2 == 0}" for i in range(40)])
    (tmp_path / "DATA.yaml").write_text(data + "\n")
    found = check_data(tmp_path / "DATA.yaml", spec, "north")
    assert re.search(says, texts(found, "refused")), found


def test_a_label_that_only_others_have(tmp_path: Path) -> None:
    table(tmp_path / "visits.csv", [f"{20 + i}.5,m,w{i % 3},{['yes', 'no'][i % 2]}" for i in range(40)])
    found = check_data({"path": "visits.csv"}, TABLE | {"positive": ["yes", "perhaps"]}, "north", tmp_path)
    assert not texts(found, "refused")
    assert "no row has the label 'perhaps'" in texts(found, "note")


def test_clocks() -> None:
    assert clock(1000.0, 1100.0).level == "ok"
    assert clock(1000.0, 1400.0) == ("refused", clock(1000.0, 1400.0).text)
    assert "behind" in clock(1000.0, 1400.0).text
    assert "ahead" in clock(9000.0, 1400.0).text
