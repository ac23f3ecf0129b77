"""What ``why`` found, as lines and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skipstone_cli.output.screen import Line, Piece
from skipstone_cli.output.trees import DIM, STYLES
from skipstone_cli.reading import JsonObject, number_of, text_of
from skipstone_cli.views.causes import Explanation

LABEL_WIDTH = 13


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """The end of a driver's log. ``pod`` empty: no pod is left. ``title``: the pod in words. ``note``: why no lines."""

    pod: str = ""
    title: str = ""
    attempt: int = 0
    lines: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that ``why`` tells. ``lacking``: rights that the user does not have."""

    explanation: Explanation
    events: Sequence[JsonObject] | None
    log: LogTail
    lacking: Sequence[str] = ()


def event_time(event: JsonObject) -> str:
    """When the Event was seen last."""
    paths = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))
    return next((moment for path in paths if (moment := text_of(event, *path))), "")


def sorted_events(events: Sequence[JsonObject]) -> list[JsonObject]:
    """Events by time, the newest last."""
    return sorted(events, key=lambda event: event_time(event)[:19])


def _count(event: JsonObject) -> int:
    return number_of(event, "series", "count") or number_of(event, "count") or 1


def report_lines(report: Report) -> Iterator[Line]:
    """The lines of a report."""
    explanation = report.explanation
    standing = explanation.standing
    yield [
        Piece(f"{explanation.target}", "bold"),
        Piece(f" in namespace {explanation.namespace}: "),
        Piece(standing.state.value, STYLES[standing.state]),
    ]
    if standing.reason:
        yield _row("Reason", f"{standing.reason}: {explanation.meaning}".removesuffix(": "))
    for label, text in (
        ("Message", standing.message),
        ("What to do", explanation.remedy),
        ("Left out", explanation.left_out),
        ("In progress", explanation.progress),
    ):
        if text:
            yield _row(label, text)
    if explanation.stale:
        yield _row("Note", "the spec has changed since: the operator has not judged the newest one yet")
    for number, wait in enumerate(explanation.waits):
        yield _row("Waits for" if number == 0 else "", wait)
    yield from _event_lines(report)
    yield from _log_lines(report.log)


def _row(label: str, text: str) -> Line:
    return [Piece(f"  {label:<{LABEL_WIDTH}}", DIM), Piece(text)]


def _event_lines(report: Report) -> Iterator[Line]:
    if report.events is None:
        return
    if not report.events:
        yield [Piece("Events", "bold"), Piece(": none; the API server forgets them after an hour", DIM)]
        return
    yield [Piece("Events", "bold")]
    for event in sorted_events(report.events):
        kind = text_of(event, "type")
        times = f" (x{count})" if (count := _count(event)) > 1 else ""
        yield [
            Piece(f"  {event_time(event)[:19]}  ", DIM),
            Piece(f"{kind:<8}{text_of(event, 'reason')}", "yellow" if kind == "Warning" else ""),
            Piece(f"  {text_of(event, 'message')}{times}"),
        ]


def _log_lines(log: LogTail) -> Iterator[Line]:
    if log.pod:
        yield [Piece(f"Log of {log.title}", "bold")]
        yield from ([Piece(f"  {line}")] for line in log.lines)
    if log.note:
        yield [Piece("  " if log.pod else "Log: "), Piece(log.note, DIM)]


def report_json(report: Report) -> dict[str, object]:
    """The report as a JSON object."""
    explanation = report.explanation
    return {
        "kind": explanation.target.kind.name,
        "namespace": explanation.namespace,
        "name": explanation.target.name,
        "state": explanation.standing.state.value,
        "failed": explanation.standing.failed,
        "reason": explanation.standing.reason,
        "meaning": explanation.meaning,
        "message": explanation.standing.message,
        "whatToDo": explanation.remedy,
        "leftOut": explanation.left_out,
        "inProgress": explanation.progress,
        "specChangedSince": explanation.stale,
        "waitsFor": list(explanation.waits),
        "events": None if report.events is None else [_event_json(each) for each in sorted_events(report.events)],
        "log": {
            "pod": report.log.pod,
            "attempt": report.log.attempt,
            "lines": list(report.log.lines),
            "note": report.log.note,
        },
        "missingRights": list(report.lacking),
    }


def _event_json(event: JsonObject) -> dict[str, object]:
    return {
        "time": event_time(event),
        "type": text_of(event, "type"),
        "reason": text_of(event, "reason"),
        "message": text_of(event, "message"),
        "count": _count(event),
    }
