"""A Warehouse's storage is used through its port, and files of tables by what the loaded table tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_apps" / "skipstone"
#: Who still takes a Warehouse for a directory, and why.
KNOWS_THE_ROOT = {
    "storage/opening.py": "makes a volume of it",
    "tables/catalogs.py": "the SQLite file, and where tables are made",
}

#: How each kind of object storage is reached.
KINDS = PACKAGE / "storage" / "buckets" / "kinds"
#: Who names one besides, and why.
NAMES_A_SCHEME = {
    "core/skipstone_core/contract/places.py": "its places",
    "operator/skipstone_operator/resources/storage.py": "how a Warehouse names them",
    "spark_apps/skipstone/storage/buckets/uploads.py": "uploads by parts, which S3 keeps until somebody aborts them",
    "local/skipstone_local/runner/plane/dataplane.py": "the libraries by which Spark reads it",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The modules of the data plane outside of the port's own implementations."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def test_only_kinds_of_storage_name_their_scheme() -> None:
    scheme = re.compile(r"""["'](?:s3a?|gs)(?:://|["'])""")
    packages = ("core", "operator", "report", "spark_apps", "cli", "local")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py") if KINDS not in path.parents]
    assert len(modules) > 500
    found = {str(path.relative_to(ROOT)) for path in modules if scheme.search(path.read_text())}
    assert found == NAMES_A_SCHEME.keys()


def reads_the_root(tree: ast.Module) -> bool:
    """Whether ``root`` is taken from something called a warehouse."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "root" and "warehouse" in ast.unparse(node.value)
        for node in ast.walk(tree)
    )


def without_properties(tree: ast.Module) -> list[str]:
    """Calls that make a FileIO of no properties: of none, or of an empty dictionary."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if ast.unparse(call.func).endswith(("load_file_io", "FileIO"))]
    return [
        ast.unparse(call)
        for call in named
        if not (call.args or call.keywords)
        or any(isinstance(argument, ast.Dict) and not argument.keys for argument in call.args)
    ]


def test_only_these_take_a_warehouse_for_a_directory() -> None:
    assert {name for name, tree in modules() if reads_the_root(tree)} == KNOWS_THE_ROOT.keys()


def test_no_file_io_is_made_without_properties() -> None:
    assert {name: calls for name, tree in modules() if (calls := without_properties(tree))} == {}


def test_the_rules_see_what_they_forbid() -> None:
    tree = ast.parse("a = Path(request.warehouse.root)\nb = load_file_io({}, place)\nc = DurableFileIO()\n")
    assert reads_the_root(tree)
    assert without_properties(tree) == ["load_file_io({}, place)", "DurableFileIO()"]
