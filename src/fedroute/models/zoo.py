"""The zoo: small models by name, made to fit a federation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import torch
from pydantic import Field
from torch import nn

from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.models.nets import Embedded, Net, Norm, OneHot, conv5, dense, resnet
from fedroute.options import from_options, nearest
from fedroute.randomness import seed_of

Count = Annotated[int, Field(ge=1)]
Padding = Annotated[int, Field(ge=0, le=2)]
ROLES = {"head.": "head"}  # the rest of a Net is "body", and "norm" by the type of module
BY_NAME = ("norm", "norms", "widths", "blocks")  # fields that the name of a model sets, and no config


class Rows(NamedTuple):
    """What a recipe is told of a federation."""

    name: str
    shape: tuple[int, ...]  # of one row of x
    categories: Mapping[int, int]  # column -> number of codes, of a table's categorical columns
    outputs: int

    def flat(self) -> tuple[list[nn.Module], int]:
        """What makes a row a vector, and the length of that."""
        if self.categories:
            hot = OneHot(self.shape[0], self.categories)
            return [hot], hot.width
        return [nn.Flatten()], torch.Size(self.shape).numel()

    def pixels_after_conv5(self, padding: int) -> int:
        """The pixels that two conv5 layers leave of an image. Raises InputError where they leave none."""
        height, width = ((((s - 4 + 2 * padding) // 2) - 4 + 2 * padding) // 2 for s in self.shape[1:])
        if min(height, width) < 1:
            size = f"{self.shape[1]}x{self.shape[2]}"
            mend = "take padding: 2" if min(self.shape[1:]) >= 4 else "take a resnet8 or an mlp"
            raise InputError(f"model.padding: {padding} leaves nothing of the {size} images of {self.name}: {mend}")
        return height * width


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is made; its fields are the options of a config's `model:` part."""

    reads: ClassVar[str] = "rows"  # of any shape; or "images" (channels, height, width), or "table"
    outputs: Annotated[
        Count | None, Field(description="how many; by default the number of labels, or of numbers to predict")
    ] = None

    def make(self, rows: Rows) -> Net:
        raise NotImplementedError  # abstract: each recipe makes its own net


@dataclass(frozen=True, kw_only=True)
class Linear(Recipe):
    """Flattened rows, categorical columns one-hot; one layer, which is the head."""

    def make(self, rows: Rows) -> Net:
        flat, width = rows.flat()
        return Net(nn.Sequential(*flat), width, rows.outputs)


@dataclass(frozen=True, kw_only=True)
class Mlp(Recipe):
    """Flattened rows, categorical columns one-hot; hidden layers with norm and ReLU; the head."""

    hidden: Annotated[tuple[Count, ...], Field(description="widths of the hidden layers")] = (64, 32)
    norm: Norm | None = None

    def make(self, rows: Rows) -> Net:
        flat, width = rows.flat()
        sizes = [width, *self.hidden]
        return Net(nn.Sequential(*flat, *dense(sizes, self.norm)), sizes[-1], rows.outputs)


@dataclass(frozen=True, kw_only=True)
class Tabular(Mlp):
    """An Mlp that sees categorical columns as learnt vectors."""

    reads: ClassVar[str] = "table"
    embedding: Annotated[Count, Field(description="length of the vector of a category")] = 4

    def make(self, rows: Rows) -> Net:
        if not rows.categories:
            return super().make(rows)
        first = Embedded(rows.shape[0], rows.categories, self.embedding)
        sizes = [first.width, *self.hidden]
        return Net(nn.Sequential(first, *dense(sizes, self.norm)), sizes[-1], rows.outputs)


