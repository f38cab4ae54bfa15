"""What is known of FedProx."""

import torch

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H, K, fixed_point
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.core import Context
from fedroute.tree import flatten

MU = 2.0


def pulled(make: Make) -> tuple[float, float]:
    training = Training(rounds=40, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
    _, state = train(make(mu=MU), *quadratics(H, A), training)
    return float(state.server["w"]["weight"]), fixed_point(H, A, LR, (K, K), MU)


def spring(make: Make) -> tuple[float, float]:
    """The pull at random weights against the gradient of mu/2 |w - w_server|^2 by autograd."""
    task = network(norm=False)
    alg = make(mu=MU).bind(task)
    anchor = task.init()
    w = {
        k: (v + torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view_as(v)).requires_grad_() for k, v in anchor.items()
    }
    loss = MU / 2 * sum(((w[k] - anchor[k]) ** 2).sum() for k in w)
    want = dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))  # type: ignore[arg-type]
    none = torch.tensor(0)
    ctx = Context(alg.init(anchor, torch.ones(1)), alg.init_client(anchor), none, none, none, LR)
    zero = {k: torch.zeros_like(v) for k, v in anchor.items()}
    return gap(alg.direction(zero, {k: v.detach() for k, v in w.items()}, ctx), want), 0.0


def neutral(make: Make) -> tuple[float, float]:
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)
    f = classes([5, 40, 20, 12])
    _, a = train(make(mu=0.0), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap(flatten(a.server), flatten(b.server)), 0.0


CLAIMS = [
    Claim(
        f"two quadratics h=(1, 10), a=(0, 1), lr 0.05, K=10, mu {MU:g}: comes to rest at sum r_i a_i / sum r_i with "
        "r_i = h_i/(h_i + mu) (1 - (1 - lr (h_i + mu))^K)",
        pulled,
        1e-9,
    ),
    Claim(
        "the pull is the gradient of mu/2 |w - w_server|^2 (Li et al. 2020, equation 2): largest difference",
        spring,
        1e-12,
    ),
    Claim(
        "mu = 0 is FedAvg, bit for bit, with batch norm, momentum and weight decay: largest difference", neutral, 0.0
    ),
]
