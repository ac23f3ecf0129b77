"""The lake as a Python program sees it: tables that are made, loaded, indexed, merged and read by calls.

Every call applies an object as a manifest would be applied, and returns when it is settled. What a call did not do is
told by LakeError, and is not in the table.
"""

from __future__ import annotations

import atexit
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa
from skipstone_cli.kinds import INDEX, LOAD_JOB, MERGE_JOB, TABLE, ResourceKind
from skipstone_cli.reading import JsonObject, entries_of, field_of, name_of, text_of, texts_of
from skipstone_cli.views.outcomes import find_maintain_end, find_reindex_end
from skipstone_core.errors import LakeError, LakeTimeout
from skipstone_core.history.points import Point
from skipstone_core.ids import MAINTAIN_ANNOTATION, REINDEX_ANNOTATION
from skipstone_core.maintenance.asked import maintain_request
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_operator.labels import FINALIZER

from skipstone_local.lake.declaring import (
    BadRecords,
    Clauses,
    build_clauses,
    build_columns,
    build_keys,
    build_partitioning,
    build_sort_order,
    lay_columns,
    lay_over,
    listed,
    no_table,
    resource_name,
    table_resource,
)
from skipstone_local.lake.finding import LakeTables
from skipstone_local.lake.reading import (
    ChangesRequest,
    ReadRequest,
    TableReader,
    claim_folder,
    local_warehouse,
    primary_key,
    table_ref,
)
from skipstone_local.lake.results import (
    LakeIndex,
    LakeLoad,
    LakeMerge,
    LakeTable,
    index_state,
    load_result,
    merge_result,
    table_state,
)
from skipstone_local.lake.settling import Done, Requests, is_synced
from skipstone_local.lake.sources import LakeRows, SourceCalls, Uploads, build_rows
from skipstone_local.places import RootFolder

#: Jobs of calls go this long after their end; until then, reports show them.
KEPT_SECONDS = 7 * 86400
#: How long the job of a call that failed gets to go. One that is being deleted begins no run.
DELETE_SECONDS = 30.0


@dataclass(frozen=True)
class LakeParts:
    """The parts of a lake: its folder, its objects, its reader and its Warehouse."""

    root: RootFolder
    requests: Requests
    reader: TableReader
    warehouse: JsonObject


