"""Partitions: exact covers, functions of the seed, that end."""

import hashlib
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.data.federation import Federation
from fedroute.data.partition import assign, client_names
from fedroute.data.spec import Classes, Dirichlet, Iid, Partition, Quantity, Shards, Time
from fedroute.errors import InputError


@st.composite
def requests(draw: st.DrawFn) -> tuple[Partition, torch.Tensor]:
    """A partition of 1 to 300 rows with 1 to 12 classes, feasible or not."""
    rows, classes = draw(st.integers(1, 300)), draw(st.integers(1, 12))
    y = torch.tensor(draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    clients = draw(st.integers(1, 40))
    alpha = draw(st.sampled_from([1e-3, 0.01, 0.3, 10.0]))
    minimum = draw(st.one_of(st.none(), st.integers(0, 12)))
    methods: list[Partition] = [
        Iid(clients=clients),
        Dirichlet(clients=clients, alpha=alpha, minimum=minimum),
        Quantity(clients=clients, alpha=alpha, minimum=minimum),
        Shards(clients=clients, shards=draw(st.integers(1, 4))),
        Classes(clients=clients, classes=draw(st.integers(1, 5))),
        Time(clients=clients),
    ]
    return draw(st.sampled_from(methods)), y


def attempt(partition: Partition, y: torch.Tensor, seed: int, time: torch.Tensor) -> torch.Tensor | str:
    try:
        return assign(partition, y, seed, time)
    except InputError as e:
        return str(e)


@settings(max_examples=150, deadline=None)
@given(requests(), st.integers(0, 5))
def test_every_row_has_one_client_or_the_request_is_refused_with_its_mend(
    request_: tuple[Partition, torch.Tensor], seed: int
) -> None:
    partition, y = request_
    time = torch.arange(len(y), dtype=torch.float64)
    owner = attempt(partition, y, seed, time)
    if isinstance(owner, str):
        assert "partition." in owner
        return
    assert owner.shape == y.shape
    sizes = torch.bincount(owner, minlength=partition.clients)
    assert len(sizes) == partition.clients
    assert int(sizes.sum()) == len(y)
    if isinstance(partition, Dirichlet | Quantity):
        least = partition.minimum if partition.minimum is not None else min(10, len(y) // partition.clients)
        assert int(sizes.min()) >= least
    else:
        assert int(sizes.min()) >= 1
    assert torch.equal(owner, assign(partition, y, seed, time))


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_dirichlet_of_500_clients_on_100_classes_ends_with_everybody_served(alpha: float) -> None:
    y = torch.arange(50_000) % 100
    sizes = torch.bincount(assign(Dirichlet(clients=500, alpha=alpha, minimum=10), y), minlength=500)
    assert int(sizes.sum()) == 50_000
    assert int(sizes.min()) >= 10


def test_a_minimum_that_cannot_be_met_names_the_one_that_can() -> None:
    with pytest.raises(InputError, match="the feasible minimum is 6"):
        assign(Dirichlet(clients=500, alpha=0.3, minimum=10), torch.arange(3_000) % 100)
    assert int(torch.bincount(assign(Dirichlet(clients=500, minimum=6), torch.arange(3_000) % 100)).min()) == 6


def test_dirichlet_small_alpha_concentrates_and_large_alpha_evens_out() -> None:
    y = torch.arange(20_000) % 10

    def mix(alpha: float) -> torch.Tensor:
        owner = assign(Dirichlet(clients=10, alpha=alpha, minimum=0), y, seed=1)
        return torch.stack([torch.bincount(y[owner == i], minlength=10) for i in range(10)]).double()

    even, few = mix(1000.0), mix(0.001)
    assert float((even / 2000 - 0.1).abs().max()) < 0.02
    # each class goes almost wholly to one client: its largest share is near 1 for most classes
    assert float((few.max(0).values / 2000).mean()) > 0.9


def test_dirichlet_shares_have_the_moments_of_the_distribution() -> None:
    """E[p] = 1/m and Var[p] = (1/m)(1 - 1/m) / (m alpha + 1), over many classes; also where Gamma draws underflow."""
    m, classes, per_class = 5, 400, 1000
    y = torch.arange(classes * per_class) % classes
    for alpha in (0.05, 1.0):
        owner = assign(Dirichlet(clients=m, alpha=alpha, minimum=0), y, seed=3)
        p = torch.stack([torch.bincount(y[owner == i], minlength=classes) for i in range(m)]).double() / per_class
        expected = (1 / m) * (1 - 1 / m) / (m * alpha + 1)
        assert float(p.var()) == pytest.approx(expected, rel=0.1)


def test_classes_gives_each_client_so_many_and_every_class_a_holder() -> None:
    y = torch.arange(10_000) % 10
    owner = assign(Classes(clients=25, classes=2), y)
    held = torch.stack([torch.bincount(y[owner == i], minlength=10) > 0 for i in range(25)])
    assert held.sum(1).tolist() == [2] * 25
    assert held.sum(0).tolist() == [5] * 10  # balanced: 25 x 2 / 10
    assert len({tuple(row) for row in held.tolist()}) > 5  # not the same pairs again and again


def test_classes_that_cannot_cover_say_how_many_can() -> None:
    y = torch.arange(1_000) % 10
    with pytest.raises(InputError, match="set it to at least 4"):
        assign(Classes(clients=3, classes=2), y)
    with pytest.raises(InputError, match="set it to at most 10"):
        assign(Classes(clients=3, classes=11), y)


def test_shards_are_equal_and_of_neighbouring_labels() -> None:
    y = torch.arange(1_000) % 10
    owner = assign(Shards(clients=10, shards=2), y)
    for i in range(10):
        labels = y[owner == i]
        assert len(labels) == 100
        assert len(labels.unique()) <= 2


def test_time_gives_consecutive_stretches() -> None:
    time = torch.tensor([5.0, 1.0, 3.0, 2.0, 4.0, 0.0], dtype=torch.float64)
    owner = assign(Time(clients=3), torch.zeros(6), time=time)
    assert owner.tolist() == [2, 0, 1, 1, 2, 0]
    with pytest.raises(InputError, match="no time column"):
        assign(Time(clients=3), torch.zeros(6))


def test_numbers_cannot_be_dealt_by_class() -> None:
    with pytest.raises(InputError, match="use iid, quantity, shards or time"):
        assign(Dirichlet(clients=2), torch.rand(10))
    assert torch.bincount(assign(Shards(clients=2), torch.rand(10))).tolist() == [5, 5]


def test_client_names_sort_as_their_numbers() -> None:
    assert client_names(3) == ("client_0", "client_1", "client_2")
    names = client_names(1_000)
    assert list(names) == sorted(names)


def test_the_same_in_every_process() -> None:
    code = (
        "import torch, hashlib; from fedroute.data.partition import assign; from fedroute.data.spec import *\n"
        "y = torch.arange(3000) % 7; t = torch.arange(3000).double()\n"
        "ps = [Iid(), Dirichlet(), Shards(), Classes(), Quantity(), Time()]\n"
        "print(hashlib.sha256(b''.join(assign(p, y, 4, t).numpy().tobytes() for p in ps)).hexdigest())"
    )
    env = os.environ | {"PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    y, t = torch.arange(3000) % 7, torch.arange(3000).double()
    methods: list[Partition] = [Iid(), Dirichlet(), Shards(), Classes(), Quantity(), Time()]
    mine = b"".join(assign(p, y, 4, t).numpy().tobytes() for p in methods)
    assert said.strip() == hashlib.sha256(mine).hexdigest()


def test_from_arrays_deals_the_rows_to_made_clients() -> None:
    y = torch.arange(200) % 4
    fed = Federation.from_arrays(torch.rand(200, 3), y, partition=Dirichlet(clients=12, alpha=0.1, minimum=5))
    assert fed.clients[0] == "client_00"
    rows = torch.cat([*fed.train, *fed.validation, *fed.test])
    assert rows.sort().values.tolist() == list(range(200))
    same = Federation.from_arrays(
        torch.rand(200, 3), y, partition={"method": "dirichlet", "clients": 12, "alpha": 0.1, "minimum": 5}
    )
    assert torch.equal(torch.cat(same.train), torch.cat(fed.train))
    with pytest.raises(InputError, match="one of them"):
        Federation.from_arrays(torch.rand(200, 3), y)
    with pytest.raises(InputError, match=r"federation\.partition\.alhpa: no such key; did you mean 'alpha'"):
        Federation.from_arrays(torch.rand(200, 3), y, partition={"method": "dirichlet", "alhpa": 1})
