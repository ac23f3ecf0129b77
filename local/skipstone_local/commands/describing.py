"""``skipstone local describe``: all fields of objects, and their Events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from skipstone_cli.errors import ExitCode, NotFound
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, entries_of, namespace_of, uid_of

from skipstone_local.client.objects import Objects, Selection
from skipstone_local.client.resources import CORE
from skipstone_local.commands.naming import Named, missing, parse_names
from skipstone_local.commands.output.descriptions import description_lines


def run_describe(objects: Objects, screen: Screen, words: Sequence[str], namespace: str, now: datetime) -> ExitCode:
    """Describe objects. Raises CliError."""
    chosen = parse_names(objects, words, namespace)
    texts = []
    for named in chosen:
        for obj in _read(objects, named):
            lines = description_lines(obj, _events(objects, obj), now)
            texts.append("".join(f"{line}\n" for line in lines))
    if not texts:
        screen.note(f"No resources found in {namespace} namespace.")
    screen.write("\n\n".join(texts))
    return ExitCode.FINE


def _read(objects: Objects, named: Named) -> Sequence[JsonObject]:
    if not named.name:
        return entries_of(objects.list_objects(named.resource, Selection(namespace=named.namespace)), "items")
    try:
        return (objects.get(named.resource, named.namespace, named.name),)
    except NotFound as error:
        raise missing(objects, named) from error


def _events(objects: Objects, obj: JsonObject) -> Sequence[JsonObject]:
    events = objects.resources.find_kind(CORE, "Event")
    selection = Selection(namespace=namespace_of(obj), fields=f"involvedObject.uid={uid_of(obj)}")
    return entries_of(objects.list_objects(events, selection), "items")