class Lake(SourceCalls):
    """Tables in a folder. ``skipstone.open`` makes it; ``close``, ``with`` and the end of the program close it."""

    _parts: LakeParts
    _requests: Requests
    _uploads: Uploads | None

    def __init__(self) -> None:
        """Raise TypeError."""
        raise TypeError("skipstone.open(FOLDER) makes lakes")

    @classmethod
    def _made_of(cls, parts: LakeParts) -> Self:
        """See ``make_lake``. What jobs read that have ended meanwhile is removed."""
        lake = cls.__new__(cls)
        lake._parts, lake._requests = parts, parts.requests
        lake._tables = LakeTables(parts.requests, name_of(parts.warehouse))
        folder = claim_folder(parts.warehouse, parts.root)
        lake._uploads = Uploads(folder) if folder else None
        lake._sweep()
        atexit.register(lake.close)
        return lake

    def __enter__(self) -> Self:
        """The lake itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Serve the folder no longer. What still runs goes on when the folder is opened again."""
        atexit.unregister(self.close)
        self._requests.close()

    @property
    def path(self) -> Path:
        """The folder."""
        return self._parts.root.path

    @property
    def files(self) -> Path:
        """The folder of the Warehouse: files in it are loaded where they are. Raises LakeError for one in a bucket."""
        return self._needed_uploads().root

    # --- tables ---

    def table(  # noqa: PLR0913 - one for each part of a table
        self,
        name: str,
        schema: object = None,
        *,
        primary_key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        sort_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> LakeTable:
        """Make the table ``NAMESPACE.NAME``, or add columns to it; without a schema, how it is. Raises LakeError.

        ``schema``: a mapping of columns to Iceberg's types, a schema of Arrow or PyIceberg, or rows that have one.
        ``partition_by``: such as ``"month(ordered_at)"``; ``sort_by``: such as ``"price desc"``; ``fields``: more of a
        Table's spec; ``timeout``: seconds.
        """
        keys, known = listed(primary_key), self._tables.find(name)
        if known is None and schema is None:
            raise no_table(name)
        columns = build_columns(schema, keys) if schema is not None else []
        spec: JsonObject = {
            "columns": lay_columns(entries_of(known, "spec", "columns"), columns) if columns else None,
            "primaryKey": keys,
            "partitioning": build_partitioning(listed(partition_by)),
            "sortOrder": build_sort_order(listed(sort_by)),
            "properties": dict(properties or {}),
        }
        given = lay_over({field: value for field, value in spec.items() if value}, fields)
        if known is None:
            applied = self._requests.create(TABLE, table_resource(name), {**self._tables.identity(name), **given})
            return table_state(self._requests.wait_or_delete(TABLE, applied, seconds=timeout))
        return self._change(known, given, timeout)

    def tables(self) -> list[LakeTable]:
        """All tables of the Warehouse, by name."""
        return sorted(map(table_state, self._tables.all()), key=lambda state: state.name)

    def drop(self, table: str, *, purge: bool = True, timeout: float | None = None) -> None:
        """Drop the table with its files, and its indexes; without ``purge``, forget it only. Raises LakeError."""
        known = self._tables.require(table)
        for index in self._tables.list_indexes(known):
            self._requests.delete(INDEX, name_of(index), timeout)
        change: JsonObject = {"spec": {"reclaimPolicy": "Delete" if purge else "Retain"}}
        if purge:
            # The operator would put it there in a moment; a table that is deleted sooner would stay in the catalog.
            others = [name for name in texts_of(known, "metadata", "finalizers") if name != FINALIZER]
            change["metadata"] = {"finalizers": [*others, FINALIZER]}
        self._requests.delete(TABLE, name_of(self._requests.patch(TABLE, name_of(known), change)), timeout)

    def index(  # noqa: PLR0913 - one for each part of an index
        self,
        table: str,
        *columns: str,
        include: str | Sequence[str] = (),
        kind: Literal["Lookup", "Covering"] = "Lookup",
        buckets: int | None = None,
        maintenance: Literal["Inline", "Auto", "Manual"] = "Inline",
        fields: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> LakeIndex:
        """Build an index, which loads and merges keep up to date; ``fields``: more of its spec. Raises LakeError."""
        known = self._tables.require(table)
        if not columns:
            raise LakeError("InvalidSpec", "an index needs columns", "name them behind the table")
        spec: JsonObject = {
            "tableRef": {"name": name_of(known)},
            "columns": list(columns),
            "type": kind,
            "maintenance": maintenance,
            **({"include": listed(include)} if include else {}),
            **({"buckets": buckets} if buckets is not None else {}),
        }
        name = resource_name(*name_of(known).split("-"), "by" if kind == "Lookup" else "covering", *columns)
        before = self._requests.find(INDEX, name)
        applied = self._requests.apply(INDEX, name, lay_over(spec, fields))
        wait = self._requests.wait_or_delete if before is None else self._requests.wait
        return index_state(wait(INDEX, *self._asked(applied, maintenance), timeout))

    def _asked(self, index: JsonObject, maintenance: str) -> tuple[JsonObject, Done]:
        """The index, and when it holds the table; one of Manual is asked to catch up now."""
        if maintenance != "Manual":
            return index, is_synced
        annotations = {"metadata": {"annotations": {REINDEX_ANNOTATION: str(time.time_ns())}}}
        asked = self._requests.patch(INDEX, name_of(index), annotations)
        run = text_of(asked, "status", "lastRun", "id")
        return asked, lambda seen: is_synced(seen) and find_reindex_end(seen, run) is not None

    # --- rows in ---

    def load(  # noqa: PLR0913 - one for each part of a load
        self,
        table: str,
        source: object,
        *,
        format: str = "",
        options: Mapping[str, str] | None = None,
        mapping: Mapping[str, str] | None = None,
        bad_records: BadRecords = "Fail",
        fields: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> LakeLoad:
        """Append the rows of a source, all or none. Raises LakeError.

        ``source``: paths, a pattern or a list of them, an Arrow table, a pandas or Polars frame, a DuckDB relation, a
        PyIceberg table; a table of the lake, or ``lake.rows`` of one; ``lake.delta`` or ``lake.folders``. ``mapping``:
        columns of the table to those of the source; ``fields``: more of a LoadJob's spec.
        """
        known = self._tables.require(table)
        name = _job_name(known, "load")
        spec = self._source(source, name, format, options, mapping)
        spec |= {"tableRef": {"name": name_of(known)}, "badRecords": {"policy": bad_records}}
        return load_result(self._run(LOAD_JOB, name, lay_over(spec, fields), timeout))

    def merge(  # noqa: PLR0913 - one for each part of a merge
        self,
        source: object,
        *,
        into: str,
        keys: str | Sequence[str] | Mapping[str, str],
        when_matched: Clauses = "Update",
        when_not_matched: Clauses = "Insert",
        when_not_matched_by_source: Clauses = None,
        sequence_by: str = "",
        where: str = "",
        format: str = "",
        options: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> LakeMerge:
        """Apply changes to a table by key, in one commit. Raises LakeError.

        ``source`` as for ``load``; ``keys``: columns, or the table's to the source's. Clauses are actions or as in a
        manifest: ``{"when": "source.op = 'D'", "action": "Delete"}``; None: none. ``where``: a predicate on target.x
        and source.y that is part of the match. ``types``: of columns of Csv and Json that the table lacks.
        ``dry_run``: write nothing.
        """
        known = self._tables.require(into)
        name = _job_name(known, "merge")
        spec = self._source(source, name, format, options, None)
        if types:
            spec["source"]["columns"] = [{"name": column, "type": kind} for column, kind in types.items()]
        is_usual = (when_matched, when_not_matched) == ("Update", "Insert")
        if isinstance(source, LakeRows) and source.changes and is_usual:
            when_matched = when_not_matched = None  # the changes say what they do
        clauses = {
            "whenMatched": build_clauses(when_matched, "Update"),
            "whenNotMatched": build_clauses(when_not_matched, "Insert"),
            "whenNotMatchedBySource": build_clauses(when_not_matched_by_source, "Delete"),
            "sequenceBy": sequence_by,
            "targetWhere": where,
            "dryRun": dry_run,
        }
        spec |= {field: value for field, value in clauses.items() if value}
        spec |= {"tableRef": {"name": name_of(known)}, "keys": build_keys(keys)}
        return merge_result(self._run(MERGE_JOB, name, lay_over(spec, fields), timeout))

    # --- rows out ---

    def read(
        self,
        table: str,
        where: str | None = None,
        *,
        columns: Iterable[str] | None = None,
        snapshot_id: int | None = None,
        use_indexes: bool = True,
    ) -> pa.Table:
        """The rows on which ``where`` is true, as a pyarrow.Table. Raises LakeError.

        ``where``: in the grammar of conditions of Skipstone, such as ``"customer = 'x' and price > 10"``.
        """
        return self._parts.reader.read(self._read_request(table, where, columns, snapshot_id, indexes=use_indexes))

    def changes(
        self,
        table: str,
        since: Point,
        until: Point | None = None,
        *,
        keys: str | Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """What changed in a table between two points of its history, as a pyarrow.Table. Raises LakeError.

        A point is the id of a snapshot, a branch, a tag, or a time; ``since`` 0: before the first row; ``until`` None:
        now. The columns of the table, and ``_change_type``: INSERT, DELETE, or UPDATE_BEFORE followed by UPDATE_AFTER.
        ``keys``: which rows are one row before and after; None: the primary key. Without keys, an update is a DELETE
        and an INSERT. ``where``: only rows on which it is true.
        """
        known = self._tables.require(table)
        request = ChangesRequest(
            warehouse=local_warehouse(self._parts.warehouse, self._parts.root),
            table=table_ref(known),
            since=since,
            until=until,
            keys=primary_key(known) if keys is None else tuple(listed(keys)),
            where=where,
        )
        return self._parts.reader.changes(request).read_all()

    def explain(
        self,
        table: str,
        where: str | None = None,
        *,
        columns: Iterable[str] | None = None,
        snapshot_id: int | None = None,
        use_indexes: bool = True,
    ) -> str:
        """Which files ``read`` of the same arguments would open, and by which indexes. Raises LakeError."""
        request = self._read_request(table, where, columns, snapshot_id, indexes=use_indexes)
        return self._parts.reader.explain(request)

    # --- upkeep ---

    def maintain(
        self,
        table: str,
        *steps: Literal["ResolveEqualityDeletes", "Compaction", "Manifests", "Snapshots", "OrphanFiles"],
        policy: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Do now what is due of a table's maintenance, or of some steps; what was done, in words. Raises LakeError.

        ``policy``: spec.maintenance of the Table, kept from then on; compaction if the Table has none.
        """
        known = self._tables.require(table)
        if policy is not None or not isinstance(field_of(known, "spec", "maintenance"), dict):
            change = {"spec": {"maintenance": dict(policy) if policy is not None else {"compaction": {}}}}
            known = self._requests.wait(TABLE, self._requests.patch(TABLE, name_of(known), change), seconds=timeout)
        wanted = maintain_request(str(time.time_ns()), [MaintenanceStep(step) for step in steps])
        annotations = {"metadata": {"annotations": {MAINTAIN_ANNOTATION: wanted}}}
        asked = self._requests.patch(TABLE, name_of(known), annotations)
        before = text_of(asked, "status", "lastMaintainRun", "id")
        ended = self._requests.wait(TABLE, asked, lambda seen: find_maintain_end(seen, before) is not None, timeout)
        outcome = find_maintain_end(ended, before)
        if outcome is None or not outcome.succeeded:
            raise LakeError("MaintenanceFailed", outcome.message if outcome else "the maintain run was forgotten")
        return outcome.message

    # --- parts ---

    def _change(self, known: JsonObject, given: JsonObject, timeout: float | None) -> LakeTable:
        """Change a Table. What it cannot become is taken back, or all that needs the table would wait."""
        applied = self._requests.patch(TABLE, name_of(known), {"spec": given}) if given else known
        try:
            return table_state(self._requests.wait(TABLE, applied, seconds=timeout))
        except LakeTimeout:
            raise
        except LakeError:
            before = {field: known["spec"].get(field) for field in given}
            with suppress(LakeError):
                self._requests.patch(TABLE, name_of(known), {"spec": before})
            raise

    def _run(self, kind: ResourceKind, name: str, spec: JsonObject, timeout: float | None) -> JsonObject:
        """The job when it has ended well. What it read is removed once it can begin no more attempt."""
        try:
            created = self._requests.create(kind, name, {"ttlSecondsAfterFinished": KEPT_SECONDS, **spec})
        except BaseException:
            self._forget(name)
            raise
        try:
            return self._requests.wait(kind, created, seconds=timeout)
        except LakeTimeout:
            raise
        except LakeError:
            # A job that waits for what has failed would run once that is fixed, although its call has failed.
            if not self._has_ended(kind, name):
                with suppress(LakeError):
                    self._requests.delete(kind, name, DELETE_SECONDS)
            raise
        finally:
            if self._has_ended(kind, name):
                self._forget(name)

    def _has_ended(self, kind: ResourceKind, name: str) -> bool:
        """Return whether a job can begin no more attempt; False if nobody can be asked."""
        try:
            job = self._requests.find(kind, name)
        except LakeError:
            return False
        return job is None or bool(text_of(job, "status", "completionTime"))

    def _source(
        self,
        source: object,
        job: str,
        kind: str,
        options: Mapping[str, str] | None,
        mapping: Mapping[str, str] | None,
    ) -> JsonObject:
        rows = LakeRows(resource=source.resource) if isinstance(source, LakeTable) else source
        if isinstance(rows, LakeRows):
            brought = build_rows(rows, with_files=bool(kind or options))
        else:
            given = dict(options) if options is not None else None
            brought = self._needed_uploads().bring(source, job, format=kind, options=given)
        if mapping:
            brought["mapping"] = [{"column": column, "from": name} for column, name in mapping.items()]
        return {"source": brought}

    def _needed_uploads(self) -> Uploads:
        if self._uploads is None:
            raise LakeError(
                "InvalidSpec",
                "the Warehouse lives in a bucket, to which this program brings no sources",
                "put the files into the bucket and apply a LoadJob or MergeJob",
            )
        return self._uploads

    def _forget(self, job: str) -> None:
        if self._uploads is not None:
            self._uploads.forget(job)

    def _sweep(self) -> None:
        """Remove what jobs read that have ended while nobody waited for them."""
        for job in self._uploads.jobs() if self._uploads else ():
            kind = MERGE_JOB if "-merge-" in job else LOAD_JOB
            if self._requests.find(kind, job) is not None and self._has_ended(kind, job):
                self._forget(job)

    def _read_request(
        self, table: str, where: str | None, columns: Iterable[str] | None, snapshot: int | None, *, indexes: bool
    ) -> ReadRequest:
        return ReadRequest(
            warehouse=local_warehouse(self._parts.warehouse, self._parts.root),
            table=table_ref(self._tables.require(table)),
            where=where,
            columns=None if columns is None else tuple(columns),
            snapshot=snapshot,
            indexes=indexes,
        )


def make_lake(parts: LakeParts) -> Lake:
    """A lake on parts that are served already."""
    return Lake._made_of(parts)


def _job_name(table: JsonObject, what: str) -> str:
    return f"{name_of(table)}-{what}-{secrets.token_hex(4)}"
