"""Rows of values in conditions, such as ``(a, b)`` and ``named_struct('x', a)``: fields, and values of literals.

Used by ``expressions``. Must not know columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skipstone.query.plans.analysis.catalyst import Node
from skipstone.query.plans.analysis.literals import Hidden

_NULL = "null"


@dataclass(frozen=True)
class FieldValue:
    """A field of a literal: a text of what Catalyst holds (None: null) and its Spark type.

    ``may_be_null``: for null, and for a text that is the one by which nulls are told.
    """

    text: str | None
    kind: str

    @property
    def may_be_null(self) -> bool:
        """Return whether the field may be null."""
        return self.text in (None, _NULL)


def is_row(node: Node) -> bool:
    """Return whether an expression makes a row of other expressions."""
    made = node.children[0] if node.name == "Cast" else node
    return made.name == "CreateNamedStruct" and (made is node or _field_types(node) is not None)


def fields_of(row: Node) -> list[Node]:
    """The expressions of the fields of what ``is_row`` is true of."""
    if row.name != "Cast":
        return list(row.children[1::2])
    fields, types = fields_of(row.children[0]), _field_types(row) or []
    return [_cast(field, kind) for field, kind in zip(fields, types, strict=True)]


def values_of(literal: Node, hidden: Hidden) -> list[FieldValue] | None:
    """The values of the fields of a literal; None for what is not a literal of a row."""
    types = _field_types(literal) if literal.name == "Literal" and literal.fields["value"] is not None else None
    return None if types is None else field_values(hidden.fields(literal), types)


def members_of(in_set: Node, hidden: Hidden) -> list[list[FieldValue]] | None:
    """The rows of a set of literals; None when they are too many."""
    rows = hidden.rows(in_set)
    types = [field.fields.get("dataType") for field in fields_of(in_set.children[0])]
    return None if rows is None else [field_values(texts, types) for texts in rows]


def field_values(texts: Sequence[str], types: Sequence[object]) -> list[FieldValue]:
    """Texts with their types; of a string nobody knows whether its text tells null."""
    return [
        FieldValue(None if text == _NULL and kind != "string" else text, str(kind))
        for text, kind in zip(texts, types, strict=True)
    ]


def _field_types(node: Node) -> list[object] | None:
    kind = node.fields.get("dataType")
    if not isinstance(kind, dict) or kind.get("type") != "struct":
        return None
    return [field["type"] for field in kind["fields"]]


def _cast(field: Node, kind: object) -> Node:
    if field.fields.get("dataType") == kind:
        return field
    return Node("Cast", {"dataType": kind}, (field,), field.path)
