"""The MergeJob: applies a feed of changes to a Table, at most once, and skips files that no key can touch.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.requests import SchemaEvolution
from skipstone_core.funnel import LeftOut
from skipstone_core.merging.unused import MAX_UNUSED

from skipstone_operator.resources.common import BRANCH, Branch, LocalRef
from skipstone_operator.resources.jobstatus import DefaultedColumn, JobStatus
from skipstone_operator.resources.merging.clauses import (
    ANY_STAGE,
    MatchedClause,
    MergeKeyPair,
    NotMatchedBySourceClause,
    NotMatchedClause,
    Pruning,
    UpdatedColumns,
    reachable,
    when_text,
)
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule, frozen_optional, frozen_required, name_text
from skipstone_operator.resources.source import TIME_ZONE, BadRecords, MergeSource, RunFields

#: How many indexes a status lists.
MAX_INDEXES_BEHIND = 32
#: Stages of a prune funnel that a status shows, and characters in the name of one.
MAX_STAGES = 16
MAX_STAGE_NAME = 64


def _leaves_out(spec: MergeJobSpec) -> bool:
    return spec.bad_records is not None and spec.bad_records.policy is not BadRecordPolicy.FAIL


def _steered(spec: MergeJobSpec) -> bool:
    """Return whether the spec says itself what a change does, or in which order."""
    clauses = spec.when_matched or spec.when_not_matched or spec.when_not_matched_by_source
    return bool(
        clauses or spec.sequence_by or spec.target_sequence or spec.schema_evolution is not SchemaEvolution.NONE
    )


def _reads_changes(spec: MergeJobSpec) -> bool:
    return spec.source.table is not None and bool(spec.source.table.changes)


_READS_CHANGES = "(has(self.source.table) && has(self.source.table.changes) && self.source.table.changes)"
_LISTS = ("whenMatched", "whenNotMatched", "whenNotMatchedBySource")
_OPTIONAL = (
    *("sequenceBy", "targetSequence", "targetWhere", *_LISTS, "schemaEvolution", "timeZone", "pruning"),
    *("badRecords", "dryRun", "branch"),
)


_KEEPS_ALL = "!has(self.badRecords) || !has(self.badRecords.policy) || self.badRecords.policy == 'Fail'"


@dataclass(frozen=True, kw_only=True)
class MergeJobSpec(RunFields):
    """Which changes to apply to which table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *(frozen_required(name) for name in ("tableRef", "source", "keys")),
        *(frozen_optional(name) for name in _OPTIONAL),
        Rule(
            holds=lambda spec: bool(
                spec.source.change_format
                or _reads_changes(spec)
                or spec.when_matched
                or spec.when_not_matched
                or spec.when_not_matched_by_source
            ),
            rule=f"has(self.source.changeFormat) || {_READS_CHANGES} || "
            + " || ".join(f"(has(self.{name}) && self.{name}.size() > 0)" for name in _LISTS),
            message="whenMatched, whenNotMatched or whenNotMatchedBySource must have at least one clause: without any "
            "the merge does nothing",
            field_path=".whenMatched",
        ),
        Rule(
            holds=lambda spec: spec.source.change_format is None or not _steered(spec),
            rule="!has(self.source.changeFormat) || (!has(self.sequenceBy) && !has(self.targetSequence) && "
            + " && ".join(f"(!has(self.{name}) || self.{name}.size() == 0)" for name in _LISTS)
            + " && (!has(self.schemaEvolution) || self.schemaEvolution == 'None'))",
            message="source.changeFormat says what each change does and in which order: remove sequenceBy, "
            "targetSequence, whenMatched, whenNotMatched, whenNotMatchedBySource and schemaEvolution",
            field_path=".source",
        ),
        Rule(
            holds=lambda spec: not _reads_changes(spec) or not (_steered(spec) or _leaves_out(spec)),
            rule=f"!{_READS_CHANGES} || (!has(self.sequenceBy) && !has(self.targetSequence) && ({_KEEPS_ALL}) && "
            + " && ".join(f"(!has(self.{name}) || self.{name}.size() == 0)" for name in _LISTS)
            + " && (!has(self.schemaEvolution) || self.schemaEvolution == 'None'))",
            message="source.table.changes says what each change does, and all of them have to fit: remove sequenceBy, "
            "targetSequence, whenMatched, whenNotMatched, whenNotMatchedBySource, schemaEvolution and badRecords",
            field_path=".source",
        ),
        Rule(
            holds=lambda spec: spec.source.change_format is None or all(key.target == key.source for key in spec.keys),
            rule="!has(self.source.changeFormat) || self.keys.all(k, k.target == k.source)",
            message="keys must pair each column with itself when source.changeFormat is set: changes carry the names "
            "of the table's columns",
            field_path=".keys",
        ),
        Rule(
            holds=lambda spec: (
                not spec.source.replica_identity or all(key.source in spec.source.replica_identity for key in spec.keys)
            ),
            rule="!has(self.source.replicaIdentity) || self.source.replicaIdentity.size() == 0 || "
            "self.keys.all(k, k.source in self.source.replicaIdentity)",
            message="source.replicaIdentity must have all keys, as a delete names its row by logged columns only: "
            "choose keys among them, or run ALTER TABLE ... REPLICA IDENTITY FULL on the source table and add the keys",
            field_path=".keys",
        ),
        Rule(
            holds=lambda spec: spec.source.unknown_columns is None or spec.schema_evolution is SchemaEvolution.NONE,
            rule="!has(self.source.unknownColumns) || !has(self.schemaEvolution) || self.schemaEvolution == 'None'",
            message="schemaEvolution and source.unknownColumns say what becomes of the same columns: remove one of "
            "them (AddColumns is the same as Add)",
            field_path=".schemaEvolution",
        ),
        Rule(
            holds=lambda spec: not (_leaves_out(spec) and spec.when_not_matched_by_source),
            rule=f"{_KEEPS_ALL} || !has(self.whenNotMatchedBySource) || self.whenNotMatchedBySource.size() == 0",
            message="badRecords.policy must be Fail with whenNotMatchedBySource: a row that is left out would count as "
            "one that the source does not have",
            field_path=".badRecords",
        ),
        Rule(
            holds=lambda spec: (
                not (
                    _leaves_out(spec) and any(clause.columns is UpdatedColumns.PRESENT for clause in spec.when_matched)
                )
            ),
            rule=f"{_KEEPS_ALL} || !has(self.whenMatched) || self.whenMatched.all(c, !has(c.columns) || "
            "c.columns != 'Present')",
            message="badRecords.policy must be Fail with an Update of the columns Present: a later row would be "
            "applied as if the one that is left out was not missing",
            field_path=".badRecords",
        ),
        Rule(
            holds=lambda spec: (
                spec.source.change_format is not None
                or spec.bad_records is None
                or spec.bad_records.policy is not BadRecordPolicy.REDIRECT
                or not spec.when_matched
                or spec.target_sequence is not None
            ),
            rule="has(self.source.changeFormat) || !has(self.badRecords) || !has(self.badRecords.policy) || "
            "self.badRecords.policy != 'Redirect' || !has(self.whenMatched) || self.whenMatched.size() == 0 || "
            "has(self.targetSequence)",
            message="badRecords.policy Redirect needs targetSequence where whenMatched has clauses: else a row that is "
            "merged later could take the place of a newer one. Name the table column that keeps sequenceBy, or set the "
            "policy Drop",
            field_path=".badRecords",
        ),
        Rule(
            holds=lambda spec: spec.target_sequence is None or spec.sequence_by is not None,
            rule="!has(self.targetSequence) || has(self.sequenceBy)",
            message="targetSequence needs sequenceBy, the source column whose values it keeps: name it",
            field_path=".targetSequence",
        ),
        reachable("whenMatched", "when_matched"),
        reachable("whenNotMatched", "when_not_matched"),
        reachable("whenNotMatchedBySource", "when_not_matched_by_source"),
    )

    table_ref: Annotated[LocalRef, Doc("The Table that is changed. Never changes.")]
    source: Annotated[MergeSource, Doc("The changes. Never changes.")]
    keys: Annotated[
        tuple[MergeKeyPair, ...],
        Doc(
            "Pairs of columns that must be equal for a match. Never changes.",
            min_items=1,
            max_items=limits.MAX_KEYS,
            list_key="target",
            item=Doc("One pair."),
        ),
    ]
    branch: Annotated[Branch | None, BRANCH] = None
    sequence_by: Annotated[
        str | None,
        name_text(
            "Source column whose greatest value wins among several changes of one key; without it, several changes "
            "are an error. Never changes."
        ),
    ] = None
    target_sequence: Annotated[
        str | None,
        name_text(
            "Table column that holds the sequenceBy value of each row's last change: a change with a lower value is "
            "ignored. The merge writes it. Never changes."
        ),
    ] = None
    target_where: Annotated[
        str | None,
        when_text(
            "Predicate over target.x and source.y that is part of the match, as in SQL's ON: rows with equal keys that "
            "do not satisfy it do not match, and files without such rows by their bounds are not read. A change of "
            "a row that does not satisfy it is inserted beside that row, and such rows count as not matched by "
            "source. Never changes."
        ),
    ] = None
    when_matched: Annotated[
        tuple[MatchedClause, ...],
        Doc(
            "Clauses for matched rows; the first that holds wins. Never changes.",
            max_items=limits.MAX_CLAUSES,
            item=Doc("One clause."),
        ),
    ] = ()
    when_not_matched: Annotated[
        tuple[NotMatchedClause, ...],
        Doc(
            "Clauses for source rows without match; the first that holds wins. Never changes.",
            max_items=limits.MAX_CLAUSES,
            item=Doc("One clause."),
        ),
    ] = ()
    when_not_matched_by_source: Annotated[
        tuple[NotMatchedBySourceClause, ...],
        Doc(
            "Clauses for rows of the table without a source row; the first that holds wins. Never changes.",
            max_items=limits.MAX_CLAUSES,
            item=Doc("One clause."),
        ),
    ] = ()
    schema_evolution: Annotated[
        SchemaEvolution,
        Doc(
            "None ignores source columns that the table does not have, AddColumns adds them to a Managed table. "
            "Never changes."
        ),
    ] = SchemaEvolution.NONE
    time_zone: Annotated[str, TIME_ZONE] = "UTC"
    pruning: Annotated[Pruning, Doc("How files are skipped. Never changes.")] = ANY_STAGE
    bad_records: Annotated[
        BadRecords | None,
        Doc(
            "What happens to changes that do not fit, and to later changes of their rows, which wait with them. "
            "Never changes."
        ),
    ] = None
    dry_run: Annotated[
        bool | None,
        Doc(
            "Compute the effect of the merge, and write nothing: the job does not wait for its turn, commits nothing, "
            "and is Complete with the reason DryRun when the status shows the funnel and the rows. Never changes."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FileFunnel:
    """Data files of the table along the funnel."""

    total: Annotated[int, Doc("Live data files.", minimum=0)] = 0
    candidate: Annotated[int, Doc("Files that may hold a source key.", minimum=0)] = 0
    touched: Annotated[int, Doc("Files that hold one.", minimum=0)] = 0
    rewritten: Annotated[int, Doc("Files that were written again.", minimum=0)] = 0
    marked: Annotated[int, Doc("Files that stay, with changed rows deleted by position.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class MergeRows:
    """Rows of a merge."""

    source: Annotated[int, Doc("Changes in the source.", minimum=0)] = 0
    matching: Annotated[int, Doc("Changes whose key a row of the table has.", minimum=0)] = 0
    unmatched: Annotated[
        int, Doc("Changes whose key no row of the table has, and that no clause inserts.", minimum=0)
    ] = 0
    unmatched_deletes: Annotated[int, Doc("Rows to be deleted that were not found.", minimum=0)] = 0
    unmatched_updates: Annotated[int, Doc("Rows of a feed to be updated that were not found.", minimum=0)] = 0
    superseded: Annotated[
        int,
        Doc(
            "Changes that a later change of their key replaces; with matching, unmatched, inserted, rejected and "
            "waiting they add up to source.",
            minimum=0,
        ),
    ] = 0
    matched: Annotated[int, Doc("Target rows that matched.", minimum=0)] = 0
    updated: Annotated[int, Doc("Target rows that were updated.", minimum=0)] = 0
    deleted: Annotated[int, Doc("Target rows that were deleted.", minimum=0)] = 0
    inserted: Annotated[int, Doc("Rows that were inserted.", minimum=0)] = 0
    ignored: Annotated[int, Doc("Target rows whose change was older than the row.", minimum=0)] = 0
    copied: Annotated[int, Doc("Rows of rewritten files that did not change.", minimum=0)] = 0
    rejected: Annotated[int, Doc("Changes that did not fit and were left out.", minimum=0)] = 0
    waiting: Annotated[
        int, Doc("Changes that fit and were left out because an earlier one of their row is missing.", minimum=0)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class MergeBytes:
    """Bytes of data files of a merge."""

    candidate: Annotated[int, Doc("Of files that may hold a source key.", minimum=0)] = 0
    removed: Annotated[int, Doc("Of files that left the table.", minimum=0)] = 0
    rewritten: Annotated[int, Doc("Of files written in their place.", minimum=0)] = 0
    inserted: Annotated[int, Doc("Of files with inserted rows.", minimum=0)] = 0
    deletes: Annotated[int, Doc("Of files with the positions of deleted rows.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class FunnelStageStatus:
    """What one stage of the funnel did."""

    name: Annotated[str, Doc("The stage.", max_length=MAX_STAGE_NAME)]
    files_in: Annotated[int, Doc("Files that it was given.", minimum=0)] = 0
    files_out: Annotated[int, Doc("Files that it let through.", minimum=0)] = 0
    false_positives: Annotated[int, Doc("Files let through in which no row had a source key.", minimum=0)] = 0
    false_positive_rate: Annotated[
        str, Doc("The fraction of false positives among these files, such as 62.5 %.", max_length=16)
    ] = ""
    left_out: Annotated[LeftOut | None, Doc("Why the stage did not run; absent when it did.")] = None
    message: Annotated[str, Doc("The same as a sentence; for Bloom and KeyIndex, their reads.", max_length=1024)] = ""
    duration_ms: Annotated[int, Doc("Milliseconds that it took.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class IndexBehind:
    """An index that lacked segments of the table when the merge ended, its own among them."""

    name: Annotated[str, Doc("The SecondaryIndex.", max_length=253)]
    missing_segments: Annotated[int, Doc("The number of segments that it lacked.", minimum=0)] = 0
    catches_up: Annotated[
        bool, Doc("Whether a reindex follows by itself; false for maintenance Manual and while suspended.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class MergeJobStatus(JobStatus):
    """What is known of a merge. Of a dry run: what the merge would do to the table as it was then."""

    dry_run: Annotated[
        bool | None, Doc("True when the operator knows that the job is a dry run; absent for other jobs.")
    ] = None
    files: Annotated[FileFunnel | None, Doc("Data files along the funnel.")] = None
    rows: Annotated[MergeRows | None, Doc("Rows by what happened to them.")] = None
    bytes: Annotated[MergeBytes | None, Doc("Bytes of data files by what happened to them.")] = None
    funnel: Annotated[
        tuple[FunnelStageStatus, ...],
        Doc(
            "The stages of the prune funnel in their order.",
            max_items=MAX_STAGES,
            list_key="name",
            item=Doc("One stage."),
        ),
    ] = ()
    rejected_path: Annotated[
        str, Doc("Folder of the changes that were left out, relative to the Warehouse.", max_length=2048)
    ] = ""
    pruned: Annotated[str, Doc("Files that are not read, and all files, such as 388/400.", max_length=64)] = ""
    defaulted_columns: Annotated[
        tuple[DefaultedColumn, ...],
        Doc(
            "The first nullable columns in which the change feed has the default of the source database, which the "
            "converter also writes for null unless replace.null.with.default is false.",
            max_items=MAX_UNUSED,
            list_key="name",
            item=Doc("One column."),
        ),
    ] = ()
    gone_columns: Annotated[
        tuple[str, ...],
        Doc(
            "The first columns that earlier jobs of the change feed had and this one does not have, because the "
            "source table dropped or renamed them.",
            max_items=MAX_UNUSED,
            item=Doc("Name of a column.", max_length=limits.MAX_NAME),
        ),
    ] = ()
    indexes_behind: Annotated[
        tuple[IndexBehind, ...],
        Doc(
            "Indexes that lacked segments when the merge ended; queries stay right.",
            max_items=MAX_INDEXES_BEHIND,
            list_key="name",
            item=Doc("One index."),
        ),
    ] = ()
