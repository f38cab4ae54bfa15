"""The algorithms by name, made from a config and described for people."""

import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from fedroute.algorithms.afl import AFL
from fedroute.algorithms.alone import Alone
from fedroute.algorithms.apfl import APFL
from fedroute.algorithms.ditto import Ditto
from fedroute.algorithms.fedala import FedALA
from fedroute.algorithms.fedamp import FedAMP
from fedroute.algorithms.fedavg import FedAvg
from fedroute.algorithms.fedavg_ft import FedAvgFT
from fedroute.algorithms.fedbabu import FedBABU
from fedroute.algorithms.fedbn import FedBN
from fedroute.algorithms.feddbe import FedDBE
from fedroute.algorithms.feddrm import FedDRM
from fedroute.algorithms.feddyn import FedDyn
from fedroute.algorithms.fedfomo import FedFomo
from fedroute.algorithms.fednova import FedNova
from fedroute.algorithms.fedpac import FedPAC
from fedroute.algorithms.fedper import FedPer
from fedroute.algorithms.fedprox import FedProx
from fedroute.algorithms.fedprox_adaptive import FedProxAdaptive
from fedroute.algorithms.fedprox_ft import FedProxFT
from fedroute.algorithms.fedrep import FedRep
from fedroute.algorithms.fedrod import FedRoD
from fedroute.algorithms.ifca import IFCA
from fedroute.algorithms.interpolation import Interpolation
from fedroute.algorithms.knn_per import KnnPer
from fedroute.algorithms.lg_fedavg import LgFedAvg
from fedroute.algorithms.moon import Moon
from fedroute.algorithms.perfedavg import PerFedAvg
from fedroute.algorithms.pfedme import PFedMe
from fedroute.algorithms.pfedme_fedbn import PFedMeFedBN
from fedroute.algorithms.qffl import QFFL
from fedroute.algorithms.scaffold import Scaffold
from fedroute.core import BY_TRAINING, Algorithm
from fedroute.errors import InputError
from fedroute.options import from_options, nearest

ALGORITHMS: dict[str, type[Algorithm]] = {
    "afl": AFL,
    "alone": Alone,
    "apfl": APFL,
    "ditto": Ditto,
    "fedala": FedALA,
    "fedamp": FedAMP,
    "fedavg": FedAvg,
    "fedavg_ft": FedAvgFT,
    "fedbabu": FedBABU,
    "fedbn": FedBN,
    "feddbe": FedDBE,
    "feddrm": FedDRM,
    "feddyn": FedDyn,
    "fedfomo": FedFomo,
    "fednova": FedNova,
    "fedpac": FedPAC,
    "fedper": FedPer,
    "fedprox": FedProx,
    "fedprox_adaptive": FedProxAdaptive,
    "fedprox_ft": FedProxFT,
    "fedrep": FedRep,
    "fedrod": FedRoD,
    "ifca": IFCA,
    "interpolation": Interpolation,
    "knn_per": KnnPer,
    "lg_fedavg": LgFedAvg,
    "moon": Moon,
    "perfedavg": PerFedAvg,
    "pfedme": PFedMe,
    "pfedme_fedbn": PFedMeFedBN,
    "qffl": QFFL,
    "scaffold": Scaffold,
}
"""Name, which is that of the file, -> class."""


def make(spec: str | Mapping[str, Any]) -> Algorithm:
    """An algorithm from a config's `algorithm:` part: a name, or a name with options, such as
    {"name": "fedprox", "mu": 0.1, "private": ["norm"]}. It is not yet bound to a task.

    Raises InputError for an unknown name or key (with the nearest) and for a value of a wrong type or out of range."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    if "name" not in options:
        raise InputError(f"algorithm.name is missing; take one of {', '.join(ALGORITHMS)}")
    name = options.pop("name")
    if name not in ALGORITHMS:
        raise InputError(f"algorithm.name: no algorithm {name!r}; {nearest(str(name), ALGORITHMS)}")
    for key in options:
        if key in BY_TRAINING:
            raise InputError(f"algorithm.{key}: belongs to the part training; see training.{key}")
    return from_options(ALGORITHMS[name], options, "algorithm", without=BY_TRAINING)


def describe() -> list[dict[str, Any]]:
    """A row for each algorithm: name, summary, paper, options (name, default, meaning), what an update is made of."""
    return [
        {
            "name": name,
            "summary": (sys.modules[cls.__module__].__doc__ or "").strip(),
            "paper": paper(cls),
            "options": options(cls),
            "sends": dict(cls.sends),
        }
        for name, cls in ALGORITHMS.items()
    ]


def paper(cls: type[Algorithm]) -> str:
    """Authors, year and title, with which every algorithm's docstring begins; "" where it does not."""
    found = re.match(r'[^"]+ \d{4}, "[^"]+"', " ".join((cls.__doc__ or "").split()))
    return found.group() if found else ""


def options(cls: type[Algorithm]) -> list[dict[str, Any]]:
    """The options that a config may set: name, default, meaning."""
    hints = get_type_hints(cls, include_extras=True)
    means = {"private": "roles or names of the weights that never leave their client; [norm] is FedBN"}
    rows = []
    for f in fields(cls):
        if f.name not in BY_TRAINING:
            notes = [m.description for m in getattr(hints[f.name], "__metadata__", ()) if hasattr(m, "description")]
            default = list(f.default) if isinstance(f.default, tuple) else f.default
            rows.append({"name": f.name, "default": default, "meaning": next(iter(notes), means.get(f.name, ""))})
    return rows
