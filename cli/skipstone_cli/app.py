"""The commands as Typer sees them: names, options, help. What they do is in ``commands``.

Every command takes the options by which kubectl finds the API server, and ends with one of the documented exit codes,
never with a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from skipstone_core.maintenance.policies import MaintenanceStep

from skipstone_cli import __version__
from skipstone_cli.errors import CliError, ExitCode
from skipstone_cli.framing import (
    Chosen,
    Connection,
    Session,
    add_groups,
    framed,
    guarded,
    joined,
    offer_files,
    parameters,
    signed,
)
from skipstone_cli.kinds import INDEX, KINDS, SCHEDULE, TABLE, ResourceKind, parse_target, require_name
from skipstone_cli.output.screen import Screen

app = typer.Typer(
    name="skipstone",
    help="Shows the state of Skipstone's tables, indexes and jobs, and its causes. Also runs as 'kubectl skipstone'.",
    epilog="Exit codes: 0 success; 1 the object has failed; 2 usage, not found or forbidden; 3 no Kubernetes API.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _offers(*kinds: ResourceKind) -> Callable[..., list[str]]:
    """Return the completion of an argument that names an object of these kinds."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        from skipstone_cli.commands.completing import offer_targets

        before = ctx.parent.params if ctx.parent else {}
        chosen = {
            parameter.name: joined(before.get(parameter.name), ctx.params.get(parameter.name))
            for parameter in parameters(_access)
        }
        with ExitStack() as until:
            return offer_targets(lambda: _open(chosen, everywhere=False, until=until, patient=False), incomplete, kinds)

    return offer


TargetText = Annotated[
    str,
    typer.Argument(metavar="KIND/NAME", help="The object, such as tbl/orders.", autocompletion=_offers(*KINDS)),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text (the default) or json.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end of the run; the exit code is 1 if it failed.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --wait: stop waiting after this time.")
]


def _access(  # noqa: PLR0913 - one for each option
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace; by default that of the context.")
    ] = "",
    context: Annotated[str, typer.Option("--context", help="The context of the kubeconfig.")] = "",
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", help="The path of the kubeconfig.", autocompletion=offer_files)
    ] = "",
    local: Annotated[
        str,
        typer.Option(
            "--local",
            metavar="DIR",
            help="The folder of 'skipstone local'; by default $SKIPSTONE_LOCAL.",
            autocompletion=offer_files,
        ),
    ] = "",
    as_user: Annotated[str, typer.Option("--as", metavar="USER", help="Act as this user.")] = "",
    as_group: Annotated[
        list[str] | None, typer.Option("--as-group", metavar="GROUP", help="Act as this group.")
    ] = None,
) -> Any:
    """The options by which kubectl finds the API server, and the folder of a local one."""
    # Loading the Kubernetes client takes most of a second: not for --help.
    from skipstone_cli.cluster.kubeconfig import Access

    return Access(
        namespace=require_name(namespace, "a namespace") if namespace else "",
        context=context,
        kubeconfig=kubeconfig,
        local=local,
        as_user=as_user,
        as_groups=tuple(as_group or ()),
    )


def _open(chosen: Chosen, *, everywhere: bool, until: ExitStack, patient: bool = True) -> Any:
    from skipstone_cli.cluster.opening import open_api

    return open_api(_access(**chosen), until, everywhere=everywhere, patient=patient)


def connected(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """A command that gets a ``Session`` and has the options of ``_access`` too; it ends with its exit code."""
    return framed(
        function,
        Connection(_access, lambda chosen, everywhere, until: _open(chosen, everywhere=everywhere, until=until)),
    )


def _wants_json(output: str) -> bool:
    if output not in ("", "text", "json"):
        raise CliError(f"--output is {output!r}: use text or json")
    return output == "json"


def _show_version(ctx: typer.Context, wanted: bool) -> None:  # noqa: FBT001
    # Parsing is resilient while a shell completes the line: then nothing may be printed.
    if wanted and not ctx.resilient_parsing:
        typer.echo(f"skipstone {__version__}")
        raise typer.Exit


def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    output: Output = "",
) -> None:
    pass


def _before(ctx: typer.Context, **given: Any) -> None:
    ctx.obj = given


app.callback()(signed(_before, [*parameters(_main), *parameters(_access)]))


@app.command()
@connected
def status(
    session: Session,
    *,
    target: Annotated[
        str,
        typer.Argument(
            metavar="[KIND/NAME]", help="Show only this object and its children.", autocompletion=_offers(*KINDS)
        ),
    ] = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")] = False,
    every_job: Annotated[
        bool, typer.Option("--all", help="All jobs of each Table, not only the newest three.")
    ] = False,
    output: Output = "",
) -> ExitCode:
    """Show Warehouses, their Tables, and the indexes, schedules and jobs of each Table."""
    from skipstone_cli.commands.status import run_status

    chosen, as_json = parse_target(target) if target else None, _wants_json(output)
    return run_status(session.open(), session.screen, chosen, every_job=every_job, as_json=as_json)


@app.command()
@connected
def report(
    session: Session,
    *,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")] = False,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The file to write the page to; - is standard output.",
            autocompletion=offer_files,
        ),
    ] = "-",
) -> ExitCode:
    """Write one HTML page: open problems, files read by merges, coverage of indexes, lag, stages of runs."""
    from skipstone_cli.commands.report import run_report

    return run_report(session.open(), session.screen, file, datetime.now(UTC))


