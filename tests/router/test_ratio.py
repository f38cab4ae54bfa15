"""Each client against a reference: density ratios without rounds."""

import math

import pytest
import torch

from fedroute.errors import InputError
from fedroute.router.ratio import Ratio, fit_one, fit_ratio, reference_rows
from tests.router.laws import MEANS, SPREAD, added, gaussian, hit, owners

SIZES = [4000, 1000, 2000, 3000]


def test_two_gaussians_have_the_true_slope_and_level() -> None:
    """T1: against a reference that is Gaussian itself, log dP_i / dP_0 is a line in closed form."""
    rows = gaussian([60_000, 15_000])
    reference = gaussian([60_000], seed=3, means=MEANS[2:3])[0]
    fit = fit_ratio(rows, reference, decay=0.0)
    inverse = torch.linalg.inv(SPREAD)
    for i in (0, 1):
        slope = inverse @ (MEANS[i] - MEANS[2])
        level = -0.5 * (MEANS[i] @ inverse @ MEANS[i] - MEANS[2] @ inverse @ MEANS[2])
        assert torch.allclose(fit.slope[i], slope, atol=0.1)
        assert float(fit.offset[i]) == pytest.approx(float(level), abs=0.1)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    assert torch.allclose(fit.logits(zero) - fit.density(zero), torch.tensor([60_000.0, 15_000]).double().log())


def test_it_tells_clients_nearly_as_well_as_all_together() -> None:
    rows, new = gaussian(SIZES), gaussian([2000] * 4, seed=1)
    inverse = torch.linalg.inv(SPREAD)
    z = torch.cat(new)
    n = torch.tensor([float(s) for s in SIZES], dtype=torch.float64)
    bayes = z @ inverse @ MEANS.T - 0.5 * torch.einsum("nd,de,ne->n", MEANS, inverse, MEANS) + n.log()
    fit = fit_ratio(rows, reference_rows(added(rows), 8000, 0))
    assert hit(fit.logits(z), owners(new)) > hit(bayes, owners(new)) - 0.04


def test_nobody_depends_on_another_client() -> None:
    """T21: by a bit; who joins fits its own row at home, and a copy gets the same."""
    rows = gaussian([60, 30, 90])
    reference = reference_rows(added(rows), 200, 0)
    fit, pair = fit_ratio(rows, reference), fit_ratio(rows[:2], reference)
    z = torch.randn(9, 3, dtype=torch.float64)
    assert torch.equal(pair.logits(z), fit.logits(z)[:, :2])
    joined = pair.joined(rows[2])
    assert torch.equal(joined.logits(z), fit.logits(z))
    assert torch.equal(joined.joined(rows[0]).logits(z)[:, 3], fit.logits(z)[:, 0])
    assert torch.equal(joined.leave(2).logits(z), pair.logits(z))
    assert torch.equal(Ratio.of(fit.state()).joined(z).logits(z), fit.joined(z).logits(z))


def test_the_reference_is_like_all_rows_together() -> None:
    rows = gaussian(SIZES)
    sums = added(rows)
    reference, z = reference_rows(sums, 40_000, 7), torch.cat(rows)
    assert torch.allclose(reference.mean(0), z.mean(0), atol=0.03)
    assert torch.allclose(reference.T.cov(), z.T.cov(), atol=0.06)
    assert torch.equal(reference, reference_rows(sums, 40_000, 7))
    assert not torch.equal(reference[:10], reference_rows(sums, 10, 8))


def test_empty_clients() -> None:
    none = torch.zeros(0, 3, dtype=torch.float64)
    rows = [*gaussian([60, 30]), none]
    fit = fit_ratio(rows, reference_rows(added(rows), 100, 0))
    assert bool((fit.logits(rows[0])[:, 2] == -math.inf).all())
    slope, offset = fit_one(none, rows[0])
    assert slope.tolist() == [0, 0, 0]
    assert float(offset) == 0
    with pytest.raises(InputError, match="no client has rows"):
        reference_rows(added([none]), 5, 0)
