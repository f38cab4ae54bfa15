"""Each client alone, after the rounds: what was trained is not lost when the run is stopped there."""

from pathlib import Path
from typing import Any

import pytest

from fedroute import fit
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.run import Run

ALONE = "checkpoint-alone"


def go(
    federation: Federation, out: Path, stop: int = 0, heard: list[tuple[str, int]] | None = None, **more: Any
) -> Run:
    def progress(phase: str, done: int, *_: object) -> None:
        if heard is not None:
            heard.append((phase, done))
        if phase == "alone" and done == stop:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"rounds": 7, "lr": 0.1, "engine": "sequential", "clients_per_round": 0.7} | more
    return fit(federation, "mlp", "ditto", out=out, progress=progress, log=lambda text: None, **options)


@pytest.mark.parametrize("newcomers", [False, True])
def test_it_goes_on_where_it_stopped_to_the_same_end(federation: Federation, tmp_path: Path, newcomers: bool) -> None:
    f = federation.with_newcomers(["b"]) if newcomers else federation
    whole = go(f, tmp_path / "whole")
    assert not (tmp_path / "whole" / ALONE).exists()
    with pytest.raises(KeyboardInterrupt):
        go(f, tmp_path / "run", stop=4)
    assert (tmp_path / "run" / ALONE).is_dir()
    heard = list[tuple[str, int]]()
    again = go(f, tmp_path / "run", heard=heard, resume=True)
    assert heard == [("alone", r) for r in (5, 6, 7)]
    assert again.ledger.summary() == whole.ledger.summary()
    assert again.summary()["weights_sha256"] == whole.summary()["weights_sha256"]
    assert not (tmp_path / "run" / ALONE).exists()


def test_by_its_checkpoints_it_also_survives_a_kill(federation: Federation, tmp_path: Path) -> None:
    """Those that are due, of which a kill leaves the newest."""
    found = list[list[str]]()

    def progress(phase: str, done: int, *_: object) -> None:
        folder = tmp_path / "run" / ALONE
        if phase == "alone":
            found.append(sorted(p.name for p in folder.iterdir()) if folder.exists() else [])

    fit(
        federation, "mlp", rounds=5, lr=0.1, checkpoint_every=2, engine="sequential", out=tmp_path / "run",
        progress=progress, log=lambda text: None,
    )  # fmt: skip
    assert found == [[], [], ["00000002-0"], ["00000002-0"], ["00000002-0", "00000004-0"]]


def test_a_new_run_in_the_folder_does_not_go_on_with_it(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(federation, tmp_path / "run", stop=3)
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "gone")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    heard = list[tuple[str, int]]()
    go(federation, tmp_path / "run", heard=heard)
    assert heard == [(phase, r) for phase in ("train", "alone") for r in range(1, 8)]


def test_it_is_refused_where_the_data_have_changed(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(federation, tmp_path / "run", stop=3)
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "gone")
    with pytest.raises(InputError, match="the checkpoint of another run"):
        go(federation, tmp_path / "run", resume=True, lr=0.2)
