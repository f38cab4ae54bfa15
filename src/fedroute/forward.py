"""What weights say of a batch, without a gradient."""

from typing import Any

import torch
from torch import Tensor

from fedroute.core import Algorithm, Batch, Context
from fedroute.tree import Weights


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
