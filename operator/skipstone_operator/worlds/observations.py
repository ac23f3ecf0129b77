"""The newest state of a table or an index that any finished run told.

Called by the deciders of tables, indexes and Warehouses. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from skipstone_core.contract.reports import IndexState, TableState

from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.times import parse_time


@dataclass(frozen=True)
class Observation:
    """A table's state and when the run that read it ended."""

    state: TableState
    time: datetime

    def index(self, uid: str) -> IndexState | None:
        """The state of the index whose resource has this uid."""
        return next((index for index in self.state.indexes if index.uid == uid), None)


def find_observation(table_uid: str, pods: Iterable[PodFacts], index_uid: str | None = None) -> Observation | None:
    """The newest observation of the table (and of the index when one is named); pods end in whole seconds."""
    found = [
        observation
        for observation in _observations(table_uid, pods)
        if index_uid is None or observation.index(index_uid) is not None
    ]
    return max(found, key=_newness, default=None)


def _newness(observation: Observation) -> tuple[datetime, int]:
    return (observation.time, observation.state.sequence_number)


def _observations(table_uid: str, pods: Iterable[PodFacts]) -> Iterator[Observation]:
    for pod in pods:
        if pod.states is None or pod.ended is None:
            continue
        for state in pod.states.table_states:
            if state.uid == table_uid:
                yield Observation(state, pod.ended)


def is_newer(observation: Observation, observed_time: str | None) -> bool:
    """Whether the observation is not older than what a status already holds."""
    known = parse_time(observed_time)
    return known is None or observation.time >= known
