"""What a model says about rows: eval mode, no gradients, in big chunks."""

import torch
from torch import Tensor
from torch.func import vmap

from fedroute.core import Batch, Task
from fedroute.data.federation import Federation
from fedroute.forward import evaluating
from fedroute.tree import Weights


def predict(task: Task, w: Weights, x: Tensor, chunk: int | None = None) -> Tensor:
    """The logits (B, K), or whatever the model returns of B rows, for x (B, ...); uint8 images are read as 0..1.

    Of a model that returns a tuple, the first member. Rows do not see each other (eval mode), so that `chunk`, the
    rows at once, changes speed and memory and at most the last bits. By default 128 for images, whose activations
    then stay in the cache, and 4096 for tables."""
    chunk = chunk or (128 if x.ndim == 4 else 4096)
    with evaluating(task.module):
        if not len(x):  # the width and dtype of an answer, from one row of zeros
            return _answer(task, w, x.new_zeros(1, *x.shape[1:]))[:0]
        answer = _answer
        if x.ndim == 4 and x.shape[1] > 1 and len(x) >= 32:
            try:
                _channels_last(task, w, x[:1])
                answer = _channels_last  # convolutions on a CPU: twice as fast
            except RuntimeError:  # a model with `view`, which wants rows laid out channel by channel
                pass
        parts = [answer(task, w, part) for part in x.split(chunk)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def predict_rows(task: Task, w: Weights, federation: Federation, index: Tensor, chunk: int | None = None) -> Tensor:
    """`predict` for the rows of a federation at `index` (B,); of many, 16,384 are copied at once."""
    parts = [predict(task, w, federation.x.index_select(0, rows), chunk) for rows in index.split(16384)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def row_losses(task: Task, out: Tensor, batch: Batch) -> Tensor:
    """(B,) float64, the task's loss of each row by itself; for a loss that is a mean over rows, their mean is it."""

    def one(o: Tensor, b: Batch) -> Tensor:
        return task.loss(o.unsqueeze(0), {k: v.unsqueeze(0) for k, v in b.items()})

    with torch.no_grad():
        if not len(out):
            return torch.zeros(0, dtype=torch.float64)
        try:
            losses = vmap(one)(out, batch)
        except RuntimeError:  # a loss that branches on its values cannot be mapped; one by one it can
            losses = torch.stack([one(o, {k: v[i] for k, v in batch.items()}) for i, o in enumerate(out)])
    return losses.double()


def same_weights(a: Weights, b: Weights) -> bool:
    """Whether these are the very same tensors (not copies): then one evaluation serves both."""
    return a.keys() == b.keys() and all(a[k] is b[k] for k in a)


def _answer(task: Task, w: Weights, x: Tensor) -> Tensor:
    x = x.float() / 255 if x.dtype == torch.uint8 else x
    out = task(w, x)
    out = out[0] if isinstance(out, tuple) else out
    if not isinstance(out, Tensor):
        raise TypeError(f"the model returned {type(out).__name__}: evaluation needs a tensor, or a tuple led by one")
    return out


def _channels_last(task: Task, w: Weights, x: Tensor) -> Tensor:
    return _answer(task, w, x.contiguous(memory_format=torch.channels_last))
