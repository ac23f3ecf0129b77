"""``skipstone local get``: tables, YAML, JSON and names, as kubectl prints them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from skipstone_cli.errors import CliError, ExitCode, Expired, NotFound
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, entries_of, name_of, text_of

from skipstone_local.client.objects import Objects, Selection
from skipstone_local.client.resources import Resource
from skipstone_local.commands.naming import Named, missing, parse_names
from skipstone_local.commands.output.documents import as_document, to_json, to_yaml
from skipstone_local.commands.output.tables import TableStyle, table_lines

FORMATS = ("", "wide", "yaml", "json", "name")
#: Seconds before a watch that the API server has ended begins again.
PAUSE = 0.2


@dataclass(frozen=True, kw_only=True)
class GetQuery:
    """The objects to show, and the format. ``namespace``: empty for all of them."""

    words: Sequence[str]
    namespace: str
    format: str = ""
    labels: str = ""
    watch: bool = False
    headers: bool = True

    def __post_init__(self) -> None:
        """Raises CliError for an unknown format."""
        if self.format not in FORMATS:
            raise CliError(f"--output is {self.format!r}: use {', '.join(FORMATS[1:-1])} or {FORMATS[-1]}")

    def selection(self, named: Named) -> Selection:
        """Those objects of ``named`` that have the labels."""
        return Selection(namespace=named.namespace, name=named.name, labels=self.labels)


def run_get(objects: Objects, screen: Screen, query: GetQuery) -> ExitCode:
    """Show objects. Raises CliError."""
    chosen = parse_names(objects, query.words, query.namespace)
    if query.watch:
        return _watch(objects, screen, query, chosen)
    if query.format in ("", "wide"):
        return _show_tables(objects, screen, query, chosen)
    shown = [obj for named in chosen for obj in _read(objects, query, named)]
    if query.format == "name":
        screen.write("".join(f"{_full_name(objects, obj)}/{name_of(obj)}\n" for obj in shown))
        return ExitCode.FINE
    document = as_document(shown, listed=len(chosen) != 1 or not chosen[0].name)
    screen.write(to_yaml(document) if query.format == "yaml" else to_json(document))
    return ExitCode.FINE


def _read(objects: Objects, query: GetQuery, named: Named) -> Sequence[JsonObject]:
    if not named.name:
        return entries_of(objects.list_objects(named.resource, query.selection(named)), "items")
    try:
        return (objects.get(named.resource, named.namespace, named.name),)
    except NotFound as error:
        raise missing(objects, named) from error


def _full_name(objects: Objects, obj: JsonObject) -> str:
    return objects.resources.find_kind(text_of(obj, "apiVersion"), text_of(obj, "kind")).full_name


def _show_tables(objects: Objects, screen: Screen, query: GetQuery, chosen: Sequence[Named]) -> ExitCode:
    """One table for all of a kind that follow each other; names carry their kind if there are several kinds."""
    tables: list[tuple[Resource, JsonObject]] = []
    for resource, group in groupby(chosen, key=lambda named: named.resource):
        parts = [_tabulate(objects, query, named) for named in group]
        tables.append((resource, {**parts[0], "rows": [row for part in parts for row in entries_of(part, "rows")]}))
    style = _style(query, kinds=len({resource for resource, table in tables if table["rows"]}) > 1)
    texts = [table_lines(table, resource, style) for resource, table in tables]
    if not any(texts):
        everywhere = not query.namespace or not all(named.resource.is_namespaced for named in chosen)
        screen.note("No resources found" + ("" if everywhere else f" in {query.namespace} namespace."))
    blank = "\n" if query.headers else ""
    screen.write(blank.join("".join(f"{line}\n" for line in lines) for lines in texts if lines))
    return ExitCode.FINE


def _style(query: GetQuery, *, kinds: bool) -> TableStyle:
    return TableStyle(wide=query.format == "wide", namespaces=not query.namespace, kinds=kinds, headers=query.headers)


def _tabulate(objects: Objects, query: GetQuery, named: Named) -> JsonObject:
    try:
        return objects.tabulate(named.resource, query.selection(named))
    except NotFound as error:
        if not named.name:
            raise
        raise missing(objects, named) from error


def _watch(objects: Objects, screen: Screen, query: GetQuery, chosen: Sequence[Named]) -> ExitCode:
    """Show what there is, then each change, until the user ends it."""
    if len(chosen) != 1:
        raise CliError("--watch shows one kind or one object: name one")
    if query.format not in ("", "wide"):
        raise CliError(f"--watch shows tables: leave out --output {query.format}")
    (named,) = chosen
    table = _tabulate(objects, query, named)
    definitions, style = table.get("columnDefinitions"), _style(query, kinds=False)
    screen.write("".join(f"{line}\n" for line in table_lines(table, named.resource, style)))
    version = text_of(table, "metadata", "resourceVersion")
    if named.name:
        listed = objects.list_objects(named.resource, query.selection(named))
        version = text_of(listed, "metadata", "resourceVersion")
    style = _style(GetQuery(words=(), namespace=query.namespace, format=query.format, headers=False), kinds=False)
    while True:
        try:
            for change in objects.watch(named.resource, query.selection(named), version, table=True):
                body = {"columnDefinitions": definitions, "rows": change.body.get("rows")}
                screen.write("".join(f"{line}\n" for line in table_lines(body, named.resource, style)))
                version = _version(change.body) or version
        except Expired:
            version = text_of(_tabulate(objects, query, Named(named.resource, named.namespace)), "metadata",
                              "resourceVersion")  # fmt: skip
        time.sleep(PAUSE)


def _version(table: JsonObject) -> str:
    """The newest version in a table of one change."""
    rows = entries_of(table, "rows")
    return text_of(rows[-1].get("object"), "metadata", "resourceVersion") if rows else ""
