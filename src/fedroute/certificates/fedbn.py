"""What is known of FedBN."""

import torch
from torch import nn

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.presets import with_private
from fedroute.certificates.rig import classes, federation, gap, network, train
from fedroute.config import Training
from fedroute.core import Algorithm, Task
from fedroute.data.federation import Federation
from fedroute.engines.base import context
from fedroute.models.nets import Block
from fedroute.randomness import generator
from fedroute.rounds import State, work_of_round

NORMS = 4  # of the model below: two in the block, one in its shortcut, one in a Sequential and so without a name
TENSORS = 5  # of each: scale, shift, mean, variance, count


def residual(make: Make) -> tuple[Federation, Algorithm, State]:
    """Two clients with pictures of different brightness, a residual block with a shortcut, two rounds."""
    g = generator(0, "pictures")
    x = torch.randn(24, 2, 6, 6, generator=g, dtype=torch.float64)
    x[12:] = 3 * x[12:] + 5
    f = federation(x, torch.randint(0, 3, (24,), generator=g), [12, 12])
    module = nn.Sequential(Block(2, 4, 2, nn.BatchNorm2d), nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36)))
    module.append(nn.Linear(36, 3)).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.3)
    training = Training(rounds=2, lr=0.05, batch_size=6)
    alg, state = train(make(), f, Task(module, roles={"2.": "head"}), training)
    return f, alg, state


def norms_stay(make: Make) -> tuple[float, float]:
    """Tensors kept by a client; -1 where one of them is with the server too."""
    state = residual(make)[2]
    kept = state.privates[0]["w"]
    return (-1.0 if kept.keys() & state.server["w"].keys() else float(len(kept))), float(NORMS * TENSORS)


def norms_differ(make: Make) -> tuple[float, float]:
    """Of all tensors that hold real numbers: those of norms that differ between the clients, and the others that do
    not."""
    _, alg, state = residual(make)
    a, b = (alg.personal(state.server, state.privates[i]) for i in range(2))
    norms = alg.task.named("norm")
    right = [torch.equal(a[k], b[k]) != (k in norms) for k in a if a[k].is_floating_point()]
    return float(sum(right)), float(len(right))


def newcomer(make: Make) -> tuple[float, float]:
    """The statistics of one who never trained, on two batches of its own rows."""
    f, task, training = classes([5, 40, 20, 16]), network(), Training(rounds=2, lr=0.1, batch_size=8)
    alg, state = train(make(), f, task, training)
    work = work_of_round(alg, f, training, 0, 2)
    first = alg.init_client(task.init())
    private = alg.adapt(context(alg, state.server, first, 3, work), map(f.take, work.batches[3]))
    w = alg.personal(state.server, private)
    parts = [f.x[rows] @ w["0.weight"].T + w["0.bias"] for rows in work.batches[3]]
    want = {
        "1.running_mean": torch.stack([p.mean(0) for p in parts]).mean(0),
        "1.running_var": torch.stack([p.var(0) for p in parts]).mean(0),
        "1.num_batches_tracked": torch.tensor(2),
    }
    return gap({k: w[k] for k in want}, want), 0.0


CLAIMS = [
    Claim(
        "the rounds are FedAvg's with the norms private, bit for bit, with momentum and weight decay: largest "
        "difference of any state",
        with_private("norm"),
        0.0,
    ),
    Claim(
        "a residual block with a norm in its shortcut, and one in a Sequential, neither called bn: tensors that stay, "
        "4 norms of 5 each",
        norms_stay,
        0.0,
    ),
    Claim(
        "after two rounds all tensors of norms differ between two clients, and no other does: tensors that are "
        "as claimed",
        norms_differ,
        0.0,
    ),
    Claim(
        "a newcomer's statistics are those of its own rows under the shared weights: largest difference",
        newcomer,
        1e-12,
    ),
]
