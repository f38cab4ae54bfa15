"""What is known of FedPer."""

import torch

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.presets import with_private
from fedroute.certificates.rig import federation, network, train
from fedroute.config import Training
from fedroute.data.federation import Federation
from fedroute.evaluate.predict import predict
from fedroute.randomness import generator


def opposed(inputs: bool) -> Federation:
    """Two clients of 40 rows that tell two classes apart by the first feature: the second client's labels are swapped,
    or with `inputs` its features turned about."""
    x = torch.randn(80, 2, generator=generator(0, "opposed"), dtype=torch.float64)
    x[:, 0] += x[:, 0].sign()
    y = (x[:, 0] > 0).long()
    second = torch.arange(80) >= 40
    if inputs:
        return federation(torch.where(second.unsqueeze(1), -x, x), y, [40, 40])
    return federation(x, torch.where(second, 1 - y, y), [40, 40])


def own_answers(make: Make, inputs: bool) -> tuple[float, float]:
    """The part of all rows that their own client's model gets right."""
    f, task = opposed(inputs), network(norm=False, d=2, k=2)
    alg, state = train(make(), f, task, Training(rounds=12, lr=0.5, batch_size=10))
    hits = [
        predict(task, alg.personal(state.server, state.privates[i]), f.x[rows]).argmax(1) == f.y[rows]
        for i, rows in enumerate(f.train)
    ]
    return float(torch.cat(hits).double().mean()), 1.0


CLAIMS = [
    Claim(
        "the rounds are FedAvg's with the head private, bit for bit, with batch norm, momentum and weight decay: "
        "largest difference of any state",
        with_private("head"),
        0.0,
    ),
    Claim(
        "two clients whose labels are swapped: each one's model gets all of its rows right, which no shared model can",
        lambda make: own_answers(make, inputs=False),
        0.0,
    ),
]
