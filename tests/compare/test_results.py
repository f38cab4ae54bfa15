"""Rows, pairs and the winner, from planted summaries whose right answers are known."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedroute.compare.plan import Plan
from fedroute.compare.results import results, write_results
from fedroute.compare.statistics import over_seeds
from fedroute.compare.table import comparison_table, verdict
from fedroute.errors import InputError
from fedroute.report.compare_page import compare_page
from tests.report.html import Page

CLIENTS = ("a", "b", "<i>late</i>")


def summary(
    values: dict[str, float], validation: float | None, *, metric: str = "accuracy", **other: Any
) -> dict[str, Any]:
    """A run's summary: the newcomer is the last client."""
    trained = [values[c] for c in CLIENTS[:2]]
    total = {
        "mean": sum(trained) / 2,
        "weighted": sum(trained) / 2,
        "worst": min(trained),
        "worst_client": "a",
        "worst_tenth": min(trained),
    }
    block = {"personal": total, "global": {}, "alone": {"mean": 0.5}}
    late = {"personal": {"mean": values[CLIENTS[2]]}}
    found: dict[str, Any] = {
        "headline": metric,
        "metrics": {} if metric == "accuracy" else {metric: block},
        "accuracy": block if metric == "accuracy" else {},
        "accuracy_newcomers": late,
        "clients": [
            {"name": c, "personal": v, "train": 60, "test": 30, "newcomer": c == CLIENTS[2]} for c, v in values.items()
        ],
        "validation": {"personal": None if validation is None else {metric: validation}},
        "better_off": {"yes": 1, "no": 0, "unclear": 1, "n/a": 0},
        "traffic": {"up_bytes": 100, "down_bytes": 200},
        "rounds": 10,
        "time": {"train_s": 2.0, "from_round": 0},
        "void_rounds": [],
        "quarantined": [],
        "engine": "sequential",
        "measured": {"part": "test"},
        "federation": {"name": "<b>planted</b>"},
        "version": "0",
    }
    return found | other


def values(a: float, b: float, late: float = 0.2) -> dict[str, float]:
    return dict(zip(CLIENTS, (a, b, late), strict=True))


def plan(*labels: str, seeds: int = 5) -> Plan:
    training = {"rounds": 10, "batch_size": 16, "local_epochs": 2, "local_steps": None}
    return Plan({"seed": 0, "training": training}, {k: {"name": k, "private": []} for k in labels}, seeds)


NOISE = (0.0, 0.01, -0.01, 0.005, -0.005)
FAR = {("good", s): summary(values(0.9 + e, 0.8 + e), 0.7) for s, e in enumerate(NOISE)} | {
    ("bad", s): summary(values(0.6, 0.7 - e, 0.4), 0.6) for s, e in enumerate(NOISE)
}  # fmt: skip


def test_rows_and_means() -> None:
    found = results(plan("bad", "good"), FAR, {})
    assert [(r["algorithm"], r["seed"]) for r in found["rows"]] == [(k, s) for k in ("bad", "good") for s in range(5)]
    row = found["rows"][5]
    assert (row["mean"], row["worst"], row["up_bytes"], row["down_bytes"], row["seconds"]) == (
        pytest.approx(0.85), 0.8, 1000, 2000, 2.0
    )  # fmt: skip
    assert row["newcomers"] == 0.2
    good, bad = found["algorithms"]
    assert good["algorithm"] == "good"  # best validation first
    assert good["mean"] == pytest.approx(0.85)
    assert good["better_off"] == {"yes": 5, "no": 0, "unclear": 5, "n/a": 0}
    assert bad["newcomers"] == pytest.approx(0.4)
    assert good["clients"] == {"a": pytest.approx(0.9), "b": pytest.approx(0.8)}  # those who trained


def test_pairs_are_client_by_client_and_seed_by_seed() -> None:
    (pair,) = results(plan("bad", "good"), FAR, {})["pairs"]
    assert (pair["a"], pair["b"], pair["seeds"]) == ("good", "bad", 5)
    a, b = pair["clients"]
    assert a["client"] == "a"
    assert a["by_seed"] == {s: pytest.approx(0.3 + e) for s, e in enumerate(NOISE)}
    assert b["by_seed"] == {s: pytest.approx(0.1 + 2 * e) for s, e in enumerate(NOISE)}
    assert pair["difference"] == pytest.approx(0.2)
    assert pair["interval"] == pytest.approx(
        over_seeds([0.2 + 1.5 * e for e in NOISE], 30 / 60).interval
    )  # 30 test rows, 60 to train
    assert pair["better"] == "good"


