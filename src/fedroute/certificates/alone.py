"""What is known of training alone."""

import copy

import torch
from torch import nn

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.rounds import work_of_round


def plain_loop(make: Make) -> tuple[float, float]:
    """Each client against torch.optim.SGD on the same batches, momentum anew in each round."""
    f, task = classes([5, 40, 20]), network()
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01)
    alg, state = train(make(), f, task, training)
    worst = 0.0
    for i in range(len(f.clients)):
        module = copy.deepcopy(task.module)
        for r in range(training.rounds):
            sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
            for rows in work_of_round(alg, f, training, 0, r).batches[i]:
                sgd.zero_grad()
                nn.functional.cross_entropy(module(f.x[rows]), f.y[rows]).backward()
                sgd.step()
        worst = max(worst, gap(alg.personal(state.server, state.privates[i]), module.state_dict()))
    return worst, 0.0


def silence(make: Make) -> tuple[float, float]:
    _, state = train(make(), classes([5, 40, 20]), network(), Training(rounds=2))
    return float(state.up_bytes + state.down_bytes), 0.0


CLAIMS = [
    Claim(
        "each client is a plain loop of SGD over its own batches, batch norm included: largest difference",
        plain_loop,
        1e-12,
    ),
    Claim("bytes that leave or reach a client in two rounds", silence, 0.0),
]
