"""What is known of FedRep."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network
from fedroute.config import Training
from fedroute.core import run_client
from fedroute.engines.base import context
from fedroute.rounds import prepare, start, work_of_round
from fedroute.tree import pick

MOMENTUM: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.1}
ADAM: dict[str, Any] = {"optimizer": "adam", "weight_decay": 0.1}


def two_optimizers(**local: Any) -> Callable[[Make], tuple[float, float]]:
    """A client's round against a loop in PyTorch with an optimiser for the head and another for the body: largest
    difference of a parameter or mean."""

    def measure(make: Make) -> tuple[float, float]:
        f, task = classes([40, 23]), network()
        training = Training(rounds=1, lr=0.05, batch_size=8, local_epochs=2, **local)
        alg = prepare(make(head_share=0.4), task, training)
        state, work = start(alg, f), work_of_round(alg, f, training, 0, 0)
        worst = 0.0
        for i, batches in work.batches.items():
            ctx = context(alg, state.server, state.privates[i], i, work)
            update, private, _ = run_client(alg, ctx, map(f.take, batches))
            module = copy.deepcopy(task.module)
            parts: list[list[nn.Parameter]] = [[], []]
            for k, p in module.named_parameters():
                parts[task.roles[k] != "head"].append(p)
            kind = torch.optim.Adam if "optimizer" in local else torch.optim.SGD
            options = {k: v for k, v in local.items() if k != "optimizer"}
            optimizers = [kind(p, lr=0.05, **options) for p in parts]
            for t, rows in enumerate(batches):
                body, buffers = t >= round(0.4 * len(batches)), [b.clone() for b in module.buffers()]
                module.zero_grad()
                nn.functional.cross_entropy(module(f.x[rows]), f.y[rows]).backward()
                optimizers[body].step()
                if not body:  # statistics belong to the body
                    for b, old in zip(module.buffers(), buffers, strict=True):
                        b.copy_(old)
            got = private["w"] | {k: state.server["w"][k] + v for k, v in update["dw"].items()}
            names = {*task.trainable, "1.running_mean"}
            worst = max(worst, gap(pick(got, names), pick(module.state_dict(), names)))
        return worst, 0.0

    return measure


def out_of_phase(**local: Any) -> Callable[[Make], tuple[float, float]]:
    """How far any weight moves in a step that is not its part's, over the first three rounds of a client's life."""

    def measure(make: Make) -> tuple[float, float]:
        f, task = classes([40]), network()
        training = Training(rounds=3, lr=0.05, batch_size=8, **local)
        alg = prepare(make(head_share=0.4), task, training)
        state, worst = start(alg, f), 0.0
        for r in range(3):
            work = work_of_round(alg, f, training, 0, r)
            ctx = context(alg, state.server, state.privates[0], 0, work)
            carry, phases = alg.begin(ctx), set[bool]()
            for t, rows in enumerate(work.batches[0]):
                old = carry["w"]
                carry, _ = alg.step(carry, f.take(rows), ctx._replace(step=torch.tensor(t)))
                body = t >= 2  # of five steps
                still = {k for k in old if (task.roles[k] == "head") == body}
                worst = max(worst, gap(pick(carry["w"], still), pick(old, still)))
                phases.add(body)
            assert phases == {False, True}
            update, private = alg.end(carry, ctx)
            state.server = alg.aggregate(state.server, update, 1.0)
            state.privates[0] = private
        return worst, 0.0

    return measure


CLAIMS = [
    Claim(
        "SGD with momentum and weight decay: the head's steps and then the body's (Collins et al. 2021, algorithm 1) "
        "are those of two optimisers in PyTorch, one for each: largest difference",
        two_optimizers(**MOMENTUM),
        1e-12,
    ),
    Claim("the same with Adam", two_optimizers(**ADAM), 1e-12),
    Claim(
        "momentum and weight decay move nothing out of its phase: largest movement of the body in the head's steps and "
        "of the head in the body's",
        out_of_phase(**MOMENTUM),
        0.0,
    ),
    Claim("nor does Adam", out_of_phase(**ADAM), 0.0),
]
