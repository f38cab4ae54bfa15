"""What is known of IFCA."""

import torch

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import Quadratic, classes, gap, mean_of_outputs, network, quadratics, train
from fedroute.config import Training
from fedroute.core import Task
from fedroute.data.federation import Federation

A, ROWS = (-1.2, -0.8, 4.8, 5.2), (1, 3, 1, 1)


def one_model(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.6,
                        server_optimizer="adam", server_lr=0.1)  # fmt: skip
    _, a = train(make(k=1), f, network(), training)
    _, b = train(FedAvg(), f, network(), training)
    return gap({k: v[0] for k, v in a.server["models"].items()}, b.server["w"]), 0.0


def _groups() -> tuple[Federation, Task]:
    f, _ = quadratics((1.0,) * 4, A, ROWS)
    return f, Task(Quadratic(w0=1.0), loss=mean_of_outputs)


def groups(make: Make) -> tuple[float, float]:
    """Each group of clients ends with a model of its own, at its optimum weighted by rows: largest difference."""
    training = Training(rounds=45, lr=0.1, batch_size=1, local_steps=4)
    alg, state = train(make(k=2), *_groups(), training)
    got = torch.stack([alg.personal(state.server, state.privates[i])["weight"][0] for i in range(4)])
    left, right = (A[0] + 3 * A[1]) / 4, (A[2] + A[3]) / 2
    return float((got - torch.tensor([left, left, right, right])).abs().max()), 0.0


def unchosen(make: Make) -> tuple[float, float]:
    """One client, three models, one round: how many of the models moved."""
    f, _ = quadratics((1.0,), (3.0,))
    task = Task(Quadratic(w0=1.0), loss=mean_of_outputs)
    _, before = train(make(k=3), f, task, Training(rounds=1, lr=1e-12, batch_size=1))
    _, after = train(make(k=3), f, task, Training(rounds=1, lr=0.1, batch_size=1))
    moved = (before.server["models"]["weight"] - after.server["models"]["weight"]).abs() > 1e-6
    return float(moved.sum()), 1.0


def planted(make: Make) -> tuple[float, float]:
    """Six clients whose labels follow one of two opposite rules: how many share their model with their own kind."""
    f = classes([40] * 6, k=2)
    x = f.x - torch.arange(6).repeat_interleave(40).unsqueeze(1)
    y = (x[:, 0] > 0).long()
    for i in (1, 3, 5):
        y[f.train[i]] = 1 - y[f.train[i]]
    f = Federation(name="rig", x=x, y=y, clients=f.clients, train=f.train, validation=f.validation, test=f.test)
    _, state = train(make(k=2), f, network(norm=False, k=2), Training(rounds=15, lr=0.3, batch_size=40, local_steps=4))
    taken = [int(state.privates[i]["s"].argmax()) for i in range(6)]
    return float(sum(t == taken[i % 2] for i, t in enumerate(taken)) * (taken[0] != taken[1])), 6.0


CLAIMS = [
    Claim("one model: FedAvg, with momentum and Adam at the server: largest difference", one_model, 1e-12),
    Claim(
        "two groups of quadratics, two models: every client ends at the optimum of its own group, weighted by rows: "
        "largest difference",
        groups,
        1e-6,
    ),
    Claim("of three models the one client's choice moves, and the others stay: how many moved", unchosen, 0.0),
    Claim("six clients with one of two opposite rules for the label: all take the model of their kind", planted, 0.0),
]
