"""Manifests that the API server takes or refuses, one named case for each rule of the schemas.

Used by the API-server tests and by the unit tests of re-validation: both must judge alike.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from skipstone_core.contract.formats import ChangeFormat
from skipstone_core.contract.places import PlaceRef
from skipstone_core.merging.feeds import in_words, with_table_names
from skipstone_operator.resources.kinds import API_VERSION

Manifest = dict[str, Any]
ABSENT = object()

WAREHOUSE: Manifest = {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake"}}}
TABLE: Manifest = {
    "warehouseRef": {"name": "lake"},
    "identifier": {"namespace": "sales", "name": "orders"},
    "columns": [
        {"name": "id", "type": "long", "required": True},
        {"name": "day", "type": "date"},
        {"name": "price", "type": "decimal(9,2)"},
    ],
    "primaryKey": ["id"],
}
OBSERVED: Manifest = {
    "warehouseRef": {"name": "lake"},
    "identifier": {"namespace": "sales", "name": "orders"},
    "management": "Observed",
}
INDEX: Manifest = {"tableRef": {"name": "orders"}, "columns": ["id", "day"]}
HBASE: Manifest = {"type": "HBase", "host": "hbase-thrift.data.svc"}
LOAD: Manifest = {"tableRef": {"name": "orders"}, "source": {"format": "Csv", "paths": ["landing/*.csv"]}}
MERGE: Manifest = {
    "tableRef": {"name": "orders"},
    "source": {"format": "Csv", "paths": ["feed/1.csv"]},
    "keys": [{"target": "id", "source": "order_id"}],
    "whenMatched": [{"action": "Update"}],
}
#: Changes to MERGE that make it the merge of a change feed.
FEED: Manifest = {
    "source": {"format": "Json", "paths": ["feed/orders"], "changeFormat": "Debezium"},
    "keys": [{"target": "id", "source": "id"}],
    "whenMatched": ABSENT,
}


@dataclass(frozen=True)
class Case:
    """``spec`` with ``changes`` (path such as ``columns.0.type`` to value); refused at ``at`` with a text ``says``."""

    name: str
    kind: str
    spec: Manifest
    changes: dict[str, Any] = field(default_factory=dict)
    at: str = ""
    says: str = ""
    operator_only: bool = False
    by_schema: bool = False

    @property
    def changed(self) -> Manifest:
        """The spec of the case."""
        return changed(self.spec, self.changes)


def changed(spec: Manifest, changes: dict[str, Any]) -> Manifest:
    """A deep copy of ``spec`` with every path set, added or (ABSENT) removed."""
    result = copy.deepcopy(spec)
    for path, value in changes.items():
        *parents, last = path.split("/") if "/" in path else path.split(".")
        holder: Any = result
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
        if value is ABSENT:
            del holder[last]
        elif isinstance(holder, list):
            holder[int(last) : int(last) + 1] = [copy.deepcopy(value)]
        else:
            holder[last] = copy.deepcopy(value)
    return result


def manifest(kind: str, spec: Manifest, name: str = "case") -> Manifest:
    """A whole object."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _wh(name: str, changes: dict[str, Any], at: str = "", says: str = "", **more: Any) -> Case:
    return Case(name, "Warehouse", WAREHOUSE, changes, at, says, **more)


def _tbl(name: str, changes: dict[str, Any], at: str = "", says: str = "", **more: Any) -> Case:
    return Case(name, "Table", TABLE, changes, at, says, **more)


def _si(name: str, changes: dict[str, Any], at: str = "", says: str = "", **more: Any) -> Case:
    return Case(name, "SecondaryIndex", INDEX, changes, at, says, **more)


def _lj(name: str, changes: dict[str, Any], at: str = "", says: str = "", **more: Any) -> Case:
    return Case(name, "LoadJob", LOAD, changes, at, says, **more)


def _mj(name: str, changes: dict[str, Any], at: str = "", says: str = "", **more: Any) -> Case:
    return Case(name, "MergeJob", MERGE, changes, at, says, **more)


REST = {"catalog": {"type": "Rest", "uri": "http://catalog:8181"}}
S3 = {"bucket": "lake", "prefix": "prod/sales", "region": "eu-central-1", "endpoint": "https://s3.example.org:9000"}
#: As messages list them, so that a new kind of object storage changes no case.
BUCKETS = in_words(PlaceRef.BUCKETS, "or")
ONE_PLACE = f"exactly one of {in_words(('pvc', *PlaceRef.BUCKETS))}"
IN_BUCKET = {**REST, "storage": {"s3": S3}}


def _locations(*locations: dict[str, Any]) -> dict[str, Any]:
    return {"sourceLocations": list(locations)}


TYPES = (
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid"),
    *("binary", "fixed[16]", "decimal(38,0)"),
)

