"""What reads a Table for another one, and from when on its snapshots are needed for that.

Called by the decider of maintain runs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from skipstone_core.contract.requests import ConsumePolicy
from skipstone_core.maintenance.expiry import MAIN

from skipstone_operator.conditions import COMPLETE, FAILED, is_true
from skipstone_operator.resources.mergeschedule import MergeScheduleSpec, MergeScheduleStatus
from skipstone_operator.worlds.subjects import JobSubject, ScheduleSubject
from skipstone_operator.worlds.times import CLOCKS, past_time

SourceReader = JobSubject | ScheduleSubject


def find_read_since(readers: Iterable[SourceReader], now: datetime) -> datetime | None:
    """From when on the heads of main are needed by ``readers`` of the table; None: they need none.

    A job reads a snapshot that was the head when it began or later. A schedule that consumes what is new goes on from
    the snapshot that its last MergeJob read.
    """
    moments = [moment for reader in readers if (moment := past_time(_since(reader), now)) is not None]
    # The times of snapshots are those of the clocks of writers.
    return min(moments) - CLOCKS if moments else None


def _since(reader: SourceReader) -> str | None:
    spec, status, begun = reader.spec, reader.status, reader.meta.creation_timestamp
    if not isinstance(spec, MergeScheduleSpec):
        return None if any(is_true(reader.status.conditions, kind) for kind in (COMPLETE, FAILED)) else begun
    source = spec.merge_template.spec.source
    is_new = source.consume is ConsumePolicy.NEW and source.table is not None and source.table.ref in (None, MAIN)
    if spec.suspend or not is_new or not isinstance(status, MergeScheduleStatus):
        return None
    return status.last_read_time or begun
