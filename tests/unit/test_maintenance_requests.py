"""What runs are told of a Table's maintenance and of indexes that are kept inline."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    EqualityDeletesPolicy,
    MaintenancePolicy,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)
from skipstone_operator.reconcilers.runs.requests import build_index_ref, plan_job_run
from skipstone_operator.reconcilers.runs.tables import build_table_ref

from tests.kube.maintenance_cases import WHOLE
from tests.unit import objects
from tests.unit.manifest_cases import request
from tests.unit.world_cases import SETTING, good_warehouse, place, subject

MIB = 1 << 20


def policy_of(maintenance: dict[str, Any] | None) -> MaintenancePolicy | None:
    more = {} if maintenance is None else {"maintenance": maintenance}
    return build_table_ref(subject(objects.table(**more))).maintenance


def test_every_amount_is_told_in_numbers() -> None:
    assert policy_of(WHOLE) == MaintenancePolicy(
        compaction=CompactionPolicy(
            target_file_size=256 * MIB, min_input_files=5, delete_permille=100, sort_by=("day", "id")
        ),
        snapshots=SnapshotPolicy(max_age_seconds=5 * 86_400, min_to_keep=20),
        orphan_files=OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=72 * 3600),
        equality_deletes=EqualityDeletesPolicy(min_files=3),
    )


@pytest.mark.parametrize(
    ("ratio", "permille"), [("0", 0), ("0.1", 100), ("0.05", 50), ("0.125", 125), ("1", 1000), ("1.00", 1000)]
)
def test_a_ratio_is_told_in_thousandths(ratio: str, permille: int) -> None:
    policy = policy_of({"compaction": {"deleteRatio": ratio, "targetFileSize": "2Gi"}})
    assert policy is not None
    assert policy.compaction == CompactionPolicy(target_file_size=2048 * MIB, delete_permille=permille)


@pytest.mark.parametrize(
    ("maintenance", "told"),
    [
        (None, None),
        ({}, MaintenancePolicy()),
        ({"compaction": {"policy": "Off"}, "orphanFiles": {"policy": "Off"}}, MaintenancePolicy()),
        ({"compaction": {"targetFileSize": "tiny"}}, None),
        ({"snapshots": {"maxAge": "yesterday"}}, None),
    ],
)
def test_what_is_off_or_cannot_be_understood_is_not_asked_for(
    maintenance: dict[str, Any] | None, told: MaintenancePolicy | None
) -> None:
    assert policy_of(maintenance) == told


@pytest.mark.parametrize(
    ("spec", "inline"),
    [({}, False), ({"maintenance": "Inline"}, True), ({"maintenance": "Inline", "suspend": True}, False)],
)
def test_an_inline_index_is_told_as_such_unless_it_is_suspended(spec: dict[str, Any], inline: bool) -> None:
    assert build_index_ref(subject(objects.index(**spec))).is_inline is inline


def test_a_job_is_told_of_the_policy_by_which_it_reports_health() -> None:
    where = place(
        table=subject(objects.table(maintenance=WHOLE)), indexes=(subject(objects.index(maintenance="Inline")),)
    )
    assert where.table is not None
    plan = plan_job_run(subject(objects.load("jan")), where, where.table, good_warehouse(), SETTING)
    assert plan.task["table"].maintenance == policy_of(WHOLE)
    assert [index.is_inline for index in plan.task["indexes"]] == [True]


def test_a_maintain_request_survives_its_json() -> None:
    made = request(RunKind.MAINTAIN)
    assert JobRequest.from_json(made.to_json()) == made
