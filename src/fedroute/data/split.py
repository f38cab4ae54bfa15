"""Training, validation and test parts inside one client."""

import torch
from torch import Tensor

from fedroute.data.spec import Split
from fedroute.randomness import generator

__all__ = ["Split", "split_rows"]


def split_rows(
    rows: Tensor, y: Tensor, split: Split, seed: int, client: str, time: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(train, validation, test) indices: an exact cover of `rows`, sorted. The part sizes are the fractions rounded;
    one row is always left for training. Strata: class by class in a random order, so that each part has the
    client's own label mix as nearly as whole rows allow. The draw depends on seed and client name alone, and never
    on where the client's rows stand among the others'."""
    n = len(rows)
    n_test, n_validation = round(n * split.test), round(n * split.validation)
    if n and n_test + n_validation >= n:
        n_test, n_validation = (n - 1, 0) if n_test else (0, n - 1)
    order = rows[torch.randperm(n, generator=generator(seed, "split", client))]
    if split.by == "time" and time is not None:
        order = rows[torch.argsort(time[rows], stable=True, descending=True)]
    elif y.dtype == torch.int64 and y.ndim == 1:
        order = _spread(order, y)
    test, validation, train = order.split([n_test, n_validation, n - n_test - n_validation])
    return train.sort().values, validation.sort().values, test.sort().values


def _spread(order: Tensor, y: Tensor) -> Tensor:
    """Rows reordered, each prefix with the label mix of the whole: a class's j-th of c rows sits at (j + 1/2) / c."""
    codes, count = y[order].unique(return_inverse=True, return_counts=True)[1:]
    by_class = torch.argsort(codes, stable=True)
    first = count.cumsum(0) - count
    rank = torch.empty_like(codes)
    rank[by_class] = torch.arange(len(codes)) - first[codes[by_class]]
    return order[torch.argsort((rank.double() + 0.5) / count[codes], stable=True)]
