"""What is known of FedAMP."""

import math

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import classes, network, quadratics, train
from fedroute.config import Training
from fedroute.engines.sequential import Sequential
from fedroute.rounds import work_of_round

EXACT = Training(rounds=80, lr=0.1, batch_size=1, local_steps=1)  # lr (h + lam / alpha) = 1: a step to the optimum


def two_clouds(make: Make) -> tuple[float, float]:
    """u_1 = (1 - x) w_1 + x w_2 with x = alpha / sigma exp(-|w_1 - w_2|^2 / sigma), over all weights of a network."""
    alpha, sigma = 0.7, 2.0
    f, task = classes([30, 50]), network(norm=False)
    _, state = train(make(alpha=alpha, sigma=sigma), f, task, Training(rounds=2, lr=0.1, batch_size=8))
    w, u = state.server["models"], state.server["u"]
    square = sum(float((v[0] - v[1]).square().sum()) for v in w.values())
    x = alpha / sigma * math.exp(-square / sigma)
    return max(float((u[k][0] - (1 - x) * v[0] - x * v[1]).abs().max()) for k, v in w.items()), 0.0


def own_cloud(make: Make) -> tuple[float, float]:
    """What client i starts from is row i, and w_i = u_i + what it sent."""
    f, task = classes([30, 50, 20]), network(norm=False)
    training = Training(rounds=3, lr=0.1, batch_size=8)
    alg, state = train(make(), f, task, training.model_copy(update={"rounds": 2}))
    _, after = train(make(), f, task, training)
    worst = 0.0
    for a in Sequential(alg, f).run(state.server, state.privates, work_of_round(alg, f, training, 0, 2)):
        for k, d in a.update["dw"].items():
            worst = max(
                worst, float((state.server["u"][k][a.client] + d - after.server["models"][k][a.client]).abs().max())
            )
            kept, start = after.server["models"][k][a.client], state.server["u"][k][a.client]
            for trained in (start + d, a.private["local"][k]):
                worst = max(worst, float((trained - kept).abs().max()))
    return worst, 0.0


def groups(make: Make) -> tuple[float, float]:
    """Two pairs of clients far apart: within a pair the models are drawn together, h (d - gap) + 2 x p d = 0 with
    x = alpha / sigma exp(-d^2 / sigma); across the pairs nobody is."""
    h, alpha, sigma, lam, between = 2.0, 0.5, 3.0, 4.0, 1.0
    alg, state = train(
        make(alpha=alpha, sigma=sigma, lam=lam), *quadratics((h,) * 4, (0.0, between, 100.0, 100.0 + between)), EXACT
    )
    d = between
    for _ in range(200):
        d = h * between / (h + 2 * alpha / sigma * math.exp(-d * d / sigma) * lam / alpha)
    return float(alg.personal(state.server, state.privates[0])["weight"]), (between - d) / 2


CLAIMS = [
    Claim(
        "of two clients u_1 = (1 - x) w_1 + x w_2, x = alpha A'(|w_1 - w_2|^2) (Huang et al. 2021, equation 6): "
        "largest difference",
        two_clouds,
        1e-12,
    ),
    Claim("client i trains from u_i, and the server's w_i is the one it trained: largest difference", own_cloud, 1e-12),
    Claim(
        "two pairs of quadratics far apart: a client rests between its own optimum and its pair's mean, where "
        "h (w_i - a_i) + lam / alpha (w_i - u_i) = 0, and the other pair moves it nowhere",
        groups,
        1e-6,
    ),
]
