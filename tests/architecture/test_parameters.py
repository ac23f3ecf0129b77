"""What functions take has names: no tuple of different things is packed by the caller and unpacked by the function."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "core" / "skipstone_core",
    ROOT / "operator" / "skipstone_operator",
    ROOT / "report" / "skipstone_report",
    ROOT / "spark_apps" / "skipstone",
    ROOT / "cli" / "skipstone_cli",
    ROOT / "local" / "skipstone_local",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fixed_tuple(annotation: ast.expr | None) -> list[str]:
    """The types in ``tuple[A, B]`` or ``tuple[A, B] | None``; none for every other annotation."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return fixed_tuple(annotation.left) or fixed_tuple(annotation.right)
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "tuple":
        return []
    types = [ast.unparse(element) for element in getattr(annotation.slice, "elts", [])]
    return [] if "..." in types else types


def packed_items(annotation: ast.expr, aliases: Container[str]) -> bool:
    """Whether tuples of different types are somewhere in the annotation, such as in ``Sequence[tuple[A, B]]``."""
    nodes = list(ast.walk(annotation))
    named = any(isinstance(node, ast.Name) and node.id in aliases for node in nodes)
    return named or any(len(set(fixed_tuple(node))) > 1 for node in nodes if isinstance(node, ast.Subscript))


def tuple_aliases(tree: ast.Module) -> set[str]:
    """Names of the module for tuples of different types."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign) and len(set(fixed_tuple(node.value))) > 1)
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def unpacked(function: Function) -> set[str]:
    """The names that the function takes apart by assignment."""
    names: set[str] = set()
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            names |= {of.id for into, of in pairs if isinstance(into, ast.Tuple) and isinstance(of, ast.Name)}
    return names


def packed_parameters(tree: ast.Module, aliases: Container[str] = ()) -> Iterator[str]:
    """Parameters that are or hold tuples of different types, or are tuples that the function unpacks."""
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        taken = unpacked(function)
        for parameter in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            types = fixed_tuple(parameter.annotation)
            packed = parameter.annotation is not None and packed_items(parameter.annotation, aliases)
            if packed or (types and parameter.arg in taken):
                yield f"{function.name}({parameter.arg})"


def test_parameters_are_not_packed_into_tuples() -> None:
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    modules = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}
    aliases = {name for tree in modules.values() for name in tuple_aliases(tree)}
    offenders = {path: list(packed_parameters(tree, aliases)) for path, tree in modules.items()}
    assert {path: names for path, names in offenders.items() if names} == {}


def test_the_rule_sees_what_it_forbids() -> None:
    text = """
def mixed(a: tuple[int, str] | None): ...
def apart(a: tuple[int, int], b: tuple[str, str]):
    (x, y), z = a, b
def fine(a: tuple[int, ...], b: tuple[str, str]):
    x, y = pair()
def items(a: Sequence[tuple[int, str]], b: Mapping[str, tuple[int, ...]]): ...
Pair = tuple[int, str]
def named(a: Pair | None, b: str): ...
"""
    tree = ast.parse(text)
    assert list(packed_parameters(tree, tuple_aliases(tree))) == ["mixed(a)", "apart(a)", "items(a)", "named(a)"]
