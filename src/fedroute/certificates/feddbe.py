"""What is known of FedDBE."""

import torch
from torch.nn.functional import cross_entropy

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Context
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import flatten

TRAINING = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)


def neutral(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    _, a = train(make(kappa=0.0, bias=False), f, network(), TRAINING)
    _, b = train(FedAvg(), f, network(), TRAINING)
    return gap(flatten({"w": a.server["w"]}), flatten({"w": b.server["w"]})), 0.0


def by_hand(make: Make) -> tuple[float, float]:
    """The loss of a batch with a bias, a moving mean and a consensus against the paper's formula."""
    kappa, mu = 3.0, 0.25
    f, task = classes([12]), network(norm=False)
    alg, batch, none = make(kappa=kappa, mu=mu).bind(task), f.take(f.train[0]), torch.tensor(0)
    bias, old, consensus = (torch.linspace(*ends, 7, dtype=torch.float64) for ends in ((-1, 1), (0, 2), (1, -1)))
    w = task.init()
    own = {"2.client_bias": bias, "2.client_mean": old, "2.client_batches": torch.tensor(4)}
    server = alg.init(alg.task.init(), torch.ones(1)) | {"consensus": consensus, "known": torch.tensor(True)}
    _, _, loss = alg.grad(w | own, batch, Context(server, {"w": own}, none, none, none, 0.1))
    z = (batch["x"] @ w["0.weight"].T + w["0.bias"]).relu()
    supervised = cross_entropy((z + bias) @ w["2.weight"].T + w["2.bias"], batch["y"])
    apart = ((1 - mu) * old + mu * z.mean(0) - consensus).square().mean()
    return float(loss), float(supervised + kappa * apart)


def consensus(make: Make) -> tuple[float, float]:
    """The consensus after each of three rounds against the clients' moving means after the first, weighted by rows."""
    f = classes([9, 20, 14, 11])
    alg = prepare(make(), network(), TRAINING)
    state, want, worst = start(alg, f), torch.zeros(7, dtype=torch.float64), 0.0
    for r in range(TRAINING.rounds):
        work = work_of_round(alg, f, TRAINING, 0, r)
        answers = list(Sequential(alg, f).run(state.server, state.privates, work))
        if not r:
            say = torch.tensor([len(f.train[a.client]) for a in answers]).double()
            means = torch.stack([a.private["w"]["3.client_mean"] for a in answers])
            want = (say / say.sum()) @ means
        elif any(a.update["mean"].any() for a in answers):
            return float("inf"), 0.0  # features are told of again
        state = run_round(alg, Sequential(alg, f), f, TRAINING, state, work)
        worst = max(worst, float((state.server["consensus"] - want).abs().max()))
    return worst, 0.0


def stays(make: Make) -> tuple[float, float]:
    """How many of the clients' own tensors are at the server, or the same at two clients who trained."""
    f = classes([30, 40])
    _, state = train(make(), f, network(), TRAINING.model_copy(update={"clients_per_round": 1.0}))
    there = [k for k in flatten(state.server) if ".client_" in k]
    a, b = (p["w"] for p in state.privates.values())
    same = [k for k in ("3.client_bias", "3.client_mean") if k not in a or gap({k: a[k]}, {k: b[k]}) == 0]
    return float(len(there) + len(same)), 0.0


def held(make: Make) -> tuple[float, float]:
    """Whether two clients' mean features are at most half as far apart after training with a strong regulariser as
    without one."""
    f = classes([40, 40])
    t = Training(rounds=12, lr=0.05, batch_size=20, local_epochs=2)
    spread = []
    for kappa in (0.0, 100.0):
        _, state = train(make(kappa=kappa), f, network(norm=False), t)
        a, b = (p["w"]["2.client_mean"] for p in state.privates.values())
        spread.append(float((a - b).norm()))
    return float(spread[1] < spread[0] / 2), 1.0


CLAIMS = [
    Claim(
        "kappa = 0 without a bias is FedAvg, bit for bit, with batch norm, momentum and weight decay: largest "
        "difference",
        neutral,
        0.0,
    ),
    Claim("the loss of a batch is that of Zhang et al. 2023, written out", by_hand, 1e-12),
    Claim(
        "the consensus is the clients' mean of the first round, and no features are told of later: largest difference",
        consensus,
        1e-12,
    ),
    Claim("bias and mean stay with their client and differ from client to client: exceptions", stays, 0.0),
    Claim("the regulariser halves at least how far two clients' mean features lie apart: 1 for yes", held, 0.0),
]
