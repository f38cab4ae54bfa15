"""LDA from sums: closed forms of Gaussians, exact in any order, clients that come and go."""

import math

import pytest
import torch

from fedroute.errors import InputError
from fedroute.evaluate.metrics import calibration_error
from fedroute.router import calibrate
from fedroute.router.lda import Lda, fit_lda
from fedroute.router.random_features import RandomFeatures
from fedroute.router.rules import decide
from fedroute.router.scores import Scores
from fedroute.router.sums import Sums
from tests.router.laws import MEANS, SPREAD, added, gaussian, hit, owners


def test_two_gaussians_have_the_true_slope_and_intercept() -> None:
    """T1: with the prior, and without."""
    sizes = [200_000, 50_000]
    fit = fit_lda(added(gaussian(sizes)), shrink=0)
    inverse = torch.linalg.inv(SPREAD)
    slope = inverse @ (MEANS[1] - MEANS[0])
    level = -0.5 * (MEANS[1] @ inverse @ MEANS[1] - MEANS[0] @ inverse @ MEANS[0])
    assert torch.allclose(fit.slope[1] - fit.slope[0], slope, atol=0.03)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    raw, free = fit.logits(zero)[0], fit.density(zero)[0]
    assert float(free[1] - free[0]) == pytest.approx(float(level), abs=0.03)
    assert float(raw[1] - raw[0]) == pytest.approx(float(level) + math.log(sizes[1] / sizes[0]), abs=0.03)
    assert fit.prior.tolist() == [0.8, 0.2]


def test_it_is_the_formula_on_the_pooled_rows() -> None:
    """T22, written out with the rows themselves."""
    rows = gaussian([60, 30, 90])
    z, n = torch.randn(20, 3, dtype=torch.float64), torch.tensor([60.0, 30, 90], dtype=torch.float64)
    s = sum((r - r.mean(0)).T @ (r - r.mean(0)) for r in rows) / (180 - 3)
    mean = torch.stack([r.mean(0) for r in rows])
    p = torch.linalg.inv(s)
    want = z @ p @ mean.T - 0.5 * torch.einsum("nd,de,ne->n", mean, p, mean) + n.log()
    for order in ([0, 1, 2], [2, 0, 1]):
        fit = fit_lda(Sums.together(Sums.of(rows[i], chunk=7) for i in order), shrink=0)
        assert torch.allclose(fit.logits(z), want[:, order], atol=1e-10)


def test_unequal_covariances_need_more_than_a_line() -> None:
    """T2: two clients of the same mean, one wider: chance by z, the Bayes rule by random features of z."""
    g = torch.Generator().manual_seed(0)
    rows = [torch.randn(4000, 2, generator=g, dtype=torch.float64) * s for s in (1.0, 2.0)]
    new = [torch.randn(4000, 2, generator=g, dtype=torch.float64) * s for s in (1.0, 2.0)]
    z, owner = torch.cat(new), owners(new)
    bayes = hit(torch.stack([-(z.square().sum(1)) / 2, -(z.square().sum(1)) / 8 - 2 * math.log(2)], 1), owner)
    lift = RandomFeatures.draw(2, 100, 1.0)
    assert hit(fit_lda(added(rows)).logits(z), owner) < 0.54
    assert hit(fit_lda(added([lift(r) for r in rows])).logits(lift(z)), owner) > bayes - 0.02 > 0.65


def test_identical_clients_are_told_apart_by_chance_alone() -> None:
    """T3, sizes differing: densities near 0, and a cross entropy of log N where sizes agree."""
    means = torch.zeros(8, 3, dtype=torch.float64)
    fit = fit_lda(added(gaussian([4000, 1000, 2000, 4000, 4000, 4000, 4000, 3000], means=means)))
    z = torch.randn(500, 3, dtype=torch.float64)
    assert float((fit.density(z) - fit.density(z)[:, :1]).abs().max()) < 0.5
    equal, new = gaussian([4000] * 8, means=means), gaussian([500] * 8, seed=1, means=means)
    logits = fit_lda(added(equal)).logits(torch.cat(new))
    assert hit(logits, owners(new)) == pytest.approx(1 / 8, abs=0.02)
    loss = torch.nn.functional.cross_entropy(logits, owners(new))
    assert float(loss) == pytest.approx(math.log(8), abs=0.005)


