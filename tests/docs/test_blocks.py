"""Every code block of the README files, docs and CONTRIBUTING runs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedroute.config import load

ROOT = Path(__file__).parents[2]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]  # the second has the code of the first, which runs once
PAGES = [READMES[0], *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.M | re.S)
# commands that CI itself runs, or that fetch this repository
ELSEWHERE = ("git ", "cd ", "make ", "source ", "pip ")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    return [m.groups() for m in FENCE.finditer(page.read_text(encoding="utf-8"))]  # type: ignore[misc]


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    """A block with a file name after its language is that file; other yaml blocks are valid configs; python blocks run;
    bash blocks run line by line, and what ends with & runs until the end of the page."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as background:
        run_blocks(page, tmp_path, background)


def run_blocks(page: Path, tmp_path: Path, background: ExitStack) -> None:
    ran = 0
    for language, name, body in blocks(page):
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
        elif language == "yaml":
            (tmp_path / "block.yaml").write_text(body, encoding="utf-8")
            load(tmp_path / "block.yaml")
        elif language == "python":
            subprocess.run([sys.executable, "-c", body], cwd=tmp_path, env=environment(), check=True, timeout=300)
        elif language == "bash":
            for line in body.splitlines():
                command = line.split(" #")[0].strip()
                if not command or command.startswith(("#", *ELSEWHERE)):
                    continue
                if "FEDROUTE_DATA" in command and "FEDROUTE_DATA" not in os.environ:
                    continue
                words = shlex.split(re.sub(r"^FEDROUTE_DATA=\S+ ", "", command))
                if words[0] == "curl" and not shutil.which("curl"):
                    continue
                if words[-1] == "&":
                    begin(words[:-1], tmp_path, background)
                    continue
                if words[0] == "curl":
                    words[1:1] = ["--fail"]
                subprocess.run(words, cwd=tmp_path, env=environment(), check=True, timeout=300)
        ran += language in {"python", "bash", "yaml"}
    assert ran or not blocks(page)


def begin(words: list[str], folder: Path, background: ExitStack) -> None:
    """Starts a service, which says in a line when it is ready, and ends it with the page."""
    process = subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    background.callback(process.wait, 60)
    background.callback(process.terminate)
    assert process.stdout
    assert process.stdout.readline(), f"{words} did not start"


def test_both_readmes_show_the_same_code() -> None:
    """The Chinese page is the same page: its code blocks are those of the English one, comments aside."""
    english, chinese = ([(a, b, re.sub(r"#.*", "", c)) for a, b, c in blocks(p)] for p in READMES)
    assert english == chinese
