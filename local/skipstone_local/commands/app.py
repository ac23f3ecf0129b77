"""The commands as Typer sees them: names, options, help. What they do is in the modules beside this one.

The command line finds ``app`` by the entry point ``local`` of the group ``skipstone.commands``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from skipstone_cli.errors import CliError, ExitCode
from skipstone_cli.framing import Chosen, Connection, Session, framed, guarded, joined, offer_files, parameters
from skipstone_cli.kinds import TABLE, require_name
from skipstone_cli.output.screen import Screen

from skipstone_local.places import RootFolder, find_root

app = typer.Typer(
    name="local",
    help="Runs Skipstone on this machine, without a cluster: tables in folders, drivers as processes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
DEFAULT_NAMESPACE = "default"


def _place(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The namespace; by default 'default'.")] = "",
    local: Annotated[
        str,
        typer.Option(
            "--root",
            "--local",
            metavar="DIR",
            help="The folder with all data; by default $SKIPSTONE_LOCAL or .skipstone.",
            autocompletion=offer_files,
        ),
    ] = "",
) -> tuple[RootFolder, str]:
    """The options of every command here."""
    chosen = require_name(namespace, "a namespace") if namespace else DEFAULT_NAMESPACE
    return find_root(Path(local) if local else None), chosen


def _open(chosen: Chosen, everywhere: bool, until: ExitStack) -> Any:  # noqa: FBT001 - as Connection says
    from skipstone_local.client.opening import open_root

    root, namespace = _place(**chosen)
    return open_root(root, namespace, until, lambda warning: Screen().note(f"Warning: {warning}"))


def served(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """A command on the objects of a root folder."""
    return framed(function, Connection(_place, _open))


def _offer_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions for KIND, NAME and KIND/NAME."""
    from skipstone_local.commands.completing import offer_words

    before = ctx.parent.params if ctx.parent else {}
    chosen = {
        parameter.name: joined(before.get(parameter.name), ctx.params.get(parameter.name))
        for parameter in parameters(_place)
    }
    root, namespace = _place(**chosen)
    return offer_words(root, namespace, ctx.params.get("words") or [], incomplete)


