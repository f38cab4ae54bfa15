"""Temperatures are found, lower the calibration error, and stand where they are meant to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroute.errors import InputError
from fedroute.evaluate.metrics import calibration_error
from fedroute.router.calibrate import (
    GRID,
    Temperatures,
    cooled_router,
    drift,
    effective_prior,
    fit,
    head_losses,
    router_losses,
)
from fedroute.router.rules import decide, log_posterior
from fedroute.router.scores import Scores

from .worlds import anyhow, differing


def too_sure(
    by: float, heads: float = 1.0, rows: int = 8_000, seed: int = 0
) -> tuple[Scores, torch.Tensor, torch.Tensor]:
    """Exact scores whose density ratios, and logits of heads, have been multiplied."""
    world = differing(6, 4, 2, shift=0.7)
    x, owner, y = world.draw(rows, seed)
    s = world.scores(x)
    ratio = s.router - s.prior.log()
    return s._replace(router=by * ratio + s.prior.log(), heads=(heads * s.heads).log_softmax(2)), owner, y


def ece(s: Scores, owner: torch.Tensor) -> float:
    p = log_posterior(s).exp()
    return calibration_error(p.amax(1).numpy(), (p.argmax(1) == owner).numpy())


@pytest.mark.parametrize("by", [0.4, 1.0, 3.0, 9.0])
def test_the_factor_is_found_and_the_calibration_error_falls(by: float) -> None:
    s, owner, y = too_sure(by, heads=by)
    t = fit(s, owner, y)
    assert float(t.router) == pytest.approx(by, rel=0.1)
    assert t.heads.tolist() == pytest.approx([by] * 6, rel=0.3)
    fresh, its_owner, its_y = too_sure(by, heads=by, seed=1)
    before, after = ece(fresh, its_owner), ece(t.apply(fresh), its_owner)
    assert after < 0.02
    assert after < before or by == 1
    if by > 1:
        assert after < before / 4
        own = torch.arange(len(its_y)), its_owner
        loss = [-s.heads[own][torch.arange(len(its_y)), its_y].mean() for s in (fresh, t.apply(fresh))]
        assert loss[1] < loss[0]


@given(st.integers(0, 10_000), st.floats(0.1, 10))
@settings(max_examples=30, deadline=None)
def test_density_asks_the_same_clients_at_every_temperature(seed: int, temperature: float) -> None:
    s = anyhow(50, seed=seed)
    cooled = s._replace(router=cooled_router(s, temperature))
    assert torch.equal(decide("density", s).client, decide("density", cooled).client)
    even = s._replace(prior=torch.full((5,), 0.2).double())
    cooled = even._replace(router=cooled_router(even, temperature))
    assert torch.equal(decide("posterior", even).client, decide("posterior", cooled).client)


def test_temperature_stands_below_the_ratio_and_not_below_the_prior() -> None:
    """What a query says fades with a rising temperature, and what is known without it remains."""
    s, _, _ = too_sure(1.0, rows=500)
    hot = s._replace(router=cooled_router(s, 1e9))
    assert torch.allclose(log_posterior(hot).exp(), s.prior.expand(500, 6), atol=1e-6)
    silent = s._replace(router=s.prior.log().expand(500, 6) + 3)
    for t in (0.1, 2.0, 18.0):
        assert torch.allclose(
            log_posterior(silent._replace(router=cooled_router(silent, t))).exp(), s.prior.expand(500, 6)
        )
    wrong = s._replace(router=s.router / 18)  # the field's: then density takes away a prior that is not there any more
    assert int(decide("density", wrong).client.bincount(minlength=6).argmax()) == int(s.prior.argmin())


def test_at_one_nothing_changes_at_all() -> None:
    s = anyhow()
    assert 1.0 in GRID.tolist()
    same = Temperatures(torch.tensor(1.0), torch.ones(5)).apply(s)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(same, s, strict=True))
    some = Temperatures(torch.tensor(1.0), torch.tensor([1, 1, 2, 1, 1]).double()).apply(s)
    assert torch.equal(some.heads[:, [0, 1, 3, 4]], s.heads[:, [0, 1, 3, 4]])
    assert torch.allclose(some.heads[:, 2].exp().sum(1), torch.ones(200).double())


def test_what_clients_send_adds_up() -> None:
    s, owner, y = too_sure(3.0, rows=600)
    whole = router_losses(s, owner)
    parts = [
        router_losses(s._replace(router=s.router[owner == i], heads=s.heads[owner == i]), owner[owner == i])
        for i in range(6)
    ]
    assert torch.allclose(sum(parts, torch.zeros(len(GRID))), whole, rtol=1e-10)
    one = -(s.heads[:, 2] / GRID[80]).log_softmax(1)[torch.arange(600), y].sum()
    assert float(head_losses(s.heads[:, 2], y)[80]) == pytest.approx(float(one))


def test_a_client_with_few_rows_leans_on_the_others() -> None:
    s, owner, y = too_sure(1.0, heads=4.0, rows=5000)
    kept = (owner != 0) | (torch.arange(5000) < 10)
    few = Scores(s.router[kept], s.prior, s.heads[kept])
    found = fit(few, owner[kept], y[kept]).heads
    assert float(found[0]) == pytest.approx(4, rel=0.5)
    none = owner != 0
    found = fit(Scores(s.router[none], s.prior, s.heads[none]), owner[none], y[none]).heads
    assert float(found[0]) == pytest.approx(4, rel=0.3)


def test_impossible_clients_labels_and_rows() -> None:
    s = anyhow(50)
    prior = torch.tensor([0.5, 0.5, 0, 0, 0]).double()
    away = s._replace(prior=prior, router=s.router.index_fill(1, torch.tensor([2, 3, 4]), -torch.inf))
    heads = away.heads.index_fill(2, torch.tensor(3), -torch.inf).log_softmax(2)
    away = away._replace(heads=heads)
    owner, y = torch.arange(50) % 5, torch.arange(50) % 4
    t = fit(away, owner, y)
    made = t.apply(away)
    assert not any(bool(v.isnan().any()) for v in (*t, *made[:3]))
    assert bool((made.router[:, 2:] == -torch.inf).all())
    assert bool((made.heads[..., 3] == -torch.inf).all())
    none = fit(Scores(s.router[:0], s.prior, s.heads[:0]), owner[:0], y[:0])
    assert float(none.router) == 1
    assert none.heads.tolist() == [1] * 5
    with pytest.raises(InputError, match="50 rows, 49 owners"):
        fit(s, owner[1:], y)


def test_the_mean_posterior_is_the_prior_where_the_router_is_right() -> None:
    world = differing()
    x, owner, _ = world.draw(50_000)
    s = world.scores(x)
    shares = torch.bincount(owner, minlength=5) / 50_000
    assert torch.allclose(effective_prior(s.router), shares.double(), atol=0.01)
    assert drift(s.router, s.prior) < 0.15
    off = s.router + torch.tensor([1.0, 0, 0, 0, 0]).double()
    assert drift(off, s.prior) > 0.3
