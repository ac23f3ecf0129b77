"""What deciders of jobs ask about a job: what blocks it, what its run would be, how much time it has left.

Called by the job deciders only. Pure.
"""

from __future__ import annotations

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.reconcilers.runs.requests import RunPlan, plan_job_run
from skipstone_operator.worlds.subjects import Finding, TableSubject, find_table_finding, find_warehouse_finding
from skipstone_operator.worlds.times import seconds_since
from skipstone_operator.worlds.worlds import JobWorld

MAIN_KINDS = (RunKind.LOAD, RunKind.MERGE, RunKind.DRY_RUN)
WAIT_POLL = 60.0
_SOURCE_FIELD = "spec.source.table"


def find_block(world: JobWorld) -> Finding | None:
    """What else has to change before the job may start a run."""
    if (foreign_owner := find_foreign_owner(world)) is not None:
        return foreign_owner
    if (finding := find_table_finding(world.job.spec.table_ref.name, world.place.table)) is not None:
        return finding
    return find_warehouse_block(world) or find_location_block(world) or find_source_block(world) or world.turn


def find_foreign_owner(world: JobWorld) -> Finding | None:
    """Return a finding if the job began on another Table: there the job's commit would not be found."""
    status, table = world.job.status, world.place.table
    if table is None or not status.launched or status.table_uid in ("", table.meta.uid):
        return None
    return Finding(
        Reason.TABLE_NOT_FOUND,
        f"spec.tableRef: the Table {table.meta.name!r} that this job began on is gone, and the one that bears its name "
        "now is another: delete this job and create it again",
    )


def table_uid(world: JobWorld) -> str:
    """The uid of the Table that the job is for; fixed once a driver may have written to it."""
    status, table = world.job.status, world.place.table
    if table is None or (status.launched and status.table_uid):
        return str(status.table_uid)
    return table.meta.uid


def find_warehouse_block(world: JobWorld) -> Finding | None:
    """Why the Warehouse keeps the job waiting."""
    table = world.place.table
    if table is None:
        return None
    finding = find_warehouse_finding(table.spec.warehouse_ref.name, world.place.warehouse)
    return Finding(Reason.WAITING_FOR_WAREHOUSE, finding.message) if finding is not None else None


def find_location_block(world: JobWorld) -> Finding | None:
    """Return a finding if the job reads from a location that its Warehouse does not have."""
    warehouse, name = world.place.warehouse, world.job.spec.source.location
    if warehouse is None or not name or any(location.name == name for location in warehouse.spec.source_locations):
        return None
    message = (
        f"spec.source.location: Warehouse {warehouse.meta.name!r} has no source location {name!r}; add it to its "
        "spec.sourceLocations, or create the job with another one"
    )
    return Finding(Reason.SOURCE_LOCATION_NOT_FOUND, message)


def find_source_block(world: JobWorld) -> Finding | None:
    """Return a finding if the job reads a Table that cannot be read now, or not by the job's runs."""
    wanted, source, table = world.job.spec.source.table, world.place.source, world.place.table
    if wanted is None or table is None:
        return None
    if (finding := find_table_finding(wanted.name, source, _SOURCE_FIELD)) is not None or source is None:
        return finding
    if source.spec.warehouse_ref == table.spec.warehouse_ref:
        return None
    return _find_source_warehouse_block(world, source)


def _find_source_warehouse_block(world: JobWorld, source: TableSubject) -> Finding | None:
    """Why the other Warehouse, in which the source table is, keeps the job waiting."""
    place, name = world.place, source.spec.warehouse_ref.name
    mine, theirs = place.warehouse, place.source_warehouse
    which = f"{_SOURCE_FIELD}: Table {source.meta.name!r} is in Warehouse {name!r}"
    if (finding := find_warehouse_finding(name, theirs)) is not None or theirs is None or mine is None:
        why = "which does not exist; create it" if theirs is None else "which is not ready: see its conditions"
        return Finding(Reason.WAITING_FOR_WAREHOUSE, f"{which}, {why}") if finding is not None else None
    if place.source_claim is not None and place.source_claim.one_pod:
        message = (
            f"{which}, whose claim {place.source_claim.name!r} is ReadWriteOncePod, so no pod of another Warehouse can "
            "mount it; use a ReadWriteOnce or ReadWriteMany claim"
        )
        return Finding(Reason.INVALID_SPEC, message)
    if theirs.spec.ca_bundle_ref is not None and theirs.spec.ca_bundle_ref != mine.spec.ca_bundle_ref:
        message = (
            f"{which}, whose spec.caBundleRef is not that of Warehouse {mine.meta.name!r}: put the certificates of "
            "both into one ConfigMap, and name it in both Warehouses"
        )
        return Finding(Reason.INVALID_SPEC, message)
    return None


def plan_run(world: JobWorld) -> RunPlan | None:
    """What the job's run would be, when its Table and Warehouse are there."""
    table, warehouse = world.place.table, world.place.warehouse
    if table is None or warehouse is None:
        return None
    return plan_job_run(world.job, world.place, table, warehouse, world.setting)


def deadline_left(world: JobWorld) -> float | None:
    """Seconds left of activeDeadlineSeconds; None when there is none or its clock has not started."""
    limit, status = world.job.spec.active_deadline_seconds, world.job.status
    spent = seconds_since(status.start_time, world.setting.now)
    return None if limit is None or spent is None else max(0.0, limit - spent)


def deadline_message(world: JobWorld) -> str:
    """Why the deadline ends the job."""
    return f"spec.activeDeadlineSeconds ({world.job.spec.active_deadline_seconds} s) passed"


def retry_message(world: JobWorld) -> str:
    """What failed last, while the next attempt waits."""
    last, status = world.job.status.last_run, world.job.status
    why = f"attempt {last.attempt} ended: {last.reason}: {last.message}" if last else "the last attempt failed"
    return f"{why}; failed attempts: {status.failed_attempts} of {world.job.spec.backoff_limit + 1}"
