"""What wal2json makes of a random history of PostgreSQL arrives in Iceberg, every value as it is in PostgreSQL.

Runs in `make soak-wal2json` only: SKIPSTONE_SOAK_CASES transactions drawn by SKIPSTONE_SOAK_SEED. Odd values and events
are the same in each run; what becomes of them is written into docs/guide/feeds.md.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.types import BooleanType, DecimalType, IcebergType, IntegerType, ListType, LongType, StringType
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import NonFinite
from skipstone_core.contract.requests import ChangeFormat, ConsumePolicy, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec

from tests.spark.exceptions_block import Exceptions, sentence_of
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.postgres import postgres
from tests.spark.postgres_history import connect, same
from tests.spark.wal2json import OPTIONS, Receiver, plugin_settings, plugin_version
from tests.spark.wal2json_history import FLOWS, KEYS, MARKER, Flow, History
from tests.spark.wal2json_odd import EVENTS, PRELUDE, VALUES, Odd

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "2000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
#: Files that pg_recvlogical writes, by rotation, and merges of them.
FILES, MERGES = 12, 6
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Played:
    """A history that is over. ``rows``: of each table at its end; ``folder``: with the files in their order."""

    folder: Path
    rows: Mapping[str, Mapping[tuple[str, int], Mapping[str, Any]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Files are put aside while the history is going on; pg_recvlogical is killed twice."""
    folder = tmp_path_factory.mktemp("wal2json") / "files"
    began = time.monotonic()
    with (
        plugin_settings() as settings,
        postgres("127.0.0.1", *settings, "timezone=Europe/Berlin") as server,
        contextlib.closing(Receiver(folder, server.port)) as receiver,
        contextlib.closing(History(server.port, Random(SOAK_SEED))) as history,
    ):
        for number in range(FILES):
            history.run(SOAK_CASES // FILES)
            if number == FILES // 2:
                history.truncate()
            if number > 2:
                history.alter()
            receiver.kill() if number in (3, 7) else receiver.next_file()
        history.run(SOAK_CASES % FILES)
        history.execute(f"insert into {MARKER} values (1)")
        receiver.wait_for(f'"table":"{MARKER}"')
        rows = {flow.name: history.rows(flow) for flow in FLOWS}
    print(f"\nwal2json {plugin_version()}, seed {SOAK_SEED}, {time.monotonic() - began:.0f} s: {history.counts}")
    yield Played(folder, rows)


def source_of(flow: Flow, path: str) -> SourceSpec:
    """What a user declares. wal2json 2.5 writes null for NaN, which these tables do not have."""
    declared: dict[str, Any] = {"tables": (f"public.{flow.name}",), **flow.source}
    return SourceSpec(
        format=SourceFormat.JSON,
        paths=(path,),
        change_format=ChangeFormat.WAL2JSON,
        consume=ConsumePolicy.NEW,
        consumer="MergeSchedule ns/history",
        allow_truncate=flow.truncates or None,
        non_finite=NonFinite.NULL,
        unknown_columns=UnknownColumns.ADD,
        **declared,
    )


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_a_history_arrives_as_it_was(played: Played, tmp_path: Path, flow: Flow) -> None:
    bed = MergeBed(tmp_path)
    bed.create(flow.schema, **{"write.merge.mode": "merge-on-read" if flow.logs_old else "copy-on-write"})
    files = sorted(played.folder.glob("*.json"))
    folder = tmp_path / "feeds" / "history"
    folder.mkdir(parents=True)
    changes = 0
    for number in range(MERGES):
        for file in files[number * len(files) // MERGES : (number + 1) * len(files) // MERGES]:
            (folder / file.name).hardlink_to(file)
        bed.limits = ALL_IN_SPARK if number == MERGES - 2 else USUAL_SHARE
        task = task_of("", KEYS, source=source_of(flow, "feeds/history"), when_matched=(), when_not_matched=())
        try:
            report = bed.merge(task)
        except BadData:
            # Changes that come again may lack values of rows that are deleted since: the next merge has the rest
            if number == MERGES - 1:
                raise
            continue
        changes += dict(report.counts).get("rowsSource", 0)
    compared = require_same(bed, played.rows[flow.name])
    told = f"{len(files)} files, {changes} rows merged, {len(played.rows[flow.name])} rows, {compared} values equal"
    print(f"{flow.name}: {told}")
    bed.catalog.close()


def require_same(bed: MergeBed, expected: Mapping[tuple[str, int], Mapping[str, Any]]) -> int:
    """How many values were compared, all of them equal."""
    table = bed.table()
    found = {(row["region"], row["id"]): row for row in table.scan().to_arrow().to_pylist()}
    assert found.keys() == expected.keys(), (found.keys() - expected.keys(), expected.keys() - found.keys())
    kinds = {field.name: field.field_type for field in table.schema().fields}
    for key, row in expected.items():
        for name, value in row.items():
            assert same(found[key][name], value, kinds[name]), (key, name, found[key][name], value)
    return sum(len(row) for row in expected.values())


def test_what_is_odd_arrives_or_is_refused_or_stands_in_the_guide(tmp_path: Path) -> None:
    exceptions, wrong, arrived = Exceptions("wal2json"), [], 0
    with plugin_settings() as settings, postgres("127.0.0.1", *settings, "timezone=Europe/Berlin") as server:
        slot = OddSlot(server.port, PRELUDE)
        for number, odd in enumerate((*VALUES, *EVENTS)):
            lines, expected = slot.play(odd, f"t{number}")
            outcome = merged(tmp_path / str(number), odd, f"t{number}", lines)
            is_refused = isinstance(outcome, Exception)
            is_same = not isinstance(outcome, Exception) and all_same(odd, outcome, expected)
            if (is_refused or is_same) == (odd.known is not None):
                wrong.append((odd, outcome, expected))
            elif isinstance(outcome, Exception):
                head, way_out = sentence_of(outcome)
                exceptions.add(odd.what, odd.setting, f"refused: {head}", way_out)
            elif odd.known is not None:
                exceptions.add(odd.what, odd.setting, odd.known, odd.way_out)
            else:
                arrived += 1
        slot.close()
    print(f"\n{arrived} odd values and events arrived as they are, {len(exceptions.rows)} are exceptions")
    assert not wrong, "\n".join(map(str, wrong))
    exceptions.write()


class OddSlot:
    """A slot whose messages are read statement by statement."""

    def __init__(self, port: int, prelude: tuple[str, ...]) -> None:
        """Begin the slot after ``prelude``."""
        self._connection = connect(port)
        self._connection.autocommit = True
        self._cursor = self._connection.cursor()
        for statement in prelude:
            self._cursor.execute(statement)
        self._cursor.execute("select pg_create_logical_replication_slot('odd', 'wal2json')")

    def play(self, odd: Odd, table: str) -> tuple[list[str], list[dict[str, Any]] | None]:
        """The messages of ``odd`` on ``table``, and its rows afterwards; None for rows that Python does not have."""
        for statement in odd.statements:
            self._cursor.execute(statement.replace("{t}", table))
        options = {**OPTIONS, **odd.options}
        listed = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        if odd.session:
            self._cursor.execute(odd.session)
        self._cursor.execute(f"select data from pg_logical_slot_get_changes('odd', null, null, {listed})")
        lines = [line for (line,) in self._cursor.fetchall()]
        self._cursor.execute("reset all")
        self._cursor.execute("set time zone 'UTC'")
        try:
            self._cursor.execute(odd.shown.replace("{t}", table))
            names = [column.name for column in self._cursor.description]
            return lines, [dict(zip(names, row, strict=True)) for row in self._cursor.fetchall()]
        except (ValueError, OverflowError):
            return lines, None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def merged(root: Path, odd: Odd, table: str, lines: list[str]) -> list[dict[str, Any]] | Exception:
    """The rows in Iceberg, or what the merge was refused with."""
    root.mkdir()
    bed = MergeBed(root)
    bed.create(odd.schema)
    path = bed.text("odd.json", "".join(f"{line}\n" for line in lines))
    declared = {**odd.source}
    if "tables" in declared:
        declared["tables"] = tuple(name.replace("{t}", table) for name in declared["tables"])
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.WAL2JSON, **declared)
    try:
        bed.merge(task_of("", odd.keys, source=source, when_matched=(), when_not_matched=()))
    except (BadData, BadSpec) as error:
        return error
    finally:
        rows = bed.table().scan().to_arrow().to_pylist()
        schema = bed.table().schema()
        bed.catalog.close()
    kinds = {field.name: field.field_type for field in schema.fields}
    return [{name: (value, kinds[name]) for name, value in row.items()} for row in rows]


def all_same(odd: Odd, found: list[dict[str, Any]], expected: list[dict[str, Any]] | None) -> bool:
    """Whether the rows are those of the database."""
    if expected is None or len(found) != len(expected):
        return False
    order = odd.keys[0]
    rows = sorted(found, key=lambda row: row[order][0]), sorted(expected, key=lambda row: row[order])
    return all(
        same(value, as_python(row[name], kind), kind)
        for merged_row, row in zip(*rows, strict=True)
        for name, (value, kind) in merged_row.items()
    )


def as_python(value: Any, kind: IcebergType) -> Any:
    """A value of psycopg2, which has text for some types, as that of ``kind``."""
    if value is None or isinstance(kind, StringType):
        return value
    if isinstance(kind, BooleanType):
        return value in (True, "1")
    if isinstance(kind, LongType | IntegerType):
        return int(value)
    if isinstance(kind, DecimalType):
        return Decimal(str(value))
    if isinstance(kind, ListType) and isinstance(value, str):
        value = [None if item == "NULL" else item for item in value.strip("{}").split(",")]
    return [as_python(item, kind.element_type) for item in value] if isinstance(kind, ListType) else value
