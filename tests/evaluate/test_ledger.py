"""The ledger: the right model under the right name, on the right rows, with verdicts that hold."""

import json
from collections.abc import Callable

import pytest
import torch
from rich.console import Console
from torch import nn

from fedroute.core import Task
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.evaluate.aggregate import KINDS
from fedroute.evaluate.describe import describe
from fedroute.evaluate.ledger import Ledger, make_ledger
from fedroute.tree import Weights
from tests.evaluate.planted import always, constant_task, federation, lookup_task, says

TOTALS = {"mean", "weighted", "worst", "worst_client", "worst_tenth", "std", "measured", "undefined"}


def planted(n: int = 4, rows: int = 30) -> tuple[Federation, Task, Callable[[int], Weights]]:
    """Client i's test labels are all i, and its personal model always says i."""
    f = federation([[i] * rows for i in range(n)], labels=[f"class{i}" for i in range(n)])
    return f, constant_task(n), lambda i: always(i, n)


def shown(ledger: Ledger, limit: int = 40) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(ledger.table(limit))
    return captured.get()


def test_right_model_under_the_right_name() -> None:
    f, task, personal = planted()
    ledger = make_ledger(f, task, personal=personal, global_w=always(0, 4), alone=lambda i: always(3, 4), seed=0)
    assert [e.value("personal", "accuracy") for e in ledger.entries] == [1, 1, 1, 1]
    assert [e.value("global", "accuracy") for e in ledger.entries] == [1, 0, 0, 0]
    assert [e.value("alone", "accuracy") for e in ledger.entries] == [0, 0, 0, 1]
    assert [e.better_off for e in ledger.entries] == ["yes", "yes", "yes", "unclear"]
    rows = ledger.rows()
    assert [(r["client"], r["personal"], r["global"], r["alone"]) for r in rows] == [
        ("client0", 1, 1, 0), ("client1", 1, 0, 0), ("client2", 1, 0, 0), ("client3", 1, 0, 1)
    ]  # fmt: skip
    accuracy = ledger.summary()["accuracy"]
    assert (accuracy["personal"]["mean"], accuracy["global"]["mean"], accuracy["alone"]["mean"]) == (1, 0.25, 0.25)
    assert accuracy["global"]["worst_client"] == "client1"


def test_each_model_is_asked_once_and_the_alone_model_only_where_there_was_training() -> None:
    f = federation([[0, 1], [1, 2], [2]], train=[[0], [], [1]])
    asked: dict[str, list[int]] = {"personal": [], "alone": []}

    def note(kind: str) -> Callable[[int], Weights]:
        return lambda i: asked[kind].append(i) or always(i, 3)  # type: ignore[func-returns-value]

    ledger = make_ledger(f, constant_task(3), personal=note("personal"), global_w=None, alone=note("alone"), seed=0)
    assert asked == {"personal": [0, 1, 2], "alone": [0, 2]}
    assert ledger.entries[1].better_off == "n/a"
    assert "no training rows" in ledger.entries[1].notes[0]


def test_summary_has_the_keys_of_the_contract_and_is_json() -> None:
    f, task, personal = planted()
    s = make_ledger(f, task, personal=personal, global_w=None, alone=personal, seed=0).summary()
    assert set(s["accuracy"]) == set(KINDS)
    for kind in KINDS:
        assert set(s["accuracy"][kind]) == TOTALS
    wanted = {"name", "train", "validation", "test", "personal", "global", "alone", "interval", "better_off"}
    for client in s["clients"]:
        assert wanted <= client.keys()
    assert json.loads(json.dumps(s, allow_nan=False)) == s
    assert s["clients"][0]["interval"] == pytest.approx([0.8865, 1.0], abs=1e-4)


def test_no_global_model_is_said_and_not_counted_as_zero() -> None:
    f, task, personal = planted()
    s = make_ledger(f, task, personal=personal, global_w=None, alone=None, seed=0).summary()
    assert s["accuracy"]["global"]["mean"] is None
    assert (s["accuracy"]["global"]["measured"], s["accuracy"]["global"]["undefined"]) == (0, 4)
    assert "private" in s["measured"]["global"]
    assert set(s["measured"]["absent"]) == {"global", "alone"}
    assert {c["better_off"] for c in s["clients"]} == {"n/a"}
    assert all(c["global"] is None for c in s["clients"])


def test_an_empty_test_part_is_not_a_zero() -> None:
    f = federation([[0, 0], []], train=[[0], [1]], labels=("a", "b"))
    ledger = make_ledger(
        f,
        constant_task(2),
        personal=lambda i: always(0, 2),
        global_w=always(0, 2),
        alone=lambda i: always(1, 2),
        seed=0,
    )
    empty = ledger.entries[1]
    assert empty.scores == dict.fromkeys(KINDS)
    assert empty.better_off == "n/a"
    assert empty.majority is None
    assert empty.notes == ("no test rows: n/a",)
    total = ledger.summary()["accuracy"]["personal"]
    assert (total["mean"], total["measured"], total["undefined"]) == (1.0, 1, 1)


