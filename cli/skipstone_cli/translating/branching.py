"""Values that depend on conditions (CASE, IF, NULLIF, NVL2) as clauses: one for each case, in the order of the cases.

Both MERGE and a MergeJob apply the first clause of a list whose condition is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from skipstone_cli.translating.refusals import Untranslatable, only

#: How many clauses of a kind a MergeJob has at most, as its CustomResourceDefinition says.
MAX_CLAUSES = 64


@dataclass(frozen=True)
class Assignment:
    """The value that a column gets. ``column``: its path in the table."""

    column: tuple[str, ...]
    value: exp.Expr


@dataclass(frozen=True)
class Case:
    """What is assigned where ``conditions`` are true, each with the column whose value has it.

    Earlier cases go first: where one of theirs is true too, this case does not count.
    """

    assigned: Sequence[Assignment]
    conditions: Sequence[tuple[Assignment, exp.Expr]] = ()


def list_cases(assigned: Sequence[Assignment]) -> list[Case]:
    """The cases of all values together, in order; the last one has no conditions. Raises Untranslatable if many."""
    listed: list[Case] = []
    for case in _cases(Case(assigned), {}):
        listed.append(case)
        if len(listed) > MAX_CLAUSES:
            raise Untranslatable(
                f"its cases make more than {MAX_CLAUSES} clauses: work the values out when you write the source, as "
                "columns of its files"
            )
    return listed


def _cases(case: Case, known: Mapping[str, bool]) -> Iterator[Case]:
    """``known``: conditions by their SQL that are true here, or are not (false or null)."""
    decided: list[Assignment] = []
    for assignment in case.assigned:
        value, condition = _decide(assignment.value, known)
        if condition is not None:
            text = condition.sql()
            taken = replace(case, conditions=[*case.conditions, (assignment, condition)])
            yield from _cases(taken, {**known, text: True})
            yield from _cases(case, {**known, text: False})
            return
        decided.append(replace(assignment, value=value))
    yield replace(case, assigned=decided)


def _decide(value: exp.Expr, known: Mapping[str, bool]) -> tuple[exp.Expr, exp.Expr | None]:
    """The value where ``known`` conditions are as they are, or the first condition that is not known yet."""
    while (choice := _choice(value)) is not None:
        choices, value = choice
        for condition, chosen in choices:
            state = known.get(condition.sql())
            if state is None:
                return value, condition
            if state:
                value = chosen
                break
    return value, None


def _choice(value: exp.Expr) -> tuple[Sequence[tuple[exp.Expr, exp.Expr]], exp.Expr] | None:
    """The conditions of a value with what they choose, and what it is else; None for other values."""
    match node := value.unnest():
        case exp.Case():
            only(node, "this", "ifs", "default")
            compared, default = node.args.get("this"), node.args.get("default")
            choices = [
                (case.this if compared is None else _equal(compared, case.this), case.args["true"])
                for case in node.args["ifs"]
            ]
            return choices, exp.Null() if default is None else default
        case exp.If():
            only(node, "this", "true", "false")
            return [(node.this, node.args["true"])], node.args.get("false") or exp.Null()
        case exp.Nullif():
            only(node, "this", "expression")
            return [(_equal(node.this, node.expression), exp.Null())], node.this
        case exp.Nvl2():
            only(node, "this", "true", "false")
            is_null = exp.Is(this=node.this.copy(), expression=exp.Null())
            return [(exp.Not(this=is_null), node.args["true"])], node.args.get("false") or exp.Null()
        case _:
            return None


def _equal(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.EQ(this=exp.paren(left), expression=exp.paren(right))
