"""Steps of a maintain run that rewrite no rows: manifests, snapshots, orphan files.

Called by the maintain run. What they do is in ``tables/upkeep``; here it becomes a report.
"""

from __future__ import annotations

from skipstone_core.contract.reports import StepReport
from skipstone_core.errors import BadSpec
from skipstone_core.history.commits import Committed, Conflicted, Outcome
from skipstone_core.maintenance.policies import MaintenanceStep, OrphanFilesAction
from skipstone_core.reasons import Reason

from skipstone.runs.maintaining.leftovers import clean_leftovers
from skipstone.runs.maintaining.site import MaintainSite
from skipstone.tables.shaping.formats import require_readable_metadata
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tables.upkeep.manifests import rewrite_manifests
from skipstone.tables.upkeep.orphans import Orphans, OrphanSite, Spared, clean_orphans


def rewrite(site: MaintainSite) -> StepReport:
    """Step Manifests."""
    done = rewrite_manifests(site.catalog, site.ref, site.request.run_id, site.ports)
    counts = {"manifestsRewritten": done.replaced, "manifestsWritten": done.written}
    if done.outcome is None or isinstance(done.outcome, Committed):
        return _done(MaintenanceStep.MANIFESTS, counts)
    reason, message = _trouble(done.outcome)
    return StepReport(step=MaintenanceStep.MANIFESTS, is_done=False, reason=reason, message=message, counts=counts)


def expire(site: MaintainSite) -> StepReport:
    """Step Snapshots."""
    policy = site.task.policy.snapshots
    if policy is None:
        raise BadSpec(Reason.INVALID_SPEC, "no snapshot expires without spec.maintenance.snapshots", field="request")
    require_readable_metadata(site.load())
    done = expire_snapshots(site.catalog, site.ref, policy, site.ports, in_use_since_ms=site.task.in_use_since_ms)
    counts = {
        "snapshotsExpired": done.snapshots,
        "filesDeleted": done.deleted.files,
        "bytesDeleted": done.deleted.nbytes,
    }
    if done.is_done:
        return _done(MaintenanceStep.SNAPSHOTS, counts, " ".join(done.notes))
    return StepReport(
        step=MaintenanceStep.SNAPSHOTS,
        is_done=False,
        reason=done.reason,
        message=" ".join((done.message, *done.notes)),
        counts=counts,
    )


def clean(site: MaintainSite) -> StepReport:
    """Step OrphanFiles."""
    policy = site.task.policy.orphan_files
    if policy is None:
        raise BadSpec(
            Reason.INVALID_SPEC, "no orphan is looked for without spec.maintenance.orphanFiles", field="request"
        )
    require_readable_metadata(site.load())
    where = OrphanSite(
        catalog=site.catalog,
        warehouse=site.request.warehouse,
        ref=site.ref,
        spared=Spared(run_id=site.request.run_id, owners=site.task.spared_owners),
        now_ms=site.ports.now_ms,
    )
    left = clean_leftovers(where, policy)
    orphans = clean_orphans(where, policy)
    counts = {
        "filesFound": orphans.count,
        "bytesFound": orphans.total_bytes,
        "filesDeleted": orphans.deleted,
        "bytesDeleted": orphans.deleted_bytes,
        "recordsDeleted": left,
    }
    return _done(MaintenanceStep.ORPHAN_FILES, counts, _orphans_sentence(orphans, policy.action))


def _orphans_sentence(orphans: Orphans, action: OrphanFilesAction) -> str:
    """A sentence on what was found and stays; empty when nothing was."""
    if not orphans.count:
        return ""
    named = ", ".join(f"'{path}'" for path in orphans.first)
    first = f"the first are {named}" if orphans.count > len(orphans.first) else named
    after = (
        "the next run deletes what is still an orphan then"
        if action is OrphanFilesAction.DELETE
        else "set spec.maintenance.orphanFiles.policy to Delete to have them deleted"
    )
    return f"{orphans.count} files below the table's location are named by no metadata ({first}); {after}."


def _done(step: MaintenanceStep, counts: dict[str, int], message: str = "") -> StepReport:
    return StepReport(step=step, is_done=True, reason=Reason.COMMITTED, message=message, counts=counts)


def _trouble(outcome: Outcome) -> tuple[Reason, str]:
    if isinstance(outcome, Conflicted):
        return Reason(outcome.reason), outcome.message
    return Reason.OUTCOME_UNKNOWN, getattr(outcome, "message", "")
