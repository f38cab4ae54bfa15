"""The page on federations is a federation: its commands, in order, are one from nothing to a routed query."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from fedroute.federation import supervise
from tests.federation.federations import ROOT, free_port

PAGE = ROOT / "docs" / "federation.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for settings in tmp_path.glob("*/settings.json"):
        supervise.stop(settings.parent)


def text() -> str:
    """The page, with ports that are free here."""
    ports = {"8702": str(free_port()), "8780": str(free_port())}
    return re.sub("|".join(ports), lambda m: ports[m[0]], PAGE.read_text(encoding="utf-8"))


def run(line: str, folder: Path) -> str:
    words = shlex.split(line)
    if words[:3] in (["fedroute", "hub", "start"], ["fedroute", "site", "start"]):
        words += ["--wait", "300"]  # on a machine that is busy with something else, too
    if words[0] == "fedroute":
        words[:1] = [sys.executable, "-c", "from fedroute.cli import main; main()"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}\n{logs(folder)}"
    return done.stdout


def logs(folder: Path) -> str:
    return "\n".join(f"{f}:\n{f.read_text()[-3000:]}" for f in folder.glob("*/log.txt"))


def test_its_commands_are_a_federation(folder: Path) -> None:
    said = dict[str, str]()
    for language, name, body in BLOCK.findall(text()):
        if name:
            (folder / name).write_text(body, encoding="utf-8")
        elif language == "python":
            subprocess.run([sys.executable, "-c", body], cwd=folder, check=True)
        elif language == "console":
            for line in body.splitlines():
                command = line.removeprefix("$ ")
                said[" ".join(command.split()[:3])] = run(command, folder)
    assert "south: here" in said["fedroute hub status"]
    assert "not accepted yet" in said["fedroute site manifest"]
    answers = [v for k, v in said.items() if k.startswith("curl")]
    assert len(answers) == 1
    assert re.search(r'"client": ?"(north|south|west)"', answers[0])
    assert not [p for p in folder.glob("*/.lock") if supervise.Running(p.parent).alive]
