"""``skipstone local logs``: what a pod printed, or the driver of an object of Skipstone."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from skipstone_cli.cluster.api import Api
from skipstone_cli.cluster.transport import Ask
from skipstone_cli.commands.logs import LogQuery, run_logs
from skipstone_cli.errors import ExitCode, NotFound
from skipstone_cli.kinds import parse_target
from skipstone_cli.output.screen import Screen

from skipstone_local.client.objects import Objects, right
from skipstone_local.client.resources import CORE
from skipstone_local.commands.naming import Named, missing, parse_names


@dataclass(frozen=True)
class PodLogQuery:
    """Which log: of a pod, ``po/NAME``, or of the driver of ``KIND/NAME``. ``tail``: its last lines; None: all."""

    word: str
    tail: int | None = None
    follow: bool = False


def run_pod_logs(objects: Objects, screen: Screen, query: PodLogQuery) -> ExitCode:
    """Print a log. Raises CliError."""
    word = query.word if "/" in query.word else f"pods/{query.word}"
    (named,) = parse_names(objects, [word], objects.namespace)
    if named.resource.api_version != CORE:
        lister = f"skipstone local get {{kind}} --namespace {{namespace}}{objects.root}"
        api = Api(objects.transport, objects.namespace, lister=lister)
        return run_logs(api, screen, parse_target(word), LogQuery(None, query.tail, query.follow))
    _print(objects, screen, named, query)
    return ExitCode.FINE


def _print(objects: Objects, screen: Screen, named: Named, query: PodLogQuery) -> None:
    asked = {"tailLines": "" if query.tail is None else str(query.tail), "follow": "true" if query.follow else ""}
    ask = Ask(
        path=(*named.resource.path(named.namespace, named.name), "log"),
        right=right("get", named.resource, named.namespace).replace("pods", "pods/log", 1),
        query={name: text for name, text in asked.items() if text},
    )
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        for piece in objects.transport.stream(ask):
            screen.write(decoder.decode(piece))
    except NotFound as error:
        raise missing(objects, named) from error
    screen.write(decoder.decode(b"", final=True))
