"""What is known of FedRoD."""

from dataclasses import replace

import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Context
from fedroute.data.federation import Federation
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round

TRAINING = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)
LOGITS = torch.tensor([[0.3, -1.0, 2.0], [1.5, 0.2, 0.1], [-0.7, 0.4, 0.9]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0])


def labelled(rows: list[int]) -> Federation:
    return replace(classes(rows), labels=("a", "b", "c"))


def generic_loss(make: Make, counts: list[int]) -> float:
    """Of the batch above at a client with these rows of each label; the personal part adds nothing to it."""
    alg, none = make(gamma=1.0).bind(network(norm=False)), torch.tensor(0)
    ctx = Context({}, {}, none, none, none, 0.1, torch.tensor(counts))
    return float(alg.loss((LOGITS, LOGITS), {"y": LABELS}, ctx) - cross_entropy(LOGITS, LABELS))


def balanced(make: Make) -> tuple[float, float]:
    """Counts 6, 2 and 0: -log( n_y e^(g_y) / sum_c n_c e^(g_c) ), where the third label has no part in the sum."""
    n, e = torch.tensor([6.0, 2.0, 0.0], dtype=torch.float64), LOGITS.exp()
    want = -(n[LABELS] * e[torch.arange(3), LABELS] / (n * e).sum(1)).log().mean()
    return generic_loss(make, [6, 2, 0]), float(want)


def uniform(make: Make) -> tuple[float, float]:
    return generic_loss(make, [4, 4, 4]), float(cross_entropy(LOGITS, LABELS))


def neutral(make: Make) -> tuple[float, float]:
    f = labelled([5, 40, 20, 12])
    _, a = train(make(gamma=0.0), f, network(), TRAINING)
    _, b = train(FedAvg(), f, network(), TRAINING)
    return gap(a.server["w"], b.server["w"]), 0.0


def apart(make: Make) -> tuple[float, float]:
    """The server's weights with the clients' own heads at their start, and at random: nothing of them gets there."""
    f = labelled([5, 40, 20, 12])
    found = []
    for scale in (0.0, 3.0):
        alg = prepare(make(), network(), TRAINING)
        state = start(alg, f)
        for i, p in state.privates.items():
            moved = {
                k: v + scale * torch.cos(torch.arange(v.numel()).double() + i).view_as(v) for k, v in p["w"].items()
            }
            state.privates[i] = p | {"w": moved}
        for r in range(TRAINING.rounds):
            state = run_round(alg, Sequential(alg, f), f, TRAINING, state, work_of_round(alg, f, TRAINING, 0, r))
        found.append(state.server["w"])
    return gap(*found), 0.0


def own_step(make: Make) -> tuple[float, float]:
    """One full-batch step of h_i, which starts at zero: its weight is -lr (softmax(g(z)) - onehot)^T z / rows."""
    f, task = labelled([9]), network(norm=False)
    _, state = train(make(), f, task, Training(rounds=1, lr=0.1, batch_size=9))
    w, x, y = task.init(), f.x, f.y
    z = (x @ w["0.weight"].T + w["0.bias"]).relu()
    wrong = (z @ w["2.weight"].T + w["2.bias"]).softmax(1) - torch.eye(3, dtype=torch.float64)[y]
    want = {"2.personal_weight": -0.1 * wrong.T @ z / 9, "2.personal_bias": -0.1 * wrong.mean(0)}
    return gap(state.privates[0]["w"], want), 0.0


def in_use(make: Make) -> tuple[float, float]:
    """What a client's model says of rows, and the global one, against g(z) + h_i(z) and g(z)."""
    f, task = labelled([9, 30]), network(norm=False)
    alg, state = train(make(), f, task, TRAINING)
    w, worst = state.server["w"], 0.0
    z = (f.x @ w["0.weight"].T + w["0.bias"]).relu()
    g = z @ w["2.weight"].T + w["2.bias"]
    model = alg.predictor()
    for p in state.privates.values():
        want = g + z @ p["w"]["2.personal_weight"].T + p["w"]["2.personal_bias"]
        worst = max(worst, gap({"": functional_call(model.module, alg.personal(state.server, p), (f.x,))}, {"": want}))
    return max(worst, gap({"": functional_call(model.module, w, (f.x,))}, {"": g})), 0.0


CLAIMS = [
    Claim("the generic loss is the balanced softmax of the client's label counts, written out", balanced, 1e-12),
    Claim("with as many rows of each label the generic loss is cross entropy", uniform, 1e-12),
    Claim(
        "gamma = 0: body and generic head are FedAvg's, bit for bit, with batch norm and momentum: largest difference",
        neutral,
        0.0,
    ),
    Claim("what a client's own head learns never reaches body or generic head: largest difference", apart, 0.0),
    Claim("the first step of a client's own head, written out: largest difference", own_step, 1e-12),
    Claim("a client predicts with g + h_i, the global model with g: largest difference of a logit", in_use, 1e-12),
]
