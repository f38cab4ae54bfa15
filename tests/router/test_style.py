"""Statistics of images: closed forms, and a row by itself."""

import pytest
import torch

from fedroute.data.shift import adjust_gamma, adjust_saturation
from fedroute.router.style import HUES, correlations, hues, maps, moments, quantiles, steps, style


def images(n: int = 6, channels: int = 3, size: int = 8) -> torch.Tensor:
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("shape", "width"), [((3, 32, 32), 401), ((1, 8, 8), 38), ((2, 5, 7), 228), ((3, 1, 1), 401)])
def test_widths(shape: tuple[int, ...], width: int) -> None:
    z = style(torch.rand(3, *shape))
    assert z.shape == (3, width)
    assert z.dtype == torch.float64
    assert bool(z.isfinite().all())
    assert style(torch.rand(0, *shape)).shape == (0, width)


def test_uint8_is_read_as_shares() -> None:
    x = (images() * 255).round().to(torch.uint8)
    assert torch.equal(style(x), style(x.float() / 255))


def test_a_row_is_read_by_itself() -> None:
    x = images(40)
    z, order = style(x), torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(style(x[order]), z[order], atol=1e-5)
    assert torch.allclose(torch.cat([style(x[[i]]) for i in range(40)]), z, atol=1e-5)
    assert torch.equal(style(x), z)


def test_constant_and_extreme_images_are_finite() -> None:
    for value in (0.0, 0.5, 1.0):
        assert bool(style(torch.full((2, 3, 8, 8), value)).isfinite().all())


def test_moments_of_a_known_sample() -> None:
    flat = torch.tensor([[[0.0, 0, 0, 1]]])  # mean 1/4, variance 3/16, third moment 3/32, fourth 21/256
    found = moments(flat)[0]
    want = [0.25, (3 / 16) ** 0.5, (3 / 32) / (3 / 16) ** 1.5, ((21 / 256) / (3 / 16) ** 2) ** 0.5]
    assert found.tolist() == pytest.approx(want, rel=1e-5)


def test_quantiles_are_pixels() -> None:
    flat = torch.arange(101.0).flip(0)[None, None] / 100
    assert quantiles(flat)[0].tolist() == pytest.approx([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98])


def test_correlations_are_numpys() -> None:
    flat = torch.randn(2, 4, 50, generator=torch.Generator().manual_seed(0))
    want = torch.stack([torch.corrcoef(f)[*torch.triu_indices(4, 4, 1)] for f in flat])
    assert torch.allclose(correlations(flat), want, atol=1e-5)
    assert correlations(torch.ones(1, 3, 9)).tolist() == [[0, 0, 0]]


def test_maps_and_steps() -> None:
    x = torch.tensor([0.2, 0.4, 0.1]).reshape(1, 3, 1, 1).expand(1, 3, 1, 2)
    assert maps(x)[0, :, 0, 0].tolist() == pytest.approx([0.2, 0.4, 0.1, 0.4, 0.75, -0.2, 0.3])
    ramp = torch.tensor([[[[0.0, 0.1, 0.3]]]])
    assert steps(ramp, 3).flatten().tolist() == pytest.approx([0.1, 0.2, 0.0])
    assert steps(ramp, 2).flatten().tolist() == [0, 0, 0]


def test_it_sees_brightness_and_colour() -> None:
    """A gamma above 1 lowers every channel's mean; less saturation lowers the mean saturation; nothing else need."""
    x = images(20, size=16)
    z, dark, pale = (style(v) for v in (x, adjust_gamma(x, 1.4), adjust_saturation(x, 0.5)))
    assert bool((dark[:, :3] < z[:, :3]).all())
    assert bool((pale[:, 4] < 0.7 * z[:, 4]).all())


def test_hues_of_known_colours() -> None:
    """Red lies at 0, green at a third of the circle, blue at two thirds; grey has none."""
    for k, place in enumerate((0, HUES // 3, 2 * HUES // 3)):
        pure = torch.full((1, 3, 2, 2), 0.2)
        pure[:, k] = 0.6
        want = [0.0] * HUES
        want[place] = 0.4**0.5
        assert hues(pure)[0].tolist() == pytest.approx(want, abs=1e-6)
    assert hues(torch.full((1, 3, 4, 4), 0.7)).tolist() == [[0.0] * HUES]
    orange = torch.tensor([0.6, 0.4, 0.2]).reshape(1, 3, 1, 1)  # a twelfth of the circle
    assert int(hues(orange)[0].argmax()) == HUES // 12
