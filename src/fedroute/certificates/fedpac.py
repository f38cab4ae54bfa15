"""What is known of FedPAC."""

import torch

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.engines.base import Answer, Work, context
from fedroute.engines.sequential import Sequential
from fedroute.rounds import State, prepare, start, work_of_round

ONE = Training(rounds=1, lr=0.1, batch_size=8)


def _round(make: Make, f: Federation) -> tuple[Algorithm, State, list[Answer], State]:
    """A round: the algorithm, the state before, what the clients answered, and the state after."""
    alg, after = train(make(), f, network(norm=False), ONE)
    before = start(alg, f)
    answers = list(Sequential(alg, f).run(before.server, before.privates, work_of_round(alg, f, ONE, 0, 0)))
    return alg, before, answers, after


def centroids(make: Make) -> tuple[float, float]:
    f = classes([30, 50, 21])
    alg, _, _, after = _round(make, f)
    w = alg.task.init()
    with torch.no_grad():
        z = torch.relu(f.x @ w["0.weight"].T + w["0.bias"])
    want = torch.stack([z[f.y == k].mean(0) for k in range(3)])
    return float((after.server["c"] - want).abs().max()), 0.0


def two_heads(make: Make) -> tuple[float, float]:
    """With two clients alpha_12 = V_1 / (V_1 + V_2 + |h_1 - h_2|^2)."""
    f = classes([30, 50])
    alg, _, answers, after = _round(make, f)
    w, h, v = alg.task.init(), [], []
    for rows in f.train:
        z = torch.relu(f.x[rows] @ w["0.weight"].T + w["0.bias"]).detach()
        mine = torch.stack([z[f.y[rows] == k].sum(0) for k in range(3)]) / len(rows)
        h.append(mine)
        v.append(float((z.square().sum() / len(rows) - mine.square().sum()) / len(rows)))
    t = v[0] / (v[0] + v[1] + float((h[0] - h[1]).square().sum()))
    worst = 0.0
    for k, heads in after.server["head"].items():
        sent = [w[k] + a.update["dw"][k] for a in answers]
        worst = max(worst, float((heads[0] - (1 - t) * sent[0] - t * sent[1]).abs().max()))
    return worst, 0.0


def phases(make: Make) -> tuple[float, float]:
    """A round of two steps, momentum and weight decay: the first moves the head alone, the second the body alone."""
    f, decay = classes([16]), 0.1
    training = Training(rounds=1, lr=0.1, batch_size=8, momentum=0.9, weight_decay=decay)
    alg, after = train(make(head_share=0.5), f, network(norm=False), training)
    plain = prepare(FedAvg(), network(norm=False), training)
    w = alg.task.init()
    for step, rows in enumerate(work_of_round(alg, f, training, 0, 0).batches[0]):
        g, _, _ = plain.grad(w, f.take(rows), None)  # type: ignore[arg-type]  # no centroid is known in round 1
        moves = [k for k in w if (alg.task.roles[k] == "head") == (step == 0)]
        w = w | {k: w[k] - training.lr * (g[k] + decay * w[k]) for k in moves}
    return gap(alg.personal(after.server, after.privates[0]), w), 0.0


def pull(make: Make) -> tuple[float, float]:
    """The gradient of the pull on the body is that of lam mean_x mean_d (f(x) - c_y)^2, by autograd on the formula."""
    f, lam = classes([24]), 2.0
    alg, state = train(make(lam=lam, head_share=0.0), f, network(norm=False), ONE)
    batch, work = f.take(f.train[0]), Work(1, 0, 0.1, (0,), {0: [f.train[0]]})
    ctx = context(alg, state.server, state.privates[0], 0, work, f)
    w = ctx.server["w"] | ctx.server["head"]
    g, _, _ = alg.grad(w, batch, ctx)
    plain, _, _ = prepare(FedAvg(), network(norm=False), ONE).grad(w, batch, ctx)
    p = w["0.weight"].clone().requires_grad_()
    z = torch.relu(batch["x"] @ p.T + w["0.bias"])
    with torch.enable_grad():
        (want,) = torch.autograd.grad(lam * (z - state.server["c"][batch["y"]]).square().mean(), p)
    return float((g["0.weight"] - plain["0.weight"] - want).abs().max()), 0.0


def without(make: Make) -> tuple[float, float]:
    f = classes([5, 40, 20, 12])
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.6)
    _, a = train(make(lam=0.0, head_share=0.0, private=("head",)), f, network(), training)
    _, b = train(FedAvg(private=("head",)), f, network(), training)
    return gap(a.server["w"], b.server["w"]), 0.0


CLAIMS = [
    Claim(
        "the centroids after a round are the mean features of all rows of a class at the server's weights: largest "
        "difference",
        centroids,
        1e-12,
    ),
    Claim(
        "of two clients the first head becomes (1 - t) phi_1 + t phi_2, t = V_1 / (V_1 + V_2 + |h_1 - h_2|^2), where "
        "the quadratic programme (Xu et al. 2023, equation 11) has its minimum: largest difference",
        two_heads,
        1e-9,
    ),
    Claim(
        "a round of two steps with momentum and weight decay: the first moves the head and nothing else, the second "
        "the body and nothing else",
        phases,
        1e-12,
    ),
    Claim("the pull on the body has the gradient of lam mean |f(x) - c_y|^2: largest difference", pull, 1e-12),
    Claim(
        "lam = 0, head_share = 0 and a private head: FedAvg on the body with private heads: largest difference",
        without,
        1e-12,
    ),
]
