"""What a router reads of a query: statistics of the input, or what layers of the shared model make of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.features import head_of
from fedroute.forward import evaluating
from fedroute.options import nearest
from fedroute.router.histogram import histogram
from fedroute.router.random_features import RandomFeatures
from fedroute.router.style import style
from fedroute.task import Task
from fedroute.tree import Tree, Weights

KINDS = ("deep", "style", "histogram", "columns", "branch", "layer:NAME")
IMAGES: dict[str, Callable[[Tensor], Tensor]] = {"style": style, "histogram": histogram}
REACH = 10.0  # deviations from the mean, beyond which a number says no more
CHUNK = 256  # rows that go through a model at once
READ = 8192  # rows that are copied at once


@dataclass(frozen=True, eq=False)
class RouterInput:
    """x (B, ...) -> z (B, D) float64, each row by itself and never by whose it is.

    kinds: one or more of
      "style", "histogram": of images, what `router.style` and `router.histogram` say; "columns": of tables, the columns
      with 0/1 for each name of a categorical one, the flags of what was missing among them; "deep": what the task's
      head is given; "layer:NAME": what that layer of the model puts out, where it has places (B, C, ...) the mean and
      deviation of each channel over them; "branch": the client logits of a model that puts out (label logits, client
      logits), as FedDRM's does, or logits (B, N, K) of (client, label) cells.
    Each number is standardised by the mean and deviation of the training rows of all clients, and cut off at REACH
    deviations. Of a kind in `lifts` random features are read in place of the numbers themselves.

    shape: of one row of x. task, weights: the model, and the weights that all clients share. categories: column of x ->
    its number of names. scales: kind -> (mean, deviation), (D,) each."""

    kinds: tuple[str, ...]
    shape: tuple[int, ...]
    task: Task | None = None
    weights: Weights = field(default_factory=dict, repr=False)
    categories: Mapping[int, int] = field(default_factory=dict)
    scales: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
    lifts: Mapping[str, RandomFeatures] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        kinds: str | Sequence[str],
        task: Task | None,
        w_shared: Mapping[str, Tensor],
        federation: Federation,
        *,
        random_features: int | Mapping[str, int] = 0,
        width: float = 1.0,
        seed: int = 0,
    ) -> Self:
        """Standardised by what the clients but newcomers add up of their training rows in two rounds: sums, then
        squares about their mean, which loses no digits.

        w_shared: the shared weights; of private ones only what is read must not depend. random_features: how many of
        each kind, or by kind; 0 for the numbers themselves. width: of their kernel (`RandomFeatures.draw`).

        Raises InputError for a kind that is not there or does not fit the data or the model, where what is read depends
        on weights that are not shared, and where there are no training rows."""
        federation = federation.as_queries()
        plain = cls.unscaled(kinds, task, w_shared, federation)
        new = {*federation.newcomers}
        rows = [plain.raw(x) for i in range(len(federation.clients)) if i not in new for x in part_of(federation, i)]
        found = {k: [r[k] for r in rows] for k in plain.kinds}
        return plain.scaled_by(found, random_features=random_features, width=width, seed=seed)

    @classmethod
    def unscaled(
        cls, kinds: str | Sequence[str], task: Task | None, w_shared: Mapping[str, Tensor], federation: Federation
    ) -> Self:
        """What reads numbers as they come (`raw`), before anything is standardised. Raises InputError as `of` does."""
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        made = cls(names, tuple(federation.x.shape[1:]), task, whole(task, w_shared), _categories(federation))
        made._check(federation)
        return made

    def scaled_by(
        self,
        rows: Mapping[str, Sequence[Tensor]],
        *,
        random_features: int | Mapping[str, int] = 0,
        width: float = 1.0,
        seed: int = 0,
    ) -> Self:
        """Standardised by these rows: of each kind (n, D') parts as they come. Others and errors as for `of`."""
        lifted = random_features if isinstance(random_features, Mapping) else dict.fromkeys(self.kinds, random_features)
        for kind in lifted:
            if kind not in self.kinds:
                raise InputError(
                    f"router.random_features: {kind!r} is no input of this router; {nearest(kind, self.kinds)}"
                )
        scales = {}
        for kind in self.kinds:
            n = sum(len(p) for p in rows[kind])
            if not n:
                raise InputError("router: no client has training rows to learn from; give the federation some")
            mean = torch.stack([p.sum(0) for p in rows[kind]]).sum(0) / n
            deviation = (torch.stack([(p - mean).square().sum(0) for p in rows[kind]]).sum(0) / n).sqrt()
            scales[kind] = (mean, deviation.masked_fill(deviation <= 1e-9 * (1 + mean.abs()), 1.0))
        draw = {k: RandomFeatures.draw(len(scales[k][0]), m, width, seed, k) for k, m in lifted.items() if m}
        return replace(self, scales=scales, lifts=draw)

    def read(self, x: Tensor) -> Tensor:
        """x (B, ...), images as uint8 or float in 0..1 -> (B, D) float64. Raises InputError for rows of another shape
        than those it was made from."""
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"router: a query has the shape {tuple(x.shape[1:])}, and rows here have {self.shape}: "
                             "give queries as the clients' rows were given")  # fmt: skip
        if not len(x):
            return torch.zeros(0, self.width, dtype=torch.float64)
        return torch.cat([self.standard(self.raw(part)) for part in x.split(READ)])

    @property
    def width(self) -> int:
        """D."""
        return sum(2 * len(f.frequencies) if (f := self.lifts.get(k)) else len(self.scales[k][0]) for k in self.kinds)

    def spec(self) -> dict[str, Any]:
        """What is no tensor, as JSON."""
        codes = {str(k): v for k, v in self.categories.items()}
        return {"kinds": [*self.kinds], "shape": [*self.shape], "categories": codes}

    def state(self) -> Tree:
        """Its own tensors; those of the model are not among them."""
        scales = {k: {"mean": mean, "deviation": deviation} for k, (mean, deviation) in self.scales.items()}
        return {"scales": scales, "lifts": {k: f.state() for k, f in self.lifts.items()}}

    @classmethod
    def load(cls, spec: Mapping[str, Any], state: Tree, task: Task | None, w_shared: Mapping[str, Tensor]) -> Self:
        """What `spec` and `state` were taken of, with the same model."""
        return cls(
            tuple(spec["kinds"]), tuple(spec["shape"]), task, whole(task, w_shared),
            {int(k): v for k, v in spec["categories"].items()},
            {k: (s["mean"], s["deviation"]) for k, s in state["scales"].items()},
            {k: RandomFeatures(**s) for k, s in state.get("lifts", {}).items()},
        )  # fmt: skip

    def standard(self, raw: Mapping[str, Tensor]) -> Tensor:
        """Of each kind (B, D') as they come -> (B, D): standardised, cut off, and lifted."""
        found = []
        for kind in self.kinds:
            mean, deviation = self.scales[kind]
            z = ((raw[kind] - mean) / deviation).clamp(-REACH, REACH)
            found.append(self.lifts[kind](z) if kind in self.lifts else z)
        return torch.cat(found, 1)

    def raw(self, x: Tensor) -> dict[str, Tensor]:
        """x (B, ...), B > 0 -> of each kind (B, D') float64, as it comes. Raises InputError where numbers depend on
        weights that the clients do not share, or are not finite."""
        seen = self._seen_by_model(x)
        plain = IMAGES | {"columns": self._columns}
        found = {k: seen[k] if k in seen else plain[k](x) for k in self.kinds}
        for kind, z in found.items():
            if not bool(torch.isfinite(z).all()):
                gone = sorted(k for k, v in self.weights.items() if v.is_floating_point() and bool(v.isnan().any()))
                why = f"depends on {', '.join(gone[:3])}, which the clients do not share" if gone else "is not finite"
                raise InputError(f"router.input: {kind} {why}; take another input, such as style or columns")
        return found

    def _columns(self, x: Tensor) -> Tensor:
        if not self.categories:
            return x.double()
        plain, at, code = self._places
        return torch.cat([x[:, plain].double(), (x[:, at] == code).double()], 1)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """(columns of x that are numbers; of each name of the others its column, and its code)."""
        plain = [c for c in range(self.shape[0]) if c not in self.categories]
        names = [(c, k) for c, n in self.categories.items() for k in range(n)]
        at, code = torch.tensor(names).T
        return torch.tensor(plain, dtype=torch.int64), at, code

    def _seen_by_model(self, x: Tensor) -> dict[str, Tensor]:
        """What layers of the model say of x, of each kind that is of the model: one pass, in the mode of evaluation."""
        layers = self._layers
        if self.task is None or (not layers and "branch" not in self.kinds):
            return {}
        kept: dict[str, list[Tensor]] = {k: [] for k in self.kinds if k in layers or k == "branch"}
        with evaluating(self.task.module), ExitStack() as hooks:
            for kind, module in layers.items():
                hooks.enter_context(_watching(module, kind, kept[kind]))
            for part in x.split(CHUNK):
                part = part.float() / 255 if part.dtype == torch.uint8 else part
                part = part.contiguous(memory_format=self.task.format) if part.ndim == 4 else part
                out = self.task(self.weights, part)
                if "branch" in kept:
                    if not isinstance(out, tuple) or len(out) < 2 or out[1].ndim not in (2, 3):
                        raise InputError("router.input: branch needs a model that puts out (label logits, client "
                                         "logits), as algorithm feddrm makes it; take deep")  # fmt: skip
                    z = out[1].double()
                    kept["branch"].append(z.logsumexp(2) if z.ndim == 3 else z)  # clients and cells
        return {k: torch.cat(v) for k, v in kept.items()}

    @cached_property
    def _layers(self) -> dict[str, nn.Module]:
        """Of each kind that is read off a layer that layer."""
        return {k: self._layer(k) for k in self.kinds if k == "deep" or k.startswith("layer:")}

    def _layer(self, kind: str) -> nn.Module:
        if self.task is None:
            raise InputError(f"router.input: {kind} is read off a model, and there is none; give the task")
        if kind == "deep":
            return head_of(self.task)[1]
        name = kind.removeprefix("layer:")
        modules: dict[str, nn.Module] = dict(self.task.module.named_modules())
        if name not in modules or not name:
            raise InputError(f"router.input: the model has no layer {name!r}; {nearest(name, filter(None, modules))}")
        return modules[name]

    def _check(self, federation: Federation) -> None:
        """Whether each kind is known and fits. Raises InputError."""
        x, name = federation.x, federation.name
        if not self.kinds or len({*self.kinds}) < len(self.kinds):
            raise InputError(f"router.input: {list(self.kinds)} names none, or one twice; take some of {list(KINDS)}")
        for kind in self.kinds:
            if kind not in KINDS[:-1] and not kind.startswith("layer:"):
                raise InputError(f"router.input: no input {kind!r}; {nearest(kind, KINDS)}")
            if kind in ("deep", "branch") or kind.startswith("layer:"):
                self._layer("deep" if kind == "branch" else kind)
            elif x.ndim != (4 if kind in IMAGES else 2):
                other = "columns" if x.ndim == 2 else "deep" if x.ndim != 4 else "style"
                raise InputError(f"router.input: {kind} is of {'images' if kind in IMAGES else 'tables'}, and rows of "
                                 f"{name} have the shape {self.shape}; take {other}")  # fmt: skip


