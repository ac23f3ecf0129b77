"""Sources that are tables, through manifests: of another Warehouse, of Delta, and in folders that hold values."""

from __future__ import annotations

from copy import deepcopy

import duckdb
import pytest
from deltalake import write_deltalake

from tests.local.lake import CLAIM, NAMESPACE, Lake, resource, table, warehouse

ERP = {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "erp"}}}
RAW = {
    "warehouseRef": {"name": "erp"}, "identifier": {"namespace": "sales", "name": "raw"},
    "columns": [{"name": "id", "type": "long"}, {"name": "price", "type": "long"}],
}  # fmt: skip


def job(name: str, into: str, **source: object) -> dict[str, object]:
    return resource("LoadJob", name, {"tableRef": {"name": into}, "source": source, "backoffLimit": 3})


@pytest.mark.soak
def test_rows_come_from_another_warehouse_from_delta_and_from_folders(lake: Lake) -> None:
    claim = deepcopy(CLAIM)
    claim["metadata"]["name"] = "erp"  # type: ignore[index]
    erp = lake.root.claim(NAMESPACE, "erp")
    erp.mkdir(parents=True, exist_ok=True)
    duckdb.sql("select range as id, 1::bigint as price from range(4)").write_parquet(str(erp / "raw.parquet"))
    lake.write_parquet("lake/price=7/a.parquet", "select 10::bigint as id")
    lake.write_parquet("lake/price=8/a.parquet", "select 11::bigint as id")
    lake.claim.mkdir(parents=True, exist_ok=True)
    rows = duckdb.sql("select 20::bigint as id, 9::bigint as price union all select 21, 5").to_arrow_table()
    write_deltalake(str(lake.claim / "delta"), rows, partition_by=["price"])
    printed = lake.run_once(
        CLAIM, claim, warehouse(), resource("Warehouse", "erp", ERP), table(), resource("Table", "raw", RAW),
        job("raw", "raw", format="Parquet", paths=["raw.parquet"]),
    )  # fmt: skip
    assert "5 of 5 objects are as their manifests ask" in printed
    printed = lake.run_once(
        job("a", "orders", table={"name": "raw", "where": "id > 1"}, consume="New"),
        job("b", "orders", delta={"path": "delta", "where": "price > 6"}, consume="New"),
        job("c", "orders", format="Parquet", paths=["lake"], hivePartitions={"where": "price = 7"}),
    )
    assert "8 of 8 objects are as their manifests ask" in printed
    assert lake.rows() == {2: 1, 3: 1, 20: 9, 10: 7}
