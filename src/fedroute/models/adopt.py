"""Any torch module of yours as fedroute trains it: which weights are the head, norms by type, wrappers taken off."""

import copy
from collections.abc import Callable, Mapping
from difflib import get_close_matches

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from fedroute.errors import InputError

WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


class LocalBatchNorm(_BatchNorm):
    """Batch norm of (B, C, ...) of any rank: what a SyncBatchNorm becomes, so that it runs on a CPU and no statistics
    pass between clients outside of updates. Names and values are those of the layer it replaces."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, (B, C, ...), got {input.dim()}")


def adopt(
    module: nn.Module, roles: Mapping[str, str] | None = None, say: Callable[[str], None] = lambda text: None
) -> tuple[nn.Module, dict[str, str]]:
    """(module, roles), ready for `Task(*adopt(module))`.

    roles: name prefix -> "body", "head", "router" or a word of your own. A prefix that is the name of a module means
    that module; any other means all names that begin so. Where it is not given, the last linear or convolutional layer
    in order of registration is the head, and `say` is told which. Weights of normalisation layers have the role
    "norm", by type, unless they are part of what you name head or router; a norm class of your own that extends none
    of torch's is not found: give it the role "norm".

    DataParallel, DistributedDataParallel and torch.compile wrappers are taken off, wherever they are, and names
    lose their prefix (roles may be given with it). SyncBatchNorm becomes batch norm of the client's own rows. Where
    something inside is replaced, the module is a copy, otherwise it is yours; training never changes its weights.
    Non-persistent buffers are taken for constants.

    Raises InputError, each with the mend, for: what is no nn.Module, a scripted module, a module without weights, lazy
    layers that have not seen a batch, extra state that is no tensor, and a role for a prefix that no weight has."""
    if not isinstance(module, nn.Module):
        raise InputError(f"model: expected an nn.Module or a name of the zoo, got {type(module).__name__}")
    module = _bare(module)
    _refuse(module)
    if any(isinstance(m, (*WRAPPERS, nn.SyncBatchNorm)) or hasattr(m, "_orig_mod") for m in module.modules()):
        module = _replaced(copy.deepcopy(module))
    if roles is None:
        return module, _default(module, say)
    return module, _given(module, roles)


def _bare(module: nn.Module) -> nn.Module:
    while isinstance(module, WRAPPERS) or hasattr(module, "_orig_mod"):
        module = module.module if isinstance(module, WRAPPERS) else module._orig_mod  # type: ignore[assignment]
    return module


def _refuse(module: nn.Module) -> None:
    for name, m in module.named_modules():
        where = f"model.{name}" if name else "model"
        if isinstance(m, torch.jit.ScriptModule):
            raise InputError(f"{where}: is scripted and has no pure form: give the module from before torch.jit.script")
        if any(map(is_lazy, (*m.parameters(recurse=False), *m.buffers(recurse=False)))):
            raise InputError(f"{where}: {type(m).__name__} has no shape yet: run one batch through the model first")
    state = module.state_dict()
    if extra := [k for k, v in state.items() if not isinstance(v, Tensor)]:
        raise InputError(
            f"model.{extra[0]}: is no tensor and cannot be averaged: make it a buffer, or drop get_extra_state"
        )
    if slashes := [k for k in state if "/" in k]:
        raise InputError(f"model.{slashes[0]}: a name with a slash cannot be stored: rename the module")
    if not any(True for _ in module.parameters()):
        raise InputError(f"model: {type(module).__name__} has no weights to train")


def _replaced(module: nn.Module) -> nn.Module:
    """The module with wrappers off and SyncBatchNorm local, changed in place."""
    module = _bare(module)
    if isinstance(module, nn.SyncBatchNorm):
        module.__class__ = LocalBatchNorm  # type: ignore[assignment]  # keeps weights, ties, hooks and the training flag
    for name, child in module._modules.items():  # a child with two names comes twice
        if child is not None:
            module._modules[name] = _replaced(child)
    return module


def _default(module: nn.Module, say: Callable[[str], None]) -> dict[str, str]:
    kinds = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
    layers = [n for n, m in module.named_modules() if isinstance(m, kinds) and any(True for _ in m.parameters())]
    if not layers:
        say("model: no linear or convolutional layer can be its head, all is body; roles={'prefix': 'head'} names one")
        return {}
    head = layers[-1]
    say(f"model: the head is its last layer, {head or type(module).__name__}; roles={{'prefix': 'head'}} names another")
    return dict.fromkeys(_weights(module, head), "head")


def _given(module: nn.Module, roles: Mapping[str, str]) -> dict[str, str]:
    """Name -> role for each weight that a prefix reaches: the longest prefix wins."""
    found: dict[str, str] = {}
    for prefix in sorted(roles, key=len):
        names = _weights(module, prefix.rstrip(".")) or _weights(module, _unwrapped(prefix).rstrip("."))
        if not names:
            parts = [n for n, m in module.named_modules() if n and m.state_dict()]
            known = parts or list(module.state_dict())
            near = get_close_matches(prefix.rstrip("."), known, 1)
            mend = f"did you mean {near[0]!r}?" if near else f"its parts: {', '.join(known[:12])}"
            raise InputError(f"roles: no weight of the model begins with {prefix!r}: {mend}")
        found |= dict.fromkeys(names, roles[prefix])
    return found


def _unwrapped(prefix: str) -> str:
    return ".".join(part for part in prefix.split(".") if part not in ("module", "_orig_mod"))


def _weights(module: nn.Module, prefix: str) -> list[str]:
    """The weights below a prefix, each by the first of the names it has in the module, as `Task` names it."""
    state = module.state_dict(keep_vars=True)
    first = {id(v): k for k, v in reversed(state.items())}
    exact = prefix in state or any(prefix == n for n, _ in module.named_modules())
    below = prefix + "." if prefix else ""
    hit = [k for k in state if (k == prefix or k.startswith(below) if exact else k.startswith(prefix))]
    return list(dict.fromkeys(first[id(state[k])] for k in hit))
