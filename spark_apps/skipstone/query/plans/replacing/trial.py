"""Tries a rewritten query before it is handed out: Spark plans it as it will run it, and readers get what they need.

Used by ``rewriting``. The plan that Spark's optimizer makes of a rewritten query may differ in more than its leaves
from the one that it makes of the query itself, and some of these plans cannot run. Must not know tables or indexes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from skipstone.query.plans.analysis.catalyst import Java
from skipstone.query.plans.replacing.staging import RESIDUAL

_SCAN = "DataSourceV2ScanRelation"


class Unplannable(Exception):
    """The query would fail when it runs."""


def try_plan(dataset: Java) -> None:
    """Plan ``dataset``, which keeps the plan and runs it later. Raises Unplannable, or what Spark raises."""
    execution = dataset.queryExecution()
    optimized = execution.optimizedPlan()
    for scan in _scans(optimized):
        _require_residual(scan)
    execution.executedPlan()


def _scans(plan: Java) -> Iterator[Java]:
    """The scans of a plan and of the plans inside its expressions."""
    inner = plan.subqueriesAll()
    for one in (plan, *(inner.apply(number) for number in range(inner.size()))):
        leaves = one.collectLeaves()
        for leaf in (leaves.apply(number) for number in range(leaves.size())):
            if leaf.getClass().getSimpleName() == _SCAN:
                yield leaf


def _require_residual(scan: Java) -> None:
    """Refuse a scan of which the optimizer dropped a column that readers skip row groups by."""
    needed = scan.relation().options().get(RESIDUAL)
    if needed is None:
        return
    read = {field["name"] for field in json.loads(scan.scan().readSchema().json())["fields"]}
    if missing := set(json.loads(needed)) - read:
        raise Unplannable(f"a scan does not read column {min(missing)}, which it skips row groups by")
