"""Names and identities: runs, transactions, index tables, label values.

Both planes derive them here so that they agree without talking. All functions are pure and deterministic.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

OWNER_PROPERTY = "skipstone.owner"
TXN_SUMMARY = "skipstone.txn"
TXN_PROPERTY_PREFIX = "skipstone.txn."
ARCHIVE_PROPERTY = "skipstone.transactions"
LINEAGE_PROPERTY = "skipstone.lineage"
EVOLVED_PROPERTY = "skipstone.evolved-columns"
NAMESPACE_PROPERTY = "skipstone.namespace-id"
PARTIAL_PROPERTY = "skipstone.partial"
FEED_PROPERTY_PREFIX = "skipstone.feed."
CONSUMED_PROPERTY_PREFIX = "skipstone.consumed."
REPLAYED_PROPERTY_PREFIX = "skipstone.replayed."
#: Which snapshots of other tables a consumer read into this one, and what a commit says of its own.
READ_PROPERTY_PREFIX = "skipstone.read."
SOURCE_SUMMARY = "skipstone.source."
#: What the commit of resolved equality deletes says of them; the table has the same rows after it.
RESOLVED_SUMMARY = "skipstone.equality-deletes."
INDEX_UID_PROPERTY = "skipstone.index.owner"
INDEX_TABLE_UUID_PROPERTY = "skipstone.index.table-uuid"
INDEX_DEFINITION_PROPERTY = "skipstone.index.definition"
#: Of an opened catalog: the Warehouse root.
ROOT_PROPERTY = "skipstone.root"
#: Of an opened catalog of a Warehouse in a bucket: where that is, as JSON.
BUCKET_PROPERTY = "skipstone.{}"
#: Beginning of the environment variables with credentials of the catalog.
CATALOG_VARIABLES = "SKIPSTONE_CATALOG_"
#: Names of variables with what this client shows to stores of indexes.
STORE_VARIABLES = "SKIPSTONE_HBASE_"
#: Beginning of the variables with credentials of the Warehouse of a source table, if that is not the job's own.
SOURCE_VARIABLES = "SKIPSTONE_SOURCE_"
REPORT_ANNOTATION = "skipstone.dev/report"
#: Of every pod of a Warehouse: the Warehouse's uid.
WAREHOUSE_UID_LABEL = "skipstone.dev/warehouse-uid"
REINDEX_ANNOTATION = "skipstone.dev/reindex"
MAINTAIN_ANNOTATION = "skipstone.dev/maintain"
OWN_DIRECTORY = ".skipstone"
RUNS_DIRECTORY = ".skipstone/runs"
ARCHIVE_DIRECTORY = ".skipstone/txns"
#: Where logs of Spark's events are kept, for history servers.
EVENT_LOG_DIRECTORY = ".skipstone/spark-events"
CONSUMED_DIRECTORY = ".skipstone/consumed"
#: Records of rows of which merges left out a change, and the table property that names the newest.
HELD_DIRECTORY = ".skipstone/held"
HELD_PROPERTY = "skipstone.held-rows"
ABORTED_SUFFIX = "/aborted"
#: Ends the name of the pod that is a run; what is before it is the run's name.
DRIVER_SUFFIX = "-driver"
MAX_NAME = 63
#: As ``run_id`` makes them.
_RUN_ID = r"[0-9a-f]{8}-[0-9a-f]{8}-[0-9]{1,9}"
#: As ``index_table_name`` makes them.
_INDEX_TABLE = re.compile(r".+__si_.+_[0-9a-f]{1,8}", re.DOTALL)
_NAMED_BY_RUN = re.compile(rf"\.?{_RUN_ID}\.[a-z0-9.]+")
_DATA_FILE = re.compile(rf"{_RUN_ID}-.+\.parquet")
_RUN_FILE = re.compile(r"(?P<owner>[^-]+)-[^-]+-(?P<attempt>\d{1,9})-")


def short_hash(*parts: str) -> str:
    """Eight hexadecimal digits that stand for ``parts``; parts never run into each other."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def canonical_hash(value: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits of a JSON object, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def run_id(uid: str, inputs_hash: str, attempt: int) -> str:
    """The deterministic name of one attempt: first eight of the owner's uid, inputs hash, attempt number."""
    return f"{uid.replace('-', '')[:8]}-{inputs_hash}-{attempt}"


def is_run_of(run: str, uid: str) -> bool:
    """Return whether ``run`` is the name of a run whose owner has this uid."""
    return bool(uid) and run.startswith(f"{uid.replace('-', '')[:8]}-")


def is_named_by_run(name: str) -> bool:
    """Return whether the file ``name`` is called by a run's whole name and an ending, hidden by a dot or not."""
    return _NAMED_BY_RUN.fullmatch(name) is not None


def is_data_file_of_run(name: str) -> bool:
    """Return whether the file ``name`` is called as the data files that runs write: by the run's name first."""
    return _DATA_FILE.fullmatch(name) is not None


def is_file_of_earlier_run(path: str, run: str) -> bool:
    """Return whether an earlier attempt at the work of ``run`` wrote the file ``path``: its name begins with it.

    Attempts of one owner count, whatever their inputs were.
    """
    earlier, now = _RUN_FILE.match(path.rpartition("/")[2]), _RUN_FILE.match(f"{run}-")
    if earlier is None or now is None or earlier["owner"] != now["owner"]:
        return False
    return int(earlier["attempt"]) < int(now["attempt"])


def bounded_name(name: str, limit: int = MAX_NAME) -> str:
    """``name`` itself when it fits ``limit`` characters, else its head and a hash, still a valid label value."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-._')}-{short_hash(name)}"


def index_table_prefix(table: str) -> str:
    """Return the prefix of the names of all index tables of ``table``."""
    return f"{table}__si_"


def index_table_name(table: str, index: str, uid: str) -> str:
    """The Iceberg name of an index table: ``<table>__si_<index>_<uid8>``, dots and dashes made underscores."""
    clean = index.replace("-", "_").replace(".", "_")
    return f"{index_table_prefix(table)}{clean}_{uid.replace('-', '')[:8]}"


def is_index_table_name(name: str) -> bool:
    """Return whether ``name`` is of the form that index tables have."""
    return _INDEX_TABLE.fullmatch(name) is not None


def job_txn(uid: str) -> str:
    """The transaction id of a LoadJob or MergeJob: its uid and nothing else, so that it commits at most once."""
    return uid


def table_txn(uid: str, generation: int) -> str:
    """The transaction id of a table change: one per generation of the Table."""
    return f"{uid}/{generation}"


def aborted_txn(txn: str) -> str:
    """Return the id in the summary of the empty snapshot that fences off ``txn``."""
    return txn + ABORTED_SUFFIX


def scheduled_name(schedule: str, unix_minute: int) -> str:
    """The name of the MergeJob that a schedule creates for one minute: there is never a second one."""
    return f"{schedule}-{unix_minute}"


def scheduled_minute(schedule: str, name: str) -> int | None:
    """The minute since 1970 that the MergeJob ``name`` of a schedule is for; None when the name says none."""
    minute = name.removeprefix(f"{schedule}-")
    return int(minute) if minute != name and minute.isascii() and minute.isdecimal() and len(minute) <= 9 else None
