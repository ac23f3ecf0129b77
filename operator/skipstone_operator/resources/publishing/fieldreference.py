"""The page docs/reference/resources.md out of the schemas.

Called by ``crds``. Pure: schemas in, Markdown out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from skipstone_operator.resources.publishing.columns import PRINTER_COLUMNS
from skipstone_operator.resources.rules import limits

Schema = Mapping[str, Any]

HEAD = """<!-- Generated from the typed resources by `make generate`. Do not edit. -->
# Resources

All kinds are namespaced, in the group `skipstone.dev`, version `v1alpha1`, category `skipstone`
(`kubectl get skipstone` lists them all). References name resources of the same namespace.
`kubectl explain table.spec` shows the same texts.
"""
ALLOW_LISTS = (
    ("catalog.properties of a Warehouse", limits.CATALOG_PROPERTIES),
    ("spark.conf of a Warehouse", limits.SPARK_CONF),
    ("properties of a Table", (*limits.TABLE_PROPERTIES, *(p + "<column>" for p in limits.TABLE_PROPERTY_PREFIXES))),
    ("source.options of a LoadJob or MergeJob", limits.SOURCE_OPTIONS),
)


def reference_page(roots: Mapping[str, Schema]) -> str:
    """The whole page; ``roots`` are the root schemas by kind."""
    return "\n".join((HEAD, *(_kind(name, root) for name, root in roots.items()), _allow_lists()))


def _kind(name: str, root: Schema) -> str:
    columns = ", ".join(column.name.upper() + (" (wide)" if column.wide else "") for column in PRINTER_COLUMNS[name])
    parts = [f"## {name}", "", root["description"], "", f"`kubectl get` shows: {columns}.", ""]
    for half in ("spec", "status"):
        parts += [f"### {name} {half}", "", "| Field | Type | Meaning |", "|---|---|---|"]
        parts += [_row(path, schema, required=required) for path, schema, required in walk(root["properties"][half])]
        parts.append("")
    messages = dict.fromkeys(all_messages(root))
    parts += [f"### {name} rules", "", *(f"- {_escaped(message)}." for message in messages), ""]
    return "\n".join(parts)


def walk(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Every field below ``schema`` as path, schema and whether it is required; lists add ``[]``, maps ``.*``."""
    needed = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, inner, name in needed
        yield from walk(inner, f"{path}.")
        if "items" in inner:
            yield from walk(inner["items"], f"{path}[].")


def _row(path: str, schema: Schema, *, required: bool) -> str:
    notes = [_escaped(schema["description"])]
    if "enum" in schema:
        notes.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    notes += _bounds(schema)
    if "default" in schema and schema["default"] != {}:
        notes.append(f"Default `{schema['default']}`.".replace("`True`", "`true`").replace("`False`", "`false`"))
    if required:
        notes.append("Required.")
    return f"| `{path}` | {_type(schema)} | {' '.join(notes)} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def _type(schema: Schema) -> str:
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}"
    if "additionalProperties" in schema:
        return f"map of {schema['additionalProperties']['type']}"
    return "time" if schema.get("format") == "date-time" else str(schema["type"])


def _bounds(schema: Schema) -> list[str]:
    texts = (
        ("minimum", "At least {}."),
        ("maximum", "At most {}."),
        ("maxItems", "At most {} items."),
        ("maxProperties", "At most {} entries."),
    )
    return [text.format(schema[word]) for word, text in texts if word in schema]


def all_messages(schema: Schema) -> Iterator[str]:
    """The message of every rule in ``schema`` and below."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for inner in schema.get("properties", {}).values():
        yield from all_messages(inner)
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from all_messages(schema[word])


def _allow_lists() -> str:
    parts = ["## Allowed settings", ""]
    for title, names in ALLOW_LISTS:
        parts += [f"`{title.split(' of ')[0]}` of {title.split(' of ')[1]}:", ""]
        parts += [", ".join(f"`{name}`" for name in names), ""]
    return "\n".join(parts)
