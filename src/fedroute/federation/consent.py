"""What would leave a site, for its owner to accept before anything does: a list of plain rows, and its hash."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from fedroute.config import Training
from fedroute.core import Algorithm
from fedroute.errors import InputError
from fedroute.federation.agreement import Agreement, hub_federation
from fedroute.manifest import manifest
from fedroute.rounds import judged

SUMS = "a sum over this site's rows: of few rows it says much about each"
COUNTS = "counts: a rare name, label or value may point to a person"
MODEL = (
    "a model trained on this site's rows: it holds no row, but has learnt from each, and parts of rows can at times be "
    "found again from it"
)
STAYS = "never leaves this machine"
MESSAGE, TENSOR = 100, 130  # bytes at most that frame an answer, and each tensor in it
HELLO, ANSWER = 400, 86  # bytes of a site's greeting, and of its answer whether its owner has accepted
ONCE, ROUND, END = "once, before the first round", "each round in which this site takes part", "once, at the end"


class Leaving(NamedTuple):
    """what, when: in words. bytes: at most, each time; 0 of what stays. private: how much it says of single rows."""

    what: str
    when: str
    bytes: int
    private: str


def site_manifest(agreement: Agreement, algorithm: Algorithm, t: Training, client: str, router: bool) -> dict[str, Any]:
    """{client, algorithm, rows: [{what, when, bytes, private}], sha256, notes} for the owner of this site.

    notes: what is particular at this site, such as labels that it alone has. sha256 is of the rows, client and
    algorithm: the same as long as the same leaves, whoever else takes part; another model, algorithm, column, or number
    of labels or names makes another. Bytes of tensors are exact, those of JSON the
    most that is expected; what frames a message comes on top. router: whether the hub makes a guide, and this site
    answers routed queries."""
    rows = [*_data(agreement), *_rounds(agreement, algorithm, t), *_numbers(agreement, algorithm, t)]
    if router:
        rows += _router(agreement, algorithm)
    told = {
        "client": client,
        "algorithm": str(algorithm.describe()["name"]),
        "rows": [{"what": r.what, "when": r.when, "bytes": r.bytes, "private": r.private} for r in rows],
    }
    sha256 = hashlib.sha256(json.dumps(told, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    return told | {"sha256": sha256, "notes": [agreement.sole[client]] if client in agreement.sole else []}


def _data(a: Agreement) -> Iterator[Leaving]:
    schema, k = a.table, len(a.labels)
    columns = len(a.columns)
    asked = "when the hub surveys, before this list could be made"
    yield Leaving("its name, version of fedroute, clock, and whether it has agreed, trains or serves",
                  "each time the hub asks, also before the owner has accepted", HELLO, "nothing of rows")  # fmt: skip
    yield Leaving("whether its owner has accepted, and the hash of this list",
                  "each time the hub asks, also before the owner has accepted", ANSWER, "nothing of rows")  # fmt: skip
    names = [] if schema is None else [n for of in schema.categorical.values() for n in of]
    text = sum(len(n.encode()) for n in names)
    if columns:
        what = (
            f"names of columns; of {columns} of them how many cells have a value, are numbers, differ; hashes of names"
        )
        yield Leaving(what, asked, 400 * columns + 20 * len(names), COUNTS)
    of_labels = f"; of {k} labels how many have each" if k else ""
    yield Leaving(f"number of rows{of_labels}, by part", asked, 60 + 60 * k, COUNTS)
    if schema is not None and names:
        what = f"of {len(schema.categorical)} columns of names: the names in training rows, and how many rows have each"
        yield Leaving(what, asked, text + 12 * len(names), COUNTS)
    if schema is not None and schema.numeric:
        n, median = len(schema.numeric), "; the last ones say whether this site has the very median of all"
        yield Leaving(f"of {n} numeric columns: number, sum and sum of squares of training values", ONCE, 200 * n, SUMS)
        what = f"of {n} numeric columns: how many training values are at most each of 30 thresholds, for medians of all"
        yield Leaving(what, "16 times, before the first round", 240 * n, COUNTS + median)
    yield Leaving("how many training rows are no copies of others", ONCE, 30, "one number")


def _rounds(a: Agreement, algorithm: Algorithm, t: Training) -> Iterator[Leaving]:
    hub = hub_federation(a)
    found = manifest(algorithm, hub, judged(algorithm, hub, t))
    total = sum(e.bytes for e in found if e.leaves)
    if total:
        yield Leaving(f"the update, all {sum(e.leaves for e in found)} tensors of it", ROUND, total, MODEL)
    for e in found:
        if e.leaves:
            yield Leaving(f"in the update: {e.tensor} ({e.role})", ROUND, e.bytes, "as the update")
    for e in found:
        if e.direction == "stays":
            yield Leaving(f"{e.tensor} ({e.role})", "never", 0, STAYS)
    yield Leaving("number of steps and mean training loss", ROUND, 40, "two numbers over all training rows")


def _numbers(a: Agreement, algorithm: Algorithm, t: Training) -> Iterator[Leaving]:
    few = "numbers over all rows of a part; of few rows they say something of each"
    metrics = len(a.measured_by.metrics)
    yield Leaving("loss and accuracy on validation rows", "each round that is evaluated", 300, few)
    line = "its line of the ledger, on test rows: metrics of three models, intervals, a verdict"
    yield Leaving(line, END, 600 + 3 * 40 * metrics, few)
    yield Leaving("a hash of its private weights", "when asked", 64, "says whether they changed, and nothing else")
    if t.alone:
        yield Leaving("the model that is trained alone, as a baseline", "never", 0, STAYS)


def _router(a: Agreement, algorithm: Algorithm) -> Iterator[Leaving]:
    from fedroute.federation.guide_fit import BRANCH, SHALLOW, WATCHED, WIDEST, width_of

    hub = hub_federation(a)
    shared = algorithm.init(algorithm.task.init(), hub.training_sizes())["w"]
    shallow, kinds = SHALLOW.get(hub.x.ndim), set[str]()
    widths = dict[tuple[str, ...], int]()
    for names in ((shallow, "deep"), (shallow,), ("deep",)):
        with contextlib.suppress(InputError):  # what this model does not let be read is not asked for
            known = tuple(n for n in names if n)
            if (d := width_of(known, algorithm.task, shared, hub)) <= WIDEST:
                widths[known] = d
    kinds = {n for names in widths for n in names} | {*(watched := WATCHED.get(hub.x.ndim, ("deep",)))}
    if hasattr(algorithm.task, "branch"):
        kinds |= {*BRANCH}
    wide = [d for names, d in widths.items() if not any({*names} < {*other} for other in widths)]
    each = sum(width_of((n,), algorithm.task, shared, hub) for n in sorted(kinds))
    row = hub.x.shape[1] if hub.x.ndim == 2 else 0
    seen = width_of(watched, algorithm.task, shared, hub)
    numbers = f"{each + row} numbers: their sums and sums of squares over training rows"
    yield Leaving(f"of what a router reads of a row, {numbers}", END, 8 * (1 + 2 * each + row), SUMS)
    for what, ds in (("of what a router reads of a row", wide), ("of what tells who is like nobody", [seen])):
        yield Leaving(f"{what}, {sum(ds)} numbers: their sums and sums of products over training rows", END,
                      sum(8 * (1 + d + d * (d + 1) // 2) for d in ds), SUMS)  # fmt: skip
    yield Leaving("summed losses of validation rows under several posteriors", END, 1200, SUMS)
    tensors = 10 + 2 * len(kinds) + len(wide)
    yield Leaving("names, shapes and types in these seven answers, and in that of distances", END,
                  7 * MESSAGE + tensors * TENSOR, "nothing of rows")  # fmt: skip
    rows = max((n[1] for n in a.sizes.values()), default=0)
    yield Leaving("of each validation row how far it lies from this site's rows, and from the nearest site's, sorted",
                  END, 16 + 16 * min(rows, 4096), "one number a row, without the row")  # fmt: skip
    yield Leaving("answers to queries from outside: a probability for each label", "for each query that is routed here",
                  8 * max(1, len(a.labels)), "what the model answers; many answers tell about a model")  # fmt: skip
