"""What runs are told of the branch that a job writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from skipstone_core.contract.branches import BranchSpec, MissingBranch
from skipstone_operator.reconcilers.runs.requests import plan_confirm_run, plan_job_run

from tests.unit import objects
from tests.unit.world_cases import SETTING, good_warehouse, place, subject


@pytest.mark.parametrize("make", [objects.load, objects.merge])
def test_a_job_and_its_confirm_run_are_about_its_branch(make: Callable[..., objects.Obj]) -> None:
    where = place(table=subject(objects.table()))
    assert where.table is not None
    for spec, expected in (
        ({}, None),
        ({"branch": {"name": "audit"}}, BranchSpec(name="audit", if_missing=MissingBranch.REFUSE)),
        (
            {"branch": {"name": "audit", "ifMissing": "Create"}},
            BranchSpec(name="audit", if_missing=MissingBranch.CREATE),
        ),
    ):
        job = subject(make("jan", **spec))
        for plan in (plan_job_run, plan_confirm_run):
            planned = plan(job, where, where.table, good_warehouse(), SETTING)
            assert planned.task["table"].branch == expected
