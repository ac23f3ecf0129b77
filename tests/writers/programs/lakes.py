"""A catalog of PyIceberg's for writers that are libraries above it. Run in their environments."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "txt", StringType(), required=False),
    NestedField(3, "cat", StringType(), required=False),
    NestedField(4, "amount", DecimalType(9, 2), required=False),
    NestedField(5, "price", DoubleType(), required=False),
    NestedField(6, "day", DateType(), required=False),
    NestedField(7, "ts", TimestampType(), required=False),
    NestedField(8, "flag", BooleanType(), required=False),
    NestedField(9, "n", IntegerType(), required=False),
)


class PyLake:
    """A catalog in SQLite below ``root``."""

    def __init__(self, root: str) -> None:
        """Make it, with the namespace ``ns``."""
        self.catalog = SqlCatalog("writer", uri=f"sqlite:///{root}/writer.db", warehouse=f"file://{root}")
        self.catalog.create_namespace_if_not_exists("ns")

    def create(self, name: str, field: int = 0, transform: Transform | None = None, version: int = 2) -> Table:
        """A table partitioned by ``transform`` of the field ``field``, if any."""
        by = [PartitionField(field, 1000, transform, "part")] if transform is not None else []
        properties = {"format-version": str(version)}
        return self.catalog.create_table(f"ns.{name}", SCHEMA, partition_spec=PartitionSpec(*by), properties=properties)

    def table(self, name: str) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(f"ns.{name}")

    def located(self, name: str, count: int) -> dict[str, object]:
        """Where the metadata is."""
        return {"metadata": self.table(name).metadata_location.removeprefix("file://"), "rows": count}

    def evolve(self, name: str) -> None:
        """A column is added, another renamed, a third dropped and a fourth widened."""
        with self.table(name).update_schema() as change:
            change.add_column("extra", StringType())
            change.rename_column("cat", "category")
            change.delete_column("flag")
            change.update_column("n", field_type=LongType())


def folder(root: str, name: str) -> str:
    """Where a table without a catalog is."""
    return str(Path(root) / name)
