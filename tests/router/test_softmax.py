"""The federated softmax: the pooled fit, and the identities of the density ratio model that it fits."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedroute.errors import InputError
from fedroute.router.softmax import Softmax, fit_softmax, loss_and_gradient
from tests.router.laws import MEANS, SPREAD, added, gaussian, hit, owners

SIZES = [200, 100, 400]


def closely(rows: list[Tensor], decay: float) -> Softmax:
    return fit_softmax(rows, decay, rounds=500, tolerance=1e-10, sums=added(rows)).posterior


def test_two_gaussians_have_the_true_slope_and_intercept() -> None:
    """T1: with the prior, and without."""
    sizes = [40_000, 10_000]
    fit = closely(gaussian(sizes), decay=0.0)
    inverse = torch.linalg.inv(SPREAD)
    slope = inverse @ (MEANS[1] - MEANS[0])
    level = -0.5 * (MEANS[1] @ inverse @ MEANS[1] - MEANS[0] @ inverse @ MEANS[0])
    assert torch.allclose(fit.slope[1] - fit.slope[0], slope, atol=0.07)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    raw, free = fit.logits(zero)[0], fit.density(zero)[0]
    assert float(free[1] - free[0]) == pytest.approx(float(level), abs=0.06)
    assert float(raw[1] - raw[0]) == pytest.approx(float(level) + math.log(1 / 4), abs=0.05)


def test_unequal_covariances_need_squares() -> None:
    """T2: the Bayes rule is quadratic, and a softmax on squares reaches it."""
    g = torch.Generator().manual_seed(0)
    rows = [torch.randn(6000, 2, generator=g, dtype=torch.float64) * s for s in (1.0, 2.0)]
    z, owner = torch.cat(rows), owners(rows)
    bayes = hit(torch.stack([-(z.square().sum(1)) / 2, -(z.square().sum(1)) / 8 - 2 * math.log(2)], 1), owner)
    square = closely([torch.cat([r, r.square()], 1) for r in rows], decay=0.0)
    assert hit(closely(rows, decay=0.0).logits(z), owner) < 0.54
    assert hit(square.logits(torch.cat([z, z.square()], 1)), owner) == pytest.approx(bayes, abs=0.01)
    assert float(square.slope[0, 2] - square.slope[1, 2]) == pytest.approx(-0.5 + 1 / 8, abs=0.03)


def test_identical_clients_are_told_apart_by_chance_alone() -> None:
    """T3: densities near 0 although sizes differ, cross entropy log N where they agree."""
    nothing = torch.zeros(8, 3, dtype=torch.float64)
    sizes = [4000, 1000, 2000, 4000, 4000, 4000, 4000, 3000]
    z = torch.randn(300, 3, dtype=torch.float64)
    density = closely(gaussian(sizes, means=nothing), decay=0.0).density(z)
    assert float((density - density[:, :1]).abs().max()) < 0.5
    equal = fit_softmax(gaussian([2000] * 8, means=nothing), decay=0.0, tolerance=1e-9)
    assert equal.loss == pytest.approx(math.log(8), abs=0.002)
    new = gaussian([500] * 8, seed=1, means=nothing)
    assert hit(equal.posterior.logits(torch.cat(new)), owners(new)) == pytest.approx(1 / 8, abs=0.02)


def test_disjoint_clients_are_all_told_apart() -> None:
    """T4."""
    rows, new = gaussian([50, 80, 30, 9], means=40 * MEANS), gaussian([50, 80, 30, 9], seed=1, means=40 * MEANS)
    assert hit(fit_softmax(rows).posterior.logits(torch.cat(new)), owners(new)) == 1.0


def test_copied_data_have_equal_logits() -> None:
    """T5: and the two together have the posterior of the merged client."""
    rows, z = gaussian(SIZES), torch.randn(20, 3, dtype=torch.float64)
    both = closely([*rows, rows[1]], decay=0.0).logits(z)
    assert torch.allclose(both[:, 1], both[:, 3], atol=1e-6)
    merged = closely([rows[0], torch.cat([rows[1], rows[1]]), rows[2]], decay=0.0).logits(z).softmax(1)
    assert torch.allclose(both.softmax(1)[:, [1, 3]].sum(1), merged[:, 1], atol=1e-6)


def test_the_fit_maximises_the_empirical_likelihood() -> None:
    """T8: in the gauge of a virtual reference, multipliers n_i / n are the solution, the masses p_j and the tilted
    masses p_j e_i(z_j) sum to 1, and the profile log-likelihood is -CE - sum n_i log n_i."""
    rows = [torch.cat([z, z.square()], 1)[:, :4] for z in gaussian(SIZES)]
    fit, z, owner = closely(rows, decay=0.0), torch.cat(rows), owners(rows)
    n = torch.tensor([float(s) for s in SIZES], dtype=torch.float64)
    gauge = torch.tensor([0.3, -0.2, 0.1, 0.05], dtype=torch.float64)
    tilt = fit.density(z) + (z @ gauge)[:, None]  # any vector for all clients is another reference
    p = 1 / (n * tilt.exp()).sum(1)
    tilt = tilt + p.sum().log()  # and so is any number: this one makes the masses sum to 1
    p = p / p.sum()
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    assert torch.allclose((p[:, None] * tilt.exp()).sum(0), torch.ones(3, dtype=torch.float64), atol=1e-6)
    rho = n / n.sum()
    mass = 1 / (n.sum() * (1 + (rho * (tilt.exp() - 1)).sum(1)))
    assert torch.allclose(mass, p, rtol=1e-9)
    profile = p.log().sum() + tilt[torch.arange(len(z)), owner].sum()
    loss = cross_entropy(fit.logits(z), owner, reduction="sum")
    assert float(profile) == pytest.approx(float(-loss - (n * n.log()).sum()), rel=1e-10)
    other = rho + torch.tensor([0.01, -0.02, 0.01])  # other multipliers do not meet the constraints
    wrong = 1 / (n.sum() * (1 + (other * (tilt.exp() - 1)).sum(1)))
    assert float(((wrong[:, None] * tilt.exp()).sum(0) - 1).abs().max()) > 1e-3


def test_the_mean_posterior_is_the_prior() -> None:
    """T9: the first-order condition of free offsets, with a decay of the slopes as without."""
    rows = gaussian(SIZES)
    for decay in (0.0, 0.1):
        fit = closely(rows, decay=decay)
        assert torch.allclose(fit.logits(torch.cat(rows)).softmax(1).mean(0), fit.prior, atol=1e-7)


def test_decay_is_of_the_mean_loss_in_units_of_the_mean_variance() -> None:
    rows = gaussian(SIZES)
    z, decay = torch.cat(rows), 0.1
    fit = closely(rows, decay=decay)
    gradient = sum(loss_and_gradient(fit.slope, fit.offset, fit.n, r, i)[1] for i, r in enumerate(rows))
    level = z.var(0, correction=0).mean()
    pull = torch.as_tensor(gradient)[:, :-1] / len(z)
    assert torch.allclose(pull, -decay * level * fit.slope, atol=1e-7)


def test_gauge_and_names() -> None:
    """T10."""
    rows, z = gaussian(SIZES), torch.randn(20, 3, dtype=torch.float64)
    fit = closely(rows, decay=0.0)
    moved = replace(fit, slope=fit.slope + torch.ones(3), offset=fit.offset - 2)
    assert torch.allclose(moved.logits(z).softmax(1), fit.logits(z).softmax(1), atol=1e-12)
    order = [2, 0, 1]
    other = closely([rows[i] for i in order], decay=0.0).logits(z)
    assert torch.allclose(other.log_softmax(1), fit.logits(z)[:, order].log_softmax(1), atol=1e-5)


def test_what_clients_send_is_the_gradient() -> None:
    """T12, by central differences and against the pooled loss; another client's bias is only ever pushed down."""
    rows = gaussian(SIZES)
    g = torch.Generator().manual_seed(0)
    slope, offset = torch.randn(3, 3, generator=g, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    n = torch.tensor([float(s) for s in SIZES], dtype=torch.float64)
    sent = [loss_and_gradient(slope, offset, n, z, i) for i, z in enumerate(rows)]
    loss = sum(s[0] for s in sent)
    logits = torch.cat(rows) @ slope.T + offset + n.log()
    assert torch.allclose(torch.as_tensor(loss), cross_entropy(logits, owners(rows), reduction="sum"))
    for i in range(3):
        others = [k for k in range(3) if k != i]
        assert bool((sent[i][1][others, -1] >= 0).all())
        assert float(sent[i][1][:, -1].sum()) == pytest.approx(0, abs=1e-9)
    h = 1e-6
    for i, j in ((0, 1), (2, 3)):
        step = torch.zeros(3, 4, dtype=torch.float64).index_put(
            (torch.tensor(i), torch.tensor(j)), torch.tensor(h).double()
        )
        ends = [
            sum(float(loss_and_gradient(slope + s * step[:, :3], offset + s * step[:, 3], n, z, k)[0])
                for k, z in enumerate(rows))
            for s in (1, -1)
        ]  # fmt: skip
        found = sum(float(s[1][i, j]) for s in sent)
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)


