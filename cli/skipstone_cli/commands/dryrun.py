"""``skipstone merge --dry-run``: what a merge would do to its Table, found out by a MergeJob that writes nothing.

The job is gone when the command ends, however it ends.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from skipstone_cli.cluster.api import Api
from skipstone_cli.commands.waiting import Waiter
from skipstone_cli.errors import CliError, ExitCode, NotFound, OutcomeFailed, unreadable
from skipstone_cli.kinds import MERGE_JOB, TABLE, Target, require_name
from skipstone_cli.output.dryruns import dry_run_json, dry_run_lines
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, name_of
from skipstone_cli.views.dryruns import Wanted, build_dry_run, find_end, find_understood, read_wanted, wanted_of
from skipstone_cli.views.outcomes import Outcome

DOCUMENT = {"apiVersion": "cli.skipstone.dev/v1", "kind": "MergeDryRun"}


@dataclass(frozen=True, kw_only=True)
class DryRunQuery:
    """The subject of a dry run: a MergeSchedule, or the MergeJob in ``file`` (- is the standard input).

    ``namespace``: as given on the command line, empty if it was not. ``seconds``: how long to wait; None is for ever.
    """

    target: Target | None = None
    file: str = ""
    namespace: str = ""
    seconds: float | None = None


def run_dry(api: Api, screen: Screen, query: DryRunQuery, *, as_json: bool = False) -> ExitCode:
    """Show what the merge would do. Raises CliError."""
    wanted = wanted_of(api.get(query.target)) if query.target is not None else read_wanted(*_read(query.file))
    place = _placed(api, query, wanted)
    place.get(Target(TABLE, require_name(wanted.table, "the name of a Table")))
    with _created(place, screen, build_dry_run(wanted, secrets.token_hex(4))) as made:
        ended = _follow(place, screen, made, query.seconds)
    if as_json:
        screen.show_json({**DOCUMENT, **dry_run_json(wanted, place.namespace, ended)})
    else:
        screen.show(dry_run_lines(wanted, ended))
    return ExitCode.FINE


def _read(file: str) -> tuple[str, str]:
    try:
        return (sys.stdin.read(), "standard input") if file == "-" else (Path(file).read_text(encoding="utf-8"), file)
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error


def _placed(api: Api, query: DryRunQuery, wanted: Wanted) -> Api:
    """The namespace that the manifest names, or else that of the command line or the kubeconfig."""
    if not wanted.namespace:
        return api
    if query.namespace not in ("", wanted.namespace):
        raise CliError(f"{query.file} names the namespace {wanted.namespace}, --namespace {query.namespace}: use one")
    return replace(api, namespace=require_name(wanted.namespace, "a namespace"))


@contextmanager
def _created(api: Api, screen: Screen, manifest: JsonObject) -> Iterator[JsonObject]:
    """The job, which is deleted in the end. An answer that was lost may have been that it was created."""
    target = Target(MERGE_JOB, name_of(manifest))
    try:
        yield _create(api, manifest)
    finally:
        try:
            api.delete(target)
        except NotFound:
            pass
        except CliError as error:
            screen.note(f"{target} is left, delete it yourself: {error}")


def _create(api: Api, manifest: JsonObject) -> JsonObject:
    try:
        return api.create(MERGE_JOB, manifest)
    except CliError as error:
        if 'unknown field "spec.dryRun"' in str(error):
            raise CliError("the CRDs of this cluster know no dry run of a merge: upgrade Skipstone first") from error
        raise


def _follow(api: Api, screen: Screen, made: JsonObject, seconds: float | None) -> JsonObject:
    """The job when its dry run has succeeded. Raises CliError."""
    waiter = Waiter(api, screen, Target(MERGE_JOB, name_of(made)), seconds)
    if not waiter.wait(made, find_understood):
        # It would apply the changes.
        raise CliError("the operator of this cluster knows no dry run of a merge: upgrade Skipstone first")
    begun = api.patch(waiter.target, {"spec": {"suspend": False}})
    outcome, ended = waiter.wait(begun, _with_end)
    if not outcome.succeeded:
        raise OutcomeFailed(outcome.message)
    return ended


def _with_end(job: JsonObject) -> tuple[Outcome, JsonObject] | None:
    outcome = find_end(job)
    return None if outcome is None else (outcome, job)
