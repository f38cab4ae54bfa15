"""Labels that may be wrong: rows of which a model that has not seen them is sure, and the label says otherwise.

Suspects are those of confident learning (Northcutt, Jiang and Chuang 2021): a row whose cross-fitted probability of
another class is at least what rows of that class have on average. Where classes overlap there are many of them in
clean data, so a count alone says nothing; two questions are asked besides. Is the model wrong much more often than it
believes where it is surest, once the rows it finds plainly wrong are left out of its training (overlap makes errors
near the boundary, noise everywhere)? And has the client many more suspects than the others? Clients where the model
hardly beats the most frequent class are not judged. (The paper prunes and trains again; here they are only named.)"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedroute.profile.finding import Finding, percent
from fedroute.profile.own_rows import Floats, Ints, OwnRows
from fedroute.profile.repeats import Repeats
from fedroute.randomness import seed_of
from fedroute.said import say

ROWS = 100  # different rows below which a client is not judged
LOOKED_AT = 1000  # rows of a client, drawn where there are more
FOLDS = 3
SKILL = 0.5  # of the way from the most frequent class to no error, which the model must go
FEW = 0.005  # share of suspects that nobody wonders at
SURE = 0.5  # share of rows that count as those of which the model is surest
PLENTY = 0.2  # share of suspects, beyond which a client's labels are no use
UNLIKELY = 1e-3


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """What one client sends: looked at, suspects, sure: rows of which the model is surest, wrong among them, and
    believed: how many of them it believes to have wrong; skill. rows: the suspects, the most suspect first, which stay
    at the client."""

    client: str
    looked_at: int
    suspects: int
    sure: int
    wrong: int
    believed: float
    skill: float
    rows: tuple[int, ...]


def suspects(own: OwnRows, z: Floats, found: Repeats, seed: int) -> Suspects | None:
    """None where there is too little to judge by: few different rows, or one class. z: (n, F) standardised."""
    if own.y.dtype.kind not in "iu" or own.y.ndim != 1:
        return None
    first = np.unique(found.group, return_index=True)[1]
    rng = np.random.default_rng(seed_of(seed, "profile", "label noise", own.client))
    some = np.sort(rng.permutation(first)[:LOOKED_AT])
    kept = np.flatnonzero(np.bincount(own.y[some].astype(np.int64)) >= 2 * FOLDS)
    some = some[np.isin(own.y[some], kept)]
    if len(some) < ROWS or len(kept) < 2:
        return None
    y = np.searchsorted(kept, own.y[some])
    x = _features(own, z, some)
    fold = rng.permutation(len(y)) % FOLDS
    p = _held_out(x, y, fold, np.ones(len(y), dtype=bool))
    at = np.arange(len(y))
    wrong = p.argmax(1) != y
    usual = np.bincount(y).max() / len(y)
    skill = 1 - wrong.mean() / (1 - usual)
    level = np.array([p[y == k, k].mean() for k in range(len(kept))])
    other = p >= level
    other[at, y] = False
    suspect = other.any(1) & (p[at, y] < level[y]) & wrong
    clean = _held_out(x, y, fold, ~(wrong & _surest(p)))
    sure = _surest(clean)
    worst = np.argsort(p[at, y] - p.max(1), kind="stable")
    return Suspects(
        client=own.client, looked_at=len(y), suspects=int(suspect.sum()), sure=int(sure.sum()),
        wrong=int((clean.argmax(1) != y)[sure].sum()), believed=float((1 - clean.max(1))[sure].sum()),
        skill=float(skill), rows=tuple(own.rows[some[worst[suspect[worst]]]].tolist()),
    )  # fmt: skip


def _surest(p: Floats) -> NDArray[np.bool_]:
    found = np.zeros(len(p), dtype=bool)
    found[np.argsort(-p.max(1), kind="stable")[: int(SURE * len(p))]] = True
    return found


def _features(own: OwnRows, z: Floats, some: Ints) -> Floats:
    parts = [z[some], np.isnan(own.values[some]).astype(np.float64)]
    for j in range(own.codes.shape[1]):
        code = own.codes[some, j]
        often = [c for c, n in zip(*np.unique(code, return_counts=True), strict=True) if n >= 5][:20]
        parts.append((code[:, None] == np.array(often, dtype=np.int64)).astype(np.float64))
    x = np.concatenate(parts, 1)
    found: Floats = np.clip(x[:, x.std(0) > 0], -10, 10)
    return found


def _held_out(x: Floats, y: Ints, fold: Ints, use: NDArray[np.bool_]) -> Floats:
    """(n, K) probabilities of each row by a model of the other folds' rows in `use`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    p = np.full((len(y), int(y.max()) + 1), 1e-6)
    for k in range(FOLDS):
        train, held = (fold != k) & use, fold == k
        if len(np.unique(y[train])) < 2 or x.shape[1] == 0:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a rough model is enough
            model = LogisticRegression(C=0.3, max_iter=100).fit(x[train], y[train])
        p[np.ix_(held, model.classes_)] = np.maximum(model.predict_proba(x[held]), 1e-6)
    found: Floats = p / p.sum(1, keepdims=True)
    return found


