"""report.html: whole, truthful, harmless, and there even when half of a run is not."""

import base64
import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedroute import fit
from fedroute.data.federation import Federation
from fedroute.errors import InputError
from fedroute.report import write
from fedroute.report.reading import read
from tests.report.html import Page
from tests.report.runs import run_dir, summary

NAMES = ["cleveland", "hungarian", "switzerland", "va"]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=http://evil.example/x onerror=alert(1)>',
    "</td></tr></table>",
    "{{ 7 * 7 }}",
    "</script><script>alert(2)</script>",
    "' onmouseover='alert(3)",
    "\u202egnp.exe",
]


def page_of(path: Path) -> Page:
    return Page(write(path).read_text(encoding="utf-8"))


def test_a_run_is_told_whole(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    page = page_of(path)
    for name in NAMES:
        assert page.text.count(name) >= 3  # in the picture, the ledger and the label mix
    for words in (
        "hungarian and va are better off than alone",  # the headline
        "pfedme (lam 15.0, private norm)",
        "for cleveland and switzerland the difference is within the noise",
        "body.weight has NaN or Inf",
        "1 of 5 rounds were void",
        "1 tensor with 2.05 kB leaves each client in a round; 1 with 64 B never does",
        "4 kB up and 8 kB down a round, 60 kB in 5 rounds",
        "4 clients have fewer than 50 test rows",
        "seed: 7 # <i>not markup</i>",
        "2 rows without a label were left out",
        "Accuracy on validation rows",
        "Training loss",
        "one class in the test part: AUC and PR-AUC n/a",
    ):
        assert words in page.text, words


def test_the_numbers_stand_at_their_client(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    html = write(path).read_text(encoding="utf-8")
    ledger = html[html.index("<h2>Ledger</h2>") :]
    for client in summary(path)["clients"]:
        row = ledger[ledger.index(f"<bdi>{client['name']}</bdi>") :]
        row = Page(row[: row.index("</tr>")].replace("</th>", "", 1).replace("</bdi>", "", 1).replace("<bdi>", "")).text
        low, high = (f"{100 * v:.1f}" for v in client["interval"])
        numbers = [f"{100 * client[k]:.1f}" for k in ("personal", "global", "alone", "majority")]
        assert f"{client['train']} {client['validation']} {client['test']} {numbers[0]} [{low}, {high}]" in row
        assert " ".join(numbers[1:]) in row
        assert client["better_off"] in row


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES + HOSTILE)
    html = write(path).read_text(encoding="utf-8")
    page = Page(html)
    assert page.loaded() == []
    assert page.count("link") == page.count("iframe") == page.count("img") == page.count("base") == 0
    assert "@import" not in html
    assert "url(" not in html
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    digest = base64.b64encode(hashlib.sha256("".join(page.scripts).encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy, "the page's own script would be refused"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", HOSTILE)
    page = page_of(path)
    assert page.count("script") == 1
    assert not any(k.startswith("on") for _, attrs in page.tags for k in attrs)
    for name in HOSTILE:
        assert name in page.text
    assert "49" not in page.text.split("{{ 7 * 7 }}")[1][:20]
    assert "<b>eel</b>" in page.text  # a label


def test_five_hundred_clients_are_summed_up_and_all_there(tmp_path: Path) -> None:
    names = [f"clinic {i:03d}" for i in range(498)] + HOSTILE[:2]
    path = run_dir(tmp_path / "run", names)
    out = write(path)
    page = Page(out.read_text(encoding="utf-8"))
    assert out.stat().st_size < 300_000
    for name in names:
        assert name in page.text
    assert "250 of 500 clients are better off than alone" in page.text
    assert "Of 500 clients that gain and lose nothing up to about 25 would get a verdict" in page.text
    assert all(v.startswith("data:image/png;base64,") for v in page.loaded())


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    assert write(path).read_bytes() == write(path).read_bytes()


def test_no_alone_and_no_global_are_said(tmp_path: Path) -> None:
    page = page_of(run_dir(tmp_path / "run", NAMES, with_alone=False, with_global=False))
    assert "No client was compared with training alone" in page.text
    assert "n/a: some weights are private or nothing is shared" in page.text
    assert "n/a: no client was trained alone" in page.text


def without(path: Path, *files: str) -> Path:
    for name in files:
        (path / name).unlink()
    return path


def test_an_interrupted_run_shows_what_it_has(tmp_path: Path) -> None:
    path = without(run_dir(tmp_path / "run", NAMES), "summary.json", "clients.csv")
    with (path / "metrics.jsonl").open("a") as f:
        f.write('{"round": 6, "train_lo')  # cut off by a kill
    page = page_of(path)
    assert "the run has not ended" in page.text
    assert "fedroute resume run" in page.text
    assert "rounds 5" in page.text
    assert page.count("svg") == 3


def test_a_ledger_without_a_summary_is_read_from_clients_csv(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    before = page_of(path).text
    (path / "summary.json").write_text('{"schema": 1, "clients": [')  # torn
    after = page_of(path).text
    assert "hungarian and va are better off than alone" in before
    assert "hungarian and va are better off than alone" in after
    assert "100.0 [83.9, 100.0]" in before
    assert "100.0 [83.9, 100.0]" in after


def test_a_name_that_a_spreadsheet_would_compute_is_put_in_quotes_and_read_back(tmp_path: Path) -> None:
    f = Federation.from_arrays(torch.randn(60, 3), torch.arange(60) % 2, ["=1+1", "-a", "plain"] * 20)
    run = fit(f, "linear", rounds=1, alone=False, out=tmp_path / "run", log=lambda text: None)
    cells = [row["client"] for row in csv.DictReader((tmp_path / "run" / "clients.csv").read_text().splitlines())]
    assert sorted(cells) == ["'-a", "'=1+1", "plain"]
    assert {c["name"] for c in run.summary()["clients"]} == {"-a", "=1+1", "plain"}
    assert {c["name"] for c in read(without(tmp_path / "run", "summary.json")).clients} == {"-a", "=1+1", "plain"}


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (("metrics.jsonl",), "there are no curves"),
        (("config.yaml",), "the configuration cannot be shown"),
        (("clients.csv",), "hungarian"),
        (("metrics.jsonl", "config.yaml", "clients.csv"), "hungarian"),
    ],
)
def test_missing_files_are_said_in_words(tmp_path: Path, gone: tuple[str, ...], words: str) -> None:
    assert words in page_of(without(run_dir(tmp_path / "run", NAMES), *gone)).text


@pytest.mark.parametrize(
    "key",
    ["accuracy", "metrics", "measured", "headline", "federation", "manifest", "traffic", "quarantined", "time", "seed",
     "algorithm", "clients", "void_rounds", "weights_sha256", "notes", "rounds", "better_off"],
)  # fmt: skip
def test_a_summary_may_lack_any_key(tmp_path: Path, key: str) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    s = summary(path)
    del s[key]
    (path / "summary.json").write_text(json.dumps(s))
    assert "switzerland" in page_of(path).text


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        write(tmp_path)
    assert not (tmp_path / "report.html").exists()


def rewritten(path: Path, **changes: Any) -> Page:
    s = summary(path)
    s |= changes
    (path / "summary.json").write_text(json.dumps(s))
    return page_of(path)


def test_a_client_without_test_rows_is_in_the_ledger_as_na(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    clients = summary(path)["clients"]
    nothing = dict.fromkeys(
        ("personal", "global", "alone", "interval", "difference", "difference_interval", "majority")
    )
    clients[2] |= nothing | {"better_off": "n/a", "test": 0, "notes": ["no test rows: n/a"]}
    text = rewritten(path, clients=clients).text
    assert "switzerland: n/a, and in no mean" in text
    assert "switzerland 20 0 0 n/a n/a n/a n/a n/a n/a no test rows: n/a" in text


def test_a_model_that_majority_beats_is_called_out(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    clients = summary(path)["clients"]
    clients[3] |= {"personal": 0.4, "majority": 0.7}
    assert "For cleveland, hungarian, switzerland and va always naming" in rewritten(path, clients=clients).text
    for c in clients[:3]:
        c["majority"] = 0.1
    assert "For va always naming" in rewritten(path, clients=clients).text


def test_rare_events_and_losses_have_their_words(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    s = summary(path)
    rare = s["metrics"] | {"pr_auc": s["accuracy"]}
    page = rewritten(path, headline="pr_auc", metrics=rare, measured=s["measured"] | {"positive": "fraud"})
    assert "judged by PR-AUC of 'fraud'" in page.text
    assert "1.000 [0.839, 1.000]" in page.text
    page = rewritten(path, headline="loss", metrics={"loss": s["accuracy"]})
    assert "the task's loss" in page.text


def test_writing_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    path = run_dir(tmp_path / "run", NAMES)
    code = (
        "import sys; from fedroute.report import write; write(sys.argv[1]); "
        "assert not {'torch', 'numpy', 'sklearn'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert (path / "report.html").stat().st_size > 10_000
