"""How queries are planned: rules turn frozen states, one place catches what nobody expects."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLANS = ROOT / "spark_apps" / "skipstone" / "query" / "plans"


def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(PLANS)): ast.parse(path.read_text()) for path in sorted(PLANS.rglob("*.py"))}


def catches_all(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else {"Exception"}
    return bool(names & {"Exception", "BaseException"})


def test_one_place_catches_what_nobody_expects() -> None:
    catching = [module for module, tree in trees().items() for node in ast.walk(tree) if catches_all(node)]
    assert catching == ["fallback.py"]


def written(tree: ast.Module) -> list[str]:
    """Attributes that are set outside of what makes an object."""
    makers = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    made = {id(node) for maker in makers for node in ast.walk(maker)}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in made
    ]


def test_no_attribute_is_written() -> None:
    assert {module: writes for module, tree in trees().items() if (writes := written(tree))} == {}
