"""profile.html and the words on a terminal, in two languages."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedroute.advise.proof import concluded
from fedroute.advise.rules import advise
from fedroute.advise.words import DO, TITLES
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.profile.profile import profile
from fedroute.report.profile_page import language, profile_page, write_advice, write_profile
from fedroute.report.profile_words import LANGUAGES, flags, told, words
from tests.advise.rows import client as one_client
from tests.advise.rows import profile as made_up
from tests.profile.worlds import world
from tests.report.html import Page

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    fed = world("label", "time", seed=21)
    names = [EVIL if c == "client 3" else c for c in (fed.clients[int(i)] for i in fed.owner())]
    evil = Federation.from_arrays(fed.x, fed.y, names, labels=["甲", EVIL, "c", "d"], time=fed.time)
    row: dict[str, Any] = json.loads(json.dumps(profile(evil, health=False).row()))
    return row


def pages(found: dict[str, Any]) -> Iterator[Page]:
    for lang in LANGUAGES:
        yield Page(profile_page(found, lang))


def test_the_page_is_whole_and_loads_nothing(found: dict[str, Any]) -> None:
    for page in pages(found):
        assert page.count("svg") == 3  # labels, features, time
        assert not [v for v in page.loaded() if not v.startswith("data:")]
        assert page.count("img") == 0  # names are text
        assert EVIL in page.text
        assert "{{" not in page.text


def test_languages_have_the_same_words(found: dict[str, Any]) -> None:
    assert set(words("en")) == set(words("zh"))
    chinese = Page(profile_page(found, "zh")).text
    for s in found["skew"].values():
        assert s["sentences"]["zh"] in chinese
        assert re.search(r"[\u4e00-\u9fff]", s["sentences"]["zh"])
    with pytest.raises(InputError, match="--lang: 'de' is not there; it is en or zh"):
        language("de")


def test_pictures_show_every_client_and_the_change(found: dict[str, Any]) -> None:
    page = profile_page(found)
    for client in found["clients"]:
        assert client["name"][:13].replace("<", "&lt;") in page
    assert page.count("stroke-dasharray:4 3") == len(found["skew"]["time"]["changes"]) >= 1


def test_many_clients_and_no_time() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(1200, 3, generator=rng), torch.randint(0, 2, (1200,), generator=rng)
    fed = Federation.from_arrays(x, y, [f"c{i % 60:02d}" for i in range(1200)])
    row = profile(fed, health=False).row()
    page = Page(profile_page(row))
    assert "time: ..." in page.text
    assert page.count("svg") == 2
    assert told(row).count("rows") > 30
    assert "30 more; --json has all" in told(row)


def test_the_terminal_says_the_diagnosis_and_each_verdict(found: dict[str, Any]) -> None:
    for lang in LANGUAGES:
        text = told(found, lang)
        assert text.startswith(f"{found['federation']}: {found['sentences'][lang]}")
        for s in found["skew"].values():
            assert s["sentences"][lang] in text


def test_flags_are_said_in_words() -> None:
    client = {"flags": ["tiny", "missing_labels"], "lacks": ["a", "b", "c", "d", "e"]}
    assert flags(client, words("en")) == ["tiny", "lacks labels: a, b, c, d, ..."]


def test_a_page_goes_to_a_folder_or_a_file(found: dict[str, Any], tmp_path: Path) -> None:
    assert write_profile(found, tmp_path / "new") == tmp_path / "new" / "profile.html"
    path = write_profile(found, tmp_path / "p.html", "zh")
    assert 'lang="zh-CN"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_an_advice_stands_above_its_profile(found: dict[str, Any], lang: str, tmp_path: Path) -> None:
    one = {"a": 40}
    clients = [one_client(f"c{i}") for i in range(4)] + [one_client(EVIL, 40, "one_class", labels=one)]
    a = advise(made_up(clients, label=0.4, mix=0.7), {"name": "mlp"}, False)
    rows = {k: {"c": np.full((1, 50), v)} for k, v in ((a.label, 1.0), ("alone", 0.0))}
    means = {a.label: [1.0], "alone": [0.0]}
    proof = concluded({k: {} for k in rows}, means, rows, metric="accuracy", higher=True, rounds=3, ratio=0.5)
    a = replace(a, profile=found).proven(proof)
    path = write_advice(a, tmp_path, lang)
    assert path == tmp_path / "advice.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert page.count("img") == 0  # names are text
    assert page.count("table") == Page(profile_page(found, lang)).count("table") + 1  # the proof
    text = page.text
    for s in (*a.why, *a.would_change_mind, a.cost["words"], a.runner_up_why, a.router_why, proof.words):
        assert " ".join(s.of(lang).split()) in text
    assert [c.client for c in a.personal] == [EVIL]
    assert f"{EVIL} ({DO[a.personal[0].do].of(lang)})" in text
    assert text.index(TITLES["advice"].of(lang)) < text.index(words(lang)["pictures"])
    assert "weighting: {by: examples}" in text
    with pytest.raises(InputError, match="saved profile"):
        write_advice(replace(a, profile=None), tmp_path)
