"""Private names of other people's packages are used in ``skipstone.compat`` only.

A rule of two parts: nobody reaches into an object from outside, and no subclass of a foreign class uses a private name
that the foreign class has.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from skipstone.compat import catalyst

ROOT = Path(__file__).parents[2]
SOURCES = {
    "skipstone_core": ROOT / "core",
    "skipstone_operator": ROOT / "operator",
    "skipstone": ROOT / "spark_apps",
    "skipstone_cli": ROOT / "cli",
    "skipstone_local": ROOT / "local",
}
OURS = tuple(SOURCES)
#: The beginning of the name of a class in the JVM.
JVM_NAME = re.compile(r"(org\.apache\.(spark|iceberg)|scala|java)\.[a-z]")
#: Private, but documented for users: os._exit, and what enum, namedtuple and abc give.
DOCUMENTED = {"_exit", "_value_", "_replace", "_abc_impl"}


def modules() -> list[str]:
    names = [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for package, folder in SOURCES.items()
        for path in sorted((folder / package).rglob("*.py"))
    ]
    assert len(names) > 100
    return [name for name in names if not name.startswith("skipstone.compat")]


def source_of(module: str) -> ast.Module:
    folder = SOURCES[module.split(".")[0]]
    path = folder / Path(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def reached_into(tree: ast.Module) -> Iterator[str]:
    """Private names that the module takes from objects other than its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield f"{ast.unparse(node)} in line {node.lineno}"
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith(OURS):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if any(is_private(part) for part in name.split(".")))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (name for name in names if any(is_private(part) for part in name.split(".")))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield f"{ast.unparse(node.args[0])}.{name.value}"


def inherited(kind: type) -> set[str]:
    """The private names that ``kind`` uses or defines and that its foreign base classes have."""
    foreign = [base for base in kind.__mro__ if base.__module__.split(".")[0] in ("pyiceberg", "pyspark", "kubernetes")]
    known = {name for base in foreign for name in (*vars(base), *getattr(base, "__annotations__", {}))}
    for base in foreign:
        known |= attributes(base.__module__, base.__name__)
    return {name for name in known if is_private(name)} & ({*vars(kind)} | attributes(kind.__module__, kind.__name__))


@cache
def classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by name."""
    path = Path(str(importlib.import_module(module).__file__))
    tree = ast.parse(path.read_text()) if path.suffix == ".py" else ast.Module([], [])
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def attributes(module: str, name: str) -> set[str]:
    """The names of ``self`` that the source of a class uses."""
    return {
        node.attr
        for node in (ast.walk(classes(module)[name]) if name in classes(module) else ())
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def named_in_the_jvm(tree: ast.Module) -> Iterator[str]:
    """Texts that name a class of Spark's, Iceberg's, Scala's or Java's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and JVM_NAME.match(node.value):
            yield node.value


def clients(tree: ast.Module) -> Iterator[str]:
    """Modules of the Kubernetes client that the module imports."""
    for node in ast.walk(tree):
        aliases = node.names if isinstance(node, ast.Import) else ()
        names = [str(node.module)] if isinstance(node, ast.ImportFrom) else [alias.name for alias in aliases]
        yield from (name for name in names if name.split(".")[0] == "kubernetes")


def own_names(tree: ast.Module) -> set[str]:
    """What the module defines or sets itself."""
    return {
        node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    }


def test_no_module_reaches_into_objects() -> None:
    trees = {module: source_of(module) for module in modules()}
    reached = {
        module: [name for name in reached_into(tree) if name.split(" in ")[0].split(".")[-1] not in own_names(tree)]
        for module, tree in trees.items()
    }
    assert {module: names for module, names in reached.items() if names} == {}


def test_no_subclass_uses_private_names_of_a_foreign_class() -> None:
    kinds = {
        kind
        for name in modules()
        if not name.endswith("__main__")
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and kind.__module__ == name
    }
    assert len(kinds) > 300
    assert {kind.__qualname__: inherited(kind) for kind in kinds if inherited(kind)} == {}


def test_no_module_names_a_class_in_the_jvm() -> None:
    """They are declared with their methods, and looked up by ``tests/spark/test_foreign_names.py``."""
    named = {module: [*named_in_the_jvm(source_of(module))] for module in modules()}
    assert {module: names for module, names in named.items() if names} == {}


def test_every_node_of_a_plan_that_is_looked_for_is_listed() -> None:
    """The list is looked up in a real JVM too."""
    plans = [
        module
        for module in modules()
        if module.startswith("skipstone.query.plans.") and not module.endswith(".refusals")
    ]
    texts = {
        node.value
        for module in plans
        for node in ast.walk(source_of(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    listed = {name for names in catalyst.NODES.values() for name in names} | {*catalyst.JOIN_TYPES}
    assert {text for text in texts if re.fullmatch(r"([A-Z][a-z]*)+(V2[A-Za-z]+)?", text)} == listed


def test_one_module_of_the_operator_and_one_room_of_the_command_line_use_the_kubernetes_client() -> None:
    users = {module for module in modules() if [*clients(source_of(module))]}
    assert users == {
        "skipstone_operator.adapters.connection",
        "skipstone_cli.cluster.kubeconfig",
        "skipstone_cli.cluster.transport",
    }


def test_the_rule_sees_what_it_forbids() -> None:
    named = ast.parse("java_class(jvm, 'org.apache.spark.sql.classic.Dataset')\nx = f'scala.collection.{y}'\n'spark.x'")
    assert [*named_in_the_jvm(named)] == ["org.apache.spark.sql.classic.Dataset", "scala.collection."]
    assert [*clients(ast.parse("import kubernetes.aio\nfrom kubernetes import client"))] == [
        "kubernetes.aio",
        "kubernetes",
    ]
    tree = ast.parse(
        "from pyiceberg.manifest import _inherit_from_manifest\nspark._jvm\nself._own\ngetattr(spark, '_jvm')\n"
        "from typer._click.core import Command\nimport typer._click"
    )
    expected = ["pyiceberg.manifest._inherit_from_manifest", "spark._jvm", "spark._jvm in line 2"]
    expected += ["typer._click", "typer._click.core.Command"]
    assert sorted(reached_into(tree)) == expected
