"""Columns that give the answer away, or name the row or the client."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.profile.leaks import explained, suspect_columns
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


def flipped(y: Array, share: float, rng: np.random.Generator) -> Array:
    """y, with exactly that share of each label the wrong way round."""
    wrong = np.concatenate([rng.permutation(np.flatnonzero(y == k))[: round(share * (y == k).sum())] for k in (0, 1)])
    found = y.copy()
    found[wrong] = 1 - found[wrong]
    return found


def entropy(p: float) -> float:
    """In bits, of yes with that probability."""
    return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


@pytest.mark.parametrize("best", [0.1, 0.2])
def test_what_the_others_explain_beside_a_leak(best: float) -> None:
    """A column that is wrong in a share p of rows explains 1 - H(p) of labels that are half and half."""
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 2
    x = np.stack([y, *(flipped(y, p, rng) for p in (0.45, best, 0.45)), rng.integers(0, 2, 6000)], 1)
    (f,) = sick(federation(x + 0.0, y, ("leak", *NAMES[1:]))).leaks
    share = f"{100 * (1 - entropy(best)):.0f} %"
    assert f.column == "leak"
    assert f"leak alone explains 100 % of the label; of the others c alone explains most, {share} (shares" in f.sentence
    assert f"仅 leak 一列就能解释标签的 100 %；其他各列中单独解释最多的是 c，为 {share}（" in f.sentence.zh


def test_others_that_explain_nothing_beside_a_leak() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    x = np.concatenate([y[:, None], rng.normal(size=(2000, 4))], 1)
    (f,) = sick(federation(x, y, NAMES)).leaks
    assert "; no other column alone explains even 1 % (shares" in f.sentence
    assert "；其他任何一列单独解释的都不到 1 %（" in f.sentence.zh


@pytest.mark.parametrize(("rows", "least"), [(600, 0.15), (4000, 0.25)])
def test_a_smooth_column_of_few_rows_explains_something(rows: int, least: float) -> None:
    """Of y = (x + noise > 0) with noise as strong as x, x explains 27.9 % (an integral). Of few rows less of it is
    told, and never nothing; of a column of noise next to nothing."""
    rng = np.random.default_rng(0)
    found = np.zeros((40, 2))
    for draw in range(40):
        x = rng.normal(size=(rows, 2))
        y = (x[:, 0] + rng.normal(size=rows) > 0).astype(int)
        half = rng.permutation(rows) % 2
        counts = np.zeros((2, 2, 32, 2), dtype=np.uint32)
        for j in range(2):
            place = np.searchsorted(np.quantile(x[:, j], np.linspace(0, 1, 32)[1:-1]), x[:, j])
            counts[:, j] = np.bincount((half * 32 + place) * 2 + y, minlength=128).reshape(2, 32, 2)
        found[draw] = explained(counts)
    assert least < found[:, 0].mean() < 0.279 + 0.01
    assert found[:, 0].min() > 0.05
    assert found[:, 1].mean() < 0.005


def leaky(rows: int = 1200) -> tuple[Array, Array]:
    """One honest column, three of noise, and two that know the label: wrong in 1 % of rows; there or not."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, 6))
    y = (x[:, 0] + 0.8 * rng.normal(size=rows) > 0).astype(int)
    x[:, 4] = flipped(y, 0.01, rng)
    x[:, 5] = np.where(y == 1, rng.integers(1, 400, rows), -1)
    return x, y


def test_two_columns_that_give_the_answer_away_do_not_hide_each_other() -> None:
    x, y = leaky()
    found = {f.column: f for f in sick(federation(x, y, (*NAMES, "f"))).leaks}
    assert set(found) == {"e", "f"}
    one, other = (f"{100 * found[c].number:.0f} %" for c in "ef")
    assert f"e alone explains {one} of the label; so does f ({other}); of the others a" in found["e"].sentence
    assert f"f alone explains {other} of the label; so does e ({one}); of the others a" in found["f"].sentence
    assert f"f ({other}) 也是如此；其他各列中单独解释最多的是 a" in found["e"].sentence.zh
    x[np.arange(1200) % 3 == 1, 3] = y[np.arange(1200) % 3 == 1]
    third = [f for f in sick(federation(x, y, (*NAMES, "f"))).leaks if f.client]
    assert [(f.column, f.client) for f in third] == [("d", "h1")]


def test_a_leak_at_most_clients_is_compared_with_those_that_do_not_have_it() -> None:
    """Two of three clients have it: what the third and one of them explain together is no measure."""
    x, y = plain(1800)
    leak = np.arange(1800) % 3 != 2
    x[leak, 4] = 3 * y[leak] - 1.5
    found = sick(federation(x, y, NAMES)).leaks
    assert [(f.column, f.client) for f in found] == [("e", "h0"), ("e", "h1")]
    assert all("at the other clients 0 %" in f.sentence for f in found)


@pytest.mark.parametrize(("shares", "suspects"), [
    ((0.99, 0.93, 0.33, 0, 0, 0), [0, 1]), ((0.93, 0.33, 0, 0, 0), [0]), ((0.99, 0.85, 0.33, 0.12, 0, 0, 0), [0, 1]),
    ((0.8, 0.8, 0.3, 0.1, 0, 0), []), ((0.95, 0.8, 0.5, 0.1, 0, 0), []), ((0.95, 0.9, 0.8, 0.2, 0.1), []),
    ((0.95, 0.8, 0.7, 0.6, 0.5), []), ((0.95, 0.95), []), ((0.66, 0.6, 0.5, 0.1), []),
])  # fmt: skip
def test_many_good_columns_are_no_leaks(shares: tuple[float, ...], suspects: list[int]) -> None:
    assert suspect_columns(np.array(shares)).tolist() == suspects


@pytest.mark.parametrize("number", [False, True])
def test_the_unit_is_said(number: bool) -> None:
    x, y = leaky()
    fed = federation(x, y, (*NAMES, "f"))
    if number:
        values = x @ [1, 1, 1, 0, 0, 0] + np.random.default_rng(0).normal(size=len(x))
        x[:, 4] = 2 * values
        names = [f"h{i % 3}" for i in range(len(x))]
        fed = Federation.from_arrays(
            torch.tensor(x).float(), torch.tensor(values).float(), names, columns=(*NAMES, "f")
        )
    f = sick(fed).leaks[0]
    cut = ", a number cut into 8 bands" if number else ""
    assert f.unit == f"share of the labels' entropy{cut}"
    assert f"(shares of the label's entropy{cut}: how much less there is left to guess)" in f.sentence
    assert "占标签熵的比例" in f.sentence.zh
    assert ("数值标签分为 8 段" in f.sentence.zh) == number
