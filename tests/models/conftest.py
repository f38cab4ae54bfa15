"""A small federation of any shape, for the tests of models."""

from collections.abc import Callable

import pytest
import torch

from fedroute.data.federation import Federation

MakeFederation = Callable[..., Federation]


@pytest.fixture
def federation() -> MakeFederation:
    """federation(shape of a row, labels): two clients with 12 normal rows each."""

    def make(shape: tuple[int, ...], labels: int = 10) -> Federation:
        x = torch.randn(24, *shape, generator=torch.Generator().manual_seed(0))
        names = [str(k) for k in range(labels)]
        return Federation.from_arrays(x, torch.arange(24) % max(labels, 1), ["a", "b"] * 12, labels=names)

    return make
