"""What a client sends of its rows to be reachable."""

from typing import NamedTuple

from torch import Tensor

from fedroute.errors import InputError
from fedroute.router.base import Posterior
from fedroute.router.cells import Cells, sums_by_label
from fedroute.router.inputs import RouterInput
from fedroute.router.sums import Sums


class Upload(NamedTuple):
    """sums: of what the router reads; seen: of what tells who is like nobody."""

    sums: Sums
    seen: Sums


def upload_of(
    x: Tensor, y: Tensor | None, labels: int, posterior: Posterior, read: RouterInput, seen: RouterInput | None
) -> Upload:
    """Of encoded rows x (n, ...); by label, y (n,), where the posterior is of cells. labels: K.

    Raises InputError where labels are needed and not given."""
    z = read.read(x)
    others = z if seen is None or seen is read else seen.read(x)
    if not isinstance(posterior, Cells):
        return Upload(Sums.of(z), Sums.of(others))
    if y is None:
        raise InputError("router: a router of kind cells counts rows by label: give y as well")
    return Upload(sums_by_label(z, y, labels), Sums.of(others))