ACCEPTED = (
    _wh("warehouse-smallest", {}),
    _wh("warehouse-rest-catalog", REST),
    _wh("warehouse-postgresql-catalog", {"catalog.uri": "postgresql+psycopg2://db:5432/catalog"}),
    _wh("warehouse-sqlite-file-in-the-claim", {"catalog.uri": "sqlite:////skipstone/lake/catalog.db"}),
    _wh("warehouse-catalog-property", {**REST, "catalog.properties": {"warehouse": "main"}}),
    _wh("warehouse-credentials", {"credentialsSecretRef": {"name": "db", "keys": ["SKIPSTONE_CATALOG_PASSWORD"]}}),
    _wh(
        "warehouse-store-certificate",
        {"credentialsSecretRef": {"name": "hbase", "keys": ["SKIPSTONE_HBASE_CERTIFICATE", "SKIPSTONE_HBASE_KEY"]}},
    ),
    _wh("warehouse-spark-conf", {"spark.conf": {"spark.sql.shuffle.partitions": "8"}}),
    _wh("warehouse-small-work", {"spark.smallWork": "Spark"}),
    _wh("warehouse-event-log", {"spark.eventLog": {"maxAge": "7d"}}),
    _wh("warehouse-kept-drivers", {"warmDrivers": {"min": 0, "max": 4, "idleSeconds": 60}}),
    _wh("warehouse-a-kept-driver", {"warmDrivers": {}}),
    _wh("warehouse-executors", {"spark.executor": {"instances": 2, "cores": 2, "memory": "4g"}}),
    _wh("warehouse-memory-as-kubernetes-writes-it", {"spark.driver": {"memory": "768Mi"}}),
    _wh(
        "warehouse-pod-template",
        {
            "spark.podTemplate": {
                "metadata": {"labels": {"team": "sales"}},
                "spec": {
                    "nodeSelector": {"disk": "fast"},
                    "hostNetwork": False,
                    "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
                },
            }
        },
    ),
    _wh("warehouse-in-a-bucket", IN_BUCKET),
    _wh(
        "warehouse-in-a-bucket-with-a-secret",
        {
            **IN_BUCKET,
            "catalog.uri": "https://catalog.example.org",
            "storage.s3.pathStyleAccess": True,
            "storage.s3.credentialsSecretRef": {"name": "lake-keys"},
            "credentialsSecretRef": {"name": "db", "keys": ["SKIPSTONE_CATALOG_TOKEN", "AWS_REGION"]},
            "caBundleRef": {"name": "authorities", "key": "bundle.pem"},
        },
    ),
    _wh(
        "warehouse-in-a-bucket-by-postgresql",
        {
            "storage": {"s3": {"bucket": "lake"}},
            "catalog.uri": "postgresql://db:5432/catalog",
        },
    ),
    _wh(
        "warehouse-source-locations",
        _locations(
            {"name": "landing", "s3": {**S3, "credentialsSecretRef": {"name": "landing-keys"}}},
            {"name": "drop", "pvc": {"claimName": "drop"}},
        ),
    ),
    _wh(
        "warehouse-most-source-locations",
        _locations(*({"name": f"l{i}", "s3": {"bucket": "landing", "prefix": f"erp/{i}"}} for i in range(16))),
    ),
    _mj("names-in-any-case", {"source.matchNames": "IgnoreCase"}),
    _mj("merge-into-branch", {"branch": {"name": "audit"}}),
    _lj("load-into-branch", {"branch": {"name": "audit", "ifMissing": "Create"}}),
    _mj("feed-smallest", FEED),
    _mj(
        "feed-every-field",
        {
            **FEED,
            "source.format": "Avro",
            "source.changeFormat": "DebeziumFlat",
            "source.allowTruncate": True,
            "source.timePrecision": "Nanos",
            "source.replicaIdentity": ["id", "code"],
            "source.columnTimePrecisions": [{"column": "at", "precision": "Micros"}],
            "source.unavailableValue": "hex:5f5f",
            "source.nonFinite": "Null",
            "source.infinity": "Max",
            "source.equalRows": "Collapse",
            "source.replayFrom": "feeds/orders/2026-05",
            "source.generated": {"total": "round(price * amount, 2)", "label": "null"},
            "source.consume": "New",
            "badRecords": {"policy": "Redirect", "maxCount": 5},
            "source.unknownColumns": "Add",
            "schemaEvolution": "None",
            "targetWhere": "target.id > 0",
        },
    ),
    _mj(
        "feed-of-dms",
        {**FEED, "source.format": "Csv", "source.changeFormat": "Dms", "source.options": {"nullValue": ""}},
    ),
    _mj("feed-of-dms-in-parquet", {**FEED, "source.format": "Parquet", "source.changeFormat": "Dms"}),
    _mj("feed-of-maxwell", {**FEED, "source.changeFormat": "Maxwell", "source.tables": ["shop.orders_*"]}),
    *(
        _mj(f"feed-of-{tool.lower()}-alone", {**FEED, "source.changeFormat": tool.value, "source.format": read.value})
        for tool in ChangeFormat
        for read in tool.feed.files[:1]
    ),
    _mj(
        "feed-of-wal2json",
        {
            **FEED,
            "source.changeFormat": "Wal2Json",
            "source.tables": ["public.orders", "public.orders_*"],
            "source.allowTruncate": True,
            "source.replicaIdentity": ["id"],
            "source.nonFinite": "Null",
            "source.infinity": "Max",
        },
    ),
    _tbl("table-smallest", {}),
    _tbl("table-in-a-nested-namespace", {"identifier.namespace": "sales.eu.north"}),
    Case("table-observed", "Table", OBSERVED),
    _tbl(
        "table-every-type",
        {
            "allowTypesUnreadableBySpark": True,
            "columns": [{"name": "id", "type": "long", "required": True}]
            + [{"name": f"c{i}", "type": name} for i, name in enumerate(TYPES)],
        },
    ),
    _tbl("table-bucket-with-width", {"partitioning": [{"column": "id", "transform": "Bucket", "width": 16}]}),
    _tbl("table-month-without-width", {"partitioning": [{"column": "day", "transform": "Month"}]}),
    _tbl("table-sort-order", {"sortOrder": [{"column": "day", "direction": "Descending", "nulls": "Last"}]}),
    _tbl(
        "table-properties",
        {
            "properties": {
                "write.target-file-size-bytes": "1048576",
                "write.parquet.bloom-filter-enabled.column.id": "true",
            }
        },
    ),
    _tbl("table-refresh-off", {"refreshIntervalSeconds": 0}),
    _tbl("table-refresh-lowest", {"refreshIntervalSeconds": 30}),
    _tbl("table-delete-on-managed", {"reclaimPolicy": "Delete"}),
    _tbl(
        "table-most-columns",
        {
            "columns": [{"name": "id", "type": "long", "required": True}]
            + [{"name": f"c{i}", "type": "int"} for i in range(299)]
        },
    ),
    _si("index-in-hbase", {"store": HBASE}),
    _si(
        "index-in-hbase-framed",
        {
            "store": {
                **HBASE,
                "table": "lake:skipstone",
                "transport": "Framed",
                "port": 9091,
                "protocol": "Compact",
                "tls": True,
                "timeoutSeconds": 5,
            }
        },
    ),
    _si("index-smallest", {}),
    _si("index-with-included-columns", {"include": ["amount", "note"]}),
    _si("index-covering", {"type": "Covering", "include": ["amount"], "buckets": 16}),
    _si("index-manual-with-limits", {"maintenance": "Manual", "maxLagSegments": 3, "minCoveredPercent": 90}),
    _si("index-used-from-a-part-on", {"minCoveredPercent": 90, "unusedBelowPercent": 90}),
    _lj("load-smallest", {}),
    _lj(
        "load-json-with-mapping",
        {
            "source.format": "Json",
            "source.mapping": [{"column": "id", "from": "order_id"}],
            "source.columns": [{"name": "extra", "type": "timestamptz"}],
        },
    ),
    _lj("load-csv-options", {"source.options": {"header": "true", "delimiter": ";"}}),
    _lj("load-parquet", {"source.format": "Parquet"}),
    _lj("load-delta", {"source": {"delta": {"path": "lake/events"}}}),
    _lj(
        "load-delta-every-field",
        {"source": {"delta": {"path": "lake/events", "version": "7", "where": "day is null"}, "location": "landing"}},
    ),
    _mj("merge-new-of-delta", {"source": {"delta": {"path": "a", "startingVersion": "0"}, "consume": "New"}}),
    _lj("load-hive-folders", {"source.format": "Parquet", "source.hivePartitions": {}}),
    _lj(
        "load-hive-folders-every-field",
        {
            "source.format": "Parquet",
            "source.hivePartitions": {"columns": [{"name": "day", "type": "date"}], "where": "day > date '2026-01-01'"},
        },
    ),
    _lj("load-register", {"source.format": "Parquet", "mode": "Register", "badRecords": {"policy": "Fail"}}),
    _lj("load-from-a-location", {"source.location": "landing"}),
    _lj("load-redirect-with-bound", {"badRecords": {"policy": "Redirect", "maxCount": 10}}),
    _lj(
        "load-from-a-table",
        {"source": {"table": {"name": "raw", "where": "day > date '2026-01-01'", "ref": "audit"}, "consume": "New"}},
    ),
    _lj(
        "load-from-a-snapshot",
        {"source": {"table": {"name": "raw", "snapshot": "5781947118336215154", "fromSnapshot": "0"}}},
    ),
    _lj("load-dots-inside-a-name", {"source.paths": ["landing/a..b.csv", "./x.csv"]}),
    _lj(
        "load-run-fields",
        {
            "suspend": True,
            "backoffLimit": 0,
            "activeDeadlineSeconds": 60,
            "ttlSecondsAfterFinished": 0,
            "timeZone": "Europe/Berlin",
        },
    ),
    _mj("merge-smallest", {}),
    _mj(
        "merge-every-clause",
        {
            "sequenceBy": "seq",
            "whenMatched": [
                {"when": "source.op = 'D'", "action": "Delete"},
                {"action": "Update", "set": {"price": "new_price", "day": "date '2024-12-31'"}},
            ],
            "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert", "values": {"id": "order_id"}}],
            "whenNotMatchedBySource": [
                {"when": "target.price < 1", "action": "Update", "set": {"price": "null"}},
                {"action": "Delete"},
            ],
            "targetSequence": "version",
            "targetWhere": "target.price > source.new_price",
            "schemaEvolution": "AddColumns",
            "pruning": {"strategy": "MinMax", "disabledStages": ["Partitions", "KeyRanges"]},
        },
    ),
    _mj("merge-from-a-table", {"source": {"table": {"name": "raw"}, "mapping": [{"column": "id", "from": "nr"}]}}),
    _mj(
        "merge-of-changes",
        {"source": {"table": {"name": "raw", "changes": True}, "consume": "New"}, "whenMatched": ABSENT},
    ),
    _mj("merge-from-a-location", {"source.location": "landing"}),
    _mj("merge-by-source-only", {"whenMatched": ABSENT, "whenNotMatchedBySource": [{"action": "Delete"}]}),
    _mj("merge-inserts-only", {"whenMatched": ABSENT, "whenNotMatched": [{"action": "Insert"}]}),
    _mj("merge-present-columns", {"whenMatched": [{"action": "Update", "columns": "Present"}]}),
    _mj("merge-all-columns", {"whenMatched": [{"action": "Update", "columns": "All", "set": {"a": "b"}}]}),
)

