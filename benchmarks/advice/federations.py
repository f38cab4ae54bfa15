"""The suite: federations by name, each with a kind, a model and a half: design, or held out."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.advice import pools
from benchmarks.advice.pools import Images
from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.shift import apply, relabel
from fedroute.data.spec import Concept, Shift
from fedroute.randomness import generator

SPLIT = {"validation": 0.2, "test": 0.3}
MLP, MLP_BN = {"name": "mlp", "hidden": [32]}, {"name": "mlp_bn", "hidden": [32]}
LENET = {"name": "lenet_bn", "hidden": [32], "neck": None}


@dataclass(frozen=True)
class Case:
    """kind: how its clients were made to differ, or "natural". make(seed): the federation, its split drawn by the seed
    (and so the partition, where it is made)."""

    name: str
    kind: str
    model: Mapping[str, Any]
    make: Callable[[int], Federation]
    training: Mapping[str, Any]


def suite() -> dict[str, Case]:
    """Name -> case."""
    return {c.name: c for c in _cases()}


def halves() -> dict[str, str]:
    """Name -> "design" or "held out". In each kind the names are put in the order of their SHA-256 and taken in turn,
    so that nobody chose which is which; kinds begin with the two halves in turn, so that the halves are equal."""
    found, turn = {}, 0
    cases = suite()
    for kind in dict.fromkeys(c.kind for c in cases.values()):
        names = [c.name for c in cases.values() if c.kind == kind]
        for name in sorted(names, key=lambda n: hashlib.sha256(n.encode()).hexdigest()):
            found[name] = ("design", "held out")[turn % 2]
            turn += 1
    return {name: found[name] for name in cases}


def _cases() -> list[Case]:
    digits, mnist, archives, cifar = pools.digits, pools.mnist, pools.archives, pools.cifar
    air, stroke = pools.air, pools.stroke
    return [
        # clients as they are
        _case("heart", "natural", MLP, _table(pools.heart)),
        _case("heart_bn", "natural", MLP_BN, _table(pools.heart)),
        _case("stroke_countries", "natural", MLP, _table(stroke)),
        _case("stroke_hospitals", "natural", MLP, _table(lambda: stroke("hospital", 100, cap=100))),
        _case("stroke_small_hospitals", "natural", MLP, _table(lambda: stroke("hospital", 24, 30))),
        _case("gas_sensors", "natural", MLP_BN, _table(pools.gas_sensors)),
        _case("air_stations", "natural", MLP, _table(lambda: air(pools.stations, "stations"))),
        _case("archives", "natural", MLP_BN, _images(archives)),
        _case("archives_lenet", "natural", LENET, _images(lambda: archives(150)), rounds=15, batch_size=16, lr=0.1),
        _case("offices", "natural", MLP, _offices),
        # labels
        _case("digits_dirichlet_0.05", "label", MLP, _images(digits, _dirichlet(0.05))),
        _case("digits_dirichlet_0.2", "label", MLP_BN, _images(digits, _dirichlet(0.2))),
        _case("digits_dirichlet_1", "label", MLP, _images(digits, _dirichlet(1.0))),
        _case("digits_dirichlet_5", "label", MLP, _images(digits, _dirichlet(5.0, 12))),
        _case("digits_two_classes", "label", MLP, _images(digits, {"method": "classes", "clients": 10, "classes": 2})),
        _case("mnist_dirichlet_0.1", "label", MLP, _images(mnist, _dirichlet(0.1))),
        _case("mnist_dirichlet_0.5", "label", MLP_BN, _images(mnist, _dirichlet(0.5))),
        _case("mnist_dirichlet_2", "label", MLP, _images(mnist, _dirichlet(2.0, 20))),
        _case("mnist_shards", "label", MLP_BN, _images(mnist, {"method": "shards", "clients": 12, "shards": 3})),
        _case("cifar_dirichlet_0.1", "label", MLP, _images(cifar, _dirichlet(0.1)), lr=0.1),
        _case("cifar_dirichlet_0.5", "label", MLP, _images(cifar, _dirichlet(0.5)), lr=0.1),
        _case("gas_dirichlet_0.1", "label", MLP, _table(lambda: pools.gas_dealt(_dirichlet(0.1)))),
        _case("gas_dirichlet_1", "label", MLP_BN, _table(lambda: pools.gas_dealt(_dirichlet(1.0)))),
        # nearly the same everywhere
        _case("digits_iid", "same", MLP, _images(digits, _iid(8))),
        _case("digits_dirichlet_100", "same", MLP_BN, _images(digits, _dirichlet(100.0))),
        _case("mnist_dirichlet_100", "same", MLP_BN, _images(mnist, _dirichlet(100.0))),
        _case("mnist_iid_40", "same", MLP, _images(mnist, _iid(40))),
        _case("cifar_iid", "same", MLP, _images(cifar, _iid(8)), lr=0.1),
        _case("gas_iid", "same", MLP, _table(lambda: pools.gas_dealt(_iid(12)))),
        # features
        _case("digits_rotation", "feature", MLP, _images(digits, _iid(8), Shift(method="rotation"))),
        _case("digits_brightness", "feature", MLP_BN, _images(digits, _iid(8), Shift(method="brightness"))),
        _case("mnist_rotation", "feature", MLP_BN, _images(mnist, _iid(8), Shift(method="rotation"))),
        _case("mnist_noise", "feature", MLP, _images(mnist, _iid(8), Shift(method="noise"))),
        _case("cifar_colour", "feature", LENET, _images(cifar, _iid(8), Shift(method="colour")),
              rounds=15, batch_size=16, lr=0.1),
        _case("gas_units", "feature", MLP_BN, lambda s: _units(_table(lambda: pools.gas_dealt(_iid(8)))(s))),
        # labels and features
        _case("archives_dirichlet_0.5", "both", MLP_BN, _archives_dealt(0.5)),
        _case("mnist_rotation_dirichlet_0.3", "both", MLP_BN,
              _images(mnist, _dirichlet(0.3), Shift(method="rotation"))),
        _case("digits_rotation_dirichlet_0.3", "both", MLP, _images(digits, _dirichlet(0.3), Shift(method="rotation"))),
        _case("cifar_colour_dirichlet_0.3", "both", MLP,
              _images(cifar, _dirichlet(0.3), Shift(method="colour")), lr=0.1),
        # the same rows mean other things
        _case("digits_concept", "concept", MLP, _images(digits, _iid(8), concept=Concept())),
        _case("mnist_concept_few", "concept", MLP_BN, _images(mnist, _iid(10), concept=Concept(clients=0.2))),
        _case("mnist_concept_two_labels", "concept", MLP, _images(mnist, _iid(8), concept=Concept(labels=["3", "8"]))),
        _case("gas_concept", "concept", MLP, _table(lambda: pools.gas_dealt(_iid(8)) | {"concept": {"clients": 0.5}})),
        # sizes
        _case("digits_quantity", "quantity", MLP, _images(digits, _quantity(0.3))),
        _case("mnist_quantity", "quantity", MLP_BN, _images(mnist, _quantity(0.5))),
        _case("gas_quantity", "quantity", MLP, _table(lambda: pools.gas_dealt(_quantity(0.3)))),
        _case("air_quantity", "quantity", MLP, _table(lambda: _air_dealt(_quantity(0.5)))),
        # rows written many times by one client
        _case("digits_repeated", "duplicates", MLP, lambda s: _repeated(_images(digits, _dirichlet(1.0))(s), 0, 15)),
        _case("mnist_repeated", "duplicates", MLP_BN, lambda s: _repeated(_images(mnist, _dirichlet(0.3))(s), 1, 10)),
        # clients with one class
        _case("digits_one_class", "one class", MLP, lambda seed: _one_class(digits(), seed)),
        _case("mnist_one_class", "one class", MLP_BN, lambda seed: _one_class(mnist(), seed)),
        # time
        _case("gas_periods", "time", MLP_BN, _table(pools.gas_periods)),
        _case("air_months", "time", MLP, _table(lambda: air(pools.months, "months"))),
        _case("air_half_years", "time", MLP_BN, _table(lambda: air(pools.years, "years"))),
        _case("air_newest", "time", MLP, _table(lambda: air(pools.stations, "newest", split={"by": "time"}))),
    ]  # fmt: skip


def _case(name: str, kind: str, model: Mapping[str, Any], make: Callable[[int], Federation], **training: Any) -> Case:
    budget = {"rounds": 25, "local_epochs": 1, "batch_size": 32, "lr": 0.2} | training
    return Case(name, kind, model, make, budget)


def _dirichlet(alpha: float, clients: int = 8) -> dict[str, Any]:
    return {"method": "dirichlet", "clients": clients, "alpha": alpha, "minimum": 20}


def _iid(clients: int) -> dict[str, Any]:
    return {"method": "iid", "clients": clients}


def _quantity(alpha: float) -> dict[str, Any]:
    return {"method": "quantity", "clients": 10, "alpha": alpha, "minimum": 15}


def _split(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"split": SPLIT | spec.get("split", {})}


def _table(spec: Callable[[], dict[str, Any]]) -> Callable[[int], Federation]:
    return lambda seed: load_federation(_split(spec()), seed)


def _images(
    pool: Callable[[], Images],
    partition: Mapping[str, Any] | None = None,
    shift: Shift | None = None,
    concept: Concept | None = None,
) -> Callable[[int], Federation]:
    return lambda seed: _changed(_dealt(pool(), partition, seed), shift, concept, seed)


def _dealt(rows: Images, partition: Mapping[str, Any] | None, seed: int) -> Federation:
    client = None if partition else rows.client
    return _federation(rows.x, rows.y, rows.labels, client, seed, partition)


def _federation(
    x: Tensor, y: Tensor, labels: tuple[str, ...], client: Any, seed: int, partition: Mapping[str, Any] | None = None
) -> Federation:
    from fedroute.data.spec import Split

    return Federation.from_arrays(
        x, y, client, partition=partition, name="suite", labels=labels, split=Split(**SPLIT), seed=seed
    )


def _changed(f: Federation, shift: Shift | None, concept: Concept | None, seed: int) -> Federation:
    rows = [torch.cat(parts) for parts in zip(f.train, f.validation, f.test, strict=True)]
    x = apply(f.x, shift, rows, f.clients, seed) if shift else f.x
    y = relabel(f.y, concept, rows, f.clients, f.labels, seed)[0] if concept else f.y
    return replace(f, x=x, y=y)


def _offices(seed: int) -> Federation:
    return load_federation({"source": "bundled", "name": "digits", "split": SPLIT}, seed)


def _archives_dealt(alpha: float) -> Callable[[int], Federation]:
    """Two clients of each archive, its labels dealt by Dirichlet(alpha)."""
    from fedroute.data.partition import assign
    from fedroute.data.spec import Dirichlet

    def make(seed: int) -> Federation:
        rows = pools.archives()
        domain = list(rows.client or ())
        owner = list(domain)
        for d in sorted(set(domain)):
            at = torch.tensor([i for i, name in enumerate(domain) if name == d])
            dealt = assign(Dirichlet(clients=2, alpha=alpha, minimum=40), rows.y[at], seed, name=d)
            for i, k in zip(at.tolist(), dealt.tolist(), strict=True):
                owner[i] = f"{d}_{k}"
        return _federation(rows.x, rows.y, rows.labels, owner, seed)

    return make


def _air_dealt(partition: dict[str, Any]) -> dict[str, Any]:
    spec = pools.air(pools.stations, "dealt")
    return {k: v for k, v in spec.items() if k != "client"} | {"partition": partition, "drop": ["station", "who"]}


def _units(f: Federation) -> Federation:
    """Every second client measures half of the columns in another unit: other scale, other zero."""
    x = f.x.clone()
    columns = torch.randperm(x.shape[1], generator=generator("advice suite", "units"))[: x.shape[1] // 2]
    for i in range(0, len(f.clients), 2):
        rows = torch.cat([f.train[i], f.validation[i], f.test[i]])
        x[rows[:, None], columns] = 2.5 * x[rows[:, None], columns] - 1.5
    return replace(f, x=x)


def _repeated(f: Federation, client: int, times: int) -> Federation:
    """A client whose log wrote a third of its training rows so many times."""
    rows = f.train[client]
    few = rows[: max(4, len(rows) // 3)]
    train = list(f.train)
    train[client] = torch.cat([rows, few.repeat(times - 1)])
    x, y = f.x, f.y
    copies = train[client][len(rows) :]
    train[client] = torch.cat([rows, torch.arange(len(x), len(x) + len(copies))])
    time = None if f.time is None else torch.cat([f.time, f.time[copies]])
    return replace(f, x=torch.cat([x, x[copies]]), y=torch.cat([y, y[copies]]), train=tuple(train), time=time)


def _one_class(rows: Images, seed: int) -> Federation:
    """Eight clients of all classes, and three that have each only one."""
    only = (2, 5, 7)
    g = generator("advice suite", "one class", seed)
    owner = torch.randint(8, (len(rows.y),), generator=g)
    for k, c in enumerate(only):
        at = torch.nonzero(rows.y == c)[:, 0]
        owner[at[torch.randperm(len(at), generator=g)[: len(at) // 2]]] = 8 + k
    names = [f"client_{k:02d}" for k in owner.tolist()]
    return _federation(rows.x, rows.y, rows.labels, names, seed)