def test_disjoint_clients_are_all_told_apart() -> None:
    """T4."""
    rows, new = gaussian([50, 80, 30, 9], means=40 * MEANS), gaussian([50, 80, 30, 9], seed=1, means=40 * MEANS)
    assert hit(fit_lda(added(rows)).logits(torch.cat(new)), owners(new)) == 1.0


def test_a_copied_client_gets_the_row_of_the_first() -> None:
    """T5 and T21: a client that joins changes nobody else's logits by a bit, and a copy of client i gets i's."""
    rows = gaussian([60, 30, 90])
    fit = fit_lda(added(rows))
    joined = fit.join(added([rows[1], gaussian([12], seed=5)[0]]))
    z = torch.randn(20, 3, dtype=torch.float64)
    assert torch.equal(joined.logits(z)[:, :3], fit.logits(z))
    assert torch.allclose(joined.logits(z)[:, 3], fit.logits(z)[:, 1], rtol=0, atol=1e-12)
    assert joined.prior.tolist() == pytest.approx([60 / 222, 30 / 222, 90 / 222, 30 / 222, 12 / 222])
    both = added([rows[0], rows[1], rows[1]])  # from the start: their posteriors are halves of the merged client's
    p = fit_lda(both).logits(z).softmax(1)
    assert torch.allclose(p[:, 1], p[:, 2], atol=1e-12)
    merged = fit_lda(both.grouped([0, 1, 1], 2))
    assert torch.allclose(merged.logits(z).softmax(1)[:, 1], p[:, 1] + p[:, 2], atol=1e-2)


def test_a_client_leaves_and_comes_back() -> None:
    rows = gaussian([60, 30, 90])
    sums, z = added(rows), torch.randn(20, 3, dtype=torch.float64)
    fit = fit_lda(sums)
    left = fit.leave(1)
    assert torch.equal(left.logits(z), fit.logits(z)[:, [0, 2]])
    again = left.join(Sums.of(rows[1])).logits(z)[:, [0, 2, 1]]
    assert torch.allclose(again, fit.logits(z), atol=1e-12)


def test_renaming_clients_permutes_rows() -> None:
    """T10: client numbers mean nothing, and a vector added to all rows (a change of gauge) changes no posterior."""
    rows, order, z = gaussian([60, 30, 90]), [2, 0, 1], torch.randn(9, 3, dtype=torch.float64)
    fit, other = fit_lda(added(rows)), fit_lda(added([rows[i] for i in order]))
    assert torch.allclose(other.logits(z), fit.logits(z)[:, order], atol=1e-12)
    moved = Lda(fit.slope + torch.ones(3), fit.offset - 2, fit.n, fit.through, fit.factor)
    assert torch.allclose(moved.logits(z).softmax(1), fit.logits(z).softmax(1), atol=1e-12)


def test_an_empty_client_is_never_likely() -> None:
    rows = [*gaussian([60, 30]), torch.zeros(0, 3, dtype=torch.float64)]
    fit = fit_lda(added(rows))
    logits = fit.logits(torch.randn(9, 3, dtype=torch.float64))
    assert bool((logits[:, 2] == -torch.inf).all())
    assert bool(logits[:, :2].isfinite().all())
    assert fit.prior[2] == 0
    with pytest.raises(InputError, match="no client has rows"):
        fit_lda(added([rows[2], rows[2]]))


