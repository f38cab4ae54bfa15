"""What is known of FedBABU."""

import copy

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.presets import LOCAL, tuned_by_sgd
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Task
from fedroute.tree import pick


def head_rests(make: Make) -> tuple[float, float]:
    """How far the head of any client, or the server's, which moves by momentum, is from the initial one."""
    f, task, training = classes([5, 40, 20]), network(), Training(rounds=3, server_optimizer="momentum", **LOCAL)
    alg, state = train(make(), f, task, training)
    head = task.named("head")
    models = [alg.personal(state.server, p) for p in state.privates.values()]
    return max(gap(pick(w, head), pick(task.init(), head)) for w in [*models, state.server["w"]]), 0.0


def frozen_head(make: Make) -> tuple[float, float]:
    """Against FedAvg on a model whose head PyTorch itself does not train."""
    f, task, training = classes([5, 40, 20]), network(), Training(rounds=3, **LOCAL)
    module = copy.deepcopy(task.module)
    for k, p in module.named_parameters():
        p.requires_grad_(task.roles[k] != "head")
    _, a = train(make(), f, task, training)
    _, b = train(FedAvg(), f, Task(module), training)
    return gap(a.server["w"], b.server["w"]) + abs(a.up_bytes - b.up_bytes), 0.0


CLAIMS = [
    Claim(
        "the head is the initial one after three rounds with momentum and weight decay, at clients and server (Oh et "
        "al. 2022, algorithm 1): largest difference",
        head_rests,
        0.0,
    ),
    Claim(
        "the rounds are FedAvg's on a model whose head does not require gradients, bit for bit and byte for byte: "
        "largest difference",
        frozen_head,
        0.0,
    ),
    Claim(
        "fine-tuning is SGD in PyTorch from the global weights, on all weights: largest difference",
        tuned_by_sgd(),
        1e-12,
    ),
]
