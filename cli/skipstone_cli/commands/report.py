"""``skipstone report``: one HTML page about all objects, which needs nothing from outside."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from skipstone_report.page import render_report

from skipstone_cli.cluster.api import EVERYWHERE, Api
from skipstone_cli.commands.gathering import gather
from skipstone_cli.errors import ExitCode
from skipstone_cli.output.screen import Screen


def run_report(api: Api, screen: Screen, file: str, now: datetime) -> ExitCode:
    """Write the page to ``file``, or to the standard output when it is ``-``. Raises CliError, and OSError."""
    gathered = gather(api)
    objects = [obj for of_kind in gathered.objects.values() for obj in of_kind]
    title = "all namespaces" if api.namespace == EVERYWHERE else f"namespace {api.namespace}"
    page = render_report(objects, now, title)
    if file == "-":
        screen.pass_on(page)
    else:
        Path(file).write_text(page, encoding="utf-8")
        screen.note(f"the report is in {file}")
    for refusal in gathered.lacking.values():
        screen.note(f"the report is not whole: {refusal}")
    return ExitCode.REFUSED if gathered.lacking else ExitCode.FINE
