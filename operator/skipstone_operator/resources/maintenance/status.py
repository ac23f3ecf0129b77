"""What the status of a Table tells of its maintenance: how the table is, and what became of each step.

Imported by the Table and by reconcilers. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from skipstone_core.maintenance.policies import MaintenanceStep

from skipstone_operator.resources.rules.markers import Doc, name_text, time_text


@dataclass(frozen=True, kw_only=True)
class Health:
    """How the table is, judged by ``spec.maintenance`` when a run last read its head."""

    time: Annotated[str | None, time_text("When the head was read.")] = None
    small_files: Annotated[int, Doc("Data files below three quarters of the target size.", minimum=0)] = 0
    due_files: Annotated[int, Doc("Data files that compaction would rewrite now.", minimum=0)] = 0
    due_bytes: Annotated[int, Doc("Bytes of these files.", minimum=0)] = 0
    delete_files: Annotated[int, Doc("Delete files and deletion vectors.", minimum=0)] = 0
    equality_delete_files: Annotated[int, Doc("Equality deletes among the delete files.", minimum=0)] = 0
    deleted_rows: Annotated[int, Doc("Rows that live delete files remove from data files.", minimum=0)] = 0
    snapshots: Annotated[int, Doc("Snapshots that the table retains.", minimum=0)] = 0
    expirable_snapshots: Annotated[int, Doc("Snapshots that may expire now.", minimum=0)] = 0
    oldest_snapshot_time: Annotated[str | None, time_text("When the oldest of them was created.")] = None
    next_expiry_time: Annotated[str | None, time_text("The earliest time of the next expiry.")] = None
    manifests: Annotated[int, Doc("Manifests of the current snapshot.", minimum=0)] = 0
    due_manifests: Annotated[int, Doc("Manifests that would be merged now.", minimum=0)] = 0
    manifests_without_bounds: Annotated[
        int, Doc("Manifests that other engines skip, because their list lacks bounds of partitions.", minimum=0)
    ] = 0
    metadata_bytes: Annotated[
        int, Doc("Bytes of the metadata file, the manifest lists and the manifests.", minimum=0)
    ] = 0
    bytes_by_age: Annotated[
        Mapping[str, int],
        Doc(
            "Bytes of live data files by the age of their snapshot: hour, day, week, month, older.",
            max_properties=16,
            item=Doc("Bytes."),
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What became of one step of maintenance when it was last tried."""

    step: Annotated[MaintenanceStep, Doc("The step.")]
    time: Annotated[str, time_text("When its run ended.")]
    run: Annotated[str, name_text("Name of the run.", max_length=63)]
    done: Annotated[bool, Doc("Whether the step was completed.")] = False
    reason: Annotated[str, Doc("Its result, one word of the reasons reference.", max_length=128)] = ""
    message: Annotated[str, Doc("The sentence that goes with it.", max_length=4096)] = ""
    counts: Annotated[
        Mapping[str, int],
        Doc("Numbers that the run reported for it, by name.", max_properties=32, item=Doc("One number.")),
    ] = field(default_factory=dict)
