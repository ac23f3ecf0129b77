"""Runs of every shape, as the unit tests compare them with golden files and the API-server tests create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from skipstone_core.contract.places import S3Ref, SourceLocationRef
from skipstone_core.contract.planning import PlanningMode, PlanningSettings
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ConfirmTask,
    DropTask,
    IndexRef,
    JobRequest,
    LoadTask,
    MaintainTask,
    MergeKey,
    MergeTask,
    ObservedTable,
    ObserveTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
    TableTask,
    WarehouseRef,
)
from skipstone_core.contract.spark import SparkRef
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep
from skipstone_operator.manifests import Owner, PodPlace, RunManifest, find_claims, find_variables
from skipstone_operator.manifests.planning import PlanningServer, ServerPod, server_name
from skipstone_operator.ports import RunDefaults
from skipstone_operator.resources.common import LocalRef
from skipstone_operator.resources.planning.spec import ServerResources, TokensRef
from skipstone_operator.resources.storage import (
    AuthorityRef,
    ClaimRef,
    S3Place,
    SourceClaimRef,
    SourceLocation,
    Storage,
)
from skipstone_operator.resources.warehouse import (
    Catalog,
    DriverSize,
    ExecutorSize,
    SecretKeysRef,
    SparkSettings,
    WarehouseSpec,
)

TABLE = TableRef(namespace="air", name="flights", uid="2f6b1c1e-0000-4000-8000-000000000002")
INDEX = IndexRef(name="by-tail", uid="2f6b1c1e-0000-4000-8000-000000000003", columns=("tailnum",))
SOURCE = SourceSpec(format=SourceFormat.CSV, paths=("landing/2013-01.csv",))
TXN = "2f6b1c1e-0000-4000-8000-000000000004"
TASKS: Mapping[RunKind, Mapping[str, Any]] = {
    RunKind.CHECK: {},
    RunKind.TABLE: {"table": TABLE, "table_task": TableTask()},
    RunKind.LOAD: {"table": TABLE, "txn": TXN, "load": LoadTask(source=SOURCE)},
    RunKind.REINDEX: {"table": TABLE, "reindex": ReindexTask(index=INDEX)},
    RunKind.MERGE: {
        "table": TABLE,
        "txn": TXN,
        "merge": MergeTask(source=SOURCE, keys=(MergeKey(target="id", source="id"),)),
    },
    RunKind.DRY_RUN: {"table": TABLE, "merge": MergeTask(source=SOURCE, keys=(MergeKey(target="id", source="id"),))},
    RunKind.OBSERVE: {"observe": ObserveTask(tables=(ObservedTable(table=TABLE, indexes=(INDEX,)),))},
    RunKind.CONFIRM: {"table": TABLE, "confirm": ConfirmTask(txn=TXN)},
    RunKind.DROP: {"table": TABLE, "drop": DropTask(index=INDEX)},
    RunKind.MAINTAIN: {
        "table": TABLE,
        "maintain": MaintainTask(policy=MaintenancePolicy(), steps=(MaintenanceStep.COMPACTION,)),
    },
}
OWNERS = {
    RunKind.CHECK: "Warehouse",
    RunKind.OBSERVE: "Warehouse",
    RunKind.TABLE: "Table",
    RunKind.REINDEX: "SecondaryIndex",
    RunKind.MERGE: "MergeJob",
    RunKind.DRY_RUN: "MergeJob",
    RunKind.DROP: "SecondaryIndex",
    RunKind.MAINTAIN: "Table",
}
OWNER_UID = "2f6b1c1e-0000-4000-8000-000000000001"
POD_TEMPLATE = {
    "metadata": {"labels": {"team": "air"}, "annotations": {"example.org/cost": "42"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "priorityClassName": "low",
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "air"}}}
                ]
            },
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        },
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {
                "env": [{"name": "TZ", "value": "UTC"}],
                "resources": {"requests": {"cpu": "250m"}, "limits": {"ephemeral-storage": "2Gi"}},
            }
        ],
    },
}


def warehouse(**spark: Any) -> WarehouseSpec:
    """A Warehouse with these Spark settings."""
    return WarehouseSpec(
        catalog=Catalog(type=CatalogType.SQL),
        storage=Storage(pvc=ClaimRef(claim_name="lake")),
        credentials_secret_ref=SecretKeysRef(name="lake-login", keys=("SKIPSTONE_CATALOG_USER", "AWS_REGION")),
        spark=SparkSettings(**spark),
    )


def request(kind: RunKind, *, instances: int = 0, cores: int = 2) -> JobRequest:
    """A request of ``kind`` with its task."""
    return JobRequest(
        kind=kind,
        run_id="2f6b1c1e-0badcafe-1",
        attempt=1,
        warehouse=WarehouseRef(name="lake", root="/skipstone/lake", catalog=CatalogRef(type=CatalogType.SQL)),
        owner_kind=OWNERS.get(kind, "LoadJob"),
        owner_name="january",
        owner_uid=OWNER_UID,
        spark=SparkRef(instances=instances, driver_cores=cores),
        **TASKS[kind],
    )


def run_manifest(
    kind: RunKind, *, spec: WarehouseSpec | None = None, instances: int = 0, cores: int = 2, **more: Any
) -> RunManifest:
    """A run of ``kind`` whose driver has ``cores``; ``more`` are further fields of RunManifest."""
    made = request(kind, instances=instances, cores=cores)
    return RunManifest(
        request=made,
        owner=Owner(api_version="skipstone.dev/v1alpha1", kind=made.owner_kind, name=made.owner_name, uid=OWNER_UID),
        namespace=more.pop("namespace", "data"),
        warehouse=spec or warehouse(driver=DriverSize(cores=2, memory="2g")),
        warehouse_uid="2f6b1c1e-0000-4000-8000-000000000009",
        defaults=RunDefaults(image="skipstone/spark:1", service_account="skipstone-spark"),
        **more,
    )


def golden_runs() -> dict[str, RunManifest]:
    """The runs whose manifests are kept in golden files, by file name."""
    cluster = warehouse(
        image="example.org/spark:2",
        service_account_name="lake-runner",
        driver=DriverSize(cores=1, memory="1g"),
        executor=ExecutorSize(instances=2, cores=2, memory="4g"),
        conf={"spark.sql.shuffle.partitions": "8", "spark.kubernetes.executor.request.cores": "500m"},
        pod_template=POD_TEMPLATE,
    )
    bucket = S3Place(bucket="lake", prefix="prod", credentials_secret_ref=LocalRef(name="lake-keys"))
    landing = S3Place(bucket="landing", credentials_secret_ref=LocalRef(name="landing-keys"))
    in_bucket = replace(
        warehouse(executor=ExecutorSize(instances=2)),
        catalog=Catalog(type=CatalogType.REST, uri="https://catalog"),
        storage=Storage(s3=bucket),
        source_locations=(
            SourceLocation(name="landing", s3=landing),
            SourceLocation(name="drop", pvc=SourceClaimRef(claim_name="drop")),
            SourceLocation(name="other", pvc=SourceClaimRef(claim_name="other")),
        ),
        ca_bundle_ref=AuthorityRef(name="authorities"),
    )
    located = run_manifest(RunKind.LOAD, spec=in_bucket, instances=2)
    reference = WarehouseRef(
        name="lake",
        s3=S3Ref(bucket="lake", prefix="prod"),
        catalog=CatalogRef(type=CatalogType.REST, uri="https://catalog"),
        locations=(
            SourceLocationRef(
                name="landing", s3=S3Ref(bucket="landing", credentials_prefix="SKIPSTONE_LOCATION_LANDING_")
            ),
            SourceLocationRef(name="drop", root="/skipstone-sources/drop"),
        ),
    )
    return {
        "load-bucket": replace(located, request=replace(located.request, warehouse=reference)),
        "check": run_manifest(RunKind.CHECK, deadline_seconds=600),
        "load-local": run_manifest(RunKind.LOAD, one_node=True),
        "maintain-local": run_manifest(RunKind.MAINTAIN, one_node=True),
        "merge-executors": run_manifest(RunKind.MERGE, spec=cluster, instances=2, one_node=True, deadline_seconds=3600),
    }


def planning_server(
    namespace: str = "data",
    uid: str = "2f6b1c1e-0000-4000-8000-000000000009",
    allow_from: Sequence[Mapping[str, Any]] | None = None,
    **pod: Any,
) -> PlanningServer:
    """The server of a Warehouse in a bucket; ``pod`` are fields of ServerPod and of PodPlace."""
    storage = Storage(s3=S3Place(bucket="lake", credentials_secret_ref=LocalRef(name="lake-keys")))
    spec = replace(warehouse(), storage=pod.pop("storage", storage), ca_bundle_ref=AuthorityRef(name="authorities"))
    reference = WarehouseRef(
        name="lake",
        root="" if spec.storage.s3 else "/skipstone/lake",
        s3=S3Ref(bucket="lake") if spec.storage.s3 else None,
        catalog=CatalogRef(type=CatalogType.SQL, uri="postgresql://db/catalog"),
    )
    place = PodPlace(
        namespace=namespace,
        warehouse_uid=uid,
        claims=find_claims(spec, reference),
        authorities=spec.ca_bundle_ref,
        image="skipstone/spark:1",
        pull_policy="IfNotPresent",
        pull_secrets=("registry",),
        service_account=server_name("lake"),
        variables=find_variables(spec, reference),
        one_node=pod.pop("one_node", False),
        template=pod.pop("template", {}),
    )
    base = ServerPod(place=place, replicas=2, resources=ServerResources(), tokens=None, longest_request=90)
    return PlanningServer(
        owner=Owner(api_version="skipstone.dev/v1alpha1", kind="Warehouse", name="lake", uid=uid),
        settings=PlanningSettings(warehouse=reference, mode=PlanningMode.DEFAULT),
        pod=replace(base, **pod),
        own_account=True,
        allow_from=allow_from,
        settings_uid="2f6b1c1e-0000-4000-8000-00000000000a",
    )


def golden_servers() -> dict[str, PlanningServer]:
    """The servers whose manifests are kept in golden files, by file name."""
    volume = Storage(pvc=ClaimRef(claim_name="lake"))
    tokens = TokensRef(name="readers")
    return {
        "planning-bucket": planning_server(
            template=POD_TEMPLATE, tokens=tokens, allow_from=[{"namespaceSelector": {"matchLabels": {"team": "bi"}}}]
        ),
        "planning-volume": planning_server(storage=volume, one_node=True, replicas=1, tokens=tokens),
    }
