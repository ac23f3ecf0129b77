"""Before a catalog that vends credentials for each table, the server reads with its own and tells none in plans."""

from __future__ import annotations

import pyarrow as pa
import requests
from pyiceberg.catalog import load_catalog
from skipstone_core.contract.planning import PlanningSettings
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.s3client import S3Client
from tests.spark.vendingserver import CANARY, vending_catalog
from tests.storages import s3_ref
from tests.unit.serving_bed import filled, serving


def test_manifests_are_read_with_vended_credentials_which_no_plan_tells(bucket: S3Client) -> None:
    with vending_catalog(bucket) as vendor:
        places = {"s3.endpoint": bucket.endpoint, "s3.region": bucket.region}
        filled(load_catalog("own", type="rest", uri=vendor.address, **places), "t", files=4)
        home = WarehouseRef(name="wh", catalog=CatalogRef(type=CatalogType.REST, uri=vendor.address), s3=s3_ref(bucket))
        with serving(PlanningSettings(warehouse=home, allow_plaintext_tokens=True, files_per_page=2)) as address:
            reader = load_catalog("r", type="rest", uri=address, **places, **{"scan-planning-mode": "server"})
            table = reader.load_table("ns.t")
            assert sorted(table.scan("id < 2").to_arrow()["id"].to_pylist()) == [0, 1]
            plan = requests.post(f"{address}/v1/namespaces/ns/tables/t/plan", json={}, timeout=30)
            vendor.is_away = True
            assert requests.post(f"{address}/v1/namespaces/ns/tables/t/plan", json={}, timeout=30).status_code == 503
            vendor.is_away = False
            load_catalog("own", type="rest", uri=vendor.address, **places).load_table("ns.t").append(
                pa.table({"id": [7], "s": ["x"]}, schema=table.schema().as_arrow())
            )
            assert reader.load_table("ns.t").scan("id = 7").to_arrow()["s"].to_pylist() == ["x"]
            metrics = requests.get(f"{address}/metrics", timeout=30).text
    assert len(plan.json()["file-scan-tasks"]) == 2
    assert CANARY not in plan.text
    assert CANARY not in metrics
    assert vendor.given
