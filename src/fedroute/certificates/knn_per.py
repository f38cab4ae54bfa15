"""What is known of kNN-Per."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.engines.base import context
from fedroute.rounds import State, work_of_round
from fedroute.tree import Tree, flatten

TRAINING = Training(rounds=2, lr=0.05, batch_size=8)
ROWS = [9, 30, 14]


def stored(make: Make, norm: bool = False, **options: Any) -> tuple[Algorithm, State, Tree]:
    """Trained, and the private state of client 1 after it has stored its rows."""
    f = classes(ROWS)
    alg, state = train(make(**options), f, network(norm), TRAINING)
    work = work_of_round(alg, f, TRAINING, 0, TRAINING.rounds)
    ctx = context(alg, state.server, state.privates[1], 1, work, f)
    return alg, state, alg.adapt(ctx, map(f.take, work.batches[1]))


def says(alg: Algorithm, w: dict[str, Tensor], x: Tensor) -> Tensor:
    module = alg.predictor().module
    training = module.training
    out: Tensor = functional_call(module.eval(), w, (x,))
    module.train(training)
    return out


def global_only(make: Make) -> tuple[float, float]:
    """Logits at lam = 0 against those of FedAvg's global model."""
    alg, state, private = stored(make, norm=True, lam=0.0)
    plain, want = train(FedAvg(), classes(ROWS), network(), TRAINING)
    x = classes(ROWS).x
    got = says(alg, alg.personal(state.server, private), x)
    return gap({"": got}, {"": says(plain, want.server["w"], x)}), 0.0


def rounds(make: Make) -> tuple[float, float]:
    _, state, _ = stored(make, norm=True)
    _, want = train(FedAvg(), classes(ROWS), network(), TRAINING)
    return gap(flatten(state.server), flatten(want.server)), 0.0


def mixture(lam: float, k: int) -> Callable[[Make], tuple[float, float]]:
    """Probabilities against the formula, row by row and neighbour by neighbour."""

    def measure(make: Make) -> tuple[float, float]:
        alg, state, private = stored(make, lam=lam, k=k)
        f, w, worst = classes(ROWS), state.server["w"], 0.0
        phi = (f.x @ w["0.weight"].T + w["0.bias"]).relu()
        p_global = (phi @ w["2.weight"].T + w["2.bias"]).softmax(1)
        got = says(alg, alg.personal(state.server, private), f.x).softmax(1)
        mine = f.train[1]
        for r in range(len(f.x)):
            d = sorted((float((phi[r] - phi[j]).norm()), int(f.y[j])) for j in mine)[:k]
            vote = [sum(math.exp(-x) for x, y in d if y == c) for c in range(3)]
            for c in range(3):
                want = lam * vote[c] / sum(vote) + (1 - lam) * float(p_global[r, c])
                worst = max(worst, abs(want - float(got[r, c])))
        return worst, 0.0

    return measure


def memory(make: Make) -> tuple[float, float]:
    """k = 1, lam = 1: of its training rows, all different, a client knows every label."""
    alg, state, private = stored(make, lam=1.0, k=1)
    f = classes(ROWS)
    out = says(alg, alg.personal(state.server, private), f.x[f.train[1]])
    return float((out.argmax(1) == f.y[f.train[1]]).double().mean()), 1.0


def own_rows(make: Make) -> tuple[float, float]:
    """The store against the features of client 1's rows and no others, in any order, each once."""
    _, state, private = stored(make)
    f, w = classes(ROWS), state.server["w"]
    phi = (f.x[f.train[1]] @ w["0.weight"].T + w["0.bias"]).relu()
    store = private["store"]
    if store.shape != phi.shape:
        return float("inf"), 0.0
    d = (phi.unsqueeze(1) - store).abs().amax(2)  # of each row from each stored one
    return float(torch.maximum(d.min(0).values.max(), d.min(1).values.max())), 0.0


CLAIMS = [
    Claim("the rounds are FedAvg's, bit for bit: largest difference of the server's state", rounds, 0.0),
    Claim("lam = 0 says what FedAvg's global model says, bit for bit: largest difference of a logit", global_only, 0.0),
    Claim("lam = 1 is the vote of the k = 5 nearest rows alone (Marfoq et al. 2022)", mixture(1.0, 5), 1e-9),
    Claim("lam = 0.3, k = 4: the mixture of Marfoq et al. 2022, written out", mixture(0.3, 4), 1e-9),
    Claim("k = 1, lam = 1: a client knows the label of each of its training rows: part known", memory, 0.0),
    Claim("a client stores the features of its own training rows, each once: largest difference", own_rows, 1e-9),
]