LONG = "x" * 256
REJECTED = (
    # Warehouse
    _wh("rest-without-uri", {"catalog": {"type": "Rest"}}, "spec.catalog.uri", "catalog.uri of a Rest catalog must"),
    _wh("rest-with-other-scheme", {"catalog": {"type": "Rest", "uri": "ftp://x"}}, "spec.catalog.uri",
        "catalog.uri of a Rest catalog must"),
    _wh("sql-with-other-scheme", {"catalog.uri": "mysql://db/x"}, "spec.catalog.uri",
        "catalog.uri of an Sql catalog must begin with postgresql://"),
    _wh("sqlite-outside-the-claim", {"catalog.uri": "sqlite:////etc/passwd"}, "spec.catalog.uri",
        "catalog.uri of an Sql catalog must begin"),
    _wh("sqlite-climbing-out", {"catalog.uri": "sqlite:////skipstone/lake/../../etc/x"}, "spec.catalog.uri",
        "catalog.uri may not contain '..'"),
    _wh("password-in-uri", {"catalog.uri": "postgresql://me:secret@db/x"}, "spec.catalog.uri",
        "catalog.uri may not contain a password"),
    _wh("storage-of-two-kinds", {**REST, "storage.s3": S3}, "spec.storage", f"storage takes {ONE_PLACE}"),
    _wh("storage-of-no-kind", {"storage": {}}, "spec.storage", f"storage takes {ONE_PLACE}"),
    _wh("sqlite-in-a-bucket", {"storage": {"s3": S3}}, "spec.catalog.uri",
        f"with postgresql:// when storage is {BUCKETS}"),
    _wh("sqlite-file-in-a-bucket", {"storage": {"s3": S3}, "catalog.uri": "sqlite:////skipstone/lake/c.db"},
        "spec.catalog.uri", f"must begin with postgresql:// when storage is {BUCKETS}"),
    _wh("bucket-name-ill-formed", {**IN_BUCKET, "storage.s3.bucket": "s3://lake"}, "spec.storage.s3.bucket",
        "s3.bucket must be the name of a bucket"),
    *(
        _wh(f"prefix-{name}", {**IN_BUCKET, "storage.s3.prefix": prefix}, "spec.storage.s3.prefix",
            "s3.prefix must be folders with '/' between them")
        for name, prefix in {"absolute": "/prod", "climbing": "prod/../x", "own-records": ".skipstone", "empty-level":
                             "a//b", "address": "s3://lake/prod"}.items()
    ),
    _wh("region-ill-formed", {**IN_BUCKET, "storage.s3.region": "EU Central"}, "spec.storage.s3.region",
        "s3.region must be the name of a region"),
    *(
        _wh(f"endpoint-{name}", {**IN_BUCKET, "storage.s3.endpoint": endpoint}, "spec.storage.s3.endpoint",
            "s3.endpoint must be an http:// or https:// address")
        for name, endpoint in {"without-scheme": "s3.example.org", "with-login": "https://key:secret@s3",
                               "with-path": "https://s3/lake", "with-parameter": "https://s3?x=y"}.items()
    ),
    _wh("bucket-secret-ill-formed", {**IN_BUCKET, "storage.s3.credentialsSecretRef": {"name": "A_B"}},
        "spec.storage.s3.credentialsSecretRef.name", "name must be a Kubernetes name"),
    _wh("bucket-keys-twice", {
        **IN_BUCKET, "storage.s3.credentialsSecretRef": {"name": "keys"},
        "credentialsSecretRef": {"name": "db", "keys": ["AWS_ACCESS_KEY_ID"]},
    }, "spec.credentialsSecretRef.keys", "credentialsSecretRef.keys may not hold AWS_ACCESS_KEY_ID"),
    _wh("authorities-name-ill-formed", {"caBundleRef": {"name": "A_B"}}, "spec.caBundleRef.name",
        "caBundleRef.name must be a Kubernetes name"),
    _wh("authorities-key-ill-formed", {"caBundleRef": {"name": "ca", "key": "a/b"}}, "spec.caBundleRef.key",
        "caBundleRef.key may hold letters"),
    _wh("location-of-two-kinds", _locations({"name": "a", "s3": S3, "pvc": {"claimName": "drop"}}),
        "spec.sourceLocations[0]", f"sourceLocations[] takes {ONE_PLACE}"),
    _wh("location-of-no-kind", _locations({"name": "a"}), "spec.sourceLocations[0]",
        f"sourceLocations[] takes {ONE_PLACE}"),
    _wh("location-name-ill-formed", _locations({"name": "A b", "s3": S3}), "spec.sourceLocations[0].name",
        "sourceLocations[].name must be lower-case"),
    _wh("location-claim-ill-formed", _locations({"name": "a", "pvc": {"claimName": "A_B"}}),
        "spec.sourceLocations[0].pvc.claimName", "claimName must be a Kubernetes name"),
    _wh("location-prefix-climbing", _locations({"name": "a", "s3": {"bucket": "lake", "prefix": "a/.."}}),
        "spec.sourceLocations[0].s3.prefix", "s3.prefix must be folders"),
    _wh("location-twice", _locations({"name": "a", "s3": S3}, {"name": "a", "s3": S3}), "spec.sourceLocations",
        "a", by_schema=True),
    _wh("event-log-age-ill-formed", {"spark.eventLog": {"maxAge": "1 week"}}, "spec.spark.eventLog.maxAge",
        "eventLog.maxAge must be a time from 1m to 9999d: write for example 12h or 7d"),
    _wh("catalog-name-ill-formed", {"catalog.name": "a b"}, "spec.catalog.name", "catalog.name must begin with a"),
    _wh("catalog-property-unknown", {"catalog.properties": {"token": "abc"}}, "spec.catalog.properties",
        "catalog.properties does not accept 'token'"),
    _wh("claim-name-ill-formed", {"storage.pvc.claimName": "My Claim"}, "spec.storage.pvc.claimName",
        "claimName must be a Kubernetes name"),
    _wh("secret-name-ill-formed", {"credentialsSecretRef": {"name": "A_B", "keys": ["AWS_X"]}},
        "spec.credentialsSecretRef.name", "credentialsSecretRef.name must be a Kubernetes name"),
    _wh("secret-key-ill-formed", {"credentialsSecretRef": {"name": "db", "keys": ["AWS_X-Y"]}},
        "spec.credentialsSecretRef.keys[0]", "credentialsSecretRef.keys must be names of environment variables"),
    _wh("secret-key-of-others", {"credentialsSecretRef": {"name": "db", "keys": ["LD_PRELOAD"]}},
        "spec.credentialsSecretRef.keys", "credentialsSecretRef.keys must begin with SKIPSTONE_CATALOG_"),
    _wh("account-name-ill-formed", {"spark.serviceAccountName": "A_B"}, "spec.spark.serviceAccountName",
        "serviceAccountName must be a Kubernetes name"),
    _wh("memory-without-unit", {"spark.driver": {"memory": "1024"}}, "spec.spark.driver.memory",
        "memory must be a whole number with a unit"),
    _wh("spark-conf-unknown", {"spark.conf": {"spark.driver.extraJavaOptions": "-X"}}, "spec.spark.conf",
        "spark.conf does not accept 'spark.driver.extraJavaOptions'"),
    _wh("spark-conf-value", {"spark.conf": {"spark.kubernetes.driver.request.cores": "many; id"}}, "spec.spark.conf",
        "spark.conf values are numbers, sizes, times, true or false"),
    _wh("spark-conf-digits", {"spark.conf": {"spark.driver.memoryOverheadFactor": "9" * 400}}, "spec.spark.conf",
        "spark.conf values are numbers, sizes, times, true or false"),
    _wh("index-namespace-with-dot-at-end", {"indexNamespace": "a."}, "spec.indexNamespace", "indexNamespace may hold"),
    _wh("kept-drivers-beyond-their-maximum", {"warmDrivers": {"min": 3, "max": 2}}, "spec.warmDrivers.max",
        "warmDrivers.max must be at least warmDrivers.min"),
    _wh("kept-drivers-with-executors", {"warmDrivers": {}, "spark.executor": {"instances": 1}}, "spec.warmDrivers",
        "warmDrivers needs spark.executor.instances 0"),
    _wh("kept-drivers-idle-for-seconds", {"warmDrivers": {"idleSeconds": 1}}, "spec.warmDrivers.idleSeconds", "10",
        by_schema=True),
    _wh("runs-at-least-one", {"maxConcurrentRuns": 0}, "spec.maxConcurrentRuns", "1", by_schema=True),
    # Table
    _tbl("type-unknown", {"columns.1.type": "varchar"}, "spec.columns[1].type",
         "columns[].type must be one of boolean, int, long"),
    _tbl("type-nested", {"columns.1.type": "list<int>"}, "spec.columns[1].type", "nested types are not supported"),
    _tbl("type-decimal-too-wide", {"columns.1.type": "decimal(39,2)"}, "spec.columns[1].type",
         "columns[].type must be one of"),
    _tbl("identifier-namespace-without-a-level", {"identifier.namespace": "a..b"}, "spec.identifier.namespace",
         "identifier.namespace may hold letters"),
    _tbl("identifier-name-with-dot", {"identifier.name": "a.b"}, "spec.identifier.name",
         "identifier.name may hold letters, digits, '_' and '-' only: write the namespace into"),
    _tbl("identifier-name-with-space", {"identifier.name": "a b"}, "spec.identifier.name",
         "identifier.name may hold letters"),
    _tbl("identifier-of-an-index-table", {"identifier.name": "orders__si_x"}, "spec.identifier.name",
         "identifier.name may not contain '__si_'"),
    _tbl("bucket-without-width", {"partitioning": [{"column": "id", "transform": "Bucket"}]},
         "spec.partitioning[0].width", "partitioning[].width is needed for"),
    _tbl("day-with-width", {"partitioning": [{"column": "day", "transform": "Day", "width": 3}]},
         "spec.partitioning[0].width", "partitioning[].width is needed for"),
    _tbl("managed-without-columns", {"columns": ABSENT, "primaryKey": ABSENT}, "spec.columns",
         "columns must list at least one column"),
    Case("observed-with-columns", "Table", OBSERVED, {"columns": [{"name": "a", "type": "int"}]}, "spec.columns",
         "columns is not allowed with management Observed"),
    Case("observed-with-primary-key", "Table", OBSERVED, {"primaryKey": ["a"]}, "spec.primaryKey",
         "primaryKey is not allowed with management Observed"),
    Case("observed-with-partitioning", "Table", OBSERVED, {"partitioning": [{"column": "a"}]}, "spec.partitioning",
         "partitioning is not allowed with management Observed"),
    Case("observed-with-sort-order", "Table", OBSERVED, {"sortOrder": [{"column": "a"}]}, "spec.sortOrder",
         "sortOrder is not allowed with management Observed"),
    Case("observed-with-properties", "Table", OBSERVED, {"properties": {"comment": "x"}}, "spec.properties",
         "properties is not allowed with management Observed"),
    Case("observed-with-delete", "Table", OBSERVED, {"reclaimPolicy": "Delete"}, "spec.reclaimPolicy",
         "reclaimPolicy Delete is not allowed with management Observed"),
    _tbl("primary-key-unknown", {"primaryKey": ["nope"]}, "spec.primaryKey",
         "primaryKey names a column that spec.columns does not list"),
    _tbl("primary-key-twice", {"primaryKey": ["id", "id"]}, "spec.primaryKey", "primaryKey names a column twice"),
    _tbl("primary-key-nullable", {"columns.0.required": False}, "spec.primaryKey",
         "primaryKey columns must be declared with required: true"),
    _tbl("partition-column-unknown", {"partitioning": [{"column": "nope", "transform": "Day"}]}, "spec.partitioning",
         "partitioning names a column that spec.columns does not list"),
    _tbl("sort-column-unknown", {"sortOrder": [{"column": "nope"}]}, "spec.sortOrder",
         "sortOrder names a column that spec.columns does not list"),
    _tbl("property-commit-retry", {"properties": {"commit.retry.num-retries": "9"}}, "spec.properties",
         "properties does not accept 'commit.retry.num-retries'"),
    _tbl("property-of-skipstone", {"properties": {"skipstone.owner": "me"}}, "spec.properties",
         "properties does not accept 'skipstone.owner'"),
    _tbl("refresh-too-often", {"refreshIntervalSeconds": 5}, "spec.refreshIntervalSeconds",
         "refreshIntervalSeconds must be 0 (off) or at least 30"),
    _tbl("reference-ill-formed", {"warehouseRef.name": "Other/Lake"}, "spec.warehouseRef.name",
         "name must be a Kubernetes name"),
    _tbl("column-twice", {"columns.3": {"name": "id", "type": "int"}}, "spec.columns", "id", by_schema=True),
    _tbl("too-many-columns", {"columns": [{"name": "id", "type": "long", "required": True}]
                              + [{"name": f"c{i}", "type": "int"} for i in range(1000)]},
         "spec.columns", "1000", by_schema=True),
    _tbl("column-name-too-long", {"columns.1.name": LONG}, "spec.columns[1].name", "255", by_schema=True),
    _tbl("column-name-empty", {"columns.1.name": ""}, "spec.columns[1].name", "1", by_schema=True),
    _tbl("columns-differ-in-case-only", {"columns.1.name": "ID"}, "spec.columns[1].name", "differ in case only",
         operator_only=True),
    _tbl("decimal-scale-above-precision", {"columns.2.type": "decimal(2,9)"}, "spec.columns[2].type",
         "more digits after the point", operator_only=True),
    _tbl("primary-key-float", {"columns.0.type": "double"}, "spec.primaryKey[0]", "which no key may be",
         operator_only=True),
    _tbl("day-of-a-number", {"partitioning": [{"column": "id", "transform": "Day"}]},
         "spec.partitioning[0].transform", "Day cannot be made from column id of type long", operator_only=True),
    _tbl("partition-twice", {"partitioning": [{"column": "day", "transform": "Day"}] * 2}, "spec.partitioning[1]",
         "listed before", operator_only=True),
    # SecondaryIndex
    _si("index-without-columns", {"columns": []}, "spec.columns", "1", by_schema=True),
    _si("index-column-twice", {"columns": ["id", "id"]}, "spec.columns", "columns names a column twice"),
    _si("index-percent-above-hundred", {"minCoveredPercent": 101}, "spec.minCoveredPercent", "100", by_schema=True),
    _si("index-unused-below-above-hundred", {"unusedBelowPercent": 101}, "spec.unusedBelowPercent", "100",
        by_schema=True),
    _si("index-unused-when-ready", {"minCoveredPercent": 50, "unusedBelowPercent": 51}, "spec.unusedBelowPercent",
        "unusedBelowPercent is greater than minCoveredPercent"),
    _si("index-with-many-columns", {"columns": [f"c{i}" for i in range(33)]}, "spec.columns", "32", by_schema=True),
    _si("index-includes-twice", {"include": ["a", "a"]}, "spec.include", "include names a column twice"),
    _si("index-includes-a-key", {"include": ["a", "day"]}, "spec.include",
        "include names a column that columns names already"),
    _si("index-includes-many", {"include": [f"c{i}" for i in range(33)]}, "spec.include", "32", by_schema=True),
    _si("index-includes-nothing", {"include": [""]}, "spec.include[0]", "1", by_schema=True),
    _si("index-covering-without-buckets", {"type": "Covering"}, "spec.type",
        "buckets is required for an index of type Covering"),
    _si("index-buckets-without-covering", {"buckets": 16}, "spec.buckets",
        "buckets is for indexes of type Covering only"),
    _si("index-one-bucket", {"type": "Covering", "buckets": 1}, "spec.buckets", "2", by_schema=True),
    _si("index-many-buckets", {"type": "Covering", "buckets": 1025}, "spec.buckets", "1024", by_schema=True),
    _si("index-store-address", {"store": {**HBASE, "host": "http://hbase:9090"}}, "spec.store.host",
        "store.host must be a host name or an IPv4 address"),
    _si("index-store-table", {"store": {**HBASE, "table": "a/b"}}, "spec.store.table", "store.table must be a name"),
    _si("index-store-port", {"store": {**HBASE, "port": 0}}, "spec.store.port", "1", by_schema=True),
    _si("index-store-patience", {"store": {**HBASE, "timeoutSeconds": 601}}, "spec.store.timeoutSeconds", "600",
        by_schema=True),
    _si("index-store-with-values", {"store": HBASE, "include": ["a"]}, "spec.store",
        "store is for indexes of type Lookup without include only"),
    _si("index-store-of-buckets", {"store": HBASE, "type": "Covering", "buckets": 4}, "spec.store",
        "store is for indexes of type Lookup without include only"),
    _si("index-reference-ill-formed", {"tableRef.name": "A b"}, "spec.tableRef.name", "name must be a Kubernetes name"),
    # LoadJob
    _lj("path-absolute", {"source.paths": ["/etc/passwd"]}, "spec.source.paths", "source.paths must be relative"),
    _lj("path-with-scheme", {"source.paths": ["s3://bucket/a"]}, "spec.source.paths", "source.paths must be relative"),
    _lj("path-with-backslash", {"source.paths": ["a\\b"]}, "spec.source.paths", "source.paths must be relative"),
    _lj("path-climbing-out", {"source.paths": ["landing/../../x"]}, "spec.source.paths",
        "source.paths may not contain '..'"),
    _lj("path-into-own-records", {"source.paths": ["./.skipstone/runs"]}, "spec.source.paths",
        "source.paths may not lead into '.skipstone'"),
    _lj("no-path", {"source.paths": []}, "spec.source.paths", "1", by_schema=True),
    _lj("files-and-a-table", {"source.table": {"name": "raw"}}, "spec.source", "source takes either files or a table"),
    _lj("neither-files-nor-a-table", {"source": {"consume": "All"}}, "spec.source",
        "source takes either files or a table"),
    _lj("load-branch-main", {"branch": {"name": "main"}}, "spec.branch.name", "branch names another branch than main"),
    _mj("merge-branch-main", {"branch": {"name": "main"}}, "spec.branch.name", "branch names another branch than main"),
    _lj("files-without-format", {"source": {"paths": ["a"]}}, "spec.source", "source takes either files or a table"),
    _lj("table-and-delta", {"source": {"table": {"name": "raw"}, "delta": {"path": "a"}}}, "spec.source",
        "source takes either files or a table"),
    _lj("delta-new-and-version", {"source": {"delta": {"path": "a", "version": "1"}, "consume": "New"}},
        "spec.source.consume", "source.consume New reads up to the newest version"),
    _lj("delta-that-settles", {"source": {"delta": {"path": "a"}, "settleSeconds": 5}},
        "spec.source.settleSeconds", "source.settleSeconds is for files only: remove it beside source.delta"),
    _lj("delta-climbing-out", {"source": {"delta": {"path": "a/../../b"}}}, "spec.source.delta.path",
        "source.delta.path must be a folder below the root"),
    _lj("delta-version-ill-formed", {"source": {"delta": {"path": "a", "version": "latest"}}},
        "spec.source.delta.version", "source.delta.version must be the number of a version"),
    _lj("delta-start-ill-formed", {"source": {"delta": {"path": "a", "startingVersion": "-1"}}},
        "spec.source.delta.startingVersion", "source.delta.startingVersion must be the number of a version"),
    _lj("folders-of-csv", {"source.format": "Csv", "source.hivePartitions": {}}, "spec.source.hivePartitions",
        "source.hivePartitions is for the format Parquet only"),
    _lj("folders-registered", {"source.format": "Parquet", "mode": "Register", "source.hivePartitions": {}},
        "spec.source", "source.hivePartitions is for the mode Copy only"),
    _lj("folder-column-of-unknown-type", {"source.format": "Parquet", "source.hivePartitions": {
        "columns": [{"name": "day", "type": "day"}]}}, "spec.source.hivePartitions.columns[0].type",
        "source.columns[].type must be one of"),
    _lj("load-of-changes", {"source": {"table": {"name": "raw", "changes": True}}}, "spec.source",
        "source.table.changes is for a MergeJob only"),
    _lj("table-at-a-location", {"source": {"table": {"name": "raw"}, "location": "landing"}}, "spec.source.table",
        "source.location and source.settleSeconds are for files only"),
    _lj("table-that-settles", {"source": {"table": {"name": "raw"}, "settleSeconds": 5}}, "spec.source.table",
        "source.location and source.settleSeconds are for files only"),
    _lj("table-snapshot-and-ref", {"source": {"table": {"name": "raw", "snapshot": "1", "ref": "x"}}},
        "spec.source.table.ref", "source.table takes one of snapshot and ref"),
    _lj("table-new-and-snapshot", {"source": {"table": {"name": "raw", "snapshot": "1"}, "consume": "New"}},
        "spec.source.consume", "source.consume New reads up to the newest snapshot"),
    _lj("table-snapshot-ill-formed", {"source": {"table": {"name": "raw", "snapshot": "latest"}}},
        "spec.source.table.snapshot", "source.table.snapshot must be the id of a snapshot"),
    _lj("table-from-ill-formed", {"source": {"table": {"name": "raw", "fromSnapshot": "-1"}}},
        "spec.source.table.fromSnapshot", "source.table.fromSnapshot must be the id of a snapshot"),
    _lj("table-name-ill-formed", {"source": {"table": {"name": "A b"}}}, "spec.source.table.name",
        "source.table.name must be a Kubernetes name"),
    _lj("option-unknown", {"source.options": {"mode": "DROPMALFORMED"}}, "spec.source.options",
        "source.options does not accept 'mode'"),
    _lj("options-of-parquet", {"source.format": "Parquet", "source.options": {"header": "true"}},
        "spec.source.options", "source.options is for the formats Csv and Json only"),
    _lj("columns-of-orc", {"source.format": "Orc", "source.columns": [{"name": "a", "type": "int"}]},
        "spec.source.columns", "source.columns is for the formats Csv and Json only"),
    _lj("source-type-unknown", {"source.columns": [{"name": "a", "type": "text"}]}, "spec.source.columns[0].type",
        "source.columns[].type must be one of"),
    _lj("bound-with-policy-fail", {"badRecords": {"policy": "Fail", "maxCount": 3}}, "spec.badRecords.maxCount",
        "badRecords.maxCount is for the policies Redirect and Drop only"),
    _lj("register-csv", {"mode": "Register"}, "spec.mode", "mode Register takes files of the format Parquet only"),
    _lj("register-with-bad-records", {"mode": "Register", "source.format": "Parquet",
                                      "badRecords": {"policy": "Drop"}},
        "spec.badRecords", "badRecords is for the mode Copy only"),
    _lj("register-with-unknown-columns", {"mode": "Register", "source.format": "Parquet",
                                          "source.unknownColumns": "Add"},
        "spec.source", "source.unknownColumns is for the mode Copy only"),
    _lj("time-zone-ill-formed", {"timeZone": "Berlin; DROP"}, "spec.timeZone", "timeZone must be the name of"),
    _lj("mapping-twice", {"source.mapping": [{"column": "id", "from": "a"}, {"column": "id", "from": "b"}]},
        "spec.source.mapping", "id", by_schema=True),
    _lj("load-reference-ill-formed", {"tableRef.name": "A b"}, "spec.tableRef.name", "name must be a Kubernetes name"),
    # MergeJob
    _mj("merge-folders-of-csv", {"source.format": "Csv", "source.hivePartitions": {}}, "spec.source.hivePartitions",
        "source.hivePartitions is for the format Parquet only"),
    _mj("merge-table-and-delta", {"source": {"table": {"name": "raw"}, "delta": {"path": "a"}}}, "spec.source",
        "source takes either files or a table"),
    _mj("merge-delta-new-and-version", {"source": {"delta": {"path": "a", "version": "1"}, "consume": "New"}},
        "spec.source.consume", "source.consume New reads up to the newest version"),
    _mj("merge-delta-that-settles", {"source": {"delta": {"path": "a"}, "settleSeconds": 5}},
        "spec.source.settleSeconds", "source.settleSeconds is for files only: remove it beside source.delta"),
    _mj("merge-delta-climbing-out", {"source": {"delta": {"path": "a/../../b"}}}, "spec.source.delta.path",
        "source.delta.path must be a folder below the root"),
    _mj("merge-delta-version-ill-formed", {"source": {"delta": {"path": "a", "version": "latest"}}},
        "spec.source.delta.version", "source.delta.version must be the number of a version"),
    _mj("merge-delta-start-ill-formed", {"source": {"delta": {"path": "a", "startingVersion": "-1"}}},
        "spec.source.delta.startingVersion", "source.delta.startingVersion must be the number of a version"),
    _mj("feed-of-delta", {**FEED, "source": {"delta": {"path": "a"}, "changeFormat": "Dms"}}, "spec.source.delta",
        "source.changeFormat and source.replayFrom are for files of changes only: remove them beside source.delta"),
    _mj("folders-of-a-feed", {**FEED, "source.format": "Parquet", "source.changeFormat": "Dms",
                              "source.hivePartitions": {}},
        "spec.source.hivePartitions", "source.hivePartitions is for plain rows only"),
    _mj("feed-in-another-format", {**FEED, "source.format": "Parquet"}, "spec.source.changeFormat",
        "source.changeFormat does not fit source.format"),
    _mj("changes-with-clauses", {"source": {"table": {"name": "raw", "changes": True}}}, "spec.source",
        "source.table.changes says what each change does"),
    _mj("changes-left-out", {"source": {"table": {"name": "raw", "changes": True}}, "whenMatched": ABSENT,
                             "badRecords": {"policy": "Drop"}},
        "spec.source", "source.table.changes says what each change does"),
    _mj("merge-files-and-a-table", {"source.table": {"name": "raw"}}, "spec.source",
        "source takes either files or a table"),
    _mj("merge-table-at-a-location", {"source": {"table": {"name": "raw"}, "location": "landing"}},
        "spec.source.table", "source.location and source.settleSeconds are for files only"),
    _mj("merge-table-snapshot-and-ref", {"source": {"table": {"name": "raw", "snapshot": "1", "ref": "x"}}},
        "spec.source.table.ref", "source.table takes one of snapshot and ref"),
    _mj("merge-table-new-and-snapshot", {"source": {"table": {"name": "raw", "snapshot": "1"}, "consume": "New"}},
        "spec.source.consume", "source.consume New reads up to the newest snapshot"),
    _mj("merge-table-snapshot-ill-formed", {"source": {"table": {"name": "raw", "snapshot": "latest"}}},
        "spec.source.table.snapshot", "source.table.snapshot must be the id of a snapshot"),
    _mj("merge-table-from-ill-formed", {"source": {"table": {"name": "raw", "fromSnapshot": "-1"}}},
        "spec.source.table.fromSnapshot", "source.table.fromSnapshot must be the id of a snapshot"),
    _mj("merge-table-name-ill-formed", {"source": {"table": {"name": "A b"}}}, "spec.source.table.name",
        "source.table.name must be a Kubernetes name"),
    _mj("feed-in-a-table", {"source": {"table": {"name": "raw"}, "changeFormat": "Debezium"}}, "spec.source.table",
        "source.changeFormat and source.replayFrom are for files of changes only"),
    _mj("feed-of-dms-in-json", {**FEED, "source.changeFormat": "Dms"}, "spec.source.changeFormat",
        "source.changeFormat does not fit source.format"),
    _mj("feed-of-maxwell-in-avro", {**FEED, "source.changeFormat": "Maxwell", "source.format": "Avro"},
        "spec.source.changeFormat", "source.changeFormat does not fit source.format"),
    _mj("feed-with-columns", {**FEED, "source.columns": [{"name": "a", "type": "int"}]}, "spec.source.changeFormat",
        "source.changeFormat takes names and types of columns from the table"),
    _mj("feed-with-mapping", {**FEED, "source.mapping": [{"column": "id", "from": "a"}]}, "spec.source.changeFormat",
        "source.changeFormat takes names and types of columns from the table"),
    _mj("feed-with-options", {**FEED, "source.options": {"multiLine": "true"}}, "spec.source.options",
        "source.options has no meaning for a change feed in Json"),
    _mj("feed-of-wal2json-in-avro", {**FEED, "source.changeFormat": "Wal2Json", "source.format": "Avro"},
        "spec.source.changeFormat", "source.changeFormat does not fit source.format"),
    _mj("feed-units-of-wal2json", {**FEED, "source.changeFormat": "Wal2Json", "source.timePrecision": "Micros"},
        "spec.source.changeFormat", "source.timePrecision, source.columnTimePrecisions and source.unavailableValue"),
    _mj("feed-tables-of-debezium", {**FEED, "source.tables": ["public.orders"]},
        "spec.source.changeFormat", f"source.tables is for the change formats {in_words(with_table_names())} only"),
    _mj("feed-truncate-of-maxwell", {**FEED, "source.changeFormat": "Maxwell", "source.allowTruncate": True},
        "spec.source.changeFormat", "source.allowTruncate, source.replicaIdentity"),
    _mj("feed-identity-of-maxwell", {**FEED, "source.changeFormat": "Maxwell", "source.replicaIdentity": ["id"]},
        "spec.source.changeFormat", "source.allowTruncate, source.replicaIdentity"),
    _mj("feed-infinity-of-dms", {**FEED, "source.format": "Csv", "source.changeFormat": "Dms",
                                 "source.infinity": "Null"},
        "spec.source.changeFormat", "source.allowTruncate, source.replicaIdentity"),
    _mj("feed-non-finite-of-maxwell", {**FEED, "source.changeFormat": "Maxwell", "source.nonFinite": "Null"},
        "spec.source.changeFormat", "source.allowTruncate, source.replicaIdentity"),
    _mj("feed-placeholder-of-maxwell", {**FEED, "source.changeFormat": "Maxwell", "source.unavailableValue": "?"},
        "spec.source.changeFormat", "source.timePrecision, source.columnTimePrecisions"),
    _mj("feed-units-of-maxwell", {**FEED, "source.changeFormat": "Maxwell",
                                  "source.columnTimePrecisions": [{"column": "at", "precision": "Micros"}]},
        "spec.source.changeFormat", "source.timePrecision, source.columnTimePrecisions"),
    _mj("feed-placeholder-without-octets", {**FEED, "source.unavailableValue": "hex:5"}, "spec.source.unavailableValue",
        "source.unavailableValue has 'hex:' without octets"),
    _mj("feed-in-any-case", {**FEED, "source.matchNames": "IgnoreCase"}, "spec.source.matchNames",
        "source.matchNames is not for change feeds"),
    _mj("equal-rows-without-feed", {"source.equalRows": "Collapse"}, "spec.source.equalRows",
        "source.equalRows is for change feeds only"),
    _mj("replay-of-all-files", {"source.replayFrom": "feeds/a"}, "spec.source.replayFrom",
        "source.replayFrom is for files that were consumed before"),
    _mj("generated-without-feed", {"source.generated": {"total": "price"}}, "spec.source.generated",
        "source.generated is for change feeds only"),
    _mj("rejected-without-feed", {"source.onlyRejected": True}, "spec.source.onlyRejected",
        "source.onlyRejected is for change feeds only"),
    _mj("rejected-and-consumed", {**FEED, "source.onlyRejected": True, "source.consume": "New"}, "spec.source.consume",
        "source.onlyRejected takes files that were consumed before"),
    _mj("bad-count-of-fail", {**FEED, "badRecords": {"policy": "Fail", "maxCount": 5}}, "spec.badRecords.maxCount",
        "badRecords.maxCount is for the policies Redirect and Drop only"),
    _mj("bad-by-source", {"badRecords": {"policy": "Drop"}, "whenNotMatchedBySource": [{"action": "Delete"}]},
        "spec.badRecords", "badRecords.policy must be Fail with whenNotMatchedBySource"),
    _mj("bad-of-present",
        {"badRecords": {"policy": "Drop"}, "whenMatched": [{"action": "Update", "columns": "Present"}]},
        "spec.badRecords", "badRecords.policy must be Fail with an Update of the columns Present"),
    _mj("bad-without-sequence", {"badRecords": {"policy": "Redirect"}, "whenMatched": [{"action": "Update"}]},
        "spec.badRecords", "badRecords.policy Redirect needs targetSequence"),
    _mj("feed-identity-without-key", {**FEED, "source.replicaIdentity": ["code"]}, "spec.keys",
        "source.replicaIdentity must have all keys"),
    _mj("feed-precision-without-feed", {"source.timePrecision": "Millis"}, "spec.source.changeFormat",
        "source.timePrecision, source.columnTimePrecisions"),
    _mj("feed-with-sequence", {**FEED, "sequenceBy": "ts"}, "spec.source",
        "source.changeFormat says what each change does and in which order"),
    _mj("feed-with-clauses", {**FEED, "whenMatched": [{"action": "Update"}]}, "spec.source",
        "source.changeFormat says what each change does and in which order"),
    _mj("feed-with-evolution", {**FEED, "schemaEvolution": "AddColumns"}, "spec.source",
        "source.changeFormat says what each change does and in which order"),
    _mj("evolution-said-twice", {"schemaEvolution": "AddColumns", "source.unknownColumns": "Add"},
        "spec.schemaEvolution", "schemaEvolution and source.unknownColumns say what becomes of the same columns"),
    _mj("feed-with-renamed-key", {**FEED, "keys": [{"target": "id", "source": "order_id"}]}, "spec.keys",
        "keys must pair each column with itself when source.changeFormat is set"),
    _mj("merge-stage-twice", {"pruning": {"disabledStages": ["KeyIndex", "KeyIndex"]}},
        "spec.pruning.disabledStages", "pruning.disabledStages names a stage twice"),
    _mj("merge-without-clause", {"whenMatched": ABSENT}, "spec.whenMatched",
        "whenMatched, whenNotMatched or whenNotMatchedBySource must have at least one clause"),
    _mj("merge-delete-with-set", {"whenMatched": [{"action": "Delete", "set": {"a": "b"}}]},
        "spec.whenMatched[0].set", "whenMatched[].set is for the action Update only"),
    _mj("merge-present-columns-with-set",
        {"whenMatched": [{"action": "Update", "columns": "Present", "set": {"a": "b"}}]},
        "spec.whenMatched[0].columns", "whenMatched[].columns: Present is for the action Update without set"),
    _mj("merge-delete-of-present-columns", {"whenMatched": [{"action": "Delete", "columns": "Present"}]},
        "spec.whenMatched[0].columns", "whenMatched[].columns: Present is for the action Update without set"),
    _mj("merge-clause-never-reached", {"whenMatched": [{"action": "Update"}, {"when": "source.a = 1",
                                                                             "action": "Delete"}]},
        "spec.whenMatched", "whenMatched has a clause without 'when' before another one"),
    _mj("merge-insert-never-reached", {"whenNotMatched": [{"action": "Insert"}, {"action": "Insert"}]},
        "spec.whenNotMatched", "whenNotMatched has a clause without 'when' before another one"),
    _mj("merge-by-source-never-reached", {"whenNotMatchedBySource": [{"action": "Delete"}, {"action": "Delete"}]},
        "spec.whenNotMatchedBySource", "whenNotMatchedBySource has a clause without 'when' before another one"),
    _mj("merge-by-source-update-without-set", {"whenNotMatchedBySource": [{"action": "Update"}]},
        "spec.whenNotMatchedBySource[0].set", "whenNotMatchedBySource[].set is for the action Update, which needs it"),
    _mj("merge-by-source-delete-with-set", {"whenNotMatchedBySource": [{"action": "Delete", "set": {"a": "1"}}]},
        "spec.whenNotMatchedBySource[0].set", "whenNotMatchedBySource[].set is for the action Update, which needs it"),
    _mj("merge-by-source-names-source", {"whenNotMatchedBySource": [{"when": "source.a = 1", "action": "Delete"}]},
        "spec.whenNotMatchedBySource[0].when", "column source.a must be written as target.a", operator_only=True),
    _mj("merge-by-source-sets-a-column", {"whenNotMatchedBySource": [{"action": "Update", "set": {"a": "b"}}]},
        "spec.whenNotMatchedBySource[0].set.a", "b is a column, and these rows have no source row", operator_only=True),
    _mj("merge-set-is-no-value", {"whenMatched": [{"action": "Update", "set": {"a": "b 1"}}]},
        "spec.whenMatched[0].set.a", "at position 3", operator_only=True),
    _mj("merge-stored-sequence-alone", {"targetSequence": "version"}, "spec.targetSequence",
        "targetSequence needs sequenceBy"),
    _mj("merge-without-keys", {"keys": []}, "spec.keys", "1", by_schema=True),
    _mj("merge-key-twice", {"keys": [{"target": "id", "source": "a"}, {"target": "id", "source": "b"}]},
        "spec.keys", "id", by_schema=True),
    _mj("merge-predicate-too-long", {"whenMatched": [{"when": "x" * 4097, "action": "Update"}]},
        "spec.whenMatched[0].when", "4096", by_schema=True),
    _mj("merge-predicate-with-function", {"whenMatched": [{"when": "upper(source.a) = 'X'", "action": "Update"}]},
        "spec.whenMatched[0].when", "position", operator_only=True),
    _mj("merge-insert-names-target", {"whenNotMatched": [{"when": "target.a = 1", "action": "Insert"}]},
        "spec.whenNotMatched[0].when", "column target.a must be written as source.a", operator_only=True),
    _mj("merge-target-where-names-no-side", {"targetWhere": "a = 1"}, "spec.targetWhere",
        "column a must be written as source.a or target.a", operator_only=True),
    _mj("merge-path-climbing-out", {"source.paths": ["../x"]}, "spec.source.paths",
        "source.paths may not contain '..'"),
    _lj("location-as-path", {"source.location": "landing/erp"}, "spec.source.location",
        "source.location must be the name of a source location"),
    _mj("merge-location-as-path", {"source.location": "s3://landing"}, "spec.source.location",
        "source.location must be the name of a source location"),
    _mj("merge-path-absolute", {"source.paths": ["/x"]}, "spec.source.paths", "source.paths must be relative"),
    _mj("merge-path-into-own-records", {"source.paths": [".skipstone"]}, "spec.source.paths",
        "source.paths may not lead into '.skipstone'"),
    _mj("merge-option-unknown", {"source.options": {"sep": ";"}}, "spec.source.options",
        "source.options does not accept 'sep'"),
    _mj("merge-options-of-avro", {"source.format": "Avro", "source.options": {"header": "true"}},
        "spec.source.options", "source.options is for the formats Csv and Json only"),
    _mj("merge-columns-of-parquet", {"source.format": "Parquet", "source.columns": [{"name": "a", "type": "int"}]},
        "spec.source.columns", "source.columns is for the formats Csv and Json only"),
    _mj("merge-source-type-unknown", {"source.columns": [{"name": "a", "type": "text"}]},
        "spec.source.columns[0].type", "source.columns[].type must be one of"),
    _mj("merge-time-zone-ill-formed", {"timeZone": "a b"}, "spec.timeZone", "timeZone must be the name of"),
    _mj("merge-reference-ill-formed", {"tableRef.name": "A b"}, "spec.tableRef.name", "name must be a Kubernetes name"),
)  # fmt: skip

