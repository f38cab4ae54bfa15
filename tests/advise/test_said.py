"""Every sentence of an advice in English and Chinese, with the same numbers."""

import copy
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedroute.advise import words
from fedroute.advise.advice import Advice
from fedroute.advise.methods import METHODS
from fedroute.advise.proof import Proof, concluded
from fedroute.advise.rules import advise
from fedroute.advise.said import Said, joined
from tests.advise.rows import client, profile

CHINESE = re.compile(r"[\u4e00-\u9fff]")
CLIENTS = [
    *(client(f"c{i}", 20 * (i + 1)) for i in range(5)), client("odd", 90, "other_meaning"), client("none", 0, "empty"),
    client("tiny", 9, "tiny"), client("one", 70, "one_class"), client("giant", 4000, copies=900),
]  # fmt: skip
UNIT = {"kind": "another unit", "client": "c1", "severity": "severe", "sentence": "kg 2.2.", "mend": "Divide by 2.2."}


def advices() -> Iterator[Advice]:
    """One that follows each rule, with what is said of clients, and without."""
    for norms in (True, False):
        for of in (CLIENTS, [client(f"c{i:03}") for i in range(99)], [client("c0"), client("c1", 0, "empty")]):
            for skew in ({}, {"concept": 0.6}, {"label": 0.9}, {"feature": 0.8}, {"feature": 0.8, "label": 0.6},
                         {"feature": 0.3, "label": 0.3, "quantity": 0.6, "time": 0.1}):  # fmt: skip
                for mix, own, others in ((0.2, 0.9, 0.9), (0.7, 0.9, 0.3), (0.7, 0.5, 0.2)):
                    strengths: dict[str, Any] = dict(skew)
                    row = profile(of, mix=mix, own=own, others=others, sick=(UNIT,), **strengths)
                    yield advise(row, {"name": "mlp"}, norms)


def proofs() -> Iterator[Proof]:
    for p, q in ((0.9, 0.2), (0.2, 0.9), (0.5, 0.51)):
        rows = {k: {"c": (np.arange(400)[None] % 100 < 100 * v).astype(float)} for k, v in (("fedavg", p), ("apfl", q))}
        means = {"fedavg": [p], "apfl": [q]}
        yield concluded({k: {} for k in rows}, means, rows, metric="accuracy", higher=True, rounds=3, ratio=0.5)


def sentences(a: Advice) -> Iterator[Said]:
    yield from (a.method.good, a.cost["words"], a.runner_up_why, a.router_why, *a.why, *a.would_change_mind)
    yield from (c.why for c in (*a.leave_out, *a.personal))


def check(s: Said) -> None:
    assert isinstance(s, Said)
    assert s.strip()
    assert not CHINESE.search(s)
    assert CHINESE.search(s.zh)
    numbers = [sorted(re.findall(r"\d+(?:[.,]\d+)*%?", text)) for text in (s, s.zh)]
    assert numbers[0] == numbers[1], (str(s), s.zh)


def test_every_sentence_is_in_both_languages_with_the_same_numbers() -> None:
    plain = list(advices())
    found = [*plain, *(replace(plain[0], label="fedavg").proven(p) for p in proofs())]
    for a in found:
        for s in sentences(a):
            check(s)
    assert {a.label for a in found} == {"alone", "apfl", "fedavg", "fedbn", "fedper", "fedper_fedbn", "interpolation"}
    assert {c.do for a in found for c in (*a.leave_out, *a.personal)} == set(words.DO)


def test_every_method_proof_and_title_is_in_both_languages() -> None:
    kept = list(proofs())
    assert {p.verdict for p in kept} == {"confirmed", "overturned", "open"}
    for p in kept:
        check(p.words)
        check(words.budget(p))
    for s in (*(m.good for m in METHODS.values()), *words.TITLES.values(), *words.DO.values(), *words.ROLES.values()):
        check(s)
    for m in METHODS.values():
        check(replace(next(advices()), label=next(k for k, v in METHODS.items() if v is m)).cost["words"])


def test_the_value_is_the_english_one() -> None:
    s = Said("one", "一")
    assert (s, s.of("en"), s.of("zh"), json.dumps(s)) == ("one", "one", "一", '"one"')
    for again in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert (again, again.zh) == ("one", "一")
    both = joined((s, Said("", ""), Said("two", "二")))
    assert (both, both.zh) == ("one; two", "一；二")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_terminal_says_all_of_it(lang: str) -> None:
    a = replace(next(advices()), label="fedavg").proven(next(proofs()))
    text = " ".join(words.told(a, lang).split())
    for s in sentences(a):
        assert " ".join(s.of(lang).split()) in text
    for key, title in words.TITLES.items():
        assert title.of(lang) in text or (key == "private" and not a.private)
