"""Synthetic(0.5, 0.5): 100 clients whose labels follow models of their own on features of their own.

Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (FedProx), section 5.1, with the sizes of T Dinh et
al. 2020, "Personalized Federated Learning with Moreau Envelopes" (pFedMe), section 5.1."""

import numpy as np
import torch

from benchmarks.replications.setting import Arm, Published, Setting
from fedroute.data.federation import Federation
from fedroute.data.spec import Split

CLIENTS, FEATURES, CLASSES = 100, 60, 10
LARGEST = 5000  # rows; the pFedMe paper's largest client has 25,810


def synthetic(seed: int, alpha: float = 0.5, beta: float = 0.5) -> Federation:
    """Client k: a model W_k, b_k with entries N(u_k, 1), u_k ~ N(0, alpha); features x ~ N(v_k, Sigma), Sigma diagonal
    with j^-1.2, entries of v_k ~ N(B_k, 1), B_k ~ N(0, beta); labels argmax(W_k x + b_k). alpha: how much the clients'
    models differ, beta: how much their features do. Sizes are 5 (50 + lognormal(4, 2)), at most LARGEST rows."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(5 * (rng.lognormal(4, 2, CLIENTS).astype(int) + 50), LARGEST)
    scale = np.arange(1, FEATURES + 1) ** -0.6  # the root of the diagonal of Sigma
    xs, ys, owners = [], [], []
    for k, n in enumerate(sizes):
        u, shift = rng.normal(0, alpha**0.5), rng.normal(0, beta**0.5)
        w, b = rng.normal(u, 1, (CLASSES, FEATURES)), rng.normal(u, 1, CLASSES)
        x = rng.normal(rng.normal(shift, 1, FEATURES), scale, (n, FEATURES))
        xs.append(x)
        ys.append((x @ w.T + b).argmax(1))
        owners += [f"client_{k:03}"] * int(n)
    rows, labels = torch.tensor(np.concatenate(xs), dtype=torch.float32), torch.tensor(np.concatenate(ys))
    return Federation.from_arrays(
        rows, labels, owners, name="synthetic", labels=[str(c) for c in range(CLASSES)], seed=seed,
        split=Split(validation=0.0, test=0.25),
    )  # fmt: skip


PAPER, THIRD = "T Dinh et al. 2020, table 1 (MLR, tuned)", "arXiv 2407.14251v1, table 1 (MCLR, 40 devices)"


def numbers(paper: float, third: float) -> tuple[Published, ...]:
    return Published(paper, PAPER, "recalled"), Published(third, THIRD, "verified")


PARTS = (
    Setting(
        name="Synthetic(0.5, 0.5)",
        about="100 clients, 10 sampled a round, 20 local steps, batch 20, multinomial logistic regression",
        federation=synthetic,
        model={"name": "linear"},
        training={"rounds": 100, "local_steps": 20, "batch_size": 20, "lr": 0.02, "clients_per_round": 10},
        quick={"rounds": 10},
        arms=(
            Arm(name="fedavg", algorithm={"name": "fedavg"}, reports={"global": numbers(77.62, 84.87), "alone": ()}),
            Arm(
                name="perfedavg",
                algorithm={"name": "perfedavg", "alpha": 0.02, "adapt_epochs": 1},
                reports={"personal": numbers(81.49, 83.91)},
            ),
            Arm(
                name="pfedme",
                algorithm={"name": "pfedme", "lam": 20.0, "inner_lr": 0.01, "inner_steps": 5, "beta": 2.0},
                training={"lr": 0.01},
                reports={"personal": numbers(83.20, 87.61), "global": numbers(78.65, 81.93)},
            ),
        ),
        pairs=(("pfedme/personal", "fedavg/global"), ("pfedme/personal", "fedavg/alone")),
        differs=(
            "100 rounds, published 600",
            f"the largest clients are cut at {LARGEST} rows; every seed draws new data, the papers fix one draw",
            "learning rates are not tuned for each method",
            "only the chosen clients train their theta; in the papers every client does in every round",
        ),
        redrawn=True,
    ),
)
