"""Router and heads weighed anew on held-out rows: nothing lost where they are right, much won where they are not."""

import math

import pytest
import torch

from fedroute.errors import InputError
from fedroute.router.aggregator import Aggregator, fit_aggregator, loss_and_gradient, out_of_fold
from fedroute.router.rules import decide, mixture
from fedroute.router.scores import Scores
from tests.router.worlds import accuracy, anyhow, differing


def spoilt(scores: Scores) -> Scores:
    """Heads three times too sure and with a taste for the first label, one client's shouting; a router too timid."""
    heat = torch.tensor([3.0, 3, 3, 3, 6]).double()[:, None]
    bias = torch.tensor([1.5, 0, 0, 0]).double()
    return scores._replace(router=0.3 * scores.router, heads=(heat * scores.heads + bias).log_softmax(2))


def test_plain_changes_nothing() -> None:
    scores = anyhow()
    same = Aggregator.plain(5, 4)(scores)
    assert torch.allclose(same.router, scores.router.log_softmax(1))
    assert torch.allclose(same.heads, scores.heads)
    assert same.common is scores.common


def test_what_was_spoilt_is_mended() -> None:
    world = differing(width=2)
    x, owner, y = world.draw(1500)
    new, _, answer = world.draw(3000, seed=1)
    true = world.scores(new)
    fit = fit_aggregator(spoilt(world.scores(x)), y, owner, decay=1e-4, rounds=60)
    mended = fit.aggregator(spoilt(true))
    best, worse, found = (
        -float(mixture(s)[torch.arange(3000), answer].log().mean()) for s in (true, spoilt(true), mended)
    )
    assert fit.after < fit.before - 0.1
    assert worse > best + 0.1
    assert found < best + 0.02
    assert accuracy(decide("consensus", mended).answer, answer) > accuracy(mixture(true), answer) - 0.02


def test_what_is_right_stays() -> None:
    world = differing()
    x, owner, y = world.draw(1500)
    new, _, answer = world.draw(3000, seed=1)
    fit = fit_aggregator(world.scores(x), y, owner)
    assert (
        accuracy(mixture(fit.aggregator(world.scores(new))), answer)
        > accuracy(mixture(world.scores(new)), answer) - 0.01
    )
    assert float(fit.aggregator.sharp) == pytest.approx(1, abs=0.2)


def test_clients_add_up_the_pooled_gradient() -> None:
    """T22: a fit does not depend on whose rows are whose, and what is sent is the gradient, by central differences."""
    world = differing()
    x, owner, y = world.draw(600)
    scores = spoilt(world.scores(x))
    a, b = (fit_aggregator(scores, y, o, rounds=8) for o in (owner, torch.zeros_like(owner)))
    assert torch.allclose(a.aggregator.heat, b.aggregator.heat, atol=1e-8)
    assert a.upload == 1 + 5 + 5 + 20 + 1

    def made(flat: torch.Tensor) -> Aggregator:
        return Aggregator(flat[0], flat[1:6], flat[6:11], flat[11:].reshape(5, 4))

    flat = torch.randn(31, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1 + 1
    _, gradient = loss_and_gradient(flat, made, scores, y)
    for k in (0, 3, 8, 20):
        step = torch.zeros(31, dtype=torch.float64)
        step[k] = 1e-5
        up, down = (loss_and_gradient(flat + s * step, made, scores, y)[0] for s in (1, -1))
        assert float(gradient[k]) == pytest.approx(float(up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_clients_without_rows_or_with_broken_models_stay_out() -> None:
    scores = anyhow(rows=100)
    prior = scores.prior * torch.tensor([0.0, 1, 1, 1, 1])
    router = scores.router.index_fill(1, torch.tensor([0]), -torch.inf)
    heads = scores.heads.index_fill(1, torch.tensor([1]), torch.nan)
    hard = Scores(router, prior / prior.sum(), heads)
    y = torch.arange(100) % 4
    fit = fit_aggregator(hard, y, torch.arange(100) % 5)
    assert all(bool(v.isfinite().all()) for v in fit.aggregator.state().values())
    out = fit.aggregator(hard)
    assert bool((out.router[:, 0] == -torch.inf).all())
    assert bool(out.heads[:, 1].isnan().all())
    assert fit.aggregator.heat[:2].tolist() == [1, 1]
    sure = hard._replace(heads=torch.where(torch.arange(4) == 0, 0.0, -torch.inf).expand(100, 5, 4).double())
    assert bool(fit_aggregator(sure, y, torch.zeros(100, dtype=torch.int64)).aggregator.bias.isfinite().all())


def test_join_leave_state_and_no_rows() -> None:
    scores = anyhow()
    fit = fit_aggregator(scores, torch.arange(200) % 4, torch.arange(200) % 5).aggregator
    more = fit.join()
    assert torch.equal(more.leave(5).heat, fit.heat)
    assert (float(more.lean[5]), float(more.heat[5]), more.bias[5].tolist()) == (0, 1, [0] * 4)
    assert torch.equal(Aggregator.of(fit.state())(scores).heads, fit(scores).heads)
    with pytest.raises(InputError, match="fitted to validation rows, and there are none"):
        fit_aggregator(
            scores._replace(router=scores.router[:0], heads=scores.heads[:0]), torch.zeros(0), torch.zeros(0)
        )


def test_out_of_fold_does_not_flatter() -> None:
    """Of scores of nothing, a fit to few rows flatters itself on these rows; out of fold nothing is won, and a row's
    own label does not change its scores."""
    scores = anyhow(rows=60)
    y, owner = torch.randint(4, (60,), generator=torch.Generator().manual_seed(0)), torch.arange(60) % 5
    fit = fit_aggregator(scores, y, owner, decay=1e-6)
    honest = out_of_fold(scores, y, owner, folds=2, rounds=15)
    loss = -float(mixture(honest)[torch.arange(60), y].log().mean())
    assert fit.after + 0.3 < loss
    assert loss > math.log(4) - 0.1
    other = y.clone()
    other[7] = (y[7] + 1) % 4
    again = out_of_fold(scores, other, owner, folds=2, rounds=15)
    assert torch.equal(again.heads[7], honest.heads[7])
    assert not torch.equal(again.heads[:7], honest.heads[:7])
    with pytest.raises(InputError, match="too few to tell"):
        out_of_fold(scores, y[:3], owner)
