"""What is known of MOON."""

import torch
from torch.nn.functional import cross_entropy

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Context
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import Weights, flatten


def neutral(make: Make) -> tuple[float, float]:
    t = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)
    f = classes([5, 40, 20, 12])
    _, a = train(make(mu=0.0), f, network(), t)
    _, b = train(FedAvg(), f, network(), t)
    return gap(flatten(a.server), flatten(b.server)), 0.0


def by_hand(make: Make) -> tuple[float, float]:
    """The loss of a batch at three different sets of weights against the paper's formula, exponentials and all."""
    mu, tau = 2.0, 0.5
    f, task = classes([12]), network(norm=False)
    alg, batch = make(mu=mu, tau=tau).bind(task), f.take(f.train[0])
    local = task.init()
    shared = {k: v + 0.3 * torch.cos(torch.arange(v.numel()).double()).view_as(v) for k, v in local.items()}
    before = {k: v - 0.4 * torch.sin(torch.arange(v.numel()).double()).view_as(v) for k, v in local.items()}
    none = torch.tensor(0)
    own = alg.init_client(local) | {"before": {k: before[k] for k in ("0.weight", "0.bias")}}
    ctx = Context(alg.init(shared, torch.ones(1)), own, none, none, none, 0.1)
    _, _, loss = alg.grad(local, batch, ctx)

    def z(w: Weights) -> torch.Tensor:
        found: torch.Tensor = (batch["x"] @ w["0.weight"].T + w["0.bias"]).relu()
        return found

    def sim(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        lengths = (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-8)  # a row may light nothing up
        found: torch.Tensor = (a * b).sum(1) / lengths
        return found

    near, far = ((sim(z(local), z(w)) / tau).exp() for w in (shared, before))
    supervised = cross_entropy(z(local) @ local["2.weight"].T + local["2.bias"], batch["y"])
    want = supervised - mu * (near / (near + far)).log().mean()
    return float(loss), float(want)


def first_step(make: Make) -> tuple[float, float]:
    """Where local, global and former model are one, l_con is log 2 and flat: the first step ever is FedAvg's."""
    f, t = classes([9, 20]), Training(rounds=1, lr=0.1, batch_size=8, local_steps=1)
    _, a = train(make(mu=5.0), f, network(), t)
    _, b = train(FedAvg(), f, network(), t)
    loss = a.loss - b.loss
    return gap(a.server["w"], b.server["w"]) + abs(loss - 5.0 * float(torch.tensor(2.0).double().log())), 0.0


def former(make: Make) -> tuple[float, float]:
    """Two clients in four a round: each one's former weights against those that it had after its own last round."""
    f, t = classes([9, 20, 14, 11]), Training(rounds=4, lr=0.1, batch_size=8, clients_per_round=0.5)
    alg = prepare(make(), network(), t)
    state = start(alg, f)
    want = {i: alg.task.init() for i in state.privates}
    for r in range(t.rounds):
        work, w = work_of_round(alg, f, t, 0, r), state.server["w"]
        answers = list(Sequential(alg, f).run(state.server, state.privates, work))
        want |= {a.client: {k: w[k] + a.update["dw"][k] for k in alg.task.trainable} for a in answers}
        state = run_round(alg, Sequential(alg, f), f, t, state, work)
    names = [k for k in alg.task.trainable if not k.startswith("3.")]
    return max(gap(p["before"], {k: want[i][k] for k in names}) for i, p in state.privates.items()), 0.0


CLAIMS = [
    Claim(
        "mu = 0 is FedAvg, bit for bit, with batch norm, momentum and weight decay: largest difference", neutral, 0.0
    ),
    Claim("the loss of a batch is that of Li et al. 2021, equations 3 and 4, written out", by_hand, 1e-9),
    Claim("where the three models are one the contrastive loss is log 2 and moves nothing", first_step, 1e-9),
    Claim(
        "a client is compared with its own weights of its own last round (algorithm 1), also where few are "
        "chosen: largest difference",
        former,
        1e-12,
    ),
]
