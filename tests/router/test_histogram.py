"""Shades are counted, each image by itself."""

import pytest
import torch

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.router.histogram import BINS, histogram
from fedroute.router.inputs import RouterInput


def images(n: int, channels: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(channels)
    return torch.randint(0, 256, (n, channels, 6, 5), generator=g, dtype=torch.uint8)


def test_by_hand() -> None:
    x = torch.tensor([0.0, 0.0, 0.1, 0.13, 0.5, 0.999, 1.0, 1.0]).reshape(1, 1, 2, 4)
    share = torch.tensor([3, 1, 0, 0, 1, 0, 0, 3]) / 8
    assert torch.allclose(histogram(x)[0], share.double().sqrt())


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (3, 5)])
def test_shares_sum_to_one_in_each_map_and_bytes_are_read_as_0_to_1(channels: int, groups: int) -> None:
    x = images(20, channels)
    found = histogram(x)
    assert found.shape == (20, BINS * groups)
    assert torch.allclose(found.square().reshape(20, groups, BINS).sum(2), torch.ones(20, groups).double())
    assert torch.equal(histogram(x.float() / 255), found)


def test_rows_do_not_see_each_other_and_places_do_not_matter() -> None:
    x = images(700, 3)
    assert torch.equal(histogram(x)[513:514], histogram(x[513:514]))
    assert torch.equal(histogram(x.flip(2)), histogram(x))
    assert histogram(x[:0]).shape == (0, 40)


def test_it_is_an_input_of_images_only() -> None:
    x, y = images(30, 1), torch.arange(30) % 2
    f = Federation.from_arrays(x, y, ["a", "b"] * 15)
    read = RouterInput.of(["style", "histogram"], None, {}, f)
    assert read.width == RouterInput.of("style", None, {}, f).width + BINS
    assert RouterInput.load(read.spec(), read.state(), None, {}).read(x).equal(read.read(x))
    table = Federation.from_arrays(torch.randn(30, 4), y, ["a", "b"] * 15)
    with pytest.raises(InputError, match="histogram is of images"):
        RouterInput.of("histogram", None, {}, table)
