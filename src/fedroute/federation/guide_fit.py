"""A guide made between organisations: the hub fits it to what sites add up of their rows (`guide_sums`)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedroute.data.federation import Federation
from fedroute.data.queries import QueryForm
from fedroute.errors import InputError
from fedroute.federation import wire
from fedroute.federation.agreement import Agreement, hub_federation
from fedroute.federation.guide_sums import Asked
from fedroute.federation.transport import Payload
from fedroute.randomness import generator
from fedroute.router.abstain import Abstain, set_by
from fedroute.router.base import Posterior
from fedroute.router.calibrate import least
from fedroute.router.drm import Drm
from fedroute.router.guide import RULES, Guide
from fedroute.router.inputs import RouterInput
from fedroute.router.lda import fit_lda
from fedroute.router.linear import Linear
from fedroute.router.making import law_of
from fedroute.router.random_features import RandomFeatures
from fedroute.router.ridge import fit_ridge
from fedroute.router.spec import RouterSpec
from fedroute.router.sums import Sums
from fedroute.router.typical import Typical
from fedroute.router.upload import Upload
from fedroute.task import Task
from fedroute.tree import Tree, Weights

AskSums = Callable[[Mapping[str, Payload]], Mapping[str, Payload]]
"""{client: payload of method "sums"} -> {client: reply}: asks these sites, at the same time."""
Names = tuple[str, ...]
BRANCH: Names = ("branch",)
SHRINK = (3e-4, 1e-2, 0.3)
WIDEST = 1200  # numbers read of a row, whose products are 6 MB
COVARIANCES = 1 << 20  # numbers in those of all clients, beyond which one serves all: what a message holds
WATCHED: dict[int, Names] = {2: ("columns",), 4: ("style", "histogram")}  # what tells who is like nobody, by x's ndim
SHALLOW = {2: "columns", 4: "style"}


class Fit(NamedTuple):
    """A posterior, what it reads, the number that was open, and the mean cross entropy of validation rows' owners."""

    kind: str
    read: RouterInput
    posterior: Posterior
    option: float
    loss: float = float("nan")

    def told(self) -> dict[str, Any]:
        many = max((len(f.frequencies) for f in self.read.lifts.values()), default=0)
        line = {"kind": self.kind, "input": ", ".join(self.read.kinds), "random_features": many}
        return line | {"option": self.option, "owner_loss": None if self.loss != self.loss else self.loss}