#: Values of fields that an enumeration or a type refuses: the typed model cannot even hold them.
#: What the API server refuses in a new object, and the operator accepts in one that has it already.
BY_API_ONLY = (
    _tbl(
        "type-closed-to-spark", {"columns.1.type": "time"}, "spec.columns", "columns[].type time closes the whole table"
    ),
)
UNTYPED = (
    _wh("storage-s3-without-bucket", {"storage": {"s3": {"prefix": "prod"}}}, "spec.storage.s3.bucket", "Required"),
    _wh("location-without-name", {"sourceLocations": [{"pvc": {"claimName": "drop"}}]}, "spec.sourceLocations[0].name",
        "Required"),
    _wh("small-work-unknown", {"spark.smallWork": "Executors"}, "spec.spark.smallWork", "Driver"),
    _wh("catalog-hive", {"catalog.type": "Hive"}, "spec.catalog.type", "Sql"),
    _wh("catalog-glue", {"catalog.type": "Glue"}, "spec.catalog.type", "Rest"),
    _tbl("transform-unknown", {"partitioning": [{"column": "id", "transform": "Hash"}]},
         "spec.partitioning[0].transform", "Bucket"),
    _tbl("without-warehouse", {"warehouseRef": ABSENT}, "spec.warehouseRef", "Required"),
    _si("index-type-bloom", {"type": "Bloom"}, "spec.type", "Lookup"),
    _si("index-store-without-host", {"store": {"type": "HBase"}}, "spec.store.host", "Required"),
    _si("index-store-unknown", {"store": {**HBASE, "type": "Redis"}}, "spec.store.type", "HBase"),
    _si("index-store-transport", {"store": {**HBASE, "transport": "Http"}}, "spec.store.transport", "Buffered"),
    _lj("unknown-columns-dropped", {"source.unknownColumns": "Drop"}, "spec.source.unknownColumns", "Ignore"),
    _lj("format-xml", {"source.format": "Xml"}, "spec.source.format", "Parquet"),
    _mj("merge-pruning-by-index", {"pruning": {"strategy": "Index"}}, "spec.pruning.strategy", "MinMax"),
    _mj("merge-stage-unknown", {"pruning": {"disabledStages": ["ExactJoin"]}}, "spec.pruning.disabledStages[0]",
        "KeyIndex"),
    _mj("merge-matched-insert", {"whenMatched": [{"action": "Insert"}]}, "spec.whenMatched[0].action", "Update"),
    _mj("merge-not-matched-delete", {"whenNotMatched": [{"action": "Delete"}]}, "spec.whenNotMatched[0].action",
        "Insert"),
    _lj("backoff-as-text", {"backoffLimit": "3"}, "spec.backoffLimit", "integer"),
)  # fmt: skip

