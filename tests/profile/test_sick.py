"""The whole: real data, clean data, what leaves a client, and bad cases."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.registry import description
from fedroute.profile.finding import Finding, listed, percent, worst_first
from fedroute.profile.sick import PRIVATE, Sick, sick
from fedroute.said import say

DATA = Path(os.environ.get("FEDROUTE_DATA", "/nowhere"))


def known(name: str, **keys: Any) -> Federation:
    if not (DATA / name).is_dir():
        pytest.skip(f"FEDROUTE_DATA has no {name}")
    spec = description(name) | keys
    return load_federation({k: v for k, v in spec.items() if v is not None})


def of(found: Sick, kind: str) -> dict[tuple[str | None, str | None], Finding]:
    return {(f.client, f.column): f for f in found.findings if f.kind == kind}


@pytest.fixture(scope="module")
def heart() -> Sick:
    return sick(known("heart4", missing=[]))


def test_heart4_zeros_that_mean_missing(heart: Sick) -> None:
    zeros = of(heart, "a number for a missing value")
    assert {k: f.number for k, f in zeros.items()} == {
        ("switzerland", "chol"): 123, ("va", "chol"): 49, ("va", "trestbps"): 1,
    }  # fmt: skip
    assert "missing: {chol: [0]}" in zeros["switzerland", "chol"].mend


def test_heart4_absent_columns(heart: Sick) -> None:
    assert set(of(heart, "a column that is not recorded")) == {
        ("hungarian", "ca"), ("hungarian", "thal"), ("switzerland", "ca"), ("va", "ca"),
    }  # fmt: skip
    told = of(sick(known("heart4")), "a column that is not recorded")
    assert "0 counts as missing" in told["switzerland", "chol"].sentence


def test_heart4_one_class_and_two_duplicated_rows(heart: Sick) -> None:
    (f,) = [f for f in heart.findings if f.kind == "one class"]
    assert f.client == "switzerland"
    assert "115 of 123 rows" in f.sentence
    assert {name: c.exact for name, c in heart.clients.items() if c.exact} == {"hungarian": 1, "va": 1}
    assert {f.client for f in heart.findings if "row" in f.kind and f.number == 1} == {"hungarian", "va"}
    assert not [f for f in heart.findings if f.severity == "severe"]


CLEAN: dict[str, dict[str, Any]] = {
    "heart4": {"paths": None, "path": [f"registry:heart4/processed.{c}.data"
               for c in ("cleveland", "hungarian", "switzerland", "va")]},
    "ist_stroke": {"client": None},
    "gas_drift": {"client": None},
    "digits4": {"client": None},
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_real_rows_dealt_at_random_are_healthy(name: str) -> None:
    found = sick(known(name, **CLEAN[name], partition={"method": "iid", "clients": 5}))
    allowed = (
        {"note", "warning"} if name == "heart4" else {"note"}
    )  # two of its rows are equal, wherever they are dealt
    assert {f.severity for f in found.findings} <= allowed


@pytest.mark.parametrize("name", ["heart4", "ist_stroke", "gas_drift", "digits4"])
def test_natural_clients_have_nothing_severe(name: str) -> None:
    assert not [f.sentence for f in sick(known(name)).findings if f.severity == "severe"]


def test_digits_dealt_at_random_and_six_offices_are_healthy() -> None:
    dealt = load_federation({"source": "bundled", "name": "digits", "partition": {"method": "iid", "clients": 5}})
    assert not sick(dealt).findings
    assert not sick(load_federation("bundled:digits")).findings


def test_months_of_an_air_station_are_no_copies() -> None:
    found = sick(known("beijing_air"))
    assert not [f.sentence for f in found.findings if f.severity != "note"]
    assert all(c.effective == c.rows for c in found.clients.values())
    assert max(sum(v.values()) for v in found.sent.values()) < 60 * 35_064  # bytes for each row of the largest


def test_466_hospitals() -> None:
    found = sick(known("ist_stroke", client="hospital"))
    assert len(found.clients) == 464  # two have no row with a known outcome
    assert not [f.sentence for f in found.findings if f.severity == "severe"]
    assert len(found.findings) < 60


def test_a_hospital_written_30_times_among_four(tmp_path: Path) -> None:
    if not (DATA / "heart4").is_dir():
        pytest.skip("FEDROUTE_DATA has no heart4")
    spec = description("heart4")
    lines = (DATA / "heart4" / "processed.va.data").read_text().splitlines()
    again = torch.randperm(30 * len(lines), generator=torch.Generator().manual_seed(0)) % len(lines)
    (tmp_path / "va.data").write_text("\n".join(lines[i] for i in again.tolist()) + "\n")
    fed = load_federation({**spec, "paths": {**spec["paths"], "va": "va.data"}}, base=tmp_path)
    found = sick(fed)
    assert found.clients["va"].rows == 6000
    assert found.clients["va"].effective == pytest.approx(200, rel=0.02)
    (f,) = [f for f in found.findings if f.severity == "severe" and f.kind == "copied rows"]
    assert "weighting: {by: effective}" in f.mend
    assert not [f for f in found.findings if f.client == "cleveland"]


def test_the_same_seed_gives_the_same_and_json_has_it_all(heart: Sick) -> None:
    again = sick(known("heart4", missing=[]))
    assert again.row() == heart.row()
    row = json.loads(json.dumps(heart.row()))
    assert [f["severity"] for f in row["findings"]] == sorted(
        (f["severity"] for f in row["findings"]), key=["severe", "warning", "note"].index
    )
    assert set(row["findings"][0]) == {
        "kind", "client", "others", "column", "number", "unit", "severity", "sentence", "mend", "rows",
    }  # fmt: skip
    assert row["clients"][0] == {
        "name": "cleveland", "rows": 303, "effective_rows": 303, "duplicates": {"exact": 0, "near": 0}, "fault": False,
    }  # fmt: skip
    assert all(set(parts) <= set(PRIVATE) for parts in row["sent"].values())


def test_what_leaves_a_client_is_small_and_hashes_need_the_key() -> None:
    from fedroute.profile import row_hashes
    from fedroute.profile.own_rows import own_rows

    fed = load_federation("bundled:digits")
    own = next(own_rows(fed))
    one, other = (row_hashes.exact(own, row_hashes.key_of(seed)) for seed in (0, 1))
    assert len(set(one.tolist())) == len(own)
    assert not set(one.tolist()) & set(other.tolist())
    sent = sick(fed).sent
    assert set(sent) == set(fed.clients)
    assert sent[own.client]["hashes"] == len(own) * (8 + 32 + 1) + 16


def test_the_order_of_listing_clients_and_rows_of_nobody_change_nothing(heart: Sick) -> None:
    fed = known("heart4", missing=[])
    wider = Federation(**{
        **{k: v for k, v in vars(fed).items() if k in Federation.__dataclass_fields__},
        "x": torch.cat([fed.x, fed.x[:50]]), "y": torch.cat([fed.y, fed.y[:50]]),
    })  # fmt: skip
    assert [f.sentence for f in sick(wider).findings] == [f.sentence for f in heart.findings]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("shape", [(3,), (1, 8, 8), (4, 20)])
def test_tiny_clients_of_any_shape(rows: int, shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(rows * 2, *shape, generator=draw)
    for y in (torch.arange(rows * 2) % 2, torch.randn(rows * 2, generator=draw)):
        found = sick(Federation.from_arrays(x, y, ["a", "b"] * rows))
        assert {c.effective for c in found.clients.values()} == {rows}
        assert not [f for f in found.findings if f.severity == "severe"]


def test_several_numbers_to_predict_are_no_labels() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 4, generator=draw), torch.randn(200, 2, generator=draw)
    assert not sick(Federation.from_arrays(x, y, ["a", "b"] * 100)).findings


def test_columns_that_say_nothing() -> None:
    x = torch.zeros(200, 3)
    x[:, 1] = torch.arange(200) % 2
    found = sick(Federation.from_arrays(x, torch.arange(200) // 2 % 2, ["a", "b"] * 100))
    assert {c.effective for c in found.clients.values()} == {100}


def test_words_for_people() -> None:
    assert [percent(v) for v in (0, 0.0042, 0.25, 1)] == ["0 %", "0.4 %", "25 %", "100 %"]
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"
    note, severe = (
        Finding(kind="k", client=None, severity=s, sentence=say("", ""), mend=say("", ""), number=1)
        for s in ("note", "severe")
    )
    assert worst_first([note, severe]) == (severe, note)
