"""A plain PyTorch loop over the same rows in the same batches: no federation, no averaging. The yardstick."""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.speed.turns import Job, Train, serve
from benchmarks.speed.workloads import LR


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--channels-last", action="store_true", help="images and convolutions in NHWC")
    parser.add_argument("--fused", action="store_true", help="one kernel for all of SGD")


def build(job: Job) -> tuple[Train, object]:
    nhwc = job.options.channels_last and any(isinstance(m, nn.Conv2d) for m in job.model)
    x, y, model = job.plan.x, job.plan.y, job.model
    if nhwc:
        x, model = x.permute(0, 2, 3, 1).contiguous(), model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, fused=job.options.fused)
    order, batch = torch.arange(len(y)), job.workload.batch

    def train(rounds: range) -> None:
        for r in rounds:
            for client in job.plan.rounds[r]:
                for index in order[job.plan.rows(client)].split(batch):
                    images = x[index].permute(0, 3, 1, 2) if nhwc else x[index]
                    optimizer.zero_grad()
                    cross_entropy(model(images), y[index]).backward()
                    optimizer.step()

    return train, lambda: model


if __name__ == "__main__":
    serve("bare", ["torch"], build, options)
