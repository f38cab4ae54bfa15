"""The router of a run: asked for before training, made from what the training has left."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fedroute.config import explain
from fedroute.core import Algorithm
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.describe import classifies
from fedroute.router.spec import RouterSpec

if TYPE_CHECKING:
    from fedroute.run import Run
    from fedroute.tree import Weights

Asked = RouterSpec | dict[str, Any] | str | None


def router_spec(asked: Asked, algorithm: Algorithm, federation: Federation) -> RouterSpec | None:
    """The checked spec; a text is its kind. Raises InputError where it does not fit algorithm or data, before any
    training."""
    if asked is None:
        return None
    try:
        spec = (
            asked
            if isinstance(asked, RouterSpec)
            else RouterSpec(**({"kind": asked} if isinstance(asked, str) else asked))
        )
    except ValidationError as e:
        raise InputError("\n".join(explain(e, RouterSpec, part="router"))) from None
    if not classifies(federation):
        raise InputError(
            f"router: {federation.name} has numbers to predict, and a router weighs answers that are classes; leave "
            "`router` out, or make classes of them (`bands` or `positive`)"
        )
    spec.check_clients(federation.clients, federation.name)
    if (spec.kind == "drm" or "branch" in spec.input) and not hasattr(algorithm, "router"):
        raise InputError(
            f"router: the branch is trained by algorithm feddrm, and this is {algorithm.describe()['name']}; take "
            "feddrm, or router auto, which goes with any algorithm"
        )
    if isinstance(spec.input, list):  # one row is read, with the weights that there are before training
        from fedroute.router.inputs import RouterInput

        shared = algorithm.init(algorithm.task.init(), federation.training_sizes())["w"]
        RouterInput.unscaled(spec.input, algorithm.task, shared, federation).raw(federation.as_queries().x[:1])
    return spec


def route_run(run: "Run", spec: RouterSpec, model: Any, global_w: "Weights | None", log: Callable[[str], None]) -> None:
    """Gives a run that has ended its router, and what routing is worth on its test rows. model: its spec, where it is
    of the zoo. global_w: the global model, where there is one.

    Raises InputError where spec, data and model do not fit."""
    from fedroute.rounds import weighting_of
    from fedroute.router.making import evaluate_router, make_router
    from fedroute.router.models import Models

    before = time.perf_counter()
    alg, federation, server = run.algorithm, run.federation, run.state.server
    weighting = weighting_of(alg, federation, run.training)
    made_of = {
        "model": {"name": model} if isinstance(model, str) else model if isinstance(model, dict) else None,
        "algorithm": alg.describe(),
        "seed": run.seed,
    }
    personal = tuple(run.personal(i) for i in range(len(federation.clients)))
    models = Models(alg.predictor(), personal, global_w, alg.task, server["w"], made_of)
    shares = weighting.say(weighting.counted(federation))
    run.router = make_router(spec, federation, models, shares=shares, seed=run.seed, log=log)
    run.routing = evaluate_router(run.router, federation, seed=run.seed)
    run.seconds["router_s"] = time.perf_counter() - before
