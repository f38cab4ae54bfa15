"""The diagnosis is right in worlds where it is known: a few draws of each (benchmarks/profile_worlds has a hundred)."""

import numpy as np
import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.profile.profile import profile
from tests.profile.worlds import KINDS, MIXTURES, world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_top_diagnosis_is_right(kind: str, seed: int) -> None:
    found = profile(world(kind, seed=seed), health=False)
    assert found.top == kind
    assert set(found.parts) == {kind} - {"iid"}


@pytest.mark.parametrize("kinds", MIXTURES, ids=" and ".join)
def test_mixtures_name_both(kinds: tuple[str, str]) -> None:
    found = profile(world(*kinds, seed=3), health=False)
    assert set(kinds) <= set(found.parts)
    assert found.top in kinds


def test_clients_that_are_stretches_of_time() -> None:
    """What differs between clients without a time in common is called drift, and that it could be else is said."""
    rows = world("time", seed=4)
    sliced = Federation.from_arrays(rows.x, rows.y, partition={"method": "time", "clients": 8}, time=rows.time)
    found = profile(sliced, health=False)
    assert found.top == "time"
    assert found.skew["feature"].verdict == "unknown"
    assert "cannot be told from drift" in found.skew["time"].sentences["en"]
    assert any(abs(t - 600) < 40 for t in found.skew["time"].numbers["changes"])


def test_a_season_is_told_and_is_no_skew() -> None:
    rng = np.random.default_rng(5)
    t = rng.uniform(0, 1000, 3000)
    x = rng.standard_normal((3000, 5)) + np.outer(np.sin(2 * np.pi * t / 270), [1.0, 0, 0.5, 0, 0])
    fed = Federation.from_arrays(
        torch.from_numpy(x).float(), torch.from_numpy(rng.integers(0, 3, 3000)), [f"c{i % 6}" for i in range(3000)],
        time=torch.from_numpy(t),
    )  # fmt: skip
    found = profile(fed, health=False)
    assert found.top == "iid"
    season = found.skew["time"].numbers["season"]
    assert season["period"] == pytest.approx(270, rel=0.05)
    assert found.skew["time"].numbers["with_season"] > 0.1
    assert "not drift" in found.skew["time"].sentences["en"]


def test_labels_given_by_another_limit_are_a_concept() -> None:
    """The same rows everywhere, but each client calls another share of them ill."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((4000, 4))
    who = np.arange(4000) % 8
    y = (x @ [1.5, -1, 0, 0] + 0.4 * rng.standard_normal(4000) > np.linspace(-1.5, 1.5, 8)[who]).astype(np.int64)
    fed = Federation.from_arrays(torch.from_numpy(x).float(), torch.from_numpy(y), [f"c{i}" for i in who])
    found = profile(fed, health=False)
    assert (found.top, found.parts) == ("concept", ("concept",))
    assert found.skew["label"].present  # the labels do differ: it is a consequence, not a part


def test_copies_make_no_skew() -> None:
    """A client whose rows are written twenty times is not unlike the others."""
    rows = world("iid", seed=7)
    mine = torch.cat([rows.train[0], rows.validation[0], rows.test[0]])[:40]
    others = torch.cat([torch.cat([rows.train[i], rows.validation[i], rows.test[i]]) for i in range(1, 10)])
    index = torch.cat([mine.repeat(20), others])
    names = ["c0"] * 800 + [rows.clients[int(i)] for i in rows.owner()[others]]
    fed = Federation.from_arrays(rows.x[index], rows.y[index], names)
    found = profile(fed)
    assert not {"feature", "label", "concept"} & set(found.parts)
    c0 = next(c for c in found.clients if c.name == "c0")
    assert (c0.rows, c0.effective) == (800, 40)
    assert "copies" in c0.flags
