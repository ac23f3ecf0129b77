"""Runs the command line: ``skipstone``, ``kubectl skipstone`` and ``python -m skipstone_cli``.

Also what shells and kubectl run when the user presses Tab. Then nothing is imported before errors are caught.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def main() -> None:
    """Run the command that the arguments name, and exit; for a shell that asks, offer what may follow."""
    asked = os.environ.get(_shell_variable(), "")
    if asked.startswith("complete_"):
        _serve_shell(_answer_bash if asked == "complete_bash" else _run)
    sys.exit(_run())


def complete() -> None:
    """``kubectl_complete-skipstone``: what kubectl offers for the arguments of its plugin."""
    _serve_shell(_answer_kubectl)


def _run() -> int:
    from skipstone_cli.app import app
    from skipstone_cli.framing import guarded

    # Help and version are printed before any command is run.
    return int(guarded(app))


def _answer_bash() -> int:
    from skipstone_cli.commands.shells import join_for_bash

    join_for_bash(os.environ)
    return _run()


def _answer_kubectl() -> int:
    try:
        from skipstone_cli.app import app
        from skipstone_cli.commands.shells import kubectl_completions

        sys.stdout.write(f"{kubectl_completions(app, sys.argv[1:])}\n")
    except Exception:  # noqa: BLE001 - whatever it is, a user who presses Tab cannot do anything about it
        # Offer nothing, no files either.
        sys.stdout.write(":4\n")
    return 0


def _shell_variable() -> str:
    """The variable in which a shell's script says what it asks for; Typer names it so."""
    return f"_{Path(sys.argv[0]).name}_COMPLETE".replace("-", "_").upper()


def _serve_shell(offer: Callable[[], int]) -> NoReturn:
    """Make the offers and end the process. Errors are not shown, and nothing that still runs is waited for."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    # The terminal is the shell's: credential plugins must neither read what the user types nor write there.
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 2)
    code = 1
    try:
        try:
            code = offer()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
