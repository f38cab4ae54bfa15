"""Training, validation and test parts inside one client."""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedroute.randomness import generator


class Split(BaseModel):
    """Fractions of each client's rows. by: "label" (stratified where labels are classes) or "time" (the newest rows
    are the test part, those before them the validation part)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    validation: float = Field(0.15, ge=0, lt=1)
    test: float = Field(0.25, ge=0, lt=1)
    by: Literal["label", "time"] = "label"


def split_rows(
    rows: Tensor, y: Tensor, split: Split, seed: int, client: str, time: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(train, validation, test) indices: an exact cover of `rows`, sorted. The part sizes are the fractions rounded;
    one row is always left for training. Strata: class by class in a random order, so that each part has the
    client's own label mix as nearly as whole rows allow."""
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
    place = torch.empty(len(order), dtype=torch.float64)
    codes = y[order]
    for k in codes.unique():
        at = (codes == k).nonzero().squeeze(1)
        place[at] = (torch.arange(len(at), dtype=torch.float64) + 0.5) / len(at)
    return order[torch.argsort(place, stable=True)]
