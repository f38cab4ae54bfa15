"""Ridge from sums: the pooled regression, exactly; clients that come and go."""

import pytest
import torch
from torch.nn.functional import one_hot

from fedroute.errors import InputError
from fedroute.router.ridge import Ridge, fit_ridge
from fedroute.router.sums import Sums
from tests.router.laws import MEANS, added, gaussian, hit, owners

SIZES = [60, 30, 90]


def pooled(rows: list[torch.Tensor], z: torch.Tensor, shrink: float) -> torch.Tensor:
    """(B, N): ridge regression of who owns a row on all rows in one place."""
    x, y = torch.cat(rows), one_hot(owners(rows), len(rows)).double()
    a, m = x - x.mean(0), y.mean(0)
    cov = a.T @ a / len(a)
    weight = torch.linalg.solve(
        cov + shrink * cov.diagonal().mean() * torch.eye(3, dtype=torch.float64), a.T @ (y - m) / len(a)
    )
    shares: torch.Tensor = m + (z - x.mean(0)) @ weight
    return shares


@pytest.mark.parametrize("shrink", [0.0, 3e-4, 0.5])
def test_it_is_the_regression_on_the_pooled_rows(shrink: float) -> None:
    """T22, in any order of clients; its logits are the shares over the noise."""
    rows, z = gaussian(SIZES), torch.randn(20, 3, dtype=torch.float64)
    for order in ([0, 1, 2], [1, 2, 0]):
        some = [rows[i] for i in order]
        fit = fit_ridge(Sums.together(Sums.of(r, chunk=11) for r in some), shrink)
        found, want = fit.logits(z) * fit.scale[1], pooled(some, z, shrink)
        assert torch.allclose(found, want, atol=1e-10)
        assert torch.allclose(found.sum(1), torch.ones(20, dtype=torch.float64), atol=1e-9)
        y = one_hot(owners(some), 3).double()
        left = (y - pooled(some, torch.cat(some), shrink)).square().mean()
        assert float(fit.scale[1]) == pytest.approx(float(left), rel=1e-9)


def test_a_client_joins_without_a_change_for_the_others() -> None:
    """T21: their logits stay to rounding, and a copy of client i gets i's row."""
    rows, z = gaussian(SIZES), torch.randn(20, 3, dtype=torch.float64)
    fit = fit_ridge(added(rows))
    joined = fit.join(added([rows[2], gaussian([1], seed=4)[0]]))
    assert torch.allclose(joined.logits(z)[:, :3], fit.logits(z), rtol=0, atol=1e-12)
    assert torch.allclose(joined.logits(z)[:, 3], fit.logits(z)[:, 2], rtol=0, atol=1e-12)
    assert torch.equal(joined.leave(4).leave(3).logits(z), fit.logits(z))
    assert torch.equal(fit.leave(0).logits(z), fit.logits(z)[:, 1:])


def test_it_tells_clients_apart() -> None:
    rows, new = gaussian([50, 80, 30, 40], means=9 * MEANS), gaussian([50, 80, 30, 40], seed=1, means=9 * MEANS)
    assert hit(fit_ridge(added(rows)).logits(torch.cat(new)), owners(new)) > 0.97


def test_empty_clients_and_no_clients() -> None:
    none = torch.zeros(0, 3, dtype=torch.float64)
    fit = fit_ridge(added([*gaussian([60, 30]), none]))
    logits = fit.logits(torch.randn(9, 3, dtype=torch.float64))
    assert bool((logits[:, 2] == -torch.inf).all())
    assert bool(logits[:, :2].isfinite().all())
    assert fit.prior.tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    with pytest.raises(InputError, match="no client has rows"):
        fit_ridge(added([none, none]))


def test_its_state_makes_an_equal_one() -> None:
    fit, z = fit_ridge(added(gaussian(SIZES))), torch.randn(9, 3, dtype=torch.float64)
    again = Ridge.of(fit.state())
    assert torch.equal(again.join(Sums.of(z)).logits(z), fit.join(Sums.of(z)).logits(z))
