"""What a round with evaluation costs, beside the same work done as the paper's public code does it.

That code was timed once on one core at 64.8 s a round of the CIFAR-10 setting: 10.7 s of training and 54 s of
evaluation, for which every test image is transformed with PIL and goes through nine models. The stand-in here is ours
and does that work, so that both are timed on the same machine in the same run: an optimiser and a loader of its own for
each client, weights through files, PIL for each image, a model for each client in turn. Seconds are those of a core."""

import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.routing.settings import SETTINGS
from benchmarks.routing.train import bound
from fedroute.algorithms.feddrm import FedDRM
from fedroute.data.federation import Federation
from fedroute.data.shift import COLOUR
from fedroute.engines.allocator import keep_memory
from fedroute.engines.sequential import Sequential
from fedroute.forward import evaluating
from fedroute.rounds import run_round, start, work_of_round
from fedroute.router.measure import best_single, routing
from fedroute.router.scores import Scores
from fedroute.task import Task
from fedroute.tree import Weights


def measure(cache: Path, share: float = 0.1) -> dict[str, Any]:
    """share: of the steps and of the test rows that are really computed; both sides are scaled up by it."""
    keep_memory()
    f = SETTINGS["cifar10"].federation(0, cache)
    few = tuple(rows[: max(1, round(share * len(rows)))] for rows in f.test)
    test = torch.cat(few)
    owner = torch.cat([torch.full((len(r),), i) for i, r in enumerate(few)])
    ours, theirs = _ours(f, test, owner, share), _stand_in(f, test, owner, share)
    return {
        "share": share, "ours": ours, "stand_in": theirs, "ratio": theirs["round"] / ours["round"],
        "published_code": 64.8, "ratio_to_published_code": 64.8 / ours["round"],
    }  # fmt: skip


