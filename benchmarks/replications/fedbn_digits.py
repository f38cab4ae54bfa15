"""Digits from several archives, one a client, labels balanced: what FedBN is for.

Li et al. 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", section 5.1."""

from benchmarks.replications.digits4 import small
from benchmarks.replications.setting import Arm, Published, Setting

PAPER = "Li et al. 2021, Digits-Five, mean of SVHN, USPS, Synth, MNIST-M and MNIST"
RUN = "med-air/FedBN#1 (--mode fedbn --iters 300), mean of the five"


PARTS = (
    Setting(
        name="digits4",
        about="4 archives x 600 rows, a perceptron 784-128-10 with batch norm, 60 rounds of one epoch",
        federation=small,
        model={"name": "mlp_bn", "hidden": [128]},
        training={"rounds": 60, "batch_size": 32, "lr": 0.05},
        quick={"rounds": 10},
        arms=(
            Arm(
                name="fedavg",
                algorithm={"name": "fedavg"},
                reports={"global": (Published(82.68, PAPER, "recalled"),), "alone": ()},
            ),
            Arm(
                name="fedprox",
                algorithm={"name": "fedprox", "mu": 0.01},
                reports={"global": (Published(82.69, PAPER, "recalled"),)},
            ),
            Arm(
                name="fedbn",
                algorithm={"name": "fedbn"},
                reports={"personal": (Published(85.22, PAPER, "recalled"), Published(85.73, RUN, "verified"))},
            ),
        ),
        pairs=(("fedbn/personal", "fedavg/global"), ("fedbn/personal", "fedavg/alone")),
        measure="mean",
        seeds=5,
        differs=(
            "four other archives, since those of the paper have no plain open licence; 360 images of each to train on",
            "a perceptron with one batch norm and not the paper's six-layer CNN; 60 rounds, published 300",
        ),
    ),
)
