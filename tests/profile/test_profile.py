"""The profile as a whole: its JSON, what it depends on, odd federations, real data."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedroute
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.profile import basis, sample, sentences, strata
from fedroute.profile.concept import Meaning
from fedroute.profile.label import LabelMix
from fedroute.profile.profile import Profile, profile
from fedroute.profile.verdict import KINDS, level
from tests.profile.worlds import world

DATA = Path(os.environ.get("FEDROUTE_DATA", "/nowhere"))


@pytest.fixture(scope="module")
def mixed() -> Federation:
    return world("label", "feature", seed=11)


@pytest.fixture(scope="module")
def found(mixed: Federation) -> Profile:
    return profile(mixed)


def test_the_json_has_what_scripts_ask_for(mixed: Federation, found: Profile) -> None:
    row = json.loads(json.dumps(found.row(), allow_nan=False))
    assert row["top"] in row["parts"]
    assert [c["name"] for c in row["clients"]] == list(mixed.clients)
    for c in row["clients"]:
        assert sum(c["labels"].values()) == c["rows"] == 300
        assert c["effective_rows"] <= c["rows"]
        assert set(c["duplicates"]) == {"exact", "near"}
        assert isinstance(c["missing"], dict)
        assert isinstance(c["flags"], list)
    assert tuple(row["skew"]) == KINDS
    for s in row["skew"].values():
        low, high = s["interval"]
        assert 0 <= low <= s["strength"] <= high <= 1
        assert s["verdict"] in ("none", "mild", "clear", "strong", "unknown")
        assert set(s["sentences"]) == {"en", "zh"}
    assert isinstance(row["leaks"], list)
    assert all(s["bytes"] > 0 and s["private"] for s in row["sends"])


def test_same_seed_same_profile(mixed: Federation, found: Profile) -> None:
    assert fedroute.profile(mixed).row() == found.row()  # whether called so or by its full name


def test_test_rows_are_not_looked_at(mixed: Federation) -> None:
    """What is said of skew does not change with the features of test rows."""
    x = mixed.x.clone()
    x[torch.cat(mixed.test)] += 100
    before, after = (profile(f, health=False).row() for f in (mixed, replace(mixed, x=x)))
    assert after["skew"] == before["skew"]
    assert after["top"] == before["top"]


def test_the_unit_of_a_feature_does_not_matter(mixed: Federation) -> None:
    before = profile(mixed, health=False)
    after = profile(replace(mixed, x=mixed.x * 1024 - 7), health=False)
    assert after.top == before.top
    for k in KINDS:
        assert after.skew[k].strength == pytest.approx(before.skew[k].strength, abs=1e-6)


def test_what_is_said_to_be_sent_is_what_is_sent(mixed: Federation, found: Profile) -> None:
    drawn = sample.draw(mixed)
    base, quantiles = basis.fit(drawn.x, 0)
    said = {(s.part, s.what): s.bytes for s in found.sends}
    first = next(v for k, v in said.items() if "quantiles of each feature" in k[1])
    assert max(q.n.nbytes + q.at.nbytes for q in quantiles) == first
    phi = base.curves(base.scores(drawn.x[0]))
    one = strata.sums(phi, drawn.y[0], len(drawn.labels) * sample.FOLDS)
    summed = next(
        v for k, v in said.items() if k[1].startswith("per label and fold number and sum of rows' curves, and")
    )
    assert one.n.nbytes + one.first.nbytes + one.second.nbytes <= summed


def test_quantiles_have_rows_behind_each() -> None:
    rng = np.random.default_rng(0)
    assert basis.quantiles(rng.standard_normal((3, 2))).at.shape == (0, 2)
    assert basis.quantiles(rng.standard_normal((40, 2))).at.shape == (10, 2)
    x = rng.standard_normal((400, 2))
    x[8:, 1] = np.nan
    sent = basis.quantiles(x)
    assert (~np.isnan(sent.at)).sum(0).tolist() == [basis.SENT, 2]


def test_quantiles_of_clients_merge_to_those_of_all() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal((n, 1)) * s for n, s in ((2000, 1), (500, 5), (100, 0.1))]
    grid = basis.merge([basis.quantiles(v) for v in parts], 1)
    below = (np.concatenate(parts)[:, 0] <= grid).mean(1)
    assert np.abs(below - (np.arange(basis.GRID) + 0.5) / basis.GRID).max() < 0.03


def arrays(x: Any, y: Any, client: Sequence[str], **more: Any) -> Federation:
    return Federation.from_arrays(torch.as_tensor(x), torch.as_tensor(y), client, **more)


RNG = np.random.default_rng(2)
ODD: Mapping[str, Federation] = {
    "one client": arrays(RNG.standard_normal((60, 3)).astype("float32"), RNG.integers(0, 2, 60), ["a"] * 60),
    "a client of one row": arrays(RNG.standard_normal((61, 3)).astype("float32"), RNG.integers(0, 2, 61),
                                  ["a"] * 30 + ["b"] * 30 + ["c"]),
    "one label": arrays(RNG.standard_normal((60, 3)).astype("float32"), np.zeros(60, np.int64), ["a", "b"] * 30),
    "no label in common": arrays(RNG.standard_normal((80, 3)).astype("float32"), np.repeat([0, 1], 40),
                                 ["a"] * 40 + ["b"] * 40),
    "numbers": arrays(RNG.standard_normal((90, 3)).astype("float32"), RNG.standard_normal(90).astype("float32"),
                      ["a", "b", "c"] * 30),
    "many targets": arrays(RNG.standard_normal((60, 3)).astype("float32"),
                           RNG.standard_normal((60, 2)).astype("float32"), ["a", "b"] * 30),
    "no features": arrays(np.zeros((60, 0), "float32"), RNG.integers(0, 2, 60), ["a", "b"] * 30),
    "constant features": arrays(np.ones((60, 2), "float32"), RNG.integers(0, 2, 60), ["a", "b"] * 30),
    "images": arrays(RNG.integers(0, 255, (60, 3, 9, 9)).astype("uint8"), RNG.integers(0, 2, 60), ["a", "b"] * 30),
    "one time": arrays(RNG.standard_normal((60, 3)).astype("float32"), RNG.integers(0, 2, 60), ["a", "b"] * 30,
                       time=torch.ones(60).double()),
    "wide": arrays(RNG.standard_normal((60, 400)).astype("float32"), RNG.integers(0, 2, 60), ["a", "b"] * 30),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_federations_have_a_profile(name: str) -> None:
    found = profile(ODD[name])
    json.dumps(found.row(), allow_nan=False)
    assert found.top == {"no label in common": "label", "a client of one row": "quantity"}.get(name, "iid")


def test_clients_without_rows() -> None:
    fed = ODD["one label"]
    empty = torch.zeros(0, dtype=torch.int64)
    train, validation, test = ((*p, empty) for p in (fed.train, fed.validation, fed.test))
    fed = replace(fed, clients=(*fed.clients, "c"), train=train, validation=validation, test=test)
    found = profile(fed)
    assert found.clients[2].flags == ("empty",)
    assert found.clients[2].rows == 0


def known(name: str, **keys: object) -> Federation:
    if not (DATA / name).is_dir():
        pytest.skip(f"FEDROUTE_DATA has no {name}")
    return load_federation({"source": "registry", "name": name} | keys)


def test_heart4() -> None:
    found = profile(known("heart4"))
    assert found.parts[:2] == ("feature", "label")
    assert found.skew["label"].numbers["tv"] == pytest.approx(0.335, abs=0.01)
    assert found.skew["feature"].numbers["auc"] == pytest.approx(0.977, abs=0.02)
    by = {c.name: c for c in found.clients}
    assert "nearly_one_class" in by["switzerland"].flags
    assert [n for n, c in by.items() if "absent_columns" in c.flags] == ["hungarian", "switzerland", "va"]
    assert by["switzerland"].missing["chol"] == 1
    assert sum(c.exact for c in by.values()) == 2
    assert {c.name: c.absent for c in found.missing if c.absent} == {"chol": (2,), "ca": (1, 2, 3)}


def test_gas_drift_whose_clients_are_its_periods() -> None:
    found = profile(known("gas_drift", time="batch"), health=False)
    assert found.top == "time"
    numbers = found.skew["time"].numbers
    assert numbers["kinds"] == ["feature", "label"] or numbers["kinds"] == ["feature"]
    assert numbers["vanished"] == [{"label": "Toluene", "from": 3.0, "to": 6.0}]
    assert found.skew["time"].strength > 0.9


def test_gas_drift_dealt_to_clients_at_random() -> None:
    fed = known("gas_drift", client=None, time="batch", partition={"method": "iid", "clients": 6})
    found = profile(fed, health=False)
    assert (found.top, found.parts) == ("time", ("time",))


def test_ist_stroke_by_hospital() -> None:
    found = profile(known("ist_stroke", client="hospital"), health=False)
    assert found.skew["feature"].numbers["auc"] == pytest.approx(0.80, abs=0.06)  # by 60 pairs of hospitals
    assert found.skew["quantity"].numbers["gini"] == pytest.approx(0.57, abs=0.02)
    assert found.coverage.row(found.labels)["clients"]["tiny"] > 200


def test_beijing_air_has_seasons_and_drift() -> None:
    found = profile(known("beijing_air"), health=False)
    assert found.skew["label"].numbers["tv"] == pytest.approx(0.05, abs=0.01)
    assert found.skew["label"].verdict == "mild"
    assert found.skew["time"].numbers["season"]["name"] == "year"
    assert found.skew["time"].strength < found.skew["time"].numbers["with_season"]
    assert found.skew["quantity"].verdict == "none"


def test_few_rows_do_not_make_a_promise_about_meaning() -> None:
    """Where much could be missed and not be seen, the words say so, in both languages, with the number."""
    nothing = np.array([0.0, np.nan])
    for high, promised in ((0.1, True), (0.75, False)):
        meaning = Meaning(0.0, (0.0, high), 0.5, 0.5, 0.5, nothing, nothing)
        said = sentences.of_concept("none", meaning, ["a", "b"], 0.9, False, False)
        assert ("As far as their rows can tell" in said["en"]) == promised
        assert (" 75 %" in said["en"]) == (not promised)
        assert ("75 %" in said["zh"]) == (not promised)


@pytest.mark.parametrize(
    ("p", "strength", "words"),
    [
        (0.003, 0.077, ("likely and not sure (p = 0.003", "很可能有差异")),
        (0.0001, 0.03, ("differs, and too little to matter", "小到无关紧要")),
        (0.2, 0.01, ("mixed alike at all clients", "标签构成相同")),
    ],
)
def test_labels_are_called_alike_only_where_nothing_speaks_against_it(
    p: float, strength: float, words: tuple[str, str]
) -> None:
    found = LabelMix(strength, (0.0065, 0.147), p, 0.13, 0.05, 0.3, 0.01, np.ones(3))
    v = level("label", strength, p)
    counts = np.array([[300, 48, 52], [190, 30, 0], [75, 15, 0]])
    said = sentences.of_label(v, found, counts, ["ja", "nein", "schwer"], ["a", "b", "c"], False)
    assert v == "none"
    assert words[0] in said["en"]
    assert words[1] in said["zh"]
