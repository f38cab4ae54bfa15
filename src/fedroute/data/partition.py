"""Rows dealt to made clients. Every method gives each row exactly one client, is a function of the seed, and ends:
what cannot be done is refused with what could be."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedroute.data.spec import Classes, Dirichlet, Iid, Partition, Quantity, Shards, Time
from fedroute.errors import InputError
from fedroute.randomness import seed_of
from fedroute.words import count

Ints = NDArray[np.int64]


def client_names(clients: int) -> tuple[str, ...]:
    """ "client_0", ... with zeros in front, so that the order by name is the order by number."""
    width = len(str(clients - 1))
    return tuple(f"client_{i:0{width}}" for i in range(clients))


def assign(partition: Partition, y: Tensor, seed: int = 0, time: Tensor | None = None, name: str = "data") -> Tensor:
    """(R,) int64: the client of each row, 0..clients-1. y: (R,) class codes (or numbers, for methods that use no
    classes); time: (R,), for the method "time".

    Raises InputError for a request that no partition can meet, with the feasible one."""
    rows, m = len(y), partition.clients
    rng = np.random.default_rng(seed_of(seed, "partition", partition.method))
    if rows < m:
        raise InputError(f"{name}: {m} clients of at least one row need {m} rows and there are {rows}; "
                         f"set partition.clients to {rows} at most")  # fmt: skip
    match partition:
        case Iid():
            return _deal(rng.permutation(rows), _equal(rows, m))
        case Quantity():
            least = _minimum(partition.minimum, rows, m, name)
            counts = _proportional(_dirichlet(partition.alpha, 1, m, rng), np.array([rows]))
            return _deal(rng.permutation(rows), _repair(counts, least)[:, 0])
        case Time():
            if time is None:
                raise InputError(f"{name}: partition.method is time and there is no time column; name it: `time: ...`")
            return _deal(np.argsort(time.numpy(), kind="stable"), _equal(rows, m))
        case Shards():
            return _shards(partition, y.numpy(), name, rng)
    codes = _codes(y, partition.method, name)
    sizes = np.bincount(codes)
    if isinstance(partition, Dirichlet):
        least = _minimum(partition.minimum, rows, m, name)
        counts = _repair(_proportional(_dirichlet(partition.alpha, len(sizes), m, rng), sizes), least)
    else:
        counts = _holders(partition, sizes, name, rng)
    shuffled = rng.permutation(rows)
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]  # class after class, each in random order
    return _deal(by_class, counts.T.reshape(-1), m)


def _deal(order: Ints, counts: Ints, clients: int | None = None) -> Tensor:
    """Rows in `order` given out in runs of `counts`; run j goes to client j (modulo `clients`)."""
    who = np.arange(len(counts)) % (clients or len(counts))
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.repeat(who, counts)
    return torch.from_numpy(owner)


def _equal(rows: int, parts: int) -> Ints:
    return np.full(parts, rows // parts, dtype=np.int64) + (np.arange(parts) < rows % parts)


def _codes(y: Tensor, method: str, name: str) -> Ints:
    if y.dtype != torch.int64 or y.ndim != 1:
        raise InputError(f"{name}: partition.method {method} deals classes and the labels are numbers; "
                         "use iid, quantity, shards or time")  # fmt: skip
    return np.unique(y.numpy(), return_inverse=True)[1].astype(np.int64)  # classes that occur


def _minimum(asked: int | None, rows: int, clients: int, name: str) -> int:
    most = rows // clients
    if asked is not None and asked > most:
        raise InputError(f"{name}: partition.minimum: {count(asked, 'row')} for each of {clients} clients need "
                         f"{asked * clients} rows and there are {rows}; the feasible minimum is {most}")  # fmt: skip
    return min(10, most) if asked is None else asked


def _dirichlet(alpha: float, draws: int, m: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(draws, m) from the symmetric Dirichlet, in logarithms: a Gamma(alpha) variable is a Gamma(alpha + 1) one times
    U^(1/alpha), whose logarithm stays finite where the variable itself underflows (alpha 0.01 and below)."""
    log = np.log(rng.standard_gamma(alpha + 1, (draws, m))) + np.log1p(-rng.random((draws, m))) / alpha
    weight = np.exp(log - log.max(1, keepdims=True))
    p: NDArray[np.float64] = weight / weight.sum(1, keepdims=True)
    return p


def _proportional(p: NDArray[np.float64], sizes: Ints) -> Ints:
    """(m, C) counts with the column sums `sizes`, in the proportions p (C, m): cumulative shares, rounded."""
    edges = np.rint(np.cumsum(p, 1) * sizes[:, None]).astype(np.int64)
    edges[:, -1] = sizes
    return np.diff(edges, axis=1, prepend=0).T


def _repair(counts: Ints, least: int) -> Ints:
    """Counts (m, C) in which every row sums to `least` or more, the column sums unchanged. The client with the fewest
    rows gets some of the largest client's most frequent class, again and again; each move fills the needy client,
    or empties the donor's surplus or class, so that there are at most 2 m + m C moves."""
    counts = counts.copy()
    total = counts.sum(1)
    while total[(needy := int(total.argmin()))] < least:
        donor = int(total.argmax())
        c = int(counts[donor].argmax())
        k = min(least - total[needy], total[donor] - least, counts[donor, c])
        counts[donor, c] -= k
        counts[needy, c] += k
        total[donor] -= k
        total[needy] += k
    return counts


def _shards(partition: Shards, y: NDArray[np.generic], name: str, rng: np.random.Generator) -> Tensor:
    rows, m, s = len(y), partition.clients, partition.shards
    if y.ndim != 1 or rows < m * s:
        raise InputError(f"{name}: {m} clients with {count(s, 'shard')} each need {m * s} rows with one label and "
                         f"there are {rows}; set partition.shards to {rows // m} at most")  # fmt: skip
    shuffled = rng.permutation(rows)
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    owner = np.empty(rows, dtype=np.int64)
    owner[by_label] = np.repeat(rng.permutation(np.arange(m * s) % m), _equal(rows, m * s))
    return torch.from_numpy(owner)


def _holders(partition: Classes, sizes: Ints, name: str, rng: np.random.Generator) -> Ints:
    """Counts (m, C): each client takes the k classes that fewest have taken so far, ties by lot, so that every class
    has a holder and none has two more than another."""
    m, k, n_classes = partition.clients, partition.classes, len(sizes)
    if k > n_classes or m * k < n_classes:
        mend = f"at most {n_classes}" if k > n_classes else f"at least {-(-n_classes // m)}"
        raise InputError(f"{name}: partition.classes: {m} clients with {count(k, 'class', 'classes')} each cannot hold "
                         f"{n_classes} classes exactly; set it to {mend}")  # fmt: skip
    holds = np.zeros((m, n_classes), dtype=bool)
    for i in range(m):
        holds[i, np.lexsort((rng.random(n_classes), holds.sum(0)))[:k]] = True
    counts = np.zeros((m, n_classes), dtype=np.int64)
    for c, size in enumerate(sizes):
        who = rng.permutation(np.flatnonzero(holds[:, c]))
        if size < len(who):
            raise InputError(f"{name}: partition.classes: class {c} has {count(size, 'row')} for {len(who)} clients; "
                             "use fewer clients or classes per client")  # fmt: skip
        counts[who, c] = _equal(int(size), len(who))
    return counts
