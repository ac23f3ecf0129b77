"""Which rows of a source table a job reads: chosen by its first attempt, and pinned for all later ones.

Called by the intake of loads and merges. Reads metadata of both tables only. What is taken is remembered by the commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.codec import decode, encode
from skipstone_core.contract.requests import ConsumePolicy, JobRequest, SourceSpec, SourceTableRef
from skipstone_core.errors import BadData, BadSpec, ContractViolation, DependencyUnavailable, UserError
from skipstone_core.history.tablereads import (
    FIELD,
    FOLLOW_AGAIN,
    Appends,
    SourceSnapshot,
    TableRead,
    find_since,
    is_beginning,
    lost_snapshot,
    parse_snapshot_id,
    plan_appends,
    source_summary,
)
from skipstone_core.ids import RESOLVED_SUMMARY
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import summary_of
from skipstone.sources.listing import pin_path
from skipstone.storage.buckets.apart import require_own_keys
from skipstone.storage.opening import open_storage
from skipstone.tables.catalogs import load_table, open_known_catalog
from skipstone.tables.records.tablereads import SourceReading, find_reads, newest_commit

PIN_VERSION = 1
#: Stands for a table without a snapshot.
NO_SNAPSHOT = 0
#: Counts in a summary: a snapshot that has one of them added deletes.
_ADDED_DELETES = ("added-delete-files", "added-position-deletes", "added-equality-deletes", "added-dvs")


@dataclass(frozen=True, kw_only=True)
class ReadPin:
    """What the first attempt of a job chose. ``since`` None: all rows that the snapshot ``until`` has.

    Ids are text. ``after``: commits of the consumer's earlier reads in the target, the newest; empty without one.
    ``where_before``: the condition of what was read up to ``since``; None: that of the job.
    """

    table_uuid: str
    until: str
    since: str | None = None
    after: str = ""
    where_before: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """The rows to read: all of the snapshot ``until`` (0: the table has none), or what was appended after ``since``.

    ``where_before``: the condition, or empty, of the rows that were read up to ``since``.
    """

    table: Table
    source: SourceTableRef
    until: int
    since: int | None
    where_before: str
    ledger: SourceReading | None = None

    @property
    def table_uuid(self) -> str:
        """Of the source."""
        return str(self.table.metadata.table_uuid)

    @property
    def digest(self) -> str:
        """Identity of these rows: hexadecimal SHA-256."""
        since = None if self.since is None else str(self.since)
        text = json.dumps([self.table_uuid, str(self.until), since, self.source.where, self.source.change_keys])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def summary(self) -> Mapping[str, str]:
        """What the commit says of where its rows are from."""
        return source_summary(self.table_uuid, self.until, self.since)

    def appends(self) -> tuple[Appends, ...] | None:
        """The files to read, by the snapshot at which they are read; None: all of ``until``. Raises BadData."""
        if self.since is None or self.source.change_keys:
            return None
        known = {snapshot.snapshot_id: _facts(snapshot) for snapshot in self.table.metadata.snapshots}
        return plan_appends(self.source.name, known, self.since, self.until)


def choose_rows(catalog: Catalog, request: JobRequest, target: Table, spec: SourceSpec) -> TableRows | None:
    """Return the rows that the job ``request`` reads into ``target``, the same for all attempts; None: nothing is new.

    Raises BadSpec and BadData for a source that is not as the spec says, or was changed since the first attempt.
    """
    source = _required(spec)
    table = _load_source(catalog, request, source)
    uuid = str(table.metadata.table_uuid)
    if spec.consume is ConsumePolicy.NEW and uuid == str(target.metadata.table_uuid):
        message = "consume New cannot read the table that the job writes, which would never end: set consume to All"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.source.consume")
    reads = find_reads(target, spec.consumer) if spec.consume is ConsumePolicy.NEW else ()
    pin = find_read_pin(request)
    if pin is None:
        chosen = _chosen(table, spec, reads)
        if spec.consume is ConsumePolicy.NEW and _is_nothing(chosen):
            return None
        pin = pin_read(request, chosen)
    if pin.table_uuid != uuid:
        message = f"{source.name} is another table (UUID {uuid}) than the one that this job began with: apply a new job"
        raise BadData(Reason.SOURCE_CHANGED, message, field=FIELD)
    until = int(pin.until)
    if until and table.snapshot_by_id(until) is None:
        message = f"snapshot {until} of {source.name}, which this job reads, expired meanwhile: apply a new job"
        raise BadData(Reason.SOURCE_CHANGED, message, field=FIELD)
    start, where = source.from_snapshot or "", source.where or ""
    ledger = SourceReading(
        consumer=spec.consumer, after=pin.after, table_uuid=uuid, until=until, start=start, where=where
    )
    since = None if pin.since is None else int(pin.since)
    is_new = spec.consume is ConsumePolicy.NEW
    before = where if pin.where_before is None else pin.where_before
    rows = TableRows(
        table=table, source=source, until=until, since=since, where_before=before, ledger=ledger if is_new else None
    )
    rows.appends()  # refuses before anything is read
    if source.change_keys and since is not None and table.snapshot_by_id(since) is None:
        raise BadData(Reason.SOURCE_CHANGED, lost_snapshot(source.name, since, FOLLOW_AGAIN), field=FIELD)
    return rows


def _load_source(catalog: Catalog, request: JobRequest, source: SourceTableRef) -> Table:
    """The source table, from ``catalog`` unless its Warehouse is another one. What is wrong there names that one."""
    warehouse = request.source_warehouse
    if warehouse is None:
        return load_table(catalog, source.table)
    try:
        table = load_table(open_known_catalog(warehouse), source.table)
    except UserError as error:
        if error.field == FIELD:
            raise
        raise type(error)(error.reason, f"Warehouse {warehouse.name!r}: {error}", field=FIELD) from error
    require_own_keys(warehouse, table.location(), table.io.properties)
    return table


def _required(spec: SourceSpec) -> SourceTableRef:
    if spec.table is None:
        raise ContractViolation("the source is not a table")
    return spec.table


def _is_nothing(chosen: ReadPin) -> bool:
    """Return whether there is nothing new; a table that lost all its snapshots has changed."""
    is_same = chosen.until == chosen.since and chosen.where_before is None
    return is_same or (chosen.since is None and chosen.until == str(NO_SNAPSHOT))


def _chosen(table: Table, spec: SourceSpec, reads: Sequence[TableRead]) -> ReadPin:
    """``reads``: of the consumer, the newest first."""
    source = _required(spec)
    uuid, until = str(table.metadata.table_uuid), _find_until(table, source)
    start = source.from_snapshot or ""
    since = find_since(source.name, start, reads, uuid, has_changes=bool(source.change_keys))
    is_other = bool(source.change_keys) and not is_beginning(start, reads) and reads[0].where != (source.where or "")
    return ReadPin(
        table_uuid=uuid,
        until=str(until),
        since=None if since is None else str(since),
        after=newest_commit(reads),
        where_before=reads[0].where if is_other else None,
    )


def _find_until(table: Table, source: SourceTableRef) -> int:
    """The snapshot to read up to. Raises BadData (SOURCE_NOT_FOUND)."""
    if source.snapshot is not None:
        snapshot = table.snapshot_by_id(parse_snapshot_id(source.snapshot, f"{FIELD}.snapshot"))
        if snapshot is None:
            raise _not_found(f"{source.name} has no snapshot {source.snapshot}: it expired, or is of another table")
    elif source.ref is not None:
        snapshot = table.snapshot_by_name(source.ref)
        if snapshot is None:
            known = ", ".join(sorted(table.metadata.refs)) or "none"
            raise _not_found(f"{source.name} has no branch or tag {source.ref!r}, it has {known}")
    else:
        snapshot = table.current_snapshot()
    return NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id


def _not_found(what: str) -> BadData:
    return BadData(Reason.SOURCE_NOT_FOUND, f"{what}; apply a job that names one that is there", field=FIELD)


def _facts(snapshot: Snapshot) -> SourceSnapshot:
    summary = summary_of(snapshot)
    return SourceSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        operation=snapshot.summary.operation.value if snapshot.summary is not None else "unknown",
        adds_deletes=any(summary.get(name, "0") != "0" for name in _ADDED_DELETES),
        resolves_deletes=any(name.startswith(RESOLVED_SUMMARY) for name in summary),
    )


# --- the pin ---


def find_read_pin(request: JobRequest) -> ReadPin | None:
    """What an earlier attempt of the job pinned, if one did. Raises DependencyUnavailable."""
    storage = open_storage(request.warehouse)
    try:
        return _decoded(request, storage.read(pin_path(request.owner_uid)))
    except FileNotFoundError:
        return None


def pin_read(request: JobRequest, chosen: ReadPin) -> ReadPin:
    """What is pinned: ``chosen`` unless another attempt was first. Raises DependencyUnavailable."""
    content = {"version": PIN_VERSION, "files": [], "table": request.table_uid, "read": encode(chosen)}
    storage = open_storage(request.warehouse)
    return _decoded(request, storage.create(pin_path(request.owner_uid), json.dumps(content).encode()))


def _decoded(request: JobRequest, content: bytes) -> ReadPin:
    try:
        return decode(ReadPin, json.loads(content)["read"])
    except (ValueError, KeyError, TypeError) as error:
        where = open_storage(request.warehouse).where(pin_path(request.owner_uid))
        message = f"'{where}' cannot be used: {error}; fix the Warehouse's storage and try again"
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error