def fit_guide(
    agreement: Agreement,
    spec: RouterSpec,
    task: Task,
    shared: Weights,
    shares: Tensor,
    ask: AskSums,
    *,
    made_of: Mapping[str, Any],
    gone: Collection[str] = (),
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> Guide:
    """A guide from sums of all sites but newcomers, who then join by their sums, and those that are `gone` for good.

    spec: kind auto, lda, ridge or drm; what it leaves open (kind, input, shrinkage) is what gives the owners of
    validation rows the least cross entropy; random features are none unless a number is given. The rule is one that
    needs no answers (density, posterior, arrival). task, shared: the algorithm's task and the server's "w". shares:
    (N,), by which clients counted in training. made_of: {model, algorithm, seed}, for a guide that reads the model.

    Raises InputError for a kind that cannot be made of sums, where nothing fits, or an answer that is none."""
    hub = hub_federation(agreement)
    here = [i for i, c in enumerate(agreement.clients) if i not in agreement.newcomers and c not in gone]
    clients = tuple(agreement.clients[i] for i in here)
    if not clients:
        raise InputError("router: no site that trained is left to send a query to")
    asking, inputs = _Asking(ask, clients, here), _possible(spec, task, shared, hub, log)
    watched = WATCHED.get(hub.x.ndim, ("deep",)) if spec.abstain is not None else ()
    kinds = list(dict.fromkeys(k for names in (*inputs, watched) for k in names))
    plain = RouterInput.unscaled(kinds, task, shared, hub)
    scales, mean = _scales(asking, kinds)
    made = {names: _reader(plain, names, scales, _many(spec, names), seed) for names in inputs}
    seen = _reader(plain, watched, scales, 0, seed) if watched else None
    sums, own = _gathered(asking, made, seen)
    tried = _tried(asking, list(_fits(spec, made, sums, shares, here)))
    best = min(tried, key=lambda f: f.loss)  # of NaN, where nothing is known, the first
    kind, state = _plain(best.posterior)
    grid = asking("grid", {"fit": [kind, best.read.spec()]}, {"read": best.read.state(), "posterior": state})
    warm = least(torch.stack([told["loss"] for told in grid]).sum(0))
    abstain = None
    if seen and spec.abstain is not None and bool((hub.sizes("validation")[here] > 0).any()):
        abstain = _abstain(asking, seen, own, spec.abstain)
    law = law_of(spec, clients)
    rule = spec.rule if spec.rule in RULES else "posterior" if law is None else "arrival"
    said = [] if spec.rule in ("auto", rule) else [f"rule {rule}: {spec.rule} needs the clients' answers"]
    chosen = best.told() | {"rule": rule, "abstain": spec.abstain, "upload_bytes": asking.sent, "guide": said}
    what = f"guide: {best.kind} on {', '.join(best.read.kinds)}, rule {rule}, of {len(tried)} fits by validation rows"
    log(f"{what}; each site sent {asking.sent:,} bytes at most")
    guide = Guide(
        clients, agreement.labels, QueryForm.of(hub), best.read, best.kind, best.posterior, rule, made_of, law, warm,
        mean=mean, seen=seen if abstain else None, abstain=abstain,
        chosen=chosen | {"tried": [f.told() for f in tried]},
    )  # fmt: skip
    for i in agreement.newcomers:
        if agreement.clients[i] not in gone and agreement.sizes[agreement.clients[i]][0]:
            guide = joined(guide, agreement.clients[i], ask, log)
    return guide


def joined(guide: Guide, client: str, ask: AskSums, log: Callable[[str], None] = print) -> Guide:
    """With a client that comes later, by one upload of its sums; without it, and with a line in the log, where its kind
    lets nobody join."""
    seen = guide.seen or guide.read
    states = {"read": guide.read.state(), "seen": seen.state()}
    told = _Asking(ask, (client,))("sums", {"read": guide.read.spec(), "seen": seen.spec()}, states)[0]
    upload = Upload(Sums.unpacked(told["read"], guide.read.width), Sums.unpacked(told["seen"], seen.width))
    try:
        return guide.join(client, upload)
    except InputError as e:
        log(f"{e} ({client} is not reachable)")
        return guide


@dataclass(eq=False)
class _Asking:
    """The sites that are asked, and their numbers. sent: the most bytes that one of them has sent."""

    ask: AskSums
    clients: Names
    here: Sequence[int] = ()
    sent: int = 0

    def __call__(self, what: str, spec: dict[str, Any], tree: Tree) -> list[Tree]:
        """Their answers, in order. Raises InputError for one that is none."""
        replies = self.ask(dict.fromkeys(self.clients, Asked(what, spec | {"here": [*self.here]}, tree).payload()))
        found, most = list[Tree](), 0
        for c in self.clients:
            data = replies[c].get("tensors")
            try:
                found.append(wire.decode(data if isinstance(data, bytes) else b""))
            except ValueError as e:
                raise InputError(f"{c}: its answer to sums is none ({e}); is it of the same version?") from None
            most = max(most, len(data) if isinstance(data, bytes) else 0)
        self.sent += most
        return found


# what is read


def _possible(
    spec: RouterSpec, task: Task, shared: Weights, hub: Federation, log: Callable[[str], None]
) -> list[Names]:
    """Of what the spec leaves open to be read all that this model lets be read, seen on a made-up row; the simple
    first. Raises InputError where nothing is left."""
    found, problems = list[Names](), list[str]()
    for names in _inputs(spec, task, hub):
        try:
            if (width := width_of(names, task, shared, hub, _many(spec, names))) > WIDEST:
                raise InputError(f"router: {', '.join(names)} is {width} numbers a row, and their products are more "
                                 f"than a message holds: {WIDEST} numbers at most; take another input, or fewer "
                                 "random_features")  # fmt: skip
            found.append(names)
        except InputError as e:
            problems.append(str(e))
    if not found:
        raise InputError(problems[0])
    for text in dict.fromkeys(problems):
        log(f"{text} (not tried)")
    return found


def width_of(names: Names, task: Task, shared: Weights, hub: Federation, random_features: int = 0) -> int:
    """How many numbers are read of a row. Raises InputError where they cannot be read."""
    row = torch.rand(1, *hub.x.shape[1:], generator=generator("a row to try"))
    row = (row * 255).to(torch.uint8) if hub.x.dtype == torch.uint8 else row
    raw = RouterInput.unscaled(names, task, shared, hub).raw(row)
    return sum(2 * random_features or v.shape[1] for v in raw.values())


def _inputs(spec: RouterSpec, task: Task, hub: Federation) -> list[Names]:
    """What the spec leaves open."""
    if spec.kind not in ("auto", "lda", "ridge", "drm"):
        raise InputError(f"router.kind: {spec.kind} is fitted to rows, and between organisations there are sums of "
                         "them: take auto, lda or ridge, or drm with algorithm feddrm")  # fmt: skip
    branch = [BRANCH] if hasattr(task, "branch") else []
    if spec.kind == "drm":
        if not branch:
            raise InputError("router.kind: drm is the branch that algorithm feddrm trains; take lda, or feddrm")
        return branch
    if isinstance(spec.input, list):
        return [tuple(spec.input)]
    shallow = SHALLOW.get(hub.x.ndim)
    found: list[Names] = [(shallow,), ("deep",), (shallow, "deep")] if shallow else [("deep",)]
    return [*found, *(branch if spec.kind == "auto" else [])]


def _many(spec: RouterSpec, names: Names) -> int:
    """Random features of each kind; none where nothing is said, since their products would be large."""
    return spec.random_features if isinstance(spec.random_features, int) and names != BRANCH else 0


def _scales(asking: _Asking, kinds: list[str]) -> tuple[dict[str, tuple[Tensor, Tensor]], Tensor | None]:
    """Mean and deviation of each kind over all training rows, as `RouterInput.scaled_by`; the mean row of a table."""
    told = [t for t in asking("totals", {"kinds": kinds}, {"none": torch.zeros(0)}) if float(t["n"]) > 0]
    if not told:
        raise InputError("router: no client has training rows to learn from; give the federation some")
    n = torch.cat([t["n"] for t in told]).sum()
    mean = {k: torch.stack([t["sum"][k] for t in told]).sum(0) / n for k in kinds}
    squares = [t for t in asking("squares", {"kinds": kinds}, {"mean": mean}) if t["sum"]]
    scales = {}
    for k in kinds:
        deviation = (torch.stack([t["sum"][k] for t in squares]).sum(0) / n).sqrt()
        scales[k] = mean[k], deviation.masked_fill(deviation <= 1e-9 * (1 + mean[k].abs()), 1.0)
    return scales, (torch.stack([t["row"] for t in told]).sum(0) / n).float() if "row" in told[0] else None


def _reader(plain: RouterInput, kinds: Names, scales: Mapping[str, Any], many: int, seed: int) -> RouterInput:
    lifts = {k: RandomFeatures.draw(len(scales[k][0]), many, 1.0, seed, k) for k in kinds} if many else {}
    return replace(plain, kinds=kinds, scales={k: scales[k] for k in kinds}, lifts=lifts)


# fits


def _gathered(
    asking: _Asking, made: Mapping[Names, RouterInput], seen: RouterInput | None
) -> tuple[dict[Names, Sums], list[Sums]]:
    """Of each input the sums of all clients, and of what `seen` reads those of each by itself. Kinds that are read
    together and apart are sent together, once."""
    readers = {names: read for names, read in made.items() if names != BRANCH}
    widest = {n: r for n, r in readers.items() if not any({*n} < {*other} for other in readers)}
    asked = {"+".join(n): r for n, r in widest.items()} | ({"seen": seen} if seen else {})
    spec, state = {k: r.spec() for k, r in asked.items()}, {k: r.state() for k, r in asked.items()}
    told = asking("sums", spec, state) if asked else []
    found = {}
    for names in readers:
        wide = next(n for n in widest if {*names} <= {*n})
        unpacked = (Sums.unpacked(t["+".join(wide)], widest[wide].width) for t in told)
        found[names] = _part(Sums.together(unpacked), widest[wide], names)
    return found, [Sums.unpacked(t["seen"], seen.width) for t in told] if seen else []


def _part(sums: Sums, read: RouterInput, names: Names) -> Sums:
    """The sums of some of the kinds that were read together."""
    widths = [replace(read, kinds=(k,)).width for k in read.kinds]
    places = dict(zip(read.kinds, torch.arange(sum(widths)).split(widths), strict=True))
    at = torch.cat([places[k] for k in names])
    return Sums(sums.n, sums.total[:, at], sums.second[at][:, at])


def _fits(
    spec: RouterSpec, made: Mapping[Names, RouterInput], sums: Mapping[Names, Sums], shares: Tensor, here: Sequence[int]
) -> Iterator[Fit]:
    """What is tried, the simple first. here: numbers of the clients that are told apart."""
    for names, read in made.items():
        if names == BRANCH:
            branch = Drm.fit(read, shares)
            for i in reversed([i for i in range(len(shares)) if i not in here]):
                branch = branch.leave(i)
            yield Fit("drm", read, branch, 0.0)
            continue
        for kind, fit in (("lda", fit_lda), ("ridge", fit_ridge)):
            for shrink in SHRINK if spec.kind in ("auto", kind) else ():
                yield Fit(kind, read, fit(sums[names], shrink), shrink)


def _tried(asking: _Asking, fits: list[Fit]) -> list[Fit]:
    """With the mean cross entropy of the owners of validation rows; NaN where there are none."""
    reads = {"+".join(f.read.kinds): f.read for f in fits}
    spec = {"tried": [[*_plain(f.posterior)[:1], "+".join(f.read.kinds), f.read.spec()] for f in fits]}
    states = {k: read.state() for k, read in reads.items()}
    posteriors = {str(k): _plain(f.posterior)[1] for k, f in enumerate(fits)}
    told = asking("losses", spec, {"read": states, "posterior": posteriors})
    n, total = sum(float(t["n"]) for t in told), torch.stack([t["loss"] for t in told]).sum(0)
    return [f._replace(loss=float(total[k]) / n if n else float("nan")) for k, f in enumerate(fits)]


def _plain(posterior: Posterior) -> tuple[str, Tree]:
    """What of a posterior makes logits: its class and tensors, without those for clients who join."""
    if not isinstance(posterior, Linear):
        return "drm", posterior.state()
    return "linear", {k: getattr(posterior, k) for k in ("slope", "offset", "n", "through")}


def _abstain(asking: _Asking, seen: RouterInput, sums: Sequence[Sums], alpha: float) -> Abstain:
    """Who is turned away, as `fit_abstain` by distance: the same where no site has so many validation rows that it
    tells only some of their distances, and the covariances of all clients fit into a message."""
    typical, spec = Typical.of(sums, COVARIANCES), {"seen": seen.spec()}
    own = asking("own", spec, {"seen": seen.state(), "typical": typical.state()})
    typical = typical.scaled_by([_spread(t) for t in own], 1 - alpha)
    nearest = asking("nearest", spec, {"seen": seen.state(), "typical": typical.state()})
    return set_by(torch.cat([_spread(t) for t in nearest])[None], ("distance",), typical, alpha=alpha)


def _spread(told: Tree) -> Tensor:
    """Distances as told, each for as many rows as it stands for."""
    n, d = int(told["n"]), torch.as_tensor(told["d"])
    if n <= len(d):
        return d
    return d[(torch.arange(n, dtype=torch.float64) * (len(d) - 1) / (n - 1)).round().long()]
