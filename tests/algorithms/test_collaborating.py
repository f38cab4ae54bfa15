"""The parts of the methods whose server weighs or mixes clients' models one by one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedroute.algorithms import make
from fedroute.algorithms.afl import project
from fedroute.algorithms.fedpac import FedPAC, combination
from fedroute.algorithms.ifca import IFCA
from fedroute.certificates.rig import classes, network, train
from fedroute.change import change, mixed, moved
from fedroute.config import Training
from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.engines.base import Work, context
from fedroute.errors import InputError
from fedroute.manifest import manifest
from fedroute.phase import certain, first_steps
from fedroute.rounds import prepare


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_projection_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    """By the conditions of the optimum: v - p is the same where p is above 0, and nowhere larger."""
    v = torch.tensor(values, dtype=torch.float64)
    p = project(v)
    assert (p >= 0).all()
    assert float(p.sum()) == pytest.approx(1)
    t = (v - p)[p > 0]
    assert float(t.max() - t.min()) < 1e-9
    assert (v - p <= t.max() + 1e-9).all()


def test_mixtures_of_heads_are_the_optimum_of_their_programme() -> None:
    """No point of the simplex, of a thousand, is better; and the weights lie in it."""
    g = torch.Generator().manual_seed(0)
    n, k, d = 5, 3, 4
    counts = torch.randint(1, 9, (n, k), generator=g).double()
    total = torch.randn(n, k, d, generator=g, dtype=torch.float64) * counts.unsqueeze(2)
    square = total.square().sum((1, 2)) + 5
    rows = counts.sum(1)
    alpha = combination(counts, total, square, rows)
    assert (alpha >= 0).all()
    assert torch.allclose(alpha.sum(1), torch.ones(n, dtype=torch.float64))
    h = (total / rows[:, None, None]).flatten(1)
    v = (square / rows - h.square().sum(1)).clamp(min=0) / rows

    def value(i: int, a: torch.Tensor) -> torch.Tensor:
        return (a.square() * v).sum(-1) + (h[i] - a @ h).square().sum(-1)

    points = torch.distributions.Dirichlet(torch.ones(n, dtype=torch.float64) / 2).sample((1000,))
    for i in range(n):
        assert value(i, alpha[i]) <= value(i, points).min() + 1e-12
        assert value(i, alpha[i]) < value(i, torch.eye(n, dtype=torch.float64)).min()  # a mixture beats any one head


@pytest.mark.parametrize(
    ("share", "steps", "first"),
    [(0.0, 9, 0), (0.2, 1, 0), (0.2, 2, 1), (0.2, 10, 2), (0.9, 10, 9), (0.99, 3, 2), (0.5, 0, 0)],
)
def test_phases(share: float, steps: int, first: int) -> None:
    assert int(first_steps(share, torch.tensor(steps))) == first


def test_a_mask_is_certain_unless_clients_differ() -> None:
    assert certain(torch.tensor(True)) is True
    seen = list[bool | torch.Tensor]()

    def look(mask: torch.Tensor) -> torch.Tensor:
        seen.append(certain(mask))
        return mask

    torch.vmap(look)(torch.tensor([True, False]))
    assert isinstance(seen[0], torch.Tensor)


def test_changes_of_counts_stay_whole() -> None:
    old, new = torch.tensor(3), torch.tensor(8)
    d = change(new, old)
    assert d.is_floating_point()
    assert torch.equal(moved(old, d), new)
    assert torch.equal(moved(old, d * 0.5), torch.tensor(5))  # half of five is 2.5, and that rounds to 2
    half = torch.tensor([[0.5, 0.5]])
    assert torch.equal(mixed(half, torch.tensor([2, 6])), torch.tensor([4]))
    assert torch.equal(mixed(half, torch.tensor([2.0, 5.0])), torch.tensor([3.5]))


def test_fedpac_needs_a_head_of_one_layer() -> None:
    headless = Task(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    with pytest.raises(InputError, match="the head must be one linear layer inside the model"):
        prepare(FedPAC(), headless, Training())


def test_fedpac_leaves_the_users_model_as_it_was() -> None:
    task = network(norm=False)
    x = torch.ones(2, 6, dtype=torch.float64)
    before = task.module(x)
    train(FedPAC(), classes([8, 8]), task, Training(rounds=1))
    assert torch.equal(task.module(x), before)


def test_bytes_of_a_client_do_not_grow_with_the_others_models() -> None:
    """FedAMP sends one model down, FedFomo m of them, IFCA k; each gets one up."""
    f, one = classes([5] * 9), sum(v.numel() * 8 for v in network(norm=False).init().values())
    for name, models in (("fedamp", 1), ("fedfomo", 4), ("ifca", 3)):
        spec = {"name": name} | {"fedfomo": {"m": 4}, "ifca": {"k": 3}}.get(name, {})
        entries = manifest(prepare(make(spec), network(norm=False), Training()), f)
        assert sum(e.down_bytes for e in entries) == models * one
        assert one <= sum(e.bytes for e in entries if e.leaves) < 1.2 * one


def test_a_newcomer_takes_the_ifca_model_that_fits_it() -> None:
    """Two kinds of clients with opposite labels: a client of each kind that never trained finds its own."""
    x = torch.randn(240, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    train_rows = torch.arange(240).split(40)
    for i in (1, 3, 5):
        y[train_rows[i]] = 1 - y[train_rows[i]]
    none = (torch.zeros(0, dtype=torch.int64),) * 6
    names = tuple(f"c{i}" for i in range(6))
    f = Federation(name="rig", x=x, y=y, clients=names, train=train_rows, validation=none, test=none, newcomers=(4, 5))
    alg, state = train(
        IFCA(k=2), f, network(norm=False, k=2), Training(rounds=15, lr=0.3, batch_size=40, local_steps=4)
    )
    for i, like in ((4, 0), (5, 1)):
        work = Work(15, 0, 0.3, (i,), {i: [f.train[i]]})
        ctx = context(alg, state.server, state.privates[i], i, work, f)
        adapted = alg.adapt(ctx, [f.take(f.train[i])])
        assert torch.equal(adapted["s"], state.privates[like]["s"])