@pytest.mark.parametrize("constant", [True, False])
def test_few_rows_and_constant_numbers_are_finite(constant: bool) -> None:
    rows = [torch.ones(1, 4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)]
    rows = [torch.ones(5, 4, dtype=torch.float64)] * 2 if constant else rows
    assert bool(fit_lda(added(rows)).logits(torch.ones(2, 4, dtype=torch.float64)).isfinite().all())


def test_as_many_directions_as_clients_lose_nothing() -> None:
    rows, z = gaussian([60, 30, 90]), torch.randn(9, 3, dtype=torch.float64)
    full, low = fit_lda(added(rows)), fit_lda(added(rows), rank=2)
    assert torch.allclose(low.logits(z).log_softmax(1), full.logits(z).log_softmax(1), atol=1e-9)
    assert low.slope.shape == (3, 2)
    one = fit_lda(added(rows), rank=1)
    assert hit(one.logits(torch.cat(rows)), owners(rows)) < hit(full.logits(torch.cat(rows)), owners(rows))
    back = low.join(Sums.of(rows[1])).logits(z)
    assert torch.allclose(back[:, 3], low.logits(z)[:, 1], atol=1e-12)


def test_ten_thousand_clients_cost_a_query_few_multiplications() -> None:
    """A row of 128 numbers for each of 10,000 clients is 1.3 million products; 16 directions make it 0.16 million."""
    g = torch.Generator().manual_seed(0)
    n, d = 10_000, 128
    mean = torch.randn(n, d, generator=g, dtype=torch.float64)
    second = mean.T @ mean * 20 + torch.eye(d, dtype=torch.float64) * 20 * n
    sums = Sums(torch.full((n,), 20.0, dtype=torch.float64), mean * 20, second)
    full, low = fit_lda(sums), fit_lda(sums, rank=16)
    assert full.slope.numel() == n * d
    assert low.slope.numel() + low.through.numel() == n * 16 + d * 16
    assert full.logits(mean[:3]).argmax(1).tolist() == [0, 1, 2]


def test_its_state_makes_an_equal_one() -> None:
    fit, z = fit_lda(added(gaussian([6, 30, 9]))), torch.randn(9, 3, dtype=torch.float64)
    again = Lda.of(fit.state())
    assert torch.equal(again.logits(z), fit.logits(z))
    assert torch.equal(again.join(Sums.of(z)).logits(z), fit.join(Sums.of(z)).logits(z))


def test_a_temperature_mends_what_few_rows_make_too_sure() -> None:
    """T23: of 60 rows of 40 numbers LDA is surer than it is right; one temperature, found on other rows, mends that on
    rows that neither has seen. It is applied to density ratios, so that `density` asks the same clients as before."""
    noise = [torch.randn(n, 37, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
             for k, n in enumerate([60] * 4 + [400] * 4 + [800] * 4)]  # fmt: skip
    plain = [*gaussian([60] * 4), *gaussian([400] * 4, seed=1), *gaussian([800] * 4, seed=2)]
    rows = [torch.cat(pair, 1) for pair in zip(plain, noise, strict=True)]
    fit = fit_lda(added(rows[:4]))

    def scores(some: list[torch.Tensor]) -> Scores:
        z = torch.cat(some)
        return Scores(fit.logits(z), fit.prior, torch.zeros(len(z), 4, 2, dtype=torch.float64).log_softmax(2))

    held, new, owner = rows[4:8], rows[8:], owners(rows[8:])
    warm = calibrate.fit(scores(held), owners(held), torch.zeros(1600, dtype=torch.int64))
    raw, cooled = scores(new), warm.apply(scores(new))
    errors = []
    for s in (raw, cooled):
        p, who = s.router.softmax(1).max(1)
        errors.append(calibration_error(p.numpy(), (who == owner).numpy()))
    assert float(warm.router) > 1.2
    assert errors[1] < 0.5 * errors[0]
    assert torch.equal(decide("density", raw).client, decide("density", cooled).client)
