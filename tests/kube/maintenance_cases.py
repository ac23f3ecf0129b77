"""Manifests of Tables with maintenance that the API server takes or refuses."""

from __future__ import annotations

from typing import Any

from tests.kube.cases import OBSERVED, TABLE, Case, Edit, Manifest

WHOLE: Manifest = {
    "resolveEqualityDeletes": {"minFiles": 3},
    "compaction": {
        "policy": "Auto",
        "targetFileSize": "256Mi",
        "minInputFiles": 5,
        "deleteRatio": "0.1",
        "sortBy": ["day", "id"],
    },
    "snapshots": {"maxAge": "5d", "minToKeep": 20},
    "orphanFiles": {"policy": "Delete", "olderThan": "72h"},
    "window": {"schedule": "0 1 * * *", "duration": "4h", "timeZone": "Europe/Berlin"},
}


def _kept(name: str, maintenance: Manifest, spec: Manifest = TABLE) -> Case:
    return Case(f"maintenance-{name}", "Table", spec, {"maintenance": maintenance})


def _bad(part: str, field: str, value: Any, says: str, *, by_schema: bool = False) -> Case:
    needed = {"snapshots": {"maxAge": "5d"}, "window": {"schedule": "@daily", "duration": "4h"}}.get(part, {})
    changes = {"maintenance": {part: {**needed, field: value}}}
    name = f"maintenance-{field}-{value}"
    return Case(name, "Table", TABLE, changes, f"spec.maintenance.{part}.{field}", says, by_schema=by_schema)


SIZE = "compaction.targetFileSize must be a size from 1Mi to 4Gi"
RATIO = "compaction.deleteRatio must be a number from 0 to 1"
AGE = "snapshots.maxAge must be a time from 1m to 9999d"
OLD = "orphanFiles.olderThan must be a time from 24h to 9999d"
OPEN = "window.duration must be a time from 1m to 999h"
MAINTENANCE_ACCEPTED = (
    _kept("empty", {}),
    _kept("whole", WHOLE),
    _kept("observed", WHOLE, OBSERVED),
    _kept("defaults", {"compaction": {}, "snapshots": {"maxAge": "90m"}, "orphanFiles": {}}),
    _kept("resolves", {"resolveEqualityDeletes": {}}),
    _kept("smallest", {"compaction": {"targetFileSize": "1Mi", "deleteRatio": "0"}, "snapshots": {"maxAge": "1m"}}),
    _kept("largest", {"compaction": {"targetFileSize": "4096Mi", "deleteRatio": "1.0"}}),
    _kept("a-day", {"orphanFiles": {"policy": "Off", "olderThan": "24h"}}),
    Case("index-inline", "SecondaryIndex", {"tableRef": {"name": "orders"}, "columns": ["id"]},
         {"maintenance": "Inline"}),
)  # fmt: skip
MAINTENANCE_REJECTED = (
    *(
        _bad("compaction", "targetFileSize", value, SIZE)
        for value in ("512Ki", "4097Mi", "5Gi", "256", "256MB", "-1Mi", "0Mi")
    ),
    *(_bad("compaction", "deleteRatio", value, RATIO) for value in ("1.1", "-0.1", "10%", "2", "0.12345")),
    _bad("compaction", "minInputFiles", 1, "2", by_schema=True),
    _bad("resolveEqualityDeletes", "minFiles", 0, "1", by_schema=True),
    _bad("compaction", "sortBy", ["nope"], "maintenance.compaction.sortBy names a column that spec.columns"),
    _bad("compaction", "sortBy", ["id", "id"], "compaction.sortBy names a column twice"),
    *(_bad("snapshots", "maxAge", value, AGE) for value in ("0m", "30s", "5", "10000d", "P5D")),
    _bad("snapshots", "minToKeep", 0, "1", by_schema=True),
    *(_bad("orphanFiles", "olderThan", value, OLD) for value in ("23h", "90m", "0d", "3 days")),
    _bad("window", "schedule", "1 * * *", "window.schedule must have five cron fields"),
    *(_bad("window", "duration", value, OPEN) for value in ("0h", "1000h", "2d")),
    _bad("window", "timeZone", "a b", "window.timeZone must be the name of a time zone"),
)
MAINTENANCE_UNTYPED = (
    Case("maintenance-without-age", "Table", TABLE, {"maintenance": {"snapshots": {}}},
         "spec.maintenance.snapshots.maxAge", "Required"),
    Case("maintenance-policy-unknown", "Table", TABLE, {"maintenance": {"orphanFiles": {"policy": "Purge"}}},
         "spec.maintenance.orphanFiles.policy", "Report"),
)  # fmt: skip
MAINTENANCE_EDITS = (
    Edit("table-maintenance", "Table", TABLE, {"maintenance": WHOLE}),
    Edit("table-maintenance-removed", "Table", {**TABLE, "maintenance": WHOLE}, {"maintenance": {}}),
)
