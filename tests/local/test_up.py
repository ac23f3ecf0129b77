"""The main job through `up`, with real drivers and without Spark: load, index, merge, maintain, read."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.local.lake import CLAIM, ROWS, Lake, index, load, merge, table, wait_for, warehouse


def test_a_table_is_loaded_indexed_merged_and_maintained(lake: Lake) -> None:
    lake.write_orders()
    maintained = table(maintenance={"snapshots": {"maxAge": "1d", "minToKeep": 1}})
    maintained["metadata"]["annotations"] = {"skipstone.dev/maintain": "now"}
    printed = lake.run_once(
        maintained,
        load("a-load", "landing/*.parquet"),
        merge("b-merge"),
        index(maintenance="Inline"),
        warehouse(),
        CLAIM,
    )
    assert "6 of 6" not in printed
    assert "5 of 5 objects are as their manifests ask" in printed
    assert lake.rows() == ROWS
    assert lake.get("SecondaryIndex", "by-price") == {}  # nobody serves the folder any more
    with lake.serving() as process:
        shown = wait_for(lambda: lake.get("SecondaryIndex", "by-price"), "the index", process)
        assert shown["status"]["synced"]
        assert lake.get("Table", "orders")["status"]["observedMaintain"] == "now"
        lake.write_parquet("landing/late.parquet", "select 2000 as id, 7::bigint as price")
        printed = lake.run_once(load("late", "landing/late.parquet"))
        assert "is served by another process: what is applied runs there" in printed
        assert lake.rows() == ROWS | {2000: 7}
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.soak
def test_what_fails_is_told_with_its_sentence(lake: Lake) -> None:
    bad = load("orders", "nothing/here.parquet")
    printed = lake.run_once(CLAIM, warehouse(), table(), bad, code=1)
    assert "failed: lj/orders" in printed
    assert "nothing/here.parquet" in printed
    assert lake.rows() == {}


def test_a_command_that_serves_the_folder_itself_prints_one_line_of_what_is_wrong(lake: Lake) -> None:
    command = [sys.executable, "-m", "skipstone_cli", "local", "get", "tbl/none", "--root", str(lake.root.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("skipstone: there is no Table none in namespace default")
    assert done.stderr.count("\n") == 1


def test_what_waits_for_nothing_is_told(lake: Lake) -> None:
    printed = lake.run_once(table(), load("orders", "x.parquet"), code=1)
    assert "failed: tbl/orders  Waiting  WarehouseNotFound" in printed
    assert "failed: lj/orders" in printed
