"""A config that was edited while a run is there, a faulty one, and how a new run is begun beside the one before."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedroute.config import Config, from_dict
from fedroute.errors import InputError, RunFailed
from fedroute.federation import lives, supervise
from fedroute.federation.folders import HubFolder
from fedroute.federation.form import without_paths
from fedroute.federation.hub_config import checked_start
from fedroute.federation.inprocess import InProcess
from fedroute.federation.run_before import put_aside
from tests.federation.whole import ROWS, Whole, config

GOOD: dict[str, Any] = {
    "federation": {"source": "csv", "label": "ill"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"},
}  # fmt: skip


def edited(c: Config, **parts: Any) -> Config:
    found = c.resolved()
    for part, of in parts.items():
        found[part] = (found[part] or {}) | of if isinstance(of, dict) else of
    return from_dict(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": {"rounds": 200}}, "training.rounds was 2, is 200. Put"),
        ({"training": {"rounds": 200, "lr": 0.2}}, "training.rounds was 2, is 200; training.lr was 0.1, is 0.2. Put"),
        ({"model": {"hidden": [9]}}, r"model.hidden was \[8\], is \[9\]"),
        ({"algorithm": {"name": "fedprox", "mu": 0.5}}, 'algorithm.name was "fedavg", is "fedprox"; algorithm.mu was'),
        ({"federation": {"label": "sex"}}, 'federation.label was "illness", is "sex"'),
        ({"seed": 3}, "seed was 0, is 3"),
        ({"router": {"kind": "lda"}}, "router"),
        ({"hub": {"sites": ["east", "north"]}}, "hub.sites was"),
        ({"hub": {"asynchronous": {"buffer": 3}}}, "hub.asynchronous was null, is"),
    ],
)  # fmt: skip
def test_a_run_does_not_go_on_by_another_config(change: dict[str, Any], words: str, run: Whole) -> None:
    with pytest.raises(InputError, match=words) as e:
        run.hub(edited(config(rounds=2), **change))
    assert f"fedroute hub start {run.root} --new-run" in str(e.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    whole = Whole(tmp_path_factory.mktemp("run"))
    whole.hub(config(rounds=2)).run()
    return whole


def test_what_does_not_decide_may_change(run: Whole) -> None:
    first = config(rounds=2)
    run.hub(edited(first, hub={"deadline": 5.0, "away": 1.0, "wait": 9.0}))
    run.hub(edited(first, hub={"sites": [*sorted(ROWS, reverse=True)]}))
    run.hub(edited(first, federation={"path": "elsewhere.csv"}))
    (run.root / "run" / "joined.json").write_text(json.dumps({"late": {}}))
    run.hub(edited(first, hub={"sites": [*sorted(ROWS), "late"]}))
    (run.root / "run" / "joined.json").unlink()


def test_a_new_run_is_begun_with_the_same_sites_and_the_old_one_kept(tmp_path: Path) -> None:
    whole, hub = Whole(tmp_path), HubFolder(tmp_path)
    assert put_aside(hub) is None
    whole.hub(config(rounds=2)).run()
    before = {p.relative_to(hub.run): p.read_bytes() for p in hub.run.rglob("*") if p.is_file()}
    assert put_aside(hub) == tmp_path / "run-1"
    assert {
        p.relative_to(tmp_path / "run-1"): p.read_bytes() for p in (tmp_path / "run-1").rglob("*") if p.is_file()
    } == before
    made = whole.hub(config(rounds=1))
    assert made.run()["rounds"] == 1
    assert (made.status()["round"], made.status()["rounds"]) == (1, 1)
    assert put_aside(hub) == tmp_path / "run-2"


def test_before_there_is_an_agreement_the_config_may_change(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    three = InProcess({c: site for c, site in whole.sites.items() if c != "north"})
    with pytest.raises(RunFailed, match="north"):
        whole.hub(config(rounds=2, hub={"wait": 0.3}), three).run()
    whole.hub(config(rounds=1)).run()
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["training"]["rounds"] == 1


def hub_with(root: Path, content: dict[str, Any]) -> HubFolder:
    hub = HubFolder(root)
    hub.keep(host="localhost", port=0, org="hub", gateway=None, tokens=None)
    hub.config.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return hub


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"trainig": {"rounds": 1}}, "trainig"),
        ({"training": {"rounds": 0}}, "training.rounds"),
        ({"algorithm": {"name": "fedprox", "mue": 0.1}}, "mue"),
        ({"hub": {"sites": ["köln"]}}, "hub.*'köln': a-z, A-Z, 0-9, - and _"),
        ({"hub": {"sites": ["server"]}}, "hub.*'server'"),
    ],
)
def test_a_hub_with_a_faulty_config_is_not_started(
    change: dict[str, Any], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    for name in ("start", "supervise"):
        monkeypatch.setattr(supervise, name, lambda folder: pytest.fail("it was started"))
    monkeypatch.setattr(lives, "fault_at", lambda *place: "")
    hub = hub_with(tmp_path, GOOD | change)
    hub.run.mkdir()
    for new in (False, True):
        with pytest.raises(InputError, match=rf"(?s)federation\.yaml.*{key}"):
            lives.begin(hub, False, 1.0, lives.hub_is_up, new)
    assert [*tmp_path.glob("run*")] == [hub.run]
    checked_start(hub_with(tmp_path, GOOD))


def test_the_way_to_a_new_run_is_the_command_s(run: Whole) -> None:
    hub = hub_with(run.root, edited(config(rounds=3)).resolved())
    with pytest.raises(InputError, match=r"training\.rounds was 2, is 3"):
        checked_start(hub)
    checked_start(hub, new_run=True)


def test_a_change_that_sites_must_hear_of_is_said_with_the_rest(tmp_path: Path) -> None:
    """Of a run that is there, of a new one, and before there is any."""
    whole, first = Whole(tmp_path), config(rounds=1)
    given = json.dumps(without_paths(first.federation))
    old = {"org": "org", "key": "aa", "at": "2026-01-01"}  # of an older fedroute, which kept no more
    known = {c: old | {"given": given} for c in ("south", "north")} | {"east": old}
    (tmp_path / "approved.json").write_text(json.dumps(known))
    assert checked_start(hub_with(tmp_path, first.resolved())) == []
    relabelled = edited(first, federation={"label": "sex"}, training={"rounds": 2})
    (note,) = checked_start(hub_with(tmp_path, relabelled.resolved()))
    assert note.startswith("federation.label is not as north, south got it in the zip")
    assert f"`fedroute site approve REQUEST.zip --hub {tmp_path}`" in note
    whole.hub(first).run()
    hub = hub_with(tmp_path, relabelled.resolved())
    with pytest.raises(InputError) as e:
        checked_start(hub)
    assert 'federation.label was "illness", is "sex"' in str(e.value)
    assert "--new-run" in str(e.value)
    assert note in str(e.value)
    assert checked_start(hub, new_run=True) == [note]
    with pytest.raises(InputError) as e:  # what sites need not hear of
        checked_start(hub_with(tmp_path, edited(first, training={"rounds": 2}).resolved()))
    assert "site approve" not in str(e.value)
    assert checked_start(hub_with(tmp_path, edited(first, federation={"path": "other.csv"}).resolved())) == []
