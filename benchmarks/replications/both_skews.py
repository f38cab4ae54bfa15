"""Clients that differ in features and in labels: does FedBN with pFedMe beat both alone?

FedBN (Li et al. 2021) is made for the one skew, pFedMe (T Dinh et al. 2020) for the other; for the two together we know
of no published number."""

from functools import partial

from benchmarks.replications.digits4 import small
from benchmarks.replications.setting import Arm, Setting

LRS = tuple({"training": {"lr": lr}} for lr in (0.02, 0.05, 0.15))
SPRINGS = tuple(
    {"algorithm": {"lam": lam}, "training": {"lr": lr}} for lam, lr in ((15.0, 0.05), (5.0, 0.1), (1.0, 0.5))
)
PFEDME = {"inner_lr": 0.05, "inner_steps": 3}

PARTS = (
    Setting(
        name="digits4, Dirichlet(0.5) in each archive",
        about="8 clients, two of each archive, 60 to 540 rows each; a perceptron 784-64-10 with batch norm, 30 rounds",
        federation=partial(small, clients_each=2),
        model={"name": "mlp_bn", "hidden": [64]},
        training={"rounds": 30, "batch_size": 32},
        quick={"rounds": 3},
        arms=(
            Arm(name="fedavg", algorithm={"name": "fedavg"}, reports={"global": (), "alone": ()}, grid=LRS),
            Arm(name="fedbn", algorithm={"name": "fedbn"}, reports={"personal": ()}, grid=LRS),
            Arm(name="pfedme", algorithm={"name": "pfedme", **PFEDME}, reports={"personal": ()}, grid=SPRINGS),
            Arm(
                name="pfedme_fedbn",
                algorithm={"name": "pfedme_fedbn", **PFEDME},
                reports={"personal": ()},
                grid=SPRINGS,
            ),
            Arm(
                name="fedbn, 3 epochs",
                algorithm={"name": "fedbn"},
                reports={"personal": (), "alone": ()},
                training={"local_epochs": 3},
                grid=LRS,
            ),
            Arm(
                name="fedper, norms private",
                algorithm={"name": "fedper", "private": ["norm"]},
                reports={"personal": ()},
                grid=LRS,
            ),
            Arm(
                name="ditto, norms private",
                algorithm={"name": "ditto", "private": ["norm"]},
                reports={"personal": ()},
                grid=LRS,
            ),
        ),
        pairs=(
            ("pfedme_fedbn/personal", "fedbn/personal"),
            ("pfedme_fedbn/personal", "pfedme/personal"),
            ("pfedme_fedbn/personal", "fedbn, 3 epochs/personal"),
            ("fedper, norms private/personal", "fedbn/personal"),
            ("ditto, norms private/personal", "fedbn/personal"),
            ("pfedme_fedbn/personal", "fedavg/alone"),
            ("pfedme_fedbn/personal", "fedbn, 3 epochs/alone"),
            ("fedper, norms private/personal", "fedavg/alone"),
            ("ditto, norms private/personal", "fedavg/alone"),
        ),
        measure="mean",
        seeds=5,
        differs=(
            "we know of no published number",
            "each method has three values of its main option, chosen on validation rows of the first seed",
            "pFedMe makes 3 gradients a batch, ditto 2, the others 1: hence FedBN and alone with 3 epochs too",
        ),
    ),
)
