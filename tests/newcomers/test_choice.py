"""Who is a newcomer, and that nothing of a newcomer is seen before the end."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.rig import classes, network
from fedroute.checkpoint import fingerprint
from fedroute.config import Training
from fedroute.data.load import load_federation
from fedroute.data.newcomers import choose_newcomers
from fedroute.errors import InputError
from fedroute.rounds import prepare, work_of_round


@given(st.lists(st.integers(0, 9), min_size=2, max_size=30), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_share_leaves_somebody_to_train_and_depends_on_names_alone(sizes: list[int], share: float, seed: int) -> None:
    names = [f"client {i}" for i in range(len(sizes))]
    present = [i for i, n in enumerate(sizes) if n]
    if len(present) < 1:
        return
    chosen = choose_newcomers(share, names, torch.tensor(sizes), seed)
    assert chosen == tuple(sorted(set(chosen)))
    assert set(chosen) < set(present)
    assert len(chosen) == min(max(1, round(share * len(sizes))), len(present) - 1)
    backwards = choose_newcomers(share, names[::-1], torch.tensor(sizes[::-1]), seed)
    assert {names[i] for i in chosen} == {names[::-1][i] for i in backwards}


def test_names_are_taken_as_they_are_and_wrong_ones_are_told_with_the_nearest() -> None:
    sizes = torch.tensor([5, 5, 0])
    assert choose_newcomers(["b"], ["a", "b", "c"], sizes, 0) == (1,)
    with pytest.raises(InputError, match=r"federation.newcomers: .*'cleavland'.*did you mean 'cleveland'"):
        choose_newcomers(["cleavland"], ["cleveland", "va"], sizes, 0)
    with pytest.raises(InputError, match="nobody is left to train"):
        choose_newcomers(["a", "b"], ["a", "b", "c"], sizes, 0)
    with pytest.raises(InputError, match="no share"):
        choose_newcomers(1.5, ["a", "b", "c"], sizes, 0)


def test_newcomers_are_never_chosen_for_a_round() -> None:
    federation = classes([10, 20, 30, 40]).with_newcomers(["c01", "c03"])
    alg = prepare(FedAvg(), network(), Training())
    for sampling, share in (("all", 1.0), ("uniform", 0.5), ("weighted", 1)):
        training = Training(sampling=sampling, clients_per_round=share)  # type: ignore[arg-type]
        for r in range(10):
            assert set(work_of_round(alg, federation, training, 0, r).clients) <= {0, 2}


def test_a_checkpoint_knows_who_the_newcomers_are() -> None:
    federation, training = classes([10, 20, 30]), Training()
    alg = prepare(FedAvg(), network(), training)
    marks = [
        fingerprint(f, alg, training, 0)["federation"]
        for f in (federation, federation.with_newcomers(["c01"]), federation.with_newcomers(["c02"]))
    ]
    assert len(set(marks)) == 3


def table(folder: Path, wild: float) -> Path:
    rows = ["hospital,age,ill"]
    rows += [
        f"{c},{40 + 3 * i + 7 * (c == 'north')},{'yes' if i % 2 else 'no'}"
        for c in ("north", "south")
        for i in range(20)
    ]
    rows += [f"late,{wild + i},{'yes' if i % 3 else 'no'}" for i in range(20)]
    path = folder / f"{wild}.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_columns_are_scaled_without_the_newcomers_rows(tmp_path: Path) -> None:
    def loaded(wild: float, newcomers: list[str] | None) -> torch.Tensor:
        spec = {"source": "csv", "path": str(table(tmp_path, wild)), "client": "hospital", "label": "ill"}
        federation = load_federation(spec | ({"newcomers": newcomers} if newcomers else {}), 0)
        assert ("late" in " ".join(federation.notes)) == bool(newcomers)
        return federation.x[torch.cat([federation.train[i] for i, c in enumerate(federation.clients) if c != "late"])]

    assert torch.equal(loaded(50.0, ["late"]), loaded(5000.0, ["late"]))
    assert not torch.equal(loaded(50.0, None), loaded(5000.0, None))
