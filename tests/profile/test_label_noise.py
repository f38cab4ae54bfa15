"""Labels turned at one client are doubted there; overlap is not."""

import numpy as np
import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.profile.profile import profile
from fedroute.profile.sick import sick
from fedroute.profile.wrong_labels import redrawn, tempered


def clusters(apart: float, turned: dict[int, float], seed: int = 0, clients: int = 4) -> tuple[Federation, set[int]]:
    """Four clients with 300 rows of three classes that lie so far apart; shares of labels turned by client."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 300 * clients)
    x = rng.normal(size=(len(y), 6)) + apart * np.eye(6)[y]
    owner = np.repeat(np.arange(clients), 300)
    wrong = rng.random(len(y)) < np.array([turned.get(i, 0.0) for i in range(clients)])[owner]
    y[wrong] = (y[wrong] + rng.integers(1, 3, int(wrong.sum()))) % 3
    names = [f"h{i}" for i in owner]
    return Federation.from_arrays(torch.tensor(x).float(), torch.tensor(y), names), set(np.flatnonzero(wrong).tolist())


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_labels_turned_at_one_client(share: float) -> None:
    fed, wrong = clusters(4, {1: share})
    (f,) = sick(fed).findings
    assert (f.kind, f.client) == ("doubtful labels", "h1")
    assert f.severity == ("severe" if share > 0.2 else "warning")
    assert len(wrong & set(f.rows)) > 0.6 * len(wrong)
    assert len(wrong & set(f.rows)) > 0.9 * len(f.rows)


def test_labels_turned_everywhere() -> None:
    fed, _ = clusters(4, dict.fromkeys(range(4), 0.15))
    assert {f.kind for f in sick(fed).findings} == {"doubtful labels"}


@pytest.mark.parametrize("apart", [0.0, 1.0, 2.0, 3.0, 5.0])
def test_overlap_is_no_noise(apart: float) -> None:
    assert not [f for seed in range(3) for f in sick(clusters(apart, {}, seed)[0]).findings]


def test_numbers_to_predict_have_no_doubtful_labels() -> None:
    fed, _ = clusters(4, {1: 0.3})
    numbers = Federation.from_arrays(fed.x, fed.y.float(), [fed.clients[i] for i in fed.owner().tolist()])
    assert not [f for f in sick(numbers).findings if f.kind == "doubtful labels"]


def test_a_client_whose_task_is_hard_is_not_doubted_beside_clients_whose_task_is_easy() -> None:
    easy, _ = clusters(4, {})
    hard, _ = clusters(0.7, {}, 1, 1)
    x, y = torch.cat([easy.x, hard.x]), torch.cat([easy.y, hard.y])
    names = [easy.clients[i] for i in easy.owner().tolist()] + ["hard"] * len(hard.x)
    assert not [f for f in sick(Federation.from_arrays(x, y, names)).findings if f.kind == "doubtful labels"]


def halves(share: float, client: int = 2, seed: int = 0, noise: float = 0.3, rows: int = 400, extra: float = 0.0,
           turned: bool = False) -> Federation:  # fmt: skip
    """Six clients; y = (x0 + x1 + noise > 0). At one client that share of labels is the other one, or (extra) the noise
    is stronger, or all labels are turned."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6 * rows, 5))
    owner = np.repeat(np.arange(6), rows)
    at = owner == client
    y = (x[:, 0] + x[:, 1] + (noise + extra * at) * rng.normal(size=len(x)) > 0).astype(int)
    y = np.where(at & ((rng.random(len(x)) < share) | turned), 1 - y, y)
    return Federation.from_arrays(torch.tensor(x).float(), torch.tensor(y), [f"h{i}" for i in owner], labels=["a", "b"])


@pytest.mark.parametrize("share", [0.3, 0.4, 0.5])
def test_labels_wrong_at_one_client_are_no_other_meaning(share: float) -> None:
    found = profile(halves(share))
    (f,) = found.sick.findings
    assert (f.kind, f.client, f.severity, f.unit) == ("doubtful labels", "h2", "warning", "share of labels")
    assert f.number == pytest.approx(share, abs=0.07)
    assert "may be wrong" in f.sentence
    assert "or its cases are harder" in f.sentence
    assert found.top == "iid"
    assert not any("other_meaning" in c.flags for c in found.clients)


def test_turned_labels_are_another_meaning_and_no_noise() -> None:
    found = profile(halves(0.0, turned=True))
    assert found.top == "concept"
    assert not [f for f in found.sick.findings if f.kind == "doubtful labels"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("extra", [0.0, 0.7])
def test_honest_clients_are_not_accused(seed: int, extra: float) -> None:
    """Where cases are harder at one client, rows may be doubted one by one, in words that leave it open."""
    found = profile(halves(0.0, seed=seed, extra=extra)).sick.findings
    assert all(f.unit == "rows" and "or its cases are harder" in f.sentence for f in found)
    assert not found or extra


@pytest.mark.parametrize("apart", [1.0, 1.5, 2.5])
def test_classes_that_overlap_more_at_one_client_are_no_wrong_labels(apart: float) -> None:
    easy, _ = clusters(4, {})
    hard, _ = clusters(apart, {}, 1, 1)
    x, y = torch.cat([easy.x, hard.x]), torch.cat([easy.y, hard.y])
    names = [easy.clients[i] for i in easy.owner().tolist()] + ["hard"] * len(hard.x)
    found = profile(Federation.from_arrays(x, y, names, labels=["a", "b", "c"]))
    assert not [f for f in found.sick.findings if f.unit == "share of labels"]


@pytest.mark.parametrize(("share", "k"), [(0.0, 2), (0.3, 2), (0.6, 5), (1.0, 3)])
def test_the_share_of_labels_drawn_anew(share: float, k: int) -> None:
    """By a model that is right about the rest, the likeliest share is the true one, within its error."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(k, 0.3), 5000)
    y = (p.cumsum(1) > rng.random((5000, 1))).argmax(1)
    again = rng.random(5000) < share
    y[again] = rng.integers(0, k, int(again.sum()))
    found, error = redrawn(p[np.arange(5000), y], np.full(5000, 1 / 5000), k)
    assert found == pytest.approx(share, abs=0.04)
    assert abs(found - share) < 3 * error
    assert 0.005 < error < 0.05


def test_a_model_that_is_too_sure_is_made_less_so() -> None:
    """p cubed, summing to 1, goes back to p."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 20000)
    y = (p.cumsum(1) > rng.random((20000, 1))).argmax(1)
    sure = p**3 / (p**3).sum(1, keepdims=True)
    found = tempered(sure, np.eye(3)[y], np.full(20000, 1 / 20000))
    assert np.abs(found - p).max() < 0.05
