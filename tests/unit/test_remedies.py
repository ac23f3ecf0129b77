"""Ways out: one for each reason that can be trouble, a sentence each, and none for a reason that is not known."""

from __future__ import annotations

import pytest
from skipstone_core.reasons import Reason
from skipstone_core.remedies import WAYS_OUT, way_out

#: Reasons that say how things are or what goes on, and ask nobody for anything.
NO_TROUBLE = {
    *(Reason.CHECKED, Reason.APPLIED, Reason.CREATED, Reason.ADOPTED, Reason.OBSERVED, Reason.NOT_CREATED_HERE),
    *(Reason.SEGMENTS_IN_SYNC, Reason.HEALTHY, Reason.MAINTENANCE_OFF, Reason.MAINTAINING, Reason.SCHEDULED),
    *(Reason.JOB_ACTIVE, Reason.RUN_INTENDED, Reason.DRIVER_PENDING, Reason.DRIVER_RUNNING, Reason.IDLE),
    *(Reason.DELETING, Reason.COMMITTED, Reason.ALREADY_COMMITTED, Reason.DATA_DELETED, Reason.DATA_RETAINED),
    Reason.UNRECOGNIZED,
}


def test_every_reason_has_a_way_out_or_needs_none() -> None:
    assert set(WAYS_OUT) | NO_TROUBLE == set(Reason)
    assert not set(WAYS_OUT) & NO_TROUBLE


@pytest.mark.parametrize("reason", WAYS_OUT, ids=lambda reason: reason.value)
def test_a_way_out_is_short_and_fits_a_cell_of_a_table(reason: Reason) -> None:
    text = WAYS_OUT[reason]
    assert way_out(reason.value) == text
    assert text[0].isupper() and text.endswith((".", "--overwrite"))
    assert len(text) <= 300 and "|" not in text and "\n" not in text


def test_an_unknown_reason_has_none() -> None:
    assert way_out("Brandnew") == way_out("") == way_out(Reason.IDLE) == ""
