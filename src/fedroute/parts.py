"""Parts of a model: what a method demands of it, what its clients tune, and what they estimate without labels."""

import copy
from collections.abc import Container, Iterable
from itertools import chain
from typing import TypeVar

from torch.optim.swa_utils import update_bn

from fedroute.core import Algorithm, Batch, Context, Task
from fedroute.errors import InputError
from fedroute.tree import Weights, pick

A = TypeVar("A", bound=Algorithm)


def with_head(algorithm: Algorithm, task: Task) -> None:
    """Raises InputError where no weight of the model has the role "head"."""
    if "head" not in task.roles.values():
        raise InputError(
            f"algorithm.name: {algorithm.describe()['name']} treats the head by itself, and no weight of this model "
            "has that role; say which it is, as in roles={'fc.': 'head'}, or take another algorithm"
        )


def with_norms(algorithm: Algorithm, task: Task) -> None:
    """Raises InputError where the model has no normalisation layers."""
    if not task.norms:
        raise InputError(
            f"algorithm.name: {algorithm.describe()['name']} keeps the normalisation layers with their clients, and "
            "this model has none, so that nothing would stay; take a model with norms, such as mlp_bn, or another "
            "algorithm"
        )


def sharing(algorithm: A, still: Container[str] = ()) -> A:
    """The bound algorithm. Raises InputError where no weight is left that moves and is shared; `still`: weights that
    the algorithm never moves."""
    if not any(k not in algorithm.kept and k not in still for k in algorithm.task.trainable):
        raise InputError(
            f"algorithm.private: with {list(algorithm.private)} besides what {algorithm.describe()['name']} keeps, no "
            "weight is left to learn together; share a part, or take the algorithm alone"
        )
    return algorithm


def copies(w: Weights) -> Weights:
    """The same numbers in memory of their own, as a state must have that is written to a file beside the others."""
    return {k: v.clone() for k, v in w.items()}


def tuned(algorithm: Algorithm, ctx: Context, batches: Iterable[Batch], only: Container[str] | None = None) -> Weights:
    """All weights of the client after local steps from where a round would start: on the task's own loss, with the
    optimiser of the rounds, at ctx.lr. `only`: the weights that may move, statistics of batch norm among them."""
    plain = Algorithm(private=tuple(sorted(algorithm.kept)), optimizer=algorithm.optimizer).bind(algorithm.task)
    carry = plain.begin(ctx)
    still = {} if only is None else {k: v for k, v in carry["w"].items() if k not in only}
    for batch in batches:
        carry, _ = plain.step(carry, batch, ctx)
        carry = carry | {"w": carry["w"] | still}
    w: Weights = carry["w"]
    return w


def own_statistics(task: Task, w: Weights, batches: Iterable[Batch]) -> Weights:
    """The running means, variances and counts of batch norm that a client's own rows have under these weights: the
    mean of those of its batches, labels unread. {} of no batch, or where the model has no such statistics."""
    found = iter(batches)
    if (first := next(found, None)) is None or not task.batch_norm:
        return {}
    module = copy.deepcopy(task.module)
    module.load_state_dict(w, strict=False)  # of tied weights one name stands for all
    update_bn((batch["x"] for batch in chain([first], found)), module)
    statistics = {k for k in task.norms if k not in dict(module.named_parameters())}
    return {k: v.clone() for k, v in pick(module.state_dict(), statistics).items()}
