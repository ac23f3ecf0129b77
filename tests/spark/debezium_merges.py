"""Merges of the files of one table as a user makes them: what is refused is tried again the way its sentence says.

Used by the soak of Debezium.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import EqualRows, Infinity, NonFinite
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import ConsumePolicy, SourceSpec
from skipstone_core.errors import BadData, BadSpec

from tests.spark.debezium_settings import Setting, changed, wanted
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.postgres_columns import Column
from tests.spark.postgres_history import Seen, same
from tests.spark.postgres_tables import Key, Shape

MOST_TRIES = 400
#: Refused values of a column after which a user leaves it out.
_ENOUGH = 12
_PLACE = re.compile(r"^(?:spec\.source: )?'(?P<file>[^']+)', line (?P<line>\d+): ")
_COLUMN = re.compile(r"column '(?P<column>[^']+)': ")


class NoWayOut(Exception):
    """A refusal that names nothing to do."""


@dataclass
class Told:
    """What a soak saw: how often each sentence was said, and each known change of a value was there.

    ``refusals``: by event, way out, sentence and setting.
    """

    refusals: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class Series:
    """The merges of the files of ``shape`` that ``setting`` wrote below ``folder``, mark by mark.

    ``tainted``: keys of rows of which a change was left out; ``told``: of the whole soak.
    """

    bed: MergeBed
    setting: Setting
    shape: Shape
    folder: Path
    told: Told
    tainted: set[Key] = field(default_factory=set)
    defaulted: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    is_waiting: bool = False
    has_given_up: bool = False
    source: SourceSpec = field(init=False)

    def __post_init__(self) -> None:
        """Make the table and the first spec, which declares what the guide asks for and nothing else."""
        self.source = SourceSpec(
            format=self.setting.format,
            paths=("feeds/history",),
            change_format=self.setting.change_format,
            time_precision=self.setting.unit,
            consume=ConsumePolicy.NEW,
            consumer="MergeSchedule ns/history",
            unknown_columns=UnknownColumns.REFUSE,
        )
        (self.bed.root / "feeds" / "history").mkdir(parents=True)
        self.bed.create(schema_of(self.shape, self.setting))
        self._refused: Counter[str] = Counter()

    def merge(self, mark: int) -> JobReport | None:
        """Merge the files before ``mark``; None if the user has to wait for a new snapshot."""
        for name in self.setting.engine.files(self.folder, mark):
            topic, _, file = name.partition("/")
            if topic == self.setting.engine.topic(self.shape.name):
                (self.bed.root / "feeds" / "history" / file).hardlink_to(self.folder / name)
        for _ in range(MOST_TRIES):
            try:
                report = self._run()
            except (BadData, BadSpec) as error:
                self.counts["refused"] += 1
                self._find_way(str(error))
                if self.is_waiting:
                    return None
                continue
            self.counts["merged"] += 1
            self.counts["changes"] += dict(report.counts).get("rowsSource", 0)
            self.defaulted |= {column.name for column in report.defaulted_columns}
            self._set_aside(report.gone_columns)
            return report
        raise AssertionError(f"{MOST_TRIES} refusals")

    def _set_aside(self, gone: Sequence[str]) -> None:
        """Rename columns of which a job says that the source has them no longer: there may be others of their names."""
        for name in gone:
            self.told.changes[_GONE, self.setting.name] += 1
            with self.bed.table().update_schema() as update:
                update.rename_column(name, f"old_{name}")

    def begin_anew(self) -> None:
        """Forget all files: a new snapshot follows, and the database logs whole rows since."""
        self.is_waiting = False
        self.shape = replace(self.shape, identity=self.shape.keys)
        for file in (self.bed.root / "feeds" / "history").iterdir():
            file.unlink()

    def _run(self) -> JobReport:
        task = task_of("", self.shape.keys, source=self.source, when_matched=(), when_not_matched=())
        return self.bed.merge(task)

    def _find_way(self, sentence: str) -> None:
        """Do what ``sentence`` says, else leave out the message that it is about."""
        plain = re.sub(r"^spec\.[\w.]+: |'[^']*\.(json|avro)', line \d+: (column '[^']*': )?", "", sentence)
        for event, pattern, way, taken in _WAYS:
            if pattern in sentence and taken(self, sentence):
                self.told.refusals[event, way, plain, self.setting.name] += 1
                return
        place = _PLACE.match(sentence)
        if place is None:
            raise NoWayOut(sentence)
        column = _COLUMN.search(sentence)
        way = "leave the change out"
        if column is not None:
            self._refused[column["column"]] += 1
            if self._refused[column["column"]] == _ENOUGH:
                self._leave_out_column(column["column"])
                return
        self._leave_out(place["file"], int(place["line"]))
        self.told.refusals["", way, plain, self.setting.name] += 1

    def declare(self, **fields: Any) -> bool:
        """Change the spec; false if it is so already."""
        before, self.source = self.source, replace(self.source, **fields)
        return before != self.source

    def _leave_out_column(self, name: str) -> None:
        with self.bed.table().update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(name)
        self.declare(unknown_columns=UnknownColumns.IGNORE)

    def widen(self, sentence: str) -> bool:
        """Give the column that ``sentence`` names a wider type; false if there is none."""
        found = _COLUMN.search(sentence)
        kind = self.bed.table().schema().find_type(found["column"]) if found else None
        wide: IcebergType
        if isinstance(kind, IntegerType):
            wide = LongType()
        elif isinstance(kind, DecimalType) and kind.precision < 38:
            wide = DecimalType(38, kind.scale)
        else:
            return False
        assert found
        with self.bed.table().update_schema() as update:
            update.update_column(found["column"], wide)
        return True

    def set_aside(self, sentence: str) -> bool:
        """Rename a column whose values are of another type than those of the database now."""
        found = _COLUMN.search(sentence)
        if found is None or found["column"] != "added" or "old_added" in self.bed.table().schema().column_names:
            return False
        with self.bed.table().update_schema() as update:
            update.rename_column("added", "old_added")
        return True

    def give_up(self) -> bool:
        """Read the table in no other way: the transform has to be left out."""
        self.is_waiting = self.has_given_up = True
        return True

    def wait(self, _sentence: str) -> bool:
        """Throw the table away, and wait for a new snapshot, if the keys are outside the identity."""
        if self.shape.identity:
            return False
        self.is_waiting = True
        self.bed.catalog.drop_table(self.bed.ref.identifier)
        self.bed.create(schema_of(self.shape, self.setting))
        return True

    def _leave_out(self, name: str, line: int) -> None:
        """Make a file whose ``line`` is blank, or without the record of that number."""
        path = next(self.bed.root.rglob(Path(name).name))
        if path.suffix == ".avro":
            with path.open("rb") as opened:
                reader = fastavro.reader(opened)
                records, schema = list(reader), reader.writer_schema
            message: Any = records.pop(line - 1)
            path.unlink()
            with path.open("wb") as opened:
                fastavro.writer(opened, schema, records)
        else:
            lines = path.read_bytes().split(b"\n")
            message = json.loads(lines[line - 1])
            lines[line - 1] = b""
            path.unlink()
            path.write_bytes(b"\n".join(lines))
        self._taint(message)

    def _taint(self, message: Mapping[str, Any]) -> None:
        payload = message.get("payload", message)
        for image in (payload.get("after"), payload.get("before"), payload):
            if isinstance(image, Mapping) and all(name in image for name in self.shape.keys):
                self.tainted.add(tuple(image[name] for name in self.shape.keys))
        self.counts["left out"] += 1

    def compare(self, seen: Seen, when: str) -> None:
        """Compare the table with ``seen``. Raises AssertionError naming ``when`` and the first differences."""
        table = self.bed.table().scan().to_arrow().to_pylist()
        kinds = {one.name: one.field_type for one in self.bed.table().schema().fields}
        found = {tuple(row[name] for name in self.shape.keys): row for row in table}
        assert len(found) == len(table), "two rows have one key"
        missing = [key for key in seen.rows.keys() - found.keys() - self.tainted if key not in seen.collapsed]
        more = found.keys() - seen.rows.keys() - self.tainted
        assert not missing and not more, f"{when}: missing {missing[:5]}, too many {sorted(more)[:5]}"
        differences = []
        for column in seen.columns:
            if column.name not in kinds:
                assert self._may_lack(column, seen), f"the table has no column {column.name}"
                continue
            for key, row in seen.rows.items():
                if key not in found or key in self.tainted:
                    continue
                self.counts["values"] += 1
                values = found[key][column.name], row[column.name]
                if not self._is_right(column, kinds[column.name], *values, is_initial=key in seen.initial):
                    differences.append((key, column.name, *values))
        assert not differences, f"{when}: {len(differences)} differences, such as {differences[:4]}"

    def _may_lack(self, column: Column, seen: Seen) -> bool:
        is_refused = self._refused[column.name] >= _ENOUGH
        return is_refused or all(row[column.name] is None for row in seen.rows.values())

    def _is_right(self, column: Column, kind: IcebergType, found: Any, shown: Any, *, is_initial: bool) -> bool:
        expected = wanted(column, shown, self.setting, self.source.infinity)
        if isinstance(kind, StringType) and isinstance(expected, Decimal):
            expected = str(expected)
        if same(found, expected, kind):
            return True
        if column.generated:
            return self._is_known_of_generated(column, found)
        for what, made in changed(column, shown, self.setting, is_initial=is_initial):
            if same(found, made, kind) and (what != _DEFAULTED or column.name in self.defaulted):
                self.told.changes[what, self.setting.name] += 1
                return True
        return False

    def _is_known_of_generated(self, column: Column, found: Any) -> bool:
        """Whether another value than the database's is there by right: null if the spec says so, or what was before."""
        self.told.changes["stored generated column", self.setting.name] += 1
        return found is None and column.computed == "null" if getattr(self.source, "generated", None) else True

    def compute(self) -> bool:
        """Declare what computes the generated columns."""
        return self.declare(
            generated={column.name: column.computed for column in self.shape.columns if column.generated}
        )


