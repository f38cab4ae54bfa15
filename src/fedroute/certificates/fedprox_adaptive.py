"""What is known of FedProx with a spring that follows the loss."""

from fedroute.algorithms.fedprox import FedProx
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import UNIFORM, classes, gap, network, quadratics, train
from fedroute.config import Training
from fedroute.tree import flatten

H, A = (1.0, 2.0), (3.0, 5.0)
TOO_FAR = 2.05  # a learning rate over 2 / h: each step overshoots by more than it set out with


def _mu(
    make: Make, rounds: int, lr: float, h: tuple[float, ...] = H, a: tuple[float, ...] = A, **options: float
) -> float:
    training = Training(rounds=rounds, lr=lr, batch_size=1, local_steps=2, weighting=UNIFORM)
    return float(train(make(**options), *quadratics(h, a), training)[1].server["mu"])


def gives_way(make: Make) -> tuple[float, float]:
    """The first round has nothing to compare with: five falls are over after round 6, ten after round 11."""
    return _mu(make, 11, 0.01, mu=1.0), 0.8


def not_yet(make: Make) -> tuple[float, float]:
    return _mu(make, 10, 0.01, mu=1.0), 0.9


def grows(make: Make) -> tuple[float, float]:
    return _mu(make, 4, TOO_FAR, h=(1.0,), a=(3.0,), mu=0.0), 0.3


def never_below(make: Make) -> tuple[float, float]:
    return _mu(make, 11, 0.01, mu=0.05), 0.0


def pulls_with_it(make: Make) -> tuple[float, float]:
    """From where mu stands at 0.3 a round more, against the steps of FedProx with that mu from the same weights."""
    training = Training(rounds=5, lr=TOO_FAR, batch_size=1, local_steps=2, weighting=UNIFORM)
    start, end = (
        float(
            train(make(), *quadratics((1.0,), (3.0,)), training.model_copy(update={"rounds": r}))[1].server["w"][
                "weight"
            ]
        )
        for r in (4, 5)
    )
    v = start
    for _ in range(2):
        v -= TOO_FAR * ((v - 3.0) + 0.3 * (v - start))
    return end / v, 1.0


def of_the_servers_weights(make: Make) -> tuple[float, float]:
    def run(rounds: int) -> dict[str, float]:
        training = Training(rounds=rounds, lr=0.05, batch_size=1, local_steps=3, weighting=UNIFORM)
        server = train(make(), *quadratics(H, A), training)[1].server
        return {"loss": float(server["loss"]), "w": float(server["w"]["weight"])}

    w = run(2)["w"]
    return run(3)["loss"], sum(h / 2 * (w - a) ** 2 for h, a in zip(H, A, strict=True)) / 2


def still(make: Make) -> tuple[float, float]:
    training = Training(rounds=3, lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, clients_per_round=0.7)
    f = classes([5, 40, 20, 12])
    _, a = train(make(mu=2.0, step_mu=0.0), f, network(), training)
    _, b = train(FedProx(mu=2.0), f, network(), training)
    return gap(flatten({"w": a.server["w"]}), flatten({"w": b.server["w"]})), 0.0


CLAIMS = [
    Claim("loss falling in 11 rounds: mu goes from 1 to 0.8, a tenth for each five falls running", gives_way, 1e-12),
    Claim("loss falling in 10 rounds: mu is 0.9 still", not_yet, 1e-12),
    Claim("loss rising from round to round: mu is 0.3 after four", grows, 1e-12),
    Claim("mu = 0.05 goes down to 0 and no further", never_below, 1e-12),
    Claim("a spring of mu after four rounds, 0.3, pulls in the fifth: weight over that by hand", pulls_with_it, 1e-12),
    Claim("two quadratics: the loss it follows is that of the server's weights", of_the_servers_weights, 1e-12),
    Claim("step_mu = 0 is FedProx, bit for bit: largest difference of the weights", still, 0.0),
]
