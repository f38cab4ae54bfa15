"""The methods that every federation of the suite is trained by, at one budget."""

from fedroute.advise.methods import METHODS, Method

LAST = ("fedprox", "pfedme", "pfedme_fedbn")  # the least promising of a first look, and slow: run last


def contenders(model: str, also: bool = True) -> dict[str, Method]:
    """Label -> method; those that keep normalisation layers at home only where the model has some. All make the same
    rounds of the same batches; Ditto and APFL step twice on each, pFedMe three times, as their papers have it. also:
    with those that are run last."""
    return {
        label: m
        for label, m in METHODS.items()
        if (also or label not in LAST) and (not m.norms or model.endswith("_bn"))
    }
