"""What is known of the interpolation of a client's own model and the global one."""

import torch

from fedroute.algorithms.fedavg import FedAvg
from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.presets import same_rounds
from fedroute.certificates.rig import quadratics, train
from fedroute.config import Training
from fedroute.core import Context

TRAINED, HELD = 8, 2  # rows


def mixed(make: Make, held_out_at: float) -> float:
    """A client's model where the global one is 0, its own 1, which one step at lr 1 reaches on rows with h = 1, a = 1,
    and the rows held out have their optimum elsewhere."""
    f, task = quadratics((1.0,), (1.0,), (TRAINED,))
    alg, state = train(make(held_out=HELD / (TRAINED + HELD)), f, task, Training(rounds=1, lr=1e-300, batch_size=8))
    server = state.server | {"w": {"weight": torch.zeros(1, dtype=torch.float64)}}
    rows = torch.tensor([[1.0, held_out_at]] * HELD + [[1.0, 1.0]] * TRAINED, dtype=torch.float64)
    batches = [{"x": x, "y": torch.zeros(len(x), dtype=torch.int64)} for x in rows.split(5)]
    none = torch.tensor(0)
    ctx = Context(server, state.privates[0], none, torch.tensor(2), none, 1.0)
    return float(alg.personal(server, alg.adapt(ctx, batches))["weight"])


CLAIMS = [
    Claim(
        "the rounds are FedAvg's, bit for bit, whatever is mixed in between: largest difference of the server's state",
        same_rounds(FedAvg(), adapt_epochs=2),
        0.0,
    ),
    Claim(
        "a quadratic, the global model at 0, the client's own at 1, rows held out at 0.3: the mixture is their optimum",
        lambda make: (mixed(make, 0.3), 0.3),
        1e-12,
    ),
    Claim(
        "rows held out at -1, from which the client's own model leads away: it has no part",
        lambda make: (mixed(make, -1.0), 0.0),
        0.0,
    ),
    Claim("rows held out at 2, beyond it: it is all", lambda make: (mixed(make, 2.0), 1.0), 0.0),
]
