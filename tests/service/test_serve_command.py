"""`fedroute serve` and `fedroute token`: real processes, real sockets."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fedroute import Router
from fedroute.service import Client, Edge, ServiceError
from tests.cli.conftest import Fedroute, fedroute  # noqa: F401
from tests.service.conftest import cases, certificate

CALL = "import sys; from fedroute.cli import main; sys.argv[0] = 'fedroute'; main()"
Serve = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts the command on a free port; gives the process, and the URL that it says."""
    there: list[subprocess.Popen[str]] = []

    def start(*words: object) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", CALL, "serve", *map(str, words), "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        there.append(process)
        assert process.stdout
        line = process.stdout.readline()
        found = re.search(r"serving .* on (https?://\S+)$", line)
        assert found, line + (process.stderr.read() if process.stderr else "")
        return process, found[1]

    yield start
    for process in there:
        process.kill()
        process.communicate()


def test_it_serves_a_run_and_ends_cleanly(serve: Serve, ward_run: Path, router: Router, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(ward_run, run)
    process, url = serve(run, "--away", "mid")
    asked = cases(5)
    with Client(url) as c:
        assert c.ready()
        told = c.predict_batch(asked)
    assert [r["answer"] for r in told] == [r["answer"] for r in router.route(asked, ["mid"]).rows()]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    with sqlite3.connect(run / "audit.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (5,)


def test_with_tokens_and_tls_and_the_edge(
    serve: Serve,
    ward_run: Path,
    router: Router,
    tmp_path: Path,
    fedroute: Fedroute,  # noqa: F811
) -> None:
    made, key = certificate(tmp_path)
    tokens = tmp_path / "tokens.json"
    token = fedroute("token", "nurse", "--tokens", tokens).out.strip()
    tls = ["--certificate", made, "--key", key, "--tokens", tokens, "--no-audit"]
    _, east = serve(ward_run, "--client", "east", *tls)
    _, hub = serve(ward_run, "--site", f"east={east}", *tls)
    assert hub.startswith("https://")

    clients = ExitStack()

    def connect(url: str, **other: Any) -> Client:
        options: dict[str, Any] = {"token": token, "verify": made, "retries": 0} | other
        return clients.enter_context(Client(url, **options))

    query = cases()[4]
    row = router.route([query]).rows()[0]
    assert row["client"] == "east"
    told = Edge.of(connect(hub), connect).predict(query)
    assert (told["answered_by"], told["answer"]) == ("east", row["answer"])
    assert connect(hub).predict(query)["answer"] == row["answer"]
    with pytest.raises(ServiceError, match="token"):
        connect(hub, token=None).predict(query)
    with pytest.raises(ServiceError, match="its certificate is not trusted"):
        connect(hub, verify=True).predict(query)  # whose certificate nobody vouches for
    clients.close()


def test_wrong_words_end_with_2_and_the_mend(fedroute: Fedroute, ward_run: Path, tmp_path: Path) -> None:  # noqa: F811
    cases: list[tuple[list[object], str]] = [
        (["serve", tmp_path / "none"], "no run here"),
        (["serve", ward_run, "--client", "north"], "no client 'north'"),
        (["serve", ward_run, "--away", "north"], "no client 'north'"),
        (["serve", ward_run, "--site", "north=http://x"], "no such client"),
        (["serve", ward_run, "--site", "west"], "NAME=URL"),
        (["serve", ward_run, "--tokens", tmp_path / "none"], "fedroute token"),
        (["serve", ward_run, "--certificate", tmp_path / "none"], "belong together"),
        (["serve", ward_run, "--port", 70000], "no port"),
        (["serve", ward_run, "--host", "256.0.0.1"], "--host"),
        (["serve", ward_run, "--audit", tmp_path / "no" / "a.sqlite"], "another file"),
        (["serve", ward_run, "--no-audit", "--audit", tmp_path / "a"], "one or the other"),
        (["serve", ward_run, "--away", "west", "--away", "mid", "--away", "east"], "nobody would be left"),
        (["token", "a", "--tokens", tmp_path / "no" / "t.json"], "folder"),
        (["token", "a", "--tokens", tmp_path / "t.json", "--remove"], "cannot be read"),
    ]
    for words, mend in cases:
        said = fedroute(*words)
        assert said.code == 2, (words, said)
        assert mend in said.err, (words, said.err)
        assert len(said.err.splitlines()) == 1


def test_a_token_is_made_once_and_removed(fedroute: Fedroute, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "t.json"
    said = fedroute("token", "nurse", "--tokens", path)
    assert said.code == 0
    assert len(said.out.strip()) == 43
    assert fedroute("token", "nurse", "--tokens", path).code == 2
    assert fedroute("token", "nurse", "--tokens", path, "--remove").code == 0
    assert fedroute("token", "nurse", "--tokens", path).code == 0
