"""The Warehouse: where tables live and how Spark runs. Written by admins.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from skipstone_core import signing
from skipstone_core.catalog_uris import OAUTH_SERVER, PLAINTEXT, URI_RULES, UriRule, sends_plaintext
from skipstone_core.contract.places import PlaceRef
from skipstone_core.contract.requests import CatalogType
from skipstone_core.contract.spark import SmallWork
from skipstone_core.ids import CATALOG_VARIABLES, STORE_VARIABLES
from skipstone_core.merging.feeds import in_words

from skipstone_operator.resources.common import OBSERVED_GENERATION, Condition, CurrentRun, LastRun, object_name
from skipstone_operator.resources.keeping.spec import WARM_DRIVERS_RULES, WarmDriversSpec
from skipstone_operator.resources.keeping.status import WarmDriversStatus
from skipstone_operator.resources.planning.spec import PLANNING_RULES, PlanningSpec
from skipstone_operator.resources.planning.status import PlanningStatus
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.amounts import MINUTE_OR_LONGER
from skipstone_operator.resources.rules.markers import Doc, Rule, allowed_keys, time_text
from skipstone_operator.resources.rules.podtemplate import POD_TEMPLATE_SCHEMA
from skipstone_operator.resources.storage import (
    ACCESS_KEY,
    BUCKETS,
    MAX_LOCATIONS,
    SECRET_KEY,
    SESSION_TOKEN,
    AuthorityRef,
    BucketPlace,
    S3Place,
    SourceLocation,
    Storage,
    bucket_of,
    has_bucket,
)

MEMORY = "^[1-9][0-9]{0,8}([kKmMgGtT]|[KMGT]i)$"
MEMORY_HELP = "memory must be a whole number with a unit, such as 512m, 2g, 512Mi or 2Gi"
SQL_URI = "(sqlite:////skipstone/|postgresql([+][a-z0-9]+)?://)"
CONF_VALUE = "-?[A-Za-z0-9.]{1,32}"
ENVIRONMENT_KEY = "^[A-Za-z_][A-Za-z0-9_]*$"


def _are_plain(conf: Mapping[str, str]) -> bool:
    return all(re.fullmatch(CONF_VALUE, value) for value in conf.values())


def _own_keys_rule(kind: type[BucketPlace]) -> Rule:
    """That the keys of a bucket are told once."""

    def holds(spec: WarehouseSpec) -> bool:
        bucket, reference = bucket_of(spec.storage), spec.credentials_secret_ref
        has_own = isinstance(bucket, kind) and bucket.credentials_secret_ref is not None
        return not (has_own and reference is not None and {*reference.keys} & {*kind.KEYS})

    storage = f"self.storage.{kind.FIELD}"
    return Rule(
        holds=holds,
        rule=f"!has({storage}) || !has({storage}.credentialsSecretRef) || "
        f"!has(self.credentialsSecretRef) || !self.credentialsSecretRef.keys.exists(k, k in {list(kind.KEYS)})",
        message=f"credentialsSecretRef.keys may not hold {', '.join(kind.KEYS)} beside "
        f"storage.{kind.FIELD}.credentialsSecretRef, which gives them: remove them from one of the two",
        field_path=".credentialsSecretRef.keys",
    )


def _are_whole_keys(reference: SecretKeysRef | None) -> bool:
    given = {*reference.keys} & {*S3Place.KEYS} if reference else set()
    return not given or {ACCESS_KEY, SECRET_KEY} <= given


def _are_keys_of_runs(keys: tuple[str, ...]) -> bool:
    return all(key.startswith((CATALOG_VARIABLES, STORE_VARIABLES, "AWS_")) for key in keys)


def _has_catalog_keys(keys: tuple[str, ...]) -> bool:
    return any(key.startswith("SKIPSTONE_CATALOG_") for key in keys)


def _uri_rule(uri_rule: UriRule) -> Rule:
    missing = "" if uri_rule.type is CatalogType.REST else "!has(self.uri) || "
    present = "has(self.uri) && " if uri_rule.type is CatalogType.REST else ""
    return Rule(
        holds=lambda catalog: uri_rule.holds(catalog.type, catalog.uri),
        rule=f"self.type != '{uri_rule.type}' || {missing}({present}self.uri.matches('{uri_rule.pattern}'))",
        message=uri_rule.message,
        field_path=".uri",
    )


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """How to open the Iceberg catalog."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda catalog: catalog.type != CatalogType.SQL or re.match(f"$|{SQL_URI}", catalog.uri) is not None,
            rule=f"self.type != 'Sql' || !has(self.uri) || self.uri == '' || self.uri.matches('^{SQL_URI}')",
            message="catalog.uri of an Sql catalog must begin with postgresql:// or sqlite:////skipstone/<warehouse>/, "
            "or be left out for SQLite in the Warehouse itself",
            field_path=".uri",
        ),
        *map(_uri_rule, URI_RULES),
        Rule(
            holds=lambda catalog: ".." not in catalog.uri.split("/"),
            rule="!has(self.uri) || !self.uri.matches('(^|/)[.][.](/|$)')",
            message="catalog.uri may not contain '..': write the path as it is",
            field_path=".uri",
        ),
        Rule(
            holds=lambda catalog: signing.has_region(catalog.properties),
            rule=f"!({limits.IS_SIGNED.format('self.')}) || '{signing.REGION}' in self.properties",
            message=f"{signing.PROPERTIES_FIELD} {signing.MISSING_REGION}",
            field_path=".properties",
        ),
    )

    type: Annotated[CatalogType, Doc("Sql (SQLite or PostgreSQL) or Rest.")]
    name: Annotated[
        str,
        Doc(
            "Name of the catalog; Sql catalogs keep their tables under it, so it never changes.",
            min_length=1,
            max_length=63,
            pattern="^[A-Za-z_][A-Za-z0-9_-]*$",
            help="catalog.name must begin with a letter and hold letters, digits, '_' and '-' only",
        ),
    ] = "skipstone"
    uri: Annotated[
        str,
        Doc(
            "Address of the catalog; empty for Sql means SQLite in a file of the Warehouse's volume. PostgreSQL: "
            "postgresql://host:5432/database, with libpq parameters such as "
            "?sslmode=verify-full&sslrootcert=/skipstone/lake/ca.pem; without sslmode, TLS is used when the server "
            "offers it (prefer).",
            max_length=1024,
        ),
    ] = ""
    properties: Annotated[
        Mapping[str, str],
        Doc(
            "Further settings of the catalog client: " + ", ".join(limits.CATALOG_PROPERTIES) + ".",
            max_properties=16,
            item=Doc("Value of the setting, as text.", max_length=limits.MAX_VALUE),
            rules=(
                allowed_keys(
                    "catalog.properties",
                    limits.CATALOG_PROPERTIES,
                    hint=f"use {', '.join(limits.CATALOG_PROPERTIES)}; credentials belong into credentialsSecretRef",
                ),
            ),
        ),
    ] = field(default_factory=dict)
    allow_plaintext_credentials: Annotated[
        bool,
        Doc(
            "Whether runs may send the keys SKIPSTONE_CATALOG_* of credentialsSecretRef to a Rest catalog over "
            "http://, where others on the network can read them."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SecretKeysRef:
    """Keys of a Secret that app pods get as environment variables."""

    name: Annotated[str, object_name("Name of the Secret, in the same namespace.", "credentialsSecretRef.name")]
    keys: Annotated[
        tuple[str, ...],
        Doc(
            "Keys of the Secret; each becomes an environment variable of the same name in the pods of runs.",
            min_items=1,
            max_items=limits.MAX_KEYS,
            item=Doc(
                "One key, such as SKIPSTONE_CATALOG_PASSWORD.",
                min_length=1,
                max_length=253,
                pattern=ENVIRONMENT_KEY,
                help="credentialsSecretRef.keys must be names of environment variables: letters, digits and '_'",
            ),
            rules=(
                Rule(
                    holds=_are_keys_of_runs,
                    rule=f"self.all(k, k.startsWith('{CATALOG_VARIABLES}') || k.startsWith('{STORE_VARIABLES}') || "
                    "k.startsWith('AWS_'))",
                    message=f"credentialsSecretRef.keys must begin with {CATALOG_VARIABLES}, {STORE_VARIABLES} or "
                    "AWS_: rename the keys of the Secret",
                ),
            ),
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class DriverSize:
    """How much the driver may use."""

    cores: Annotated[int, Doc("Cores of the driver.", minimum=1, maximum=256)] = 1
    memory: Annotated[
        str,
        Doc("Memory of the driver's JVM, such as 512m, 2g or 2Gi.", max_length=12, pattern=MEMORY, help=MEMORY_HELP),
    ] = "1g"


@dataclass(frozen=True, kw_only=True)
class ExecutorSize:
    """How many executors, and how much each may use."""

    instances: Annotated[
        int, Doc("Number of executor pods; 0 runs everything in the driver pod.", minimum=0, maximum=10_000)
    ] = 0
    cores: Annotated[int, Doc("Cores of one executor.", minimum=1, maximum=256)] = 1
    memory: Annotated[
        str,
        Doc("Memory of one executor's JVM, such as 512m, 2g or 2Gi.", max_length=12, pattern=MEMORY, help=MEMORY_HELP),
    ] = "1g"


@dataclass(frozen=True, kw_only=True)
class EventLog:
    """What Spark's history server shows of runs."""

    max_age: Annotated[
        str,
        Doc(
            "Logs that were written longer ago than this are deleted. Such as 12h or 7d.",
            max_length=32,
            pattern=MINUTE_OR_LONGER,
            help="eventLog.maxAge must be a time from 1m to 9999d: write for example 12h or 7d",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """How Spark runs for this Warehouse."""

    image: Annotated[
        str | None,
        Doc("Image of driver and executors; the image of the chart when absent.", min_length=1, max_length=512),
    ] = None
    service_account_name: Annotated[
        str | None,
        object_name("ServiceAccount of the pods of runs; that of the chart when absent.", "serviceAccountName"),
    ] = None
    driver: Annotated[DriverSize, Doc("Size of the driver.")] = DriverSize()
    executor: Annotated[ExecutorSize, Doc("Number and size of the executors.")] = ExecutorSize()
    small_work: Annotated[
        SmallWork,
        Doc(
            "Where loads, merges and index builds run that take less time than starting Spark. Driver: in the "
            "driver's own process, without a JVM and executors. Spark: in Spark, like all others."
        ),
    ] = SmallWork.DRIVER
    event_log: Annotated[
        EventLog | None,
        Doc(
            "Stores the Spark event log of each run that starts Spark in .skipstone/spark-events of the Warehouse's "
            "storage, where a history server can read it. No log when absent."
        ),
    ] = None
    conf: Annotated[
        Mapping[str, str],
        Doc(
            "Spark settings from a list of allowed ones; the resources reference names them.",
            max_properties=limits.MAX_MAP,
            item=Doc("Value of the setting, as text.", max_length=limits.MAX_VALUE),
            rules=(
                allowed_keys(
                    "spark.conf", limits.SPARK_CONF, hint="use the settings that the resources reference lists"
                ),
                Rule(
                    holds=_are_plain,
                    rule=f"self.all(k, self[k].matches('^({CONF_VALUE})$'))",
                    message="spark.conf values are numbers, sizes, times, true or false, of at most 32 characters: "
                    "write for example 8, 512m or 30s",
                ),
            ),
        ),
    ] = field(default_factory=dict)
    pod_template: Annotated[
        Mapping[str, Any],
        Doc(
            "A pod template for driver and executor pods: labels, annotations, node selection, tolerations, affinity, "
            "scratch volumes, resources. Another ServiceAccount, host paths, Secrets and privileges are refused.",
            schema=POD_TEMPLATE_SCHEMA,
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WarehouseSpec:
    """Where tables live and how Spark runs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.catalog.name == oldSelf.catalog.name",
            message="catalog.name cannot be changed after creation, since tables are kept under it: create another "
            "Warehouse instead",
            field_path=".catalog.name",
        ),
        Rule(
            holds=lambda spec: (
                spec.catalog.type != CatalogType.REST
                or spec.catalog.allow_plaintext_credentials
                or not (spec.credentials_secret_ref and _has_catalog_keys(spec.credentials_secret_ref.keys))
                or not sends_plaintext(spec.catalog.uri, spec.catalog.properties)
            ),
            rule="self.catalog.type != 'Rest' || (has(self.catalog.allowPlaintextCredentials) && "
            "self.catalog.allowPlaintextCredentials) || !has(self.credentialsSecretRef) || "
            "!self.credentialsSecretRef.keys.exists(k, k.startsWith('SKIPSTONE_CATALOG_')) || "
            "!((has(self.catalog.uri) && self.catalog.uri.startsWith('http:')) || (has(self.catalog.properties) && "
            f"'{OAUTH_SERVER}' in self.catalog.properties && "
            f"self.catalog.properties['{OAUTH_SERVER}'].startsWith('http:')))",
            message=f"catalog.uri {PLAINTEXT}",
            field_path=".catalog.uri",
        ),
        Rule(
            holds=lambda spec: (
                bucket_of(spec.storage) is None
                or spec.catalog.type != CatalogType.SQL
                or spec.catalog.uri.startswith("postgresql")
            ),
            rule=f"!{has_bucket('self.storage')} || self.catalog.type != 'Sql' || "
            "(has(self.catalog.uri) && self.catalog.uri.startsWith('postgresql'))",
            message="catalog.uri of an Sql catalog must begin with postgresql:// when storage is "
            f"{in_words(PlaceRef.BUCKETS, 'or')}, since SQLite needs a volume: use PostgreSQL or a Rest catalog",
            field_path=".catalog.uri",
        ),
        *map(_own_keys_rule, BUCKETS),
        Rule(
            holds=lambda spec: (
                not signing.is_signed(spec.catalog.properties) or _are_whole_keys(spec.credentials_secret_ref)
            ),
            rule=f"!({limits.IS_SIGNED.format('self.catalog.')}) || !has(self.credentialsSecretRef) || "
            f"!self.credentialsSecretRef.keys.exists(k, k in {list(S3Place.KEYS)}) || "
            f"('{ACCESS_KEY}' in self.credentialsSecretRef.keys && '{SECRET_KEY}' in self.credentialsSecretRef.keys)",
            message=f"credentialsSecretRef.keys must hold {ACCESS_KEY} and {SECRET_KEY}, and {SESSION_TOKEN} only "
            f"beside them, when catalog.properties has {signing.ENABLED}: add what is missing, or leave out all of "
            "them for the role of the ServiceAccount",
            field_path=".credentialsSecretRef.keys",
        ),
        *PLANNING_RULES,
        *WARM_DRIVERS_RULES,
    )

    catalog: Annotated[Catalog, Doc("The Iceberg catalog.")]
    storage: Annotated[Storage, Doc("The storage of the tables of this Warehouse: a volume or a bucket.")]
    source_locations: Annotated[
        tuple[SourceLocation, ...],
        Doc(
            "Places from which jobs may read sources, besides the Warehouse itself.",
            max_items=MAX_LOCATIONS,
            list_key="name",
            item=Doc("One location."),
        ),
    ] = ()
    ca_bundle_ref: Annotated[
        AuthorityRef | None,
        Doc(
            "Certificate authorities that runs trust besides the usual ones, for buckets and Rest catalogs with "
            "private certificates."
        ),
    ] = None
    credentials_secret_ref: Annotated[
        SecretKeysRef | None,
        Doc("Keys of a Secret that the pods of runs get as environment; the operator never reads them."),
    ] = None
    spark: Annotated[SparkSettings, Doc("How Spark runs.")] = SparkSettings()
    max_concurrent_runs: Annotated[
        int, Doc("The maximum number of concurrent runs of this Warehouse.", minimum=1, maximum=1000)
    ] = 2
    index_namespace: Annotated[
        str | None,
        Doc(
            "Catalog namespace for index tables, if runs may not create tables in the namespaces of the tables; the "
            "table's own namespace when absent.",
            min_length=1,
            max_length=128,
            pattern=limits.NAMESPACE,
            help=f"indexNamespace {limits.NAMESPACE_HELP}",
        ),
    ] = None
    planning: Annotated[
        PlanningSpec | None,
        Doc(
            "A server that plans scans with the indexes, for every engine that speaks Iceberg's REST protocol. It only "
            "reads. No server when absent."
        ),
    ] = None
    warm_drivers: Annotated[
        WarmDriversSpec | None,
        Doc(
            "Drivers that are kept and take the loads, merges and dry runs of this Warehouse one after the other, so "
            "that small ones need not wait for a pod. None are kept when absent."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WarehouseStatus:
    """What is known of a Warehouse."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Doc(
            "Ready and Progressing, PlanningReady with spec.planning, WarmDriversReady with spec.warmDrivers, and "
            "Reconciling or Stalled while they hold.",
            max_items=16,
            list_key="type",
            item=Doc("One condition."),
        ),
    ] = ()
    catalog: Annotated[str, Doc("Type of the catalog, and SQLite or PostgreSQL.", max_length=255)] = ""
    storage: Annotated[str, Doc("Kind and name of the storage.", max_length=255)] = ""
    tables: Annotated[int, Doc("Number of Tables that name this Warehouse.", minimum=0)] = 0
    effective_image: Annotated[str, Doc("The image that runs use.", max_length=512)] = ""
    check_time: Annotated[str | None, time_text("When the last check run ended.")] = None
    checked_generation: Annotated[int, Doc("The generation that the last check run judged.", minimum=0)] = 0
    checked_hash: Annotated[str, Doc("Hash over the inputs of the last check run.", max_length=64)] = ""
    current_run: Annotated[CurrentRun | None, Doc("The check run in progress.")] = None
    last_run: Annotated[LastRun | None, Doc("The check run that ended last.")] = None
    observe_run: Annotated[CurrentRun | None, Doc("The observe run in progress.")] = None
    last_observe_run: Annotated[LastRun | None, Doc("The observe run that ended last.")] = None
    failed_attempts: Annotated[int, Doc("Failed check runs in a row.", minimum=0)] = 0
    failed_observes: Annotated[int, Doc("Failed observe runs in a row.", minimum=0)] = 0
    retry_time: Annotated[str | None, time_text("The earliest time of the next attempt.")] = None
    observe_retry_time: Annotated[str | None, time_text("The earliest time of the next observe run.")] = None
    planning: Annotated[PlanningStatus | None, Doc("The planning server; absent without one.")] = None
    warm_drivers: Annotated[WarmDriversStatus | None, Doc("The kept drivers; absent without any.")] = None
