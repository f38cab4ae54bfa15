"""Where norms of one's own are the cure, and where a personal model is a loss: small versions of the replications."""

import os

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import fedroute
from fedroute.data.federation import Federation
from fedroute.data.registry import locate
from fedroute.data.spec import Dirichlet, Split
from fedroute.run import Run


def mean_of(run: Run, kind: str) -> float:
    found: float = run.ledger.aggregates("accuracy")[kind]["mean"]
    return found


@pytest.mark.skipif("FEDROUTE_DATA" not in os.environ, reason="needs digits4: set FEDROUTE_DATA to the data's folder")
def test_fedbn_is_far_above_fedavg_on_four_archives() -> None:
    """4 clients of 400 rows, 784-64-10 with batch norm, 25 rounds: at least 15 points; both against alone."""
    with np.load(locate("digits4", "digits_small.npz")) as f:
        x, y, domain = torch.from_numpy(f["x"]), torch.from_numpy(f["y"]).long(), f["d"].astype(str).tolist()
    federation = Federation.from_arrays(
        x, y, domain, labels=[str(c) for c in range(10)], split=Split(validation=0.0, test=1 / 3)
    )
    assert federation.sizes().tolist() == [400] * 4
    found = {
        name: fedroute.fit(
            federation, {"name": "mlp_bn", "hidden": [64]}, name, rounds=25, lr=0.1, alone=name == "fedavg",
            evaluate_every=25, engine={"name": "stacked"}, log=lambda text: None,
        )
        for name in ("fedavg", "fedbn")
    }  # fmt: skip
    fedavg, fedbn = mean_of(found["fedavg"], "global"), mean_of(found["fedbn"], "personal")
    alone = mean_of(found["fedavg"], "alone")
    print(f"FedAvg {fedavg:.3f}, FedBN {fedbn:.3f}, alone {alone:.3f}")
    assert fedbn > fedavg + 0.15
    assert alone > fedbn - 0.05  # the archives lie so far apart that nobody is lost alone: the ledger must say so


def test_a_personal_model_is_a_loss_where_clients_are_nearly_alike() -> None:
    """Dirichlet 5 over 20 clients with some 65 rows to train on each: FedAvg is ahead of what keeps parts at home."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    federation = Federation.from_arrays(
        x, y, partition=Dirichlet(alpha=5.0, clients=20), labels=[str(c) for c in range(10)],
        split=Split(validation=0.0, test=0.25),
    )  # fmt: skip

    def run(name: str, **options: float) -> Run:
        return fedroute.fit(
            federation, {"name": "mlp", "hidden": [32]}, {"name": name, **options}, rounds=15, batch_size=10, lr=0.1,
            alone=name == "fedavg", evaluate_every=15, engine={"name": "stacked"}, log=lambda text: None,
        )  # fmt: skip

    fedavg = run("fedavg")
    shared = mean_of(fedavg, "global")
    assert shared > mean_of(fedavg, "alone") + 0.02
    for name, options in (("fedper", {}), ("fedrep", {}), ("pfedme", {"lam": 15.0, "inner_lr": 0.02})):
        assert shared > mean_of(run(name, **options), "personal") + 0.01, name
