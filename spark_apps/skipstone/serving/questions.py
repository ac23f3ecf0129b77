"""What clients ask for in the bodies of ``/plan`` and ``/tasks``.

Must not read filters: ``query`` does.
"""

from __future__ import annotations

from typing import Any, Final

from skipstone.query.scans import ScanRequest
from skipstone.serving.answers import UNSUPPORTED, Refused, bad_request
from skipstone.serving.transport.intake import read_object

_INCREMENTAL: Final = ("start-snapshot-id", "end-snapshot-id")


def read_scan_request(body: bytes, client: str) -> ScanRequest:
    """The scan that ``body`` asks for; ``client``: how who sends it calls itself.

    Raises Refused: 400 for a field of another type, 406 for the changes between two snapshots.
    """
    asked = read_object(body)
    if any(asked.get(name) is not None for name in _INCREMENTAL):
        message = (
            "this server plans scans of one snapshot and no incremental ones: "
            "read changes through a catalog whose scan-planning-mode is client"
        )
        raise Refused(406, UNSUPPORTED, message)
    snapshot_id = asked.get("snapshot-id")
    if snapshot_id is not None and (not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool)):
        raise bad_request("snapshot-id is not a number: send the id of a snapshot, or leave it out")
    return ScanRequest(
        snapshot_id=snapshot_id,
        filter=asked.get("filter"),
        case_sensitive=_flag(asked, "case-sensitive", usual=True),
        use_snapshot_schema=_flag(asked, "use-snapshot-schema", usual=False),
        select=_names(asked, "select"),
        stats_fields=_names(asked, "stats-fields"),
        client=client,
    )


def read_plan_task(body: bytes) -> object:
    """The token that ``body`` brings, of any type. Raises Refused (400)."""
    return read_object(body).get("plan-task")


def _flag(asked: dict[str, Any], name: str, *, usual: bool) -> bool:
    value = asked.get(name)
    if value is None:
        return usual
    if not isinstance(value, bool):
        raise bad_request(f"{name} is neither true nor false: send one of them, or leave it out")
    return value


def _names(asked: dict[str, Any], name: str) -> tuple[str, ...]:
    value = asked.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(column, str) for column in value):
        raise bad_request(f"{name} is not a list of names: send names of columns, or leave it out")
    return tuple(value)