def test_one_class_in_the_test_part_leaves_auc_out_of_the_mean_with_a_count() -> None:
    f = federation([[0, 1, 0, 1], [1, 1, 1, 1]], labels=("a", "b"))
    w = says(f, f.y)
    ledger = make_ledger(f, lookup_task(f), personal=lambda i: w, global_w=w, alone=None, seed=0)
    total = ledger.summary()["metrics"]["auc"]["personal"]
    assert (total["mean"], total["measured"], total["undefined"]) == (1.0, 1, 1)
    assert any("one class in the test part" in n for n in ledger.entries[1].notes)
    assert not any("one class in the test part" in n for n in ledger.entries[0].notes)


def test_majority_is_of_training_labels_measured_on_test_rows() -> None:
    f = federation([[0, 0, 0, 1]], train=[[1, 1, 0]], labels=("a", "b"))
    ledger = make_ledger(f, constant_task(2), personal=lambda i: always(0, 2), global_w=None, alone=None, seed=0)
    assert ledger.entries[0].majority == 0.25
    assert ledger.entries[0].value("personal", "accuracy") == 0.75


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [(0.9, 0.5, "yes"), (0.5, 0.9, "no"), (0.82, 0.80, "unclear")],
)
def test_verdicts_on_models_that_are_right_on_known_rows(right: float, wrong: float, verdict: str) -> None:
    """200 rows; the personal model is right on the first `right` of them, the one alone on the first `wrong`."""
    f = federation([[0] * 200], labels=("a", "b"))
    row = torch.arange(400).remainder(200)
    own, lone = says(f, (row >= right * 200).long()), says(f, (row >= wrong * 200).long())
    e = make_ledger(f, lookup_task(f), personal=lambda i: own, global_w=None, alone=lambda i: lone, seed=0).entries[0]
    assert e.better_off == verdict
    assert e.difference == pytest.approx(right - wrong)
    assert e.interval is not None
    assert e.interval[0] < right - wrong < e.interval[1]


def test_rare_events_have_a_verdict_by_pr_auc_and_not_by_accuracy() -> None:
    """Both models have the accuracy of always saying no; only the personal one ranks the frauds first."""
    y = [1] * 20 + [0] * 980
    f = federation([y], labels=("fine", "fraud"))
    ranks = {"logits": torch.zeros(2000, 2, dtype=torch.float64)}
    ranks["logits"][:, 1] = f.y - 9.0
    blind = {"logits": torch.zeros(2000, 2, dtype=torch.float64)}
    blind["logits"][:, 1] = -9.0 + torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ledger = make_ledger(f, lookup_task(f), personal=lambda i: ranks, global_w=None, alone=lambda i: blind, seed=0)
    s, e = ledger.summary(), ledger.entries[0]
    assert (s["headline"], s["measured"]["positive"]) == ("pr_auc", "fraud")
    assert e.value("personal", "accuracy") == e.value("alone", "accuracy") == 0.98
    assert e.value("personal", "pr_auc") == 1.0
    assert s["clients"][0]["personal"] == 1.0
    assert e.better_off == "yes"
    assert any("PR-AUC, not accuracy" in n for n in e.notes)


def test_too_few_positives_are_no_ground_for_a_verdict() -> None:
    y = [1] * 3 + [0] * 197
    f = federation([y], labels=("fine", "fraud"))
    good, bad = says(f, f.y), says(f, 1 - f.y)
    e = make_ledger(f, lookup_task(f), personal=lambda i: good, global_w=None, alone=lambda i: bad, seed=0).entries[0]
    assert e.better_off == "unclear"
    assert any("too few for a verdict" in n for n in e.notes)


def test_targets_that_are_no_classes_have_the_loss_and_lower_is_better() -> None:
    n = 60
    target = torch.linspace(0, 1, 2 * n, dtype=torch.float64).unsqueeze(1)
    f = federation([[0] * n], values=target)
    task = Task(nn.Linear(1, 1, dtype=torch.float64), loss=lambda out, b: nn.functional.mse_loss(out, b["y"]))
    exact: Weights = {"weight": torch.full((1, 1), 1 / (2 * n - 1)).double(), "bias": torch.zeros(1).double()}
    off: Weights = exact | {"bias": torch.ones(1).double()}
    ledger = make_ledger(f, task, personal=lambda i: exact, global_w=off, alone=lambda i: off, seed=0)
    s, e = ledger.summary(), ledger.entries[0]
    assert s["headline"] == "loss"
    assert e.better_off == "yes"
    assert e.value("alone", "loss") == pytest.approx(1.0)
    assert s["metrics"]["loss"]["alone"]["worst"] == pytest.approx(1.0)
    assert s["accuracy"]["personal"]["mean"] is None
    assert e.majority is None
    assert "1.000" in shown(ledger)


