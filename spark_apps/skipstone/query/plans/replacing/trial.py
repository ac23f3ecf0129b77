"""Tries a rewritten query before it is handed out: Spark plans it as it will run it, and readers get what they need.

Used by ``substitution``. The plan that Spark's optimizer makes of a rewritten query may differ in more than its leaves
from the one that it makes of the query itself, and some of these plans cannot run. Must not know tables or indexes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from skipstone.compat.catalyst import Dataset, LogicalPlan, ScanRelation
from skipstone.compat.java import items
from skipstone.query.plans.replacing.staging import RESIDUAL

_SCAN = "DataSourceV2ScanRelation"


#: Leaves that read tables.
_TABLES = frozenset({"DataSourceV2Relation", "HiveTableRelation", "LogicalRelation", _SCAN})


class Unplannable(Exception):
    """The query would fail when it runs."""


class ReadTwice(Unplannable):
    """The query would read a relation more often than it names it."""


def try_plan(dataset: Dataset, *, is_united: bool = False) -> None:
    """Plan ``dataset``, which keeps the plan and runs it later. Raises Unplannable, or what Spark raises.

    ``is_united``: whether it holds unions that the user did not write. Below one, Spark's optimizer repeats the other
    side of a semi join for each part.
    """
    execution = dataset.queryExecution()
    optimized = execution.optimizedPlan()
    if is_united:
        _require_once(execution.analyzed(), optimized)
    for scan in scans_of(optimized):
        _require_residual(scan)
    execution.executedPlan()


def _require_once(analyzed: LogicalPlan, optimized: LogicalPlan) -> None:
    """Refuse a plan that reads more tables than its query names. Scans that only filter others at run time are in
    expressions and do not count.
    """
    named = sum(_tables(plan) for plan in (analyzed, *items(analyzed.subqueriesAll())))
    if (read := _tables(optimized)) > named:
        raise ReadTwice(f"{read} tables are read in the place of {named}")


def _tables(plan: LogicalPlan) -> int:
    return sum(leaf.getClass().getSimpleName() in _TABLES for leaf in items(plan.collectLeaves()))


def scans_of(plan: LogicalPlan) -> Iterator[ScanRelation]:
    """The scans of a plan and of the plans inside its expressions."""
    for query in (plan, *items(plan.subqueriesAll())):
        for leaf in items(query.collectLeaves()):
            if leaf.getClass().getSimpleName() == _SCAN:
                yield cast(ScanRelation, leaf)


def _require_residual(scan: ScanRelation) -> None:
    """Refuse a scan of which the optimizer dropped a column that readers skip row groups by."""
    needed = scan.relation().options().get(RESIDUAL)
    if needed is None:
        return
    read = {field["name"] for field in json.loads(scan.scan().readSchema().json())["fields"]}
    if missing := set(json.loads(needed)) - read:
        raise Unplannable(f"a scan does not read column {min(missing)}, which it skips row groups by")