def part_of(federation: Federation, client: int, part: str = "train") -> Iterator[Tensor]:
    """The rows x of one client's part, READ at a time, encoded as queries are."""
    federation = federation.as_queries()
    for rows in getattr(federation, part)[client].split(READ):
        if len(rows):
            yield federation.x.index_select(0, rows)


def whole(task: Task | None, w_shared: Mapping[str, Tensor]) -> Weights:
    """The model's weights, those that are not shared as NaN, so that nothing read of them passes unnoticed."""
    if task is None:
        return {}
    rest = {k: torch.full_like(v, torch.nan) if v.is_floating_point() else v for k, v in task.init().items()}
    return {k: w_shared.get(k, v) for k, v in rest.items()}


def _categories(federation: Federation) -> dict[int, int]:
    """The last columns of x. Their last code, for names that no training row had, becomes zeros."""
    counts = () if federation.table is None else federation.table.cardinalities
    return {federation.x.shape[1] - len(counts) + k: n - 1 for k, n in enumerate(counts)}


def _watching(module: nn.Module, kind: str, kept: list[Tensor]) -> Any:
    """A hook, for as long as the context lasts, that keeps what goes into a head, or comes out of a layer."""
    if kind == "deep":
        return module.register_forward_pre_hook(lambda _, given: kept.append(given[0].double()))

    def keep(_: nn.Module, __: Any, out: Any) -> None:
        if not isinstance(out, Tensor) or out.ndim < 2:
            raise InputError(f"router.input: {kind} puts out no rows of numbers; take a layer inside it")
        kept.append(out.double() if out.ndim == 2 else _pooled(out.flatten(2).double()))

    return module.register_forward_hook(keep)


def _pooled(places: Tensor) -> Tensor:
    """(B, C, P) -> (B, 2 C): mean and deviation over the places."""
    return torch.cat([places.mean(2), places.std(2, correction=0)], 1)
