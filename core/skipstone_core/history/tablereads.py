"""Tables that are read into other tables: which snapshots a read is of, and what the other table remembers of it.

Used by the data plane before it reads and where it commits. A read of appends takes the files that each snapshot added
and no other: it is refused as soon as a snapshot in between took rows away. What is remembered stands in a table
property that the commit of the rows sets: the newest reads of one consumer, so that a rollback finds the one before.
Must not read files: only snapshots, names and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from skipstone_core.codec import decode, encode
from skipstone_core.errors import BadData, BadSpec, ContractViolation
from skipstone_core.history.consumption import consumer_hash
from skipstone_core.ids import READ_PROPERTY_PREFIX, SOURCE_SUMMARY
from skipstone_core.reasons import Reason

#: ``fromSnapshot`` of a read that begins before the first snapshot.
BEGINNING = "0"
#: Reads of one consumer that a table remembers: so many commits can be rolled back one after the other.
MAX_READS = 16
FIELD = "spec.source.table"
#: The column of changes that names what happened to a row.
CHANGE_COLUMN = "_change_type"
#: Operations of snapshots after which the table has the same rows as before.
_SAME_ROWS = frozenset({"replace"})
_APPEND = "append"
#: How a consumer goes on where its next rows are not known, and where the next changes are not.
START_AGAIN = (
    "read the whole table by a job without fromSnapshot and consume, into a table where its rows are not yet or by a "
    "merge, then go on from the snapshot that it read by source.table.fromSnapshot"
)
FOLLOW_AGAIN = (
    "merge the whole table by a job without changes, fromSnapshot and consume, with the action Delete in "
    "whenNotMatchedBySource, then go on from the snapshot that it read by source.table.fromSnapshot"
)


class ChangeType(StrEnum):
    """What happened to a row between two snapshots, in the words of Iceberg's changelogs."""

    INSERT = "INSERT"
    DELETE = "DELETE"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"


@dataclass(frozen=True, kw_only=True)
class SourceSnapshot:
    """A retained snapshot. ``adds_deletes``: it added files of deletes, whatever its operation says.

    ``resolves_deletes``: these take the place of equality deletes, so that the table has the same rows as before.
    """

    snapshot_id: int
    parent_id: int | None
    operation: str
    adds_deletes: bool = False
    resolves_deletes: bool = False


@dataclass(frozen=True, kw_only=True)
class TableRead:
    """A read of a table that was committed. ``number``: of the consumer's reads, from 1, of all branches.

    ``after``: the commit of the read before it in the history of its own commit, empty without one; None: written by a
    release that remembered one history only.
    ``snapshot_id``: up to which the source was read, 0 while it had none; ``start``: the job's fromSnapshot, or empty.
    ``commit_id`` and ``sequence_number``: of the commit in the table that holds the rows now. Ids are text: JSON loses
    long numbers. ``where``: the condition of the rows. ``earlier``: of a read of which the one before it is not
    remembered, the values of ``start`` of all before it.
    """

    number: int
    table_uuid: str
    snapshot_id: str
    commit_id: str
    sequence_number: int
    start: str = ""
    where: str = ""
    after: str | None = None
    earlier: tuple[str, ...] = ()


def read_property(consumer: str) -> str:
    """The table property that holds the newest reads of ``consumer``."""
    return READ_PROPERTY_PREFIX + consumer_hash(consumer)


def encode_reads(reads: Sequence[TableRead]) -> str:
    """The value of the table property: the newest reads, the newest first, and where any read has begun.

    ``reads``: those of all branches.
    """
    kept = list(reads)
    while len(kept) > MAX_READS:
        forgotten = kept.pop()
        starts = tuple(_starts([forgotten]))
        kept = [
            replace(read, earlier=tuple(dict.fromkeys([*read.earlier, *starts])))
            if starts and _is_next(read, forgotten)
            else read
            for read in kept
        ]
    return json.dumps([encode(read) for read in kept], separators=(",", ":"))


def _is_next(read: TableRead, before: TableRead) -> bool:
    """Return whether a read is the next one after another in its history."""
    return read.number == before.number + 1 if read.after is None else read.after == before.commit_id


def is_remembered_whole(reads: Sequence[TableRead]) -> bool:
    """Return whether these are all reads of a consumer, the newest first, and none was forgotten."""
    return not reads or reads[-1].number == 1


def reads_up_to(reads: Sequence[TableRead], read: TableRead) -> Iterator[TableRead]:
    """``read`` and those before it in its history, the newest first, as far as they are among ``reads``."""
    at: TableRead | None = read
    while at is not None:
        yield at
        at = next((before for before in reads if _is_next(at, before)), None)


def _starts(reads: Sequence[TableRead]) -> Iterator[str]:
    return (start for read in reads for start in (read.start, *read.earlier) if start)


def decode_reads(text: str | None) -> tuple[TableRead, ...]:
    """Read what ``encode_reads`` wrote; nothing without it. Raises ContractViolation when it is something else."""
    try:
        listed = json.loads(text) if text else []
        return tuple(decode(TableRead, read) for read in listed)
    except (ValueError, TypeError) as error:
        raise ContractViolation(f"a record of tables that were read cannot be read: {error}") from error


