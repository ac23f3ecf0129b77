"""Runs the command line: ``skipstone``, ``kubectl skipstone`` and ``python -m skipstone_cli``."""

from __future__ import annotations

from skipstone_cli.app import app


def main() -> None:
    """Run the command that the arguments name, and exit."""
    app()


if __name__ == "__main__":
    main()
