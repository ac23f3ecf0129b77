"""Tables of every layout for engines that let a server plan: types, partitions, deletes, changed schemas, snapshots.

Each engine names a table by its template, such as ``{types}`` or ``{evolved_first}``; see ``Names``.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession
from skipstone_core.contract.requests import CatalogRef, CatalogType, IndexRef

from tests.spark.index_bed import Lake, index_on
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.secondengine import second_spark

FILES, ROWS = 6, 40
DAY = date(2024, 1, 1)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
UUIDS = [uuid.UUID(int=random.Random(number).getrandbits(128)) for number in range(FILES * ROWS + ROWS)]
WORDS = ("apple", "Apple", "äpfel", "a'b", 'say "x"', "ünïcode 🎈", "", " lead", "zz\\n", "null", "b", "%like_")
DOUBLES = (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e300, 5e-324, 36.0)
TYPES = pa.schema(
    [
        *(pa.field("k", pa.int64()), pa.field("i", pa.int32()), pa.field("s", pa.string()), pa.field("o", pa.bool_())),
        *(pa.field("f", pa.float32()), pa.field("d", pa.float64()), pa.field("m", pa.decimal128(9, 2))),
        *(pa.field("w", pa.decimal128(30, 5)), pa.field("b", pa.binary()), pa.field("x", pa.binary(4))),
        *(pa.field("dt", pa.date32()), pa.field("ts", pa.timestamp("us", "UTC")), pa.field("tn", pa.timestamp("us"))),
        pa.field("p", pa.struct([pa.field("a", pa.int32()), pa.field("t", pa.string()), pa.field("z", pa.float64())])),
        *(pa.field("l", pa.list_(pa.int32())), pa.field("h", pa.map_(pa.string(), pa.int32()))),
        *(pa.field("u", pa.uuid()), pa.field("Name With.Dot", pa.int32()), pa.field("MiXed", pa.int32())),
    ]
)
#: Which of the rows of ``types`` each file holds: keys are spread, so that no bounds tell where one is.
ORDER = random.Random(1).sample(range(FILES * ROWS), FILES * ROWS)
PARTS = pa.schema(
    [
        *(pa.field("k", pa.int64()), pa.field("g", pa.int32()), pa.field("s", pa.string())),
        *(pa.field("ts", pa.timestamp("us", "UTC")), pa.field("dt", pa.date32()), pa.field("v", pa.decimal128(9, 2))),
    ]
)
KEYS = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string()), pa.field("n", pa.int32())])
INDEXES: dict[str, tuple[IndexRef, ...]] = {
    "types": tuple(
        index_on(*names, name=f"by_{names[0]}")
        for names in (("k",), ("s",), ("d",), ("m",), ("dt",), ("ts",), ("u",), ("i", "s"))
    ),
    "parts": (index_on("k", name="by_k"), index_on("s", name="by_s")),
    "dels": (index_on("k", name="by_k"),),
    "equal": (index_on("k", name="by_k"),),
    "vectors": (index_on("k", name="by_k"),),
    "evolved": (index_on("k", name="by_k"),),
    "changed": (index_on("k", name="by_k"),),
    "zeros": (index_on("k", name="by_k"),),
    "floats": (index_on("k", name="by_k"), index_on("d", name="by_d")),
}


def value_of(n: int, *, every: int, value: Any) -> Any:
    """``value``, and null for each row of so many."""
    return None if n % every == every - 1 else value


def types_rows(numbers: list[int]) -> pa.Table:
    """Rows of the table of all types."""
    columns: list[Any] = [
        [value_of(n, every=60, value=n) for n in numbers],
        [value_of(n, every=7, value=n // 10 - 5) for n in numbers],
        [value_of(n, every=11, value=WORDS[n % len(WORDS)] + (str(n % 30) if n % 3 else "")) for n in numbers],
        [value_of(n, every=5, value=n % 2 == 0) for n in numbers],
        [value_of(n, every=13, value=DOUBLES[n % len(DOUBLES)]) for n in numbers],
        [value_of(n, every=9, value=DOUBLES[n % 10] if n % 4 == 0 else n / 4) for n in numbers],
        [value_of(n, every=8, value=Decimal(n - 100).scaleb(-2)) for n in numbers],
        [value_of(n, every=8, value=Decimal(n - 100).scaleb(15) + Decimal("0.00001")) for n in numbers],
        [value_of(n, every=9, value=bytes([n % 256, 255 - n % 256])) for n in numbers],
        [(n * 65537 % 2**32).to_bytes(4, "big") for n in numbers],
        [value_of(n, every=10, value=DAY + timedelta(days=n - 120)) for n in numbers],
        [value_of(n, every=10, value=NOON + timedelta(minutes=37 * n, microseconds=n)) for n in numbers],
        [(NOON + timedelta(hours=n)).replace(tzinfo=None) for n in numbers],
        [
            value_of(n, every=6, value={"a": value_of(n, every=4, value=n), "t": f"t{n % 9}", "z": n / 2})
            for n in numbers
        ],
        [[n, n + 1] for n in numbers],
        [[(f"k{n % 3}", n)] for n in numbers],
    ]
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUIDS[n].bytes for n in numbers], pa.binary(16)))
    columns += [uuids, [n % 17 for n in numbers], [n % 19 for n in numbers]]
    return pa.table(columns, schema=TYPES)


def parts_rows(numbers: list[int]) -> pa.Table:
    """Rows of the partitioned table."""
    columns: list[Any] = [
        numbers,
        [value_of(n, every=5, value=n % 4) for n in numbers],
        [value_of(n, every=9, value=f"{'xyz'[n % 3]}{n % 5}-{n}") for n in numbers],
        [datetime(1969, 12, 30, tzinfo=UTC) + timedelta(hours=n) for n in numbers],
        [date(1969, 12, 28) + timedelta(days=n // 8) for n in numbers],
        [Decimal(n).scaleb(-2) for n in numbers],
    ]
    return pa.table(columns, schema=PARTS)


def keys_rows(numbers: list[int]) -> pa.Table:
    """Rows of the tables with deletes."""
    return pa.table([numbers, [f"s{n % 10}" for n in numbers], [n % 7 for n in numbers]], schema=KEYS)


@dataclass
class PlanningLake:
    """The tables, in an Sql catalog on SQLite. ``at``: snapshots by name."""

    spark: SparkSession
    root: Path
    kind: CatalogRef = CatalogRef(type=CatalogType.SQL)  # noqa: RUF009 - it is frozen
    lake: Lake = field(init=False)
    at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make all tables."""
        self.lake = Lake(self.root, kind=self.kind)
        self.session = second_spark(self.spark, self.lake.warehouse)
        self._types()
        self._parts()
        self._deletes()
        self._evolved()
        self._floats()
        self.lake.create(KEYS, "empty")

    def index(self, *, max_segments: int | None = None) -> None:
        """Build or follow all indexes."""
        for name, indexes in INDEXES.items():
            for one in indexes:
                self.lake.reindex(one, max_segments=max_segments, name=name)

    def append(self) -> None:
        """Another file of rows for two tables, which no index has yet."""
        self.lake.table("types").append(types_rows(list(range(FILES * ROWS, FILES * ROWS + ROWS))))
        self.lake.table("dels").append(keys_rows(list(range(100, 140))))

    def damage_indexes(self) -> None:
        """Overwrite every data file of the indexes of those tables."""
        for name in ("types", "dels"):
            for one in INDEXES[name]:
                for task in self.lake.index_table(one, name).table.scan().plan_files():
                    Path(task.file.file_path.removeprefix("file://")).write_bytes(b"damaged" * 50)

    def drop_indexes(self) -> None:
        """Drop the indexes of those tables, as any engine could."""
        for name in ("types", "dels"):
            for one in INDEXES[name]:
                self.lake.catalog.drop_table(self.lake.index_table(one, name).identifier)

    def _types(self) -> None:
        table = self.lake.create(TYPES, "types")
        for number in range(FILES):
            rows = types_rows(ORDER[number * ROWS : (number + 1) * ROWS])
            if number % 3 < 2:
                table.append(rows)
            else:
                self._written_by_spark(rows, "types")

    def _written_by_spark(self, rows: pa.Table, name: str) -> None:
        plain = rows.set_column(rows.schema.get_field_index("u"), "u", [[str(one) for one in rows["u"].to_pylist()]])
        frame = self.session.createDataFrame(plain).coalesce(1)
        frame.createOrReplaceTempView("written")
        columns = ", ".join(f"`{name}`" for name in rows.column_names)
        self.session.sql(f"insert into skipstone.ns.{name} select {columns} from written")

    def _parts(self) -> None:
        """Three partition specs, one after the other."""
        table = self.lake.create(PARTS, "parts")
        with table.update_spec() as spec:
            spec.add_field("g", IdentityTransform(), "g")
        table.append(parts_rows(list(range(0, 100, 2))))
        with table.update_spec() as spec:
            spec.add_field("s", TruncateTransform(2), "s_start")
            spec.add_field("ts", DayTransform(), "ts_day")
        table.append(parts_rows(list(range(1, 40, 2))))
        with table.update_spec() as spec:
            spec.remove_field("g")
            spec.remove_field("s_start")
            spec.remove_field("ts_day")
            spec.add_field("k", BucketTransform(4), "k_bucket")
            spec.add_field("dt", IdentityTransform(), "dt")
        table.append(parts_rows(list(range(41, 60, 2))))

    def _deletes(self) -> None:
        for name, version in (("dels", 2), ("equal", 2), ("vectors", 3)):
            self.session.sql(
                f"create table skipstone.ns.{name} (k bigint, s string, n int) using iceberg tblproperties "
                f"('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
            )
            for first in range(4):
                self.session.createDataFrame(keys_rows(list(range(first, 120, 4)))).coalesce(1).writeTo(
                    f"skipstone.ns.{name}"
                ).append()
        self.session.sql("delete from skipstone.ns.dels where k % 7 = 0")
        self.session.sql("delete from skipstone.ns.vectors where k % 7 = 0 or k = 9")
        table = self.lake.table("dels")
        add_position_delete(table, next(iter(table.scan().plan_files())).file, [1, 3])
        add_equality_delete(self.lake.table("equal"), {"s": ["s3", "s4"]})
        add_equality_delete(self.lake.table("equal"), {"k": [0, 5], "n": [0, 5]})

    def _evolved(self) -> None:
        """Columns renamed, dropped, added again and widened; a tag, a branch, an old snapshot."""
        for name in ("evolved", "changed"):
            schema = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("g", pa.int32())])
            table = self.lake.create(schema, name)
            if name == "changed":
                with table.update_spec() as spec:
                    spec.add_field("g", IdentityTransform(), "g")
            old = [(n, n * 2, f"b{n % 5}", n % 3) for n in range(60)]
            for part in (old[::2], old[1::2]):
                table.append(pa.Table.from_pylist([dict(zip("kabg", row, strict=True)) for row in part], schema=schema))
            self.at[f"{name}_first"] = table.metadata.current_snapshot_id or 0
            table.manage_snapshots().create_tag(self.at[f"{name}_first"], "before").commit()
            self._change(name)

    def _change(self, name: str) -> None:
        table = self.lake.table(name)
        with table.update_schema() as update:
            update.rename_column("a", "a2")
            update.delete_column("b")
            update.rename_column("g", "h")
        with table.update_schema() as update:
            update.add_column("b", LongType())
            update.update_column("a2", LongType())
            update.add_column("a", StringType())
        rows = [{"k": n, "a2": 2**40 + n, "h": n % 3, "b": n, "a": f"a{n % 4}"} for n in range(60, 90)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "side").commit()
        table.append(pa.Table.from_pylist(rows[:3], schema=table.schema().as_arrow()), branch="side")

    def _floats(self) -> None:
        schema = pa.schema([("k", pa.int64()), ("d", pa.float64())])
        table = self.lake.create(schema, "floats")
        for first, values in enumerate(([1.0, math.nan], [-0.0, -0.0], [0.0, 0.0], [9.0, -3.0], [math.inf, None])):
            keys = [first * 2, first * 2 + 1] * 50
            table.append(pa.table({"k": keys, "d": values * 50}, schema=schema))
        self.session.sql("create table skipstone.ns.zeros (k bigint, d double) using iceberg partitioned by (d)")
        numbers = ("1.0", "-0.0", "0.0", "Infinity", "-Infinity", "-3.0")
        rows = ", ".join(f"({number}, cast('{text}' as double))" for number, text in enumerate(numbers))
        self.session.sql(f"insert into skipstone.ns.zeros values {rows}, (6, null)")


@dataclass(frozen=True)
class Names(Mapping[str, str]):
    """How an engine names the tables: ``prefix`` of the catalog, snapshots by their ids."""

    prefix: str
    at: Mapping[str, int]

    def __getitem__(self, name: str) -> str:
        """The table; ``X_first`` and ``X_before`` are its first state by snapshot and tag, ``X_side`` its branch."""
        table, _, state = name.partition("_")
        match state:
            case "first":
                return f"{self.prefix}{table} version as of {self.at[name]}"
            case "before":
                return f"{self.prefix}{table} version as of 'before'"
            case "side":
                return f"{self.prefix}{table} version as of 'side'"
            case _:
                return f"{self.prefix}{table}"

    def __iter__(self) -> Any:
        """All names."""
        return iter(
            (
                *INDEXES,
                "empty",
                *(f"{one}_{state}" for one in ("evolved", "changed") for state in ("first", "before", "side")),
            )
        )

    def __len__(self) -> int:
        """How many."""
        return len(list(iter(self)))
