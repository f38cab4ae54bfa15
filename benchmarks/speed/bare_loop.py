"""A plain PyTorch loop over the same rows in the same batches: no federation, no averaging. The yardstick.

A batch is a slice of one tensor, the cheapest there is (gathering rows by an index costs a tenth more on the small
model), as for the peers.
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.speed.turns import Job, Train, serve
from benchmarks.speed.workloads import LR


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--channels-last", action="store_true", help="images and convolutions in NHWC")
    parser.add_argument("--fused", action="store_true", help="one kernel for all of SGD")


def build(job: Job) -> tuple[Train, Callable[[], nn.Module]]:
    nhwc = job.options.channels_last and any(isinstance(m, nn.Conv2d) for m in job.model.modules())
    x, y, model = job.plan.x, job.plan.y, job.model
    if nhwc:
        x, model = x.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch lacks this overload
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, fused=job.options.fused)
    batch = job.workload.batch

    def train(rounds: range) -> None:
        for r in rounds:
            for client in job.plan.rounds[r]:
                rows = job.plan.rows(client)
                for images, labels in zip(x[rows].split(batch), y[rows].split(batch), strict=True):
                    optimizer.zero_grad()
                    cross_entropy(model(images), labels).backward()
                    optimizer.step()

    return train, lambda: model


if __name__ == "__main__":
    serve("bare", ["torch"], build, options)
