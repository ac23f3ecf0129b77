"""``skipstone local delete``: objects go, and the command waits until they are gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_cli.errors import CliError, ExitCode, NotFound, OutcomeFailed
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import entries_of, name_of, namespace_of

from skipstone_local.client.objects import Objects, Selection
from skipstone_local.commands.applying import Sources
from skipstone_local.commands.naming import Named, missing, named_by, parse_names

PAUSE = 0.2


@dataclass(frozen=True, kw_only=True)
class DeleteQuery:
    """The objects to delete: named ones, or the manifests of ``sources``. ``seconds``: time to wait; None: no limit."""

    words: Sequence[str]
    sources: Sequence[str]
    namespace: str
    labels: str = ""
    every: bool = False
    wait: bool = True
    seconds: float | None = None
    ignore_missing: bool = False
    recursive: bool = False


def run_delete(objects: Objects, screen: Screen, query: DeleteQuery) -> ExitCode:
    """Delete objects. Raises CliError."""
    chosen = _choose(objects, query)
    deleted = []
    for named in chosen:
        try:
            objects.delete(named.resource, named.namespace, named.name)
        except NotFound as error:
            if query.ignore_missing:
                continue
            raise missing(objects, named) from error
        where = f" from {named.namespace} namespace" if named.namespace else ""
        screen.write(f'{named.resource.full_name} "{named.name}" deleted{where}\n')
        deleted.append(named)
    if query.wait and objects.has_operator:
        _await_absence(objects, deleted, query.seconds)
    elif query.wait and any(_exists(objects, named) for named in deleted):
        serve = f"skipstone local up{objects.root}"
        screen.note(f"some are still there: they go once '{serve}' runs, which lets go of what they hold")
    return ExitCode.FINE


def _choose(objects: Objects, query: DeleteQuery) -> list[Named]:
    if query.sources:
        if query.words:
            raise CliError("name objects, or files with --filename, and not both")
        sources = Sources(query.sources, query.namespace, query.recursive)
        return named_by(objects, sources.read())
    chosen = parse_names(objects, query.words, query.namespace or objects.namespace)
    if all(named.name for named in chosen):
        return chosen
    if not query.every and not query.labels:
        raise CliError("name the objects to delete, or add --all for all of the namespace")
    return [member for named in chosen for member in _all_of(objects, named, query.labels)]


def _all_of(objects: Objects, named: Named, labels: str) -> list[Named]:
    listed = objects.list_objects(named.resource, Selection(namespace=named.namespace, labels=labels))
    return [Named(named.resource, namespace_of(entry), name_of(entry)) for entry in entries_of(listed, "items")]


def _await_absence(objects: Objects, deleted: Sequence[Named], seconds: float | None) -> None:
    ends = None if seconds is None else time.monotonic() + seconds
    for named in deleted:
        while _exists(objects, named):
            if ends is not None and time.monotonic() >= ends:
                raise OutcomeFailed(
                    f"{named.resource.kind} {named.name} is still there after {seconds:g} seconds: it goes when what "
                    "it waits for is done; see 'skipstone why', or do not wait with --no-wait"
                )
            time.sleep(PAUSE)


def _exists(objects: Objects, named: Named) -> bool:
    try:
        objects.get(named.resource, named.namespace, named.name)
    except NotFound:
        return False
    return True
