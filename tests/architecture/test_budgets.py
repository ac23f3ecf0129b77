"""Size budgets: small functions and modules are what keeps the rooms readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "core": ROOT / "core" / "skipstone_core",
    "operator": ROOT / "operator" / "skipstone_operator",
    "report": ROOT / "report" / "skipstone_report",
    "data plane": ROOT / "spark_apps" / "skipstone",
    "command line": ROOT / "cli" / "skipstone_cli",
    "local": ROOT / "local" / "skipstone_local",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(package: Path) -> list[Path]:
    paths = sorted(package.rglob("*.py"))
    assert paths, f"no modules in {package}: the budget would be kept by nothing"
    return paths


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of body lines (docstring not counted) of every function in ``path``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield f"{path.relative_to(ROOT)}:{node.name}", body_lines(node)


def body_lines(node: Function) -> int:
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or 0) - first.lineno + 1


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES.keys())
def test_functions_stay_small(package: Path) -> None:
    lengths = sorted(length for path in modules(package) for _, length in functions(path))
    assert lengths[int(len(lengths) * 0.9)] <= 25


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES.keys())
def test_no_function_is_over_fifty_lines(package: Path) -> None:
    over = [(name, length) for path in modules(package) for name, length in functions(path) if length > 50]
    assert over == []


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES.keys())
def test_no_module_is_over_five_hundred_lines(package: Path) -> None:
    over = [
        (str(path.relative_to(ROOT)), n) for path in modules(package) if (n := len(path.read_text().splitlines())) > 500
    ]
    assert over == []


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES.keys())
def test_every_module_says_which_room_it_is(package: Path) -> None:
    silent = [
        str(path.relative_to(ROOT)) for path in modules(package) if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_spark_applications_are_thin() -> None:
    apps = sorted((ROOT / "spark_apps" / "skipstone" / "apps").glob("[!_]*.py"))
    assert apps
    assert [(app.name, n) for app in apps if (n := len(app.read_text().splitlines())) >= 40] == []


def test_operator_folder_never_shadows_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "tests" / "operator").exists()
    assert [
        str(path) for path in ROOT.glob("*/**/operator.py") if ".venv" not in path.parts and ".cache" not in path.parts
    ] == []
