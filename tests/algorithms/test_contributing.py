"""CONTRIBUTING.md followed to the letter, in a copy of the repository: lint, types, tests, `fedroute check`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str, str]] = re.findall(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = {path: body for language, path, body in BLOCKS if language == "python"}
LINES = {path: re.findall(r"^\+(.*)$", body, re.MULTILINE) for language, path, body in BLOCKS if language == "diff"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository with the page's files, and its lines at their place in the alphabet."""
    house = tmp_path_factory.mktemp("house")
    for folder in ("src", "docs"):
        shutil.copytree(ROOT / folder, house / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", house)
    for path, body in FILES.items():
        assert not (ROOT / path).exists()
        (house / path).parent.mkdir(parents=True, exist_ok=True)
        (house / path).write_text(body, encoding="utf-8")
    for path, lines in LINES.items():
        for line in lines:
            insert(house / path, line)
    return house


def insert(path: Path, line: str) -> None:
    """Among its like: the imports from the same package, or the entries of the first dict."""
    lines = path.read_text(encoding="utf-8").splitlines()
    like = r'    "\w+": ' if line.startswith("    ") else line[: line.index(" import ")].rpartition(".")[0]
    at = [k for k, old in enumerate(lines) if re.match(like, old)]
    after = [k for k in at if lines[k] < line]
    lines.insert(after[-1] + 1 if after else at[0], line)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(house: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(house / "src"), "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *words], cwd=house, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_names_its_files() -> None:
    assert len(FILES) == 3
    assert LINES.keys() == {"src/fedroute/algorithms/__init__.py", "src/fedroute/certificates/__init__.py"}
    assert all(len(lines) == 2 for lines in LINES.values())


def test_its_tests_pass_without_a_warning(house: Path) -> None:
    (test,) = (path for path in FILES if path.startswith("tests/"))
    said = run(house, "-W", "error::pytest.PytestWarning", "-m", "pytest", "-p", "no:cacheprovider", test)
    assert int(re.findall(r"(\d+) passed", said)[0]) > 20


def test_check_shows_its_claim(house: Path) -> None:
    said = run(house, "-c", "from fedroute.cli import main; main()", "check", "fedclip")
    assert "no round goes further than the bound" in said
    assert "holds" in said


def test_its_lint_is_clean(house: Path) -> None:
    pytest.importorskip("ruff")
    run(house, "-m", "ruff", "check", *FILES, *LINES)
    run(house, "-m", "ruff", "format", "--check", *FILES, *LINES)


def test_its_types_are_strict(house: Path) -> None:
    pytest.importorskip("mypy")
    run(house, "-m", "mypy", *FILES)


def test_make_docs_renews_the_page_of_algorithms(house: Path) -> None:
    before = (house / "docs" / "algorithms.md").read_text(encoding="utf-8")
    run(house, "docs/make_tables.py")
    assert "| `fedclip` | FedAvg with a bound" in (house / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert "fedclip" not in before


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"\bmake ([a-z]+)\b", TEXT)
    assert {"setup", "test", "lint", "docs"} <= set(targets)
    assert all(re.search(rf"^{t}:", makefile, re.MULTILINE) for t in targets)


def test_its_files_and_hooks_exist() -> None:
    from fedroute.core import Algorithm, Context

    for path in re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path
    named = [name for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for name in re.findall(r"`([\w.]+)", row)]
    assert len(named) >= 18
    for name in named:
        owner = Context if name.startswith("ctx.") else Algorithm
        assert hasattr(owner, name.removeprefix("ctx.")), name
