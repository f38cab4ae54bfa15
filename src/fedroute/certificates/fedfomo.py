"""What is known of FedFomo."""

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.rig import quadratics, train
from fedroute.config import Training

H, A, LR, K = (0.5, 3.0, 2.0), (1.0, 1.2, 0.8), 0.1, 8  # client 0 is slow, and both others are ahead of it


def by_hand(make: Make) -> tuple[float, float]:
    """Client 0 after round 2 in plain arithmetic, sent the models of both others."""
    training = Training(rounds=2, lr=LR, batch_size=1, local_steps=K)
    alg, state = train(make(m=2, s=0.5), *quadratics(H, A), training)

    def trained(w: float, i: int) -> float:
        for _ in range(K // 2):
            w -= LR * H[i] * (w - A[i])
        return w

    own, *others = (trained(0.0, i) for i in range(3))
    loss = {w: H[0] / 2 * (w - A[0]) ** 2 for w in (own, *others)}
    a = {w: (loss[own] - loss[w]) / abs(w - own) for w in others}
    total = sum(max(v, 0.0) for v in a.values())
    mixed = own + sum(max(v, 0.0) / total * (w - own) for w, v in a.items()) if total else own
    return float(alg.personal(state.server, state.privates[0])["weight"]), trained(mixed, 0)


def behind(make: Make) -> tuple[float, float]:
    """Client 1 is sent one better model, which takes all the weight, and one worse, which takes none."""
    h, a = (4.0, 0.2, 4.0), (1.0, 1.0, -1.0)
    training = Training(rounds=2, lr=LR, batch_size=1, local_steps=K)
    alg, state = train(make(m=2, s=0.5), *quadratics(h, a), training)
    w = 0.0
    for i in (0, 1):
        for _ in range(K // 2):
            w -= LR * h[i] * (w - a[i])
    return float(alg.personal(state.server, state.privates[1])["weight"]), w


def likes(make: Make) -> tuple[float, float]:
    """Two groups of three clients: how many of the six rate a client of the own group the highest."""
    a = (0.0, 0.05, -0.05, 8.0, 8.05, 7.95)
    training = Training(rounds=8, lr=0.05, batch_size=1, local_steps=6)
    _, state = train(make(m=3, explore=1, s=0.3), *quadratics((1.0,) * 6, a), training)
    best = state.server["p"].argmax(1).tolist()
    return float(sum(i // 3 == j // 3 for i, j in enumerate(best))), 6.0


def who(make: Make) -> tuple[float, float]:
    """Every client is sent every other one before any twice: after 3 rounds of explore 2 in 6 clients, all pairs."""
    training = Training(rounds=3, lr=0.05, batch_size=1, local_steps=6)
    _, state = train(make(m=2, explore=2, s=0.3), *quadratics((1.0,) * 6, (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)), training)
    return float((state.server["sent"] >= 0).sum()), 30.0


CLAIMS = [
    Claim(
        "three quadratics, two rounds: a client's model is that of equations 3 and 4 in plain arithmetic, then trained",
        by_hand,
        1e-12,
    ),
    Claim("of one better and one worse model a client takes the better one whole, and trains from it", behind, 1e-12),
    Claim("two groups of three clients: all six rate one of their own group the highest", likes, 0.0),
    Claim("with explore = m every client has been sent every other one before any comes twice", who, 0.0),
]