def _offer_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions for the name of a Table."""
    ctx.params.setdefault("words", [TABLE.plural])
    return _offer_objects(ctx, incomplete)


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KIND[,KIND] [NAME]... | KIND/NAME...",
        help="Objects, such as 'tables', 'tbl orders' or 'tbl/orders mj/first'.",
        autocompletion=_offer_objects,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", metavar="FILE", help="Manifests: a file, a folder, or - for standard input.",
        autocompletion=offer_files,
    ),
]  # fmt: skip
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="With a folder: read its subfolders, too.")]
Labels = Annotated[
    str, typer.Option("--selector", "-l", metavar="LABELS", help="Select only objects with these labels.")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]


@app.command()
@served
def up(
    session: Session,
    *,
    filename: Files = None,
    once: Annotated[bool, typer.Option("--once", help="End when all objects have settled.")] = False,
) -> ExitCode:
    """Apply manifests, run their jobs, show the progress, and keep serving the folder."""
    from skipstone_local.up import UpOptions, run

    root, namespace = session.access()
    options = UpOptions(once=once, namespace=namespace)
    return ExitCode(run(root.path, filename or (), options, lambda line: session.screen.write(f"{line}\n"), os.environ))


@app.command()
def test(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder with a skipstone-test.yaml, or such a file.", autocompletion=offer_files
        ),
    ],
    *,
    junit: Annotated[str, typer.Option("--junit", metavar="FILE", help="Write JUnit's XML for CI systems.")] = "",
    keep: Annotated[
        str, typer.Option("--keep", metavar="DIR", help="Run in this folder, and keep it for inspection.")
    ] = "",
) -> None:
    """Run manifests on sample data, and compare the results with the expectations in a YAML file."""
    from skipstone_local.testing.running import TestQuery, run_test

    raise typer.Exit(int(guarded(lambda: run_test(Screen(), TestQuery(place, junit, keep)))))


@app.command()
@served
def apply(session: Session, *, filename: Files = None, recursive: Recursive = False) -> ExitCode:
    """Create or update the objects of manifests."""
    from skipstone_local.commands.applying import Sources, run_apply

    if not filename:
        raise CliError("name the manifests to apply: add --filename FILE")
    sources = Sources(filename, session.namespace, recursive)
    return run_apply(session.open(), session.screen, sources)


@app.command()
@served
def get(  # noqa: PLR0913 - one for each option
    session: Session,
    *,
    words: Words = None,
    everywhere: Everywhere = False,
    labels: Labels = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="wide, yaml, json or name.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then show each change, until you stop it.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Do not print headers.")] = False,
) -> ExitCode:
    """Show objects, as kubectl does."""
    from skipstone_local.commands.getting import GetQuery, run_get

    query = GetQuery(
        words=words or (),
        namespace="" if everywhere else session.namespace or DEFAULT_NAMESPACE,
        format=output,
        labels=labels,
        watch=watch,
        headers=not no_headers,
    )
    return run_get(session.open(), session.screen, query)


@app.command()
@served
def delete(  # noqa: PLR0913 - one for each option
    session: Session,
    *,
    words: Words = None,
    filename: Files = None,
    recursive: Recursive = False,
    labels: Labels = "",
    every: Annotated[bool, typer.Option("--all", help="Delete all objects of the kind in the namespace.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the objects are gone.")] = True,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after this time.")
    ] = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="A missing object is not an error.")
    ] = False,
) -> ExitCode:
    """Delete objects, and wait until they are gone."""
    from skipstone_local.commands.deleting import DeleteQuery, run_delete

    query = DeleteQuery(
        words=words or (),
        sources=filename or (),
        namespace=session.namespace,
        labels=labels,
        every=every,
        wait=wait,
        seconds=timeout,
        ignore_missing=ignore_not_found,
        recursive=recursive,
    )
    return run_delete(session.open(), session.screen, query)


@app.command()
@served
def describe(session: Session, *, words: Words = None, everywhere: Everywhere = False) -> ExitCode:
    """Show all fields of objects, their conditions and Events."""
    from skipstone_local.commands.describing import run_describe

    namespace = "" if everywhere else session.namespace or DEFAULT_NAMESPACE
    return run_describe(session.open(), session.screen, words or (), namespace, datetime.now(UTC))


@app.command()
@served
def logs(
    session: Session,
    *,
    word: Annotated[
        str,
        typer.Argument(
            metavar="POD | KIND/NAME", help="A pod, or an object with a driver.", autocompletion=_offer_objects
        ),
    ],
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Print only this number of last lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the pod ends.")] = False,
) -> ExitCode:
    """Print the log of a pod, or of the driver of an object."""
    from skipstone_local.commands.logs import PodLogQuery, run_pod_logs

    return run_pod_logs(session.open(), session.screen, PodLogQuery(word, tail, follow))


@app.command()
@served
def changes(  # noqa: PLR0913 - one for each option
    session: Session,
    *,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The Table, such as orders.", autocompletion=_offer_tables)
    ],
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            help="A snapshot id, branch, tag or time (2026-01-31T08:00:00Z); 0 for the time before the first row.",
        ),
    ],
    until: Annotated[str, typer.Option("--to", metavar="POINT", help="Likewise; by default now.")] = "",
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A key column, by default the primary key; can be repeated."),
    ] = None,
    where: Annotated[str, typer.Option("--where", metavar="CONDITION", help="Only rows on which it is true.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Show only this number of changes.")] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="table, json (an object per line), csv or parquet.")
    ] = "",
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Write a file; its ending shows the format.")
    ] = "",
) -> ExitCode:
    """Show the rows that were inserted, updated and deleted between two points of a table's history."""
    from skipstone_local.commands.changing import ChangesQuery, run_changes

    query = ChangesQuery(
        table=table,
        since=since,
        until=until,
        keys=tuple(key) if key else None,
        where=where,
        limit=limit,
        format=output,
        file=file,
    )
    root, _ = session.access()
    return run_changes(session.open(), root, session.screen, query)
