"""A name means one thing wherever it can be imported.

The planes and the command line never meet, but all see the core.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "skipstone_core"
PLANES = {
    "operator": (CORE, ROOT / "report" / "skipstone_report", ROOT / "operator" / "skipstone_operator"),
    "data plane": (CORE, ROOT / "spark_apps" / "skipstone"),
    "command line": (CORE, ROOT / "cli" / "skipstone_cli", ROOT / "local" / "skipstone_local"),
}

#: Names that fit any value.
VAGUE = frozenset({"one", "found", "told", "said"})


@pytest.mark.parametrize("plane", PLANES)
def test_no_two_public_classes_share_a_name(plane: str) -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in (path for package in PLANES[plane] for path in sorted(package.rglob("*.py"))):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 100
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def _rooms() -> dict[str, list[Path]]:
    """The modules of each room of each package, and those beside the rooms, by the folder."""
    rooms: defaultdict[str, list[Path]] = defaultdict(list)
    for package in (
        *(package for packages in PLANES.values() for package in packages),
        ROOT / "demo",
        ROOT / "release",
    ):
        for path in package.rglob("*.py"):
            room = package / path.relative_to(package).parts[0]
            rooms[str((room if room.is_dir() else package).relative_to(ROOT))].append(path)
    return dict(rooms)


def _vague(tree: ast.Module) -> set[str]:
    """Names of variables and parameters that say nothing about the value."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}) & VAGUE


@pytest.mark.parametrize("room", sorted(_rooms()))
def test_a_variable_is_named_after_its_value(room: str) -> None:
    modules = {str(path.relative_to(ROOT)): _vague(ast.parse(path.read_text())) for path in _rooms()[room]}
    assert {path: names for path, names in modules.items() if names} == {}


def test_the_rule_sees_vague_names() -> None:
    assert _vague(ast.parse("[one for one in rows]\nfor told in rows:\n    found = told\ndef f(said): ...")) == VAGUE


def _replaced() -> frozenset[str]:
    """The names that the glossary of CONTRIBUTING.md replaces."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| Instead of the name | Use |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)
    return frozenset(name.strip() for row in rows for name in row.split(",") if not name.startswith("-"))


def _names(path: Path) -> frozenset[str]:
    """Modules, functions, classes, variables and parameters that a file makes."""
    names = {path.stem}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
    return frozenset(name.strip("_") for name in names)


def test_code_has_no_name_that_the_glossary_replaces() -> None:
    replaced = _replaced()
    assert {"glance", "Lanes"} <= replaced
    packages = sorted({package for packages in PLANES.values() for package in packages})
    paths = [path for package in packages for path in sorted(package.rglob("*.py"))]
    assert {
        str(path.relative_to(ROOT)): sorted(_names(path) & replaced) for path in paths if _names(path) & replaced
    } == {}
