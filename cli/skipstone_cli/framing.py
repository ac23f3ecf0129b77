"""What every command has: options that may stand before it too, one session, exit codes in the place of tracebacks.

Called by ``app``, and by packages that add commands (the entry points ``skipstone.commands``).
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import entry_points
from typing import Any, get_type_hints

import typer
from skipstone_core.errors import SkipstoneError, way_to_install

from skipstone_cli.errors import CliError, ExitCode
from skipstone_cli.output.screen import Screen, make_printable

#: Typer applications of other packages, each a group of commands under the name of its entry point.
GROUPS = "skipstone.commands"
Chosen = dict[str, Any]


@dataclass(frozen=True)
class Connection:
    """How commands reach what they work with.

    ``options``: a function whose parameters are the options for it, one of them ``namespace``. ``open``: makes it of
    the values of these options; ``everywhere`` for all namespaces; what must end with the command enters the stack.
    """

    options: Callable[..., Any]
    open: Callable[[Chosen, bool, ExitStack], Any]


@dataclass(frozen=True)
class Session:
    """The session of a command. ``open``: the API server that the options name; raises CliError.

    ``namespace``: that of the options; empty if none of them names one. ``access``: what the options of the connection
    make.
    """

    screen: Screen
    open: Callable[[], Any]
    namespace: str
    access: Callable[[], Any]


def framed(function: Callable[..., ExitCode], connection: Connection) -> Callable[..., None]:
    """A command that gets a ``Session`` and has the options of ``connection`` too; it ends with its exit code.

    Options that stand before the command count where it has none of its own.
    """
    own = parameters(function)[1:]
    shared = parameters(connection.options)

    @wraps(function)
    def run(ctx: typer.Context, **given: Any) -> None:
        before: Chosen = ctx.obj or {}
        chosen = {option.name: joined(before.get(option.name), given.pop(option.name)) for option in shared}
        everywhere = bool(given.get("everywhere"))

        def perform() -> ExitCode:
            with ExitStack() as until:
                session = Session(
                    screen=Screen(),
                    open=lambda: connection.open(chosen, everywhere, until),
                    namespace=chosen["namespace"],
                    access=lambda: connection.options(**chosen),
                )
                return function(session, **_with_output(given, before, ctx.info_name))

        raise typer.Exit(int(guarded(perform)))

    return signed(run, [*own, *shared])


def joined(before: Any, own: Any) -> Any:
    """The value of an option that may stand before the command and after it; one that may be repeated has all."""
    return [*(before or ()), *own] if isinstance(own, list) else own or before


def _with_output(given: Chosen, before: Chosen, command: str | None) -> Chosen:
    if not before.get("output"):
        return given
    if "output" not in given:
        raise CliError(f"'{command}' has no --output: leave it out")
    return {**given, "output": given["output"] or before["output"]}


def signed(function: Callable[..., None], options: list[inspect.Parameter]) -> Callable[..., None]:
    """``function`` as Typer sees it: with its context and these options."""
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    function.__signature__ = inspect.Signature([context, *options])  # type: ignore[attr-defined]
    function.__annotations__ = {option.name: option.annotation for option in (context, *options)}
    return function


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function as options of Typer."""
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters.values()
    return [
        parameter.replace(annotation=hints.get(parameter.name, Any), kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in declared
    ]


def add_groups(app: typer.Typer) -> None:
    """Add the groups of commands that installed packages bring."""
    for entry in entry_points(group=GROUPS):
        app.add_typer(entry.load(), name=entry.name)


def offer_files(ctx: typer.Context) -> list[str]:
    """Nothing: shells then offer files, and kubectl is told to do so by what finds the mark in ``ctx.obj``."""
    if ctx.obj is not None:
        ctx.obj.files = True
    return []


def guarded(command: Callable[[], ExitCode]) -> ExitCode:
    """Return the exit code of the command; an exception but SystemExit becomes one sentence and a code."""
    make_printable()
    try:
        return command()
    except SkipstoneError as error:
        Screen().note(f"skipstone: {error}")
        return error.code if isinstance(error, CliError) else ExitCode.REFUSED
    except ModuleNotFoundError as error:
        # One wheel carries all packages; extras install what each of them needs.
        Screen().note(f"skipstone: this needs {error.name}, which is not installed: {way_to_install('local')}")
        return ExitCode.REFUSED
    except BrokenPipeError:
        # Whoever reads the output has seen enough.
        _drop_output()
        return ExitCode.FINE
    except OSError as error:
        _drop_output()
        Screen().note(f"skipstone: the output cannot be written: {error}")
        return ExitCode.REFUSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _drop_output() -> None:
    """Drop buffered output, which would fail again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
