"""Lets old snapshots of an index table go, with the files that only they reach: they are ours, and need no policy.

Called by whoever commits to an index, after its commits. A query that found its files in an older snapshot has an hour
to read them. Must not fail a run.
"""

from __future__ import annotations

import logging

from pyiceberg.catalog import Catalog
from skipstone_core.maintenance.health import EXPIRE_AT_ONCE
from skipstone_core.maintenance.policies import SnapshotPolicy

from skipstone.indexes.tables import IndexTable
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tables.upkeep.health import expiry_plan

#: How long files of an index that it no longer needs can still be read.
READERS_SECONDS = 3600
#: So large a part of all snapshots goes at once: an expiry looks at what all others reach.
_PART = 0.2
POLICY = SnapshotPolicy(max_age_seconds=READERS_SECONDS)
_log = logging.getLogger(__name__)


def expire_index(catalog: Catalog, index: IndexTable, ports: CommitPorts | None = None) -> int:
    """How many snapshots expired; none before so many may that it is worth a commit. What fails is logged."""
    used = ports or CommitPorts()
    snapshots = index.table.metadata.snapshots
    enough = max(EXPIRE_AT_ONCE, int(len(snapshots) * _PART))
    before_ms = used.now_ms() - POLICY.max_age_seconds * 1000
    # On main nothing younger expires, and we make no branch
    if sum(snapshot.timestamp_ms < before_ms for snapshot in snapshots) < enough:
        return 0
    if len(expiry_plan(index.table, POLICY, used.now_ms()).snapshots) < enough:
        return 0
    try:
        done = expire_snapshots(catalog, index.ref(), POLICY, used)
    except Exception:  # noqa: BLE001 - what was committed stands; the next commit tries again
        _log.warning("old snapshots of the index %s stay for now", index.name, exc_info=True)
        return 0
    for message in done.notes:
        _log.warning("%s: %s", index.name, message)
    return done.snapshots
