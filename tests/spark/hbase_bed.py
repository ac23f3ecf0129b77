"""A lake whose index is in HBase, merges and lookups of it, and the same without an index to compare with.

Used by the tests of the store only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType
from skipstone.indexes.coverage import read_covers, see_index
from skipstone.indexes.stores.hbase.generations import Held, held_generations
from skipstone.indexes.tables import IndexTable, find_index, index_identifier
from skipstone.query import read
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import IndexState, JobReport
from skipstone_core.contract.requests import IndexRef, JobRequest, ReindexTask, RunKind
from skipstone_core.contract.stores import HBaseRef

from tests.spark.index_bed import index_on
from tests.spark.index_bed import query as duck_query
from tests.spark.index_bed import rows_of as sorted_rows
from tests.spark.merge_bed import MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "cents", DecimalType(9, 2)),
    NestedField(4, "v", LongType()),
)
#: Rows of a file. Keys of all files are mixed, so that bounds exclude none.
ROWS = 60


@dataclass
class HBaseBed:
    """One table with an index of some ``columns`` in ``store``."""

    root: Path
    store: HBaseRef
    columns: tuple[str, ...] = ("id",)
    bed: MergeBed = field(init=False)
    files: int = 0
    runs: int = 0

    def __post_init__(self) -> None:
        """Make the table."""
        self.bed = MergeBed(self.root)
        self.bed.create(SCHEMA)

    @property
    def index(self) -> IndexRef:
        """The index as requests carry it."""
        return replace(index_on(*self.columns), store=self.store)

    def add(self, count: int = 1) -> None:
        """Append files in a segment each; keys of all files lie between one another."""
        for _ in range(count):
            number, self.files = self.files, self.files + 1
            rows = [
                {
                    "id": 1000 * place + number if place else None,
                    "name": f"n{1000 * place + number}",
                    "cents": Decimal(100 * place + number) / 100,
                    "v": number,
                }
                for place in range(ROWS)
            ]
            self.bed.append(rows)

    def reindex(self, ports: CommitPorts | None = None, rebuild: str = "") -> JobReport:
        """A whole reindex run."""
        self.runs += 1
        request = JobRequest(
            kind=RunKind.REINDEX,
            run_id=f"22222222-{self.runs:08d}-1",
            attempt=1,
            warehouse=self.bed.warehouse,
            owner_kind="SecondaryIndex",
            owner_name=self.index.name,
            owner_uid=self.index.uid,
            table=self.bed.ref,
            indexes=(self.index,),
            reindex=ReindexTask(index=self.index, rebuild=rebuild),
        )
        return run_reindex(request, Reporter(request), ports)

    @property
    def table(self) -> IndexTable:
        """The index table, which must be there."""
        identifier = index_identifier(self.bed.warehouse, self.bed.ref, self.index)
        uuid = str(self.bed.table().metadata.table_uuid)
        opened = find_index(self.bed.catalog, identifier, table_uuid=uuid)
        assert opened is not None
        return opened

    @property
    def held(self) -> tuple[Held, ...]:
        """The generations that cover rows name."""
        return held_generations(read_covers(self.table))

    @property
    def state(self) -> IndexState:
        """The state of the index at the table's head."""
        files = read_file_set(self.bed.table())
        return see_index(self.bed.catalog, self.bed.warehouse, self.bed.ref, files, self.index).state

    def looked_up(self, condition: str) -> pa.Table:
        """The rows of a read through the index, which are those of a scan of all rows."""
        rows = read(self.bed.table(), None, condition)
        expected = duck_query(f"select * from rows where {condition}", self.bed.table().scan().to_arrow())
        assert sorted_rows(rows) == sorted_rows(expected), condition
        return rows

    def merged(self, keys: Sequence[dict[str, object]], on: Sequence[str] = ("id",)) -> str:
        """Merge changes of some keys; the row of each is as it must be. Returns what the funnel says of the index."""
        before = self.bed.table().scan().to_arrow().to_pylist()
        self.runs += 1
        schema = pa.schema([(field.name, field.type) for field in self.bed.table().schema().as_arrow()])
        changes = pa.Table.from_pylist([{"v": -self.runs, **key} for key in keys], schema).to_pylist()
        path = self.bed.source(pa.Table.from_pylist(changes, schema), f"changes{self.runs}")
        report = self.bed.merge(task_of(path, on))
        keyed = [tuple(row[name] for name in on) for row in changes]
        expected = [row for row in before if tuple(row[name] for name in on) not in keyed] + changes
        after = self.bed.table().scan().to_arrow().to_pylist()
        assert sorted(map(repr, after)) == sorted(map(repr, expected))
        return next(stage.message for stage in report.funnel if stage.name == "KeyIndex")
