"""A Dagster asset for each hour of a feed: one MergeJob a partition. Needs `dagster` and `kubernetes`."""

import dagster as dg
from kubernetes import client, config
from skipstone_job import run_job

NAMESPACE = "lake"
HOURS = dg.HourlyPartitionsDefinition(start_date="2026-01-01-00:00")


@dg.asset(partitions_def=HOURS, retry_policy=dg.RetryPolicy(max_retries=2, delay=60))
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """The Iceberg table sales.orders, with the changes of one hour, which are in a folder of their own."""
    config.load_config()
    hour = context.partition_key.replace(":", "")
    manifest = {
        "kind": "MergeJob",
        "metadata": {"name": f"orders-{hour}"},
        "spec": {
            "tableRef": {"name": "orders"},
            "source": {
                "format": "Json",
                "paths": [f"feeds/hours/{hour}/*.json"],
                "columns": [{"name": "op", "type": "string"}, {"name": "seq", "type": "long"}],
            },
            "keys": [{"target": "order_id", "source": "order_id"}],
            "sequenceBy": "seq",
            "whenMatched": [{"when": "source.op = 'D'", "action": "Delete"}, {"action": "Update"}],
            "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert"}],
        },
    }
    status = run_job(client.CustomObjectsApi(), NAMESPACE, manifest)
    return dg.MaterializeResult(metadata={"rows": status["rows"], "pruned": status.get("pruned", "")})


defs = dg.Definitions(assets=[orders])
