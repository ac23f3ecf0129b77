"""Whether a condition of a query may fail on a value, as a division by zero does, instead of being true or false.

Used by ``state``. Spark tests the rows that a table has. What stands in the place of a table may bring others, such
as deleted rows, which are left out by their place, and Spark's optimizer moves conditions below that. A condition that
cannot fail just leaves them out earlier. Must not change a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.query.plans.analysis.catalyst import Node, expression_id, output_ids
from skipstone.query.plans.analysis.uses import Scope

_CONDITIONED = frozenset({"Filter", "Join"})
#: Expressions over many rows: no condition on them is moved below the rows.
_OF_MANY_ROWS = frozenset({"AggregateExpression", "WindowExpression"})
#: Expressions that have a value, or are null, whatever their operands are. Others may fail.
_SAFE = frozenset(
    {
        *("Alias", "AttributeReference", "Literal", "OuterReference"),
        *("And", "Not", "Or", "Between", "EqualNullSafe", "EqualTo", "In", "InSet", "IsNaN", "IsNotNull", "IsNull"),
        *("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"),
        *("CaseWhen", "Coalesce", "CreateNamedStruct", "If", "Lower", "StartsWith", "Upper", "Year"),
        *("Exists", "InSubquery", "ListQuery", "ScalarSubquery"),
    }
)
#: Spark's types of numbers of which each holds all values of those before it, as far as conditions are concerned.
_WIDER = ("byte", "short", "integer", "long", "float", "double")


def may_fail(query: Scope) -> bool:
    """Return whether some condition of a query, or of a subquery, may fail on values that its tables do not have."""
    nodes = [node for scope in query.all() for node in scope.tree.walk()]
    conditions = [expression for node in nodes if node.name in _CONDITIONED for expression in node.expressions.values()]
    if any(_fails(condition) for condition in conditions):
        return True
    made = (expression for node in nodes if node.name not in _CONDITIONED for expression in node.expressions.values())
    if not any(_fails(expression) for expression in made):
        return False
    # a condition on such a value becomes one that computes it
    own = {number for scope in query.all() for relation in scope.relations for number in output_ids(relation)}
    return any(_tests_unions(node) for node in nodes) or any(not _ids(condition) <= own for condition in conditions)


def _tests_unions(node: Node) -> bool:
    """Return whether a condition may move into the arms of a union, which has the column ids of its first arm."""
    return (
        node.name in _CONDITIONED
        and bool(node.expressions)
        and any(descendant.name == "Union" for descendant in node.walk())
    )


def _fails(expression: Node) -> bool:
    """Return whether an expression of one row may fail, depending on the row."""
    if any(node.name in _OF_MANY_ROWS for node in expression.walk()):
        return False
    return any(not _is_safe(node) for node in _on_columns(expression))


def _on_columns(expression: Node) -> Iterator[Node]:
    """The parts of an expression that depend on columns; what does not depend on any has one value for all rows."""
    if any(not node.children and node.name != "Literal" for node in expression.walk()):
        yield expression
        for child in expression.children:
            yield from _on_columns(child)


def _is_safe(node: Node) -> bool:
    match node.name:
        case "Cast":
            return _is_widening(node)
        case "Remainder":
            return _is_other_than_zero(node.children[1])
        case name:
            return name in _SAFE


def _is_widening(cast: Node) -> bool:
    known, wanted = str(cast.children[0].fields.get("dataType")), str(cast.fields["dataType"])
    if known in _WIDER and wanted in _WIDER:
        return _WIDER.index(known) <= _WIDER.index(wanted)
    return wanted == "string" or (known, wanted) == ("date", "timestamp")


def _is_other_than_zero(divisor: Node) -> bool:
    number = divisor.children[0] if divisor.name == "Cast" else divisor
    return (
        number.name == "Literal"
        and str(number.fields["value"]).lstrip("-").isdecimal()
        and number.fields["value"] != "0"
    )


def _ids(expression: Node) -> frozenset[int]:
    return frozenset(expression_id(node) for node in expression.walk() if node.name == "AttributeReference")
