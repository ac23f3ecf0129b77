"""What functions take has names: no tuple of different things is packed by the caller and unpacked by the function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "core" / "skipstone_core",
    ROOT / "operator" / "skipstone_operator",
    ROOT / "spark_apps" / "skipstone",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fixed_tuple(annotation: ast.expr | None) -> list[str]:
    """The types in ``tuple[A, B]`` or ``tuple[A, B] | None``; none for every other annotation."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return fixed_tuple(annotation.left) or fixed_tuple(annotation.right)
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "tuple":
        return []
    types = [ast.unparse(one) for one in getattr(annotation.slice, "elts", [])]
    return [] if "..." in types else types


def unpacked(function: Function) -> set[str]:
    """The names that the function takes apart by assignment."""
    found: set[str] = set()
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            found |= {of.id for into, of in pairs if isinstance(into, ast.Tuple) and isinstance(of, ast.Name)}
    return found


def packed_parameters(tree: ast.Module) -> Iterator[str]:
    """Parameters that are tuples of different types, or tuples that the function unpacks."""
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        taken = unpacked(function)
        for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            types = fixed_tuple(one.annotation)
            if len(set(types)) > 1 or (types and one.arg in taken):
                yield f"{function.name}({one.arg})"


def test_parameters_are_not_packed_into_tuples() -> None:
    modules = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): list(packed_parameters(ast.parse(path.read_text()))) for path in modules}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_rule_sees_what_it_forbids() -> None:
    text = """
def mixed(a: tuple[int, str] | None): ...
def apart(a: tuple[int, int], b: tuple[str, str]):
    (x, y), z = a, b
def fine(a: tuple[int, ...], b: tuple[str, str]):
    x, y = pair()
"""
    assert list(packed_parameters(ast.parse(text))) == ["mixed(a)", "apart(a)"]
