"""SCAFFOLD on real data where published versions collapse: few clients a round, few classes a client, uneven sizes."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call

from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.scaffold import Scaffold
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.data.spec import Dirichlet, Split
from fedroute.engines.stacked import Stacked
from fedroute.rounds import State, prepare, run_round, start, work_of_round


def accuracy(algorithm: Algorithm, rounds: int) -> tuple[float, State]:
    """Of the global model on all test rows: 50 clients, 5 a round, Dirichlet 0.1."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    split = Split(validation=0.0, test=0.25)
    f = Federation.from_arrays(x, y, partition=Dirichlet(alpha=0.1, clients=50), split=split)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = Task(nn.Linear(64, 10))
    t = Training(rounds=rounds, lr=0.1, batch_size=20, local_epochs=3, clients_per_round=0.1)
    alg = prepare(algorithm, task, t)
    engine, state = Stacked(alg, f), start(alg, f)
    for r in range(rounds):
        state = run_round(alg, engine, f, t, state, work_of_round(alg, f, t, 0, r))
    test = torch.cat(f.test)
    out = functional_call(task.module, state.server["w"], (f.x[test],))
    return float((out.argmax(1) == f.y[test]).float().mean()), state


def test_scaffold_survives_partial_participation() -> None:
    fedavg, _ = accuracy(FedAvg(), 60)
    scaffold, state = accuracy(Scaffold(), 60)
    assert not state.quarantined
    assert scaffold > 0.85
    assert scaffold > fedavg + 0.05
    own = torch.stack([p["c"]["weight"] for p in state.privates.values()]).mean(0)
    torch.testing.assert_close(state.server["c"]["weight"], own, rtol=0, atol=1e-5)
