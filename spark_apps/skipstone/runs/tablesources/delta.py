"""Which files of a Delta table a job reads: those of one version, or those that were appended since another one.

Called by the intake of loads and merges. Reads the table's log by the Warehouse's own storage, never its data: the
files are read like those of any Parquet source, with the values of partition columns that the log has. The first
attempt pins the version, and all later ones replay the log up to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
from propcache.api import cached_property
from pyiceberg.table import Table
from pyiceberg.types import IcebergType
from skipstone_core.codec import JsonObject
from skipstone_core.contract.deltatables import SourceDeltaRef
from skipstone_core.contract.requests import ConsumePolicy, JobRequest, SourceSpec
from skipstone_core.errors import BadData, BadSpec, ContractViolation
from skipstone_core.history.deltalog import (
    FIELD,
    DeltaCommit,
    DeltaFile,
    DeltaReplay,
    DeltaTableFacts,
    appended_files,
    unreadable,
)
from skipstone_core.history.tablereads import TableRead, is_beginning
from skipstone_core.ids import SOURCE_SUMMARY
from skipstone_core.reasons import Reason

from skipstone.runs.tablesources.choosing import ReadPin, find_read_pin, pin_read
from skipstone.runs.tablesources.folders import FilePartitions, is_true_on
from skipstone.sources.listing import PathValues, SourceListing, witnessed
from skipstone.storage.opening import open_location
from skipstone.storage.port import Entry, Storage
from skipstone.tables.parquetfiles import WholeFile
from skipstone.tables.records.tablereads import SourceReading, find_reads, newest_commit

_LOG = "_delta_log"
_COMMIT = re.compile(r"([0-9]{20})\.json")
#: In one file or several; or with a name of its own, and files beside it (V2).
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10})\.parquet|\.parquet|(\.[0-9a-f-]{36})\.(?:json|parquet))"
)
_SIDECARS = "_sidecars"
#: What is read of a checkpoint: statistics of files are most of it, and are not used.
_PARTS = ("add", "metaData", "protocol", "sidecar")
_OF_FILES = ("path", "size", "partitionValues", "deletionVector")
_TYPES = {
    "long": "long", "integer": "int", "short": "int", "byte": "int", "float": "float", "double": "double",
    "boolean": "boolean", "date": "date", "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "binary": "binary",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DeltaRows:
    """The files to read, what the commit says of them, and what it remembers with ``consume`` New."""

    listing: SourceListing
    summary: Mapping[str, str]
    ledger: SourceReading | None = None


def choose_delta(request: JobRequest, target: Table, spec: SourceSpec) -> DeltaRows | None:
    """Return the files that the job ``request`` reads into ``target``, the same for all attempts; None: there are none.

    Raises BadSpec and BadData for a table that is not as the spec says, needs another reader, or was changed since the
    first attempt.
    """
    delta, is_new = _required(spec), spec.consume is ConsumePolicy.NEW
    log = _Log(open_location(request.warehouse, spec.location), _inside(delta.path))
    reads = find_reads(target, spec.consumer) if is_new else ()
    pin = find_read_pin(request)
    if pin is None:
        pin = _chosen(log, delta, reads)
        if is_new and pin.since == pin.until:
            return None
        pin = pin_read(request, pin)
    until, since = int(pin.until), None if pin.since is None else int(pin.since)
    replay = log.replay(until)
    facts = replay.facts()
    if facts.table_id != pin.table_uuid:
        message = f"'{delta.path}' is another table (id {facts.table_id}) than the one that this job began with"
        raise BadData(Reason.SOURCE_CHANGED, f"{message}: apply a new job", field=FIELD)
    files = replay.files() if since is None else appended_files(log.name, log.commits(since + 1, until))
    chosen = _on_true_partitions(files, facts, delta.where)
    if not chosen:
        return None
    identity = json.dumps([facts.table_id, until, since, delta.where])
    listing = _listing(log, spec.location, chosen, facts, hashlib.sha256(identity.encode()).hexdigest())
    begin = {f"{SOURCE_SUMMARY}delta-after-version": str(since)} if since is not None else {}
    summary = {f"{SOURCE_SUMMARY}delta-id": facts.table_id, f"{SOURCE_SUMMARY}delta-version": str(until), **begin}
    ledger = SourceReading(
        consumer=spec.consumer, after=pin.after, table_uuid=facts.table_id, until=until,
        start=delta.starting_version or "", where=delta.where or "",
    )  # fmt: skip
    return DeltaRows(listing=listing, summary=summary, ledger=ledger if is_new else None)


def _required(spec: SourceSpec) -> SourceDeltaRef:
    if spec.delta is None:
        raise ContractViolation("the source is not a Delta table")
    return spec.delta


def _inside(path: str) -> str:
    parts = [part for part in PurePosixPath(path).parts if part != "."]
    if path.startswith("/") or "://" in path or ".." in parts:
        message = f"'{path}' leads out of the Warehouse: name a folder below its root, relative to it, without '..'"
        raise BadSpec(Reason.PATH_OUTSIDE_WAREHOUSE, message, field=f"{FIELD}.path")
    return "/".join(parts)


def _chosen(log: _Log, delta: SourceDeltaRef, reads: Sequence[TableRead]) -> ReadPin:
    until = log.newest if delta.version is None else int(delta.version)
    if until > log.newest:
        message = f"'{log.name}' has no version {until}, its newest is {log.newest}: name one that is there"
        raise BadData(Reason.SOURCE_NOT_FOUND, message, field=f"{FIELD}.version")
    table_id, start = log.replay(until).facts().table_id, delta.starting_version or ""
    since = int(start) - 1 if start else None
    if not is_beginning(start, reads):
        since = int(reads[0].snapshot_id)
        if reads[0].table_uuid != table_id or since > until:
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"'{log.name}' (id {table_id}, version {until}) is not the table that was read before (id "
                f"{reads[0].table_uuid}, version {since}), so which of its rows are new is not known: set "
                "source.delta.startingVersion to the first version whose rows are read, or to 0 to read all",
                field=FIELD,
            )
    if since is not None and since > until:
        message = f"'{log.name}' has no version {start} yet, its newest is {until}: wait for it, or name another one"
        raise BadData(Reason.SOURCE_NOT_FOUND, message, field=f"{FIELD}.startingVersion")
    return ReadPin(
        table_uuid=table_id, until=str(until), since=None if since is None else str(since), after=newest_commit(reads)
    )


def _on_true_partitions(files: Sequence[DeltaFile], facts: DeltaTableFacts, where: str | None) -> tuple[DeltaFile, ...]:
    if where is None:
        return tuple(files)
    texts = {file.path: {name: file.partition.get(name) for name in facts.partition_columns} for file in files}
    taken = is_true_on(where, FilePartitions(texts=texts, types=_types(facts), field=f"{FIELD}.where"))
    return tuple(file for file in files if file.path in taken)


def _types(facts: DeltaTableFacts) -> dict[str, IcebergType]:
    """Types of the partition columns."""
    named = {name: facts.columns.get(name, "string") for name in facts.partition_columns}
    return {
        name: IcebergType.model_validate(kind if kind.startswith("decimal(") else _TYPES.get(kind, "string"))
        for name, kind in named.items()
    }


def _listing(
    log: _Log, location: str, files: Sequence[DeltaFile], facts: DeltaTableFacts, identity: str
) -> SourceListing:
    """The files as they are in the storage. Raises BadData (SOURCE_CHANGED) for one that is gone, or another."""
    paths = [f"{log.folder}/{file.path}" if log.folder else file.path for file in files]
    entries: list[Entry] = []
    for file, path, entry in zip(files, paths, log.storage.entries(paths), strict=True):
        if entry is None or entry.size != file.size:
            what = "is gone" if entry is None else f"has {entry.size} bytes and not {file.size}"
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"the file '{path}' of the Delta table '{log.name}' {what}, which its log names for the version that "
                "is read: VACUUM removes files of old versions, so read a newer version, or restore the file",
                field=FIELD,
            )
        entries.append(entry)
    texts = {
        path: {name: file.partition.get(name) for name in facts.partition_columns}
        for path, file in zip(paths, files, strict=True)
    }
    values = (
        PathValues(texts=texts, types=_types(facts), spec_field=FIELD)  # some writers put them into the files, too
        if facts.partition_columns
        else None
    )
    listing = SourceListing(
        storage=log.storage, files=tuple(sorted(entries)), location=location, identity=identity, values=values
    )
    return witnessed(listing)


@dataclass(frozen=True)
class _Log:
    """The log of the table in ``folder``, empty for the root."""

    storage: Storage
    folder: str

    @property
    def name(self) -> str:
        """The table as people call it."""
        return self.folder or "."

    @cached_property
    def _commits(self) -> Mapping[int, Entry]:
        return {int(match[1]): entry for entry in self._entries if (match := _COMMIT.fullmatch(_name(entry)))}

    @cached_property
    def _checkpoints(self) -> Mapping[int, tuple[Entry, ...]]:
        """Checkpoints all of whose parts are there, by version; one of each."""
        parts: dict[tuple[int, int, str], dict[int, Entry]] = {}
        for entry in self._entries:
            if match := _CHECKPOINT.fullmatch(_name(entry)):
                version, part, count = int(match[1]), int(match[2] or 1), int(match[3] or 1)
                parts.setdefault((version, count, match[4] or ""), {})[part] = entry
        return {
            version: tuple(by_part.values()) for (version, count, _), by_part in parts.items() if len(by_part) == count
        }

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return tuple(self.storage.list(f"{self.folder}/{_LOG}" if self.folder else _LOG))

    @cached_property
    def newest(self) -> int:
        """The newest version. Raises BadData (SOURCE_NOT_FOUND) where there is no table."""
        if not self._commits and not self._checkpoints:
            message = f"there is no Delta table in '{self.name}': its folder '{_LOG}' has no commit. Fix the path"
            raise BadData(Reason.SOURCE_NOT_FOUND, message, field=f"{FIELD}.path")
        return max((*self._commits, *self._checkpoints))

    def replay(self, until: int) -> DeltaReplay:
        """The log up to the version ``until``. Raises BadData for one of which a part is gone."""
        base = max((version for version in self._checkpoints if version <= until), default=-1)
        replay = DeltaReplay(self.name)
        for part in self._checkpoints.get(base, ()):
            replay.apply(self._read_checkpoint(part))
        for commit in self.commits(base + 1, until):
            replay.apply(commit.actions)
        return replay

    def commits(self, first: int, last: int) -> Iterator[DeltaCommit]:
        """The commits from ``first`` to ``last`` with their actions. Raises BadData (SOURCE_CHANGED) for a gap."""
        for version in range(first, last + 1):
            entry = self._commits.get(version)
            if entry is None:
                raise BadData(
                    Reason.SOURCE_CHANGED,
                    f"version {version} is not in the log of the Delta table '{self.name}', which keeps commits for a "
                    "while only: read its newest version by a job without consume New and startingVersion, into a "
                    "table where its rows are not yet or by a merge",
                    field=FIELD,
                )
            yield DeltaCommit(version=version, actions=self._read_commit(entry))

    def _read_commit(self, entry: Entry) -> tuple[JsonObject, ...]:
        try:
            with self.storage.open(entry) as opened:
                return tuple(json.loads(line) for line in opened.read().splitlines() if line.strip())
        except (OSError, ValueError) as error:
            raise unreadable(self.name, f"'{entry.path}' is not a commit ({error}): restore it") from error

    def _read_checkpoint(self, entry: Entry) -> Iterator[JsonObject]:
        """The actions of a checkpoint, those of the files beside it among them."""
        for action in self._read_commit(entry) if entry.path.endswith(".json") else self._read_parts(entry):
            if sidecar := action.get("sidecar"):
                yield from self._read_parts(self._find_sidecar(entry, str(sidecar["path"])))
            else:
                yield action

    def _find_sidecar(self, checkpoint: Entry, name: str) -> Entry:
        path = f"{checkpoint.path.rpartition('/')[0]}/{_SIDECARS}/{unquote(name).rpartition('/')[2]}"
        entry = next(iter(self.storage.entries([path])))
        if entry is None:
            raise unreadable(self.name, f"'{path}' is gone, which the checkpoint '{checkpoint.path}' names: restore it")
        return entry

    def _read_parts(self, entry: Entry) -> Iterator[JsonObject]:
        try:
            with self.storage.open(entry, buffering=0) as opened:
                file = WholeFile(opened)
                rows = file.read([name for name in _PARTS if name in file.schema_arrow.names])
        except (OSError, pa.ArrowException, ValueError) as error:
            raise unreadable(self.name, f"'{entry.path}' is not a checkpoint ({error}): restore it") from error
        for name in rows.column_names:
            parts = rows[name].combine_chunks().drop_null()
            if name == "add":
                known = {parts.type.field(at).name for at in range(parts.type.num_fields)}
                parts = pa.table({column: parts.field(column) for column in _OF_FILES if column in known})
            yield from ({name: action} for action in parts.to_pylist(maps_as_pydicts="strict"))


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]
