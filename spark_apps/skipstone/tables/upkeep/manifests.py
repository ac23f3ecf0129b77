"""Writes the small manifests of a head again as few large ones, sorted by partition, so that planning reads few.

Called by maintain runs. A commit of its own that changes no file; planned again on every head that it is tried on, so
nobody's commit is in its way. Must not change what entries say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.contract.requests import TableRef
from skipstone_core.history.commits import Committed, Conflicted, Outcome
from skipstone_core.maintenance.manifests import plan_manifest_groups
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.reading import read_manifests
from skipstone.compat.lineage.regrouping import LineageManifestRewrite
from skipstone.compat.manifestrewrite import ManifestRewrite
from skipstone.tables.committing.swaps import CommitPorts, StagedSwap, stage_producer, swap_until_known
from skipstone.tables.shaping.formats import has_lineage, require_mergeable
from skipstone.tables.upkeep.health import manifest_facts, manifest_target

_NOTHING = "No manifest is due."


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """``replaced`` manifests became ``written``. ``outcome`` None: none was due."""

    replaced: int = 0
    written: int = 0
    outcome: Outcome | None = None


def rewrite_manifests(catalog: Catalog, ref: TableRef, run_id: str, ports: CommitPorts | None = None) -> Rewritten:
    """Write manifests of ``ref`` again that are due.

    Raises BadSpec for a table that loads and merges do not write, DependencyUnavailable and OSError while nothing can
    have landed.
    """
    used, counts = ports or CommitPorts(), dict[int, ManifestRewrite]()
    outcome = swap_until_known(catalog, ref, partial(_prepare, run_id=run_id, ports=used, made=counts), used)
    if isinstance(outcome, Committed):
        tally = counts[outcome.snapshot_id].counts
        return Rewritten(replaced=tally["manifests-replaced"], written=tally["manifests-created"], outcome=outcome)
    return Rewritten() if outcome == _nothing() else Rewritten(outcome=outcome)


def _prepare(table: Table, run_id: str, ports: CommitPorts, made: dict[int, ManifestRewrite]) -> Outcome | StagedSwap:
    head = table.current_snapshot()
    require_mergeable(table)
    manifests = read_manifests(head, table.io, table.metadata.format_version) if head else []
    target = manifest_target(table)
    groups = plan_manifest_groups(manifest_facts(manifests, table.io), target)
    if not groups:
        return _nothing()
    chosen = [[manifests[number] for number in group] for group in groups]
    summary = {"skipstone.run": run_id}
    rewrite = LineageManifestRewrite if has_lineage(table) else ManifestRewrite
    staged = stage_producer(
        table, lambda transaction: rewrite(transaction, manifests, chosen, target, summary), ports.now_ms()
    )
    if isinstance(staged.producer, ManifestRewrite):
        made[staged.snapshot_id] = staged.producer
    return staged


def _nothing() -> Conflicted:
    return Conflicted(Reason.CONFLICTED, _NOTHING)
