"""Tables and sources as the data plane sees them: the parts of a request that name the data of a run.

Called where requests are built. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.codec import decode, encode
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask, SourceSpec, TableRef
from skipstone_core.history.tablereads import CHANGE_COLUMN, ChangeType
from skipstone_core.ids import short_hash

from skipstone_operator.reconcilers.runs.policies import build_policy
from skipstone_operator.resources.kinds import MERGE_SCHEDULE
from skipstone_operator.resources.source import Source
from skipstone_operator.worlds.subjects import JobSubject, TableSubject, is_dry_run


def build_table_ref(table: TableSubject) -> TableRef:
    """The table as the data plane sees it."""
    return TableRef(
        namespace=table.spec.identifier.namespace,
        name=table.spec.identifier.name,
        uid=table.meta.uid,
        management=table.spec.management,
        table_uuid=table.status.table_uuid or None,
        location=table.status.location or None,
        namespace_id=table.status.namespace_id or None,
        maintenance=build_policy(table.spec.maintenance),
    )


def build_source(spec: Source, source_table: TableSubject | None) -> SourceSpec:
    """The source as the data plane sees it: a table comes as files that the run writes itself."""
    given = {**encode(spec), "format": SourceFormat.PARQUET.value, "paths": []}
    if spec.delta is not None:
        return decode(SourceSpec, given)
    if spec.table is None or source_table is None:
        return decode(SourceSpec, encode(spec))
    table = {name: value for name, value in given.pop("table").items() if name not in ("name", "changes")}
    return decode(SourceSpec, {**given, "table": {**table, "table": encode(build_table_ref(source_table))}})


def with_changes(task: MergeTask) -> MergeTask:
    """``task`` that applies what changed in its source table: each change does to the target what it did there."""
    if task.source.table is None:
        return task
    is_delete = f"source.{CHANGE_COLUMN} = '{ChangeType.DELETE}'"
    table = replace(task.source.table, change_keys=tuple(key.source for key in task.keys))
    return replace(
        task,
        source=replace(task.source, table=table),
        when_matched=(
            MergeClause(action=MergeAction.DELETE, when=is_delete),
            MergeClause(action=MergeAction.UPDATE),
        ),
        when_not_matched=(MergeClause(action=MergeAction.INSERT, when=f"not {is_delete}"),),
    )


def consumer_of(job: JobSubject) -> str:
    """Whose memory of consumed files the job shares: its schedule's, by name, or that of all jobs with its paths.

    A dry run adds nothing to it, so that it may have the memory of a schedule that does not control it. Files of
    another location are others, though they be named alike. Jobs on a table share it that read the same rows.
    """
    source = job.spec.source
    place = f" of {source.location}" if source.location else ""
    for owner in job.meta.owner_references:
        if owner.kind == MERGE_SCHEDULE.name and (owner.controller or is_dry_run(job)):
            return f"{MERGE_SCHEDULE.name} {job.meta.namespace}/{owner.name}{place}"
    if source.table is not None:
        return f"jobs on table {source.table.name} {short_hash(source.table.ref or '', source.table.where or '')}"
    if source.delta is not None:
        return f"jobs on Delta table {short_hash(source.delta.path, source.delta.where or '')}{place}"
    return f"jobs on paths {short_hash(*sorted(set(source.paths or ())))}{place}"
