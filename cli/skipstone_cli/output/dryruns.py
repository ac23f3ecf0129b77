"""What a dry run found, as lines and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_core.funnel import LeftOut

from skipstone_cli.output.screen import Line, Piece
from skipstone_cli.output.trees import DIM
from skipstone_cli.reading import JsonObject, entries_of, field_of, number_of, text_of
from skipstone_cli.views.dryruns import Wanted

LABEL = 22
#: What status.files and status.rows count, and how it is said of a merge that has not been.
FILES = {"touched": "touched", "rewritten": "to be rewritten", "marked": "to be marked"}
ROWS = {
    "source": "in the source",
    "matched": "matched",
    "updated": "to be updated",
    "deleted": "to be deleted",
    "inserted": "to be inserted",
    "unmatchedDeletes": "deletes without a row",
    "unmatchedUpdates": "updates without a row",
    "rejected": "that do not fit",
    "waiting": "waiting for these",
    "ignored": "older than the table",
    "copied": "to be copied",
}


def dry_run_lines(wanted: Wanted, job: JsonObject) -> Iterator[Line]:
    """The funnel from all files to those that would be touched, and the rows."""
    yield [Piece(f"Dry run of {wanted.origin} on tbl/{wanted.table}", "bold")]
    yield [Piece(f"  {_message(job)}")]
    yield [Piece("Files", "bold")]
    yield _row("all", number_of(job, "status", "files", "total"))
    yield from map(_stage, entries_of(job, "status", "funnel"))
    size = number_of(job, "status", "bytes", "candidate") or 0
    yield _row("candidates", number_of(job, "status", "files", "candidate"), f"{size:,} bytes")
    yield from (_row(label, number_of(job, "status", "files", name)) for name, label in FILES.items())
    yield [Piece("Rows", "bold")]
    yield from (_row(label, number_of(job, "status", "rows", name)) for name, label in ROWS.items())


def _row(label: str, number: int | None, note: str = "") -> Line:
    return [Piece(f"  {label:<{LABEL}}{number or 0:>16,}"), Piece(f"  {note}" if note else "", DIM)]


def _stage(stage: JsonObject) -> Line:
    name, left_out, message = text_of(stage, "name"), text_of(stage, "leftOut"), text_of(stage, "message")
    if left_out:
        return [Piece(f"  {name:<{LABEL}}"), Piece(f"left out ({left_out}): {message or _meaning(left_out)}", DIM)]
    before, after = number_of(stage, "filesIn") or 0, number_of(stage, "filesOut") or 0
    return [
        Piece(f"  {name:<{LABEL}}{after:>16,}"),
        Piece(f"  of {before:,}" + (f"; {message}" if message else ""), DIM),
    ]


def _meaning(left_out: str) -> str:
    try:
        return LeftOut(left_out).sentence.rstrip(".")
    except ValueError:
        return "a newer release knows why"


def _message(job: JsonObject) -> str:
    complete = (entry for entry in entries_of(job, "status", "conditions") if text_of(entry, "type") == "Complete")
    return next((text_of(condition, "message") for condition in complete), "")


def dry_run_json(wanted: Wanted, namespace: str, job: JsonObject) -> dict[str, object]:
    """The same as a JSON object; numbers have the names of the status."""
    parts = ("pruned", "files", "rows", "bytes", "funnel")
    return {
        "namespace": namespace,
        "origin": str(wanted.origin),
        "table": wanted.table,
        "message": _message(job),
        **{name: field_of(job, "status", name) for name in parts},
    }