def schema_of(shape: Shape, setting: Setting) -> Schema:
    """The schema of the table that a user declares for ``shape``."""
    columns = (*shape.key, *shape.columns)
    return Schema(
        *(
            NestedField(number, column.name, setting.declared(column), required=column in shape.key)
            for number, column in enumerate(columns, 1)
        )
    )


_GONE = "dropped or renamed column"
_DEFAULTED = "null in a column with DEFAULT"
_Way = tuple[str, str, str, Callable[[Series, str], bool]]
#: An event, a part of the sentence that refuses it, the way out in words, and how it is taken: false if it was before.
_WAYS: Sequence[_Way] = (
    (
        "delete or changed key, `keys` outside the replica identity",
        "REPLICA IDENTITY FULL and merge a new snapshot",
        "`REPLICA IDENTITY FULL` and a new snapshot",
        Series.wait,
    ),
    (
        "delete or changed key, the old key is 0, an empty text or a default",
        "source.replicaIdentity",
        "`source.replicaIdentity`",
        lambda series, _: series.declare(replica_identity=series.shape.identity),
    ),
    (
        "`TRUNCATE`",
        "source.allowTruncate",
        "`source.allowTruncate: true`",
        lambda series, _: series.declare(allow_truncate=True),
    ),
    (
        "`NaN` or an infinity in `numeric`",
        "source.nonFinite",
        "`source.nonFinite: Null`",
        lambda series, _: series.declare(non_finite=NonFinite.NULL),
    ),
    (
        "`infinity` in dates and timestamps",
        "source.infinity",
        "`source.infinity: Max`",
        lambda series, _: series.declare(infinity=Infinity.MAX),
    ),
    (
        "a table without primary key, `keys` are all columns",
        "source.equalRows",
        "`source.equalRows: Collapse`",
        lambda series, _: series.declare(equal_rows=EqualRows.COLLAPSE),
    ),
    (
        "a flat update in a table without primary key",
        "ExtractNewRecordState out",
        "`changeFormat: Debezium`",
        lambda series, _: series.give_up(),
    ),
    (
        "`ALTER TABLE … ADD` or `RENAME` of a column",
        "source.unknownColumns",
        "`source.unknownColumns: Add`",
        lambda series, _: series.declare(unknown_columns=UnknownColumns.ADD),
    ),
    (
        "a `STORED` generated column",
        "source.generated",
        "`source.generated`",
        lambda series, _: series.compute(),
    ),
    ("`ALTER TABLE … TYPE`", "without loss", "a wider type in the Table", Series.widen),
    (
        "a column of another type under an old name",
        "column 'added'",
        "rename the column of the Table",
        Series.set_aside,
    ),
)