@dataclass(frozen=True, kw_only=True)
class Cnn(Recipe):
    """McMahan et al. 2017, section 3: 5x5 convolutions with 32 and 64 channels, each with 2x2 max pooling, 512 hidden
    units with ReLU; 1,663,370 parameters on 28x28x1 with 10 labels, as in the paper. padding: 0 is a common variant."""

    reads: ClassVar[str] = "images"
    channels: Annotated[tuple[Count, Count], Field(description="of the two convolutions")] = (32, 64)
    hidden: Annotated[Count, Field(description="width of the hidden layer")] = 512
    padding: Annotated[Padding, Field(description="pixels around an image; 2 keeps its size")] = 2

    def make(self, rows: Rows) -> Net:
        width = self.channels[1] * rows.pixels_after_conv5(self.padding)
        convs = conv5([rows.shape[0], *self.channels], self.padding, [None, None])
        return Net(nn.Sequential(*convs, nn.Flatten(), *dense([width, self.hidden])), self.hidden, rows.outputs)


@dataclass(frozen=True, kw_only=True)
class LeNet(Recipe):
    """The LeNet of FedDRM (Wang et al. 2026): two 5x5 convolutions with 32 and 64 channels, 512 and 256 hidden units,
    and a neck of 128; norm and ReLU after each. Deviation: images under 16 pixels are padded, which it cannot read."""

    reads: ClassVar[str] = "images"
    hidden: Annotated[tuple[Count, ...], Field(description="widths of the hidden layers")] = (512, 256)
    neck: Annotated[Count | None, Field(description="width of the layer before the head, null for none")] = 128
    padding: Annotated[Padding | None, Field(description="by default 0, 2 for images under 16 pixels")] = None
    norms: tuple[Norm, Norm, Norm] = (nn.BatchNorm2d, nn.BatchNorm2d, nn.BatchNorm1d)  # two convolutions, flat layers

    def make(self, rows: Rows) -> Net:
        padding = self.padding if self.padding is not None else 0 if min(rows.shape[1:]) >= 16 else 2
        sizes = [64 * rows.pixels_after_conv5(padding), *self.hidden]
        convs = conv5([rows.shape[0], 32, 64], padding, self.norms[:2])
        body = nn.Sequential(*convs, nn.Flatten(), *dense(sizes, self.norms[2]))
        return Net(body, sizes[-1], rows.outputs, self.neck, self.norms[2])


@dataclass(frozen=True, kw_only=True)
class Residual(Recipe):
    """He et al. 2016 with a stem for small images. neck: 256 with group norm is the label path of FedDRM."""

    reads: ClassVar[str] = "images"
    neck: Annotated[Count | None, Field(description="width of a layer before the head, null for none")] = None
    widths: tuple[int, ...] = (16, 32, 64)
    blocks: int = 1  # per width
    norm: Norm = nn.BatchNorm2d

    def make(self, rows: Rows) -> Net:
        body = resnet(rows.shape[0], self.widths, self.blocks, self.norm)
        return Net(body, self.widths[-1], rows.outputs, self.neck)


class Model(NamedTuple):
    """An entry of the zoo."""

    about: str
    recipe: Recipe  # with the default options

    @property
    def options(self) -> dict[str, Any]:
        """Option -> default."""
        return {f.name: f.default for f in fields(self.recipe) if f.name not in BY_NAME}

    def row(self, name: str) -> dict[str, Any]:
        """As JSON: name, about, what it reads, options (name, default, meaning)."""
        hints = get_type_hints(type(self.recipe), include_extras=True)
        means = {k: next(m.description for m in hints[k].__metadata__[::-1] if m.description) for k in self.options}
        options = [{"name": k, "default": v, "meaning": means[k]} for k, v in self.options.items()]
        return {"name": name, "summary": self.about, "reads": self.recipe.reads, "options": options}


def group_norm(groups: int) -> Callable[[int], nn.Module]:
    return partial(nn.GroupNorm, groups)


