"""The WHEN clauses of a statement as clauses of a MergeJob."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skipstone_core.language.paths import join_path
from sqlglot import exp

from skipstone_cli.translating.branching import Assignment, Case, list_cases
from skipstone_cli.translating.conditions import Condition, Conditions, all_of, flattened
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

    @property
    def conditions(self) -> list[exp.Expr]:
        """The parts of its condition, all of which have to be true."""
        condition = self.node.args.get("condition")
        return [] if condition is None else list(flattened(condition, exp.And))


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
    """Translates clauses. ``kept``: conditions that rows of the source have to satisfy to be inserted."""

    table: Side
    source: Side
    dialect: Dialect
    zone: Zone
    parts: Parts
    kept: Sequence[Condition] = ()

    def translate(self, when: When) -> list[Clause]:
        """One clause, or one for each case of its values, without what ``parts`` keeps as refused.

        Raises Untranslatable.
        """
        only(when.node, "matched", "source", "condition", "then")
        conditions = [*self.kept] if when.role == NOT_MATCHED else []
        if when.node.args.get("condition") is not None:
            condition = Condition(when.node.args["condition"], Conditions(self._values(when)))
            with self.parts.part(f"{when.place}, condition"):
                conditions += [condition] if condition.text else []
        then = when.node.args["then"]
        match then:
            case exp.Var() if str(then.this).upper() == "DELETE" and when.role != NOT_MATCHED:
                return [{**_when(conditions), "action": "Delete"}]
            case exp.Update() if when.role != NOT_MATCHED:
                assigned, action, name = self._updated(then, when), "Update", "set"
            case exp.Insert() if when.role == NOT_MATCHED:
                assigned, action, name = self._inserted(then, when), "Insert", "values"
            case _:
                raise Untranslatable(
                    f"{quoted(then)} is not an action that a MergeJob has: use UPDATE, DELETE or INSERT"
                )
        if assigned is None:
            return [{**_when(conditions), "action": action}]
        return [
            {**_when([*conditions, *self._judged(case, when)]), "action": action, name: self._collected(case, when)}
            for case in list_cases(assigned)
        ]

    def _values(self, when: When) -> Values:
        sides = {MATCHED: [self.source, self.table], NOT_MATCHED: [self.source], BY_SOURCE: [self.table]}
        return Values(Scope(sides[when.role], [self.source, self.table]), self.dialect, self.zone)

    def _judged(self, case: Case, when: When) -> list[Condition]:
        """The conditions of a case that can be translated."""
        judged: list[Condition] = []
        for assignment, node in case.conditions:
            condition = Condition(node, Conditions(self._values(when)))
            with self.parts.part(f"{when.place}, {join_path(assignment.column)}"):
                judged += [condition] if condition.text else []
        return judged

    def _updated(self, node: exp.Update, when: When) -> list[Assignment] | None:
        """Return what SET assigns; None for all columns of equal name."""
        only(node, "expressions")
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
            only(node.expressions[0])
            if when.role == BY_SOURCE:
                raise Untranslatable("SET * has no source row here: name the columns and their values")
            return self._all()
        return self._assigned([_assignment(expression) for expression in node.expressions], when)

    def _inserted(self, node: exp.Insert, when: When) -> list[Assignment] | None:
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
        return self._assigned(list(zip(columns.expressions, listed, strict=True)), when)

    def _all(self) -> list[Assignment] | None:
        """Return the columns of ``*``: all columns of equal name, or those that the subquery lists."""
        columns = self.source.columns
        if columns.rest and not columns.named:
            return None
        if columns.rest:
            raise Untranslatable("* takes the columns of a subquery that renames some of them: name them")
        qualifier = [exp.to_identifier(part, quoted=True) for part in next(iter(self.source.qualifiers), ())]
        return [
            Assignment((name,), exp.column(exp.to_identifier(name, quoted=True), *reversed(qualifier)))
            for name in columns.named
        ]

    def _target(self, node: exp.Expr, when: When) -> tuple[str, ...]:
        scope = Scope([self.table], [self.table])
        if not is_column(node):
            raise Untranslatable(f"{quoted(node)} is not a column of the table: name the columns that get a value")
        path = scope.find(node).path
        if when.role == NOT_MATCHED and len(path) > 1:
            raise Untranslatable(f"{quoted(node)} is a field of a new row: give the whole column a value")
        return path

    def _assigned(self, pairs: Sequence[tuple[exp.Expr, exp.Expr]], when: When) -> list[Assignment]:
        assigned: dict[tuple[str, ...], Assignment] = {}
        for column, value in pairs:
            path = self._target(column, when)
            if path in assigned:
                raise Untranslatable(f"the column {join_path(path)!r} gets two values: leave one out")
            assigned[path] = Assignment(path, value)
        return list(assigned.values())

    def _collected(self, case: Case, when: When) -> Mapping[str, str]:
        collected: dict[str, str] = {}
        fields = case.assigned if when.role == NOT_MATCHED else list(_fields_of(case.assigned))
        for assignment in fields:
            name = join_path(assignment.column)
            if name in collected:
                raise Untranslatable(f"the field {name!r} gets two values: leave one out")
            collected[name] = ""
            with self.parts.part(f"{when.place}, {name}"):
                collected[name] = self._values(when).assigned(assignment.value)
        return collected


def _fields_of(assigned: Sequence[Assignment]) -> Iterator[Assignment]:
    """``assigned``, with the fields of structs that a value names, such as ``named_struct('a', 1)``, one by one."""
    for assignment in assigned:
        fields = named_fields(assignment.value)
        if fields is None:
            yield assignment
        else:
            yield from _fields_of([Assignment((*assignment.column, name), value) for name, value in fields])


def named_fields(value: exp.Expr) -> list[tuple[str, exp.Expr]] | None:
    """The fields of a value that makes a struct, if all have names."""
    node = value.unnest()
    given = node.expressions if isinstance(node, exp.Struct) else []
    named = [field for field in given if isinstance(field, exp.PropertyEQ) and isinstance(field.this, exp.Identifier)]
    return [(str(field.this.name), field.expression) for field in named] if named and named == given else None


def _when(conditions: Sequence[Condition]) -> Clause:
    return {"when": all_of(conditions)} if conditions else {}


def _assignment(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    if not isinstance(node, exp.EQ):
        raise Untranslatable(f"{quoted(node)} is not an assignment: write column = value")
    return node.this, node.expression


def asks_for_keys(conditions: Sequence[Condition], keys: Collection[str]) -> bool:
    """Return whether ``conditions`` are true only where no key of the source is null: ``s.id IS NOT NULL``."""
    asked = set()
    for condition in conditions:
        inner = condition.node.this.unnest() if isinstance(condition.node, exp.Not) else None
        if (
            isinstance(inner, exp.Is)
            and isinstance(inner.expression, exp.Null)
            and is_column(inner.this)
            and not inner.args.get("negate")
        ):
            asked.add(condition.conditions.values.scope.find(inner.this).field)
    return set(keys) <= asked
