"""What is known of FedAvg with fine-tuning."""

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedavg import LR, A, H
from fedroute.certificates.rig import classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.engines.base import context
from fedroute.engines.sequential import Sequential
from fedroute.rounds import prepare, run_round, start, work_of_round
from fedroute.tree import flatten


def same_path(make: Make) -> tuple[float, float]:
    """The server's state after three rounds, with a fine-tuned private state put back in between as if it were kept."""
    f, task = classes([5, 40, 20]), network()
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9)
    alg = prepare(make(adapt_epochs=2), task, training)
    engine, state = Sequential(alg, f), start(alg, f)
    for r in range(training.rounds):
        work = work_of_round(alg, f, training, 0, r)
        state = run_round(alg, engine, f, training, state, work)
        for i, private in list(state.privates.items()):
            batches = map(f.take, work.batches[i])
            state.privates[i] = alg.adapt(context(alg, state.server, private, i, work), batches)
    _, want = train(FedAvg(), f, task, training)
    return gap(flatten(state.server), flatten(want.server)), 0.0


def tuned(make: Make) -> tuple[float, float]:
    """Client 1, whose optimum is at 1: w -> a + (1 - lr h)^(passes rows) (w - a)."""
    rows, passes = 3, 2
    f, task = quadratics(H, A, (rows, rows))
    training = Training(rounds=4, lr=LR, batch_size=1)
    alg, state = train(make(adapt_epochs=passes), f, task, training)
    local = training.model_copy(update={"local_epochs": passes})
    work = work_of_round(alg, f, local, 0, 4)
    private = alg.adapt(context(alg, state.server, state.privates[0], 0, work), map(f.take, work.batches[0]))
    w = float(state.server["w"]["weight"])
    return float(alg.personal(state.server, private)["weight"]), A[0] + (1 - LR * H[0]) ** (passes * rows) * (w - A[0])


CLAIMS = [
    Claim("the rounds are FedAvg's, bit for bit: largest difference of the server's state", same_path, 0.0),
    Claim(
        "a client's model is the global one after so many passes over its own rows: on a quadratic "
        "a + (1 - lr h)^steps (w - a)",
        tuned,
        1e-12,
    ),
]
