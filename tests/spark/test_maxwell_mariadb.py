"""What Maxwell makes of a random history of MariaDB arrives in Iceberg, every value as it is in MariaDB.

Runs in `make soak-maxwell` only: SKIPSTONE_SOAK_CASES transactions drawn by SKIPSTONE_SOAK_SEED.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.requests import ChangeFormat, ConsumePolicy, SourceFormat, SourceSpec

from tests.spark.mariadb import mariadb
from tests.spark.mariadb_history import COLUMNS, DATABASE, KEYS, SCHEMA, History, Key
from tests.spark.maxwell import VERSION, maxwell
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.postgres_history import same

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "2000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
MERGES = 5
FILTER = f"--filter=exclude: *.*, include: {DATABASE}.*"
#: What docs/guide/feeds.md asks for, and with the rest that Maxwell can tell.
SETTINGS = {
    "positions": ("--output_binlog_position=true",),
    "all": ("--output_binlog_position=true", "--output_xoffset=true", "--output_server_id=true", "--output_ddl=true",
            "--output_primary_keys=true", "--output_primary_key_columns=true", "--output_thread_id=true"),
    "plain": ("--output_nulls=false",),
}  # fmt: skip
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


def is_complete(message: Mapping[str, Any]) -> bool:
    return message["type"] == "bootstrap-complete"


def is_mark(region: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda message: message["type"] == "delete" and message["data"]["region"] == region


def played(folder: Path, settings: tuple[str, ...], random: Random) -> tuple[list[str], History, dict[Key, Any]]:
    """The lines of a history with a bootstrap in its midst. Maxwell is killed, and another one goes on.

    The table has rows before the first one begins, which the bootstrap tells.
    """
    with mariadb() as server:
        history = History(server, random)
        with maxwell(folder, server, FILTER, *settings) as running:
            running.wait_connected()
            history.run(SOAK_CASES // 2)
            history.bootstrap()
            history.run(SOAK_CASES // 4)
            lines = running.wait_until(is_complete)
            # It holds changes back during a bootstrap, and would lose them if it were killed before it tells them
            history.mark("held")
            history.run(SOAK_CASES // 8)
            lines += running.wait_until(is_mark("held"))
            lines += running.kill()
        history.run(SOAK_CASES // 8)
        history.mark("end")
        with maxwell(folder, server, FILTER, *settings) as running:
            lines += running.wait_until(is_mark("end"))
        return lines, history, history.rows()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_history_arrives_as_it_was(tmp_path: Path, name: str) -> None:
    lines, history, expected = played(tmp_path, SETTINGS[name], Random(SOAK_SEED))
    print(f"\nMaxwell {VERSION}, seed {SOAK_SEED}, {len(lines)} lines: {history.counts}")
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA)
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=("feeds/history",),
        change_format=ChangeFormat.MAXWELL,
        consume=ConsumePolicy.NEW,
        consumer="MergeSchedule ns/history",
    )
    for number in range(MERGES):
        part = lines[number * len(lines) // MERGES : (number + 1) * len(lines) // MERGES]
        bed.text(f"history/{number}.json", "".join(part))
        bed.limits = ALL_IN_SPARK if number == MERGES - 2 else USUAL_SHARE
        bed.merge(task_of("", KEYS, source=source, when_matched=(), when_not_matched=()))
    found = {(row["region"], row["id"]): row for row in bed.table().scan().to_arrow().to_pylist()}
    assert found.keys() == expected.keys(), (found.keys() - expected.keys(), expected.keys() - found.keys())
    require_same(found, expected)
    print(f"{name}: {len(expected)} rows, {len(expected) * len(COLUMNS)} values equal")
    bed.catalog.close()


def require_same(found: Mapping[Key, Mapping[str, Any]], expected: Mapping[Key, Mapping[str, Any]]) -> None:
    for key, row in expected.items():
        for column in COLUMNS:
            values = found[key][column.name], row[column.name]
            assert same(*values, column.kind), (key, column.name, *values)
