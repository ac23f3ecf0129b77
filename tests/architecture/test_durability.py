"""Files of tables are written through one FileIO, which makes them durable: nobody opens another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "spark_apps" / "skipstone"
#: Who makes a FileIO.
FILE_IOS = {"load_file_io", "PyArrowFileIO", "FsspecFileIO"}
MAY_MAKE_FILE_IO = {"compat/pyiceberg.py", "tables/storage.py"}
#: Who opens files for writing without one, and what these are.
WRITES = {"write_text", "write_bytes", "OSFile", "open_output_stream", "NamedTemporaryFile", "fdopen", "pq.write_table"}
MAY_WRITE = {
    "storage/durable.py": "records of runs and of consumed files, durable",
    "tables/storage.py": "the FileIO itself",
    "tables/decoding/decodes.py": "a cache of this machine",
    "tables/answers/locks.py": "who holds the lock of a catalog, while it does",
    "runs/reporting/sinks.py": "the report of this pod",
    "sources/rejects.py": "rows that were rejected, durable",
    "indexes/building/spilling.py": "sorted buffers of one task, gone with it",
    "indexes/stores/hbase/connections.py": "a certificate of this client for OpenSSL, gone at once",
    "keeping/processes.py": "the request of one run, gone with it",
    "kernels/ordering.py": "sorted runs of one task, gone with it",
    "kernels/changes.py": "the source of one run, gone with it",
    "runs/tablesources/staging.py": "rows of a source table for one run, gone with it",
    "runs/merging/source.py": "the source of one run, gone with it",
}


def modules() -> Iterator[tuple[str, set[str]]]:
    """The modules of the data plane with the names that they use."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {"pq.write_table"} if "pq.write_table" in path.read_text() else set()
        names |= {mode for node in ast.walk(tree) for mode in _opened_to_write(node)}
        yield str(path.relative_to(PACKAGE)), names


def _opened_to_write(node: ast.AST) -> Iterator[str]:
    """``open`` with a mode for writing, in any spelling."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "open":
        modes = [
            value.value for value in (*node.args, *(keyword.value for keyword in node.keywords)) if _is_text(value)
        ]
        if any(mode[0] in "wax" and set(mode) <= set("waxbt+") for mode in modes if mode):
            yield "open to write"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_one_module_makes_the_file_io_of_tables() -> None:
    assert {name for name, used in modules() if used & FILE_IOS} == MAY_MAKE_FILE_IO


def test_files_are_written_through_it() -> None:
    writers = {name for name, used in modules() if used & (WRITES | {"open to write"})}
    assert writers <= MAY_WRITE.keys()
