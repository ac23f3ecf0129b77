"""The WHEN clauses of a statement as clauses of a MergeJob."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from skipstone_cli.translating.conditions import Conditions, flattened
from skipstone_cli.translating.dialects import Dialect
from skipstone_cli.translating.literals import Zone
from skipstone_cli.translating.names import Scope, Side, is_column
from skipstone_cli.translating.refusals import Parts, Untranslatable, only, quoted
from skipstone_cli.translating.values import Values

#: A clause as a manifest has it.
Clause: TypeAlias = dict[str, object]
MATCHED, NOT_MATCHED, BY_SOURCE = "whenMatched", "whenNotMatched", "whenNotMatchedBySource"
_WORDS = {
    MATCHED: "WHEN MATCHED",
    NOT_MATCHED: "WHEN NOT MATCHED",
    BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True)
class When:
    """One WHEN of a statement. ``place``: its name in sentences."""

    role: str
    place: str
    node: exp.When


def list_whens(whens: Sequence[exp.Expr]) -> list[When]:
    """The clauses in order, with their roles. Raises Untranslatable for a clause that could never apply."""
    listed: list[When] = []
    for node in whens:
        role = MATCHED if node.args.get("matched") else BY_SOURCE if node.args.get("source") else NOT_MATCHED
        earlier = [when for when in listed if when.role == role]
        if any(when.node.args.get("condition") is None for when in earlier):
            raise Untranslatable(f"a clause {_WORDS[role]} stands behind one without condition: put that one last")
        listed.append(When(role, f"{_WORDS[role]} ({len(earlier) + 1})", node))  # type: ignore[arg-type]
    return listed


@dataclass(frozen=True)
class Clauses:
    """Translates clauses."""

    table: Side
    source: Side
    dialect: Dialect
    zone: Zone
    parts: Parts

    def translate(self, when: When) -> Clause:
        """One clause, without what ``parts`` keeps as refused. Raises Untranslatable."""
        only(when.node, "matched", "source", "condition", "then")
        scope = self._scope(when.role)
        clause: Clause = {}
        values = Values(scope, self.dialect, self.zone)
        condition = when.node.args.get("condition")
        with self.parts.part(f"{when.place}, condition"):
            if condition is not None:
                clause["when"] = Conditions(values).text(condition)
        then = when.node.args["then"]
        match then:
            case exp.Var() if str(then.this).upper() == "DELETE" and when.role != NOT_MATCHED:
                return {**clause, "action": "Delete"}
            case exp.Update() if when.role != NOT_MATCHED:
                return {**clause, "action": "Update", **self._assigned("set", self._updated(then, values, when))}
            case exp.Insert() if when.role == NOT_MATCHED:
                return {**clause, "action": "Insert", **self._assigned("values", self._inserted(then, values, when))}
            case _:
                raise Untranslatable(
                    f"{quoted(then)} is not an action that a MergeJob has: use UPDATE, DELETE or INSERT"
                )

    def _scope(self, role: str) -> Scope:
        sides = {MATCHED: [self.source, self.table], NOT_MATCHED: [self.source], BY_SOURCE: [self.table]}
        return Scope(sides[role], [self.source, self.table])

    def _assigned(self, name: str, assigned: Mapping[str, str] | None) -> Clause:
        return {} if assigned is None else {name: dict(assigned)}

    def _updated(self, node: exp.Update, values: Values, when: When) -> Mapping[str, str] | None:
        """Return the value of each column in SET; None for all columns of equal name."""
        only(node, "expressions")
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
            only(node.expressions[0])
            if when.role == BY_SOURCE:
                raise Untranslatable("SET * has no source row here: name the columns and their values")
            return self._all()
        pairs = [_assignment(expression) for expression in node.expressions]
        return self._collected(pairs, values, when)

    def _inserted(self, node: exp.Insert, values: Values, when: When) -> Mapping[str, str] | None:
        only(node, "this", "expression")
        columns, given = node.this, node.args.get("expression")
        if isinstance(columns, exp.Star):
            only(columns)
            return self._all()
        if not isinstance(columns, exp.Tuple) or not isinstance(given, exp.Tuple | exp.Paren):
            raise Untranslatable(
                "INSERT without names of columns goes by their order in the table: name them, as in INSERT (id) VALUES "
                "(s.id)"
            )
        listed = given.expressions if isinstance(given, exp.Tuple) else [given.this]
        if len(listed) != len(columns.expressions):
            raise Untranslatable(
                f"INSERT has {len(columns.expressions)} columns and {len(listed)} values: give each one"
            )
        return self._collected(list(zip(columns.expressions, listed, strict=True)), values, when)

    def _all(self) -> Mapping[str, str] | None:
        """Return the columns of ``*``: all columns of equal name, or those that the subquery lists."""
        columns = self.source.columns
        if columns.rest and not columns.named:
            return None
        if columns.rest:
            raise Untranslatable("* takes the columns of a subquery that renames some of them: name them")
        scope = Scope([self.source], [self.source])
        named = [exp.column(exp.to_identifier(name, quoted=True)) for name in columns.named]
        return {column.name: scope.find(column).text for column in named}

    def _target(self, node: exp.Expr, when: When) -> str:
        scope = Scope([self.table], [self.table])
        if not is_column(node):
            raise Untranslatable(f"{quoted(node)} is not a column of the table: name the columns that get a value")
        name = scope.find(node)
        if when.role == NOT_MATCHED and len(name.path) > 1:
            raise Untranslatable(f"{quoted(node)} is a field of a new row: give the whole column a value")
        return name.field

    def _collected(self, pairs: Sequence[tuple[exp.Expr, exp.Expr]], values: Values, when: When) -> Mapping[str, str]:
        assigned: dict[str, str] = {}
        for column, value in pairs:
            name = self._target(column, when)
            if name in assigned:
                raise Untranslatable(f"the column {name!r} gets two values: leave one out")
            assigned[name] = ""
            with self.parts.part(f"{when.place}, {name}"):
                assigned[name] = values.assigned(value)
        return assigned


def _assignment(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    if not isinstance(node, exp.EQ):
        raise Untranslatable(f"{quoted(node)} is not an assignment: write column = value")
    return node.this, node.expression


def asks_for_keys(when: When, keys: Collection[str], scope: Scope) -> bool:
    """Return whether a condition holds only where no key of the source is null: ``s.id IS NOT NULL AND …``."""
    condition = when.node.args.get("condition")
    asked = set()
    for part in flattened(condition, exp.And) if condition is not None else ():
        inner = part.this.unnest() if isinstance(part, exp.Not) else None
        if (
            isinstance(inner, exp.Is)
            and isinstance(inner.expression, exp.Null)
            and is_column(inner.this)
            and not inner.args.get("negate")
        ):
            asked.add(scope.find(inner.this).field)
    return set(keys) <= asked
