"""Small steps that table tests share: append rows through our writer and commit, make deletes by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone.files.reader import describe_files, read_data_file
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.tables.arrow import with_lineage
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.contract.requests import TableRef
from skipstone_core.history.commits import Committed

_TASKS = itertools.count()


def ref_of(table: Table) -> TableRef:
    """The reference under which runs know ``table``."""
    namespace, name = table.name()
    return TableRef(namespace=namespace, name=name, uid="11111111-2222-3333-4444-555555555555")


def write_files(table: Table, rows: pa.Table) -> tuple[DataFile, ...]:
    """Data files with ``rows``, not committed."""
    writer = DataFileWriter(write_spec(table, "testrun"), f"{os.getpid()}-{next(_TASKS)}")
    writer.write(rows)
    return tuple(to_data_files((file.to_row() for file in writer.close()), table))


def append(table: Table, rows: pa.Table, **change: Any) -> Table:
    """``table`` with ``rows`` committed as one segment."""
    commit = TableCommit(pinned=pin_table(table), added=write_files(table, rows), **change)
    outcome = commit_table(table.catalog, ref_of(table), commit)
    assert isinstance(outcome, Committed), outcome
    return table.catalog.load_table(table.name())


def read_all(table: Table, columns: Sequence[str] | None = None, *, lineage: bool = False) -> pa.Table:
    """All live rows as our reader gives them. ``lineage``: with the ids of rows and their last changes."""
    files = read_file_set(table)
    if lineage:
        files = files.in_schema(with_lineage(files.schema))
    names = list(columns or [field.name for field in files.schema.fields])
    described = describe_files(table, files, range(len(files)))
    batches = [batch for file in described for batch in read_data_file(file, names)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})
