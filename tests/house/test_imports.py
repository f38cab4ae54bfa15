"""The house: imports point one way, and importing fedroute is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MODULES = {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p for p in SRC.rglob("*.py")}
# room -> the rooms it may never import, directly or through others
FORBIDDEN = {
    "fedroute.tree": ["fedroute."],
    "fedroute.core": ["fedroute.algorithms", "fedroute.engines", "fedroute.data", "fedroute.training"],
    "fedroute.algorithms": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.data"],
    "fedroute.data": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.algorithms"],
    "fedroute.models": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.algorithms"],
    "fedroute.engines": ["fedroute.training", "fedroute.rounds", "fedroute.evaluate", "fedroute.algorithms"],
    "fedroute.evaluate": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.report"],
    "fedroute.router": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.report", "fedroute.cli"],
    "fedroute.profile": ["fedroute.engines", "fedroute.training", "fedroute.rounds", "fedroute.report", "fedroute.cli"],
    "fedroute.advise": ["fedroute.report", "fedroute.cli"],
    "fedroute.rounds": ["fedroute.training", "fedroute.evaluate", "fedroute.report", "fedroute.cli"],
    "fedroute.training": ["fedroute.cli"],
}


def imports(path: Path) -> set[str]:
    """The fedroute modules that a file imports, also inside functions; what only the type checker reads aside."""
    found, todo = set[str](), list[ast.AST]([ast.parse(path.read_text(encoding="utf-8"))])
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return {m for m in found if m in MODULES} - {"fedroute"}


DIRECT = {name: imports(path) for name, path in MODULES.items() if name != "fedroute"}


def reach(name: str) -> set[str]:
    seen, todo = set[str](), [name]
    while todo:
        for m in DIRECT.get(todo.pop(), set()) - seen:
            seen.add(m)
            todo.append(m)
    return seen


@pytest.mark.parametrize("room", FORBIDDEN)
def test_imports_point_one_way(room: str) -> None:
    inside = [m for m in DIRECT if m == room or m.startswith(room + ".")]
    assert inside
    for m in inside:
        for bad in FORBIDDEN[room]:
            hits = {r for r in reach(m) if (r + ".").startswith(bad.rstrip(".") + ".")}
            assert not hits, f"{m} reaches {sorted(hits)}"


def test_no_module_imports_itself_through_others() -> None:
    assert not [m for m in DIRECT if m in reach(m)]


def test_importing_fedroute_is_cheap() -> None:
    heavy = "('torch', 'numpy', 'sklearn', 'pyarrow', 'pydantic', 'jinja2')"
    code = f"import sys, fedroute; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_command_line_is_cheap_to_import() -> None:
    heavy = "('torch', 'numpy', 'sklearn', 'pyarrow', 'pydantic', 'jinja2')"
    code = f"import sys, fedroute.cli; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    import fedroute

    assert fedroute.__all__ == sorted(fedroute.__all__)
    for name in fedroute.__all__:
        assert getattr(fedroute, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        fedroute.nonsense  # noqa: B018


def test_files_say_what_lives_in_them() -> None:
    vague = {"utils.py", "helpers.py", "misc.py", "common.py"}
    root = SRC.parent
    assert not [p for d in ("src", "tests", "benchmarks") for p in (root / d).rglob("*.py") if p.name in vague]
