"""The say of clients, with copies and caps, and what is said of it before training."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute import fit
from fedroute.algorithms import make
from fedroute.config import Training
from fedroute.data.distinct import distinct
from fedroute.data.federation import Federation
from fedroute.say import Say, planned, remarks
from fedroute.weighting import Weighting


def effect(f: Federation, weighting: Weighting) -> list[Say]:
    """Of each client, where all answer."""
    return planned(make("fedavg"), f, Training(weighting=weighting), 0, copies=True)


def rows(n: int, seed: int, turned: bool = False) -> tuple[Tensor, Tensor]:
    """Two features; the label is the sign of their sum, or, turned, of their difference."""
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] - x[:, 1] > 0 if turned else x.sum(1) > 0).long()


def copied(times: int) -> Federation:
    """Six clients with 40 rows each under one rule, and one, "a", with 40 under another, each of them `times` times."""
    x, y = rows(40, 99, turned=True)
    parts = [(x.repeat(times, 1), y.repeat(times))] + [rows(40, seed) for seed in range(6)]
    owner = [c for c, (x, _) in zip("abcdefg", parts, strict=True) for _ in x]
    return Federation.from_arrays(
        torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]), owner, labels=("no", "yes")
    )


def test_copies_are_counted_once() -> None:
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    y = torch.tensor([0, 0, 1, 0, 0])
    assert distinct(x, y, torch.arange(5)) == 3  # 0 is -0; the third differs by its label
    assert distinct(x, y, torch.tensor([0, 1, 4])) == 1
    assert distinct(x, y, torch.zeros(0, dtype=torch.int64)) == 0
    images = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    images[3, 0, 0, 0] = 1
    assert distinct(images, torch.zeros(4, dtype=torch.int64), torch.arange(4)) == 2
    assert distinct(x, torch.stack([y.float()] * 2, 1), torch.arange(5)) == 3  # targets of any shape


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_distinct_is_a_set(values: list[int], chunk: int) -> None:
    x, y = torch.tensor(values).float().unsqueeze(1), torch.tensor(values) % 2
    assert distinct(x, y, torch.arange(len(values)), chunk) == len(set(values))


def test_effective_sizes_are_of_training_rows() -> None:
    f = copied(30)
    assert f.sizes("train")[0] > 600
    assert f.effective_sizes[0] <= 40
    assert f.effective_sizes[1:].tolist() == f.sizes("train")[1:].tolist()


def test_a_client_with_30_copies_of_each_row_owns_the_model_no_longer() -> None:
    """By rows "a" has over 80 % of the say, by different rows 40 of 184. The global model on the six others' rows: at
    most 70 % right by rows, over 85 % by different rows."""
    f = copied(30)
    by_rows, effective = effect(f, Weighting()), effect(f, Weighting(by="effective"))
    assert (by_rows[0].say or 0.0) > 0.8
    assert effective[0].say == pytest.approx(40 / 184)
    found = {}
    for by in ("examples", "effective"):
        run = fit(
            f, "linear", "fedavg", rounds=15, lr=0.3, local_steps=4, weighting={"by": by}, log=lambda text: None,
            alone=False,
        )  # fmt: skip
        found[by] = [e.scores["global"].metrics["accuracy"] for e in run.ledger.entries]  # type: ignore[union-attr]
    others = {by: sum(v[1:]) / 6 for by, v in found.items()}  # type: ignore[arg-type]
    assert others["examples"] < 0.7, others
    assert others["effective"] > 0.85, others
    assert others["effective"] > others["examples"] + 0.2


def test_effect_shows_rows_copies_and_say() -> None:
    f = copied(10)
    shown = effect(f, Weighting(by="effective", cap=0.5))
    assert [s.client for s in shown] == list(f.clients)
    assert [s.rows for s in shown] == f.sizes("train").tolist()
    assert [s.effective for s in shown] == f.effective_sizes.tolist()
    assert sum(s.say or 0.0 for s in shown) == pytest.approx(1)
    assert sum(s.by_rows for s in shown) == pytest.approx(1)
    assert shown[0].by_rows == pytest.approx(shown[0].rows / sum(s.rows for s in shown))


def test_newcomers_have_no_say() -> None:
    f = copied(2).with_newcomers(["a"])
    for by in ("examples", "effective", "uniform"):
        assert effect(f, Weighting(by=by))[0].say == 0


def test_remarks_name_the_owner_its_copies_and_what_the_cap_takes() -> None:
    f = copied(30)
    (said,) = remarks(f, Weighting())
    assert re.match(
        r"weighting: a has 8\d\.\d% of the say, each of the others at most \d\.\d%; of its \d+ rows only", said
    )
    assert "by: effective" in said
    assert "weighting.cap" in said
    assert remarks(f, Weighting(by="effective")) == []
    assert remarks(f, Weighting(by="uniform")) == []
    (said,) = remarks(f, Weighting(cap=0.4))
    assert re.match(r"weighting: the cap leaves a 40\.0% of the say, of 8\d\.\d%", said)


def test_they_are_said_when_a_run_starts() -> None:
    heard = list[str]()
    fit(copied(30), "linear", rounds=1, alone=False, log=heard.append)
    assert any("a has 8" in line and "of the say" in line for line in heard)
    heard.clear()
    fit(copied(30), "linear", rounds=1, alone=False, weighting={"by": "effective"}, log=heard.append)
    assert not any("of the say" in line for line in heard)
