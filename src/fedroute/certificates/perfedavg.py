"""What is known of Per-FedAvg."""

from collections.abc import Callable
from typing import Any

import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import A, H, K, fixed_point
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.core import Context
from fedroute.engines.base import context
from fedroute.rounds import work_of_round

ALPHA, LR = 0.06, 0.1


def rests(variant: str) -> Callable[[Make], tuple[float, float]]:
    """On h/2 (w - a)^2 the meta-gradient is (1 - alpha h)^2 h (w - a); FO's has (1 - alpha h) once."""

    def measure(make: Make) -> tuple[float, float]:
        training = Training(rounds=20, lr=LR, batch_size=1, local_steps=K, weighting=UNIFORM)
        _, state = train(make(variant=variant, alpha=ALPHA), *quadratics(H, A), training)
        h = [h * (1 - ALPHA * h) ** (1 if variant == "FO" else 2) for h in H]
        return float(state.server["w"]["weight"]), fixed_point(h, A, LR, (K, K))

    return measure


def meta_gradient(variant: str, **options: Any) -> Callable[[Make], tuple[float, float]]:
    """One step on a batch of six rows against autograd, by hand on thirds of it (halves for FO)."""

    def measure(make: Make) -> tuple[float, float]:
        f, task = classes([6]), network(norm=False)
        alg, w = make(variant=variant, alpha=ALPHA, **options).bind(task), task.init()
        n = 2 if variant == "FO" else 3
        x, y = f.x.tensor_split(n), f.y.tensor_split(n)

        def slope(w: dict[str, torch.Tensor], j: int) -> dict[str, torch.Tensor]:
            p = {k: v.detach().requires_grad_() for k, v in w.items()}
            loss = cross_entropy(functional_call(task.module, p, (x[j],)), y[j])
            return dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))

        g = slope(w, 0)
        want = slope({k: v - ALPHA * g[k] for k, v in w.items()}, 1)
        if variant != "FO":
            names, d = list(w), tuple(want.values())

            def f2(*values: torch.Tensor) -> torch.Tensor:
                out = functional_call(task.module, dict(zip(names, values, strict=True)), (x[2],))
                return cross_entropy(out, y[2])

            _, hd = torch.autograd.functional.hvp(f2, tuple(w.values()), d)
            want = {k: v - ALPHA * h for (k, v), h in zip(want.items(), hd, strict=True)}
        none = torch.tensor(0)
        ctx = Context(alg.init(w, torch.ones(1)), alg.init_client(w), none, none, none, 1.0)
        after, _ = alg.step(alg.begin(ctx), {"x": f.x, "y": f.y}, ctx)
        return gap({k: v - after["w"][k] for k, v in w.items()}, want), 0.0

    return measure


def one_step(make: Make) -> tuple[float, float]:
    """Client 1 with three rows in batches of two, h = 10, a = 1: w - alpha h (w - a)."""
    f, task = quadratics(H, A, (3, 3))
    training = Training(rounds=2, lr=LR, batch_size=2)
    alg, state = train(make(alpha=ALPHA), f, task, training)
    work = work_of_round(alg, f, training, 0, 2)
    private = alg.adapt(context(alg, state.server, state.privates[1], 1, work), map(f.take, work.batches[1]))
    w = float(state.server["w"]["weight"])
    return float(alg.personal(state.server, private)["weight"]), w - ALPHA * H[1] * (w - A[1])


CLAIMS = [
    *(
        Claim(
            f"two quadratics h=(1, 10), a=(0, 1), lr {LR:g}, K=10, alpha {ALPHA:g}, variant {variant}: comes to rest "
            f"at sum r_i a_i / sum r_i with r_i = 1 - (1 - lr {form} h_i)^K",
            rests(variant),
            1e-9,
        )
        for variant, form in (("exact", "(1 - alpha h_i)^2"), ("HF", "(1 - alpha h_i)^2"), ("FO", "(1 - alpha h_i)"))
    ),
    *(
        Claim(
            f"a step of variant {variant} on a network is the gradient of F_i (Fallah et al. 2020, "
            f"{'its first-order part' if variant == 'FO' else 'algorithm 1'}) on parts of the batch, by autograd: "
            "largest difference",
            meta_gradient(variant, **options),
            tolerance,
        )
        for variant, options, tolerance in (
            ("exact", {}, 1e-12),
            ("HF", {"delta": 1e-5}, 1e-7),
            ("FO", {}, 1e-12),
        )
    ),
    Claim(
        "a client's model is one step w - alpha grad f_i(w) over all of its rows from the global one: on a quadratic "
        "w - alpha h (w - a)",
        one_step,
        1e-12,
    ),
]
