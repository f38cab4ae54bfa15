"""The law by which queries arrive is found from queries without owners."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.arrival import estimate
from fedroute.router.rules import decide, log_posterior

from .worlds import accuracy, anyhow, differing


def test_of_clients_that_never_overlap_it_is_the_count() -> None:
    world = differing(shift=60.0)
    law = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0], dtype=torch.float64)
    x, owner, _ = world.draw(1000, arrival=law)
    found = estimate(world.scores(x).router, world.w, strength=0)
    assert torch.allclose(found.law, torch.bincount(owner, minlength=5).double() / 1000, atol=1e-9)
    assert found.steps < 5


@pytest.mark.parametrize("law", [[0.05, 0.05, 0.1, 0.3, 0.5], [0.5, 0.3, 0.1, 0.05, 0.05], [0.2] * 5])
def test_of_overlapping_clients_it_is_near_the_truth_and_much_nearer_than_the_prior(law: list[float]) -> None:
    world = differing(width=3, shift=0.7)
    true = torch.tensor(law, dtype=torch.float64)
    x, _, y = world.draw(20_000, arrival=true)
    s = world.scores(x)
    found = estimate(s.router, world.w)
    assert float((found.law - true).abs().max()) < 0.05
    assert float((found.law - true).abs().sum()) < 0.3 * float((world.w - true).abs().sum())
    assert found.gain > 0.003
    known, estimated, prior = (accuracy(decide("mixture", s, arrival=q).answer, y) for q in (true, found.law, None))
    assert estimated == pytest.approx(known, abs=0.003)
    assert prior < known + 0.003


def test_queries_that_arrive_as_rows_did_change_little() -> None:
    world = differing()
    s = world.scores(world.draw(20_000)[0])
    found = estimate(s.router, world.w)
    assert torch.allclose(found.law, world.w, atol=0.02)
    assert 0 <= found.gain < 0.001


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_it_is_the_fixed_point_and_the_likelihood_is_no_smaller_than_anywhere_near(seed: int) -> None:
    s = anyhow(300, 4, 2, seed)
    law = estimate(s.router, s.prior, strength=0, steps=20_000, tolerance=1e-10).law
    assert float(law.sum()) == pytest.approx(1)
    assert bool((law >= 0).all())
    there = log_posterior(s, law).exp().mean(0)
    assert torch.allclose(there, law, atol=1e-6)

    def likelihood(q: torch.Tensor) -> float:
        return float(torch.logsumexp(s.router - s.prior.log() + q.log(), 1).mean())

    g = generator(seed, "near")
    for size in (0.01, 0.3, 1.0):
        other = torch.rand(4, generator=g, dtype=torch.float64)
        other = (1 - size) * law + size * other / other.sum()
        assert likelihood(other) <= likelihood(law) + 1e-9


def test_more_steps_never_lose_likelihood() -> None:
    s = anyhow(200, 6, 2)
    gains = [estimate(s.router, s.prior, strength=0, steps=n, tolerance=0).gain for n in (1, 2, 3, 5, 10, 100)]
    assert gains == sorted(gains)
    assert gains[0] > 0


def test_clients_that_cannot_be_told_apart_keep_their_proportion() -> None:
    prior = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    router = prior.log().expand(50, 3)
    assert torch.allclose(estimate(router, prior).law, prior, atol=1e-12)
    far = router + torch.tensor([0.0, 0.0, 8.0], dtype=torch.float64)  # the first two alike, the third the source
    law = estimate(far, prior).law
    assert float(law[0] / law[1]) == pytest.approx(2)
    assert float(law[2]) > 0.9


def test_no_query_leaves_the_prior_and_few_do_not_rule_anybody_out() -> None:
    prior = torch.tensor([0.6, 0.3, 0.0, 0.1], dtype=torch.float64)
    for strength in (0, 1):
        assert torch.allclose(estimate(torch.zeros(0, 4), prior, strength=strength).law, prior, atol=1e-15)
    sure = torch.tensor([[40.0, 0.0, 99.0, 0.0]]).double().expand(9, 4)
    law = estimate(sure, prior).law
    assert law.tolist() == pytest.approx([0.96, 0.03, 0, 0.01], abs=1e-6)
    assert estimate(sure, prior, strength=0).law.tolist() == pytest.approx([1, 0, 0, 0], abs=1e-6)


def test_adding_a_number_to_a_query_changes_nothing() -> None:
    s = anyhow(100)
    add = torch.randn(100, 1, generator=torch.Generator().manual_seed(0)).double() * 50
    assert torch.allclose(estimate(s.router + add, s.prior).law, estimate(s.router, s.prior).law, atol=1e-9)


def test_a_query_that_nobody_explains_says_nothing() -> None:
    s = anyhow(100)
    more = torch.cat([s.router, torch.full((30, 5), -torch.inf).double()])
    assert torch.equal(estimate(more, s.prior).law, estimate(s.router, s.prior).law)


def test_wrong_input() -> None:
    with pytest.raises(InputError, match=r"give \(B, N\)"):
        estimate(torch.zeros(3, 4), torch.ones(5))
    with pytest.raises(InputError, match="NaN"):
        estimate(torch.full((3, 2), torch.nan), torch.ones(2) / 2)