MODELS: dict[str, Model] = {
    "linear": Model("one linear layer: logistic regression", Linear()),
    "mlp": Model("linear layers with ReLU", Mlp()),
    "mlp_bn": Model("linear layers with batch norm and ReLU", Mlp(norm=nn.BatchNorm1d)),
    "tabular": Model("embeddings for categorical columns, then an mlp", Tabular()),
    "cnn": Model("the FedAvg paper's CNN: two 5x5 convolutions and a hidden layer", Cnn()),
    "lenet_gn": Model("LeNet with group norm, layer norm where flat, as in FedDRM",
                      LeNet(norms=(group_norm(8), group_norm(16), nn.LayerNorm))),
    "lenet_bn": Model("LeNet with batch norm", LeNet()),
    "resnet8_gn": Model("ResNet-8 for small images, group norm of 8 groups", Residual(norm=group_norm(8))),
    "resnet8_bn": Model("ResNet-8 for small images, batch norm", Residual()),
    "resnet18_gn": Model("ResNet-18 for small images, group norm of 16 groups, as in FedDRM",
                         Residual(widths=(64, 128, 256, 512), blocks=2, norm=group_norm(16))),
    "resnet18_bn": Model("ResNet-18 for small images, batch norm", Residual(widths=(64, 128, 256, 512), blocks=2)),
}  # fmt: skip
"""Name -> model."""


def build(spec: str | Mapping[str, Any], federation: Federation, seed: int) -> tuple[Net, dict[str, str]]:
    """A model of the zoo that fits a federation, and the roles of its weights, ready for `Task(*build(...))`.

    spec: {"name": a name in MODELS, option: value, ...}, or the name alone. The shape of a row, categorical columns
    and the number of outputs (of labels, or of the numbers of a float target y (R,) or (R, D)) come from the
    federation. The same seed gives the same weights, in any process; the global random state is left as it was.

    Raises InputError for an unknown name or option (with the nearest one there is), a value of a wrong type or out of
    range, and a federation that the model cannot read."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    if "name" not in options:
        raise InputError(f"model.name is missing; take one of {', '.join(MODELS)}")
    name = options.pop("name")
    if name not in MODELS:
        raise InputError(f"model.name: no model {name!r}; {nearest(str(name), MODELS)}")
    preset = MODELS[name].recipe
    checked = from_options(type(preset), options, "model", without=BY_NAME)
    recipe = replace(preset, **{k: getattr(checked, k) for k in options})
    rows = _rows(name, recipe, federation)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "model"))
        return recipe.make(rows), dict(ROLES)


def _rows(name: str, recipe: Recipe, federation: Federation) -> Rows:
    """What the recipe is told, or an InputError where it cannot read the federation."""
    shape, reads = tuple(federation.x.shape[1:]), recipe.reads
    if not shape:
        raise InputError(f"model.name: {name} reads rows of columns, and a row of x of {federation.name} is a single "
                         "number: give x the shape (rows, 1)")  # fmt: skip
    kind = {1: "table", 3: "images"}.get(len(shape), "rows")
    if reads not in ("rows", kind):
        what = f"a table of {shape[0]} columns" if kind == "table" else f"rows of shape {shape}"
        wants = "images (channels, height, width)" if reads == "images" else "a table"
        others = ", ".join(k for k, m in MODELS.items() if m.recipe.reads in ("rows", kind))
        raise InputError(f"model.name: {name} reads {wants}, and {federation.name} has {what}; take one of {others}")
    y = federation.y
    numbers = y[:1].numel() if y.is_floating_point() and y.ndim <= 2 else 0  # of a row's target
    outputs = recipe.outputs or len(federation.labels) or numbers
    if not outputs:
        raise InputError(f"model.outputs: {federation.name} has no names of labels to count; say how many outputs")
    return Rows(federation.name, shape, _categories(federation), outputs)


def _categories(federation: Federation) -> dict[int, int]:
    """Column of x -> number of names. The last code of a column, for names that no training row had, is left out:
    nothing can be learnt about it."""
    if federation.table is None:
        return {}
    counts = federation.table.cardinalities
    first = federation.x.shape[1] - len(counts)
    return {first + k: n - 1 for k, n in enumerate(counts)}
