"""Jobs that read Tables, Delta tables and folders that hold values, write to a branch, and ask an index in HBase.

And an index that covers too little, and is built again as a whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from skipstone_core.contract.stores import HBaseRef

from demo.install import make_folder
from demo.kube import EMBEDDED
from demo.manifests import claim, volume
from tests.e2e.bucket import node_address
from tests.e2e.lake import JsonObject, Lake, change, index, load, merge, people, resource, table, warehouse
from tests.spark.hbase import cells_of, hbase_server

#: The claim of the other Warehouse, and its volume.
ARCHIVE, VOLUME = "archive", "e2e-sources-archive"
EVENTS = (
    {"name": "id", "type": "long", "required": True},
    {"name": "day", "type": "date"},
    {"name": "name", "type": "string"},
)
DAYS = (date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1))


@pytest.fixture(scope="module")
def lake(lakes: dict[str, Lake]) -> Iterator[Lake]:
    """Two Warehouses on a claim each: in the other one, people 1 to 60; in this one, tables without rows."""
    here = lakes["e2e-sources"]
    shutil.rmtree(EMBEDDED / "volumes" / VOLUME, ignore_errors=True)  # of a run before, which nobody reads any more
    here.kube.apply(volume(VOLUME, make_folder(VOLUME), here.kube.namespace, ARCHIVE))
    here.apply(claim(ARCHIVE, volume_name=VOLUME))
    here.apply(
        warehouse(),
        warehouse("archive", storage={"pvc": {"claimName": ARCHIVE}}),
        table("archived", warehouseRef={"name": "archive"}),
        table(),
        table("follower"),
        table("events", columns=EVENTS),
    )
    Lake(here.kube, EMBEDDED / "volumes" / VOLUME).write("in/1.parquet", people(1, 60))
    here.apply(load("archive", "in/1.parquet", table_name="archived"))
    here.until_complete("lj", "archive")
    yield here
    here.kube.run("delete", "pv", VOLUME, "--wait=false")


def events(first: int) -> pa.Table:
    """Every other event from ``first`` to 300, on days by turns."""
    ids = range(first, 301, 2)
    days = [DAYS[number % len(DAYS)] for number in ids]
    names = [f"event {number}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.date32()), "name": names})


def open_to_all(folder: Path) -> None:
    """Let pods of any user read what is below the folder."""
    for path, _, files in os.walk(folder):
        Path(path).chmod(0o755)
        for name in files:
            Path(path, name).chmod(0o644)


def from_table(name: str, kind: str, table_name: str, source: JsonObject, **changes: object) -> JsonObject:
    """A job of a Table as its source."""
    return resource(kind, name, {"tableRef": {"name": table_name}, "source": source} | changes)


def follow(lake: Lake, name: str) -> JsonObject:
    """Merge into the follower what changed in the people; returns the status of the job."""
    keys = [{"target": "id", "source": "id"}]
    source = {"table": {"name": "people", "changes": True}, "consume": "New"}
    lake.apply(from_table(name, "MergeJob", "follower", source, keys=keys))
    status: JsonObject = lake.until_complete("mj", name)["status"]
    return status


def as_rows(found: pa.Table) -> list[JsonObject]:
    """Rows by id, with dates as texts, as pods tell them."""
    return [row | {"day": str(row["day"])} for row in found.sort_by("id").to_pylist()]


def test_tables_of_another_warehouse_changes_and_a_branch(lake: Lake) -> None:
    archived = {"table": {"name": "archived", "where": "id <= 50 and city != 'Lima'"}}
    lake.apply(from_table("from-archive", "LoadJob", "people", archived))
    assert lake.until_complete("lj", "from-archive")["status"]["rowsLoaded"] == 40
    follow(lake, "follow-1")
    lake.write("feeds/1.parquet", [change("U", 2, "renamed", "Oslo"), change("D", 3), change("I", 900, "new", "Bonn")])
    lake.apply(merge("corrections", "feeds/1.parquet"))
    lake.until_complete("mj", "corrections")
    changed = follow(lake, "follow-2")["rows"]
    assert (changed["updated"], changed["deleted"], changed["inserted"]) == (1, 1, 1)
    lake.write(
        "feeds/2.parquet", [change("U", 4, "audited", "Oslo"), change("D", 5), change("I", 901, "later", "Bonn")]
    )
    lake.apply(merge("audit", "feeds/2.parquet", branch={"name": "audit", "ifMissing": "Create"}))
    lake.until_complete("mj", "audit")
    found = lake.all_rows(["people", "follower", "people@audit"])
    main = {row["id"]: row for row in found["people"]}
    expected = {row["id"]: row for row in people(1, 50) if row["city"] != "Lima"}
    assert expected.pop(3)
    expected[2] |= {"name": "renamed", "city": "Oslo", "born": None}
    expected[900] = {"id": 900, "name": "new", "city": "Bonn", "born": None}
    assert main == expected
    assert found["follower"] == found["people"]
    del expected[5]
    expected[4] |= {"name": "audited", "city": "Oslo", "born": None}
    expected[901] = {"id": 901, "name": "later", "city": "Bonn", "born": None}
    assert {row["id"]: row for row in found["people@audit"]} == expected


@pytest.fixture(scope="module")
def with_events(lake: Lake) -> list[JsonObject]:
    """The rows of a Delta table and of folders by day, which two loads have put into ``events``."""
    delta, folders = lake.folder / "delta" / "events", lake.folder / "hive" / "events"
    write_deltalake(str(delta), events(0), partition_by=["day"])
    DeltaTable(str(delta)).delete("day = '2026-02-01' or id = 6")
    pq.write_to_dataset(events(1), str(folders), partition_cols=["day"])
    open_to_all(delta.parent)
    open_to_all(folders.parent)
    hive = {
        "format": "Parquet",
        "paths": ["hive/events"],
        "hivePartitions": {
            "columns": [{"name": "day", "type": "date"}],
            "where": "day >= date '2026-01-01' and day < date '2026-02-01'",
        },
    }
    lake.apply(
        from_table("of-delta", "LoadJob", "events", {"delta": {"path": "delta/events"}}),
        from_table("of-folders", "LoadJob", "events", hive),
    )
    for name in ("of-delta", "of-folders"):
        lake.until_complete("lj", name)
    read = f"""
        select id, day, name from delta
        union all
        select id, day, name from read_parquet('{folders}/*/*.parquet', hive_partitioning => true)
        where day < date '2026-02-01'
    """
    with duckdb.connect() as connection:
        connection.register("delta", DeltaTable(str(delta)).to_pyarrow_table())
        return as_rows(connection.sql(read).to_arrow_table())


def test_rows_of_a_delta_table_and_of_folders_that_hold_values(lake: Lake, with_events: list[JsonObject]) -> None:
    assert lake.rows("events") == with_events
    assert 6 not in {row["id"] for row in with_events}


@pytest.mark.soak
def test_a_merge_asks_an_index_in_hbase(lake: Lake, with_events: list[JsonObject], tmp_path: Path) -> None:
    host = node_address(lake.kube)
    with hbase_server(tmp_path / "hbase", host=host) as port:
        store = HBaseRef(host=host, port=port, table="events", timeout_seconds=60)
        named = {"type": "HBase", "host": host, "port": port, "table": store.table}
        lake.apply(index("event-ids", ["id"], "events", store=named))
        lake.until_condition("si", "event-ids", "Synced")
        found = (lake.kube.get("si", "event-ids") or {})["status"]
        assert found["store"].startswith(f"hbase://{host}:{port}/{store.table}")
        assert found["synced"] == "2/2"
        assert cells_of(store)
        keyed = with_events[100] | {"name": "merged"}
        lake.write("feeds/events.parquet", [{"id": keyed["id"], "name": keyed["name"]}])
        source = {"format": "Parquet", "paths": ["feeds/events.parquet"]}
        keys, matched = [{"target": "id", "source": "id"}], [{"action": "Update", "set": {"name": "source.name"}}]
        lake.apply(from_table("asks", "MergeJob", "events", source, keys=keys, whenMatched=matched))
        job = lake.until_complete("mj", "asks")["status"]
        stage = next(stage for stage in job["funnel"] if stage["name"] == "KeyIndex")
        assert stage["filesIn"] > stage["filesOut"] == 1
        assert lake.rows("events") == [keyed if row["id"] == keyed["id"] else row for row in with_events]
        shown = lake.kube.run("get", "si", "event-ids", "-o", "yaml")
        assert f"store: {found['store']}" in shown
        lake.kube.run("delete", "si", "event-ids", "--wait=true")
        assert cells_of(store) == {}


def skipstone(lake: Lake, *words: str) -> str:
    """What the command prints; it must succeed."""
    command = [sys.executable, "-m", "skipstone_cli", *words, "--namespace", lake.kube.namespace]
    return subprocess.run(command, env=lake.kube.environment, capture_output=True, text=True, check=True).stdout


def columns_of(lake: Lake, name: str) -> JsonObject:
    """What kubectl shows of an index, by column."""
    header, row = lake.kube.run("get", "si", name, "-o", "wide").splitlines()
    starts = [header.index(column) for column in header.split()]
    ends = [*starts[1:], None]
    return {header[start:end].strip(): row[start:end].strip() for start, end in zip(starts, ends, strict=True)}


@pytest.mark.soak
def test_an_index_is_left_alone_below_a_percentage_and_built_again_as_a_whole(lake: Lake) -> None:
    limits = {"unusedBelowPercent": 80, "maintenance": "Manual"}
    lake.write("in/1.parquet", people(1, 60))
    lake.apply(table("steered"), load("steered-1", "in/1.parquet", table_name="steered"))
    lake.until_complete("lj", "steered-1")
    lake.apply(index("steered-ids", ["id"], "steered", **limits))
    skipstone(lake, "reindex", "si/steered-ids", "--wait")
    lake.until_condition("si", "steered-ids", "Ready")
    columns = columns_of(lake, "steered-ids")
    assert (columns["SYNCED"], columns["COVERED"], columns["UNUSEDBELOW"], columns["READY"]) == (
        "1/1", "100 %", "80", "True",
    )  # fmt: skip
    lake.write("in/2.parquet", people(61, 100))
    lake.apply(load("steered-2", "in/2.parquet", table_name="steered"))
    lake.until_complete("lj", "steered-2")
    lake.until_condition("si", "steered-ids", "Ready", status="False", reason="CoverageBelowMinimum")
    columns = columns_of(lake, "steered-ids")
    assert (columns["SYNCED"], columns["COVERED"], columns["REASON"]) == ("1/2", "60 %", "CoverageBelowMinimum")
    described = lake.kube.run("describe", "si", "steered-ids")
    assert "60 % of the rows are covered, spec.unusedBelowPercent asks for 80 %" in described
    lake.write("in/changes.parquet", [change("U", 7, "renamed", "Oslo"), change("D", 70)])
    lake.apply(merge("steered-changes", "in/changes.parquet", table_name="steered"))
    job = lake.until_complete("mj", "steered-changes")["status"]
    stage = next(stage for stage in job["funnel"] if stage["name"] == "KeyIndex")
    assert "it covers 60 % of the rows, and spec.unusedBelowPercent is 80" in stage["message"]
    skipstone(lake, "reindex", "si/steered-ids", "--full", "--wait")
    lake.until_condition("si", "steered-ids", "Ready")
    columns = columns_of(lake, "steered-ids")
    assert (columns["MISSING"], columns["COVERED"], columns["READY"]) == ("", "100 %", "True")
    rows = {row["id"]: row["name"] for row in lake.rows("steered")}
    assert sorted(rows) == [number for number in range(1, 101) if number != 70]
    assert rows[7] == "renamed"