def noise_found(all_clients: Sequence[Suspects]) -> list[Finding]:
    """What the server makes of them: clients with more suspects than clean labels would have."""
    judged = [s for s in all_clients if s.skill >= SKILL]
    found = list[Finding]()
    for s in judged:
        others = [o.suspects / o.looked_at for o in all_clients if o is not s]
        usual = max(FEW, float(np.median(others))) if len(others) >= 2 else 1.0
        peers = binom.sf(s.suspects - 1, s.looked_at, min(1, 2 * usual + FEW)) < UNLIKELY / len(judged)
        own = binom.sf(s.wrong - 1, s.sure, min(1, 2 * s.believed / s.sure + 0.01)) < UNLIKELY / len(judged)
        if peers or own:
            share = s.suspects / s.looked_at
            why = (
                say(f"others have {percent(usual)}", f"其他客户端为 {percent(usual)}") if peers and own
                else say(f"others have {percent(usual)}, or its cases are harder",
                         f"其他客户端为 {percent(usual)}，或者它的样本更难") if peers
                else say("and the model is sure of the contrary for too many", "其中模型确信与标签相反的过多")
            )  # fmt: skip
            found.append(Finding(
                kind="doubtful labels", client=s.client, number=s.suspects, rows=tuple(sorted(s.rows)),
                severity="severe" if share > PLENTY else "warning",
                sentence=say(
                    f"{s.suspects:,} of {s.looked_at:,} rows looked at ({percent(share)}) at {s.client} have a "
                    f"label that a model of its other rows doubts; {why}.",
                    f"{s.client} 有 {s.suspects:,} 条数据（共查看 {s.looked_at:,} 条，占 {percent(share)}）的标签受到"
                    f"由其余数据训练的模型的怀疑；{why.zh}。",
                ),
                mend=say(
                    f"let somebody at {s.client} look at the rows listed, and at how labels came to the data",
                    f"请 {s.client} 的人员检查所列数据，以及标签是如何得来的",
                ),
            ))  # fmt: skip
    if not found and len(judged) > 1:
        sure, wrong = sum(s.sure for s in judged), sum(s.wrong for s in judged)
        believed = sum(s.believed for s in judged) / sure
        if binom.sf(wrong - 1, sure, min(1, 2 * believed + 0.01)) < UNLIKELY:
            found.append(Finding(
                kind="doubtful labels", client=None, number=sum(s.suspects for s in judged), severity="warning",
                sentence=say(
                    f"Over {len(judged)} clients a model is wrong in {percent(wrong / sure)} of the rows it is "
                    f"surest of and believes {percent(believed)}: some labels are wrong everywhere.",
                    f"在 {len(judged)} 个客户端上，模型在它最有把握的数据中错了 {percent(wrong / sure)}，"
                    f"而它自认为只错 {percent(believed)}：各处都有一些标签是错的。",
                ),
                mend=say(
                    "look at how labels come about; prefer methods that bear noise, and do not tune on such labels",
                    "检查标签是如何得来的；优先选用能容忍噪声的方法，不要用这样的标签调参",
                ),
            ))  # fmt: skip
    return found