def test_a_model_that_answers_nan_is_wrong_and_the_line_says_so() -> None:
    f = federation([[0] * 40], labels=("a", "b"))
    sick = {"logits": torch.full((80, 2), torch.nan, dtype=torch.float64)}
    well = says(f, f.y)
    e = make_ledger(f, lookup_task(f), personal=lambda i: sick, global_w=None, alone=lambda i: well, seed=0).entries[0]
    assert e.value("personal", "accuracy") == 0
    assert e.value("personal", "log_loss") is None
    assert e.better_off == "no"
    assert e.notes[-1] == "personal: 40 rows got NaN or Inf for an answer"


def test_one_training_row_under_batch_norm_and_notes_from_outside() -> None:
    f = federation([[0], [1]], train=[[0], [1, 1]], labels=("a", "b"))
    task = Task(nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)).double())
    w = task.init()
    ledger = make_ledger(
        f, task, personal=lambda i: w, global_w=w, alone=None, seed=0, notes={"client1": ["came late"]}
    )
    assert any("batch norm cannot learn" in n for n in ledger.entries[0].notes)
    assert not any("batch norm" in n for n in ledger.entries[1].notes)
    assert ledger.entries[1].notes[-1] == "came late"


def test_aggregates_by_hand() -> None:
    """Accuracies 1, 0.5 and 0 on 10, 20 and 30 rows."""
    f = federation([[0] * 10, [0] * 10 + [1] * 10, [1] * 30], labels=("a", "b"))
    ledger = make_ledger(f, constant_task(2), personal=lambda i: always(0, 2), global_w=None, alone=None, seed=0)
    total = ledger.summary()["accuracy"]["personal"]
    assert total["mean"] == pytest.approx(0.5)
    assert total["weighted"] == pytest.approx(20 / 60)
    assert (total["worst"], total["worst_client"], total["worst_tenth"]) == (0, "client2", 0)
    assert total["std"] == pytest.approx((1 / 6) ** 0.5)


def test_same_ledger_twice_and_an_unknown_part_is_refused() -> None:
    f = federation([[0, 1] * 20], labels=("a", "b"), train=[[0] * 97 + [1] * 3])

    def once(seed: int) -> Ledger:
        g = torch.Generator().manual_seed(0)
        w = [{"logits": torch.randn(len(f.x), 2, generator=g, dtype=torch.float64)} for _ in range(2)]
        return make_ledger(f, lookup_task(f), personal=lambda i: w[0], global_w=None, alone=lambda i: w[1], seed=seed)

    assert once(1) == once(1)
    assert once(1).entries[0].interval != once(2).entries[0].interval
    with pytest.raises(InputError, match="no part 'tset'"):
        make_ledger(f, lookup_task(f), personal=lambda i: {}, global_w=None, alone=None, part="tset", seed=0)


def test_a_model_without_an_output_for_a_label_is_refused_in_words() -> None:
    f = federation([[0, 2]])
    with pytest.raises(InputError, match="2 outputs, and label code 2"):
        make_ledger(f, constant_task(2), personal=lambda i: always(0, 2), global_w=None, alone=None, seed=0)


def test_the_table_fits_a_terminal_marks_the_worst_and_cannot_be_written_to_by_a_name() -> None:
    names = ["[red]e[/red]\x1b[2J", "x" * 60, "b", "c"]
    f = federation([[i] * 30 for i in range(4)], labels=list("wxyz"), names=names)
    ledger = make_ledger(
        f,
        constant_task(4),
        personal=lambda i: always(min(i, 2), 4),
        global_w=None,
        alone=lambda i: always(0, 4),
        seed=0,
    )
    text = shown(ledger)
    assert max(map(len, text.splitlines())) <= 100
    assert "worst c" in text
    assert "[red]e[/red]" in text
    assert "\x1b" not in text
    assert text.count("x") >= 60
    assert "3 of" not in text
    assert "global: n/a" in text


def test_of_many_clients_the_table_shows_those_worse_off_first() -> None:
    n = 60
    f = federation([[i % 2] * 20 for i in range(n)], labels=("a", "b"))
    ledger = make_ledger(
        f,
        constant_task(2),
        personal=lambda i: always(int(i == 7), 2),
        global_w=None,
        alone=lambda i: always(i % 2, 2),
        seed=0,
    )
    text = shown(ledger, limit=5)
    assert "5 of 60 clients" in text
    assert text.count("▼ no") == 5
    assert "29 no" in text


def test_describe_counts_training_labels_and_every_part() -> None:
    f = federation([[0, 1], [2]], train=[[0, 0, 2], []])
    d = describe(f)
    assert d["label_counts"] == {"client0": [2, 0, 1], "client1": [0, 0, 0]}
    assert d["sizes"]["client0"] == {"train": 3, "validation": 0, "test": 2}
    assert d["labels"] == ["a", "b", "c"]
    assert json.loads(json.dumps(d)) == d
    assert describe(federation([[0]], values=torch.zeros(2)))["label_counts"] == {}
