"""What Spark hands to Iceberg of a query's conditions, as the optimized plan has it.

Used by ``substitution``. Must not change a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone.compat.catalyst import LogicalPlan, Scan
from skipstone.compat.java import Jvm
from skipstone.compat.methods import values_at
from skipstone.query.plans.analysis.uses import Key
from skipstone.query.plans.guarding.risks import Risk
from skipstone.query.plans.replacing.trial import scans_of

#: How scans of Iceberg's that prune files describe themselves. Those of staged tasks name no conditions.
_CONDITIONS = re.compile(r"^(Iceberg\w*\().*? filters=(.*)\)$", re.DOTALL)
#: What follows the conditions, by scan. The last one counts: a condition may compare with a text that reads like it.
_AFTER = {
    "IcebergCopyOnWriteScan(": ", groupedBy=",
    "IcebergIncrementalScan(": ", runtimeFilters=",
    "IcebergScan(": ", runtimeFilters=",
}
#: Answers an aggregate from the bounds of files.
_ANSWERED = "IcebergLocalScan("
_DESCRIPTION = ((Scan.description,),)


@dataclass(frozen=True)
class _Handed:
    """The pushdown of a scan: its conditions as text, and the columns of an aggregate that it answers from bounds."""

    key: Key
    conditions: str
    columns: str


def keys_at_risk(jvm: Jvm, optimized: LogicalPlan, risks: Mapping[Key, Risk]) -> frozenset[Key]:
    """The relations of ``risks`` that Iceberg would lose rows of in an optimized plan."""
    return frozenset(
        scan.key for scan in _handed(jvm, optimized) if scan.key in risks and _loses(scan, risks[scan.key])
    )


def _handed(jvm: Jvm, optimized: LogicalPlan) -> Iterator[_Handed]:
    for leaf in scans_of(optimized):
        scan = leaf.scan()
        (description,) = values_at(jvm, scan, _DESCRIPTION)
        match = _CONDITIONS.match(description)
        if match:
            first = leaf.relation().output().apply(0)
            columns = str(scan.readSchema().json()) if match[1] == _ANSWERED else ""
            yield _Handed(int(first.exprId().id()), _conditions(*match.groups()), columns)


def _conditions(scan: str, description: str) -> str:
    """The conditions of what a scan says from there on."""
    after = _AFTER.get(scan, "")
    return description[: description.rindex(after)] if after and after in description else description


def _loses(handed: _Handed, risk: Risk) -> bool:
    if risk.lacks_bounds and handed.conditions:
        return True
    return any(_compares(handed.conditions, name) or _names(handed.columns, name) for name in risk.columns)


def _compares(conditions: str, name: str) -> bool:
    """Return whether conditions name a column other than in tests for null, which lose nothing."""
    tests = re.compile(rf"(?<!\w){re.escape(name)}(?:\.[^\s,()]+)* IS (?:NOT )?NULL")
    return _names(tests.sub("", conditions), name)


def _names(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))
