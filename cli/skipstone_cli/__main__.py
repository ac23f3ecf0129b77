"""Runs the command line: ``skipstone``, ``kubectl skipstone`` and ``python -m skipstone_cli``."""

from __future__ import annotations

import sys

from skipstone_cli.app import app, guarded


def main() -> None:
    """Run the command that the arguments name, and exit."""
    # Help and version are printed before any command is run.
    sys.exit(int(guarded(app)))


if __name__ == "__main__":
    main()
