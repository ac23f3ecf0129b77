"""Keys and clauses of a MergeJob, and which files it skips.

Imported by the MergeJob and by what makes requests of it. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from skipstone_core.contract.requests import PruningStrategy
from skipstone_core.funnel import PruneStage

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule, name_text


class MatchedAction(StrEnum):
    """What a clause of whenMatched does."""

    UPDATE = "Update"
    DELETE = "Delete"


class NotMatchedAction(StrEnum):
    """What a clause of whenNotMatched does."""

    INSERT = "Insert"


class UpdatedColumns(StrEnum):
    """Which columns an Update without set gives a value."""

    ALL = "All"
    PRESENT = "Present"


@dataclass(frozen=True, kw_only=True)
class MergeKeyPair:
    """A pair of columns that must be equal."""

    target: Annotated[str, name_text("Column of the table.")]
    source: Annotated[str, name_text("Column of the source, or field within a column (after.id).")]


def when_text(text: str) -> Doc:
    """Return the marker of a predicate."""
    return Doc(text, min_length=1, max_length=limits.MAX_PREDICATE)


def _assignments(text: str, item: str) -> Doc:
    return Doc(
        text,
        max_properties=limits.MAX_COLUMNS,
        item=Doc(item, min_length=1, max_length=limits.MAX_ASSIGNED),
    )


_LITERALS = "a literal ('text', 1.5, true, date '2024-12-31', null), default"
_COMPUTED = "an expression of + - * / % ||, coalesce, concat, round, to_date and cast"
_ASSIGNED = f"A source column (x, source.x or source.x.field), {_LITERALS} or {_COMPUTED} over source.x and target.y."
_INSERTED = f"A source column (x, source.x or source.x.field), {_LITERALS} or {_COMPUTED} over source.x."
_BY_NAME = "Table column to source column, literal or expression; all columns of equal name when absent."


@dataclass(frozen=True, kw_only=True)
class MatchedClause:
    """What happens to a target row that a source row matches."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda clause: clause.set is None or clause.action == MatchedAction.UPDATE,
            rule="!has(self.set) || self.action == 'Update'",
            message="whenMatched[].set is for the action Update only: remove it",
            field_path=".set",
        ),
        Rule(
            holds=lambda clause: (
                clause.columns is not UpdatedColumns.PRESENT
                or (clause.action == MatchedAction.UPDATE and clause.set is None)
            ),
            rule="!has(self.columns) || self.columns != 'Present' || (self.action == 'Update' && !has(self.set))",
            message="whenMatched[].columns: Present is for the action Update without set: remove it, or remove set and "
            "name columns that differ in source.mapping",
            field_path=".columns",
        ),
    )

    when: Annotated[
        str | None, when_text("Predicate over source.x and target.y that must hold; always holds when absent.")
    ] = None
    action: Annotated[MatchedAction, Doc("Update or Delete.")]
    set: Annotated[
        Mapping[str, str] | None,
        _assignments(_BY_NAME, _ASSIGNED),
    ] = None
    columns: Annotated[
        UpdatedColumns,
        Doc(
            "All sets columns that a record or file of the source does not have to null, Present keeps their values; "
            "the changes of one key are then applied one after the other, by sequenceBy."
        ),
    ] = UpdatedColumns.ALL


@dataclass(frozen=True, kw_only=True)
class NotMatchedClause:
    """What happens to a source row that matches no target row."""

    when: Annotated[str | None, when_text("Predicate over source.x that must hold; always holds when absent.")] = None
    action: Annotated[NotMatchedAction, Doc("Insert.")] = NotMatchedAction.INSERT
    values: Annotated[
        Mapping[str, str] | None,
        _assignments(_BY_NAME, _INSERTED),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NotMatchedBySourceClause:
    """What happens to a target row that no source row matches."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda clause: bool(clause.set) == (clause.action == MatchedAction.UPDATE),
            rule="(has(self.set) && self.set.size() > 0) == (self.action == 'Update')",
            message="whenNotMatchedBySource[].set is for the action Update, which needs it: name columns and values",
            field_path=".set",
        ),
    )

    when: Annotated[str | None, when_text("Predicate over target.y that must hold; always holds when absent.")] = None
    action: Annotated[MatchedAction, Doc("Update or Delete.")]
    set: Annotated[
        Mapping[str, str] | None,
        _assignments("Table column to literal or expression.", f"A literal or {_COMPUTED} over target.y."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """How files are skipped."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda pruning: len(set(pruning.disabled_stages)) == len(pruning.disabled_stages),
            rule="!has(self.disabledStages) || self.disabledStages.all(s, self.disabledStages.exists_one(o, o == s))",
            message="pruning.disabledStages names a stage twice: name each stage once",
            field_path=".disabledStages",
        ),
    )

    strategy: Annotated[
        PruningStrategy,
        Doc("Auto runs every stage that pays off, MinMax uses no bloom filters and no index, None reads every file."),
    ] = PruningStrategy.AUTO
    disabled_stages: Annotated[
        tuple[PruneStage, ...],
        Doc(
            "Stages of the funnel that are left out with any strategy; the result is the same.",
            max_items=len(PruneStage),
            item=Doc("One stage."),
        ),
    ] = ()


ANY_STAGE = Pruning()


def reachable(name: str, attribute: str) -> Rule:
    """Return the rule that each clause of the list ``name`` can apply."""
    return Rule(
        holds=lambda spec: all(clause.when for clause in getattr(spec, attribute)[:-1]),
        rule=(
            f"!has(self.{name}) || self.{name}.filter(c, !has(c.when)).size() == 0 || "
            f"(self.{name}.filter(c, !has(c.when)).size() == 1 && !has(self.{name}[self.{name}.size() - 1].when))"
        ),
        message=f"{name} has a clause without 'when' before another one, which could never apply: put it last",
        field_path=f".{name}",
    )
