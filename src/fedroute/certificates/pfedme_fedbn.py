"""What is known of pFedMe with FedBN: all that is known of pFedMe with private norms, and that it is that."""

from fedroute.algorithms.pfedme import PFedMe
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, gap, network, train
from fedroute.config import Training
from fedroute.tree import flatten

TRAINING = Training(rounds=3, lr=0.05, batch_size=8, clients_per_round=0.7)


def composed(make: Make) -> tuple[float, float]:
    f, task = classes([5, 40, 20, 12]), network()
    _, a = train(make(lam=5.0), f, task, TRAINING)
    _, b = train(PFedMe(lam=5.0, private=("norm",)), f, task, TRAINING)
    worst = gap(flatten(a.server), flatten(b.server))
    return max(worst, *(gap(flatten(a.privates[i]), flatten(p)) for i, p in b.privates.items())), 0.0


def kept(make: Make) -> tuple[float, float]:
    """Exceptions: a norm at the server, a shared weight not there, a norm on which two trained clients agree."""
    f, task = classes([30, 40]), network()
    alg, state = train(make(), f, task, TRAINING.model_copy(update={"clients_per_round": 1.0}))
    wrong = state.server["w"].keys() ^ (set(task.names) - set(task.norms))
    a, b = (alg.personal(state.server, p) for p in state.privates.values())
    same = [k for k in task.norms if "num_batches" not in k and gap({k: a[k]}, {k: b[k]}) == 0]
    return float(len(wrong) + len(same)), 0.0


def no_spring(make: Make) -> tuple[float, float]:
    """With a spring so stiff that theta's body never leaves w, the norms of theta train as those of plain local SGD at
    the inner rate, from whichever anchor: after one step on one batch they are w - inner_lr g."""
    f, task = classes([8]), network()
    t = Training(rounds=1, lr=1e-12, batch_size=8, local_epochs=1)
    lam = 10.0
    alg, state = train(make(lam=lam, inner_steps=2, inner_lr=1 / lam), f, task, t)
    w, batch = task.init(), f.take(f.train[0])
    theta = dict(w)
    for _ in range(2):  # the body is at w - g / lam after each step, since inner_lr lam = 1
        g, _, _ = alg.grad(theta, batch, None)  # type: ignore[arg-type]
        theta |= {k: theta[k] - v / lam if k in task.norms else w[k] - v / lam for k, v in g.items()}
    got = alg.personal(state.server, state.privates[0])
    return gap({k: got[k] for k in task.trainable}, {k: theta[k] for k in task.trainable}), 0.0


CLAIMS = [
    Claim("it is pFedMe with private: [norm], bit for bit: largest difference", composed, 0.0),
    Claim(
        "exactly the weights that are not of a norm are at the server, and clients' norms differ (Li et al. 2021, "
        "algorithm 1): exceptions",
        kept,
        0.0,
    ),
    Claim("norms follow theta without a spring, the body with it: two inner steps written out", no_spring, 1e-9),
]
