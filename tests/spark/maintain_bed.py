"""Tables that need maintenance, and whole maintain runs over them.

Used by the tests of maintenance. A bed is a merge bed: tables are made and merged as there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.maintaining.site import GivingWay
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tables.shaping.formats import has_lineage
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.reports import JobReport, StepReport
from skipstone_core.contract.requests import IndexRef, JobRequest, MaintainTask, RunKind
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenancePolicy, MaintenanceStep

from tests.spark.lake import read_all
from tests.spark.merge_bed import MergeBed, rows_of

_NUMBERS = itertools.count(1)
MEGABYTE = 1024 * 1024
#: Merges any two files, and writes again what has lost a row in ten.
EAGER = CompactionPolicy(target_file_size=64 * MEGABYTE, min_input_files=2)


@dataclass
class MaintainBed(MergeBed):
    """A merge bed whose table is maintained; ``policy`` is what its compaction follows."""

    policy: CompactionPolicy = field(default=EAGER)

    def maintenance(self, steps: tuple[MaintenanceStep, ...], policy: MaintenancePolicy, **task: Any) -> JobRequest:
        """The request of a maintain run."""
        number = next(_NUMBERS)
        return JobRequest(
            kind=RunKind.MAINTAIN,
            run_id=f"maintain-{number:08d}-1",
            attempt=1,
            warehouse=self.warehouse,
            owner_kind="Table",
            owner_name="t",
            owner_uid=self.ref.uid,
            table=replace(self.ref, maintenance=policy),
            maintain=MaintainTask(policy=policy, steps=steps, **task),
        )

    def compaction(self, *indexes: IndexRef, **task: Any) -> JobRequest:
        """The request of a run that compacts by ``policy``."""
        asked = MaintenancePolicy(compaction=self.policy)
        return replace(self.maintenance((MaintenanceStep.COMPACTION,), asked, **task), indexes=indexes)

    def run(
        self,
        request: JobRequest,
        ports: CommitPorts | None = None,
        gives_way: GivingWay | None = None,
        limits: DriverShare | None = None,
    ) -> JobReport:
        """A whole maintain run."""
        return run_maintain(request, Reporter(request), ports, limits or self.limits, gives_way)

    def compact(self, ports: CommitPorts | None = None, limits: DriverShare | None = None, **task: Any) -> StepReport:
        """Compact; what became of it."""
        report = self.run(self.compaction(**task), ports, limits=limits)
        (step,) = report.steps
        return step

    def files(self) -> FileSet:
        """The live files."""
        return read_file_set(self.table())

    def held(self) -> list[str]:
        """All live rows as our own reader gives them, deletes of all kinds applied, in no order, with their lineage."""
        return rows_of(read_all(self.table(), lineage=has_lineage(self.table())))

    def strays(self) -> set[str]:
        """Data files on disk that no retained snapshot names."""
        table, named = self.table(), set()
        for snapshot in table.metadata.snapshots:
            files = read_file_set(table, snapshot.snapshot_id)
            named |= set(files.files["path"].to_pylist())
            named |= {delete.file.file_path for delete in files.delete_files}
        folder = table.location().removeprefix("file://") + "/"
        return {path for path in self.on_disk() if path.startswith(folder)} - {
            path.removeprefix("file://") for path in named
        }


def numbers(start: int, count: int, **more: Any) -> list[dict[str, Any]]:
    """Rows with ids from ``start`` on."""
    return [{"id": number, "v": f"v{number}", **more} for number in range(start, start + count)]
