"""Columns that give the answer away, or name the row or the client."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.profile.leaks import explained
from fedroute.profile.sick import sick

Array = NDArray[Any]


def plain(rows: int = 600, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 5))
    return x, ((x @ [1, 1, 0.5, 0.5, 0] + rng.normal(size=rows)) > 0).astype(int)


def federation(x: Array, y: Array, columns: tuple[str, ...], clients: int = 3) -> Federation:
    names = [f"h{i % clients}" for i in range(len(x))]
    return Federation.from_arrays(torch.tensor(x).float(), torch.tensor(y), names, columns=columns)


NAMES = ("a", "b", "c", "d", "e")


def test_plain_columns_are_no_leaks() -> None:
    assert not sick(federation(*plain(), NAMES)).findings


@pytest.mark.parametrize("noise", [0, 0.05])
def test_a_column_made_from_the_answer(noise: float) -> None:
    x, y = plain()
    x[:, 2] = 3 * y + noise * np.random.default_rng(1).normal(size=len(y))
    (f,) = sick(federation(x, y, NAMES)).leaks
    assert (f.column, f.client, f.severity) == ("c", None, "severe")
    assert f.number > 0.9
    assert "drop: [c]" in f.mend


def test_a_column_made_from_the_answer_at_one_client_only() -> None:
    x, y = plain(900)
    at = np.arange(900) % 3 == 1
    x[at, 2] = 3 * y[at] - 1.5
    (f,) = sick(federation(x, y, NAMES)).leaks
    assert (f.column, f.client, f.severity) == ("c", "h1", "severe")
    assert "at h1" in f.sentence


@pytest.mark.parametrize(("name", "found"), [("died14", True), ("discharge_days", True), ("出院天数", True),
                                            ("strength", False), ("poststamp", False)])  # fmt: skip
def test_a_name_that_comes_after_the_outcome(name: str, found: bool) -> None:
    """The same numbers, somewhat more telling than the rest, under two sorts of names."""
    x, y = plain()
    x[:, 4] = y + 0.6 * np.random.default_rng(2).normal(size=len(y))
    leaks = sick(federation(x, y, (*NAMES[:4], name))).leaks
    assert [f.column for f in leaks] == [name] * found
    assert all("known only afterwards" in f.sentence for f in leaks)


def test_a_number_to_predict_leaks_too() -> None:
    x, _ = plain()
    y = x @ [1, 1, 0.5, 0.5, 0] + np.random.default_rng(0).normal(size=len(x))
    assert not sick(federation(x, y, NAMES)).leaks
    x[:, 4] = y * 2 + 1
    assert [f.column for f in sick(federation(x, y, NAMES)).leaks] == ["e"]


def test_an_identifier_and_a_column_that_names_the_client() -> None:
    x, y = plain()
    x[:, 3] = np.random.default_rng(3).permutation(600) + 1000
    x[:, 4] = np.arange(600) % 3 + 7
    found = {f.column: f for f in sick(federation(x, y, NAMES)).findings}
    assert set(found) == {"d", "e"}
    assert found["d"].kind == "an identifier"
    assert found["e"].kind == "a column that names the client"
    assert {f.mend.partition(",")[0] for f in found.values()} == {"`drop: [d]`", "`drop: [e]`"}


def test_an_identifier_that_was_left_out_when_read_is_told(tmp_path: Path) -> None:
    lines = "".join(f"{700 + i},{i % 7},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "a.csv").write_text("patient_id,v,ill\n" + lines)
    spec = {"source": "csv", "path": "a.csv", "label": "ill", "partition": {"method": "iid", "clients": 2}}
    found = sick(load_federation(spec, base=tmp_path)).findings
    (f,) = [f for f in found if f.kind == "an identifier"]
    assert (f.column, f.severity) == ("patient_id", "note")


def test_share_of_entropy_is_none_for_noise_and_all_for_the_answer() -> None:
    rng = np.random.default_rng(0)
    y, noise = rng.integers(0, 3, 4000), rng.integers(0, 31, 4000)
    counts = np.zeros((2, 2, 32, 3), dtype=np.uint32)
    for half in (0, 1):
        part = slice(half, None, 2)
        for j, bins in enumerate((noise, y)):
            counts[half, j] = np.bincount(bins[part] * 3 + y[part], minlength=96).reshape(32, 3)
    none, everything = explained(counts).tolist()
    assert none == 0
    assert everything > 0.99
