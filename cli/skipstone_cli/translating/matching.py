"""The ON condition of a statement: the keys, what a row of the table must be to match, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.conditions import Conditions, flattened
from skipstone_cli.translating.names import SOURCE, TARGET, Name, is_column
from skipstone_cli.translating.refusals import Untranslatable, quoted


@dataclass(frozen=True)
class Match:
    """The parts of ON. ``keys``: pairs of a table column and a source column. ``where``: conditions on the table alone.

    ``others``: conditions that also ask the source. A pair of rows that does not satisfy them does not match.
    """

    keys: Sequence[tuple[Name, Name]]
    where: Sequence[exp.Expr]
    others: Sequence[exp.Expr]


def read_match(on: exp.Expr, conditions: Conditions) -> Match:
    """The ON condition in its parts. Raises Untranslatable."""
    keys: list[tuple[Name, Name]] = []
    where: list[exp.Expr] = []
    others: list[exp.Expr] = []
    for part in flattened(on, exp.And):
        pair = _pair(part, conditions)
        if pair is not None:
            keys.append(pair)
        elif _sides(part, conditions) == {TARGET}:
            where.append(part)
        else:
            others.append(part)
    if not keys:
        raise Untranslatable(
            "no column of the table equals a column of the source there: a MergeJob matches rows by keys, such as "
            "t.id = s.id"
        )
    twice = [
        target.field for number, (target, _) in enumerate(keys) if target in [earlier for earlier, _ in keys[:number]]
    ]
    if twice:
        raise Untranslatable(f"the table column {twice[0]!r} equals two source columns: leave one of them out")
    return Match(keys, where, others)


def _pair(part: exp.Expr, conditions: Conditions) -> tuple[Name, Name] | None:
    """The table column and the source column that a part says are equal."""
    if not isinstance(part, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = part.this.unnest(), part.expression.unnest()
    if not (is_column(left) and is_column(right)):
        if _sides(part, conditions) == {SOURCE, TARGET}:
            raise Untranslatable(
                f"{quoted(part)} compares what is computed: a key is a pair of columns, so write the source with the "
                "column as the table has it"
            )
        return None
    names = {name.side: name for name in (conditions.scope.find(left), conditions.scope.find(right))}
    if len(names) == 1:
        return None
    if isinstance(part, exp.NullSafeEQ):
        raise Untranslatable(
            f"{quoted(part)} lets null equal null, and a key with a null never matches in a MergeJob: use =, or "
            "write a value in the place of null"
        )
    return names[TARGET], names[SOURCE]


def _sides(part: exp.Expr, conditions: Conditions) -> set[str]:
    return {conditions.scope.find(column).side for column in part.find_all(exp.Column)}