def source_summary(table_uuid: str, until: int, since: int | None) -> Mapping[str, str]:
    """What the snapshot that holds the rows says of where they are from."""
    begin = {f"{SOURCE_SUMMARY}from-snapshot-id": str(since)} if since is not None else {}
    return {f"{SOURCE_SUMMARY}table-uuid": table_uuid, f"{SOURCE_SUMMARY}snapshot-id": str(until), **begin}


def parse_snapshot_id(text: str, field: str) -> int:
    """The id that a spec writes as text. Raises BadSpec."""
    if not text.isascii() or not text.isdecimal():
        message = f"{text!r} is not the id of a snapshot: write its digits, as status.snapshotId of the Table has them"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field)
    return int(text)


def find_since(
    name: str, start: str, reads: Sequence[TableRead], table_uuid: str, *, has_changes: bool = False
) -> int | None:
    """After which snapshot a consumer's next read begins; None: it reads the whole table.

    ``name``: of the table, for messages; ``start``: the job's fromSnapshot, or empty, from which it begins only once;
    ``reads``: what it has read, the newest first; ``has_changes``: it reads changes. Raises BadData (SOURCE_CHANGED)
    when that was of another table.
    """
    begun = frozenset(_starts(reads))
    if is_beginning(start, reads):
        return _after(start)
    head = reads[0]
    if head.table_uuid != table_uuid:
        way_out = (
            f"set source.table.fromSnapshot to the snapshot after which to begin, or to {BEGINNING} to read it whole"
        )
        raise BadData(
            Reason.SOURCE_CHANGED,
            f"{name} is another table (UUID {table_uuid}) than the one that was read before (UUID "
            f"{head.table_uuid}), so which of its rows are new is not known: "
            f"{FOLLOW_AGAIN if has_changes else START_AGAIN if BEGINNING in begun else way_out}",
            field=FIELD,
        )
    return int(head.snapshot_id) or None


def is_beginning(start: str, reads: Sequence[TableRead]) -> bool:
    """Return whether a read begins where the job says: it is the first of its consumer, or the first from there."""
    return not reads or (bool(start) and start not in _starts(reads))


def _after(start: str) -> int | None:
    return None if start in ("", BEGINNING) else parse_snapshot_id(start, f"{FIELD}.fromSnapshot")


@dataclass(frozen=True)
class Appends:
    """Files to read at the snapshot ``at``: those that one of the snapshots ``added_by`` added."""

    at: int
    added_by: frozenset[int]


def plan_appends(name: str, known: Mapping[int, SourceSnapshot], since: int, until: int) -> tuple[Appends, ...]:
    """The files that snapshots after ``since`` up to ``until`` appended. ``known``: all retained snapshots.

    A rewrite of files or of deletes leaves the rows as they are: what was appended before it is read at the snapshot
    before it.
    Raises BadData (SOURCE_CHANGED) when ``since`` is not in the retained history of ``until``, or when a snapshot in
    between is not an append: then the files that were added are not all that changed.
    """
    runs: list[list[int]] = [[]]
    for facts in _back_to(name, known, since, until):
        if facts.operation in _SAME_ROWS or facts.resolves_deletes:
            runs.append([])
            continue
        if facts.operation != _APPEND or facts.adds_deletes:
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"snapshot {facts.snapshot_id} of {name} is not an append ({facts.operation}): it changed or "
                f"removed rows that earlier snapshots have, which a read of new rows does not show; {START_AGAIN}",
                field=FIELD,
            )
        runs[-1].append(facts.snapshot_id)
    return tuple(Appends(run[0], frozenset(run)) for run in reversed(runs) if run)


def _back_to(name: str, known: Mapping[int, SourceSnapshot], since: int, until: int) -> Iterator[SourceSnapshot]:
    """The snapshots from ``until`` back to the one after ``since``."""
    at: int | None = until
    while at != since:
        facts = known.get(at) if at is not None else None
        if facts is None:
            raise BadData(Reason.SOURCE_CHANGED, _lost(name, known, since), field=FIELD)
        yield facts
        at = facts.parent_id


def _lost(name: str, known: Mapping[int, SourceSnapshot], since: int) -> str:
    if since in known:
        return (
            f"snapshot {since} of {name}, up to which it was read, is not in the history of the snapshot to be "
            "read: the table was rolled back, another branch is read, or snapshots in between expired, and rows that "
            f"were read may be in it no longer; {START_AGAIN}"
        )
    return lost_snapshot(name, since, START_AGAIN)


def lost_snapshot(name: str, since: int, way_out: str) -> str:
    """Why what came after ``since``, which is not retained, cannot be read."""
    return (
        f"snapshot {since} of {name}, up to which it was read, has expired or never was in it, so which rows "
        f"are new is not known: keep snapshots longer than the time between two jobs; {way_out}"
    )
