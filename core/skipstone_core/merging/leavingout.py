"""Which merges may leave out rows that do not fit.

Used by the merge run before it reads its source. Must not know files.
"""

from __future__ import annotations

from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.requests import MergeTask
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason


def leaves_out(task: MergeTask) -> bool:
    """Return whether rows of the source of ``task`` that do not fit may be left out.

    Raises BadSpec (INVALID_SPEC) where this would change rows of the table that have nothing to do with them, or let a
    later row be applied as if nothing was missing.
    """
    if task.bad_records is None or task.bad_records.policy is BadRecordPolicy.FAIL:
        return False
    if task.when_not_matched_by_source:
        raise _refused("with whenNotMatchedBySource: a row that is left out would count as one that the source lacks")
    if any(clause.present for clause in task.when_matched):
        raise _refused(
            "with an Update of the columns Present: a later row would be applied as if the one that is left out was "
            "not missing"
        )
    return True


def _refused(why: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, f"it must be Fail {why}", field="spec.badRecords.policy")
