"""Findings in two languages, as text, in JSON, on the page and on a terminal."""

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.profile.finding import listed
from fedroute.profile.profile import profile
from fedroute.profile.units import IN_CHINESE, UNITS
from fedroute.report.profile_page import content, profile_page
from fedroute.report.profile_words import told
from fedroute.said import say
from tests.profile.languages import same
from tests.report.html import Page


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Five clients: one in another unit, one of one class, one of copies, one that writes 999 for no value."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4)) + 10
    owner = np.arange(900) % 5
    y = (x[:, 0] > 10).astype(int)
    x[owner == 1, 1] *= 1000
    y[owner == 2] = 0
    at = np.flatnonzero(owner == 3)
    x[at[90:]], y[at[90:]] = x[at[:90]], y[at[:90]]
    x[owner == 4, 3] = 999
    fed = Federation.from_arrays(
        torch.tensor(x).float(), torch.tensor(y), [f"hospital {i}" for i in owner], columns=("p", "q", "r", "s")
    )
    row: dict[str, Any] = json.loads(json.dumps(profile(fed).row()))
    return row


def test_the_chinese_page_and_terminal_show_no_english_finding(found: dict[str, Any]) -> None:
    assert len({f["kind"] for f in found["sick"]}) >= 4
    page, terminal = Page(profile_page(found, "zh")).text, told(found, "zh")
    for f in found["sick"]:
        for said in (f["sentences"], f["mends"]):
            assert said["zh"] in page
            assert said["zh"] in terminal
            assert said["en"] not in page
            assert said["en"] not in terminal
    assert all(f in found["sick"] for f in found["leaks"])


def test_the_english_page_and_terminal_are_in_english(found: dict[str, Any]) -> None:
    page, terminal = Page(profile_page(found)).text, told(found)
    for f in found["sick"]:
        assert f["sentence"] == f["sentences"]["en"]
        assert f["mend"] == f["mends"]["en"]
        for said in (f["sentences"], f["mends"]):
            assert said["en"] in page
            assert said["en"] in terminal
            assert said["zh"] not in page


def test_json_without_languages_is_shown_in_english(found: dict[str, Any]) -> None:
    plain = found | {"sick": [{k: v for k, v in f.items() if k not in ("sentences", "mends")} for f in found["sick"]]}
    assert [f["sentence"] for f in content(plain, "zh")["sick"]] == [f["sentence"] for f in found["sick"]]


def test_every_unit_has_its_chinese() -> None:
    units = {u.here for u in UNITS}
    assert {u for u in units if u not in IN_CHINESE} == {"km/h", "m/s", "mg/dl"}  # signs
    assert set(IN_CHINESE) <= units
    assert not [same(say(u, zh), []) for u, zh in IN_CHINESE.items() if same(say(u, zh), [])]


def test_a_text_in_two_languages_is_its_english() -> None:
    said = say("a", "甲")
    assert said == "a"
    assert type(str(said)) is str
    for again in (copy.deepcopy(said), pickle.loads(pickle.dumps(said))):
        assert (again, again.zh) == ("a", "甲")
    assert listed(list("abcdef")).zh == "a、b、c、d 和另外 2 个"
    assert listed(["a", "b"]).zh == "a、b"


def test_a_translation_that_loses_something_is_caught() -> None:
    right = say("h1 has 1,204 rows: `drop: [c]`", "h1 有 1,204 条：`drop: [c]`")
    assert not same(right, ["h1"])
    for zh in ("h2 有 1,204 条：`drop: [c]`", "h1 有 1,205 条：`drop: [c]`", "h1 有 1,204 条：`drop: [d]`", str(right)):
        assert same(say(str(right), zh), ["h1"])
