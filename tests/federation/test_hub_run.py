"""The run of a hub: what cannot be done with its folder is refused with what to do instead."""

import json
from pathlib import Path

import pytest

from fedroute.errors import InputError
from fedroute.hub_run import hub_of
from fedroute.jobs import resume, route
from fedroute.router.router import Router
from fedroute.run_directory import RunDirectory
from tests.federation.whole import Whole, config


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = Whole(tmp_path_factory.mktemp("ended"))
    whole.hub(config(rounds=1)).run()
    return whole.root / "run"


def a_hub(folder: Path, run: str = "run") -> Path:
    (folder / run).mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps({"kind": "hub", "gateway": None}))
    (folder / run / "config.yaml").write_text("seed: 0\n")
    return folder / run


def test_the_models_of_a_hub_are_at_its_sites(tmp_path: Path) -> None:
    run = a_hub(tmp_path / "hub")
    (run / "guide.safetensors").write_bytes(b"")
    for ended in (False, True):
        if ended:
            (run / "summary.json").write_text("{}")
        for folder in (run, run.parent):
            with pytest.raises(InputError, match=r"models stay at the sites: ask the hub's gateway.*/v1/predict") as e:
                Router.load(folder)
            assert f"`fedroute hub status {run.parent}`" in str(e.value)
            assert "resume" not in str(e.value)
    with pytest.raises(InputError, match="ask the hub's gateway"):
        route(run, tmp_path / "q.csv")


def test_a_hub_without_a_router_is_told_how_to_have_one(ended: Path) -> None:
    with pytest.raises(InputError, match=r"without a router: stop the hub, put `router: auto` into .*--new-run"):
        Router.load(ended)


def test_only_the_hub_goes_on_with_its_run(tmp_path: Path) -> None:
    run = a_hub(tmp_path / "hub", "run-2")
    with pytest.raises(InputError, match=rf"only that goes on with it: `fedroute hub start {run.parent}`"):
        resume(run, progress=lambda *a: None, log=lambda text: None)
    with pytest.raises(InputError, match="only that goes on with it"):
        RunDirectory(run).read_summary()


def test_what_merely_lies_in_a_hubs_folder_is_none_of_its_runs(tmp_path: Path) -> None:
    assert hub_of(a_hub(tmp_path / "hub", "simulated")) is None
    assert hub_of(a_hub(tmp_path / "hub2", "run-1")) == tmp_path / "hub2"
    assert hub_of(tmp_path) is None
