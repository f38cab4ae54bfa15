"""The report's page about routing: what was measured and no more, in words that the numbers bear."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute.report import write
from fedroute.report.routing_view import BASELINES, RULES, content, verdict
from fedroute.router.measure import routing
from fedroute.router.rules import RULES as ALL
from tests.report.html import Page
from tests.report.runs import run_dir, summary
from tests.router.worlds import differing

NAMES = ["cleveland", "hungarian", "<b>swiss</b>", "va", '"><script>']


def measured(clients: int = 5, rows: int = 600, **options: Any) -> dict[str, Any]:
    world = differing(clients=clients)
    x, owner, y = world.draw(rows)
    scores = world.scores(x)._replace(common=torch.full((rows, 4), 0.25).double().log())
    found = routing(scores, owner, y, best=1, **options)
    found["clients"] = [NAMES[i] if i < len(NAMES) else f"site {i:03d}" for i in range(clients)]
    found["best_single"] = "hungarian"
    return found


def told(tmp_path: Path, found: dict[str, Any] | None) -> Page:
    path = run_dir(tmp_path / "run", NAMES)
    if found is not None:
        s = summary(path)
        s["routing"] = found
        (path / "summary.json").write_text(json.dumps(s))
    return Page(write(path).read_text(encoding="utf-8"))


def test_every_rule_has_words_and_every_baseline_is_one() -> None:
    assert RULES.keys() == ALL.keys()
    assert {r for r, rule in ALL.items() if rule.baseline} - {"oracle"} == {*BASELINES}


def test_a_run_with_a_router_has_the_page_and_one_without_has_not(tmp_path: Path) -> None:
    assert "Routing" not in told(tmp_path / "a", None).text
    found = measured() | {"pays": "yes"}
    text = told(tmp_path / "b", found).text
    for word in ("Routing ▲ pays", "System accuracy: 600 test rows", "the client whose query it is", "in use"):
        assert word in text, word
    for rule, share in found["system_accuracy"].items():
        low, high = found["intervals"][rule]
        assert f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]" in text


def test_the_confusion_stands_owner_by_client(tmp_path: Path) -> None:
    found = measured()
    page = told(tmp_path, found)
    titles = [a["title"] for t, a in page.tags if t == "td" and " to " in a.get("title", "")]
    assert len(titles) == 25
    for i, row in enumerate(found["confusion"]):
        for k, n in enumerate(row):
            assert titles[5 * i + k].startswith(f"{NAMES[i]} to {NAMES[k]}: {n}, ")


def test_hostile_names_are_text_here_too(tmp_path: Path) -> None:
    page = told(tmp_path, measured())
    assert page.count("script") == 1
    assert "<b>swiss</b>" in page.text


def test_many_clients_are_a_picture(tmp_path: Path) -> None:
    found = measured(clients=60)
    page = told(tmp_path, found)
    assert any("data:image/png" in a.get("src", "") for t, a in page.tags if t == "img")
    assert not [a for t, a in page.tags if t == "td" and " to " in a.get("title", "")]


def test_the_verdict_says_what_the_interval_says() -> None:
    found = measured()
    found |= {"pays": "no", "baseline": "global", "rule": "posterior"}
    found["system_accuracy"] |= {"posterior": 0.6, "global": 0.7, "oracle": 0.9, "best_single": 0.5}
    found["against"] = {"global": [-0.1, -0.13, -0.07], "best_single": [0.1, 0.05, 0.15]}
    said = verdict(found).replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith("Routing does not pay here: posterior answers 60.0 % of 600 outside queries rightly")
    assert "the global model 70.0 % (\N{MINUS SIGN}10.0 points [\N{MINUS SIGN}13.0, \N{MINUS SIGN}7.0])" in said
    assert "the best single client (hungarian) 50.0 % (+10.0 points [+5.0, +15.0])" in said
    assert "Take the global model instead." in said
    assert "90.0 % would be right" in said
    found["pays"] = "unclear"
    assert verdict(found).startswith("It is not shown that routing pays here")
    assert "instead" not in verdict(found)
    found["pays"] = "yes"
    assert verdict(found).startswith("Routing pays here")
    del found["system_accuracy"]["global"]
    assert "no global model to compare with" in verdict(found)


@pytest.mark.parametrize("key", sorted(measured(rows=30)))
def test_any_key_may_be_missing(tmp_path: Path, key: str) -> None:
    found = copy.deepcopy(measured(rows=30))
    del found[key]
    assert "cleveland" in told(tmp_path, found).text


def test_no_test_rows_are_no_numbers(tmp_path: Path) -> None:
    found = measured(rows=1)
    world = differing()
    x, owner, y = world.draw(1)
    none = routing(world.scores(x[:0]), owner[:0], y[:0])
    assert "There are no test rows to say whether routing pays." in verdict(none)
    assert "There are no test rows" in told(tmp_path, none | {"clients": found["clients"]}).text


def test_abstentions_are_told() -> None:
    found = measured()
    found["abstain"] = {"alpha": 0.05, "share": 0.04, "accuracy_of_answered": 0.9, "accuracy_of_abstained": 0.5}
    view = content(found, found["clients"])
    assert view
    said = view["abstained"].replace("\N{NO-BREAK SPACE}", " ")
    assert "at most 5.0 % of known ones" in said
    assert "of the test rows 4.0 %, and 90.0 % of those answered were right, 50.0 % of those turned away" in said
