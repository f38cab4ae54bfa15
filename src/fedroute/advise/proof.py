"""The head-to-head that confirms or overturns an advice: short runs at one budget, judged on validation rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedroute.advise.said import Said
from fedroute.advise.said import joined as listed
from fedroute.compare.statistics import over_seeds
from fedroute.errors import InputError
from fedroute.evaluate.wilson import Interval, Z

if TYPE_CHECKING:
    from fedroute.config import Training
    from fedroute.data.federation import Federation

Scores = Mapping[str, NDArray[np.float64]]  # client -> (seeds, rows), what each row says
Progress = Callable[[str, int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class Contest:
    """One contender. mean: over seeds and clients, each client counting once, in `metric`; by_seed: the same of each
    seed. difference: the advised one minus this one, with its interval; None for the advised one itself."""

    label: str
    config: dict[str, Any]
    mean: float
    by_seed: tuple[float, ...]
    difference: float | None = None
    interval: Interval | None = None

    def row(self) -> dict[str, Any]:
        return {**vars(self), "by_seed": list(self.by_seed), "interval": self.interval and list(self.interval)}


@dataclass(frozen=True)
class Proof:
    """contests: the advised one first. verdict: "confirmed", better than every other beyond the noise, or no other
    first; "overturned", another is better beyond the noise; "open", another is first and the noise would do that.
    algorithm: the label that the proof stands for."""

    metric: str
    seeds: int
    rounds: int
    rows: int
    contests: tuple[Contest, ...]
    verdict: str
    algorithm: str
    words: Said

    def row(self) -> dict[str, Any]:
        return {**vars(self), "contests": [c.row() for c in self.contests], "part": "validation"}


def prove(
    federation: "Federation",
    model: Mapping[str, Any],
    contenders: Mapping[str, Mapping[str, Any]],
    *,
    training: "Training | None" = None,
    seeds: int = 3,
    seed: int = 0,
    engine: str | dict[str, Any] = "auto",
    progress: Progress = lambda phase, done, of, line: None,
) -> Proof:
    """Runs every contender with every seed and says which the validation rows favour.

    contenders: label -> {"algorithm": its config, "training": what differs from `training`}, the advised one first.
    training: the budget of all of them, by default 20 rounds of an epoch. Test rows are taken out before anything runs,
    and the validation rows stand in their place.

    Raises InputError where there are no validation rows, or fewer than two contenders."""
    from fedroute.config import Training
    from fedroute.evaluate.metrics import yardstick
    from fedroute.training import fit

    if len(contenders) < 2:
        raise InputError("prove: there is nothing to compare the advice with; name two contenders")
    judged = on_validation(federation)
    if not int(judged.sizes("test").sum()):
        raise InputError("prove: there are no validation rows to judge by; set federation.split.validation above 0")
    t = (training or Training(rounds=20)).model_copy(update={"alone": False, "evaluate_every": 10**6})
    yard = yardstick(judged)
    scores: dict[str, list[dict[str, NDArray[np.float64]]]] = {label: [] for label in contenders}
    means: dict[str, list[float]] = {label: [] for label in contenders}
    for k in range(seeds):
        for j, (label, spec) in enumerate(contenders.items()):
            run = fit(
                judged, dict(model), dict(spec["algorithm"]), training=t, seed=seed + k, engine=engine,
                log=lambda text: None, **spec.get("training", {}),
            )  # fmt: skip
            head = run.ledger.aggregates(yard.headline)["personal"]
            means[label].append(float(head["mean"]) if head["mean"] is not None else math.nan)
            scores[label].append(row_scores(run, yard.headline))
            progress("prove", k * len(contenders) + j + 1, seeds * len(contenders), {"run": label})
    return concluded(
        {k: dict(v) for k, v in contenders.items()},
        means,
        {k: joined(v) for k, v in scores.items()} if yard.headline in ("accuracy", "loss") else None,
        metric=yard.headline,
        higher=yard.higher,
        rounds=t.rounds,
        ratio=float(judged.sizes("test").sum() / judged.sizes().sum().clamp(min=1)),
    )


def on_validation(federation: "Federation") -> "Federation":
    """The same federation with its validation rows in the place of the test rows, which are taken out."""
    return replace(federation, test=federation.validation, validation=tuple(v[:0] for v in federation.validation))


def row_scores(run: Any, headline: str) -> dict[str, NDArray[np.float64]]:
    """client -> what each of its rows says: 1 for a right answer, or the loss; of clients with rows."""
    from fedroute.evaluate.metrics import answers
    from fedroute.evaluate.predict import row_losses

    found = {}
    for i, client in enumerate(run.federation.clients):
        rows = run.federation.test[i]
        if not len(rows) or i in run.federation.newcomers:
            continue
        out = run.predict(i, run.federation.x.index_select(0, rows))
        if headline == "loss":
            found[client] = row_losses(run.algorithm.predictor(), out, run.federation.take(rows)).numpy()
        else:
            a = answers(out.numpy(), run.federation.y.index_select(0, rows).numpy())
            found[client] = a.correct.astype(np.float64)
    return found


def joined(seeds: Sequence[Mapping[str, NDArray[np.float64]]]) -> dict[str, NDArray[np.float64]]:
    return {client: np.stack([s[client] for s in seeds]) for client in seeds[0]}


def paired(a: Scores, b: Scores) -> tuple[float, Interval]:
    """The mean over clients of a minus b, on the same rows, with its interval at 95 %: rows of each client are drawn
    anew, clients and seeds are as they are. a row's difference is the mean over seeds.

    Where rows are right (1) or wrong (0), the variance is, as in Agresti and Min 2005, "Simple improved confidence
    intervals for comparing matched proportions", that of the rows and two more, shared by the clients, of which one
    method has one right and the other the other, so that methods that agree on few rows are not taken for the same."""
    answers = all(bool(((v == 0) | (v == 1)).all()) for of in (a, b) for v in of.values())
    clients, centre, variance = len(a), 0.0, 0.0
    more = 2 / clients if answers else 0.0
    for client in a:
        d = (a[client] - b[client]).mean(0)
        n = len(d) + more
        centre += float(d.mean()) / clients
        spread = (float(d @ d) + more) / n - (float(d.sum()) / n) ** 2
        variance += max(spread, 0.0) / max(n - (not answers), 1) / clients**2
    half = Z * math.sqrt(variance)
    return centre, (centre - half, centre + half)


def concluded(
    configs: Mapping[str, dict[str, Any]],
    means: Mapping[str, Sequence[float]],
    scores: Mapping[str, Scores] | None,
    *,
    metric: str,
    higher: bool,
    rounds: int,
    ratio: float,
) -> Proof:
    """What the numbers say. scores: of each contender's rows, or None where a metric is no mean over rows: then the
    interval is that over seeds, with `ratio`, validation rows to training rows (see compare.statistics)."""
    advised, *others = configs
    contests = [Contest(advised, configs[advised], _mean(means[advised]), tuple(means[advised]))]
    for label in others:
        if scores is None:
            e = over_seeds([x - y for x, y in zip(means[advised], means[label], strict=True)], ratio)
            difference, interval = e.mean, e.interval
        else:
            difference, interval = paired(scores[advised], scores[label])
        contests.append(Contest(label, configs[label], _mean(means[label]), tuple(means[label]), difference, interval))
    sign = 1 if higher else -1
    best = max(contests, key=lambda c: sign * c.mean if math.isfinite(c.mean) else -math.inf)
    beaten = [c for c in contests[1:] if c.interval and max(sign * v for v in c.interval) < 0]
    if beaten:
        verdict, stands = "overturned", max(beaten, key=lambda c: sign * c.mean).label
    else:
        verdict, stands = ("confirmed" if best is contests[0] else "open"), advised
    rows = sum(s.shape[1] for s in scores[advised].values()) if scores else 0
    words = _words(contests, verdict, stands, best.label, metric, sign)
    return Proof(metric, len(means[advised]), rounds, rows, tuple(contests), verdict, stands, words)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _words(contests: Sequence[Contest], verdict: str, stands: str, best: str, metric: str, sign: int) -> Said:
    advised = contests[0]
    ahead = [c.label for c in contests[1:] if c.interval and min(sign * v for v in c.interval) > 0]
    level = [c.label for c in contests[1:] if not c.interval or c.interval[0] <= 0 <= c.interval[1]]
    score = f"{advised.label} {_score(advised.mean, metric)}"
    told = list[Said]()
    if ahead:
        told.append(Said(f"better than {', '.join(ahead)} beyond the noise", f"超出噪声地优于 {'、'.join(ahead)}"))
    if level:
        told.append(Said(f"not told apart from {', '.join(level)}", f"与 {'、'.join(level)} 分不出高下"))
    more = listed(told)
    rest, rest_zh = (f": {more}", f"：{more.zh}") if told else ("", "")
    if verdict == "overturned":
        other = next(c for c in contests if c.label == stands)
        theirs = f"{stands} ({_score(other.mean, metric)})"
        return Said(
            f"The proof overturns the advice: on validation rows {theirs} is better than {score} beyond the noise. "
            f"Take {stands}.",
            f"验证推翻了建议：在验证数据上 {theirs} 超出噪声地优于 {score}。请用 {stands}。",
        )
    if verdict == "open":
        first = next(c for c in contests if c.label == best)
        theirs = f"{best} ({_score(first.mean, metric)})"
        return Said(
            f"The proof leaves the advice open: on validation rows {theirs} is ahead of {score}, by no more than the "
            f"noise{rest}. The advice stands; more rounds or rows would tell.",
            f"验证未能定论：在验证数据上 {theirs} 领先于 {score}，但没有超出噪声{rest_zh}。建议仍然有效；更多的轮次或"
            "数据才能见分晓。",
        )
    return Said(
        f"The proof confirms the advice: on validation rows {score} is first{rest}.",
        f"验证证实了建议：在验证数据上 {score} 居首{rest_zh}。",
    )


def _score(value: float, metric: str) -> str:
    return f"{value:.1%}" if metric == "accuracy" else f"{value:.3f}"
