"""Runs the command line: ``skipstone``, ``kubectl skipstone`` and ``python -m skipstone_cli``."""

from __future__ import annotations

import sys

from skipstone_cli.app import app, guarded


def main() -> None:
    """Run the command that the arguments name, and exit."""
    # Help and version are printed before any command is run.
    sys.exit(int(guarded(app)))


def complete() -> None:
    """``kubectl_complete-skipstone``: what kubectl offers for the arguments of its plugin."""
    from skipstone_cli.commands.completing import kubectl_completions

    sys.stdout.write(f"{kubectl_completions(app, sys.argv[1:])}\n")


if __name__ == "__main__":
    main()