@app.command()
@connected
def why(session: Session, *, target: TargetText, output: Output = "") -> ExitCode:
    """Show the cause of an object's state, what to do, and what it waits for; with Events and the driver's log."""
    from skipstone_cli.commands.why import run_why

    chosen, as_json = parse_target(target), _wants_json(output)
    return run_why(session.open(), session.screen, chosen, as_json=as_json)


@app.command()
@connected
def logs(
    session: Session,
    *,
    target: TargetText,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="The number of the attempt; by default the latest.")
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Print only this number of last lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the driver ends.")] = False,
) -> ExitCode:
    """Print the log of the driver, or its final report if its pod no longer exists."""
    from skipstone_cli.commands.logs import LogQuery, run_logs

    chosen = parse_target(target)
    return run_logs(session.open(), session.screen, chosen, LogQuery(attempt, tail, follow))


@app.command()
@connected
def reindex(
    session: Session,
    *,
    target: Annotated[
        str, typer.Argument(metavar="si/NAME", help="The SecondaryIndex.", autocompletion=_offers(INDEX))
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Build all entries again; the old ones serve until the new ones do.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> ExitCode:
    """Request a reindex now."""
    from skipstone_cli.commands.asking import Waiting, run_reindex

    chosen = parse_target(target, (INDEX,))
    return run_reindex(session.open(), session.screen, chosen, Waiting(wait, timeout), full=full)


@app.command()
@connected
def maintain(
    session: Session,
    *,
    target: Annotated[str, typer.Argument(metavar="tbl/NAME", help="The Table.", autocompletion=_offers(TABLE))],
    step: Annotated[
        list[MaintenanceStep] | None,
        typer.Option("--step", case_sensitive=False, help="Run only this step; can be repeated."),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> ExitCode:
    """Request maintenance now: all steps in spec.maintenance, or only some."""
    from skipstone_cli.commands.asking import Waiting, run_maintain

    chosen = parse_target(target, (TABLE,))
    return run_maintain(session.open(), session.screen, chosen, step or (), Waiting(wait, timeout))


@app.command()
@connected
def merge(  # noqa: PLR0913 - one for each option
    session: Session,
    *,
    target: Annotated[
        str,
        typer.Argument(
            metavar="[ms/NAME]", help="The MergeSchedule; its next merge is tried.", autocompletion=_offers(SCHEDULE)
        ),
    ] = "",
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The manifest of a MergeJob to try; - is standard input.",
            autocompletion=offer_files,
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: the command only tries a merge and writes nothing.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after this time.")
    ] = None,
    output: Output = "",
) -> ExitCode:
    """Show which files and rows a merge would change, and write nothing (--dry-run)."""
    from skipstone_cli.commands.dryrun import DryRunQuery, run_dry

    if not dry_run:
        raise CliError("this command only tries a merge: add --dry-run, or apply a MergeJob")
    if bool(target) == bool(file):
        raise CliError("name one merge to try: ms/NAME, or a file with --file")
    chosen, as_json = parse_target(target, (SCHEDULE,)) if target else None, _wants_json(output)
    query = DryRunQuery(target=chosen, file=file, namespace=session.namespace, seconds=timeout)
    return run_dry(session.open(), session.screen, query, as_json=as_json)


@app.command()
def sql2merge(  # noqa: PLR0913 - one for each option
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]",
            help="The file with the MERGE INTO; by default standard input.",
            autocompletion=offer_files,
        ),
    ] = "-",
    dialect: Annotated[
        str,
        typer.Option("--dialect", help="spark, delta, iceberg, databricks, trino, snowflake or bigquery."),
    ] = "spark",
    path: Annotated[
        list[str] | None,
        typer.Option(
            "--path", help="Files with the rows of the source, which otherwise are those of a Table; can be repeated."
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Format of the files.")] = "Parquet",
    location: Annotated[str, typer.Option("--location", help="Source location of the Warehouse.")] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=TYPE",
            help="The type of a column of Csv or Json, or in names of folders; can be repeated.",
        ),
    ] = None,
    hive_partitions: Annotated[
        bool, typer.Option("--hive-partitions", help="Names of folders hold values, such as day=2026-01-31.")
    ] = False,
    delta: Annotated[
        str, typer.Option("--delta", metavar="PATH", help="The folder of a Delta table with the rows of the source.")
    ] = "",
    table: Annotated[str, typer.Option("--table", help="The Table; by default the table name in the statement.")] = "",
    source_table: Annotated[
        str,
        typer.Option(
            "--source-table", help="The Table of the source; by default the table name in USING, if there is no --path."
        ),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the MergeJob.")] = "",
    time_zone: Annotated[str, typer.Option("--time-zone", help="Time zone of the sessions that run the MERGE.")] = "",
    keys_not_null: Annotated[
        bool, typer.Option("--keys-not-null", help="The source has no null in a column of ON.")
    ] = False,
) -> None:
    """Translate a MERGE INTO statement into a MergeJob, or name the parts that cannot be translated."""
    from skipstone_cli.commands.sql2merge import Options, run_sql2merge

    options = Options(
        file=file,
        dialect=dialect,
        table=table,
        source_table=source_table,
        name=name,
        paths=tuple(path or ()),
        format=format,
        location=location,
        columns=tuple(column or ()),
        are_folders=hive_partitions,
        delta=delta,
        zone=time_zone,
        keys_are_set=keys_not_null,
    )
    raise typer.Exit(int(guarded(lambda: run_sql2merge(Screen(), options))))


add_groups(app)
