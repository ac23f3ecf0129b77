"""The newest state of a table or an index that any finished run told.

Runs that end in the same second, or in another order than they read the table, tell different metadata of it: the
metadata itself says which is newer, the time decides only where it does not. What a run told at a time that has not
been yet (the clock went back) is as good, and its time says nothing. Called by the deciders of tables and indexes.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from skipstone_core.codec import decode, encode
from skipstone_core.contract.reports import IndexState, MetadataMark, TableState
from skipstone_core.contract.requests import RunKind

from skipstone_operator.conditions import format_time
from skipstone_operator.resources.common import SeenMetadata
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.times import CLOCKS, parse_time, past_time


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Which metadata was read (of the table, then of the index), when, and when any run last looked."""

    marks: tuple[MetadataMark, ...]
    read: datetime | None
    looked: datetime | None


@dataclass(frozen=True)
class Observation:
    """A table's state, when the run that read it began and ended, and when any run last looked."""

    state: TableState
    time: datetime
    begun: datetime | None
    looked: datetime

    def index(self, uid: str) -> IndexState | None:
        """The state of the index whose resource has this uid."""
        return next((index for index in self.state.indexes if index.uid == uid), None)

    def sighting(self, index_uid: str | None = None) -> Sighting:
        """What the run read."""
        index = self.index(index_uid) if index_uid is not None else None
        marks = (self.state.metadata,) if index is None else (self.state.metadata, index.metadata)
        return Sighting(marks=marks, read=self.time, looked=self.time)

    def mark(self, metadata: MetadataMark) -> SeenMetadata:
        """``metadata`` as a status remembers it."""
        return decode(SeenMetadata, {**encode(metadata), "time": format_time(self.time)})


def find_observation(
    table_uid: str, pods: Iterable[PodFacts], now: datetime, index_uid: str | None = None
) -> Observation | None:
    """The newest observation of the table (and of the index when one is named)."""
    observations = [
        observation
        for observation in _observations(table_uid, pods)
        if index_uid is None or observation.index(index_uid) is not None
    ]
    newest: Observation | None = None
    for observation in sorted(observations, key=lambda each: (not _is_future(each.time, now), *_order(each))):
        if newest is None or _supersedes(observation, newest.sighting(index_uid), now, index_uid):
            newest = observation
    if newest is None:
        return None
    looks = [each.time for each in observations if not _is_future(each.time, now)] or [newest.time]
    return Observation(newest.state, newest.time, newest.begun, looked=max(looks))


def remembered(observed_time: str | None, *marks: SeenMetadata | None) -> Sighting:
    """What a status holds."""
    known = tuple(mark for mark in marks if mark is not None)
    looked = parse_time(observed_time)
    return Sighting(
        marks=tuple(MetadataMark(uuid=mark.uuid, version=mark.version, updated_ms=mark.updated_ms) for mark in known),
        read=parse_time(known[0].time) if known else looked,
        looked=looked,
    )


def is_newer(observation: Observation, known: Sighting, now: datetime, index_uid: str | None = None) -> bool:
    """Return whether the observation is not older than a status holds; True for a status of the future."""
    if any(moment is not None and _is_future(moment, now) for moment in (known.read, known.looked)):
        return True
    return _supersedes(observation, known, now, index_uid)


def last_look(known: str | None, observation: Observation, now: datetime) -> str:
    """When any run last looked: ``known`` as a status has it, unless the observation is later."""
    before = past_time(known, now)
    return known if known and before is not None and before >= observation.looked else format_time(observation.looked)


def may_miss(moment: datetime, table_uid: str, pods: Iterable[PodFacts], now: datetime) -> bool | None:
    """Return whether all runs that reported the table after ``moment`` may have read it before. None: none reported.

    An observe run reads many tables, each at some time between its begin and its end; others read theirs when they end.
    """
    pairs = [
        (pod, observation)
        for pod in pods
        for observation in _observations(table_uid, (pod,))
        if observation.time >= moment
    ]
    # Of a clock that went back since, nobody can say what its times were before.
    trusted = [
        (pod, observation)
        for pod, observation in pairs
        if not _is_future(observation.time, now) or _is_future(moment, now)
    ]
    if not trusted:
        return None
    return all(
        pod.operation == RunKind.OBSERVE and observation.begun is not None and observation.begun < moment
        for pod, observation in trusted
    )


def _is_future(moment: datetime, now: datetime) -> bool:
    """Return whether no clock that is right can have said so yet."""
    return moment > now + CLOCKS


def _order(observation: Observation) -> tuple[datetime, datetime, int, int]:
    metadata = observation.state.metadata
    return (observation.time, observation.begun or observation.time, metadata.version, metadata.updated_ms)


def _supersedes(new: Observation, known: Sighting, now: datetime, index_uid: str | None) -> bool:
    if known.read is None or known.looked is None:
        return True
    order = _compare(new.sighting(index_uid).marks, known.marks)
    if _is_future(known.read, now) and not _is_future(new.time, now):
        return order >= 0
    if order < 0:
        # A table may go back (a restored catalog), and a status may lie: a run that began well after the other ended
        # has seen what is there now.
        return new.begun is not None and new.begun > known.read + CLOCKS
    if order > 0:
        # A run that ended well before the other saw what the table was before it went back.
        return new.time >= known.read - CLOCKS
    return new.time >= known.looked


def _compare(new: tuple[MetadataMark, ...], known: tuple[MetadataMark, ...]) -> int:
    """Negative, zero or positive as ``new`` is older metadata, undecided, or newer; the table's comes first."""
    for mark, other in zip(new, known, strict=False):
        if not mark.uuid or mark.uuid != other.uuid:
            return 0
        ours, theirs = (mark.version, mark.updated_ms), (other.version, other.updated_ms)
        if ours != theirs:
            return 1 if ours > theirs else -1
    return 0


def _observations(table_uid: str, pods: Iterable[PodFacts]) -> Iterator[Observation]:
    for pod in pods:
        if pod.states is None or pod.ended is None:
            continue
        for state in pod.states.table_states:
            if state.uid == table_uid:
                yield Observation(state, pod.ended, pod.created, pod.ended)
