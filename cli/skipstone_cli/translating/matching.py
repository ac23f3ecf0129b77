"""The ON condition of a statement: the keys, and what else two rows must satisfy to match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.conditions import flattened
from skipstone_cli.translating.names import SOURCE, TARGET, Name, Scope, is_column
from skipstone_cli.translating.refusals import Untranslatable, quoted


@dataclass(frozen=True)
class Match:
    """The parts of ON. ``keys``: pairs of a table column and a source column. ``where``: its other conditions, which a
    pair of rows must satisfy, too.
    """

    keys: Sequence[tuple[Name, Name]]
    where: Sequence[exp.Expr]


def read_match(on: exp.Expr, scope: Scope, *, keys_are_set: bool = False) -> Match:
    """The ON condition in its parts. ``keys_are_set``: the source has no null in a key. Raises Untranslatable."""
    parts = [_as_equality(part) for part in flattened(on, exp.And)]
    pairs = [_pair(part, scope) if isinstance(part, exp.EQ) else None for part in parts]
    if keys_are_set and not any(pairs):  # without nulls of the source, <=> is =
        pairs = [_pair(part, scope) for part in parts]
    has_column = any(pair is not None and len(pair[0].path) == 1 for pair in pairs)
    keys: list[tuple[Name, Name]] = []
    where: list[exp.Expr] = []
    for part, pair in zip(parts, pairs, strict=True):
        # beside keys that are columns, a field of a struct is a condition: new rows may lack it
        if pair is not None and (len(pair[0].path) == 1 or not has_column):
            keys.append(pair)
        else:
            where.append(part)
    if not keys:
        raise Untranslatable(next(filter(None, (_near_key(part, scope) for part in where)), _NO_KEY))
    twice = [
        target.field for number, (target, _) in enumerate(keys) if target in [earlier for earlier, _ in keys[:number]]
    ]
    if twice:
        raise Untranslatable(f"the table column {twice[0]!r} equals two source columns: leave one of them out")
    return Match(keys, where)


def _as_equality(part: exp.Expr) -> exp.Expr:
    """``a = b OR (a IS NULL AND b IS NULL)`` as ``a <=> b``, which is true for the same rows; else the part itself."""
    arms = sorted(flattened(part, exp.Or), key=lambda arm: isinstance(arm, exp.And))
    if len(arms) != 2 or not isinstance(arms[0], exp.EQ) or not isinstance(arms[1], exp.And):
        return part
    nulls = [test.this.unnest() for test in flattened(arms[1], exp.And) if _is_null(test)]
    sides = [arms[0].this.unnest(), arms[0].expression.unnest()]
    if len(list(flattened(arms[1], exp.And))) != len(nulls) or nulls not in (sides, sides[::-1]):
        return part
    return exp.NullSafeEQ(this=sides[0], expression=sides[1])


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and not node.args.get("negate")


_NO_KEY = (
    "no column of the table equals a column of the source there: a MergeJob matches rows by keys, such as t.id = s.id"
)


def _near_key(part: exp.Expr, scope: Scope) -> str:
    """Why an equality of both sides is not a key; empty for other conditions."""
    if not isinstance(part, exp.EQ | exp.NullSafeEQ) or len(_sides(part, scope)) < 2:
        return ""
    if _pair(part, scope) is None:
        return (
            f"{quoted(part)} compares what is computed: a key is a pair of columns, so write the source with the "
            "column as the table has it"
        )
    return (
        f"{quoted(part)} lets null equal null, and a key with a null never matches in a MergeJob: use =, say that the "
        "source has none with --keys-not-null, or write a value in the place of null"
    )


def _pair(part: exp.Expr, scope: Scope) -> tuple[Name, Name] | None:
    """The table column and the source column that a part says are equal."""
    if not isinstance(part, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = part.this.unnest(), part.expression.unnest()
    if not (is_column(left) and is_column(right)):
        return None
    names = {name.side: name for name in (scope.find(left), scope.find(right))}
    if len(names) < 2:
        return None
    return names[TARGET], names[SOURCE]


def _sides(part: exp.Expr, scope: Scope) -> set[str]:
    return {scope.find(column).side for column in part.find_all(exp.Column)}
