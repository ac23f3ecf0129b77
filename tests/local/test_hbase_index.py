"""An index in HBase through manifests: an operator, its runs as processes of their own, and readers of Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import skipstone
from skipstone_core.contract.stores import HBaseRef

from tests.spark.hbase import cells_of, hbase_server, wipe


@pytest.mark.soak
def test_loads_merges_and_reads_of_a_lake_use_it(tmp_path: Path) -> None:
    with hbase_server(tmp_path / "hbase") as port, skipstone.open(tmp_path / "lake") as lake:
        store = HBaseRef(host="127.0.0.1", port=port, table="lake")
        for number in range(4):
            rows = pa.table({"id": [4 * place + number for place in range(1000)], "v": [number] * 1000})
            if number == 0:
                lake.table("sales.orders", rows.schema)
            lake.load("sales.orders", rows)
        index = lake.index(
            "sales.orders", "id", fields={"store": {"type": "HBase", "host": store.host, "port": port, "table": "lake"}}
        )
        assert index.synced == "4/4"
        assert "used, reading" in lake.explain("sales.orders", "id = 2001")
        assert lake.read("sales.orders", "id = 2001").to_pylist() == [{"id": 2001, "v": 1}]
        lake.merge(pa.table({"id": [2001, 9999], "v": [7, 8]}), into="sales.orders", keys="id")
        changed = lake.read("sales.orders", "id in (2001, 9999)").sort_by("id").to_pylist()
        assert changed == [{"id": 2001, "v": 7}, {"id": 9999, "v": 8}]
        wipe(store)
        assert lake.read("sales.orders", "id = 2001").to_pylist() == [{"id": 2001, "v": 7}]
        lake.load("sales.orders", pa.table({"id": [10_000], "v": [9]}))
        repaired = lake.index(
            "sales.orders", "id", fields={"store": {"type": "HBase", "host": store.host, "port": port, "table": "lake"}}
        )
        assert repaired.synced.split("/")[0] == repaired.synced.split("/")[1]
        assert lake.read("sales.orders", "id in (2001, 10000)").num_rows == 2
        lake.drop("sales.orders")
        assert cells_of(store) == {}
