"""The real handwritten digits inside scikit-learn (1,797 of 8x8; E. Alpaydin, C. Kaynak, UCI, CC BY 4.0), as the
scans of six offices that differ in which digits they see, how many, and how their scanner draws them."""

import torch
from torch import Tensor

from fedroute.data.partition import assign
from fedroute.data.rows import Names, Rows
from fedroute.data.shift import add_noise, adjust_gamma, blur, rotate
from fedroute.data.spec import Bundled, Dirichlet

OFFICES = ("archive", "bank", "clinic", "library", "post_office", "school")


def read(spec: Bundled) -> Rows:
    """x: (1797, 1, 8, 8) float32 in 0..1, label: the digit. With a partition the digits as they are; otherwise six
    clients, always the same: a Dirichlet(0.7) label split, then one feature shift for each office but the bank."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(found.target)
    names = Names.of(found.target)
    if spec.partition:
        return Rows(name="digits", x=x, label=names)
    owner = assign(Dirichlet(clients=len(OFFICES), alpha=0.7, minimum=100), y, seed=4)
    for i, office in enumerate(OFFICES):
        at = owner == i
        x[at] = scan(x[at], office)
    note = (
        "digits: 1,797 real scans (UCI, via scikit-learn) dealt to six offices by Dirichlet(0.7); archive is faded and "
        "blurred, clinic and school are tilted to either side, library is noisy, post_office draws bold"
    )
    return Rows(name="digits", x=x, label=names, client=Names(OFFICES, owner.numpy()), notes=(note,))


def scan(x: Tensor, office: str) -> Tensor:
    """Images (B, 1, 8, 8) in 0..1 as this office's scanner draws them."""
    match office:
        case "archive":
            return 0.2 + 0.6 * blur(x, 0.6)
        case "clinic":
            return rotate(x, 20.0)
        case "library":
            return add_noise(x, 0.25, "bundled", office)
        case "post_office":
            return adjust_gamma(x, 0.4)
        case "school":
            return rotate(x, -20.0)
    return x
