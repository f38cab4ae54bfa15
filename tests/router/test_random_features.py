"""Random Fourier features: the kernel in the mean, drawn by a key."""

import math

import pytest
import torch
from torch import Tensor

from fedroute.router.random_features import RandomFeatures


def kernel(z: Tensor, width: float) -> Tensor:
    """exp(-|z - z'|^2 / (2 s^2)), s = width sqrt(2 D)."""
    return (-torch.cdist(z, z).square() / (2 * width**2 * 2 * z.shape[1])).exp()


@pytest.mark.parametrize("width", [0.5, 1.0])
def test_inner_products_tend_to_the_kernel(width: float) -> None:
    z = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = []
    for count in (200, 20_000):
        phi = RandomFeatures.draw(6, count, width, 1)(z)
        assert phi.shape == (30, count)
        errors.append(float((phi @ phi.T - kernel(z, width)).abs().max()))
    assert errors[1] < 0.02 < errors[0] < 0.5


def test_a_row_has_length_one_and_blocks_are_orthogonal() -> None:
    f = RandomFeatures.draw(5, 20, 0.7, "a")
    phi = f(torch.randn(8, 5, dtype=torch.float64))
    assert torch.allclose(phi.norm(dim=1), torch.ones(8, dtype=torch.float64))
    block = f.frequencies[:5]
    across = block @ block.T
    assert torch.allclose(across, across.diagonal().diag(), atol=1e-12)
    lengths = RandomFeatures.draw(64, 4000, math.sqrt(1 / 128), "b").frequencies.square().sum(1)  # chi^2 of 64
    assert float(lengths.mean()) == pytest.approx(64, rel=0.02)
    assert float(lengths.var()) == pytest.approx(128, rel=0.15)


def test_orthogonal_rows_come_nearer_than_independent_ones() -> None:
    """Yu et al. 2016, theorem 1: less variance, at the same mean."""
    z = torch.randn(20, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    orthogonal, plain = 0.0, 0.0
    for seed in range(40):
        f = RandomFeatures.draw(16, 32, 1.0, seed)
        g = torch.Generator().manual_seed(seed)
        other = RandomFeatures(torch.randn(16, 16, generator=g, dtype=torch.float64) / math.sqrt(32))
        errors = [float(((m(z) @ m(z).T) - kernel(z, 1.0)).square().mean()) for m in (f, other)]
        orthogonal, plain = orthogonal + errors[0], plain + errors[1]
    assert orthogonal < 0.8 * plain


def test_every_client_draws_the_same() -> None:
    a, b, c = (RandomFeatures.draw(3, 10, 1.0, *key) for key in ((0, "x"), (0, "x"), (1, "x")))
    assert torch.equal(a.frequencies, b.frequencies)
    assert not torch.allclose(a.frequencies, c.frequencies)
    again = RandomFeatures(**a.state())
    z = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(again(z), a(z))
    assert a(z[:0]).shape == (0, 10)