def test_second_moments_save_rounds_and_change_no_fit() -> None:
    stretched = torch.tensor([1.0, 30.0, 0.05], dtype=torch.float64)
    turn = torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [0, 0.9, 0.1]], dtype=torch.float64)
    rows = [(z * stretched) @ turn for z in gaussian(SIZES)]
    plain = fit_softmax(rows, 0.0, rounds=3000, tolerance=1e-7)
    turned = fit_softmax(rows, 0.0, rounds=3000, sums=added(rows), tolerance=1e-7)
    assert turned.rounds < 0.5 * plain.rounds
    assert turned.loss == pytest.approx(plain.loss, abs=1e-4)
    assert turned.upload == 3 * 4 + 1


def test_empty_clients_and_rounds() -> None:
    none = torch.zeros(0, 3, dtype=torch.float64)
    rows = gaussian(SIZES[:2])
    fit = fit_softmax([rows[0], none, rows[1]], rounds=5)
    assert fit.rounds <= 7  # the line search of the last step may ask once more
    logits = fit.posterior.logits(rows[0])
    assert bool((logits[:, 1] == -torch.inf).all())
    assert bool(logits[:, [0, 2]].isfinite().all())
    alone = fit_softmax([rows[0], none]).posterior
    assert alone.logits(rows[0]).softmax(1)[:, 0].tolist() == [1.0] * len(rows[0])
    with pytest.raises(InputError, match="no client has rows"):
        fit_softmax([none, none])


