"""Rows of Parquet files are read by one module, which counts them: Arrow passes by pages with a damaged header."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "spark_apps" / "skipstone"
READER = "tables/parquetfiles.py"
#: Names of pyarrow.parquet and pyarrow.dataset that lead to rows. ``read_metadata`` leads to footers.
WAYS = {"ParquetFile", "read_table", "read_pandas", "ParquetDataset", "FileDecryptionProperties"}
SCANS = {"scanner", "Scanner", "dataset", "FileSystemDataset", "to_arrow", "to_arrow_batch_reader", "read_parquet"}
LIBRARIES = {"pyarrow.parquet", "pyarrow.dataset"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def aliases(tree: ast.Module) -> set[str]:
    """What a module calls the libraries."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {alias.asname or alias.name for node in imports for alias in node.names if alias.name in LIBRARIES}


def ways_to_rows(tree: ast.Module) -> set[str]:
    """The names in ``tree`` by which rows can be read."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    ours = aliases(tree)
    ways = {node.attr for node in attributes if node.attr in WAYS and ast.unparse(node.value) in ours}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in LIBRARIES]
    ways |= {alias.name for node in imports for alias in node.names}
    return ways | {node.attr for node in attributes if node.attr in SCANS and aliases(tree)}


def test_one_module_reads_rows_of_parquet_files() -> None:
    readers = {name: ways for name, tree in modules() if (ways := ways_to_rows(tree))}
    assert readers.keys() == {READER}, readers
