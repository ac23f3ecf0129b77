"""What becomes of records that do not fit: the words of requests, and of the specs that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BadRecordPolicy(StrEnum):
    """What happens to rows that do not fit the schema."""

    FAIL = "Fail"
    REDIRECT = "Redirect"
    DROP = "Drop"


@dataclass(frozen=True, kw_only=True)
class BadRecordsSpec:
    """``max_count`` bounds redirected or dropped rows, of a merge those that wait for them too; None: no bound."""

    policy: BadRecordPolicy = BadRecordPolicy.FAIL
    max_count: int | None = None


#: No row may be left out.
FAIL_ON_BAD_RECORDS = BadRecordsSpec()
