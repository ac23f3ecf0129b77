"""What Debezium makes of a random history of PostgreSQL arrives in Iceberg, every value as it is in PostgreSQL.

Runs in `make soak-debezium` only: SKIPSTONE_SOAK_CASES transactions drawn by SKIPSTONE_SOAK_SEED.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import time as clock
from pathlib import Path
from random import Random
from typing import Any

import pytest
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.feeds import TimePrecision
from skipstone_core.contract.requests import ChangeFormat, ConsumePolicy, SourceFormat, SourceSpec
from skipstone_core.errors import BadData

from tests.spark.debezium import FLAT_FIELDS, VERSION, Engine, engines
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.postgres import postgres
from tests.spark.postgres_history import (
    BY_KEY,
    BY_ROW,
    KEYS,
    MARKER,
    NEVER_TRUNCATED,
    ODD,
    ODD_ROWS,
    ODD_SCHEMA,
    SCHEMA,
    TABLES,
    History,
    same,
)

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "10000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
MERGES = 8
#: As the guide tells users to set it.
NULLS = {"converter.replace.null.with.default": "false"}
SCHEMAS = Engine("schemas", (BY_KEY, BY_ROW, ODD), {"converter.schemas.enable": "true", **NULLS})
PLAIN = Engine(
    "plain",
    (BY_KEY, BY_ROW, ODD),
    {
        "converter.schemas.enable": "false",
        **NULLS,
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
    },
)
#: The transform leaves truncates out.
FLAT = Engine(
    "flat",
    (NEVER_TRUNCATED, ODD),
    {
        "converter.schemas.enable": "true",
        **NULLS,
        "transforms.unwrap.replace.null.with.default": "false",
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": FLAT_FIELDS,
    },
)
ENGINES = (SCHEMAS, PLAIN, FLAT)
#: What Debezium itself makes of values of ODD_ROWS, by their numbers: null of NaN and infinity, 0:00 of 24:00.
CHANGED_BY: dict[str, dict[int, list[object]]] = {"schemas": {1: [], 2: [], 3: []}, "plain": {}, "flat": {7: [clock()]}}
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Played:
    """A history that is over. ``rows``: of each table at its end; ``folder``: with a folder of files for each topic."""

    folder: Path
    rows: Mapping[str, Mapping[tuple[str, int], Mapping[str, Any]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Slots are made and snapshots taken while the history is going on; it has a truncate in its midst.

    Later the engines are killed, and others go on: they read again what those had not noted as read.
    """
    folder = tmp_path_factory.mktemp("debezium")
    began = time.monotonic()
    with (
        postgres("127.0.0.1", "wal_level=logical", "timezone=Europe/Berlin") as server,
        contextlib.closing(History(server.port, Random(SOAK_SEED))) as history,
    ):
        with engines(folder, server.port, MARKER, ENGINES) as running:
            while not running.started:
                history.run(1)
            history.run(SOAK_CASES // 2)
            history.truncate()
            history.run(SOAK_CASES // 4)
            running.kill()
        with engines(folder, server.port, MARKER, ENGINES) as running:
            history.run(SOAK_CASES // 4)
            history.end()
            running.wait_done()
        rows = {table: history.rows(table) for table in TABLES}
    print(f"\nDebezium {VERSION}, PostgreSQL {history.version}, seed {SOAK_SEED}, {time.monotonic() - began:.0f} s:")
    print(history.counts, {table: len(found) for table, found in rows.items()})
    yield Played(folder, rows)


def source_of(engine: Engine, path: str, keys: tuple[str, ...]) -> SourceSpec:
    """What a user declares for the files of ``engine`` at ``path``. ``keys``: the primary key of their table."""
    return SourceSpec(
        format=SourceFormat.JSON,
        paths=(path,),
        change_format=ChangeFormat.DEBEZIUM_FLAT if engine is FLAT else ChangeFormat.DEBEZIUM,
        allow_truncate=True,
        time_precision=TimePrecision.MICROS if engine is PLAIN else None,
        replica_identity=keys,
    )


@pytest.mark.parametrize("engine", ENGINES, ids=lambda one: one.name)
def test_what_no_type_of_iceberg_has_is_refused(played: Played, tmp_path: Path, engine: Engine) -> None:
    bed = MergeBed(tmp_path)
    bed.create(ODD_SCHEMA)
    (file,) = (played.folder / engine.topic(ODD)).glob("*.json")
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == len(ODD_ROWS)
    for number, line in enumerate(lines, 1):
        path = bed.text(f"{number}.json", line)
        with contextlib.suppress(BadData):
            source = source_of(engine, path, ("id",))
            bed.merge(task_of("", ("id",), source=source, when_matched=(), when_not_matched=()))
    rows = {row.pop("id"): row for row in bed.table().scan().to_arrow().to_pylist()}
    told = {number: [value for value in row.values() if value is not None] for number, row in rows.items()}
    assert told == CHANGED_BY[engine.name]
    bed.catalog.close()


@pytest.mark.parametrize(
    ("engine", "table"),
    [pytest.param(one, table, id=f"{one.name}-{table}") for one in ENGINES for table in one.tables if table != ODD],
)
def test_a_history_arrives_as_it_was(played: Played, tmp_path: Path, engine: Engine, table: str) -> None:
    bed = MergeBed(tmp_path)
    mode = "merge-on-read" if table == BY_ROW else "copy-on-write"
    bed.create(SCHEMA, **{"write.merge.mode": mode})
    files = sorted((played.folder / engine.topic(table)).glob("*.json"))
    folder = tmp_path / "feeds" / "history"
    folder.mkdir(parents=True)
    source = replace(
        source_of(engine, "feeds/history", KEYS), consume=ConsumePolicy.NEW, consumer="MergeSchedule ns/history"
    )
    changes = 0
    for number in range(MERGES):
        for file in files[number * len(files) // MERGES : (number + 1) * len(files) // MERGES]:
            (folder / file.name).hardlink_to(file)
        bed.limits = ALL_IN_SPARK if number == MERGES - 2 else USUAL_SHARE
        try:
            report = bed.merge(task_of("", KEYS, source=source, when_matched=(), when_not_matched=()))
        except BadData:
            # Changes that come again may lack values of rows that are deleted since: the next merge has the rest
            if number == MERGES - 1:
                raise
            continue
        changes += dict(report.counts).get("rowsSource", 0)
    found = {(row["region"], row["id"]): row for row in bed.table().scan().to_arrow().to_pylist()}
    expected = played.rows[table]
    assert found.keys() == expected.keys(), (found.keys() - expected.keys(), expected.keys() - found.keys())
    compared = 0
    for key, row in expected.items():
        for column in SCHEMA.fields:
            compared += 1
            values = found[key][column.name], row[column.name]
            assert same(*values, column.field_type), (key, column.name, *values)
    told = f"{len(files)} files, {changes} rows merged, {len(expected)} rows, {compared} values equal"
    print(f"{engine.name}, {table}: {told}")
    bed.catalog.close()