#: Fields that are not in the schema until their engine exists: kubectl's strict validation names them.
LEFT_OUT = (
    _mj("merge-pruning-index", {"pruning": {"index": "x"}}, says="pruning.index"),
    _wh("warehouse-storage-gcs", {"storage.gcs": {"bucket": "b"}}, says="storage.gcs"),
    _tbl("table-misspelt-field", {"primarykey": ["id"]}, says="primarykey"),
)  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """A change of an existing object: refused at ``at`` with a text ``says``, or accepted when ``says`` is empty."""

    name: str
    kind: str
    spec: Manifest
    changes: dict[str, Any]
    at: str = ""
    says: str = ""


NEVER = "cannot be changed after creation"
EVER = "cannot be added, changed or removed after creation"
MUTABLE = {"suspend": True, "backoffLimit": 7, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 9}
EDITS = (
    Edit("catalog-name", "Warehouse", WAREHOUSE, {"catalog.name": "other"}, "spec.catalog.name",
         f"catalog.name {NEVER}"),
    Edit("warehouse-spark", "Warehouse", WAREHOUSE, {"spark.executor": {"instances": 3}}),
    Edit("table-warehouse", "Table", TABLE, {"warehouseRef.name": "x"}, "spec.warehouseRef", f"warehouseRef {NEVER}"),
    Edit("table-identifier", "Table", TABLE, {"identifier.name": "x"}, "spec.identifier", f"identifier {NEVER}"),
    Edit("table-add-column", "Table", TABLE, {"columns.3": {"name": "note", "type": "string"}}),
    Edit("index-table", "SecondaryIndex", INDEX, {"tableRef.name": "x"}, "spec.tableRef", f"tableRef {NEVER}"),
    Edit("index-columns", "SecondaryIndex", INDEX, {"columns": ["day", "id"]}, "spec.columns", f"columns {NEVER}"),
    Edit("index-include", "SecondaryIndex", INDEX, {"include": ["a"]}, "spec.include", f"include {EVER}"),
    Edit("index-type", "SecondaryIndex", INDEX, {"type": "Covering", "buckets": 4}, "spec.type", f"type {NEVER}"),
    Edit("index-buckets", "SecondaryIndex", {**INDEX, "type": "Covering", "buckets": 4}, {"buckets": 8},
         "spec.buckets", f"buckets {EVER}"),
    Edit("index-store-added", "SecondaryIndex", INDEX, {"store": HBASE}, "spec.store", "store cannot be added"),
    Edit("index-store-moved", "SecondaryIndex", {**INDEX, "store": HBASE}, {"store.host": "other"}),
    Edit("index-suspend", "SecondaryIndex", INDEX, {"suspend": True, "maintenance": "Manual"}),
    Edit("load-table", "LoadJob", LOAD, {"tableRef.name": "x"}, "spec.tableRef", f"tableRef {NEVER}"),
    Edit("load-source", "LoadJob", LOAD, {"source.paths": ["x"]}, "spec.source", f"source {NEVER}"),
    Edit("load-bad-records", "LoadJob", LOAD, {"badRecords": {"policy": "Drop"}}, "spec.badRecords",
         f"badRecords {EVER}"),
    Edit("load-mode", "LoadJob", {**LOAD, "source": {"format": "Parquet", "paths": ["lake"]}}, {"mode": "Register"},
         "spec.mode", f"mode {EVER}"),
    Edit("load-branch", "LoadJob", LOAD, {"branch": {"name": "audit"}}, "spec.branch", f"branch {EVER}"),
    Edit("load-time-zone", "LoadJob", LOAD, {"timeZone": "Asia/Tokyo"}, "spec.timeZone", f"timeZone {EVER}"),
    Edit("load-run-fields", "LoadJob", LOAD, MUTABLE),
    Edit("merge-table", "MergeJob", MERGE, {"tableRef.name": "x"}, "spec.tableRef", f"tableRef {NEVER}"),
    Edit("merge-source", "MergeJob", MERGE, {"source.duplicates": "Allow"}, "spec.source", f"source {NEVER}"),
    Edit("merge-keys", "MergeJob", MERGE, {"keys.0.source": "x"}, "spec.keys", f"keys {NEVER}"),
    Edit("merge-bad-records", "MergeJob", MERGE, {"badRecords": {"policy": "Fail"}}, "spec.badRecords",
         f"badRecords {EVER}"),
    Edit("merge-sequence-added", "MergeJob", MERGE, {"sequenceBy": "x"}, "spec.sequenceBy", f"sequenceBy {EVER}"),
    Edit("merge-clause-removed", "MergeJob", {**MERGE, "whenNotMatched": [{"action": "Insert"}]},
         {"whenMatched": ABSENT}, "spec.whenMatched", f"whenMatched {EVER}"),
    Edit("merge-by-source-added", "MergeJob", MERGE, {"whenNotMatchedBySource": [{"action": "Delete"}]},
         "spec.whenNotMatchedBySource", f"whenNotMatchedBySource {EVER}"),
    Edit("merge-stored-sequence", "MergeJob", {**MERGE, "sequenceBy": "seq", "targetSequence": "a"},
         {"targetSequence": "b"}, "spec.targetSequence", f"targetSequence {EVER}"),
    Edit("merge-evolution", "MergeJob", MERGE, {"schemaEvolution": "AddColumns"}, "spec.schemaEvolution",
         f"schemaEvolution {EVER}"),
    Edit("merge-insert-added", "MergeJob", MERGE, {"whenNotMatched": [{"action": "Insert"}]}, "spec.whenNotMatched",
         f"whenNotMatched {EVER}"),
    Edit("merge-time-zone", "MergeJob", MERGE, {"timeZone": "Asia/Tokyo"}, "spec.timeZone", f"timeZone {EVER}"),
    Edit("merge-target-where-added", "MergeJob", MERGE, {"targetWhere": "target.a = 1"}, "spec.targetWhere",
         f"targetWhere {EVER}"),
    Edit("merge-branch", "MergeJob", {**MERGE, "branch": {"name": "audit"}}, {"branch.ifMissing": "Create"},
         "spec.branch", f"branch {EVER}"),
    Edit("merge-dry-run", "MergeJob", MERGE, {"dryRun": True}, "spec.dryRun", f"dryRun {EVER}"),
    Edit("dry-run-merge", "MergeJob", {**MERGE, "dryRun": True}, {"dryRun": False}, "spec.dryRun", f"dryRun {EVER}"),
    Edit("merge-pruning", "MergeJob", MERGE, {"pruning": {"strategy": "None"}}, "spec.pruning", f"pruning {EVER}"),
    Edit("merge-run-fields", "MergeJob", MERGE, MUTABLE),
)  # fmt: skip

POD_TEMPLATES = (
    ("hostNetwork", True, "never use the node's network"),
    ("hostPID", True, "never see the node's processes"),
    ("hostIPC", True, "never share the node's memory"),
    ("serviceAccountName", "admin", "names the ServiceAccount"),
    ("serviceAccount", "admin", "names the ServiceAccount"),
    ("nodeName", "node-1", "use nodeSelector or affinity"),
    ("securityContext", {"runAsUser": 0}, "always restricted"),
    ("initContainers", [{"name": "x"}], "a run has one container"),
    ("priorityClassName", "system-node-critical", "may not begin with system-"),
    ("volumes", [{"name": "x", "hostPath": {"path": "/"}}], "may not hold host paths"),
    ("volumes", [{"name": "x", "secret": {"secretName": "s"}}], "may not hold host paths"),
    ("volumes", [{"name": "x", "projected": {"sources": []}}], "may not hold host paths"),
)
