"""Limits hold, cost as little as can be, and cost nothing where they do not bind."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.capacity import STEP, Capacity
from fedroute.router.rules import decide, utility, without

from .worlds import accuracy, anyhow, differing


def even(clients: int, share: float) -> Capacity:
    return Capacity(torch.full((clients,), share, dtype=torch.float64))


def best_total(u: torch.Tensor, cap: torch.Tensor) -> float:
    """By the Hungarian method, a column for each place."""
    places = u.repeat_interleave(cap, 1).numpy()
    rows, columns = linear_sum_assignment(places, maximize=True)
    return float(places[rows, columns].sum())


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_limits_hold_and_the_total_is_the_best_there_is(seed: int, clients: int, queries: int) -> None:
    g = generator(seed, "capacity")
    share = torch.rand(clients, generator=g, dtype=torch.float64)
    share = (share / share.sum() * (1 + float(torch.rand((), generator=g)))).clamp(max=1, min=1e-3)
    if float(share.sum()) < 1:
        share = share + (1 - share)
    c = Capacity(share)
    u = torch.rand(queries, clients, generator=g, dtype=torch.float64)
    if seed % 3 == 0:
        u = (4 * u).round() / 4  # many ties
    found = c.assign(u)
    cap = c.limits(queries)
    assert bool((found.client >= 0).all())
    assert torch.equal(found.load, found.client.bincount(minlength=clients))
    assert bool((found.load <= cap).all())
    assert bool((found.price >= 0).all())
    assert found.price[found.load < cap].tolist() == [0] * int((found.load < cap).sum())
    total = float(u.gather(1, found.client[:, None]).sum())
    assert best_total(u, cap) - queries * STEP - 1e-9 <= total <= best_total(u, cap) + 1e-9
    worth = u - found.price  # each query is with a client of most worth less price, to the step
    assert bool((worth.gather(1, found.client[:, None])[:, 0] >= worth.amax(1) - STEP - 1e-9).all())


@pytest.mark.parametrize("rule", ["posterior", "density", "consensus"])
def test_limits_that_do_not_bind_change_nothing(rule: str) -> None:
    s = anyhow(300)
    d = decide(rule, s)
    most = float(d.client.bincount().max()) / 300
    for share in (1.0, most):  # without limits, and where demand is met to the last place
        found = even(5, share).assign(utility(rule, s))
        assert torch.equal(found.client, d.client)
        assert found.price.tolist() == [0] * 5
    tight = torch.ones(5).double().index_fill(0, d.client.bincount().argmax(), most - 0.02)
    assert not torch.equal(Capacity(tight).assign(utility(rule, s)).client, d.client)


def test_one_client_in_demand_has_the_only_price() -> None:
    """By hand: 4 queries, 2 places with the first client. It asks what the third query would have gained there."""
    u = torch.tensor([[0.9, 0.1], [0.8, 0.1], [0.6, 0.1], [0.2, 0.1]], dtype=torch.float64)
    found = Capacity(torch.tensor([0.5, 1.0]).double()).assign(u)
    assert found.client.tolist() == [0, 0, 1, 1]
    assert float(found.price[1]) == 0
    assert 0.5 <= float(found.price[0]) <= 0.7 + 2 * STEP


def test_under_consensus_limits_cost_almost_nothing() -> None:
    """Many clients give the same answer, so that a full one is replaced by one that is as good; a rule that asks the
    likeliest client has no such choice."""
    world = differing(8, 10, 4, shift=0.5)
    x, _, y = world.draw(4000)
    s = world.scores(x)
    rows = torch.arange(4000)
    lost = {}
    for rule in ("posterior", "consensus"):
        found = even(8, 0.125).assign(utility(rule, s))
        assert found.load.tolist() == [500] * 8
        lost[rule] = accuracy(decide(rule, s).answer, y) - accuracy(s.heads[rows, found.client], y)
    assert lost["consensus"] < 0.003
    assert lost["posterior"] > 0.05


def test_who_is_away_takes_none_and_the_next_in_line_does() -> None:
    s = anyhow(100)
    u = utility("consensus", without(s, [1]))
    found = even(5, 0.3).assign(u)
    assert int(found.load[1]) == 0
    assert int(found.load.sum()) == 100
    only = without(s, [0, 1, 2])
    full = even(5, 0.3).assign(utility("posterior", only))  # two clients are left, with 30 places each
    assert full.load.tolist() == [0, 0, 0, 30, 30]
    assert int((full.client < 0).sum()) == 40


def test_a_query_that_nobody_may_take_is_left_out() -> None:
    u = torch.tensor([[-torch.inf, -torch.inf], [0.5, 0.2], [0.6, 0.1]], dtype=torch.float64)
    found = even(2, 0.5).assign(u)  # two places each of three queries
    assert found.client.tolist() == [-1, 0, 0]
    tight = Capacity(torch.tensor([0.3, 0.7]).double()).assign(u)
    assert tight.client.tolist() == [-1, 1, 0]
    assert even(2, 1.0).assign(u).client.tolist() == [-1, 0, 0]
    none = even(2, 0.5).assign(torch.zeros(0, 2).double())
    assert none.client.shape == (0,)


def test_a_stream_keeps_to_the_limits_at_every_moment() -> None:
    s = anyhow(400, 4, 3)
    u = utility("posterior", s)
    c = even(4, 0.3)
    client, load = c.stream(u, torch.zeros(4))
    assert torch.equal(load, client.bincount(minlength=4))
    for n in (1, 2, 3, 10, 77, 400):
        assert bool((client[:n].bincount(minlength=4) <= c.limits(n)).all())
    first, then = c.stream(u[:150], torch.zeros(4))
    second, end = c.stream(u[150:], torch.zeros(4), then)
    assert torch.equal(torch.cat([first, second]), client)
    assert torch.equal(end, load)


def test_prices_learnt_before_make_a_stream_wiser() -> None:
    world = differing(6, 4, 3, shift=0.5)
    early, late = (utility("posterior", world.scores(world.draw(2000, seed)[0])) for seed in (0, 1))
    c = even(6, 0.2)
    price = c.assign(early).price
    best = c.assign(late)
    sent = {"offline": best.client, "greedy": c.stream(late, price * 0, burst=20)[0]}
    sent["priced"] = c.stream(late, price, burst=20)[0]
    total = {how: float(late.gather(1, who[:, None]).mean()) for how, who in sent.items()}
    assert total["greedy"] < total["priced"] < total["offline"] + 0.01
    assert total["offline"] - total["priced"] < 0.5 * (total["offline"] - total["greedy"])


def test_a_stream_without_limits_is_the_rule() -> None:
    s = anyhow(50)
    client, _ = even(5, 1.0).stream(utility("posterior", s), torch.zeros(5))
    assert torch.equal(client, decide("posterior", s).client)
    none, load = even(2, 0.5).stream(torch.full((3, 2), -torch.inf), torch.zeros(2))
    assert none.tolist() == [-1, -1, -1]
    assert load.tolist() == [0, 0]


def test_many_clients_and_repeatable() -> None:
    g = generator(0, "many")
    u = torch.rand(2000, 200, generator=g, dtype=torch.float64)
    a, b = (even(200, 0.005).assign(u) for _ in range(2))
    assert torch.equal(a.client, b.client)
    assert a.load.tolist() == [10] * 200
    assert float(u.gather(1, a.client[:, None]).mean()) > 0.97
    assert np.isfinite(a.price.numpy()).all()


def test_limits_that_cannot_be() -> None:
    with pytest.raises(InputError, match=r"take 0\.9 of the queries"):
        even(3, 0.3)
    with pytest.raises(InputError, match="above 0 and at most 1"):
        Capacity(torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match="above 0 and at most 1"):
        Capacity(torch.tensor([1.5, 1.0]))
    assert even(3, 1 / 3).limits(100).tolist() == [34, 34, 34]
    assert even(5, 0.2).limits(10).tolist() == [2] * 5
