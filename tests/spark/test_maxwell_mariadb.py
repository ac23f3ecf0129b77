"""What Maxwell makes of a random history of MariaDB arrives in Iceberg, every value as it is in MariaDB.

Runs in `make soak-maxwell` only: SKIPSTONE_SOAK_CASES transactions drawn by SKIPSTONE_SOAK_SEED. Odd values and events
are the same in each run; what becomes of them is written into docs/guide/feeds.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.requests import ChangeFormat, ConsumePolicy, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec

from tests.spark.exceptions_block import Exceptions, sentence_of
from tests.spark.mariadb import MariaDb, mariadb
from tests.spark.mariadb_history import DATABASE, FLOWS, KEYS, NULL, ORDERS, Flow, History, Key, plain_text
from tests.spark.mariadb_odd import EVENTS, VALUES, Odd
from tests.spark.maxwell import VERSION, maxwell
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.postgres_history import same

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "2000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
MERGES = 5
FILTER = f"--filter=exclude: *.*, include: {DATABASE}.*"
POSITIONS = "--output_binlog_position=true"
#: What docs/guide/feeds.md asks for, and with the rest that Maxwell can tell.
SETTINGS = {
    "positions": (POSITIONS,),
    "all": (POSITIONS, "--output_xoffset=true", "--output_server_id=true", "--output_ddl=true",
            "--output_primary_keys=true", "--output_primary_key_columns=true", "--output_thread_id=true"),
    "plain": ("--output_nulls=false",),
}  # fmt: skip
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


def is_complete(message: Mapping[str, Any]) -> bool:
    return message["type"] == "bootstrap-complete"


def is_mark(region: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda message: message["type"] == "delete" and message["data"].get("region") == region


def played(folder: Path, settings: tuple[str, ...], random: Random) -> tuple[list[str], History, dict[str, Any]]:
    """The lines of a history with a bootstrap in its midst. Maxwell is killed, and another one goes on.

    The table has rows before the first one begins, which the bootstrap tells.
    """
    with mariadb() as server:
        history = History(server, random)
        with maxwell(folder, server, FILTER, *settings) as running:
            running.wait_connected()
            for _ in range(3):
                history.run(SOAK_CASES // 6)
                history.alter()
            history.bootstrap()
            history.run(SOAK_CASES // 4)
            lines = running.wait_until(is_complete)
            # It holds changes back during a bootstrap, and would lose them if it were killed before it tells them
            history.mark("held")
            history.run(SOAK_CASES // 8)
            lines += running.wait_until(is_mark("held"))
            lines += running.kill()
        for _ in range(3):
            history.alter()
            history.run(SOAK_CASES // 24)
        history.mark("end")
        with maxwell(folder, server, FILTER, *settings) as running:
            lines += running.wait_until(is_mark("end"))
        return lines, history, {flow.name: history.rows(flow) for flow in FLOWS}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_history_arrives_as_it_was(tmp_path: Path, name: str) -> None:
    lines, history, expected = played(tmp_path, SETTINGS[name], Random(SOAK_SEED))
    print(f"\nMaxwell {VERSION}, seed {SOAK_SEED}, {len(lines)} lines: {history.counts}")
    for flow in FLOWS:
        compared = require_same(merged_history(tmp_path / flow.name, flow, lines), expected[flow.name])
        print(f"{name}, {flow.name}: {len(expected[flow.name])} rows, {compared} values equal")


def merged_history(root: Path, flow: Flow, lines: list[str]) -> dict[Key, Mapping[str, Any]]:
    """The rows in Iceberg with their types after several merges, one of them all in Spark."""
    root.mkdir()
    bed = MergeBed(root)
    bed.create(flow.schema)
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=("feeds/history",),
        change_format=ChangeFormat.MAXWELL,
        consume=ConsumePolicy.NEW,
        consumer="MergeSchedule ns/history",
        tables=(f"{DATABASE}.{flow.name}",),
        unknown_columns=UnknownColumns.ADD,
    )
    for number in range(MERGES):
        part = lines[number * len(lines) // MERGES : (number + 1) * len(lines) // MERGES]
        bed.text(f"history/{number}.json", "".join(part))
        bed.limits = ALL_IN_SPARK if number == MERGES - 2 and flow is ORDERS else USUAL_SHARE
        bed.merge(task_of("", KEYS, source=source, when_matched=(), when_not_matched=()))
    found = typed_rows(bed)
    return {(row["region"][0], row["id"][0]): row for row in found}


def typed_rows(bed: MergeBed) -> list[dict[str, Any]]:
    """The rows in Iceberg, each value with its type."""
    table = bed.table()
    kinds = {field.name: field.field_type for field in table.schema().fields}
    rows = table.scan().to_arrow().to_pylist()
    bed.catalog.close()
    return [{name: (value, kinds[name]) for name, value in row.items()} for row in rows]


def require_same(found: Mapping[Key, Mapping[str, Any]], expected: Mapping[Key, Mapping[str, Any]]) -> int:
    """How many values were compared, all of them equal."""
    assert found.keys() == expected.keys(), (found.keys() - expected.keys(), expected.keys() - found.keys())
    for key, row in expected.items():
        for name, value in row.items():
            stored, kind = found[key][name]
            assert same(stored, value, kind), (key, name, stored, value)
    return sum(len(row) for row in expected.values())


def test_what_is_odd_arrives_or_is_refused_or_stands_in_the_guide(tmp_path: Path) -> None:
    exceptions, wrong, arrived = Exceptions("maxwell"), [], 0
    every = [(number, odd) for number, odd in enumerate((*VALUES, *EVENTS))]
    for setting in sorted({odd.setting for _, odd in every if odd.setting.startswith("--")} | {""}):
        chosen = [
            (number, odd)
            for number, odd in every
            if setting in ("", odd.setting) and (setting or odd.setting[:2] != "--")
        ]
        folder = tmp_path / (setting or "usual")
        folder.mkdir()
        for number, odd, lines, expected in told_of(folder, setting, chosen):
            outcome = merged_odd(tmp_path / str(number), odd, number, lines)
            is_refused = isinstance(outcome, Exception)
            is_same = not isinstance(outcome, Exception) and all_same(outcome, expected)
            if (is_refused or is_same) == (odd.known is not None):
                wrong.append((odd, outcome, expected))
            elif isinstance(outcome, Exception):
                head, way_out = sentence_of(outcome)
                exceptions.add(odd.what, odd.shown_setting, f"refused: {head}", way_out)
            elif odd.known is not None:
                exceptions.add(odd.what, odd.shown_setting, odd.known, odd.way_out)
            else:
                arrived += 1
    print(f"\n{arrived} odd values and events arrived as they are, {len(exceptions.rows)} are exceptions")
    assert not wrong, "\n".join(map(str, wrong))
    exceptions.write()


def told_of(folder: Path, setting: str, every: list[tuple[int, Odd]]) -> list[tuple[int, Odd, list[str], list[Any]]]:
    """What Maxwell writes of each, and the rows in the database afterwards."""
    with mariadb() as server:
        server.run(f"create database {DATABASE} character set utf8mb4 collate utf8mb4_bin")
        server.run("create table marks (region varchar(9) primary key)", DATABASE)
        settings = [POSITIONS, *filter(None, [setting])]
        with maxwell(folder, server, FILTER, *settings) as running:
            running.wait_connected()
            for number, odd in every:
                server.run("; ".join(("set sql_mode = ''", *odd.statements)).replace("{t}", f"t{number}"), DATABASE)
            server.run("insert into marks values ('end'); delete from marks", DATABASE)
            lines = running.wait_until(is_mark("end"))
        by_table: dict[str, list[str]] = {}
        for line in lines:
            by_table.setdefault(str(json.loads(line).get("table")).partition("_")[0], []).append(line)
        return [(number, odd, by_table.get(f"t{number}", []), rows_of(server, odd, number)) for number, odd in every]


def rows_of(server: MariaDb, odd: Odd, number: int) -> list[dict[str, Any]]:
    """The rows of the table, as Iceberg is to have them."""
    if odd.is_gone:
        return []
    columns = [(field.name, odd.reader(field.name)) for field in odd.schema.fields]
    hexed = ", ".join(f"hex(convert({read.shown.format(name)} using utf8mb4))" for name, read in columns)
    answer = server.run(f"select {hexed} from t{number}", DATABASE)
    return [
        {
            name: None if text == NULL else read.value(plain_text(text))
            for (name, read), text in zip(columns, row, strict=True)
        }
        for row in answer
    ]


def merged_odd(root: Path, odd: Odd, number: int, lines: list[str]) -> list[dict[str, Any]] | Exception:
    """The rows in Iceberg, or what the merge was refused with."""
    root.mkdir()
    bed = MergeBed(root)
    bed.create(odd.schema)
    path = bed.text("odd.json", "".join(lines))
    declared = {**odd.source}
    if "tables" in declared:
        declared["tables"] = tuple(name.replace("{t}", f"t{number}") for name in declared["tables"])
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.MAXWELL, **declared)
    try:
        bed.merge(task_of("", odd.keys, source=source, when_matched=(), when_not_matched=()))
    except (BadData, BadSpec) as error:
        bed.catalog.close()
        return error
    return typed_rows(bed)


def all_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Whether the rows are those of the database."""
    rows = sorted(found, key=lambda row: row["id"][0]), sorted(expected, key=lambda row: row["id"])
    return len(found) == len(expected) and all(
        same(stored[name][0], row[name], stored[name][1]) for stored, row in zip(*rows, strict=True) for name in row
    )
