"""What weights say of a batch, without a gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Weights


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in eval mode and no gradients; afterwards every submodule is in the mode it was in."""
    training = [m for m in module.modules() if m.training]
    if training:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m in training:
            m.training = True


def output(alg: Algorithm, w: Weights, batch: Batch) -> Any:
    """The module's output in training mode, as a step sees it; statistics that it would change are not changed."""
    zero = torch.zeros_like(batch["x"].reshape(-1)[0])  # of each client, where clients are mapped over
    copied = {k: v if k in alg.task.trainable else v + zero.to(v.dtype) for k, v in w.items()}
    with torch.no_grad():
        return alg.task(copied, batch["x"])


def loss_of(alg: Algorithm, w: Weights, batch: Batch, ctx: Context) -> Tensor:
    """(), the loss that the algorithm minimises, at other weights than those that it steps from."""
    with torch.no_grad():
        return alg.loss(output(alg, w, batch), batch, ctx)
