"""Every block of CONTRIBUTING.md runs, in the order of the page."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedroute.algorithms import ALGORITHMS
from fedroute.testing import Check

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page() -> Any:
    """What the Python blocks define, run as one module named as the file they write."""
    module = types.ModuleType("fedroute.algorithms.fedclip")
    module.__file__ = str(PAGE)
    before = dict(ALGORITHMS)
    sys.modules[module.__name__] = module
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


def test_the_page_runs(page: Any) -> None:
    assert page.FedClip().describe() == {"name": "fedclip", "private": (), "bound": 10.0}
    assert sum(language == "python" for language, _ in BLOCKS) == 4


def test_its_battery_passes(page: Any) -> None:
    mark = page.test_battery.pytestmark[0]
    checks: list[Check] = list(page.check_algorithm(page.FedClip(bound=0.1), neutral=page.FedClip(bound=1e9)))
    assert mark.args[0] == "check"
    assert len(checks) > 20
    for check in checks:
        page.test_battery(check)


def test_its_make_targets_exist() -> None:
    makefile = (PAGE.parent / "Makefile").read_text()
    (commands,) = [text for language, text in BLOCKS if not language]
    targets = re.findall(r"^make (\w+)", commands, re.MULTILINE)
    assert targets == ["setup", "test", "lint"]
    assert all(re.search(rf"^{t}:", makefile, re.MULTILINE) for t in targets)


def test_its_files_and_hooks_exist() -> None:
    from fedroute.core import Algorithm

    text = PAGE.read_text()
    for path in re.findall(r"`((?:src|tests)/[\w/.]+)`", text):
        assert (PAGE.parent / path).exists() or path.endswith("fedclip.py"), path
    hooks = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    assert len(hooks) >= 13
    assert all(hasattr(Algorithm, hook) for hook in hooks), hooks
