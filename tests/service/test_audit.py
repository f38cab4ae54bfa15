"""The audit: a line for each answer and each refusal, nothing of a query, and none lost at the end."""

import hashlib
import hmac
import json
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedroute import Router
from fedroute.errors import InputError
from fedroute.service import audit as module
from fedroute.service.access import make_token
from fedroute.service.audit import COLUMNS, Audit, Line, now
from fedroute.service.serving import Service
from tests.service.conftest import Open, cases


def read(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM answers ORDER BY id").fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def test_each_answer_and_each_refusal_is_one_line(gateway: Open, router: Router, tmp_path: Path) -> None:
    path, tokens, key = tmp_path / "audit.sqlite", tmp_path / "tokens.json", tmp_path / "key"
    headers = {"Authorization": f"Bearer {make_token(tokens, 'ward nurse')}"}
    key.write_bytes(b"k" * 32)
    open_ = gateway(audit=path, audit_key=key, tokens=tokens, away=("mid",), most_queries=4)
    asked = cases()[3:7]
    secret = asked[0] | {"kind": "unheard-of"}
    one = open_.post("/v1/predict", json={"query": secret}, headers=headers).json()
    many = open_.post("/v1/predict/batch", json={"queries": asked}, headers=headers).json()
    open_.post("/v1/route", json={"query": asked[1]}, headers=headers)
    open_.post("/v1/route", json={"query": asked[1] | {"patient-77": 1}}, headers=headers)
    open_.post("/v1/route/batch", json={"queries": asked + asked}, headers=headers)
    open_.post("/v1/route", content=b"patient-78", headers=headers)
    open_.post("/v1/predict", json={"query": asked[0]})  # nobody: counted, but no line
    open_.__exit__(None, None, None)
    lines = read(path)
    assert [(r["what"], r["status"], r["place"]) for r in lines] == [
        ("predict", 200, 0), *(("predict", 200, i) for i in range(4)), ("route", 200, 0), ("route", 422, 0),
        ("route", 422, 0), ("route", 422, 0),
    ]  # fmt: skip
    assert lines[0]["request"] == one["request"]
    assert {r["request"] for r in lines[1:5]} == {many["request"]}
    for line, answer in zip(lines, [one, *many["answers"]], strict=False):
        assert (line["asked"], line["answered"], line["label"]) == (
            answer["client"], answer["answered_by"], answer["answer"])  # fmt: skip
        assert bool(line["fallback"]) == answer["fallback"]
        assert bool(line["abstained"]) == answer["abstained"]
        assert line["score"] == answer["score"]
    assert any(r["asked"] == "mid" and r["answered"] is None and r["abstained"] for r in lines)
    assert {r["who"] for r in lines} == {"ward nurse"}
    assert all(r["time"].endswith("+00:00") and r["ms"] > 0 for r in lines)
    assert all(r["reason"] for r in lines if r["status"] != 200)
    text = json.dumps(secret, sort_keys=True, separators=(",", ":")).encode()
    assert lines[0]["query"] == hmac.new(b"k" * 32, text, hashlib.sha256).hexdigest()
    assert lines[1]["query"] != lines[2]["query"]
    whole = path.read_bytes()
    for raw in ("unheard-of", "patient-77", "patient-78", str(secret["dose"]), headers["Authorization"][7:]):
        assert raw.encode() not in whole


def line(i: int) -> Line:
    return Line(f"r{i}", 0, now(), "", "predict", ms=float(i))


def test_its_file_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite"
    path.touch(mode=0o644)
    path.chmod(0o644)  # one of before
    audit = Audit(path)
    audit.add([Line("r", 0, now(), "", "route")])
    while audit.waiting:
        time.sleep(0.01)
    files = list(tmp_path.iterdir())  # those that SQLite puts beside it, too
    audit.close()
    assert path in files
    assert {stat.S_IMODE(f.stat().st_mode) for f in tmp_path.iterdir()} == {0o600}


def test_no_line_is_lost_at_the_end_whoever_writes(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a.sqlite")

    def write(k: int) -> None:
        for i in range(200):
            audit.add([line(1000 * k + i)])

    threads = [threading.Thread(target=write, args=(k,)) for k in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    audit.close()
    assert {r["request"] for r in read(tmp_path / "a.sqlite")} == {
        f"r{1000 * k + i}" for k in range(5) for i in range(200)
    }
    assert len(read(tmp_path / "a.sqlite")) == 1000
    with pytest.raises(RuntimeError, match="closed"):
        audit.add([line(0)])


def test_what_cannot_be_written_is_kept_and_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, fine = Audit(tmp_path / "a.sqlite"), Audit._connect
    tried = threading.Event()

    def full(self: Audit, path: Path) -> sqlite3.Connection:
        tried.set()
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(module, "RETRY", 0.01)
    monkeypatch.setattr(Audit, "_connect", full)
    audit.add([line(1), line(2)])
    assert tried.wait(60)
    while not audit.trouble:
        pass
    assert "disk is full" in audit.trouble
    assert audit.waiting == 2
    monkeypatch.setattr(Audit, "_connect", fine)
    audit.close()
    assert [r["request"] for r in read(tmp_path / "a.sqlite")] == ["r1", "r2"]
    assert not audit.trouble


def test_nothing_is_answered_where_no_audit_can_be_kept(gateway: Open, tmp_path: Path, monkeypatch: Any) -> None:
    open_ = gateway(audit=tmp_path / "a.sqlite")
    monkeypatch.setattr(module, "MOST", -1)
    answer = open_.post("/v1/predict", json={"query": cases(1)[0]})
    assert answer.status_code == 503
    assert "audit" in answer.json()["error"]


def test_a_fault_of_ours_tells_nothing_of_the_query(
    gateway: Open, ward_run: Path, router: Router, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service.of_run(ward_run, router=router)

    async def broken(key: Any, items: Any) -> Any:
        raise RuntimeError(f"no such patient: {items[0].item}")

    service.decide = broken  # type: ignore[assignment]
    open_ = gateway(service=service, audit=tmp_path / "a.sqlite")
    answer = open_.post("/v1/predict", json={"query": cases(1)[0] | {"kind": "secret-78"}})
    assert answer.status_code == 500
    assert answer.json()["error"] == "unexpected fault"
    assert answer.headers["x-request-id"] in answer.json()["mend"]
    assert answer.headers["x-request-id"] in caplog.text
    assert "in broken" in caplog.text
    assert open_.get("/healthz").status_code == 200
    open_.__exit__(None, None, None)
    (kept,) = read(tmp_path / "a.sqlite")
    assert (kept["status"], kept["reason"]) == (500, "unexpected RuntimeError")
    for text in (answer.text, caplog.text, (tmp_path / "a.sqlite").read_bytes().decode("latin-1")):
        assert "secret-78" not in text


def test_a_file_that_is_no_audit_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and longer than a header of one would be, by some letters")
    with pytest.raises(InputError, match=r"text.*cannot be used"):
        Audit(tmp_path / "text")
    with pytest.raises(InputError, match="cannot be used"):
        Audit(tmp_path / "no folder" / "a.sqlite")
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(InputError, match="16 or more"):
        module.QueryHash(tmp_path / "key")
    with pytest.raises(InputError, match="cannot be read"):
        module.QueryHash(tmp_path / "none")