def test_leave_and_state() -> None:
    rows = gaussian(SIZES)
    fit = fit_softmax(rows).posterior
    assert torch.equal(fit.leave(0).logits(rows[1]), fit.logits(rows[1])[:, 1:])
    assert torch.equal(Softmax.of(fit.state()).logits(rows[1]), fit.logits(rows[1]))


def test_a_client_joins_by_count_and_mean() -> None:
    """T21: nobody else's logits change by a bit, and routing is nearly what a fit anew would make of it."""
    rows, new = gaussian([400, 300, 500, 350], means=2 * MEANS), gaussian([500] * 4, seed=1, means=2 * MEANS)
    z, owner = torch.cat(new), owners(new)
    fit = closely(rows[:3], decay=1e-4)
    joined = fit.join(added(rows[3:]))
    assert torch.equal(joined.logits(z)[:, :3], fit.logits(z))
    assert hit(joined.logits(z), owner) > hit(closely(rows, decay=1e-4).logits(z), owner) - 0.02
    assert joined.prior.tolist() == pytest.approx([400 / 1550, 300 / 1550, 500 / 1550, 350 / 1550])
    twice = fit.join(added([rows[0]])).logits(z)  # on Gaussians LDA is right: a copy has nearly the row of the first
    assert float((twice[:, 3] - twice[:, 0]).abs().mean()) < 0.5
    with pytest.raises(InputError, match="without second moments"):
        fit_softmax(rows).posterior.join(added(rows[:1]))
