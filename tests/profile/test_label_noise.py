"""Labels turned at one client are doubted there; overlap is not."""

import numpy as np
import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.profile.sick import sick


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
