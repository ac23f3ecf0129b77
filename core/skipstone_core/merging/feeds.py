"""What a change feed of a tool means as a merge: its clauses, and the columns that carry what is not a column of a row.

Called by the merge run before it plans. Must not know how feeds are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from skipstone_core.codec import camel
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask, SchemaEvolution, SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.merging.merges import KEPT_COLUMN, MergeColumn, MergePlan, PartialRows
from skipstone_core.reasons import Reason

#: What a change does to its row: one of the first three below. NO_ROW: a message that tells of none, to be counted.
OP_COLUMN = "_skipstone_op"
UPSERT, DELETE, TRUNCATE, NO_ROW = "U", "D", "T", "S"
#: Of which kind the first change of a row is: DELETE and UPDATE expect the row to be there, READ is of a snapshot. Null
#: of others, which create their row.
KIND_COLUMN = "_skipstone_kind"
UPDATE, READ = "C", "R"
#: See PartialRows.
MISSING_COLUMN = "_skipstone_missing"

_GONE = f"source.{OP_COLUMN} = '{DELETE}'"
_LIVES = f"source.{OP_COLUMN} != '{DELETE}'"


def feed_task(task: MergeTask) -> MergeTask:
    """``task`` with the clauses that apply its feed. Raises BadSpec for fields that say the same themselves."""
    require_feed(task.source)
    _require_identity(task)
    steered = (task.when_matched, task.when_not_matched, task.when_not_matched_by_source, task.sequence_by)
    if any(steered) or task.target_sequence or task.schema_evolution is not SchemaEvolution.NONE:
        raise _refused(
            "it says what each change does and in which order: remove sequenceBy, targetSequence, whenMatched, "
            "whenNotMatched, whenNotMatchedBySource and schemaEvolution"
        )
    if renamed := [key for key in task.keys if key.target != key.source]:
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"a change feed carries the names of the table's columns: pair {renamed[0].target!r} with itself",
            field="spec.keys",
        )
    return replace(
        task,
        when_matched=(
            MergeClause(action=MergeAction.DELETE, when=_GONE),
            MergeClause(action=MergeAction.UPDATE, present=True),
        ),
        when_not_matched=(MergeClause(action=MergeAction.INSERT, when=_LIVES),),
    )


def truncated(task: MergeTask) -> MergeTask:
    """``task`` made to delete all rows that its feed does not have: it holds what came after a truncate only."""
    return replace(task, when_not_matched_by_source=(MergeClause(action=MergeAction.DELETE),))


def require_feed(source: SourceSpec) -> None:
    """Raise BadSpec (INVALID_SPEC) for fields of ``source`` that do not go with its change format."""
    if source.change_format is None:
        raise _refused("the source names no change format")
    formats = source.change_format.feed.files
    if source.format not in formats:
        allowed = " or ".join(formats)
        raise _refused(f"{source.change_format} is read as {allowed}, not as {source.format}: fix source.format")
    if source.columns or source.mapping:
        raise _refused("names and types come from the table: remove source.columns and source.mapping")
    for tools, fields in tool_fields().items():
        set_ = [camel(name) for name in fields if getattr(source, name) is not None]
        if set_ and source.change_format not in tools:
            raise _refused(f"{' and '.join(set_)} are for {in_words(tools)} only: remove them")


def tool_fields() -> Mapping[tuple[ChangeFormat, ...], tuple[str, ...]]:
    """Return the fields of a source that are for the feeds of some tools only, by these."""
    tools = {name: tuple(tool for tool in ChangeFormat if name in tool.feed.fields) for name in _told_fields()}
    groups = dict.fromkeys(tools.values())
    return {group: tuple(name for name in tools if tools[name] == group) for group in groups}


def _told_fields() -> Sequence[str]:
    return list(dict.fromkeys(name for tool in ChangeFormat for name in tool.feed.fields))


def file_formats() -> Mapping[tuple[SourceFormat, ...], tuple[ChangeFormat, ...]]:
    """Return which tools' feeds are read from files of these formats."""
    groups = dict.fromkeys(tool.feed.files for tool in ChangeFormat)
    return {files: tuple(tool for tool in ChangeFormat if tool.feed.files == files) for files in groups}


def with_table_names() -> tuple[ChangeFormat, ...]:
    """Return the tools whose feeds may have changes of several tables, of which ``source.tables`` names some."""
    return tuple(tool for tool in ChangeFormat if tool.feed.table_names)


def in_words(names: Sequence[str], last: str = "and") -> str:
    """Return ``names`` as a sentence lists them."""
    return f" {last} ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _require_identity(task: MergeTask) -> None:
    identity = task.source.replica_identity
    outside = [] if identity is None else [key.source for key in task.keys if key.source not in identity]
    if outside:
        raise _refused(
            f"the key column '{outside[0]}' is not in source.replicaIdentity, so that deletes do not name their row: "
            "choose keys among its columns, or run ALTER TABLE ... REPLICA IDENTITY FULL on the source table and add "
            "the column"
        )


def control_columns() -> tuple[MergeColumn, ...]:
    """The columns of a feed besides those of rows, as the rules of merges take them."""
    return (
        MergeColumn(name=OP_COLUMN, type="string"),
        MergeColumn(name=KEPT_COLUMN, type="binary"),
        MergeColumn(name=MISSING_COLUMN, type="binary"),
        MergeColumn(name=KIND_COLUMN, type="string"),
    )


def feed_plan(plan: MergePlan, columns: Sequence[str]) -> MergePlan:
    """``plan`` for source rows that may lack some of ``columns``, in the order of their bits."""
    partial = PartialRows(columns=tuple(columns), kept=KEPT_COLUMN, missing=MISSING_COLUMN)
    return replace(
        plan,
        partial=partial,
        source_columns=(*plan.source_columns, MISSING_COLUMN, KIND_COLUMN),
        kinds=KIND_COLUMN,
    )


def _refused(message: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, message, field="spec.source.changeFormat")