def _timed(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _ours(f: Federation, test: Tensor, owner: Tensor, share: float) -> dict[str, float]:
    """A round of FedDRM and every rule on every test row."""
    alg, training = bound("cifar10", "feddrm-0.9", f, 0)
    assert isinstance(alg, FedDRM)
    rows = SETTINGS["cifar10"].for_training(f, 0)
    steps = max(1, round(share * (training.local_steps or 1)))
    training = training.model_copy(update={"local_steps": steps})
    engine, state = Sequential(alg, rows), start(alg, rows)
    state = run_round(alg, engine, rows, training, state, work_of_round(alg, rows, training, 0, 0))  # warms up
    train = _timed(lambda: run_round(alg, engine, rows, training, state, work_of_round(alg, rows, training, 0, 1)))
    y, prior = f.y[test], f.training_sizes().double() / f.training_sizes().sum()

    def evaluate() -> None:
        deep, router = _one_pass(alg, state.server["w"] | state.privates[0]["w"], f, test)
        own = [p["w"] for p in state.privates.values()]
        weight, bias = (torch.stack([w[f"head.{k}"] for w in own]) for k in ("weight", "bias"))
        heads = (torch.einsum("bd,nkd->bnk", deep, weight) + bias).double().log_softmax(2)
        scores = Scores(router.double(), prior, heads)
        routing(scores, owner, y, best=best_single(scores, y))

    seconds = {"training": train / share, "evaluation": _timed(evaluate) / share}
    return seconds | {"round": sum(seconds.values())}


def _one_pass(alg: FedDRM, w: Weights, f: Federation, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(what heads are given, the router's logits) of rows: the body is run once."""
    module = copy.copy(alg.task.module)
    module._modules = module._modules | {"head": nn.Identity()}
    task = Task(module)
    with evaluating(module):
        batches = (f.take(at)["x"].contiguous(memory_format=task.format) for at in rows.split(128))
        deep, router = zip(*(task(w, x) for x in batches), strict=True)
    return torch.cat(deep), torch.cat(router)


def _stand_in(f: Federation, test: Tensor, owner: Tensor, share: float) -> dict[str, float]:
    alg, training = bound("cifar10", "feddrm-0.9", f, 0)
    assert isinstance(alg, FedDRM)
    server = alg.init(alg.task.init(), f.training_sizes())["w"] | alg.init_client(alg.task.init())["w"]
    module = copy.deepcopy(alg.task.module)
    for name, v in server.items():
        owner_of, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner_of), leaf, nn.Parameter(v.clone()))
    models = [copy.deepcopy(module) for _ in f.clients]
    steps = max(1, round(share * (training.local_steps or 1)))
    with tempfile.TemporaryDirectory() as folder:
        train = _timed(lambda: _train(models, f, steps, Path(folder)))
        average = _timed(lambda: _average(models, f, test, owner, Path(folder)))
        system = _timed(lambda: _system(models, module, f, test, owner, Path(folder)))
    seconds = {"training": train / share, "evaluation": (average + system) / share}
    return seconds | {"round": sum(seconds.values())}


def _train(models: list[nn.Module], f: Federation, steps: int, folder: Path) -> None:
    for i, model in enumerate(models):
        _through_a_file(model, folder)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        for k in range(steps):
            rows = f.train[i][128 * k : 128 * (k + 1)]
            x, y = _images(f, rows, torch.full((len(rows),), i)), f.y[rows]
            label, client = model(x)
            loss = 0.9 * cross_entropy(label, y) + 0.1 * cross_entropy(client, torch.full_like(y, i))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    shared = [k for k in models[0].state_dict() if not k.startswith("head.")]
    mean = {k: torch.stack([m.state_dict()[k] for m in models]).mean(0) for k in shared}
    for model in models:
        model.load_state_dict(mean, strict=False)
        _through_a_file(model, folder)


def _average(models: list[nn.Module], f: Federation, test: Tensor, owner: Tensor, folder: Path) -> None:
    """Every client's model on its own rows."""
    with torch.no_grad():
        for i, model in enumerate(models):
            _through_a_file(model, folder)
            for x in _loaded(f, test[owner == i], owner[owner == i]):
                model(x)


def _system(
    models: list[nn.Module], router: nn.Module, f: Federation, test: Tensor, owner: Tensor, folder: Path
) -> None:
    """The router on every row, and every client's model on every row."""
    with torch.no_grad():
        for x in _loaded(f, test, owner):
            router(x)
            for model in models:
                model(x)


def _loaded(f: Federation, rows: Tensor, owner: Tensor) -> Iterator[Tensor]:
    for at, whose in zip(rows.split(128), owner.split(128), strict=True):
        yield _images(f, at, whose)


def _through_a_file(model: nn.Module, folder: Path) -> None:
    torch.save(model.state_dict(), folder / "model.pt")
    model.load_state_dict(torch.load(folder / "model.pt"))


def _images(f: Federation, rows: Tensor, owner: Tensor) -> Tensor:
    """One image after the other: cropped, saturation, hue and gamma of its client, by PIL. (The rows are in colours
    already: what is timed is the work.)"""
    from PIL import Image, ImageEnhance

    rng, found = np.random.default_rng(0), []
    for row, client in zip(f.x[rows], owner.tolist(), strict=True):
        gamma, hue, saturation = (pair[client >> bit & 1] for bit, pair in enumerate(COLOUR["high"]))
        side, left, top = 31, int(rng.integers(2)), int(rng.integers(2))
        image = Image.fromarray(row.permute(1, 2, 0).numpy())
        image = image.resize((32, 32), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
        image = ImageEnhance.Color(image).enhance(saturation)
        h, s, v = image.convert("HSV").split()
        h = Image.fromarray((np.asarray(h).astype(np.int16) + round(255 * hue)).astype(np.uint8))
        image = Image.merge("HSV", (h, s, v)).convert("RGB")
        image = image.point([round(255 * (k / 255) ** gamma) for k in range(256)] * 3)
        found.append(torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255)
    return torch.stack(found)
