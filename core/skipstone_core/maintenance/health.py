"""How a table is by its policy, and which steps of maintenance are due.

A run that reads a table's head counts; ``plan_due`` decides, in the operator, on what was counted. Pure: the time is
given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep

#: Snapshots expire when so many may, and so large a part of all, or when one is older by this part of the age than the
#: policy allows: an expiry looks at all snapshots, and one for each would cost more than what it removes.
EXPIRE_AT_ONCE = 10
EXPIRE_PART = 0.1
LATE_PART = 0.1
#: Seconds between two looks for orphan files, which list the whole location.
ORPHAN_INTERVAL = 86_400


@dataclass(frozen=True, kw_only=True)
class TableHealth:
    """Counts of one head. Bytes are those of files; ``*_ms`` are milliseconds since 1970, None: there is none.

    ``small_files``: smaller than the policy's target by more than a quarter. ``due_files``, ``due_bytes``: that
    compaction would rewrite now. ``delete_files``: position and equality deletes and deletion vectors;
    ``deleted_rows``: that those of one data file name; ``equality_delete_files``: the equality deletes among them.
    ``expirable_snapshots``: that the policy lets go at the time of the look; ``next_expiry_ms``: when the oldest of the
    others, or the first of these, became or becomes so.
    ``due_manifests``: that rewriting manifests would merge; ``manifests_without_bounds``: that other engines skip, as
    the list lacks bounds of their partitions. ``metadata_bytes``: of the metadata file, manifest lists and manifests of
    the head. ``bytes_by_age``: of live data files, by the age of the snapshot that added them
    (``hour``, ``day``, ``week``, ``month``, ``older``; that of an expired one is ``older``).
    """

    small_files: int = 0
    due_files: int = 0
    due_bytes: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    snapshots: int = 0
    expirable_snapshots: int = 0
    oldest_snapshot_ms: int | None = None
    next_expiry_ms: int | None = None
    manifests: int = 0
    due_manifests: int = 0
    manifests_without_bounds: int = 0
    metadata_bytes: int = 0
    bytes_by_age: Mapping[str, int] = field(default_factory=dict)
    equality_delete_files: int = 0


def plan_due(
    policy: MaintenancePolicy,
    health: TableHealth,
    last_looks: Mapping[MaintenanceStep, float],
    now: float,
    *,
    in_use_since_ms: int | None = None,
) -> tuple[MaintenanceStep, ...]:
    """The steps that are due at ``now`` (seconds since 1970), in their order.

    ``last_looks``: when each step last ended. ``in_use_since_ms``: as for ``plan_expiry``; what no expiry would remove
    now makes none due.
    """
    equality = policy.equality_deletes
    due = {
        MaintenanceStep.RESOLVE_EQUALITY_DELETES: equality is not None
        and health.equality_delete_files >= equality.min_files,
        MaintenanceStep.COMPACTION: policy.compaction is not None and health.due_files > 0,
        MaintenanceStep.MANIFESTS: policy.compaction is not None and health.due_manifests > 0,
        MaintenanceStep.SNAPSHOTS: _is_expiry_due(policy, health, now)
        and not _is_in_use(policy, health, in_use_since_ms),
        MaintenanceStep.ORPHAN_FILES: _seconds_to_orphans(policy, last_looks, now) == 0,
    }
    return tuple(step for step in MaintenanceStep if due[step])


def seconds_to_due(
    policy: MaintenancePolicy, health: TableHealth, last_looks: Mapping[MaintenanceStep, float], now: float
) -> float | None:
    """Seconds until another step becomes due by the clock alone; None when none will."""
    waits = [_seconds_to_expiry(policy, health, now), _seconds_to_orphans(policy, last_looks, now)]
    return min((wait for wait in waits if wait), default=None)


def _is_expiry_due(policy: MaintenancePolicy, health: TableHealth, now: float) -> bool:
    if policy.snapshots is None:
        return False
    enough = max(EXPIRE_AT_ONCE, int(health.snapshots * EXPIRE_PART))
    return health.expirable_snapshots >= enough or _seconds_to_expiry(policy, health, now) == 0


def _is_in_use(policy: MaintenancePolicy, health: TableHealth, since_ms: int | None) -> bool:
    """Return whether all that the policy lets go may still be read, so that an expiry would remove nothing.

    The first to go was replaced as the head of main before the others were.
    """
    if policy.snapshots is None or health.next_expiry_ms is None or since_ms is None:
        return False
    return health.next_expiry_ms - policy.snapshots.max_age_seconds * 1000 >= since_ms


def _seconds_to_expiry(policy: MaintenancePolicy, health: TableHealth, now: float) -> float | None:
    if policy.snapshots is None or health.next_expiry_ms is None:
        return None
    return max(0.0, health.next_expiry_ms / 1000 + LATE_PART * policy.snapshots.max_age_seconds - now)


def _seconds_to_orphans(
    policy: MaintenancePolicy, last_looks: Mapping[MaintenanceStep, float], now: float
) -> float | None:
    if policy.orphan_files is None:
        return None
    last = last_looks.get(MaintenanceStep.ORPHAN_FILES)
    if last is None or last > now:
        return 0.0
    interval = min(ORPHAN_INTERVAL, max(policy.orphan_files.older_than_seconds, 60))
    return max(0.0, last + interval - now)
