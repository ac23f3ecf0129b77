"""Tables of the API server as ``kubectl get`` prints them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_cli.reading import JsonObject, entries_of, namespace_of, number_of, text_of

from skipstone_local.client.resources import Resource
from skipstone_local.commands.output.columns import Columns

#: As kubectl sets its tables.
MINIMUM, PADDING = 6, 3
_BREAK = re.compile(r"[\f\n\r]")


@dataclass(frozen=True)
class TableStyle:
    """Parts of a table beside its columns.

    ``wide``: columns of lower priority too; ``namespaces``: a column for them; ``kinds``: names with their kind before.
    """

    wide: bool = False
    namespaces: bool = False
    kinds: bool = False
    headers: bool = True


def table_lines(table: JsonObject, resource: Resource, style: TableStyle) -> list[str]:
    """The lines of a Table; none without rows."""
    definitions = entries_of(table, "columnDefinitions")
    rows = entries_of(table, "rows")
    if not rows:
        return []
    shown = [place for place, column in enumerate(definitions) if style.wide or not number_of(column, "priority")]
    lines = [[text_of(definitions[place], "name").upper() for place in shown]] if style.headers else []
    if style.namespaces and resource.is_namespaced and style.headers:
        lines[0].insert(0, "NAMESPACE")
    for row in rows:
        lines.append(_row(row, definitions, shown, resource, style))
    return Columns(MINIMUM, PADDING).set(lines)


def _row(
    row: JsonObject, definitions: Sequence[JsonObject], shown: Sequence[int], resource: Resource, style: TableStyle
) -> list[str]:
    cells = row.get("cells") or []
    texts = [_cell(cells[place]) if place < len(cells) else "" for place in shown]
    named = next((place for place, column in enumerate(definitions) if text_of(column, "format") == "name"), None)
    if style.kinds and named in shown:
        texts[shown.index(named)] = f"{resource.full_name}/{texts[shown.index(named)]}"
    if style.namespaces and resource.is_namespaced:
        texts.insert(0, namespace_of(row.get("object")))
    return texts


def _cell(value: object) -> str:
    """One cell, as Go prints values; a text ends at its first line break."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    match = _BREAK.search(text)
    return f"{text[: match.start()]}..." if match else text
