"""The Spark data source ``skipstone``: reads through the indexes without touching Spark's plans.

It takes no filters from Spark. Spark keeps what a Python source answered to a filter with the DataFrame, not with the
query: every later use of the same DataFrame would read what was left by the last filter of any of them.
Users register it by ``spark.dataSource.register(SkipstoneDataSource)``. Spark makes it in Python workers: of the
driver to describe and plan a read, of the executors to carry it out. Same planner as ``read``.
Must not need a SparkSession: these workers have none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType
from skipstone_core.errors import BadSpec
from skipstone_core.language.predicates import Predicate
from skipstone_core.merging.merges import pack_by_bytes
from skipstone_core.reasons import Reason

from skipstone.files.reader import DataFileDescription, describe_files, read_data_file
from skipstone.query.pinned import PinnedSource, pin_source
from skipstone.query.planner import ReadPlan, plan_read
from skipstone.query.reading import matching_rows
from skipstone.tables.arrow import arrow_schema

logger = logging.getLogger(__name__)

#: A Python task costs Spark about 0.08 s: as long as it takes to read so many bytes.
_TASK_BYTES = 32 * 1024 * 1024


class SkipstoneDataSource(DataSource):
    """Reads one table, ``load("namespace.table")``, as it is at that moment.

    Options: ``catalog`` (a name in PyIceberg's configuration) and ``catalog.<property>`` (properties of it); ``filter``
    (a predicate: what indexes are asked for); ``columns`` (``a, b`` or a JSON list: Spark tells a Python
    source no columns); ``snapshotId``; ``indexNamespace``; ``useIndexes`` (true, false); ``tasks`` (how many).
    Raises BadSpec for an option that is unknown, missing or cannot be read.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._source = pin_source(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "skipstone"

    def schema(self) -> StructType:
        """The chosen columns in Spark's types. Raises BadSpec for a column that is not there or has no such type."""
        schema = self._source.schema(self._source.table())
        return spark_schema(schema, self._source.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``."""
        return _Reader(replace(self._source, columns=tuple(schema.fieldNames())))


def spark_schema(schema: Schema, columns: Sequence[str] | None) -> StructType:
    """``columns`` (None: all) of ``schema`` in Spark's types. Raises BadSpec for those that Spark cannot hold."""
    fields = {field.name: field for field in arrow_schema(schema)}
    for name in columns or ():
        if name not in fields:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"there is no column {name!r}", field="columns")
    return StructType([_spark_field(fields[name]) for name in columns or fields])


def _spark_field(field: pa.Field) -> StructField:
    kind = field.type
    if pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.unit == "ns"):
        message = f"{field.name!r} is {kind}, which this source cannot hand to Spark; leave it out of the columns"
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field="columns")
    return StructField(field.name, from_arrow_type(kind, prefer_timestamp_ntz=True), field.nullable)


@dataclass(frozen=True)
class _Share(InputPartition):
    """The share of one task: files, row groups of some of them (the others are read whole) and the condition."""

    files: tuple[DataFileDescription, ...]
    row_groups: Mapping[int, tuple[int, ...]]
    condition: Predicate | None


class _Reader(DataSourceReader):
    """Reads what the options ask for."""

    def __init__(self, source: PinnedSource) -> None:
        self._source = source

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read, one partition per task, balanced by bytes."""
        source = self._source
        if source.condition is None:
            logger.warning("%s is read whole: conditions reach the indexes by option('filter', …)", source.name)
        table = source.table()
        plan = plan_read(table, source.condition, source.options)
        logger.info("%s: %s", source.name, plan.text())
        described = describe_files(table, plan.files, plan.ordinals)
        sizes = [file.size for file in described]
        bins = pack_by_bytes(sizes, source.tasks or -(-sum(sizes) // _TASK_BYTES) or 1)
        return [_share(plan, [described[index] for index in members]) for members in bins if members]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition on which the condition is true. Spark reads a plan of nothing by ``None``."""
        if not isinstance(partition, _Share):
            return
        names = list(self._source.columns or ())
        tested = sorted(column.name for column in partition.condition.columns) if partition.condition else []
        needed = list(dict.fromkeys([*names, *tested]))
        for file in partition.files:
            for batch in read_data_file(file, needed, partition.row_groups.get(file.file_id)):
                yield matching_rows(batch, partition.condition).select(names)


def _share(plan: ReadPlan, files: Sequence[DataFileDescription]) -> _Share:
    groups = {file.file_id: plan.row_groups[file.file_id] for file in files if file.file_id in plan.row_groups}
    return _Share(tuple(files), groups, plan.predicate)