def test_the_winner_is_chosen_on_validation_rows_even_where_test_rows_say_otherwise() -> None:
    swapped = {k: s | {"validation": {"personal": {"accuracy": 0.9 if k[0] == "bad" else 0.1}}} for k, s in FAR.items()}
    found = results(plan("bad", "good"), swapped, {})
    assert found["winner"]["algorithm"] == "bad"
    assert found["winner"]["worse_than"] == ["good"]
    assert "bad is first on validation rows" in verdict(found)
    assert "it is worse than good beyond the noise" in verdict(found)


def test_what_is_within_the_noise_is_not_claimed() -> None:
    near = {("x", s): summary(values(0.8 + 10 * e, 0.8), 0.8) for s, e in enumerate(NOISE)} | {
        ("y", s): summary(values(0.8 - 10 * e, 0.79), 0.79) for s, e in enumerate(NOISE)
    }  # fmt: skip
    found = results(plan("x", "y"), near, {})
    assert found["pairs"][0]["better"] is None
    assert found["winner"]["not_told_apart_from"] == ["y"]
    assert "none of the others is told apart from it" in verdict(found)
    one = results(plan("good", "bad", seeds=1), {k: s for k, s in FAR.items() if k[1] == 0}, {})
    assert one["pairs"][0]["interval"] is None
    assert one["pairs"][0]["better"] is None


def test_lower_is_better_for_a_loss() -> None:
    runs = {
        (k, s): summary(values(v + e * v, v), v, metric="loss")
        for k, v in (("x", 1.0), ("y", 0.5))
        for s, e in enumerate(NOISE)
    }
    found = results(plan("x", "y"), runs, {})
    assert found["winner"]["algorithm"] == "y"
    assert found["winner"]["better_than"] == ["x"]


def test_without_validation_rows_nobody_is_chosen() -> None:
    found = results(plan("good", "bad"), {k: s | {"validation": {"personal": None}} for k, s in FAR.items()}, {})
    assert found["winner"] is None
    assert "nothing is chosen on test rows" in verdict(found)


def test_an_algorithm_with_fewer_seeds_cannot_win() -> None:
    runs = FAR | {("lucky", 0): summary(values(1.0, 1.0), 1.0)}
    found = results(plan("good", "bad", "lucky"), runs, {("lucky", 1): "killed"})
    assert found["winner"]["algorithm"] == "good"
    assert {m["reason"] for m in found["missing"]} == {"killed", "has not ended"}
    assert len(found["missing"]) == 4


def test_time_of_a_run_that_was_gone_on_with_is_scaled_to_all_its_rounds() -> None:
    runs = FAR | {("good", 0): FAR["good", 0] | {"time": {"train_s": 2.0, "from_round": 5}}}
    assert next(r for r in results(plan("good"), runs, {})["rows"] if r["seed"] == 0)["seconds"] == 4.0


@pytest.mark.parametrize(
    "runs", [FAR, {}, {k: s for k, s in FAR.items() if k[1] == 0}], ids=["all", "none", "one seed"]
)
def test_the_page_is_whole_loads_nothing_and_escapes(runs: dict[Any, Any]) -> None:
    labels = ("good", "bad", "<script>x</script>:mu=1")
    found = results(plan(*labels), runs, {}) | {
        "refused": [{"algorithm": "bad", "seed": 0, "void_rounds": 1, "quarantined": 2}]
    }
    html = compare_page(found, "<u>folder</u>")
    page = Page(html)
    assert all(v.endswith("/report.html") and "://" not in v for v in page.loaded())
    assert page.count("script") == 1
    assert not {"u", "marquee"} & {t for t, _ in page.tags}
    assert "<script>x</script>:mu=1" in page.text
    if runs is FAR:
        assert "better than bad beyond the noise" in page.text
        assert "<b>planted</b>" in page.text
        assert "<i>late</i>" in page.text
    text = io.StringIO()
    Console(file=text, width=120).print(comparison_table(found))
    assert ("good" in text.getvalue()) == bool(runs)


def test_a_folder_without_a_comparison_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no comparison here"):
        write_results(tmp_path)
